"""Embedding in the background, before anything is searched for."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  # registers its hook first, so that it runs last
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from threading import Condition, Thread

from secateur.embed.cache import EmbeddingCache

_log = logging.getLogger(__name__)

_MOST_WAITING = 10_000
_AT_ONCE = 32
"""Texts embedded between two looks at whether to stop."""


_warmers: weakref.WeakSet[Warmer] = weakref.WeakSet()


class Warmer:
    """One thread that embeds what it is given into a cache.

    Holds 10,000 waiting texts at most: of more the oldest are left to the search that needs them. What the embedder
    raises is logged, and raised again by the search. After `os.fork` a child starts with nothing waiting.

    Args:
        cache: Where the vectors go.
    """

    def __init__(self, cache: EmbeddingCache) -> None:
        self._cache = cache
        self._closed = False
        self._begin()
        _warmers.add(self)

    def add(self, texts: Iterable[str]) -> None:
        """Embed texts soon; those without letters are passed over."""
        self._begin_in_fork()
        with self._change:
            if self._closed:
                return
            self._waiting.extend(text for text in texts if text and not text.isspace())
            if self._waiting and not self._threads:
                thread = Thread(target=self._run, name="secateur warmer", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._change.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is waiting.

        Args:
            timeout: Seconds at most.

        Returns:
            Whether nothing is.
        """
        self._begin_in_fork()
        with self._change:
            return self._change.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def close(self) -> None:
        """Give up what is waiting, and end the thread; at most one batch is still embedded."""
        self._begin_in_fork()
        with self._change:
            self._closed = True
            self._waiting.clear()
            self._change.notify_all()
        for thread in self._threads:
            thread.join()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._change = Condition()
        self._waiting: deque[str] = deque(maxlen=_MOST_WAITING)
        self._busy = False
        self._threads: list[Thread] = []

    def _begin_in_fork(self) -> None:
        # The parent's thread is not here, and may have held the lock.
        if os.getpid() != self._process:
            self._begin()

    def _run(self) -> None:
        while True:
            with self._change:
                self._busy = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                texts = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
                self._busy = True
            try:
                self._cache.prepare(texts)
            except Exception as error:  # noqa: BLE001  # an embedder may raise anything; the search raises it again
                _log.warning("%d texts could not be embedded ahead: %s", len(texts), error)


def _close_all() -> None:
    for warmer in list(_warmers):
        warmer.close()


# Before concurrent.futures stops taking work, which an embedder may need to the last; atexit is too late for that. The
# hook has no public name: without it a last warning may be logged.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
