"""The embedding cache with a file, in slices, awaited and forked: what is computed how often, and always the same."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from samples import WordEmbedder, records
from secateur import EmbedderError, embed
from secateur.embed import EmbeddingCache, VectorStore
from secateur.embed.minilm import MiniLM
from secateur.embed.store import rounded

Vectors = NDArray[np.float32]
MANY = [f"text {number} of the fleet {number % 7}" for number in range(600)]


class Named(WordEmbedder):
    """Vectors of thirds, which fp16 rounds."""

    def __init__(self, fingerprint: str = "words") -> None:
        super().__init__()
        self.fingerprint = fingerprint

    def embed(self, texts: Sequence[str]) -> Vectors:
        return super().embed(texts) / np.float32(3)


class Apart(Named):
    """Embeds queries in another way."""

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        self.embedded += [f"query: {text}" for text in texts]
        return WordEmbedder().embed([f"{text} {text} rain" for text in texts])


class Awaited(Apart):
    async def aembed(self, texts: Sequence[str]) -> Vectors:
        await asyncio.sleep(0)
        return self.embed(texts)

    async def aembed_queries(self, texts: Sequence[str]) -> Vectors:
        await asyncio.sleep(0)
        return self.embed_queries(texts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vectors.sqlite"


texts = st.lists(st.text("ab \ud800\udc00я", max_size=6), max_size=12)


@given(st.lists(st.tuples(texts, st.booleans()), max_size=8), st.sampled_from([0, 400, 100_000]))
def test_like_a_dictionary_with_and_without_a_file(
    tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[list[str], bool]], limit_bytes: int
) -> None:
    with VectorStore(tmp_path_factory.mktemp("cache") / "vectors.sqlite") as store:
        embedder, alone = Named(), EmbeddingCache(Named())
        for history, restarts in calls:
            if restarts or history == calls[0][0]:
                cache = EmbeddingCache(embedder, limit_bytes, store)
            vectors = cache.vectors(history)
            expected = rounded(Named().embed(history)) if history else vectors
            np.testing.assert_array_equal(vectors, expected)
            assert alone.vectors(history).tolist() == expected.tolist()
            assert cache.search("a b", history, 3) == alone.search("a b", history, 3)
        assert len(embedder.embedded) == len(set(embedder.embedded)), "each text is embedded once ever"


def test_real_vectors_are_the_same_cold_and_warm(path: Path, minilm: MiniLM) -> None:
    history = [message["content"] for record in records("meeting.jsonl") for message in record["messages"]][:40]
    with VectorStore(path) as store:
        cold = EmbeddingCache(minilm, store=store)
        found, vectors = cold.search("the price", history, 10), cold.vectors(history)

        class Untouched:
            fingerprint = minilm.fingerprint

            def embed(self, _: Sequence[str]) -> Vectors:
                raise AssertionError("everything is in the file")

        warm = EmbeddingCache(Untouched(), store=store)
        assert warm.search("the price", history, 10) == found
        np.testing.assert_array_equal(warm.vectors(history), vectors)
    assert EmbeddingCache(minilm).search("the price", history, 10) == found, (
        "nor does it matter whether there is a file"
    )
    assert np.abs(vectors - minilm.embed(history)).max() < 2e-4


def test_without_a_fingerprint_nothing_is_on_disk(path: Path, words: WordEmbedder) -> None:
    with VectorStore(path) as store:
        EmbeddingCache(words, store=store).vectors(["a"])
        assert not path.exists()
        EmbeddingCache(Named(), store=store).vectors(["a"])
        assert path.exists()


def test_embedders_do_not_mix(path: Path) -> None:
    with VectorStore(path) as store:
        for fingerprint in ("a", "ab"):
            embedder = Named(fingerprint)
            EmbeddingCache(embedder, store=store).vectors(["b", "c", "bb"])
            assert embedder.embedded == ["b", "c", "bb"]


def test_queries_that_are_embedded_apart(path: Path) -> None:
    history = ["fleet", "rain", "sun", "fleet fleet rain"]
    with VectorStore(path) as store:
        for _ in range(2):
            embedder = Apart()
            cache = EmbeddingCache(embedder, store=store)
            assert cache.search("fleet", history, 1)[0] == pytest.approx((3, 1.0))
            assert cache.search("fleet", history, 4) == cache.search("fleet", history, 4)
            np.testing.assert_array_equal(cache.vectors(["fleet"]), rounded(Named().embed(["fleet"])))
        assert embedder.embedded == [], "the query is in the file as well"
    first = Apart()
    EmbeddingCache(first).search("fleet", history, 1)
    assert first.embedded == ["query: fleet", *history]


@pytest.mark.parametrize("made", [Named, Apart, Awaited])
def test_awaited_like_called(path: Path, made: type[Named]) -> None:
    async def together(cache: EmbeddingCache) -> list[object]:
        told: list[tuple[int, int]] = []
        vectors = await cache.avectors(MANY, progress=lambda *step: told.append(step))
        assert told == [(0, 600), (256, 600), (512, 600), (600, 600)]
        assert (await cache.avectors([])).shape == (0, 16)
        return [vectors.tolist(), *await asyncio.gather(*(cache.asearch("fleet", MANY, 5) for _ in range(3)))]

    with VectorStore(path) as store:
        embedder = made()
        vectors, *found = asyncio.run(together(EmbeddingCache(embedder, store=store)))
        called = EmbeddingCache(made(), store=store)
        assert vectors == called.vectors(MANY).tolist()
        assert found == [called.search("fleet", MANY, 5)] * 3
        assert len([text for text in embedder.embedded if text in MANY]) == len(MANY)


def test_progress() -> None:
    told: list[tuple[int, int]] = []
    cache = EmbeddingCache(Named())
    cache.vectors(MANY[:100])
    cache.vectors([*MANY, *MANY], progress=lambda *step: told.append(step))
    assert told == [(100, 600), (356, 600), (600, 600)]
    told.clear()
    cache.vectors(MANY, progress=lambda *step: told.append(step))
    assert told == [(600, 600)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_was_made_before_an_interruption_is_kept(path: Path, error: type[BaseException]) -> None:
    class Interrupted(Named):
        def embed(self, texts: Sequence[str]) -> Vectors:
            if len(self.embedded) >= 512:
                raise error
            return super().embed(texts)

    with VectorStore(path) as store:
        cache = EmbeddingCache(Interrupted(), store=store)
        for _ in range(2):
            with pytest.raises(error):
                cache.vectors(MANY)
        assert cache.vectors(MANY[:512]).shape == (512, 16)
        after = Named()
        EmbeddingCache(after, store=store).vectors(MANY)
        assert after.embedded == MANY[512:]


def test_a_fingerprint_that_stays_while_the_dimension_changes(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Narrow(Named):
        def embed(self, texts: Sequence[str]) -> Vectors:
            return super().embed(texts)[:, :5]

    with VectorStore(path) as store:
        EmbeddingCache(Named(), store=store).vectors(["a", "b"])
        cache = EmbeddingCache(Narrow(), store=store)
        assert cache.vectors(["a"]).shape == (1, 16)
        np.testing.assert_array_equal(cache.vectors(["a", "c", "b"]), rounded(Narrow().embed(["a", "c", "b"])))
        assert "makes dimension 5, what was stored is not used" in caplog.text
        assert EmbeddingCache(Narrow(), store=store).vectors(["a", "b", "c"]).shape == (3, 5)
        with pytest.raises(EmbedderError, match=r"shape \(1, 16\), but dimension 5 before"):
            cache._checked(["d"], Named().embed(["d"]))


def test_searches_go_on_while_it_is_warmed(path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Named):
        def embed(self, texts: Sequence[str]) -> Vectors:
            if len(texts) > 10:
                entered.set()
                assert go_on.wait(60)
            return super().embed(texts)

    with VectorStore(path) as store, ThreadPoolExecutor(1) as pool:
        cache = EmbeddingCache(Slow(), 50_000, store)
        warmed = pool.submit(cache.vectors, MANY)
        assert entered.wait(60)
        assert cache.search("fleet", MANY[:5], 1) == EmbeddingCache(Named()).search("fleet", MANY[:5], 1)
        go_on.set()
        np.testing.assert_array_equal(warmed.result(), rounded(Named().embed(MANY)))


def test_forks_while_threads_search() -> None:
    ended = threading.Event()
    cache = EmbeddingCache(Named(), 60_000)

    def busy(seed: int) -> None:
        turn = 0
        while not ended.is_set():
            turn += 1
            cache.search("fleet", MANY[(seed * 100 + turn) % 500 :][:60], 3)

    with ThreadPoolExecutor(3) as pool:
        tasks = [pool.submit(busy, seed) for seed in range(3)]
        for _ in range(20):
            child = os.fork()
            if child == 0:
                vectors = cache.vectors(MANY)
                os._exit(not np.array_equal(vectors, rounded(Named().embed(MANY))))
            assert os.waitpid(child, 0)[1] == 0
        ended.set()
        for task in tasks:
            task.result()


def test_nothing_leaks(path: Path) -> None:
    with VectorStore(path, limit_bytes=200_000) as store:
        cache = EmbeddingCache(Named(), 100_000, store)

        def turns(first: int) -> int:
            for number in range(first, first + 150):
                cache.search(f"prompt {number}", [f"text {number - back}" for back in range(30)], 3)
            cache._embedder.embedded.clear()  # type: ignore[union-attr]
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            turns(0)
            before = turns(1_000)
            after = max(turns(number) for number in (2_000, 3_000, 4_000))
        finally:
            tracemalloc.stop()
    assert after < before + 150_000
    assert path.stat().st_size <= 200_000


@pytest.mark.thread_unsafe(reason="changes what the whole process uses")
def test_one_store_for_the_process(path: Path) -> None:
    before = Named("process")
    embed.cached(before).vectors(["a"])
    with VectorStore(path) as store:
        try:
            assert embed.use_store(store) is store
            embed.cached(before).vectors(["b"])
            embed.clear_caches()
            after = Named("process")
            embed.cached(after).vectors(["a", "b"])
            assert after.embedded == ["a"], "b was embedded when the file was in use"
        finally:
            assert embed.use_store(None) is None
    embed.cached(after).vectors(["c"])
    assert EmbeddingCache(Named("process"), store=store)._not_stored(["a", "b", "c"], store) == ["c"]
    store.close()


def test_the_environment_names_a_store(path: Path) -> None:
    script = """
from test_remembering import Named, embed
embedder = Named("environment")
embed.cached(embedder).vectors(["a", "b"])
print(embedder.embedded)
"""
    for expected in ("['a', 'b']", "[]"):
        environment = os.environ | {"SECATEUR_VECTORS": str(path)}
        ran = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
            env=environment,
        )
        assert ran.stdout.strip() == expected
        assert [each.name for each in path.parent.iterdir()] == [path.name], "closed at the end"
