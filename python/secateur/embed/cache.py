"""Vectors remembered per text: within the process, and in a file where a store is given."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from secateur._core import VectorIndex
from secateur.embed.forks import Forkable
from secateur.embed.store import VectorStore, keyed, rounded
from secateur.errors import EmbedderError

_log = logging.getLogger(__name__)

_LIMIT_BYTES = 256 * 1024 * 1024
_MOST_CUT = 50_000
"""Texts whose pieces are remembered; cutting one takes as long as tokenizing it."""
_SLICE = 256
"""Texts embedded at once: what an interruption may lose, and how often progress is told."""

Vectors = NDArray[np.float32]
Progress = Callable[[int, int], object]
"""Is told how many of the distinct texts have their vectors, and how many there are."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one dimension, the same text always into the same vector.

    An attribute `fingerprint` (a string) may name the model and its settings: embedders with equal fingerprints
    share their remembered vectors, and only with it are vectors remembered in a `VectorStore`. A method
    `embed_queries` may embed what is searched for in another way; `aembed` and `aembed_queries` are awaited where
    there are. A method `pieces` may cut a text into several, which are embedded instead of it.
    """

    def embed(self, texts: Sequence[str], /) -> NDArray[np.float32]:
        """Return finite vectors of shape (len(texts), d)."""
        ...


class EmbeddingCache(Forkable):
    """An embedder and the vectors that it has made; safe to share between threads, and to fork.

    Holds two generations of at most half of `limit_bytes` each (vectors and texts). When the younger is full it
    becomes the older, and what the older held is forgotten unless it is asked for again: the texts in use survive
    without any bookkeeping per look-up. One call may exceed the limit by its own texts.

    Vectors have the precision of fp16 (`rounded`), with a store and without, so that no result depends on what was
    remembered where. What is made is remembered every 256 texts: an interruption or an error loses no more.

    Args:
        embedder: An `Embedder`, or a callable that takes texts and returns float32 vectors of shape (n, d). It is kept
            alive.
        limit_bytes: What the two generations hold at most.
        store: Remembers them beyond the process, if the embedder has a `fingerprint`.

    Attributes:
        store: The same; may be changed at any time.
        english_only: Whether the embedder says of itself that it reads English only.

    >>> def letters(texts):
    ...     return np.array([[text.count("a"), text.count("b")] for text in texts], np.float32)
    >>> cache = EmbeddingCache(letters)
    >>> cache.search("abba", ["b", "aabb", "a"], 1)
    [(1, 1.0)]
    >>> cache.vectors(["aab", "b"]).tolist()
    [[2.0, 1.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        embedder: Embedder | Callable[[Sequence[str]], NDArray[np.float32]],
        limit_bytes: int = _LIMIT_BYTES,
        store: VectorStore | None = None,
    ) -> None:
        self._embedder = embedder
        self._name = getattr(embedder, "__qualname__", type(embedder).__qualname__)
        embed = embedder.embed if isinstance(embedder, Embedder) else embedder
        embed_queries = getattr(embedder, "embed_queries", None)
        self._queries_apart = embed_queries is not None
        self._ways: dict[str, _Way] = {
            "document": _Way(embed, getattr(embedder, "aembed", None)),
            "query": _Way(embed_queries or embed, getattr(embedder, "aembed_queries", None)),
        }
        self.english_only: bool = getattr(embedder, "english_only", False) is True
        self._pieces: Callable[[str], Sequence[str]] | None = getattr(embedder, "pieces", None)
        self._known_pieces: dict[str, tuple[str, ...]] = {}
        fingerprint = getattr(embedder, "fingerprint", None)
        self._key_of = {kind: keyed(fingerprint, kind) for kind in self._ways} if isinstance(fingerprint, str) else None
        self._limit_bytes = limit_bytes // 2
        self.store = store
        self._young = _Generation()
        self._old = _Generation()
        self._dimension: int | None = None
        super().__init__()

    def search(self, query: str, texts: Sequence[str], k: int) -> list[tuple[int, float]]:
        """The `k` texts nearest to the query: (position, cosine), best first, ties by position.

        Embeds what is not remembered, each text once; the query by `embed_queries` where the embedder has it. A text
        that the embedder cuts into `pieces` scores as the best of them.

        Raises:
            EmbedderError: If the embedder returns anything but finite float32 vectors of one dimension.
        """
        pieces, owners = self._cut(texts)
        return _nearest(self._found([self._query(query), *pieces]), k, owners)

    async def asearch(self, query: str, texts: Sequence[str], k: int) -> list[tuple[int, float]]:
        """`search`, by the embedder's `aembed` where it has it; else, and for all other work, in a thread.

        Raises:
            EmbedderError: If the embedder returns anything but finite float32 vectors of one dimension.
        """
        pieces, owners = await asyncio.to_thread(self._cut, texts)
        return await asyncio.to_thread(_nearest, await self._afound([self._query(query), *pieces]), k, owners)

    def prepare(self, texts: Sequence[str]) -> None:
        """Embed what a search among texts will need.

        Raises:
            EmbedderError: If the embedder returns anything but finite float32 vectors of one dimension.
        """
        if texts:
            self._found(self._cut(texts)[0])

    def vectors(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """The vectors of texts, float32, of shape (len(texts), d), in their order; d is 0 as long as it is not known.

        Args:
            texts: What to embed; what is not remembered is embedded, each text once.
            progress: Called before each 256 texts and at the end with (done, total), in distinct texts.

        Raises:
            EmbedderError: If the embedder returns anything but finite float32 vectors of one dimension.
        """
        if not texts:
            return self._none()
        index, rows = self._found(texts, progress)
        return index.take(rows)

    async def avectors(self, texts: Sequence[str], *, progress: Progress | None = None) -> NDArray[np.float32]:
        """`vectors`, by the embedder's `aembed` where it has it; else, and for all other work, in a thread.

        Raises:
            EmbedderError: If the embedder returns anything but finite float32 vectors of one dimension.
        """
        if not texts:
            return self._none()
        index, rows = await self._afound(texts, progress)
        return await asyncio.to_thread(index.take, rows)

    def close(self) -> None:
        """End what works in the background; here nothing does. The embedder is the caller's to close."""

    def missing(self, texts: Sequence[str]) -> list[str]:
        """The distinct texts that the process does not remember, in their order."""
        with self._lock:
            young, old = self._young.rows, self._old.rows
            return [text for text in dict.fromkeys(texts) if text not in young and text not in old]

    def _cut(self, texts: Sequence[str]) -> tuple[Sequence[str], list[int] | None]:
        """What is embedded of texts, and which text each piece is of; None where nothing is cut."""
        if self._pieces is None:
            return texts, None
        pieces: list[str] = []
        owners: list[int] = []
        for owner, text in enumerate(texts):
            cut = self._known_pieces.get(text)
            if cut is None:
                if len(self._known_pieces) >= _MOST_CUT:
                    self._known_pieces.clear()
                cut = self._known_pieces[text] = tuple(self._pieces(text))
            pieces += cut
            owners += [owner] * len(cut)
        return pieces, owners

    def _query(self, query: str) -> _Text:
        return (query,) if self._queries_apart else query

    def _none(self) -> Vectors:
        return np.empty((0, self._dimension or 0), np.float32)

    def _found(self, texts: Sequence[_Text], progress: Progress | None = None) -> _Found:
        steps = self._steps(texts)
        step = _advance(steps)
        while isinstance(step, _Wanted):
            if progress is not None:
                progress(step.done, step.total)
            step = _advance(steps, self._ways[step.kind].embed(step.texts))
        if progress is not None:
            progress(len(set(texts)), len(set(texts)))
        return step

    async def _afound(self, texts: Sequence[_Text], progress: Progress | None = None) -> _Found:
        steps = self._steps(texts)
        step = await asyncio.to_thread(_advance, steps)
        while isinstance(step, _Wanted):
            if progress is not None:
                progress(step.done, step.total)
            way = self._ways[step.kind]
            made = way.aembed(step.texts) if way.aembed else asyncio.to_thread(way.embed, step.texts)
            step = await asyncio.to_thread(_advance, steps, await made)
        if progress is not None:
            progress(len(set(texts)), len(set(texts)))
        return step

    def _steps(self, texts: Sequence[_Text]) -> Generator[_Wanted, Any, _Found]:
        """Find all the texts in one index; whoever drives this embeds what is wanted, awaiting it or not."""
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
                    return _Found(young.filled, rows)
            # Outside the lock, so that other threads go on; two may embed the same text, to equal vectors.
            store = self.store if self._key_of is not None else None
            total = len(set(texts))
            missing = self._not_stored(missing, store)
            done = total - len(missing)
            for kind, part in _parts(missing):
                names = [_string(text) for text in part]
                # A list of its own: an embedder may change what it is given.
                vectors = rounded(self._checked(names, (yield _Wanted(kind, list(names), done, total))))
                self._add(part, vectors)
                if store is not None:
                    store.put(self._keys(part), vectors)
                done += len(part)

    def _not_stored(self, texts: list[_Text], store: VectorStore | None) -> list[_Text]:
        """Take what the store has; return the others."""
        if store is None:
            return texts
        positions, vectors = store.get(self._keys(texts), self._held_dimension() or self._dimension)
        if not positions:
            return texts
        self._add([texts[position] for position in positions], vectors)
        stored = set(positions)
        return [text for position, text in enumerate(texts) if position not in stored]

    def _keys(self, texts: list[_Text]) -> list[bytes]:
        assert self._key_of is not None
        document, query = self._key_of["document"], self._key_of["query"]
        return [document(text) if isinstance(text, str) else query(text[0]) for text in texts]

    def _held_dimension(self) -> int | None:
        index = self._old.index if self._young.index is None else self._young.index
        return None if index is None else index.dimension

    def _add(self, texts: list[_Text], vectors: Vectors) -> None:
        with self._lock:
            fresh = [position for position, text in enumerate(texts) if text not in self._young.rows]
            if len(fresh) < len(texts):
                texts, vectors = [texts[position] for position in fresh], vectors[fresh]
            self._young.add(texts, vectors)

    def _checked(self, texts: list[str], vectors: Any) -> Vectors:
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
        with self._lock:
            if self._dimension is None:
                self._dimension = vectors.shape[1]
                if self._held_dimension() not in (None, self._dimension):
                    _log.warning("%s makes dimension %d, what was stored is not used", self._name, self._dimension)
                    self._young, self._old = _Generation(), _Generation()
        if self._dimension != vectors.shape[1]:
            raise EmbedderError(self._name, f"shape {vectors.shape}, but dimension {self._dimension} before")
        return vectors

    def _after_fork_in_child(self) -> None:
        # Another thread may have been searching the younger index: it can be read still, not appended to.
        if self._young.rows:
            self._young, self._old = _Generation(), self._young


_Text = str | tuple[str]
"""A text, or in a tuple one that is embedded as a query."""


class _Way(NamedTuple):
    embed: Callable[[Sequence[str]], Any]
    aembed: Callable[[Sequence[str]], Awaitable[Any]] | None


class _Wanted(NamedTuple):
    """Texts to embed, and how far this is."""

    kind: str
    texts: list[str]
    done: int
    total: int


class _Found(NamedTuple):
    """The index that holds all the texts, and the row of each."""

    held: VectorIndex
    rows: list[int]


def _advance(steps: Generator[_Wanted, Any, _Found], made: object = None) -> _Wanted | _Found:
    try:
        return steps.send(made)
    except StopIteration as end:
        found: _Found = end.value
        return found


def _kind(text: _Text) -> str:
    return "document" if isinstance(text, str) else "query"


def _string(text: _Text) -> str:
    return text if isinstance(text, str) else text[0]


def _parts(texts: list[_Text]) -> Iterator[tuple[str, list[_Text]]]:
    """Slices of texts to embed alike."""
    for kind in ("query", "document"):
        alike = [text for text in texts if _kind(text) == kind]
        for start in range(0, len(alike), _SLICE):
            yield kind, alike[start : start + _SLICE]


def _nearest(found: _Found, k: int, owners: list[int] | None) -> list[tuple[int, float]]:
    """The rows nearest to the first one, or the owners of the nearest rows, each by its best."""
    index, rows = found
    query, rows = index.take(rows[:1])[0], rows[1:]
    if owners is None:
        positions, scores = index.top_k(query, k, rows=rows)
        return list(zip(positions.tolist(), scores.tolist(), strict=True))
    wanted = 2 * k
    while True:
        positions, scores = index.top_k(query, wanted, rows=rows)
        best: dict[int, float] = {}
        for position, score in zip(positions.tolist(), scores.tolist(), strict=True):
            best.setdefault(owners[position], score)
        if len(best) >= k or wanted >= len(rows):
            return list(best.items())[:k]
        wanted *= 4


class _Generation:
    """Texts (and queries) and the rows of an index that hold their vectors."""

    def __init__(self) -> None:
        self.rows: dict[_Text, int] = {}
        self.index: VectorIndex | None = None
        self.bytes = 0

    @property
    def filled(self) -> VectorIndex:
        """The index, once something has been added."""
        assert self.index is not None
        return self.index

    def vectors(self, texts: Sequence[_Text]) -> NDArray[np.float32]:
        return self.filled.take([self.rows[text] for text in texts])

    def add(self, texts: Sequence[_Text], vectors: NDArray[np.float32]) -> None:
        if self.index is None:
            self.index = VectorIndex(vectors.shape[1])
        first = self.index.append(vectors)
        self.rows.update(zip(texts, range(first, first + len(texts)), strict=True))
        self.bytes += vectors.nbytes + sum(map(sys.getsizeof, texts))
