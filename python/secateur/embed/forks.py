"""Locks that a fork finds free: a child has only the thread that forked, and nobody to release the others' locks."""

from __future__ import annotations

import os
import weakref
from threading import Lock


class Forkable:
    """Something with a lock, which no other thread holds while the process forks."""

    def __init__(self) -> None:
        self._lock = Lock()
        with _registering:
            _forkable.add(self)

    def _before_fork(self) -> None:
        """Let go of what a child must not share; the lock is held."""

    def _after_fork_in_child(self) -> None:
        """Let go of what other threads of the parent may have held; the lock is held."""


_registering = Lock()
_forkable: weakref.WeakSet[Forkable] = weakref.WeakSet()
_held: list[Forkable] = []


def _before() -> None:
    _registering.acquire()
    _held.extend(_forkable)
    for each in _held:
        each._lock.acquire()
        each._before_fork()


def _after() -> None:
    for each in _held:
        each._lock.release()
    _held.clear()
    _registering.release()


def _after_in_child() -> None:
    for each in _held:
        each._after_fork_in_child()
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
