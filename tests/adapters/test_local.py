"""Adapters of the objects of other packages, real ones, with the real MiniLM where they can run it."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings import MockEmbedding
from model2vec import StaticModel
from onnx import TensorProto, helper
from pydantic import BaseModel, Field, SecretStr
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from samples import DATA, WordEmbedder, records
from secateur import EmbedderError, embed, prune_context
from secateur.embed import build
from secateur.embed.adapters import Adapter, AsyncTwoSided, TwoSided, adapt
from secateur.embed.minilm import MiniLM

SENTENCES: list[str] = json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))
TEXTS = ["How long is the bridge?", "", " ", "\ud83d\ude42 \ud800", "漢字", "word " * 400]
HISTORY = records("service.jsonl")[0]["messages"]
PROMPT = "What baggage allowance does the reservation have?"


def loaded(folder: Path, **options: Any) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu", **options)


def static(official: Path, *, seed: int = 0, **options: Any) -> StaticModel:
    tokenizer = Tokenizer.from_file(str(official / "tokenizer.json"))
    table = np.random.default_rng(seed).standard_normal((tokenizer.get_vocab_size(), 64)).astype(np.float32)
    return StaticModel(table, tokenizer, **options)


@pytest.fixture(scope="session")
def transformer(official: Path) -> SentenceTransformer:
    return loaded(official)


@pytest.fixture(scope="session")
def onnx_folder(official: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What fastembed loads: the tokenizer's files and secateur's graph, made to take padding."""
    folder = Path(shutil.copytree(official, tmp_path_factory.mktemp("fastembed") / "model"))
    build.build(official / "model.safetensors", folder / "model.onnx")
    model = onnx.load(folder / "model.onnx")
    model.graph.input.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "length"]))
    model.graph.node.insert(0, helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.INT32))
    for node in model.graph.node:
        if node.op_type == "MultiHeadAttention":
            node.input.append("mask")
    onnx.save(model, folder / "model.onnx")
    for name in ("tests/minilm", "tests/minilm-again"):
        TextEmbedding.add_custom_model(
            name, PoolingType.MEAN, True, ModelSource(hf=name), dim=384, model_file="model.onnx"
        )
    return folder


@pytest.fixture(scope="session")
def text_embedding(onnx_folder: Path) -> TextEmbedding:
    return TextEmbedding("tests/minilm", specific_model_path=str(onnx_folder), threads=1)


class Prefixed(Embeddings, BaseModel):
    """A LangChain object that embeds queries in a way of its own, by model2vec."""

    model_name: str = "tests/static"
    prefix: str = "query: "
    api_key: SecretStr | None = None
    default_headers: dict[str, str] | None = None
    held: Any = Field(default=None, exclude=True)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self.held.encode(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([self.prefix + text])[0]


class PrefixedToo(BaseEmbedding):
    """The same for LlamaIndex."""

    prefix: str = "query: "
    held: Any = Field(default=None, exclude=True)

    def _get_text_embedding(self, text: str) -> list[float]:
        vector: list[float] = self.held.encode([text])[0].tolist()
        return vector

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(self.prefix + query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


@pytest.fixture(params=["sentence_transformers", "fastembed", "model2vec", "langchain", "llama_index"])
def foreign(request: pytest.FixtureRequest, official: Path) -> Any:
    match request.param:
        case "sentence_transformers":
            return request.getfixturevalue("transformer")
        case "fastembed":
            return request.getfixturevalue("text_embedding")
        case "model2vec":
            return static(official)
        case "langchain":
            return Prefixed(held=static(official))
    return PrefixedToo(model_name="tests/static", held=static(official))


def raw(model: Any) -> Callable[[list[str]], Any]:
    """How each package itself is asked for the vectors of documents."""
    if isinstance(model, Prefixed | PrefixedToo):
        model = model.held
    if isinstance(model, TextEmbedding):
        return lambda texts: np.array(list(model.embed(texts)))
    encode: Callable[[list[str]], Any] = model.encode
    return encode


def test_the_vectors_are_the_model_s(transformer: Any, text_embedding: Any, minilm: MiniLM) -> None:
    reference = np.load(DATA / "minilm_reference.npz")["vectors"]
    # The official files let fastembed read 128 tokens.
    short = [index for index, text in enumerate(SENTENCES) if len(minilm._reader.token_ids([text])[0]) < 128]
    assert len(short) > 150
    for model, rows in ((transformer, range(200)), (text_embedding, short)):
        adapter = adapt(model)
        assert adapter is not None
        vectors = adapter.embed([SENTENCES[row] for row in rows])
        assert np.abs(vectors - reference[rows]).max() < 1e-5
        own = minilm.embed([SENTENCES[row] for row in rows])
        assert np.einsum("ij,ij->i", vectors, own).min() > 0.985


def test_every_adapter_gives_rows_of_float32(foreign: Any) -> None:
    adapter = adapt(foreign)
    assert isinstance(adapter, Adapter)
    assert isinstance(adapter, embed.Embedder)
    for make in (adapter.embed, getattr(adapter, "embed_queries", adapter.embed)):
        vectors = make(TEXTS)
        assert vectors.dtype == np.float32
        assert vectors.flags.c_contiguous
        assert len(vectors) == len(TEXTS)
        assert np.isfinite(vectors).all()
        assert np.abs(vectors - make([*TEXTS[:3], "🙂 \ufffd", *TEXTS[4:]])).max() < 1e-5
        known = not isinstance(adapter, AsyncTwoSided)
        assert make([]).shape == (0, vectors.shape[1] if known else 0)
    sentences = SENTENCES[:20]
    assert np.abs(adapter.embed(sentences) - raw(foreign)(sentences)).max() < 1e-5


def test_prune_context_takes_the_object_itself(foreign: Any) -> None:
    assert len(HISTORY) > 20
    adapter = adapt(foreign)
    assert adapter is not None
    chosen = prune_context(PROMPT, HISTORY, 3, embedder=foreign)
    assert chosen == prune_context(PROMPT, HISTORY, 3, embedder=adapter)
    plain = SimpleNamespace(embed=lambda texts: raw(foreign)(list(texts)).astype(np.float32))
    if isinstance(adapter, TwoSided):
        plain.embed_queries = adapter.embed_queries
    assert chosen == prune_context(PROMPT, HISTORY, 3, embedder=plain)
    assert len(chosen) < len(HISTORY)


def test_vectors_are_remembered_for_the_model_not_the_object(official: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, other = static(official), static(official), static(official, seed=1)
    prune_context(PROMPT, HISTORY, 3, embedder=first)
    asked: list[int] = []

    def spied(model: StaticModel) -> Callable[[list[str]], Any]:
        encode = model.encode

        def spy(texts: list[str]) -> Any:
            asked.append(id(model))
            return encode(texts)

        return spy

    for model in (second, other):
        monkeypatch.setattr(model, "encode", spied(model))
        prune_context(PROMPT, HISTORY, 3, embedder=model)
    assert set(asked) == {id(other)}


def fingerprint(model: object) -> str | None:
    adapter = adapt(model)
    assert adapter is not None
    return adapter.fingerprint


def test_fingerprints_of_sentence_transformers(official: Path, transformer: SentenceTransformer) -> None:
    plain = fingerprint(transformer)
    assert plain == fingerprint(loaded(official))
    assert plain is not None
    assert plain.startswith("sentence-transformers:")
    others = []
    for options in ({"truncate_dim": 64}, {"prompts": {"query": "query: "}}):
        others.append(fingerprint(loaded(official, **options)))
    shorter, trained, pooled = loaded(official), loaded(official), loaded(official)
    shorter.max_seq_length = 100
    next(iter(trained.parameters())).data[0, 0] += 0.5
    pooled[1].pooling_mode = "cls"
    others += map(fingerprint, (shorter, trained, pooled))
    assert len({plain, *others}) == 6


def test_fingerprints_of_fastembed(onnx_folder: Path, text_embedding: TextEmbedding, tmp_path: Path) -> None:
    plain = fingerprint(text_embedding)
    assert plain is not None
    assert plain.startswith("fastembed:tests/minilm:")
    assert plain == fingerprint(TextEmbedding("tests/minilm", specific_model_path=str(onnx_folder)))
    moved = shutil.copytree(onnx_folder, tmp_path / "moved")
    others = [
        fingerprint(TextEmbedding("tests/minilm", specific_model_path=str(moved))),
        fingerprint(TextEmbedding("tests/minilm-again", specific_model_path=str(onnx_folder))),
    ]
    assert len({plain, *others}) == 3


def test_fingerprints_of_model2vec(official: Path) -> None:
    plain = fingerprint(static(official))
    assert plain == fingerprint(static(official))
    weights = np.linspace(0.5, 1, static(official).embedding.shape[0]).astype(np.float32)
    others = [
        fingerprint(static(official, **options))
        for options in ({"seed": 1}, {"normalize": True}, {"max_length": 9}, {"weights": weights})
    ]
    assert len({plain, *others}) == 5


@pytest.mark.parametrize("kind", [Prefixed, PrefixedToo])
def test_fingerprints_of_objects_that_declare_themselves(kind: Any) -> None:
    def declared(**options: Any) -> str | None:
        return fingerprint(kind(**{"model_name": "m"} | options))

    plain = declared()
    assert plain == declared(held="another client")
    assert plain is not None
    assert f"{kind.__name__}:m:" in plain
    assert len({plain, declared(model_name="n"), declared(prefix="q: ")}) == 3
    assert declared(model_name="") is None


def test_secrets_are_in_no_fingerprint() -> None:
    for key in ("sk-first", "sk-second"):
        found = fingerprint(Prefixed(api_key=SecretStr(key), default_headers={"Authorization": key}))
        assert found == fingerprint(Prefixed())
        assert found is not None
        assert "sk-" not in found


def test_objects_that_do_not_say_which_model_they_are() -> None:
    for model in (DeterministicFakeEmbedding(size=8), MockEmbedding(embed_dim=8), Prefixed(prefix="", model_name="")):
        assert fingerprint(model) is None
    one, two = Prefixed(model_name=""), Prefixed(model_name="")
    assert embed.cached(one) is embed.cached(one)
    assert embed.cached(one) is not embed.cached(two)


def test_packages_own_stand_ins() -> None:
    fake = DeterministicFakeEmbedding(size=32)
    adapter = adapt(fake)
    assert isinstance(adapter, AsyncTwoSided)
    assert np.allclose(adapter.embed(["a", "b"]), fake.embed_documents(["a", "b"]))
    mock = adapt(MockEmbedding(embed_dim=3))
    assert isinstance(mock, AsyncTwoSided)
    assert mock.embed(["a"]).tolist() == mock.embed_queries(["a"]).tolist() == [[0.5] * 3]


def test_queries_go_their_own_way(official: Path, transformer: Any, text_embedding: Any) -> None:
    assert not isinstance(adapt(transformer), TwoSided)
    asymmetric = loaded(official, prompts={"query": "query: ", "document": "passage: "})
    for model, query, document in (
        (asymmetric, transformer.encode(["query: hello"]), transformer.encode(["passage: hello"])),
        (text_embedding, raw(text_embedding)(["hello"]), raw(text_embedding)(["hello"])),
        (Prefixed(held=static(official)), *(static(official).encode([text]) for text in ("query: hello", "hello"))),
        (PrefixedToo(held=static(official)), *(static(official).encode([text]) for text in ("query: hello", "hello"))),
    ):
        adapter = adapt(model)
        assert isinstance(adapter, TwoSided)
        assert np.abs(adapter.embed_queries(["hello"]) - query).max() < 1e-5
        assert np.abs(adapter.embed(["hello"]) - document).max() < 1e-5


@pytest.mark.parametrize("kind", [Prefixed, PrefixedToo])
def test_coroutines_give_what_the_functions_give(kind: Any, official: Path) -> None:
    adapter = adapt(kind(held=static(official)))
    assert isinstance(adapter, AsyncTwoSided)

    async def both() -> tuple[Any, Any, Any]:
        return await adapter.aembed(TEXTS), await adapter.aembed_queries(TEXTS), await adapter.aembed([])

    documents, queries, none = asyncio.run(both())
    assert np.array_equal(documents, adapter.embed(TEXTS))
    assert np.array_equal(queries, adapter.embed_queries(TEXTS))
    assert none.shape == (0, 0)


@pytest.mark.parametrize(
    ("vectors", "problem"),
    [
        ([[1.0, 2.0]], r"shape \(1, 2\), expected numbers of shape \(2, d\)"),
        ([[1.0, 2.0], [1.0]], r"a list \(.*\), expected numbers of shape \(2, d\)"),
        ([["a"], ["b"]], r"a list \(.*\), expected numbers of shape \(2, d\)"),
        ([1.0, 2.0], r"shape \(2,\), expected"),
        ([[], []], r"shape \(2, 0\), expected"),
        (None, r"shape \(1,\), expected"),
    ],
)
def test_what_is_no_matrix_of_the_texts(vectors: object, problem: str) -> None:
    class Odd(Embeddings):
        def embed_documents(self, texts: list[str]) -> Any:  # noqa: ARG002
            return vectors

        def embed_query(self, text: str) -> Any:
            return [float(len(text))]

    adapter = adapt(Odd())
    assert adapter is not None
    with pytest.raises(EmbedderError, match=f"Odd returned {problem}"):
        adapter.embed(["a", "b"])


def test_what_is_known_by_none_of_them() -> None:
    for value in (WordEmbedder(), len, SentenceTransformer, object(), "path"):
        assert adapt(value) is None


def test_nothing_is_imported_for_it() -> None:
    foreign = {"sentence_transformers", "fastembed", "model2vec", "langchain_core", "llama_index", "torch"}
    code = f"import sys, secateur.embed.adapters; print(*{foreign!r} & {{*sys.modules}})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
