"""The instant tier: a vector per token, read off a table; a text is the mean of its tokens.

Needs numpy and tokenizers, not onnxruntime. The table is distilled from MiniLM (`secateur.embed.distil`). Word order
and context are lost, so that it finds what shares words with a query, and less than MiniLM of what only means the same.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secateur.embed import model, template
from secateur.embed.reader import Reader
from secateur.errors import ModelError

ABOUT = "secateur-static"
"""The one entry of the file's metadata: with several, their order would differ from file to file."""
VERSION = 1
"""Raised whenever the same weights would give another table."""

_HEADER_LENGTH = 8
_SEGMENT = 512
"""Tokens added up in one run; fixed places, so that a text has the same bits in every batch."""
_ROWS_AT_ONCE = 1024
"""As many dequantised rows as stay in the cache."""
_CHARACTERS_AT_ONCE = 500_000


class Table(NamedTuple):
    """Rows of a static embedder.

    Row 0 stands for the markers around a text and for what the vocabulary lacks, and is so short that it decides only
    where there is nothing else; row n for the token `first + n - 1`.
    """

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    first: int


def load(path: Path) -> Table:
    """Read a table.

    Raises:
        ModelError: If the file holds none, or one of another version.
    """
    try:
        content = path.read_bytes()
        data = _HEADER_LENGTH + int.from_bytes(content[:_HEADER_LENGTH], "little")
        header = json.loads(content[_HEADER_LENGTH:data])
        about = json.loads(header["__metadata__"][ABOUT])
        if about["version"] != VERSION:
            raise ModelError(f"{path} has version {about['version']}, expected {VERSION}: {model.HOW_TO_FETCH}")
        parts = []
        for name, dtype in (("codes", np.int8), ("scales", np.float32)):
            start, stop = header[name]["data_offsets"]
            parts.append(np.frombuffer(content[data + start : data + stop], dtype).reshape(header[name]["shape"]))
        codes, scales = parts
        if codes.ndim != 2 or scales.shape != (len(codes), 1) or not codes.size:
            raise ModelError(f"{path} has codes of shape {codes.shape} and scales of shape {scales.shape}")
        return Table(codes, scales, int(about["first"]))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} holds no static table: {error}") from error


class StaticEmbedder:
    """Sentence vectors from a table of tokens: the mean of the rows, L2 norm 1.

    Texts are read whole, in time that grows with their length. The same text has the same bits in every batch.
    Loads once; safe to share between threads. The empty text has a vector too, which is also that of a
    text without a known token; lone surrogates are read as U+FFFD.

    Args:
        path: A folder with `static.safetensors` and `tokenizer.json`. None for the environment variable
            SECATEUR_MODEL, then for what `secateur model fetch` keeps.

    Raises:
        EmbedderUnavailable: If a package or the table is missing; says what to do.
        ModelError: If the files cannot be read as a table and its tokenizer.

    Attributes:
        fingerprint: Names the content of the files.
        dimension: Values per vector; 256.
        english_only: True: prompts in other scripts are better met by their words.

    >>> from secateur.embed.static import StaticEmbedder
    >>> StaticEmbedder().embed(["route efficiency"]).shape
    (1, 256)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        files = model.locate_static(path)
        self._table = load(files.graph)
        self._reader = Reader(files.tokenizer)
        size, expected = self._reader.vocabulary_size, self._table.first + len(self._table.codes) - 1
        if size != expected:
            raise ModelError(f"{files.tokenizer} has {size} tokens, but {files.graph} is for {expected}")
        self.fingerprint = f"static:{files.fingerprint()}:{template.VERSION}"
        self.dimension = self._table.codes.shape[1]
        self.english_only = True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of shape (len(texts), dimension), in the order of the texts."""
        vectors = np.empty((len(texts), self.dimension), np.float32)
        for start, stop in _blocks(texts):
            vectors[start:stop] = self._sums(self._reader.token_ids(texts[start:stop]))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def _sums(self, token_ids: list[list[int]]) -> NDArray[np.float32]:
        """The sum of each text's rows: of segments first, then of the segments."""
        lengths = np.array([len(ids) for ids in token_ids])
        rows = np.fromiter(itertools.chain.from_iterable(token_ids), np.int64, lengths.sum())
        rows = np.maximum(rows - (self._table.first - 1), 0)
        counts = -(-lengths // _SEGMENT)
        firsts = np.cumsum(counts) - counts
        within = np.arange(counts.sum()) - np.repeat(firsts, counts)
        starts = np.repeat(np.cumsum(lengths) - lengths, counts) + _SEGMENT * within
        edges = [0, *(np.flatnonzero(np.diff(starts // _ROWS_AT_ONCE)) + 1).tolist(), len(starts)]
        sums = np.empty((len(starts), self.dimension), np.float32)
        for begin, end in itertools.pairwise(edges):
            stop = starts[end] if end < len(starts) else len(rows)
            some = rows[starts[begin] : stop]
            values = self._table.codes[some] * self._table.scales[some]
            np.add.reduceat(values, starts[begin:end] - starts[begin], axis=0, out=sums[begin:end])
        return sums if len(sums) == len(lengths) else np.add.reduceat(sums, firsts, axis=0)


def _blocks(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Runs of texts with a limited number of characters, or one text."""
    start, characters = 0, 0
    for index, text in enumerate(texts):
        if index > start and characters + len(text) > _CHARACTERS_AT_ONCE:
            yield start, index
            start, characters = index, 0
        characters += len(text)
    if start < len(texts):
        yield start, len(texts)
