"""The embedding cache: each text once, bounded, shared between threads; and what embedders may not return."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from samples import WordEmbedder
from secateur import EmbedderError, EmbedderUnavailable, OptionError, VectorIndex, embed
from secateur.embed import EmbeddingCache, minilm, model
from secateur.embed.minilm import MiniLM

texts = st.lists(st.sampled_from(["fleet", "route", "rain", "load", "sun"]), max_size=12)


@given(st.lists(texts, max_size=8), st.sampled_from([0, 200, 10_000]))
def test_searches_like_an_index_of_its_own(histories: list[list[str]], limit_bytes: int) -> None:
    embedder = WordEmbedder()
    cache = EmbeddingCache(embedder.embed, limit_bytes)
    for history in histories:
        found = cache.search("fleet rain", history, 3)
        index = VectorIndex(16)
        index.append(WordEmbedder().embed(history))
        positions, scores = index.top_k(WordEmbedder().embed(["fleet rain"])[0], 3)
        assert found == list(zip(positions.tolist(), scores.tolist(), strict=True))
    if limit_bytes == 10_000:
        assert len(embedder.embedded) == len(set(embedder.embedded)), "each text is embedded once"


class Cutting(WordEmbedder):
    """Embeds every two words of a text apart."""

    def pieces(self, text: str) -> list[str]:
        words = text.split()
        return [" ".join(words[start : start + 2]) for start in range(0, len(words), 2)] or [text]


@given(
    st.lists(st.lists(st.sampled_from(["fleet", "route", "rain", "sun"]), max_size=9), max_size=12), st.integers(0, 9)
)
def test_a_text_in_pieces_scores_as_its_best(words: list[list[str]], k: int) -> None:
    history = [" ".join(each) for each in words]
    cutting = Cutting()
    cache = EmbeddingCache(cutting)
    query = WordEmbedder().embed(["fleet rain"])[0]
    best = []
    for position, text in enumerate(history):
        index = VectorIndex(16)
        index.append(WordEmbedder().embed(cutting.pieces(text)))
        best.append((-float(index.top_k(query, 1)[1][0]), position))
    assert cache.search("fleet rain", history, k) == [(position, -score) for score, position in sorted(best)[:k]]
    cache.prepare(history)
    assert len(cutting.embedded) == len(set(cutting.embedded))


def test_texts_in_use_survive_and_others_are_forgotten() -> None:
    embedder = WordEmbedder()
    cache = EmbeddingCache(embedder.embed, 20_000)
    for number in range(500):
        cache.search("prompt", ["stays", f"passes {number}"], 1)
    assert embedder.embedded.count("stays") == 1
    cache.search("prompt", ["passes 0"], 1)
    assert embedder.embedded.count("passes 0") == 2


def test_threads_share_a_cache() -> None:
    cache = EmbeddingCache(WordEmbedder().embed, 3_000)
    history = [f"fleet {number}" for number in range(50)]

    def work(number: int) -> list[tuple[int, float]]:
        return cache.search("fleet 7", history[: 10 + number % 40], 3)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(400)))
    assert all(each[0] == pytest.approx((7, 1.0)) for each in found)


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ([[0.0]], "a list, expected a numpy array of float32"),
        (np.zeros((1, 3), np.float32), r"shape \(1, 3\), expected \(2, d\)"),
        (np.zeros(2, np.float32), r"shape \(2,\), expected \(2, d\)"),
        (np.zeros((2, 0), np.float32), r"shape \(2, 0\), expected \(2, d\)"),
        (np.zeros((2, 3)), r"dtype float64 of shape \(2, 3\), expected float32"),
        (np.array([[0, 0], [np.inf, 0]], np.float32), r"inf at \[1, 0\] of shape \(2, 2\), expected finite values"),
    ],
)
def test_refused_vectors(returned: Any, problem: str) -> None:
    def wrong(_: Sequence[str]) -> Any:
        return returned

    with pytest.raises(EmbedderError, match=f"wrong returned {problem}"):
        EmbeddingCache(wrong).search("a", ["b"], 1)


def test_the_dimension_may_not_change() -> None:
    sizes = iter([2, 3])
    cache = EmbeddingCache(lambda texts: np.ones((len(texts), next(sizes)), np.float32))
    cache.search("a", [], 1)
    with pytest.raises(EmbedderError, match=r"shape \(1, 3\), but dimension 2 before"):
        cache.search("b", [], 1)
    assert cache.search("a", ["a"], 1)[0] == pytest.approx((0, 1.0)), "what was remembered is still there"


def test_one_cache_an_embedder(words: WordEmbedder) -> None:
    assert embed.cached(words) is embed.cached(words)
    assert embed.cached(words) is not embed.cached(WordEmbedder())
    # A bound method is a new object each time it is looked up, but equal.
    assert embed.cached(words.embed) is embed.cached(words.embed)

    @dataclass  # equality without a hash
    class Named:
        fingerprint: str | None

        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return WordEmbedder().embed(texts)

    assert embed.cached(Named("a")) is embed.cached(Named("a"))
    assert embed.cached(Named("a")) is not embed.cached(Named("b"))
    with pytest.raises(OptionError, match="it must be None, a name, a path, a callable or an object"):
        embed.cached(Named)  # type: ignore[arg-type]
    one, other = Named(None), Named(None)
    assert embed.cached(one) is embed.cached(one)
    assert embed.cached(one) is not embed.cached(other)
    with pytest.raises(OptionError, match="embedder is 7, it must be"):
        embed.cached(7)  # type: ignore[arg-type]


@pytest.mark.thread_unsafe(reason="counts the caches of the whole process")
def test_the_eight_last_used_are_kept(words: WordEmbedder) -> None:
    first = embed.cached(words)
    others = [WordEmbedder() for _ in range(7)]
    for other in others:
        embed.cached(other)
    assert embed.cached(words) is first
    embed.cached(WordEmbedder())
    assert embed.cached(words) is first
    for _ in range(8):
        embed.cached(WordEmbedder())
    assert embed.cached(words) is not first


def test_an_embedder_lives_as_long_as_its_cache() -> None:
    """An unhashable embedder is known by its id, which must not pass to another."""

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __init__(self, value: float) -> None:
            self.embed = lambda texts: np.full((len(texts), 2), value, np.float32)

    caches = set()
    for number in range(7):
        embedder = Unhashable(float(number))
        caches.add(embed.cached(embedder))
        del embedder
    assert len(caches) == 7


@pytest.mark.thread_unsafe(reason="changes a module")
def test_threads_that_start_together_load_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[MiniLM] = []

    class Counted(MiniLM):
        def __init__(self, path: Any = None) -> None:
            loaded.append(self)
            super().__init__(path)

    monkeypatch.setattr(minilm, "MiniLM", Counted)
    with ThreadPoolExecutor(6) as pool:
        caches = set(pool.map(embed.cached, [None] * 6))
    assert len(loaded) == len(caches) == 1


@pytest.mark.thread_unsafe(reason="changes folder and environment")
def test_a_path_means_what_it_means_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = model.locate().graph.parent
    monkeypatch.chdir(folder.parent)
    first = embed.cached(f"./{folder.name}")
    assert embed.cached(folder) is first
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EmbedderUnavailable, match=r"has no model\.onnx"):
        embed.cached(f"./{folder.name}")
    embed.cached(None)
    monkeypatch.setenv("SECATEUR_MODEL", str(tmp_path))
    with pytest.raises(EmbedderUnavailable, match=r"has no model\.onnx"):
        embed.cached(None)
