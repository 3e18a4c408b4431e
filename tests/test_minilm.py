"""The real model against the reference implementation."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from samples import DATA
from secateur import EmbedderUnavailable, ModelError, OptionError, prune_context
from secateur.embed import model
from secateur.embed.minilm import MiniLM

SENTENCES: list[str] = json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))


def test_equals_sentence_transformers(minilm: MiniLM) -> None:
    reference = np.load(DATA / "minilm_reference.npz")
    assert json.loads(str(reference["about"]))["model.safetensors"] == model.SHA256["model.safetensors"]
    assert len(SENTENCES) == len(reference["vectors"]) == 200
    vectors = minilm.embed(SENTENCES)
    assert vectors.shape == (200, 384)
    assert vectors.dtype == np.float32
    assert np.abs(vectors - reference["vectors"]).max() < 1e-5


def test_a_vector_does_not_depend_on_its_batch(minilm: MiniLM) -> None:
    together = minilm.embed(SENTENCES[:60])
    alone = np.concatenate([minilm.embed([text]) for text in SENTENCES[:60]])
    single_thread = MiniLM(threads=1).embed(SENTENCES[59::-1])[::-1]
    assert np.abs(together - alone).max() < 1e-6
    assert np.abs(together - single_thread).max() < 1e-6


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
    whole = [encoding.ids for encoding in minilm._tokenizer.encode_batch(texts)]
    assert minilm._tokenized(texts) == whole


def test_threads_share_a_model(minilm: MiniLM) -> None:
    expected = minilm.embed(SENTENCES[:20])
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: minilm.embed(SENTENCES[:20]), range(8)):
            assert np.abs(vectors - expected).max() < 1e-6


def test_a_ready_made_folder_is_accepted(tmp_path: Path, minilm: MiniLM) -> None:
    """The layout of the hub: onnx/model.onnx with token vectors, pooled by the caller."""
    files = model.locate()
    graph = onnx.load(files.graph)
    (pooled,) = [node for node in graph.graph.node if node.op_type == "ReduceSum" and "Mul" in node.input[0]]
    hidden = next(node for node in graph.graph.node if node.output[0] == pooled.input[0]).input[0]
    graph.graph.output[0].CopyFrom(helper.make_tensor_value_info(hidden, TensorProto.FLOAT, ["b", "l", 384]))
    graph.graph.input.append(helper.make_tensor_value_info("token_type_ids", TensorProto.INT64, ["b", "l"]))
    (tmp_path / "onnx").mkdir()
    onnx.save(graph, tmp_path / "onnx" / "model.onnx")
    (tmp_path / "tokenizer.json").write_bytes(files.tokenizer.read_bytes())
    for path in (tmp_path, str(tmp_path / "onnx" / "model.onnx")):
        assert np.abs(MiniLM(path).embed(SENTENCES[:9]) - minilm.embed(SENTENCES[:9])).max() < 1e-6


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
    build(["input_ids", "position_ids"], 384)
    with pytest.raises(ModelError, match="wants position_ids, expected only input_ids, attention_mask, token_type_ids"):
        MiniLM(tmp_path)


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
