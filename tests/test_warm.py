"""Vectors made in the background: by a session, and behind the instant answers."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from samples import WordEmbedder, records
from secateur import Session, embed, prune_context
from secateur.embed.cache import EmbeddingCache
from secateur.embed.instant import InstantCache
from secateur.embed.minilm import MiniLM
from secateur.embed.template import embedded_text
from secateur.embed.warm import Warmer


class Counting:
    """Counts what the real model embeds."""

    def __init__(self, model: MiniLM) -> None:
        self.model = model
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.embedded += texts
        return self.model.embed(texts)


def test_a_session_embeds_what_is_appended(minilm: MiniLM) -> None:
    """On a real trace: afterwards only the prompt is left to embed."""
    history = records("service.jsonl")[0]["messages"]
    counting = Counting(minilm)
    with Session(100_000, embedder=counting) as session:
        session.extend(history[:10])
        for message in history[10:]:
            session.append(message)
        assert session._warmer is not None
        assert session._warmer.wait(60)
        assert len(counting.embedded) == len(set(counting.embedded)) > 10
        before = len(counting.embedded)
        window = prune_context("Which flight was booked?", session.messages, embedder=counting)
        assert counting.embedded[before:] == ["Which flight was booked?"]
    assert window == prune_context("Which flight was booked?", history, embedder=minilm)
    session.append({"role": "user", "content": "after the end"})
    assert len(session) == len(history) + 1
    assert "after the end" not in counting.embedded
    assert not [thread for thread in threading.enumerate() if thread.name == "secateur warmer"]


def test_a_warmer_survives_an_embedder_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    words = WordEmbedder()

    def fails(texts: Sequence[str]) -> NDArray[np.float32]:
        if "bad" in texts:
            raise RuntimeError("no network")
        return words.embed(texts)

    warmer = Warmer(EmbeddingCache(fails))
    with caplog.at_level(logging.WARNING):
        warmer.add(["bad", "", " "])
        assert warmer.wait(10)
        warmer.add(["good"])
        assert warmer.wait(10)
    assert words.embedded == ["good"]
    assert "1 texts could not be embedded ahead: no network" in caplog.text
    warmer.close()
    warmer.close()
    warmer.add(["late"])
    assert words.embedded == ["good"]


def test_a_warmer_gives_up_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secateur.embed.warm._MOST_WAITING", 3)
    words, begun, go = WordEmbedder(), threading.Event(), threading.Event()

    def slow(texts: Sequence[str]) -> NDArray[np.float32]:
        begun.set()
        assert go.wait(10)
        return words.embed(texts)

    warmer = Warmer(EmbeddingCache(slow))
    warmer.add(["first"])
    assert begun.wait(10)
    warmer.add([str(number) for number in range(9)])
    assert not warmer.wait(0.01)
    go.set()
    assert warmer.wait(10)
    assert words.embedded == ["first", "6", "7", "8"]
    warmer.close()


def test_a_fork_warms_by_itself() -> None:
    words = WordEmbedder()
    warmer = Warmer(EmbeddingCache(words.embed))
    warmer.add(["parent"])
    assert warmer.wait(10)
    child = os.fork()
    if child == 0:
        warmer.add(["child"])
        warmer.wait(10)
        warmer.close()
        os._exit(words.embedded != ["parent", "child"])
    assert os.waitpid(child, 0)[1] == 0
    warmer.close()


def test_a_process_may_end_while_texts_are_waiting() -> None:
    script = """
import secateur
history = [{"role": "user", "content": f"message {number} about the fleet " * 8} for number in range(300)]
secateur.prune_context("fleet?", history, 2, embedder="instant")
secateur.Session(10_000, embedder="all-MiniLM-L6-v2").extend(history)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stderr == ""


def test_instant_answers_become_the_real_ones(minilm: MiniLM) -> None:
    history = [message for message in records("meeting.jsonl")[0]["messages"] if message["content"]]
    texts = [embedded_text(message, message["content"]) for message in history]
    prompt = "What will the remote control cost?"
    cache = embed.cached("instant")
    assert isinstance(cache, InstantCache)
    assert embed.cached("instant") is cache
    at_once = cache.search(prompt, texts, 5)
    assert at_once == embed.cached("static").search(prompt, texts, 5)
    assert cache.wait(120)
    assert cache.missing(texts) == []
    real = cache.search(prompt, texts, 5)
    assert real == EmbeddingCache(minilm).search(prompt, texts, 5)
    assert real != at_once
    assert len(prune_context(prompt, history, 3, embedder="instant")) == 6
    embed.clear_caches()
    assert not [thread for thread in threading.enumerate() if thread.name == "secateur warmer"]
