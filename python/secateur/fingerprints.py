"""The second tier of token counts: fingerprints of a vocabulary, nearly as true as a tokenizer, in half a megabyte.

A file knows of each string only whether it is a token. A pre-token that is one counts 1; any other is divided into the
longest tokens from the left, and weights put right what the tokenizer merges otherwise. Who has a vocabulary and texts
with true counts makes a file of their own:

    from secateur.families import read_calibration
    from secateur.fingerprints import Fingerprints, build

    data = build("o200k_base.tiktoken", read_calibration("calibration.jsonl.gz"), family="o200k")
    tokens = Fingerprints(data).count("How many tokens is this?")
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from enum import IntFlag
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from secateur._core import Fingerprints
from secateur.errors import OptionError
from secateur.families import Floats, folds, margins

__all__ = [
    "CLAUDE",
    "Encoding",
    "Fingerprints",
    "Rules",
    "Vocabulary",
    "build",
    "marked_tokens",
    "read_vocabulary",
    "rules_of",
]

MOST_BYTES = 500_000
"""Of a file: of a larger vocabulary the tokens with the highest numbers, the rarest ones, are left out."""
_FOLDS = 5
_SAMPLE = 1500
"""Texts by which rules are chosen where they are not given."""
_HUBER = 0.01
"""Beyond a relative error of so much its size counts no more."""
_RIDGE = 3e-4
_PER_KIND = 4
_MOST_PER_BYTE = 1.25


class Rules(IntFlag):
    """How a tokenizer splits texts before it merges: the variants of the regular expression that nearly all use."""

    SINGLE_DIGITS = 1
    """Each digit by itself, not up to three."""
    MARKS = 2
    """Combining marks are part of words."""
    CASES = 4
    """An upper-case letter behind a lower-case one begins a word."""
    CONTRACTIONS = 8
    """`'s`, `'ll` and the like are pre-tokens."""
    SUFFIXES = 16
    """`'s`, `'ll` and the like are part of the word before."""
    SIGNED_BREAKS = 32
    """Line breaks behind signs are part of their run."""
    SLASHES = 64
    """Slashes behind such line breaks are, too."""
    HAN = 128
    """Chinese characters are split from other letters."""
    KANA = 256
    """With `HAN`: Japanese syllables belong to the Chinese characters."""
    SPACES = 512
    """Of signs and blanks only a space belongs to the word behind it."""
    EDGES = 1024
    """Tokens are told apart by where they stand; the last byte of each says it (see `marked_tokens`)."""


CLAUDE = Rules.MARKS | Rules.CONTRACTIONS | Rules.HAN | Rules.KANA | Rules.SPACES | Rules.EDGES
"""The rules for tokens from `marked_tokens`."""


_KNOWN_RULES = (
    Rules.CONTRACTIONS | Rules.SIGNED_BREAKS,  # cl100k, Llama 3, GLM
    Rules.CONTRACTIONS | Rules.SIGNED_BREAKS | Rules.SINGLE_DIGITS,  # Qwen 3
    Rules.CONTRACTIONS | Rules.SIGNED_BREAKS | Rules.SINGLE_DIGITS | Rules.MARKS,  # Qwen 3.5 and later
    Rules.MARKS | Rules.CASES | Rules.SUFFIXES | Rules.SIGNED_BREAKS | Rules.SLASHES,  # o200k
    Rules.MARKS | Rules.CASES | Rules.SUFFIXES | Rules.SIGNED_BREAKS | Rules.HAN,  # Kimi
    Rules.MARKS | Rules.CASES | Rules.SIGNED_BREAKS | Rules.SLASHES | Rules.SINGLE_DIGITS,  # Mistral's Tekken
    Rules.MARKS | Rules.SIGNED_BREAKS | Rules.HAN | Rules.KANA,  # DeepSeek 3
    Rules.MARKS | Rules.SINGLE_DIGITS,  # Gemma 3
)


@runtime_checkable
class Encoding(Protocol):
    """What a `tiktoken.Encoding` shows of its vocabulary."""

    def token_byte_values(self) -> list[bytes]:
        """The tokens, in the order of their numbers."""
        ...


Vocabulary = Path | str | Encoding | Iterable[bytes]


def rules_of(pattern: str) -> Rules:
    r"""Read a tokenizer's rules off its regular expression.

    >>> rules_of(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+")
    <Rules.SINGLE_DIGITS|CONTRACTIONS|SIGNED_BREAKS: 41>
    """
    plain = pattern.replace("\\r", "\r").replace("\\n", "\n")
    cases = r"\p{Lu}" in plain
    rules = Rules(0)
    for rule, holds in (
        (Rules.SINGLE_DIGITS, r"\p{N}{1,3}" not in plain and r"\p{N}+" not in plain),
        (Rules.MARKS, r"\p{M}" in plain),
        (Rules.CASES, cases),
        (Rules.SUFFIXES if cases else Rules.CONTRACTIONS, "'s" in plain or "[sdmt]" in plain),
        (Rules.SIGNED_BREAKS, "[\r\n]*" in plain or "[\r\n/]*" in plain),
        (Rules.SLASHES, "[\r\n/]" in plain),
        (Rules.HAN, r"\p{Han}" in plain or "一-" in plain),
        (Rules.KANA, "一-" in plain and "゠" in plain),
    ):
        if holds:
            rules |= rule
    return rules


def _byte_letters() -> dict[str, int]:
    """The letters by which Hugging Face files write bytes: those that can be seen as themselves, others from U+0100."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}


def _of_hugging_face(tokenizer: Mapping[str, Any]) -> tuple[list[bytes], Rules | None]:
    """The tokens of a `tokenizer.json`, with the special ones left out, and its rules if it has a pattern."""
    model = tokenizer["model"]["vocab"]
    words = sorted(model, key=model.__getitem__) if isinstance(model, dict) else [word for word, _ in model]
    written = json.dumps([tokenizer.get("pre_tokenizer"), tokenizer.get("decoder")], ensure_ascii=False)
    tokens = []
    if "ByteLevel" in written:
        letters = _byte_letters()
        for word in words:
            token = [letters.get(letter) for letter in word]
            if None not in token:
                tokens.append(bytes(byte for byte in token if byte is not None))
    else:
        is_byte = [word.startswith("<0x") and word.endswith(">") for word in words]
        tokens = [word.replace("▁", " ").encode() for word, byte in zip(words, is_byte, strict=True) if not byte]
    patterns: list[str] = []

    def collect(part: object) -> None:
        if isinstance(part, dict):
            if isinstance(part.get("Regex"), str):
                patterns.append(part["Regex"])
            for value in part.values():
                collect(value)
        elif isinstance(part, list):
            for value in part:
                collect(value)

    collect(tokenizer.get("pre_tokenizer"))
    return tokens, rules_of("|".join(patterns)) if patterns else None


def read_vocabulary(vocabulary: Vocabulary) -> tuple[list[bytes], Rules | None]:
    """Read the tokens of a vocabulary, in the order of their numbers, and its rules if it tells them.

    Args:
        vocabulary: A `.tiktoken` file, a Hugging Face `tokenizer.json` or a `tekken.json` of Mistral (each also with
            gzip), a `tiktoken.Encoding` or another object with its `token_byte_values`, or the tokens as bytes.

    Raises:
        OptionError: If it is something else.

    >>> read_vocabulary([b"a", b"ab"])
    ([b'a', b'ab'], None)
    """
    if isinstance(vocabulary, str | Path):
        raw = Path(vocabulary).read_bytes()
        text = (gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw).decode()
        if not text.startswith("{"):
            lines = [line.split() for line in text.split("\n") if line]
            if all(len(line) == 2 for line in lines):
                return [base64.b64decode(token) for token, _ in sorted(lines, key=lambda line: int(line[1]))], None
        else:
            written = json.loads(text)
            if "model" in written:
                return _of_hugging_face(written)
            if "vocab" in written and "config" in written:
                pattern = written["config"].get("pattern")
                special = written["config"].get("default_num_special_tokens", 0)
                most = written["config"].get("default_vocab_size", len(written["vocab"]) + special) - special
                tokens = [base64.b64decode(token["token_bytes"]) for token in written["vocab"][:most]]
                return tokens, rules_of(pattern) if pattern else None
        raise OptionError("vocabulary", Path(vocabulary).name, "a .tiktoken file, a tokenizer.json or a tekken.json")
    if isinstance(vocabulary, Encoding):
        pattern = getattr(vocabulary, "_pat_str", None)
        return list(vocabulary.token_byte_values()), rules_of(pattern) if isinstance(pattern, str) else None
    tokens = list(vocabulary)
    if not all(isinstance(token, bytes) for token in tokens):
        raise OptionError("vocabulary", type(vocabulary).__name__, "a file, an encoding or tokens as bytes")
    return tokens, None


def marked_tokens(pieces: Iterable[str]) -> list[bytes]:
    r"""Write pieces of Claude's tokenizers, in the notation of the package ctok, as tokens for the rules `CLAUDE`.

    There a word stands between ⟨bow⟩ and ⟨eow⟩, which also stand for the space between words, and ⟨shift⟩ and ⟨caps⟩
    stand for capitals. Here a word has its space and its capitals; a last byte says whether it is a beginning (1), an
    end (2) or both.

    >>> marked_tokens(["⟨shift⟩⟨bow⟩the⟨eow⟩", "ing⟨eow⟩"])
    [b' The\x03', b'The\x03', b'ing\x02']
    """
    tokens = set()
    for piece in pieces:
        begins, ends = "⟨bow⟩" in piece, "⟨eow⟩" in piece
        plain = re.sub("⟨[^⟩]*⟩", "", piece)
        if "⟨caps⟩" in piece:
            plain = plain.upper()
        elif "⟨shift⟩" in piece:
            plain = plain[:1].upper() + plain[1:]
        if not plain:
            continue
        token, space = plain.encode(), b" " * begins
        if plain.startswith("'") and plain[1:].isalpha():
            tokens |= {token + bytes([edges]) for edges in range(4)}
        elif any(letter.isalpha() for letter in plain):
            tokens |= {prefix + token + bytes([begins | ends << 1]) for prefix in (space, b"")}
        else:
            # Signs know no beginning but the space before them; digits and blanks no end either.
            known_ends = {ends} if plain.strip() and not plain.isdigit() else {False, True}
            tokens |= {space + token + bytes([first | end << 1]) for first in range(2) for end in known_ends}
    return sorted(tokens)


def _prior(width: int) -> Floats:
    """Weights by which each pre-token that is a token counts 1, and so does each piece of the others."""
    weights = np.zeros(width)
    weights[0] = 1
    weights[2::_PER_KIND] = 1
    return weights


def _fit(counts: Floats, tokens: Floats) -> Floats:
    """Weights by ridge regression on relative errors towards those of `_prior`, reweighted towards absolute ones."""
    prior = _prior(counts.shape[1])
    shares = counts / tokens[:, None]
    rest = 1 - shares @ prior
    unit = np.sqrt((shares**2).mean(axis=0)) + 1e-6
    rows, weight, change = shares / unit, np.ones(len(tokens)), prior * 0
    for _ in range(6):
        gram = (rows * weight[:, None]).T @ rows / len(rows) + _RIDGE * np.eye(rows.shape[1])
        change = np.linalg.solve(gram, (rows * weight[:, None]).T @ rest / len(rows))
        weight = _HUBER / np.maximum(np.abs(rest - rows @ change), _HUBER)
    weights: Floats = prior + change / unit
    return weights


def _weigh(counted: Floats, weights: Floats) -> Floats:
    """Tokens for rows of counts with the bytes as the last of each."""
    tokens: Floats = np.clip(counted[:, :-1] @ weights, 1, counted[:, -1] * _MOST_PER_BYTE)
    return tokens


def _of_tokens(tokens: Sequence[bytes], rules: Rules, family: str, about: str, most_bytes: int) -> Fingerprints:
    """Fingerprints of as many tokens as a file may hold."""
    kept = len(tokens)
    while True:
        made = Fingerprints.of(family, about, int(rules), tokens[:kept])
        size = len(made.to_bytes())
        if size <= most_bytes:
            return made
        kept = min(kept * most_bytes // size, kept - 1)


def build(
    vocabulary: Vocabulary,
    calibration: Sequence[Mapping[str, Any]],
    *,
    family: str,
    rules: Rules | None = None,
    about: str | None = None,
    most_bytes: int = MOST_BYTES,
) -> bytes:
    """Make a file of fingerprints from a vocabulary and texts with true counts.

    Args:
        vocabulary: What `read_vocabulary` reads.
        calibration: From `families.read_calibration`: `text`, `counts`, and if known `source` (texts of one are held
            out together when the margins are measured) and `lang` (what conversations have in common).
        family: Its name, the key of the counts.
        rules: How it splits texts; read from the vocabulary if that tells them, or else the known ones that fit the
            calibration best.
        about: Where the vocabulary is from, one line.
        most_bytes: Size of the file.

    Raises:
        OptionError: If the vocabulary cannot be read, or if less than 100 records have a count of the family.
        WeightsError: If it has too few tokens, or if `most_bytes` has no room for 256.
    """
    tokens, told = read_vocabulary(vocabulary)
    records = [record for record in calibration if record["text"] and record["counts"].get(family)]
    if len(records) < 100:
        raise OptionError("calibration", len(records), f"100 records with counts of {family!r}, or more")
    texts = [record["text"] for record in records]
    true = np.array([record["counts"][family] for record in records], dtype=np.float64)
    written = about or f"fitted on {date.today()} on {len(records):,} texts"
    chosen = told if rules is None else rules
    if chosen is None:
        some = slice(None, None, max(1, len(texts) // _SAMPLE))

        def error(known: Rules) -> float:
            counted = Fingerprints.of(family, written, int(known), tokens).counters(texts[some]).astype(np.float64)
            return float(np.abs(_weigh(counted, _fit(counted[:, :-1], true[some])) / true[some] - 1).mean())

        chosen = min(_KNOWN_RULES, key=error)
    made = _of_tokens(tokens, chosen, family, written, most_bytes)
    counted = made.counters(texts).astype(np.float64)
    held = folds([str(record.get("source", number)) for number, record in enumerate(records)], _FOLDS)
    estimates = np.empty_like(true)
    for fold in np.unique(held):
        estimates[held == fold] = _weigh(counted[held == fold], _fit(counted[held != fold, :-1], true[held != fold]))
    languages = [str(record.get("lang", "")) for record in records]
    shared, own = margins(true[:, None], estimates[:, None], languages)[0]
    weights = _fit(counted[:, :-1], true)
    return bytes(made.with_weights(weights.tolist(), (float(shared), float(own))).to_bytes())
