"""The real model against the reference implementation."""

import asyncio
import json
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from samples import DATA, records
from secateur import EmbedderUnavailable, ModelError, OptionError, formats, prune_context
from secateur.embed import model
from secateur.embed.cache import EmbeddingCache
from secateur.embed.minilm import LongTexts, MiniLM, MultilingualE5
from secateur.embed.reader import Reader

SENTENCES: list[str] = json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def exact() -> MiniLM:
    return MiniLM(precision="fp32")


def test_equals_sentence_transformers(exact: MiniLM) -> None:
    reference = np.load(DATA / "minilm_reference.npz")
    assert json.loads(str(reference["about"]))["model.safetensors"] == model.MINILM.sha256["model.safetensors"]
    assert len(SENTENCES) == len(reference["vectors"]) == 200
    vectors = exact.embed(SENTENCES)
    assert vectors.shape == (200, 384)
    assert vectors.dtype == np.float32
    assert np.abs(vectors - reference["vectors"]).max() < 1e-5


def ranks(values: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)


def test_int8_orders_as_fp32_does(minilm: MiniLM, exact: MiniLM) -> None:
    texts = [*SENTENCES, *(message["content"] for message in records("meeting.jsonl")[0]["messages"])]
    cosines = []
    for embedder in (minilm, exact):
        vectors = embedder.embed(texts)
        cosines.append((vectors @ vectors.T)[np.triu_indices(len(texts), 1)])
    assert minilm.fingerprint != exact.fingerprint
    assert np.corrcoef(ranks(cosines[0]), ranks(cosines[1]))[0, 1] > 0.997


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_a_vector_does_not_depend_on_its_batch(precision: model.Precision) -> None:
    """Not by a bit: what is cached, and what another batch makes of it, are the same."""
    one, three = MiniLM(precision=precision, threads=1), MiniLM(precision=precision, threads=3)
    texts = [*SENTENCES[:60], "", "a", "word " * 300, "漢字かな交じり文。" * 20]
    together = one.embed(texts)
    assert np.array_equal(together, np.concatenate([one.embed([text]) for text in texts]))
    assert np.array_equal(together, three.embed(texts[::-1] * 3)[: len(texts)][::-1])
    assert np.array_equal(together, one.embed_tokens(texts).sentences)


def test_vectors_of_tokens(minilm: MiniLM) -> None:
    texts = ["route efficiency", "", "fleet"]
    found = minilm.embed_tokens(texts)
    assert found.starts.tolist() == [0, 4, 6, 9]
    assert (found.values.shape, found.values.dtype.name, found.scales.shape) == ((9, 384), "int8", (9,))
    tokens = found.values * found.scales[:, None]
    np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), 1, atol=0.01)
    for text, start, end in zip(texts, found.starts, found.starts[1:], strict=False):
        again = minilm.embed_tokens(["something else first, much longer", text])
        assert np.array_equal(again.values[again.starts[1] :], found.values[start:end])
    # The mean of the unit vectors points about where the sentence's vector does.
    mean = tokens[:4].mean(axis=0)
    assert mean @ minilm.embed(texts)[0] / np.linalg.norm(mean) > 0.98
    assert minilm.embed_tokens([]).starts.tolist() == [0]


def test_pieces_cover_a_text_between_words(minilm: MiniLM) -> None:
    read = minilm._reader
    long = "The fleet drives north, then it returns at night. " * 40
    pieces = read.pieces(long, 50, 100)
    assert "".join(pieces) == long
    tokens = len(Reader(model.locate().tokenizer).token_ids([long])[0]) - 2
    assert tokens / 50 <= len(pieces) < 1.2 * tokens / 50
    for piece in pieces:
        assert len(Reader(model.locate().tokenizer).token_ids([piece])[0]) <= 52
        assert piece.endswith((" ", ",", ".")) or piece[-1].isalpha()
    assert read.pieces(long, 50, 4) == [*pieces[:2], *pieces[-2:]]
    assert read.pieces("short", 50, 4) == ["short"]
    assert read.pieces("", 50, 4) == [""]
    assert "".join(read.pieces("x" * 500, 50, 100)) == "x" * 500
    endless = "north " * 500_000 + "south " * 500_000
    ends = read.pieces(endless, 50, 6)
    assert (len(ends), {*ends[0].split()}, {*ends[-1].split()}) == (6, {"north"}, {"south"})
    assert "".join(read.pieces("字" * 500, 50, 100)) == "字" * 500


def test_what_stands_far_back_is_found_in_pieces() -> None:
    """A line in the middle of a real tool result, which the first 256 tokens do not reach."""
    texts = [text for record in records("coding.jsonl") for text in formats.read(record["messages"]).texts]
    results = list(dict.fromkeys(text for text in texts if len(text) > 2500))
    assert len(results) >= 3
    lines = [max(result[1500:4000].splitlines()[1:-1] or [result[1800:2100]], key=len) for result in results]
    found = {}
    kinds: tuple[LongTexts, ...] = ("first", "pieces")
    for long_texts in kinds:
        cache = EmbeddingCache(MiniLM(long_texts=long_texts))
        found[long_texts] = sum(cache.search(line, results, 1)[0][0] == position for position, line in enumerate(lines))
    assert found["pieces"] >= max(found["first"], len(results) * 2 // 3)
    with pytest.raises(OptionError, match="long_texts is 'all', it must be 'first' or 'pieces'"):
        MiniLM(long_texts="all")  # type: ignore[arg-type]


def test_a_fork_embeds(minilm: MiniLM) -> None:
    expected = minilm.embed(SENTENCES[:9])
    FORKED[:] = [minilm]
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        for vectors in pool.map(embedded_here, [SENTENCES[:9]] * 4):
            assert np.array_equal(vectors, expected)


FORKED: list[MiniLM] = []


def embedded_here(texts: list[str]) -> NDArray[np.float32]:
    return FORKED[0].embed(texts)


def test_a_closed_model_says_so(minilm: MiniLM) -> None:
    other = MiniLM()
    other.close()
    other.close()
    with pytest.raises(ModelError, match="is closed"):
        other.embed(["x"])
    assert asyncio.run(minilm.aembed(["x"])).shape == (1, 384)


def test_the_multilingual_model_has_prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exact: MiniLM) -> None:
    """With the files of MiniLM in its place: the hub cannot be reached from here."""
    monkeypatch.setenv("SECATEUR_CACHE", str(tmp_path))
    with pytest.raises(EmbedderUnavailable, match="run `secateur model fetch multilingual-e5-small`"):
        MultilingualE5()
    files = Path(exact._graph).parent
    shutil.copytree(files, tmp_path / "multilingual-e5-small")
    multilingual = MultilingualE5(precision="fp32")
    assert np.array_equal(multilingual.embed(["x"]), exact.embed(["passage: x"]))
    assert np.array_equal(multilingual.embed_queries(["x"]), exact.embed(["query: x"]))
    assert multilingual.fingerprint != exact.fingerprint


def test_every_text_has_a_unit_vector(minilm: MiniLM) -> None:
    odd = ["", " ", "\x00", "\ud800", "\udc00 lone", "🏳️‍🌈" * 50, "a" * 10_000, "漢" * 600, "\u202e" + "\u0301" * 99]
    vectors = minilm.embed(odd)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert minilm.embed([]).shape == (0, 384)
    assert np.array_equal(minilm.embed(["\ud83d\ude00"]), minilm.embed(["😀"]))


def test_text_is_cut_after_max_tokens(minilm: MiniLM) -> None:
    long = "route " * 300
    assert np.abs(minilm.embed([long]) - minilm.embed(["route " * 254])).max() < 1e-6
    assert np.abs(MiniLM(max_tokens=8).embed([long]) - minilm.embed(["route " * 6])).max() < 1e-6


def test_long_texts_are_read_only_as_far_as_needed(minilm: MiniLM) -> None:
    texts = [
        "a tool said so. " * 100_000,
        "x" * 30_000 + " end",
        "{'a':1,'b':2}," * 3_000,
        "word " * 4 + "y" * 5_000 + " word" * 300,
        "\u200b" * 40_000 + " hidden start",
        "漢字" * 3_000,
        "é\u0301" * 4_000,
    ]
    whole = [
        ids if len(ids) <= 256 else [*ids[:255], ids[-1]] for ids in Reader(model.locate().tokenizer).token_ids(texts)
    ]
    assert minilm._reader.token_ids(texts) == whole


def test_threads_share_a_model(minilm: MiniLM) -> None:
    expected = minilm.embed(SENTENCES[:20])
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: minilm.embed(SENTENCES[:20]), range(8)):
            assert np.abs(vectors - expected).max() < 1e-6


def test_a_ready_made_folder_is_accepted(tmp_path: Path, exact: MiniLM) -> None:
    """The layout of the hub: onnx/model.onnx with vectors of tokens alone and three inputs."""
    files = model.locate(precision="fp32")
    graph = onnx.load(files.graph)
    graph.graph.output[0].name = "last_hidden_state"
    next(node for node in graph.graph.node if node.output[0] == "token_vectors").output[0] = "last_hidden_state"
    for name in ("attention_mask", "token_type_ids"):
        graph.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]))
    (tmp_path / "onnx").mkdir()
    onnx.save(graph, tmp_path / "onnx" / "model.onnx")
    (tmp_path / "tokenizer.json").write_bytes(files.tokenizer.read_bytes())
    for path in (tmp_path, str(tmp_path / "onnx" / "model.onnx")):
        assert np.abs(MiniLM(path).embed(SENTENCES[:9]) - exact.embed(SENTENCES[:9])).max() < 1e-6


def test_models_of_another_kind(tmp_path: Path) -> None:
    def build(inputs: list[str], dimension: int) -> None:
        """A graph that gives a vector of ones for each text."""
        nodes = [
            helper.make_node("Cast", [inputs[0]], ["ids"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["ids", "axis"], ["mean"], keepdims=1),
            helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
            helper.make_node("Add", ["nothing", "ones"], ["vectors"]),
        ]
        constants = [
            helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
            helper.make_tensor("zero", TensorProto.FLOAT, [1], [0]),
            helper.make_tensor("ones", TensorProto.FLOAT, [dimension], [1] * dimension),
        ]
        infos = [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "l"]) for name in inputs]
        output = [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["b", dimension])]
        graph = helper.make_graph(nodes, "ones", infos, output, constants)
        opset = [helper.make_opsetid("", 20)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "model.onnx")

    (tmp_path / "tokenizer.json").write_bytes(model.locate().tokenizer.read_bytes())
    build(["input_ids"], 768)
    wide = MiniLM(tmp_path)
    assert (wide.dimension, wide.embed(["a", "b"]).shape) == (768, (2, 768))
    with pytest.raises(ModelError, match=r"gives shape \(2, 768\), expected a vector a token"):
        wide.embed_tokens(["a", "b"])
    build(["input_ids", "position_ids"], 384)
    with pytest.raises(ModelError, match="wants position_ids, expected only input_ids, attention_mask, token_type_ids"):
        MiniLM(tmp_path)


@pytest.mark.parametrize("threads", [0, -1, True, 1.5])
def test_threads_have_limits(threads: int) -> None:
    with pytest.raises(OptionError, match=r"threads is .*, it must be a whole number, 1 or more"):
        MiniLM(threads=threads)
    with pytest.raises(OptionError, match="precision is 'int4', it must be 'int8', 'fp32' or None"):
        MiniLM(precision="int4")  # type: ignore[arg-type]


@pytest.mark.parametrize("max_tokens", [-1, 0, 2, 513, 7.5, True])
def test_max_tokens_has_limits(max_tokens: int) -> None:
    with pytest.raises(OptionError, match="it must be a whole number from 3 to 512"):
        MiniLM(max_tokens=max_tokens)


def test_the_environment_names_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECATEUR_MODEL", str(model.locate().graph))
    monkeypatch.setenv("SECATEUR_CACHE", str(tmp_path))
    assert MiniLM().embed(["x"]).shape == (1, 384)
    monkeypatch.setenv("SECATEUR_MODEL", str(tmp_path))
    with pytest.raises(EmbedderUnavailable, match=r"has no model\.onnx"):
        MiniLM()


def test_no_model_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SECATEUR_MODEL", raising=False)
    monkeypatch.setenv("SECATEUR_CACHE", str(tmp_path))
    history = [{"role": "user", "content": text} for text in "abcde"]
    with pytest.raises(EmbedderUnavailable, match="secateur model fetch") as caught:
        prune_context("x", history)
    assert isinstance(caught.value, ImportError)


def test_no_packages_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EmbedderUnavailable, match=r"needs a package: .*onnxruntime.*; install secateur with its extra"):
        MiniLM()


def test_files_that_are_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(EmbedderUnavailable, match=r"has no tokenizer\.json"):
        MiniLM(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="holds no model that can be loaded"):
        MiniLM(tmp_path)
