"""Adapters for the embedding objects of other packages, which `prune_context` and all else takes as they are.

An object is known by its class and the module of that, so that nothing is imported: a SentenceTransformer, a
`fastembed.TextEmbedding`, a `model2vec.StaticModel`, LangChain's `Embeddings`, LlamaIndex's `BaseEmbedding`. Clients of
services need the name of a model: `secateur.embed.services`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from os.path import realpath
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secateur.embed.reader import well_formed
from secateur.errors import EmbedderError, OptionError

Vectors = NDArray[np.float32]

_CLIENTS = {"openai": "OpenAIEmbedder", "cohere": "CohereEmbedder", "voyageai": "VoyageEmbedder"}
"""Packages whose clients need the name of a model, and what takes both."""
_SAMPLE = 64
"""Values of each tensor that go into a fingerprint: training changes nearly all of them."""
_MODEL_FIELDS = ("model_name", "model", "model_id", "deployment_name", "deployment")
_SECRETS = ("key", "secret", "password", "header", "credential", "auth")


class Encodes(Protocol):
    """sentence-transformers and model2vec."""

    @property
    def encode(self) -> Callable[..., Any]:
        """Texts to vectors."""
        ...


class EmbedsQueries(Protocol):
    """fastembed."""

    @property
    def query_embed(self) -> Callable[..., Any]:
        """Queries to vectors."""
        ...


class EmbedsDocuments(Protocol):
    """LangChain."""

    @property
    def embed_documents(self) -> Callable[..., Any]:
        """Texts to vectors."""
        ...


class EmbedsBatches(Protocol):
    """LlamaIndex."""

    @property
    def get_text_embedding_batch(self) -> Callable[..., Any]:
        """Texts to vectors."""
        ...


ForeignEmbedder = Encodes | EmbedsQueries | EmbedsDocuments | EmbedsBatches
"""What type checkers may take for an embedding object that `adapt` knows."""


class Adapter:
    """An embedding object of another package as an embedder; as safe between threads as that object is.

    Attributes:
        fingerprint: Names the package, the model and what changes its vectors; None where the object does not say
            which model it is.

    >>> adapter = Adapter("letters", None, lambda texts: [[len(text), 1] for text in texts])
    >>> adapter.embed(["a", "bcd"]).tolist()
    [[1.0, 1.0], [3.0, 1.0]]
    """

    def __init__(
        self, name: str, fingerprint: str | None, documents: Callable[[list[str]], object], dimension: int | None = None
    ) -> None:
        self.fingerprint = fingerprint
        self._name = name
        self._documents = documents
        self._dimension = dimension

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"

    def embed(self, texts: Sequence[str], /) -> Vectors:
        """Return vectors of shape (len(texts), d); (0, 0) of no texts where the object does not tell its d.

        Raises:
            EmbedderError: If the object returns anything else.
        """
        return self._vectors(self._documents, texts)

    def _vectors(self, function: Callable[[list[str]], object], texts: Sequence[str]) -> Vectors:
        return matrix(self._name, function(list(map(well_formed, texts))) if texts else [], len(texts), self._dimension)


class TwoSided(Adapter):
    """An `Adapter` of an object that embeds queries in a way of their own.

    >>> adapter = TwoSided("sides", None, lambda texts: [[1, 0]] * len(texts), lambda texts: [[0, 1]] * len(texts))
    >>> adapter.embed(["a"]).tolist(), adapter.embed_queries(["a"]).tolist()
    ([[1.0, 0.0]], [[0.0, 1.0]])
    """

    def __init__(
        self,
        name: str,
        fingerprint: str | None,
        documents: Callable[[list[str]], object],
        queries: Callable[[list[str]], object],
        dimension: int | None = None,
    ) -> None:
        super().__init__(name, fingerprint, documents, dimension)
        self._queries = queries

    def embed_queries(self, texts: Sequence[str], /) -> Vectors:
        """Return the vectors of texts that are searched with; see `embed`."""
        return self._vectors(self._queries, texts)


class AsyncTwoSided(TwoSided):
    """A `TwoSided` of an object that has coroutines for both.

    >>> import asyncio
    >>> async def one(texts):
    ...     return [[1, 0]] * len(texts)
    >>> adapter = AsyncTwoSided("sides", None, lambda texts: [], lambda texts: [], adocuments=one, aqueries=one)
    >>> asyncio.run(adapter.aembed(["a"])).tolist()
    [[1.0, 0.0]]
    """

    def __init__(
        self,
        name: str,
        fingerprint: str | None,
        documents: Callable[[list[str]], object],
        queries: Callable[[list[str]], object],
        *,
        adocuments: Callable[[list[str]], Awaitable[object]],
        aqueries: Callable[[list[str]], Awaitable[object]],
    ) -> None:
        super().__init__(name, fingerprint, documents, queries)
        self._adocuments = adocuments
        self._aqueries = aqueries

    async def aembed(self, texts: Sequence[str], /) -> Vectors:
        """Return what `embed` returns."""
        return await self._avectors(self._adocuments, texts)

    async def aembed_queries(self, texts: Sequence[str], /) -> Vectors:
        """Return what `embed_queries` returns."""
        return await self._avectors(self._aqueries, texts)

    async def _avectors(self, function: Callable[[list[str]], Awaitable[object]], texts: Sequence[str]) -> Vectors:
        vectors = await function(list(map(well_formed, texts))) if texts else []
        return matrix(self._name, vectors, len(texts))


def adapt(value: object) -> Adapter | None:
    """Make an embedder of what another package embeds with; None if it is no object that is known.

    The object stays the caller's: it is kept alive, never changed or closed.

    Raises:
        OptionError: If it is the client of a service, which needs the name of a model.

    >>> adapt("a path"), adapt(len)
    (None, None)
    """
    kinds = {(each.__module__.split(".")[0], each.__name__) for each in type(value).__mro__}
    for package, name, make in _KINDS:
        if (package, name) in kinds:
            return make(value)
    if wrapper := _CLIENTS.get(type(value).__module__.split(".")[0]):
        # Not its repr, which may hold a key.
        raise OptionError("embedder", _name(value), f"wrapped together with a model: {wrapper}(client, model)")
    return None


def matrix(name: str, vectors: object, count: int, dimension: int | None = None) -> Vectors:
    """Rows of float32, one after the other in memory.

    Args:
        name: Who made them.
        vectors: An array, or anything that numpy makes one of.
        count: How many there must be; for none it is a matrix of shape (0, dimension or 0).
        dimension: Values that each must have.

    Raises:
        EmbedderError: If it is no matrix, or of another shape.

    >>> matrix("model", [[1, 2]], 1)
    array([[1., 2.]], dtype=float32)
    """
    if count == 0:
        return np.empty((0, dimension or 0), np.float32)
    expected = f"expected numbers of shape ({count}, {dimension or 'd'})"
    try:
        array = np.ascontiguousarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise EmbedderError(name, f"a {type(vectors).__name__} ({error}), {expected}") from error
    if array.ndim != 2 or len(array) != count or array.shape[1] == 0 or dimension not in (None, array.shape[1]):
        raise EmbedderError(name, f"shape {array.shape}, {expected}")
    return array


def digest(*parts: object) -> str:
    """A name of 128 bits for some values: bytes, arrays, and what JSON can write.

    Raises:
        TypeError: If a value is none of these.

    >>> digest("a", 1) == digest("a", 1), digest("a", 1) == digest("a1")
    (True, False)
    """
    hashed = blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            content = f"{part.dtype}{part.shape}".encode() + part.tobytes()
        else:
            content = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        hashed.update(len(content).to_bytes(8, "little") + content)
    return hashed.hexdigest()


def _sentence_transformers(model: Any) -> Adapter:
    name = _name(model)
    documents = _encoding(getattr(model, "encode_document", model.encode))
    # Renamed in version 5.5; the old name warns.
    dimension = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
    fingerprint = _sentence_transformers_fingerprint(model)
    queries = getattr(model, "encode_query", None)
    alike = not any(model.prompts.values()) and not any(type(module).__name__ in ("Router", "Asym") for module in model)
    if queries is None or alike:
        return Adapter(name, fingerprint, documents, dimension())
    return TwoSided(name, fingerprint, documents, _encoding(queries), dimension())


def _encoding(encode: Callable[..., object]) -> Callable[[list[str]], object]:
    return lambda texts: encode(texts, convert_to_numpy=True, show_progress_bar=False)


def _sentence_transformers_fingerprint(model: Any) -> str | None:
    # A path tells little: what is trained again may be saved in the same place. The weights tell it.
    parts = [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in model.state_dict().items()]
    samples = [_sampled(tensor) for tensor in model.state_dict().values()]
    transformer = getattr(model[0], "auto_model", None)
    if not parts:
        # Run by onnxruntime or OpenVINO: the weights are in a file.
        file = getattr(transformer, "path", None) or getattr(transformer, "model_path", None)
        if file is None or not Path(file).is_file():
            return None
        parts.append(_file(file))
    configuration = getattr(transformer, "config", None)
    settings = [repr(model), model.max_seq_length, model.truncate_dim, model.prompts, model.default_prompt_name]
    named = getattr(configuration, "_name_or_path", "")
    return f"sentence-transformers:{named}:{digest(parts, *samples, settings)}"


def _sampled(tensor: Any) -> NDArray[np.float32]:
    flat = tensor.detach().flatten()
    sample: NDArray[np.float32] = flat[:: max(1, len(flat) // _SAMPLE)].float().cpu().numpy()
    return sample


def _fastembed(model: Any) -> Adapter:
    inner = model.model
    folder = getattr(inner, "_model_dir", None)
    fingerprint = None
    if folder is not None:
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        processing = getattr(inner, "POSTPROCESSING_MAPPING", {}).get(model.model_name)
        settings = [model.model_name, model.embedding_size, repr(processing)]
        fingerprint = f"fastembed:{model.model_name}:{digest(settings, *map(_file, files))}"
    return TwoSided(
        _name(model),
        fingerprint,
        lambda texts: list(model.passage_embed(texts)),
        lambda texts: list(model.query_embed(texts)),
        model.embedding_size,
    )


def _model2vec(model: Any) -> Adapter:
    table = model.embedding
    rows = np.linspace(0, len(table) - 1, min(len(table), 16 * _SAMPLE)).astype(int)
    tables = [each[rows % len(each)] for each in (table, model.weights, model.token_mapping) if each is not None]
    settings = [str(table.dtype), list(table.shape), bool(model.normalize), getattr(model, "max_length", None)]
    words = list(model.tokens)[:: max(1, len(model.tokens) // (16 * _SAMPLE))]
    fingerprint = f"model2vec:{model.base_model_name or ''}:{digest(settings, words, *tables)}"
    return Adapter(_name(model), fingerprint, model.encode, model.dim)


def _langchain(model: Any) -> Adapter:
    async def aqueries(texts: list[str]) -> object:
        return [await model.aembed_query(text) for text in texts]

    return AsyncTwoSided(
        _name(model),
        _declared(model),
        model.embed_documents,
        lambda texts: [model.embed_query(text) for text in texts],
        adocuments=model.aembed_documents,
        aqueries=aqueries,
    )


def _llama_index(model: Any) -> Adapter:
    async def aqueries(texts: list[str]) -> object:
        return [await model.aget_query_embedding(text) for text in texts]

    return AsyncTwoSided(
        _name(model),
        _declared(model),
        model.get_text_embedding_batch,
        lambda texts: [model.get_query_embedding(text) for text in texts],
        adocuments=model.aget_text_embedding_batch,
        aqueries=aqueries,
    )


def _declared(model: Any) -> str | None:
    """A fingerprint of what a pydantic object declares, but for its secrets; None if it names no model."""
    fields = getattr(type(model), "model_fields", {})
    values = {
        name: getattr(model, name, None)
        for name, field in fields.items()
        if not field.exclude and not _secret(name, getattr(model, name, None))
    }
    named = next((values[name] for name in _MODEL_FIELDS if values.get(name) not in (None, "", "unknown")), None)
    if not isinstance(named, str):
        return None
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    try:
        return f"{kind}:{named}:{digest(values)}"
    except TypeError:  # it holds something else than plain values
        return None


def _secret(name: str, value: object) -> bool:
    return name.endswith("token") or any(word in name for word in _SECRETS) or type(value).__name__ == "SecretStr"


def _file(path: str | Path) -> list[object]:
    """Names a file as it is now: its place, size and time of change."""
    stat = Path(path).stat()
    return [realpath(path), stat.st_size, stat.st_mtime_ns]


def _name(value: object) -> str:
    return f"{type(value).__module__.split('.')[0]}.{type(value).__qualname__}"


_KINDS: tuple[tuple[str, str, Callable[[Any], Adapter]], ...] = (
    ("sentence_transformers", "SentenceTransformer", _sentence_transformers),
    ("fastembed", "TextEmbedding", _fastembed),
    ("model2vec", "StaticModel", _model2vec),
    ("langchain_core", "Embeddings", _langchain),
    ("llama_index", "BaseEmbedding", _llama_index),
)
"""Package, class (or a class that it inherits from), adapter."""
