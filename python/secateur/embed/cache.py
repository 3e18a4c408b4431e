"""Vectors remembered per text, within the process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from secateur._core import VectorIndex
from secateur.errors import EmbedderError

_LIMIT_BYTES = 256 * 1024 * 1024


class EmbeddingCache:
    """An embedder and the vectors that it has made; safe to share between threads.

    Holds two generations of at most half of `limit_bytes` each (vectors and texts). When the younger is full it
    becomes the older, and what the older held is forgotten unless it is asked for again: the texts in use survive
    without any bookkeeping per look-up. One call may exceed the limit by its own texts.

    Args:
        embed: Takes texts, returns float32 vectors of shape (n, d).
        limit_bytes: What the two generations hold at most.
    """

    def __init__(
        self, embed: Callable[[Sequence[str]], NDArray[np.float32]], limit_bytes: int = _LIMIT_BYTES
    ) -> None:
        self._embed = embed
        self._name = getattr(embed, "__qualname__", type(embed).__qualname__)
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
        computed: dict[str, NDArray[np.float32]] = {}
        while True:
            with self._lock:
                rows = list(map(self._young.rows.get, texts))
                if (index := self._young.index) is not None and None not in rows:
                    return index, rows  # type: ignore[return-value]  # None has just been excluded
                missing = [text for text in dict.fromkeys(texts) if not self._remembers(text) and text not in computed]
                if not missing:
                    return self._place(texts, computed)
            # Outside the lock: other threads go on. Two may compute the same text; the vectors are equal.
            computed.update(zip(missing, self._checked(missing), strict=True))

    def _remembers(self, text: str) -> bool:
        return text in self._young.rows or text in self._old.rows

    def _place(self, texts: Sequence[str], computed: dict[str, NDArray[np.float32]]) -> tuple[VectorIndex, list[int]]:
        young, old = self._young, self._old
        absent = [text for text in dict.fromkeys(texts) if text not in young.rows]
        new = [text for text in absent if text in computed]
        again = [text for text in absent if text not in computed]
        if new:
            young.add(new, self._of_one_dimension([computed[text] for text in new]))
        if again:
            young.add(again, old.vectors(again))
        if young.bytes > self._limit_bytes:
            self._young, self._old = _Generation(), young
        assert young.index is not None
        return young.index, [young.rows[text] for text in texts]

    def _of_one_dimension(self, vectors: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        known = [generation.index.dimension for generation in (self._young, self._old) if generation.index is not None]
        dimensions = sorted({*map(len, vectors), *known})
        if len(dimensions) > 1:
            raise EmbedderError(self._name, f"vectors of dimensions {dimensions}, expected always the same")
        return np.stack(vectors)

    def _checked(self, texts: list[str]) -> NDArray[np.float32]:
        vectors = self._embed(texts)
        if not isinstance(vectors, np.ndarray):
            raise EmbedderError(self._name, f"a {type(vectors).__name__}, expected a numpy array of float32")
        if vectors.ndim != 2 or len(vectors) != len(texts) or vectors.shape[1] == 0:
            raise EmbedderError(self._name, f"shape {vectors.shape}, expected ({len(texts)}, d)")
        if vectors.dtype != np.float32:
            raise EmbedderError(self._name, f"dtype {vectors.dtype} of shape {vectors.shape}, expected float32")
        if not np.isfinite(vectors).all():
            row, column = np.argwhere(~np.isfinite(vectors))[0].tolist()
            value = vectors[row, column]
            raise EmbedderError(self._name, f"{value} at [{row}, {column}] of shape {vectors.shape}, expected finite values")
        return vectors


class _Generation:
    """Texts and the rows of an index that hold their vectors."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.index: VectorIndex | None = None
        self.bytes = 0

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        assert self.index is not None
        return self.index.take([self.rows[text] for text in texts])

    def add(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> VectorIndex:
        if self.index is None:
            self.index = VectorIndex(vectors.shape[1])
        first = self.index.append(vectors)
        self.rows.update(zip(texts, range(first, first + len(texts)), strict=True))
        self.bytes += vectors.nbytes + sum(map(sys.getsizeof, texts))
        return self.index
