"""Embedders: what turns texts into vectors.

Anything with `embed(texts)`, or any callable that takes the texts, serves; it returns a float32 array of shape (n, d).
Vectors are remembered per text in a cache of the embedder's own (`secateur.embed.cache`), and beyond the process if
`use_store` or SECATEUR_VECTORS names a file (`secateur.embed.store`). The default is MiniLM on the CPU
(`secateur.embed.minilm`), loaded at first use.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import cast

import numpy as np
from numpy.typing import NDArray

from secateur.embed import model
from secateur.embed.adapters import ForeignEmbedder, adapt
from secateur.embed.cache import Embedder, EmbeddingCache
from secateur.embed.store import VectorStore
from secateur.errors import OptionError

__all__ = ["AnyEmbedder", "Embedder", "EmbeddingCache", "VectorStore", "cached", "clear_caches", "use_store"]


AnyEmbedder = Embedder | Callable[[Sequence[str]], NDArray[np.float32]] | ForeignEmbedder | str | os.PathLike[str]
"""An embedder, a callable that embeds, an object that another package embeds with (`secateur.embed.adapters`), the path
of a model folder or `.onnx` file, or a name: "static", "instant", or of a model that `secateur model fetch` knows."""

STATIC = "static"
"""The name of the static table's embedder."""
INSTANT = "instant"
"""The name of MiniLM with the static table in its place until its vectors have been made in the background."""
_log = logging.getLogger(__name__)

_MOST_CACHES = 8
_caches: OrderedDict[tuple[Hashable, ...], EmbeddingCache] = OrderedDict()
_store: VectorStore | None = None
_store_named = False
_lock = Lock()
_creating = Lock()


def cached(embedder: AnyEmbedder | None) -> EmbeddingCache:
    """The cache in front of an embedder: one for each, the eight last used are kept.

    Raises:
        OptionError: If it is nothing that embeds.
        EmbedderUnavailable: If a model is named, or none, and it cannot be had.
    """
    key = _key(embedder)
    with _lock:
        if (cache := _caches.get(key)) is not None:
            _caches.move_to_end(key)
            return cache
    # One at a time: a model is slow to load and large, and threads that start together would each load it.
    with _creating:
        with _lock:
            if (cache := _caches.get(key)) is not None:
                return cache
        cache = _instant() if _is(embedder, INSTANT) else EmbeddingCache(_resolve(embedder))
        if not _store_named:
            use_store(os.environ.get("SECATEUR_VECTORS") or None)
        forgotten = []
        with _lock:
            cache.store = _store
            _caches[key] = cache
            while len(_caches) > _MOST_CACHES:
                forgotten.append(_caches.popitem(last=False)[1])
    for each in forgotten:
        each.close()
    return cache


def use_store(store: VectorStore | str | os.PathLike[str] | None) -> VectorStore | None:
    """Remember the vectors of every embedder with a `fingerprint` in a file too, from now on.

    Without it that is the file that SECATEUR_VECTORS names when something is embedded first, or none.

    Args:
        store: A store, or the path of one; None to use no file.

    Returns:
        The store in use.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, use_store(f"{folder}/vectors.sqlite") as store:
    ...     assert use_store(None) is None
    """
    global _store, _store_named
    if isinstance(store, (str, os.PathLike)):
        store = VectorStore(store)
    with _lock:
        _store, _store_named = store, True
        for cache in _caches.values():
            cache.store = store
    return store


@atexit.register
def _close_store() -> None:
    if _store is not None:
        _store.close()


def clear_caches(*, only_models: bool = False) -> None:
    """Forget every remembered vector; with `only_models` those of models loaded by path, and the models."""
    with _lock:
        keys = [key for key in _caches if not only_models or key[0] == "path"]
        forgotten = [_caches.pop(key) for key in keys]
    for each in forgotten:
        each.close()


def _key(embedder: AnyEmbedder | None) -> tuple[Hashable, ...]:
    if isinstance(embedder, str) and (embedder in (STATIC, INSTANT) or embedder in model.MODELS):
        return ("path", embedder, os.environ.get("SECATEUR_MODEL"), os.environ.get("SECATEUR_CACHE"))
    if embedder is None or isinstance(embedder, (str, os.PathLike)):
        # A relative path means another model in another folder, and the environment may change.
        environment = (os.environ.get("SECATEUR_MODEL"), os.environ.get("SECATEUR_CACHE")) if embedder is None else ()
        return ("path", embedder and os.fspath(Path(embedder).absolute()), *environment)
    fingerprint = getattr(adapt(embedder) or embedder, "fingerprint", None)
    if isinstance(fingerprint, str):
        return ("fingerprint", fingerprint)
    try:
        hash(embedder)
    except TypeError:
        # The cache keeps the embedder alive, so that its id stays its own.
        return ("id", id(embedder))
    return ("object", cast("Hashable", embedder))


def _resolve(embedder: AnyEmbedder | None) -> Embedder | Callable[[Sequence[str]], NDArray[np.float32]]:
    if _is(embedder, STATIC):
        from secateur.embed.static import StaticEmbedder

        return StaticEmbedder()
    if embedder is None or isinstance(embedder, (str, os.PathLike)):
        return _model(embedder)
    if (adapted := adapt(embedder)) is not None:
        return adapted
    if isinstance(embedder, type) or not (isinstance(embedder, Embedder) or callable(embedder)):
        raise OptionError("embedder", embedder, "None, a name, a path, a callable or an object with embed(texts)")
    return embedder


def _is(embedder: object, name: str) -> bool:
    # Whatever else an embedder may be, it need not be comparable.
    return isinstance(embedder, str) and embedder == name


def _instant() -> EmbeddingCache:
    from secateur.embed.instant import InstantCache
    from secateur.embed.static import StaticEmbedder

    return InstantCache(_model(None), StaticEmbedder())


def _model(name: str | os.PathLike[str] | None) -> Embedder:
    from secateur.embed.minilm import MiniLM, MultilingualE5

    if model.known(name) is model.MULTILINGUAL:
        return MultilingualE5()
    if name is not None or find_spec("onnxruntime") is not None:
        return MiniLM(name)
    from secateur.embed.static import StaticEmbedder

    static = StaticEmbedder()
    _log.warning("onnxruntime is not installed: the static table stands in for MiniLM")
    return static
