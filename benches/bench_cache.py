"""Remembered vectors: what a hit and a put cost a text, against a dictionary, LangChain's way, and MiniLM.

    python benches/bench_cache.py [--texts N] [--json FILE]

The texts are real messages (tests/data), repeated with a number up to N; their vectors have 384 values. Each figure is
the median of nine rounds in microseconds a text, over all texts in one call. Needs numpy only; the embedding itself is
measured where the model has been fetched.

- process: `EmbeddingCache.vectors`, everything remembered in the process.
- file, warm: the same with an empty memory and a `VectorStore` that holds everything (keys, look-up, decoding, and
  taking the vectors into the memory); `get` alone without the cache around it.
- file, put: `VectorStore.put`, in transactions of 256.
- JSON: SHA-1 and uuid5 of the text as the key, the vector as JSON in a file of its own, as `CacheBackedEmbeddings` with
  a `LocalFileStore` keeps it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secateur.embed import EmbeddingCache, VectorStore
from secateur.embed.minilm import MiniLM
from secateur.embed.store import keyed
from secateur.errors import EmbedderUnavailable

Vectors = NDArray[np.float32]

SAMPLES = Path(__file__).parent.parent / "tests" / "data"
DIMENSION = 384
ROUNDS = 9
SLICE = 256
EMBEDDED = 200


class Table:
    """An embedder that has all vectors already."""

    fingerprint = "a table"

    def __init__(self, texts: Sequence[str]) -> None:
        vectors = np.random.default_rng(0).standard_normal((len(texts), DIMENSION), np.float32)
        self.vectors = dict(zip(texts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), strict=True))

    def embed(self, texts: Sequence[str], /) -> Vectors:
        """Look them up."""
        return np.stack([self.vectors[text] for text in texts])


def real_texts(size: int) -> list[str]:
    lines = (SAMPLES / "meeting.jsonl").read_text(encoding="utf-8").splitlines()
    messages = list(dict.fromkeys(message["content"] for line in lines for message in json.loads(line)["messages"]))
    return [f"{messages[number % len(messages)]} ({number // len(messages)})" for number in range(size)]


def microseconds(texts: Sequence[str], prepare: Callable[[], object], run: Callable[[], object]) -> float:
    """Median time a text of `run`, each after `prepare`."""
    times = []
    for _ in range(ROUNDS):
        prepare()
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) / len(texts) * 1e6


def as_json(folder: Path, texts: Sequence[str], vectors: Vectors) -> dict[str, float]:
    def place(text: str) -> Path:
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        return folder / str(uuid.uuid5(uuid.NAMESPACE_OID, digest))

    def put() -> None:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            place(text).write_bytes(json.dumps(vector).encode())

    def get() -> Vectors:
        return np.array([json.loads(place(text).read_bytes()) for text in texts], np.float32)

    return {"JSON, put": microseconds(texts, int, put), "JSON, get": microseconds(texts, int, get)}


def measured(texts: list[str], folder: Path) -> dict[str, float]:
    table = Table(texts)
    vectors, key_of = table.embed(texts), keyed(table.fingerprint, "document")
    keys = list(map(key_of, texts))
    figures = {"a dictionary and numpy.stack": microseconds(texts, int, lambda: table.embed(texts))}
    cache = EmbeddingCache(table)
    figures["process, hit"] = microseconds(texts, lambda: cache.vectors(texts), lambda: cache.vectors(texts))
    figures["key"] = microseconds(texts, int, lambda: list(map(key_of, texts)))
    with VectorStore(folder / "vectors.sqlite") as store:

        def put() -> None:
            for start in range(0, len(keys), SLICE):
                store.put(keys[start : start + SLICE], vectors[start : start + SLICE])

        def empty() -> None:
            store.close()
            store.path.unlink(missing_ok=True)

        figures["file, put"] = microseconds(texts, empty, put)
        figures["file, get"] = microseconds(texts, store.close, lambda: store.get(keys))
        shuffled = np.random.default_rng(1).permutation(len(keys)).tolist()
        mixed = [keys[number] for number in shuffled]
        figures["file, get, any order"] = microseconds(texts, store.close, lambda: store.get(mixed))
        caches: list[EmbeddingCache] = []

        def forget() -> None:
            store.close()
            caches[:] = [EmbeddingCache(table, store=store)]

        figures["file, warm"] = microseconds(texts, forget, lambda: caches[0].vectors(texts))
        figures["file, bytes a vector"] = store.path.stat().st_size / len(texts)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    texts = real_texts(arguments.texts)
    with tempfile.TemporaryDirectory() as scratch:
        figures = measured(texts, Path(scratch))
        folder = Path(scratch, "json")
        folder.mkdir()
        figures |= as_json(folder, texts, Table(texts).embed(texts))
    try:
        model = MiniLM(threads=1)
        some = texts[:EMBEDDED]
        figures["MiniLM"] = microseconds(some, int, lambda: model.embed(some))
    except EmbedderUnavailable as error:
        print(error, file=sys.stderr)
    for name, figure in figures.items():
        print(f"{name:30} {figure:12,.2f}")
    if arguments.json:
        about = {"texts": len(texts), "machine": platform.machine(), "sqlite": sqlite3.sqlite_version}
        arguments.json.write_text(json.dumps(about | {"microseconds": figures}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
