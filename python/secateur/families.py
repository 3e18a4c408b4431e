"""Fitting the estimates to tokenizers: from texts with true counts to a file of weights.

The weights that come with the package were fitted so (benches/NOTES.md says on what). Who has counts of a tokenizer of
their own fits and loads weights of their own:

    secateur fit-tokens calibration.jsonl.gz --output weights.bin

A calibration file has a JSON object on each line, with `text` and `counts` (tokens by name of the family).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secateur._core import text_features
from secateur.errors import OptionError

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

MAGIC = b"secateur tokens 1\n"
HIDDEN = 96
LEAST_RATE = 0.04
"""Tokens a character, at least: no text known has fewer."""
MOST_FAMILIES = 16
LONGEST = 8192
"""Characters from which on a text counts as no longer, as in `rust/secateur-core/src/estimate.rs`."""
_BATCH = 128
_NEVER = 1e-6
_MOST_TOKENS = 2**31
_LEAST_OFF = 8
"""Tokens added to each estimate before it is squared, as in `rust/secateur-core/src/estimator.rs`."""
_FEWEST = 200
_FOLDS = 5
_LEARNING_RATE = 3e-3
_DECAY = 0.01
_HUBER = 0.03
"""Beyond an error of so much (in logarithms) its size counts no more: typical texts matter, not the odd ones."""
_JOINED = 0.5
"""Share of the texts that are joined to another while training; counts of texts add up, so that the sum is known."""
_WIDEST = 6.0
"""Standard deviations from the mean beyond which an input is cut off: no weight was learned there."""


def read_calibration(path: Path | str) -> list[dict[str, Any]]:
    """Read a calibration file, gzip or plain.

    Raises:
        OptionError: If it cannot be read, or a line is no object with `text` and `counts`.
    """
    name = Path(path).name
    try:
        raw = Path(path).read_bytes()
        text = (gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise OptionError("calibration", name, f"a file of JSON lines ({error})") from error
    records = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise OptionError(f"line {number} of {name}", line[:80], f"a JSON object ({error})") from error
        known = isinstance(record, dict) and isinstance(record.get("text"), str)
        if not known or not isinstance(record.get("counts"), dict):
            raise OptionError(f"line {number} of {name}", line[:80], "an object with text and counts")
        records.append(record)
    if not records:
        raise OptionError("calibration", name, "a file with a text or more")
    return records


@dataclass(frozen=True)
class Texts:
    """Texts as the fitting sees them.

    Attributes:
        counts: Features, float64 of shape (n, f).
        characters: Characters, of shape (n,).
        bytes: Bytes in UTF-8, of shape (n,).
        tokens: True counts, of shape (n, families).
    """

    counts: Floats
    characters: Floats
    bytes: Floats
    tokens: Floats

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]], families: Sequence[str]) -> Texts:
        """Read the features of records that have counts for all families and some text.

        Raises:
            OptionError: If a record lacks a family, or has a count below 1 for a text.
        """
        for number, record in enumerate(records):
            for family in families:
                count = record["counts"].get(family)
                if not record["text"] or type(count) is not int or not 1 <= count < _MOST_TOKENS:
                    raise OptionError(f"counts of record {number}", count, f"a positive number for {family!r}")
        features = text_features([record["text"] for record in records]).astype(np.float64)
        tokens = np.array([[record["counts"][family] for family in families] for record in records], dtype=np.float64)
        return cls(features[:, :-2], features[:, -2], features[:, -1], tokens)

    def __getitem__(self, chosen: npt.NDArray[Any]) -> Texts:
        """Some of the texts."""
        return Texts(self.counts[chosen], self.characters[chosen], self.bytes[chosen], self.tokens[chosen])

    def __add__(self, other: Texts) -> Texts:
        """The texts of both."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Texts(*(np.concatenate(pair) for pair in pairs))


@dataclass
class Network:
    """The network of `rust/secateur-core/src/estimate.rs`, in numpy, for fitting.

    Attributes:
        linear: Tokens a character for each feature's share, float32 of shape (f, families).
        mean: Means of the inputs, of shape (f + 1,).
        deviation: Their standard deviations.
        layers: `first` (f + 1, hidden), `first_bias`, `second` (hidden, families), `second_bias`; for inputs with their
            means taken off and divided by their deviations.
    """

    linear: Singles
    mean: Floats
    deviation: Floats
    layers: dict[str, Singles] = field(default_factory=dict)

    @staticmethod
    def inputs(counts: Floats, characters: Floats) -> Floats:
        """Square roots of the shares, and the length."""
        shares = counts / characters[:, None]
        return np.concatenate([np.sqrt(shares), np.log(np.minimum(characters, LONGEST))[:, None] / 8], axis=1)

    def standardised(self, counts: Floats, characters: Floats) -> Singles:
        """The inputs as the layers take them."""
        inputs = (self.inputs(counts, characters) - self.mean) / self.deviation
        return np.minimum(inputs, _WIDEST).astype(np.float32)

    def __call__(self, texts: Texts) -> Floats:
        """Tokens of texts, of shape (n, families)."""
        hidden = np.maximum(
            self.standardised(texts.counts, texts.characters) @ self.layers["first"] + self.layers["first_bias"], 0
        )
        rates = np.maximum(texts.counts / texts.characters[:, None] @ self.linear, LEAST_RATE)
        tokens = texts.characters[:, None] * rates * np.exp(hidden @ self.layers["second"] + self.layers["second_bias"])
        return np.asarray(np.minimum(tokens, texts.bytes[:, None] * 1.25), dtype=np.float64)


def _linear(texts: Texts, ridge: float = 1e-3) -> Singles:
    """Rates by ridge regression on relative errors, reweighted thrice towards absolute ones."""
    shares = texts.counts / texts.characters[:, None]
    columns = []
    for tokens in texts.tokens.T:
        scale, weight = texts.characters / tokens, np.ones(len(tokens))
        for _ in range(3):
            rows = shares * (scale * weight)[:, None]
            unit = np.sqrt((rows**2).mean(axis=0)) + 1e-9
            rows = rows / unit
            gram = rows.T @ rows / len(rows) + ridge * np.eye(rows.shape[1])
            rates = np.linalg.solve(gram, rows.T @ weight / len(rows)) / unit
            weight = np.sqrt(_HUBER / np.maximum(np.abs(shares @ rates * scale - 1), _HUBER))
        columns.append(rates)
    return np.array(columns, dtype=np.float32).T


def fit_network(
    texts: Texts, *, epochs: int = 100, seed: int = 0, progress: Callable[[int, int], object] | None = None
) -> Network:
    """Fit a network to texts: the linear rates in one step, then all layers by Adam on the logarithm of the ratio.

    Args:
        texts: With true counts.
        epochs: How often all texts are gone through.
        seed: Of the order and of the first weights.
        progress: Called after each epoch with its number and `epochs`.
    """
    random = np.random.default_rng(seed)
    inputs = Network.inputs(texts.counts, texts.characters)
    network = Network(_linear(texts), inputs.mean(axis=0), inputs.std(axis=0) + 1e-3)
    width, families = inputs.shape[1], texts.tokens.shape[1]
    network.layers = layers = {
        "first": (random.standard_normal((width, HIDDEN)) / np.sqrt(width)).astype(np.float32),
        "first_bias": np.zeros(HIDDEN, dtype=np.float32),
        "second": np.zeros((HIDDEN, families), dtype=np.float32),
        "second_bias": np.zeros(families, dtype=np.float32),
    }
    # What no text has was not learned: a first weight by chance would speak up where another text has it.
    layers["first"][inputs.std(axis=0) < _NEVER] = 0
    first, second = ({name: np.zeros_like(layer) for name, layer in layers.items()} for _ in range(2))
    size = min(_BATCH, len(inputs))
    batches, step = len(inputs) // size, 0
    for epoch in range(epochs):
        order = random.permutation(len(inputs))
        for batch in np.split(order[: batches * size], batches):
            step += 1
            joined = random.random(len(batch)) < _JOINED
            partner = texts[order[random.integers(0, len(order), len(batch))]]
            one = texts[batch]
            characters = one.characters + joined * partner.characters
            counts = one.counts + joined[:, None] * partner.counts
            tokens = one.tokens + joined[:, None] * partner.tokens
            standard = network.standardised(counts, characters)
            before = standard @ layers["first"] + layers["first_bias"]
            hidden = np.maximum(before, 0)
            rates = np.maximum(counts / characters[:, None] @ network.linear, LEAST_RATE)
            error = (
                np.log(rates) + hidden @ layers["second"] + layers["second_bias"] - np.log(tokens / characters[:, None])
            )
            slope = (np.clip(error / _HUBER, -1, 1) / len(batch)).astype(np.float32)
            inner = (slope @ layers["second"].T) * (before > 0)
            gradients = {
                "first": standard.T @ inner,
                "first_bias": inner.sum(axis=0),
                "second": hidden.T @ slope,
                "second_bias": slope.sum(axis=0),
            }
            rate = _LEARNING_RATE * min(1, step / 100) * (0.5 + 0.5 * np.cos(np.pi * step / (epochs * batches)))
            for name, gradient in gradients.items():
                first[name] = 0.9 * first[name] + 0.1 * gradient
                second[name] = 0.99 * second[name] + 0.01 * gradient**2
                change = (first[name] / (1 - 0.9**step)) / (np.sqrt(second[name] / (1 - 0.99**step)) + 1e-8)
                decay = _DECAY * layers[name] if name in ("first", "second") else 0
                layers[name] = (layers[name] - rate * (change + decay)).astype(np.float32)
        if progress is not None:
            progress(epoch + 1, epochs)
    return network


def folds(groups: Sequence[str], count: int) -> npt.NDArray[np.int64]:
    """Divide records into folds of about equal size, each group (a source, a document) within one fold."""
    sizes: dict[str, int] = {}
    for group in groups:
        sizes[group] = sizes.get(group, 0) + 1
    load = [0] * count
    fold_of = {}
    for group, size in sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0])):
        fold_of[group] = load.index(min(load))
        load[fold_of[group]] += size
    return np.array([fold_of[group] for group in groups])


def cross_validate(
    texts: Texts,
    fold_of: npt.NDArray[np.int64],
    *,
    more: Texts | None = None,
    epochs: int = 100,
    progress: Callable[[int, int], object] | None = None,
) -> Floats:
    """Estimate each text by a network that has not seen its fold, of shape (n, families).

    Args:
        texts: With true counts.
        fold_of: The fold of each text, of shape (n,).
        more: Texts that every network learns from.
        epochs: How often all texts are gone through.
        progress: As for `fit_network`, anew for each fold.
    """
    estimates = np.zeros_like(texts.tokens)
    for fold in np.unique(fold_of):
        held = fold_of == fold
        known = texts[~held]
        network = fit_network(known if more is None else known + more, epochs=epochs, progress=progress)
        estimates[held] = network(texts[held])
    return estimates


def margins(
    tokens: Floats, estimates: Floats, groups: Sequence[str], *, length: int = 50, exceeded: float = 0.008
) -> Floats:
    """By how much estimates may be too low: (shared, own) for each family, of shape (families, 2).

    A bound is `total + √((shared·total)² + own²·Σ (estimate + 8)²)`. Both are chosen so that the true count exceeds the
    bound for a share `exceeded` of the single texts, and of conversations of `length` texts drawn within a group.

    Args:
        tokens: True counts, of shape (n, families).
        estimates: By networks that have not seen them.
        groups: What the texts of a conversation have in common, such as their language.
        length: Texts of a conversation.
        exceeded: Share of bounds that may be exceeded.
    """
    random = np.random.default_rng(0)
    members = [np.flatnonzero(np.array(groups) == group) for group in sorted(set(groups))]
    members = [each for each in members if len(each) >= 10] or [np.arange(len(groups))]
    drawn = [random.choice(members[number % len(members)], length) for number in range(4000)]
    found = []
    for true, estimate in zip(tokens.T, estimates.T, strict=True):
        single = np.quantile((true - estimate) / (estimate + _LEAST_OFF), 1 - exceeded)
        squares = (estimate + _LEAST_OFF) ** 2
        totals = np.array([(true[each].sum(), estimate[each].sum(), squares[each].sum()) for each in drawn])
        own = single
        for _ in range(20):
            # The part that conversations need beyond what their texts need by themselves.
            excess = totals[:, 0] / totals[:, 1] - 1
            needed = np.sign(excess) * excess**2 - own**2 * totals[:, 2] / totals[:, 1] ** 2
            shared = np.sqrt(max(np.quantile(needed, 1 - exceeded), 0.02**2))
            own = np.sqrt(max(single**2 - shared**2, 0.05**2))
        found.append((shared, own))
    return np.array(found)


def fit_families(
    records: Sequence[Mapping[str, Any]],
    *,
    epochs: int = 100,
    about: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> bytes:
    """Fit weights to records with true counts, for `secateur.TokenEstimator(weights=…)`.

    The margins of upper bounds come from five networks that each have not seen a fifth of the sources (`source` of a
    record, or else its `id` before a "#"); conversations for them are drawn within a `lang`.

    Args:
        records: With `text` and `counts`, all of the same families.
        epochs: How often all texts are gone through.
        about: What the texts are, one line.
        progress: Called with epochs done and epochs in all.

    Raises:
        OptionError: If there are fewer than 200 records, or one lacks a count.
    """
    if len(records) < _FEWEST:
        raise OptionError("records", len(records), f"at least {_FEWEST} texts")
    names = list(dict.fromkeys(name for record in records for name in record["counts"]))
    texts = Texts.of(records, names)
    groups = [
        str(record.get("source") or str(record.get("id", number)).split("#")[0])
        for number, record in enumerate(records)
    ]
    done = 0

    def step(*_: int) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, (_FOLDS + 1) * epochs)

    if len(set(groups)) < _FOLDS:
        groups = [str(number) for number in range(len(records))]
    estimates = cross_validate(texts, folds(groups, _FOLDS), epochs=epochs, progress=step)
    margin = margins(texts.tokens, estimates, [str(record.get("lang", "")) for record in records])
    return to_bytes(fit_network(texts, epochs=epochs, progress=step), names, margin, about=about)


def to_bytes(network: Network, families: Sequence[str], margin: Floats, *, about: str | None = None) -> bytes:
    """Write a network as the file that `secateur.TokenEstimator(weights=…)` loads.

    Args:
        network: What was fitted.
        families: Names, in the order of the counts; without spaces.
        margin: From `margins`.
        about: Date and sources, one line.

    Raises:
        OptionError: If there are too many families, or a name has a space.
    """
    if not 1 <= len(families) <= MOST_FAMILIES or any(not name or name.split() != [name] for name in families):
        raise OptionError("families", families, f"1 to {MOST_FAMILIES} names without spaces")
    layers = network.layers
    first = layers["first"] / network.deviation[:, None]
    bias = layers["first_bias"] - network.mean @ first
    caps = network.mean + _WIDEST * network.deviation
    scale = np.maximum(np.abs(first).max(axis=1), 1e-12) / 127
    rounded = np.rint(first / scale[:, None]).astype(np.int8)
    told = (about or f"fitted on {date.today()}").splitlines()[0]
    heading = "\n".join([told, " ".join(families), f"{len(network.linear)} {HIDDEN}", ""])
    parts = [caps, network.linear, scale, rounded, bias, layers["second"], layers["second_bias"], margin]
    written = [np.asarray(part, dtype=part.dtype if part.dtype == np.int8 else "<f4").tobytes() for part in parts]
    return MAGIC + heading.encode() + b"".join(written)
