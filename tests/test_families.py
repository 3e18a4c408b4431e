"""Fitting estimates to tokenizers: what is learned, and the file of weights that it is written to."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from samples import DATA
from secateur import OptionError, TokenEstimator, families
from secateur.families import Network, Texts, fit_network, folds, margins, read_calibration, to_bytes

NAMES = ["coarse", "fine"]


@pytest.fixture(scope="module")
def calibration() -> list[dict[str, Any]]:
    """Pieces of real texts with the counts of two small tokenizers."""
    sentences = json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))
    tokenizers = {}
    for name, size in zip(NAMES, (3000, 500), strict=True):
        tokenizers[name] = Tokenizer(models.BPE())
        tokenizers[name].pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
        tokenizers[name].train_from_iterator(sentences, trainer)
    return [
        {"text": text, "source": f"sentence {number}", "lang": "en", "counts": {
            name: len(tokenizer.encode(text).ids) for name, tokenizer in tokenizers.items()
        }}
        for number, sentence in enumerate(sentences)
        for text in (sentence[start : start + 150] for start in range(0, min(len(sentence), 600), 150))
        if text.strip()
    ]  # fmt: skip


def test_a_network_learns_and_counts_as_the_file_that_it_is_written_to(calibration: list[dict[str, Any]]) -> None:
    texts = Texts.of(calibration, NAMES)
    held = folds([record["source"] for record in calibration], 5) == 0
    known, unknown, epochs = texts[~held], texts[held], []
    network = fit_network(known, epochs=30, progress=lambda epoch, of: epochs.append((epoch, of)))
    assert epochs == [(epoch, 30) for epoch in range(1, 31)]
    rate = known.tokens.sum(axis=0) / known.characters.sum()
    error = np.abs(network(unknown) / unknown.tokens - 1).mean(axis=0)
    assert (error < 0.7 * np.abs(unknown.characters[:, None] * rate / unknown.tokens - 1).mean(axis=0)).all()
    assert (fit_network(known, epochs=30)(unknown) == network(unknown)).all(), "the same weights from the same texts"

    margin = margins(unknown.tokens, network(unknown), ["en"] * int(held.sum()), length=10)
    assert margin.shape == (2, 2)
    assert (margin > 0).all()
    written = to_bytes(network, NAMES, margin)
    estimator = TokenEstimator("fine", weights=written)
    counted = np.array([estimator.native.by_family(record["text"]) for record in calibration])
    assert counted == pytest.approx(network(texts), rel=0.01)
    bounds = [estimator.upper(record["text"]) for record in calibration]
    assert np.mean(texts.tokens[:, 1] > bounds) < 0.02


def test_fit_families_makes_a_file_that_loads(calibration: list[dict[str, Any]]) -> None:
    steps: list[tuple[int, int]] = []
    written = families.fit_families(
        calibration, epochs=2, about="pieces", progress=lambda done, of: steps.append((done, of))
    )
    assert steps == [(done, 12) for done in range(1, 13)]
    estimator = TokenEstimator("coarse", weights=written)
    assert (estimator.native.families, estimator.native.about) == (NAMES, "pieces")
    assert estimator.count("some words of a text") > 0


def test_bad_records_are_refused(calibration: list[dict[str, Any]], tmp_path: Path) -> None:
    whole, one = {"text": "abc", "counts": {"coarse": 1, "fine": 2}}, {"text": "abc", "counts": {"coarse": 1}}
    for bad in (one, whole | {"text": ""}, *(whole | {"counts": {"coarse": 1, "fine": n}} for n in (0, -1, 1.5, "2"))):
        with pytest.raises(
            OptionError, match=r"counts of record \d+ is .*, it must be a positive number for '(coarse|fine)'"
        ):
            families.fit_families([*calibration, bad])
    with pytest.raises(OptionError, match="records is 199, it must be at least 200 texts"):
        families.fit_families(calibration[:199])
    path = tmp_path / "calibration.jsonl"
    lines = "".join(json.dumps(record) + "\n" for record in (whole, one))
    for content in (lines.encode(), gzip.compress(lines.encode())):
        path.write_bytes(content)
        assert read_calibration(path) == [whole, one]
    for line in ("[]", "5", '{"text": "abc"}', '{"counts": {}}'):
        path.write_text(f"{lines}{line}\n", encoding="utf-8")
        with pytest.raises(OptionError, match=r"line 3 of calibration.jsonl is .*, it must be an object"):
            read_calibration(path)
    network = Network(np.zeros((1, 1), np.float32), np.zeros(2), np.ones(2))
    for names in ([], ["two words"], [""], [str(number) for number in range(17)]):
        with pytest.raises(OptionError, match="families is"):
            to_bytes(network, names, np.zeros((1, 2)))


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60), st.integers(1, 6))
def test_folds_keep_groups_together(groups: list[str], count: int) -> None:
    fold_of = folds(groups, count)
    assert len({(group, fold) for group, fold in zip(groups, fold_of, strict=True)}) == len(set(groups))
    assert set(fold_of.tolist()) <= set(range(count))
    sizes = [int((fold_of == fold).sum()) for fold in range(count)]
    assert max(sizes) - min(sizes) <= max(groups.count(group) for group in groups)
