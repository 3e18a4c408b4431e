"""Files of weights: what they bring, and that no other file is taken for one."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samples import records
from secateur import OptionError, TokenEstimator, WeightsError, families
from secateur._core import feature_names
from secateur.families import Network, Singles, to_bytes

TEXTS = [record["text"] for record in records("tokens.jsonl")[:4]]


def small_network(count: int) -> Network:
    """A network of made-up weights."""
    width, random = len(feature_names()), np.random.default_rng(1)
    layers: dict[str, Singles] = {
        "first": random.normal(0, 0.05, (width + 1, families.HIDDEN)).astype(np.float32),
        "first_bias": np.zeros(families.HIDDEN, np.float32),
        "second": random.normal(0, 0.05, (families.HIDDEN, count)).astype(np.float32),
        "second_bias": np.zeros(count, np.float32),
    }
    return Network(np.full((width, count), 0.1, np.float32), np.zeros(width + 1), np.ones(width + 1), layers)


WRITTEN = to_bytes(small_network(2), ["mine", "yours"], np.full((2, 2), 0.1), about="made up\nfor a test")


def test_a_file_has_profiles_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(WRITTEN)
    for weights in (WRITTEN, tmp_path / "w", str(tmp_path / "w")):
        mine = TokenEstimator("mine", weights=weights)
        assert list(mine.by_family("text")) == ["mine", "yours"]
        assert (mine.native.about, mine.count(TEXTS[0]) > 0) == ("made up", True)
    assert TokenEstimator(weights=WRITTEN).count(TEXTS[0]) == max(mine.by_family(TEXTS[0]).values())
    with pytest.raises(OptionError, match="profile is 'o200k', it must be 'script' or 'mine' or 'yours' or 'any'"):
        TokenEstimator("o200k", weights=WRITTEN)


def test_truncated_and_foreign_files_are_refused() -> None:
    inputs, hidden = len(feature_names()) + 1, families.HIDDEN
    ends = [0, *np.cumsum([len(line) + 1 for line in WRITTEN.split(b"\n")[:4]]).tolist()]
    # Caps, rates, scales, first layer and its bias, second layer and its bias, margins.
    for size in (4 * inputs, 8 * (inputs - 1), 4 * inputs, inputs * hidden, 4 * hidden, 8 * hidden, 8, 16):
        ends.append(ends[-1] + size)
    assert ends.pop() == len(WRITTEN)
    for end in (*ends, len(WRITTEN) - 1):
        for length in {max(0, end - 1), end, min(end + 1, len(WRITTEN) - 1)}:
            with pytest.raises(WeightsError):
                TokenEstimator(weights=WRITTEN[:length])
    crowd = b" ".join(b"%d" % number for number in range(17))
    nothing = np.array([np.nan, np.inf], np.float32).tobytes()
    for foreign in (
        WRITTEN.replace(b"tokens 1\n", b"tokens 2\n"),
        WRITTEN.replace(b"mine yours\n%d " % (inputs - 1), b"mine yours\n5 "),
        WRITTEN.replace(b"mine yours", crowd),
        WRITTEN[:-8] + nothing,
    ):
        assert foreign != WRITTEN
        with pytest.raises(WeightsError):
            TokenEstimator(weights=foreign)


@settings(max_examples=200)
@given(st.binary(max_size=400), st.lists(st.tuples(st.integers(0, len(WRITTEN) - 1), st.integers(0, 255)), max_size=9))
def test_damaged_files_never_crash(rest: bytes, changes: list[tuple[int, int]]) -> None:
    with pytest.raises(WeightsError):
        TokenEstimator(weights=families.MAGIC + rest)
    damaged = bytearray(WRITTEN)
    for place, byte in changes:
        damaged[place] = byte
    try:
        loaded = TokenEstimator(weights=bytes(damaged))
    except WeightsError:
        return
    assert all(loaded.count(text) <= loaded.upper(text) for text in ("", *TEXTS))
