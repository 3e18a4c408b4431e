"""The static table: distilled from the real weights for the commonest tokens, and what it makes of texts."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples import DATA, records
from secateur import EmbedderUnavailable, ModelError, prune_context
from secateur.embed import model
from secateur.embed.cache import Embedder
from secateur.embed.distil import distil, save
from secateur.embed.minilm import MiniLM
from secateur.embed.static import StaticEmbedder, Table, load

SENTENCES: list[str] = json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))
COMMON = 4000
"""Tokens that the tests distil; all would take twenty seconds."""
GRAPH = model.locate(precision="fp32").graph


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    tokenizer = json.loads(model.locate().tokenizer.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {word: number for word, number in vocabulary.items() if number < COMMON}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    save(distil(GRAPH, folder / "tokenizer.json"), folder / "static.safetensors")
    return folder


@pytest.fixture(scope="session")
def static(folder: Path) -> StaticEmbedder:
    return StaticEmbedder(folder)


def test_a_table_is_the_same_every_time(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secateur.embed.distil._BATCH", 100)
    save(distil(GRAPH, folder / "tokenizer.json"), tmp_path / "again")
    content = (folder / "static.safetensors").read_bytes()
    assert (tmp_path / "again").read_bytes() == content
    (tmp_path / "plain").touch()
    assert (tmp_path / "again").stat().st_mode == (tmp_path / "plain").stat().st_mode
    table = load(folder / "static.safetensors")
    assert (table.first, table.codes.shape, table.scales.shape) == (999, (COMMON - 998, 256), (COMMON - 998, 1))
    assert set(np.abs(table.codes.astype(int)).max(axis=1).tolist()) == {127}


def test_meaning_survives(static: StaticEmbedder, minilm: MiniLM) -> None:
    """Evidence for real questions: half of what MiniLM finds at least, twice as much as chance."""
    embedders: tuple[Embedder, Embedder] = (static, minilm)
    found = dict.fromkeys(embedders, 0)
    chance = 0.0
    for record in records("memories.jsonl"):
        texts = [message["content"] for message in record["messages"]]
        questions = [
            each for each in record["questions"] if each["evidence_message_indices"] and record["lang"] == "en"
        ]
        for embedder in embedders:
            vectors = embedder.embed(texts)
            for each in questions:
                best = np.argsort(-(vectors @ embedder.embed([each["question"]])[0]), kind="stable")[:10]
                found[embedder] += len(set(best.tolist()) & set(each["evidence_message_indices"]))
        chance += sum(len(each["evidence_message_indices"]) for each in questions) * 10 / len(texts)
    assert found[static] > max(found[minilm] / 2, 2 * chance) > 0


def test_a_vector_is_the_normalised_sum_of_its_rows(static: StaticEmbedder) -> None:
    table = static._table
    rows = table.codes.astype(np.float64) * table.scales
    for text in [*SENTENCES[:40], "a long text. " * 2000]:
        sums = rows[[max(number - 998, 0) for number in static._reader.token_ids([text])[0]]].sum(axis=0)
        assert np.abs(static.embed([text])[0] - sums / np.linalg.norm(sums)).max() < 1e-6


@given(st.lists(st.text(), max_size=8))
def test_any_text_has_a_unit_vector_that_its_batch_does_not_change(static: StaticEmbedder, texts: list[str]) -> None:
    vectors = static.embed(texts)
    assert (vectors.shape, vectors.dtype.name) == ((len(texts), 256), "float32")
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for text, vector in zip(texts, vectors, strict=True):
        assert np.array_equal(static.embed([text])[0], vector)


def test_batches_of_every_size_give_the_same_bits(static: StaticEmbedder) -> None:
    texts = [*SENTENCES, "x " * 511, "x " * 510, "the route " * 5000, "", *SENTENCES, "y" * 600_000, "z"]
    together = static.embed(texts)
    assert np.array_equal(together, np.concatenate([static.embed([text]) for text in texts]))
    assert np.array_equal(together, static.embed(texts[::-1])[::-1])


def test_odd_texts(static: StaticEmbedder) -> None:
    odd = ["", " ", "\x00", "\ud800", "\udc00 lone", "🏳️‍🌈" * 50, "a" * 10_000, "\u202e" + "\u0301" * 99]
    vectors = static.embed(odd)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.array_equal(vectors[0], vectors[1])
    assert np.array_equal(static.embed(["\ud83d\ude00"]), static.embed(["😀"]))
    # What the vocabulary lacks counts beside nothing only.
    assert np.abs(static.embed(["the route 🏳️‍🌈"]) - static.embed(["the route"])).max() < 1e-5
    assert vectors[0] @ static.embed(["🏳️‍🌈"])[0] > 1 - 1e-6


def test_threads_share_an_embedder(static: StaticEmbedder) -> None:
    expected = static.embed(SENTENCES)
    with ThreadPoolExecutor(4) as pool:
        assert all(
            np.array_equal(vectors, expected) for vectors in pool.map(lambda _: static.embed(SENTENCES), range(8))
        )


def test_it_prunes(static: StaticEmbedder) -> None:
    history = [{"role": "user", "content": text} for text in ("The route is long.", "I like tea.", "b", "c")]
    assert history[0] in prune_context("Which route is best?", history, top_k=1, embedder=static)


def test_the_fingerprint_names_the_content(folder: Path, tmp_path: Path, static: StaticEmbedder) -> None:
    table = load(folder / "static.safetensors")
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    save(table, tmp_path / "static.safetensors")
    assert StaticEmbedder(tmp_path).fingerprint == static.fingerprint
    save(table._replace(scales=table.scales * 2), tmp_path / "static.safetensors")
    assert StaticEmbedder(tmp_path).fingerprint != static.fingerprint


def test_the_environment_names_a_folder(monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("SECATEUR_MODEL", str(folder / "model.onnx"))
    assert StaticEmbedder().dimension == 256
    monkeypatch.delenv("SECATEUR_MODEL")
    monkeypatch.setenv("SECATEUR_CACHE", str(tmp_path))
    with pytest.raises(EmbedderUnavailable, match="the MiniLM model has not been fetched: run `secateur model fetch`"):
        StaticEmbedder()
    with pytest.raises(EmbedderUnavailable, match=r"has no static\.safetensors"):
        StaticEmbedder(tmp_path)


def test_onnxruntime_is_not_needed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert StaticEmbedder(folder).embed(["x"]).shape == (1, 256)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(EmbedderUnavailable, match=r"needs a package: .*tokenizers"):
        StaticEmbedder(folder)


def test_files_that_are_no_table(folder: Path, tmp_path: Path) -> None:
    table, content = tmp_path / "static.safetensors", (folder / "static.safetensors").read_bytes()
    (tmp_path / "tokenizer.json").write_bytes(model.locate().tokenizer.read_bytes())
    for broken in (b"", b"no table", content[:50], content[:-1], content.replace(b"codes", b"c0des", 1)):
        table.write_bytes(broken)
        with pytest.raises(ModelError, match="holds no static table"):
            StaticEmbedder(tmp_path)
    table.write_bytes(content.replace(rb"\"version\": 1", rb"\"version\": 7"))
    with pytest.raises(ModelError, match="has version 7, expected 1"):
        StaticEmbedder(tmp_path)
    table.write_bytes(content)
    with pytest.raises(ModelError, match=r"has 30522 tokens, but .* is for 4000"):
        StaticEmbedder(tmp_path)
    save(Table(np.ones((3, 4), np.int8), np.ones((2, 1), np.float32), 999), table)
    with pytest.raises(ModelError, match=r"codes of shape \(3, 4\) and scales of shape \(2, 1\)"):
        StaticEmbedder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    table.write_bytes(content)
    with pytest.raises(ModelError, match="holds no tokenizer that can be loaded"):
        StaticEmbedder(tmp_path)
