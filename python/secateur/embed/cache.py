"""Vectors remembered per text, within the process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from secateur._core import VectorIndex
from secateur.errors import EmbedderError

_LIMIT_BYTES = 256 * 1024 * 1024


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one dimension, the same text always into the same vector.

    An attribute `fingerprint` (a string) may name the model and its settings: embedders with equal fingerprints
    share their remembered vectors.
    """

    def embed(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """Return finite vectors of shape (len(texts), d)."""
        ...


class EmbeddingCache:
    """An embedder and the vectors that it has made; safe to share between threads.

    Holds two generations of at most half of `limit_bytes` each (vectors and texts). When the younger is full it
    becomes the older, and what the older held is forgotten unless it is asked for again: the texts in use survive
    without any bookkeeping per look-up. One call may exceed the limit by its own texts.

    Args:
        embedder: An `Embedder`, or a callable that takes texts and returns float32 vectors of shape (n, d). It is kept
            alive.
        limit_bytes: What the two generations hold at most.
    """

    def __init__(
        self, embedder: Embedder | Callable[[Sequence[str]], NDArray[np.float32]], limit_bytes: int = _LIMIT_BYTES
    ) -> None:
        self._embedder = embedder
        self._embed = embedder.embed if isinstance(embedder, Embedder) else embedder
        self._name = getattr(embedder, "__qualname__", type(embedder).__qualname__)
        self._limit_bytes = limit_bytes // 2
        self._lock = Lock()
        self._young = _Generation()
        self._old = _Generation()

    def search(self, query: str, texts: Sequence[str], k: int) -> list[tuple[int, float]]:
        """The `k` texts nearest to the query: (position, cosine), best first, ties by position.

        Embeds what is not remembered, each text once.

        Raises:
            EmbedderError: If the embedder returns anything but finite float32 vectors of one dimension.
        """
        index, rows = self._rows([query, *texts])
        positions, scores = index.top_k(index.take(rows[:1])[0], k, rows=rows[1:])
        return list(zip(positions.tolist(), scores.tolist(), strict=True))

    def _rows(self, texts: Sequence[str]) -> tuple[VectorIndex, list[int]]:
        """The index that holds all the texts, and the row of each."""
        while True:
            with self._lock:
                young = self._young
                found = list(map(young.rows.get, texts))
                absent = list(dict.fromkeys(text for text, row in zip(texts, found, strict=True) if row is None))
                if again := [text for text in absent if text in self._old.rows]:
                    young.add(again, self._old.vectors(again))
                missing = [text for text in absent if text not in young.rows]
                if not missing:
                    rows = [young.rows[text] if row is None else row for text, row in zip(texts, found, strict=True)]
                    if young.bytes > self._limit_bytes:
                        self._young, self._old = _Generation(), young
                    return young.filled, rows
            # Outside the lock, so that other threads go on; two may embed the same text, to equal vectors.
            vectors = self._checked(missing)
            with self._lock:
                fresh = [position for position, text in enumerate(missing) if text not in self._young.rows]
                if len(fresh) < len(missing):
                    missing, vectors = [missing[position] for position in fresh], vectors[fresh]
                self._young.add(missing, vectors)

    def _checked(self, texts: list[str]) -> NDArray[np.float32]:
        # A list of its own: an embedder may change what it is given.
        vectors = self._embed(list(texts))
        if not isinstance(vectors, np.ndarray):
            raise EmbedderError(self._name, f"a {type(vectors).__name__}, expected a numpy array of float32")
        if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.shape[1] == 0:
            raise EmbedderError(self._name, f"shape {vectors.shape}, expected ({len(texts)}, d)")
        if vectors.dtype != np.float32:
            raise EmbedderError(self._name, f"dtype {vectors.dtype} of shape {vectors.shape}, expected float32")
        if not np.isfinite(vectors).all():
            row, column = np.argwhere(~np.isfinite(vectors))[0].tolist()
            value = vectors[row, column]
            raise EmbedderError(
                self._name, f"{value} at [{row}, {column}] of shape {vectors.shape}, expected finite values"
            )
        known = self._old.index if self._young.index is None else self._young.index
        if known is not None and known.dimension != vectors.shape[1]:
            raise EmbedderError(self._name, f"shape {vectors.shape}, but dimension {known.dimension} before")
        return vectors


class _Generation:
    """Texts and the rows of an index that hold their vectors."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.index: VectorIndex | None = None
        self.bytes = 0

    @property
    def filled(self) -> VectorIndex:
        """The index, once something has been added."""
        assert self.index is not None
        return self.index

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.filled.take([self.rows[text] for text in texts])

    def add(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        if self.index is None:
            self.index = VectorIndex(vectors.shape[1])
        first = self.index.append(vectors)
        self.rows.update(zip(texts, range(first, first + len(texts)), strict=True))
        self.bytes += vectors.nbytes + sum(map(sys.getsizeof, texts))
