"""Embedders over the clients of services: OpenAI and what speaks its protocol, Cohere, Voyage.

Texts are sent in batches within the limits of the provider, paced, and sent again where that may help. tenacity and
pyrate-limiter do that: they come with the extra 'services'. The clients' packages are never imported.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from inspect import iscoroutinefunction
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from secateur.embed.adapters import Vectors, digest, matrix
from secateur.embed.reader import well_formed
from secateur.errors import EmbedderError, EmbedderUnavailable, OptionError, whole_number
from secateur.tokens import TokenEstimator
from secateur.truncate import truncate

_Kind = Literal["document", "query"]

_PASSING = frozenset({408, 409, 425, 429})
"""Refusals that may not last, besides all from 500 on."""
_CONNECTION = frozenset(
    {
        ("openai", "APIConnectionError"),
        ("httpx", "TransportError"),
        ("httpx2", "TransportError"),
        ("requests", "ConnectionError"),
        ("requests", "Timeout"),
        ("aiohttp", "ClientConnectionError"),
        ("voyageai", "APIConnectionError"),
        ("voyageai", "Timeout"),
        ("voyageai", "TryAgain"),
        ("builtins", "ConnectionError"),
        ("builtins", "TimeoutError"),
    }
)
"""Packages and classes (or a class that it inherits from) of errors without an answer."""
_FRAME_TOKENS = 12
"""What a provider may put around a text: a prompt for its kind (Voyage's is of 9 tokens), marks of its ends."""
_LONGEST_BACKOFF = 30.0


class _Batch(NamedTuple):
    texts: list[str]
    tokens: int


class Service(ABC):
    """What the embedders over clients have in common; safe to share between threads as far as the client is.

    - Batches are sent one after the other, each as large as the provider allows. Tokens are bounded without a
      tokenizer, from above; a text that may exceed the limit of the model is cut there, its beginning kept.
    - The empty text has the vector of a single space: providers refuse the empty one. Lone surrogates become U+FFFD.
    - Connection errors and the statuses 408, 409, 425, 429 and from 500 on are tried again, after what the provider
      asks for (Retry-After), else after a random time that grows. Retries of the client itself are turned off, in a
      copy of it. What fails in the end is raised as the client raised it.
    - The client stays the caller's to close. Only `aembed` serves an asynchronous one.

    Args:
        client: The client, synchronous or asynchronous.
        model: The name of the model.
        dimensions: Values per vector, for models that let one choose.
        max_texts: Texts a request; by default the provider's limit, as of the other two.
        max_text_tokens: Tokens a text; longer ones are cut.
        max_request_tokens: Tokens a request.
        requests_per_minute: How fast to send: a bucket of so many requests, which fills again evenly.
        tokens_per_minute: The same for tokens.
        attempts: How often one request is sent at most.
        patience: Seconds that one request may wait between its attempts, in all.

    Raises:
        OptionError: If an option is outside its limits.
        EmbedderUnavailable: If a package is missing; says what to install.

    Attributes:
        fingerprint: Names the provider, a digest of its address, the model and what changes its vectors; None where
            the client does not tell its address.
    """

    _provider: ClassVar[str]
    _most_texts: ClassVar[int]
    _most_text_tokens: ClassVar[int]
    _most_request_tokens: ClassVar[int]
    _more_request_tokens: ClassVar[dict[str, int]] = {}
    """Of models that take more."""

    def __init__(
        self,
        client: Any,
        model: str,
        *,
        dimensions: int | None = None,
        max_texts: int | None = None,
        max_text_tokens: int | None = None,
        max_request_tokens: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        attempts: int = 6,
        patience: float = 120.0,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise OptionError("model", model, "the name of a model")
        most = self._more_request_tokens.get(model, self._most_request_tokens)
        self._model = model
        self._dimensions = None if dimensions is None else whole_number("dimensions", dimensions, 1)
        self._max_texts = _number("max_texts", max_texts, self._most_texts)
        self._max_text_tokens = _number("max_text_tokens", max_text_tokens, self._most_text_tokens)
        self._max_request_tokens = _number("max_request_tokens", max_request_tokens, most)
        if tokens_per_minute is not None:
            # What a minute never grants would be waited for without an end.
            most = whole_number("tokens_per_minute", tokens_per_minute, 1)
            self._max_request_tokens = min(self._max_request_tokens, most)
        self._limiters = (
            _limiter("requests_per_minute", requests_per_minute),
            _limiter("tokens_per_minute", tokens_per_minute),
        )
        self._retry = _retry(whole_number("attempts", attempts, 1), patience)
        self._estimator = TokenEstimator("cl100k" if model.startswith("text-embedding-") else "any")
        self._client = self._without_retries(client)
        # By its name too: what watches over a client may hide that its functions are coroutines.
        self._call_is_async = type(client).__name__.startswith("Async") or iscoroutinefunction(self._function())
        address = _address(client)
        self.fingerprint = address and f"{self._provider}:{model}:{dimensions}:{self._max_text_tokens}:{address}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r})"

    def embed(self, texts: Sequence[str], /) -> Vectors:
        """Return vectors of shape (len(texts), d), in the order of the texts; (0, 0) of none, if d was not chosen.

        Raises:
            OptionError: If the client is asynchronous.
            EmbedderError: If the answer holds anything else.
        """
        return self._embed(texts, "document")

    async def aembed(self, texts: Sequence[str], /) -> Vectors:
        """Return what `embed` returns; a synchronous client works in a thread."""
        return await self._aembed(texts, "document")

    def _embed(self, texts: Sequence[str], kind: _Kind) -> Vectors:
        from tenacity import Retrying

        if self._call_is_async:
            limit = "a synchronous one for embed; await aembed with this one"
            raise OptionError("client", type(self._client).__name__, limit)
        retrying = Retrying(**self._retry)
        return self._joined([retrying(self._request, batch, kind) for batch in self._batches(texts)])

    async def _aembed(self, texts: Sequence[str], kind: _Kind) -> Vectors:
        from tenacity import AsyncRetrying

        if not self._call_is_async:
            return await asyncio.to_thread(self._embed, texts, kind)
        retrying = AsyncRetrying(**self._retry)
        return self._joined([await retrying(self._arequest, batch, kind) for batch in self._batches(texts)])

    def _request(self, batch: _Batch, kind: _Kind) -> Vectors:
        for limiter, weight in zip(self._limiters, (1, batch.tokens), strict=True):
            if limiter is not None:
                limiter.try_acquire(weight=weight)
        return self._checked(self._call(batch.texts, kind), batch)

    async def _arequest(self, batch: _Batch, kind: _Kind) -> Vectors:
        for limiter, weight in zip(self._limiters, (1, batch.tokens), strict=True):
            if limiter is not None:
                await limiter.try_acquire_async(weight=weight)
        return self._checked(await self._call(batch.texts, kind), batch)

    def _checked(self, response: Any, batch: _Batch) -> Vectors:
        try:
            vectors = self._vectors(response)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            problem = f"a {type(response).__name__} without vectors ({type(error).__name__}: {error})"
            raise EmbedderError(type(self).__name__, problem) from error
        return matrix(type(self).__name__, vectors, len(batch.texts), self._dimensions)

    def _joined(self, parts: list[Vectors]) -> Vectors:
        if len({part.shape[1] for part in parts}) > 1:
            shapes = " and ".join(str(part.shape) for part in parts)
            raise EmbedderError(type(self).__name__, f"shapes {shapes}, expected one dimension")
        return np.concatenate(parts) if parts else matrix(type(self).__name__, [], 0, self._dimensions)

    def _batches(self, texts: Sequence[str]) -> Iterator[_Batch]:
        batch, total = list[str](), 0
        for text in texts:
            prepared, tokens = self._prepared(text)
            if batch and (len(batch) == self._max_texts or total + tokens > self._max_request_tokens):
                yield _Batch(batch, total)
                batch, total = [], 0
            batch.append(prepared)
            total += tokens
        if batch:
            yield _Batch(batch, total)

    def _prepared(self, text: str) -> tuple[str, int]:
        """The text to send, and the tokens to count for it."""
        limit = max(1, min(self._max_text_tokens, self._max_request_tokens - _FRAME_TOKENS))
        upper = self._estimator.upper
        text = well_formed(text) or " "
        if upper(text) > limit:
            text = truncate(text, limit, keep="head", marker="", count=upper) or " "
        return text, min(upper(text) + _FRAME_TOKENS, self._max_request_tokens)

    @abstractmethod
    def _without_retries(self, client: Any) -> Any:
        """A client that tries once."""

    @abstractmethod
    def _function(self) -> Any:
        """The function that the client embeds with."""

    @abstractmethod
    def _call(self, texts: list[str], kind: _Kind) -> Any:
        """Send a request; what comes back is to be awaited if the client is asynchronous."""

    @abstractmethod
    def _vectors(self, response: Any) -> Any:
        """The vectors of a response, in the order of the texts."""


class _AsymmetricService(Service):
    """A service that embeds queries and documents differently."""

    def embed_queries(self, texts: Sequence[str], /) -> Vectors:
        """Return the vectors of texts that are searched with; see `embed`."""
        return self._embed(texts, "query")

    async def aembed_queries(self, texts: Sequence[str], /) -> Vectors:
        """Return what `embed_queries` returns; see `aembed`."""
        return await self._aembed(texts, "query")


class OpenAIEmbedder(Service):
    """The embedder over an `openai.OpenAI`, an `openai.AsyncOpenAI`, or what is shaped like them; see `Service`.

    The limits are OpenAI's: 2,048 texts of at most 8,192 tokens, 300,000 tokens a request. Another server that speaks
    this protocol (a client with a `base_url`) may have lower ones.

    >>> from types import SimpleNamespace as Answer
    >>> class Client:
    ...     base_url = "http://localhost/v1/"
    ...     @property
    ...     def embeddings(self):
    ...         return self
    ...     def create(self, model, input):
    ...         return Answer(data=[Answer(index=i, embedding=[len(text), 1]) for i, text in enumerate(input)])
    >>> embedder = OpenAIEmbedder(Client(), "text-embedding-3-small")
    >>> embedder.embed(["Hello", "Hi"]).tolist()
    [[5.0, 1.0], [2.0, 1.0]]
    """

    _provider = "openai"
    _most_texts = 2_048
    _most_text_tokens = 8_192
    _most_request_tokens = 300_000

    def _without_retries(self, client: Any) -> Any:
        return client.with_options(max_retries=0) if hasattr(client, "with_options") else client

    def _function(self) -> Any:
        return self._client.embeddings.create

    def _call(self, texts: list[str], kind: _Kind) -> Any:  # noqa: ARG002  # it knows one kind
        options = {} if self._dimensions is None else {"dimensions": self._dimensions}
        return self._function()(model=self._model, input=texts, **options)

    def _vectors(self, response: Any) -> Any:
        items = list(response.data)
        indices: list[Any] = [getattr(item, "index", None) for item in items]
        if any(index is not None for index in indices):
            if sorted(indices) != list(range(len(items))):
                raise ValueError(f"{len(items)} items whose indices are {sorted(indices)[:9]} ...")
            items.sort(key=lambda item: item.index)
        return [_decoded(item.embedding) for item in items]


class CohereEmbedder(_AsymmetricService):
    """The embedder over a `cohere.ClientV2` or `cohere.AsyncClientV2`; see `Service`.

    Documents and queries are told apart by `input_type`; what exceeds the model's own limit is cut by the provider, at
    its end. The limits are Cohere's: 96 texts a request; of at most 128,000 tokens, as many as embed-v4 reads.

    >>> from types import SimpleNamespace as Answer
    >>> class Client:
    ...     def embed(self, texts, input_type, **options):
    ...         return Answer(embeddings=Answer(float_=[[len(text), len(input_type)] for text in texts]))
    >>> embedder = CohereEmbedder(Client(), "embed-v4.0")
    >>> embedder.embed(["Hello"]).tolist(), embedder.embed_queries(["Hello"]).tolist()
    ([[5.0, 15.0]], [[5.0, 12.0]])
    """

    _provider = "cohere"
    _most_texts = 96
    _most_text_tokens = 128_000
    _most_request_tokens = 2_000_000  # it names none; so a request stays below ten megabytes

    def _without_retries(self, client: Any) -> Any:
        return client  # told with each request

    def _function(self) -> Any:
        return self._client.embed

    def _call(self, texts: list[str], kind: _Kind) -> Any:
        options = {} if self._dimensions is None else {"output_dimension": self._dimensions}
        return self._function()(
            model=self._model,
            texts=texts,
            input_type=f"search_{kind}",
            embedding_types=["float"],
            truncate="END",
            request_options={"max_retries": 0},
            **options,
        )

    def _vectors(self, response: Any) -> Any:
        return response.embeddings.float_


class VoyageEmbedder(_AsymmetricService):
    """The embedder over a `voyageai.Client` or `voyageai.AsyncClient`; see `Service`.

    Documents and queries are told apart by `input_type`; what exceeds the model's own limit is cut by the provider. The
    limits are Voyage's: 1,000 texts of at most 32,000 tokens, and 120,000 tokens a request, for some models more.

    >>> from types import SimpleNamespace as Answer
    >>> class Client:
    ...     max_retries = 0
    ...     def embed(self, texts, input_type, **options):
    ...         return Answer(embeddings=[[len(text), len(input_type)] for text in texts])
    >>> embedder = VoyageEmbedder(Client(), "voyage-4")
    >>> embedder.embed(["Hello"]).tolist(), embedder.embed_queries(["Hello"]).tolist()
    ([[5.0, 8.0]], [[5.0, 5.0]])
    """

    _provider = "voyage"
    _most_texts = 1_000
    _most_text_tokens = 32_000
    _most_request_tokens = 120_000
    _more_request_tokens: ClassVar[dict[str, int]] = {
        "voyage-4-lite": 1_000_000,
        "voyage-3.5-lite": 1_000_000,
        "voyage-4": 320_000,
        "voyage-3.5": 320_000,
        "voyage-2": 320_000,
    }

    def _without_retries(self, client: Any) -> Any:
        once = copy.copy(client)
        once.max_retries = 0
        return once

    def _function(self) -> Any:
        return self._client.embed

    def _call(self, texts: list[str], kind: _Kind) -> Any:
        options = {} if self._dimensions is None else {"output_dimension": self._dimensions}
        return self._function()(texts, model=self._model, input_type=kind, truncation=True, **options)

    def _vectors(self, response: Any) -> Any:
        return response.embeddings


def _number(name: str, value: int | None, default: int) -> int:
    return default if value is None else whole_number(name, value, 1)


def _retry(attempts: int, patience: float) -> dict[str, Any]:
    """What tenacity is told."""
    try:
        import tenacity
    except ImportError as error:
        raise _missing_package(error) from error
    if isinstance(patience, bool) or not isinstance(patience, Real) or not patience >= 0:
        raise OptionError("patience", patience, "seconds, 0 or more")
    backoff = tenacity.wait_random_exponential(multiplier=0.5, max=_LONGEST_BACKOFF)

    def wait(state: tenacity.RetryCallState) -> float:
        asked = _asked_wait(state.outcome and state.outcome.exception())
        return float(backoff(state)) if asked is None else asked

    def stop(state: tenacity.RetryCallState) -> bool:
        return state.attempt_number >= attempts or state.idle_for + state.upcoming_sleep > patience

    return {"retry": tenacity.retry_if_exception(_may_pass), "wait": wait, "stop": stop, "reraise": True}


def _may_pass(error: BaseException) -> bool:
    """Whether what failed may succeed later."""
    status = _status(error)
    if status is not None:
        # A quota that is used up is refused with 429 too, and lasts.
        return (status in _PASSING or status >= 500) and getattr(error, "code", None) != "insufficient_quota"
    return any((each.__module__.split(".")[0], each.__name__) in _CONNECTION for each in type(error).__mro__)


def _status(error: BaseException) -> int | None:
    statuses = (getattr(error, name, None) for name in ("status_code", "http_status"))
    return next((status for status in statuses if isinstance(status, int)), None)


def _asked_wait(error: BaseException | None) -> float | None:
    """Seconds that the provider asks to wait (Retry-After, as a number or a date)."""
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
    if not isinstance(headers, Mapping):
        return None
    asked: Any = next((value for name, value in headers.items() if str(name).lower() == "retry-after"), None)
    try:
        return max(0.0, float(asked))
    except (TypeError, ValueError):
        pass
    try:
        return max(0.0, parsedate_to_datetime(asked).timestamp() - time.time())
    except (AttributeError, TypeError, ValueError):
        return None


def _limiter(name: str, per_minute: int | None) -> Any:
    if per_minute is None:
        return None
    per_minute = whole_number(name, per_minute, 1)
    try:
        from pyrate_limiter import Duration, Limiter, Rate, SingleBucketFactory, StateBucket, TokenBucket
    except ImportError as error:
        raise _missing_package(error) from error
    # It keeps one number: nothing grows with the tokens, and no thread has to tidy up.
    bucket = StateBucket([Rate(per_minute, Duration.MINUTE)], TokenBucket())
    return Limiter(SingleBucketFactory(bucket, schedule_leak=False))


def _missing_package(error: ImportError) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"clients of services need a package: {error}; install secateur with its extra 'services'"
    )


def _address(client: Any) -> str | None:
    """A digest of where a client sends its requests, without what may be secret in it; None if it does not tell."""
    wrapper = getattr(client, "_client_wrapper", None)  # Cohere
    parameters = getattr(client, "_params", None)  # Voyage
    url = (
        getattr(client, "base_url", None)
        or (wrapper is not None and wrapper.get_base_url())
        or (isinstance(parameters, dict) and parameters.get("base_url"))
    )
    if not url:
        return None
    parts = urlsplit(str(url))
    return digest(parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"))[:16]


def _decoded(vector: Any) -> Any:
    return np.frombuffer(base64.b64decode(vector), "<f4") if isinstance(vector, str) else vector
