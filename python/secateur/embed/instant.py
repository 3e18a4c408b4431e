"""Answers at once: by the static table until the real vectors have been made in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from secateur.embed.cache import Embedder, EmbeddingCache
from secateur.embed.warm import Warmer


class InstantCache(EmbeddingCache):
    """The cache of a real embedder that does not keep a search waiting for a history it has not seen.

    A search over texts whose vectors are all remembered is the real one. Otherwise the fast embedder answers, for all
    of the texts, and what is missing is embedded in the background: the same search gives another, better answer
    later.

    Args:
        embedder: The real one; it embeds the query of a real search, and in the background.
        fast: Answers meanwhile.
    """

    def __init__(self, embedder: Embedder, fast: Embedder) -> None:
        super().__init__(embedder)
        self._fast = EmbeddingCache(fast)
        self._warmer = Warmer(self)

    def search(self, query: str, texts: Sequence[str], k: int) -> list[tuple[int, float]]:
        """The `k` texts nearest to the query, as `EmbeddingCache.search`, by whichever embedder is ready.

        Raises:
            EmbedderError: If the embedder returns anything but finite float32 vectors of one dimension.
        """
        missing = self.missing(texts)
        if not missing:
            return super().search(query, texts, k)
        self._warmer.add(missing)
        return self._fast.search(query, texts, k)

    async def asearch(self, query: str, texts: Sequence[str], k: int) -> list[tuple[int, float]]:
        """`search` in a thread.

        Raises:
            EmbedderError: If the embedder returns anything but finite float32 vectors of one dimension.
        """
        return await asyncio.to_thread(self.search, query, texts, k)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the background is done.

        Args:
            timeout: Seconds at most.

        Returns:
            Whether it is.
        """
        return self._warmer.wait(timeout)

    def close(self) -> None:
        """End the work in the background; later searches are answered by what is remembered until then."""
        self._warmer.close()
