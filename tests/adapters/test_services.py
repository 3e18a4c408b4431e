"""Embedders over the real clients of OpenAI, Cohere and Voyage, against a local server."""

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cohere
import httpx
import numpy as np
import openai
import pyrate_limiter
import pytest
import voyageai

from adapters.providers import Refusal, Server, expected
from samples import records
from secateur import EmbedderError, EmbedderUnavailable, OptionError, TokenEstimator, embed, prune_context
from secateur.embed import services
from secateur.embed.services import CohereEmbedder, OpenAIEmbedder, Service, VoyageEmbedder

KEY = "sk-very-secret-0123456789"
TEXTS = ["the bridge is long", "", "a wide bridge", "\ud83d\ude42 \ud800", "漢字 and words", "  "]
SENT = ["the bridge is long", " ", "a wide bridge", "🙂 \ufffd", "漢字 and words", "  "]
Make = Callable[..., Service]


def over_openai(server: Server, *, asynchronous: bool = False, **options: Any) -> OpenAIEmbedder:
    make = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    return OpenAIEmbedder(make(api_key=KEY, base_url=f"{server.url}/v1"), "text-embedding-3-small", **options)


def over_cohere(server: Server, *, asynchronous: bool = False, **options: Any) -> CohereEmbedder:
    make = cohere.AsyncClientV2 if asynchronous else cohere.ClientV2
    return CohereEmbedder(make(api_key=KEY, base_url=server.url), "embed-v4.0", **options)


def over_voyage(server: Server, *, asynchronous: bool = False, **options: Any) -> VoyageEmbedder:
    make = voyageai.AsyncClient if asynchronous else voyageai.Client
    client = make(api_key=KEY, base_url=f"{server.url}/voyage", max_retries=4)
    return VoyageEmbedder(client, "voyage-3.5-lite", **options)


ALL = pytest.mark.parametrize("make", [over_openai, over_cohere, over_voyage])


@pytest.fixture(autouse=True)
def _no_stray_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "OPENAI_BASE_URL", "CO_API_URL"):
        monkeypatch.delenv(name, raising=False)


@ALL
def test_vectors_of_every_text_in_order(make: Make, server: Server) -> None:
    embedder = make(server)
    vectors = embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert np.array_equal(vectors, expected(SENT))
    assert server.requests[0].texts == SENT
    assert embedder.embed([]).shape == (0, 0)
    assert len(server.requests) == 1


@ALL
def test_coroutines_of_asynchronous_and_synchronous_clients(make: Make, server: Server) -> None:
    async def both(embedder: Any) -> Any:
        documents = await embedder.aembed(TEXTS)
        queries = await embedder.aembed_queries(TEXTS) if hasattr(embedder, "aembed_queries") else None
        return documents, queries

    for asynchronous in (True, False):
        embedder = make(server, asynchronous=asynchronous)
        documents, queries = asyncio.run(both(embedder))
        assert np.array_equal(documents, expected(SENT))
        assert queries is None or np.array_equal(queries, expected(SENT, query=True))
    with pytest.raises(OptionError, match=r"client is 'Async\w+', it must be a synchronous one for embed; await"):
        make(server, asynchronous=True).embed(TEXTS)


@pytest.mark.parametrize("make", [over_cohere, over_voyage])
def test_queries_and_documents_are_told_apart(make: Any, server: Server) -> None:
    embedder = make(server)
    assert np.array_equal(embedder.embed(["a b"]), expected(["a b"]))
    assert np.array_equal(embedder.embed_queries(["a b"]), expected(["a b"], query=True))
    kinds = [request.body["input_type"].removeprefix("search_") for request in server.requests]
    assert kinds == ["document", "query"]


def test_openai_knows_one_kind(server: Server) -> None:
    assert not hasattr(over_openai(server), "embed_queries")


@ALL
def test_batches_keep_to_the_limit_of_texts(make: Make, server: Server) -> None:
    most = {over_openai: 2_048, over_cohere: 96, over_voyage: 1_000}[make]
    server.most_texts = most
    texts = [f"text number {number}" for number in range(most + 5)]
    assert np.array_equal(make(server).embed(texts), expected(texts))
    assert [len(request.texts) for request in server.requests] == [most, 5]


@ALL
def test_batches_keep_to_the_limit_of_tokens(make: Make, server: Server) -> None:
    dialogues = [record["messages"] for record in records("service.jsonl")]
    texts = [message["content"] for messages in dialogues for message in messages if message["content"]]
    upper = TokenEstimator("cl100k" if make is over_openai else "any").upper
    texts = [text for text in texts if upper(text) < 1_900]
    assert np.array_equal(make(server, max_request_tokens=2_000).embed(texts), expected(texts))
    sums = [sum(map(upper, request.texts)) for request in server.requests]
    assert len(sums) > 3
    assert max(sums) <= 2_000
    assert [text for request in server.requests for text in request.texts] == texts


def test_the_limits_of_a_model(server: Server) -> None:
    texts = ["word " * 9_000] * 40
    over_voyage(server).embed(texts)
    VoyageEmbedder(voyageai.Client(KEY, base_url=f"{server.url}/voyage"), "voyage-3-large").embed(texts)
    sizes = [(request.body["model"], len(request.texts)) for request in server.requests]
    upper = TokenEstimator("any").upper(texts[0])
    assert sizes[0] == ("voyage-3.5-lite", 40)
    assert [model for model, _ in sizes[1:]] == ["voyage-3-large"] * (len(sizes) - 1)
    assert 120_000 - 2 * upper < sizes[1][1] * upper <= 120_000


def test_long_texts_are_cut_at_their_end(server: Server) -> None:
    long = "the route of the ferry, " * 4_000
    over_openai(server).embed([long, "short"])
    sent, short = server.requests[0].texts
    assert short == "short"
    assert long.startswith(sent)
    assert 8_000 < TokenEstimator("cl100k").upper(sent) <= 8_192
    over_openai(server, max_text_tokens=3).embed([long])
    assert server.requests[1].texts[0] == "the "


@ALL
def test_dimensions_are_asked_for_and_checked(make: Make, server: Server) -> None:
    embedder = make(server, dimensions=8)
    assert np.array_equal(embedder.embed(["a b c"]), expected(["a b c"])[:, :8])
    assert embedder.embed([]).shape == (0, 8)
    client: Any = embedder._client
    narrow = type(embedder)(client, "text-embedding-3-small", dimensions=17)
    with pytest.raises(EmbedderError, match=r"returned shape \(1, 16\), expected numbers of shape \(1, 17\)"):
        narrow.embed(["a"])


def test_the_order_is_that_of_the_indices(server: Server) -> None:
    server.shuffled = True
    assert np.array_equal(over_openai(server).embed(SENT), expected(SENT))


@pytest.mark.parametrize("make", [over_openai, over_voyage])
def test_numbers_and_base64(make: Make, server: Server) -> None:
    for server.floats in (False, True):
        assert np.array_equal(make(server).embed(SENT), expected(SENT))
    assert {request.body["encoding_format"] for request in server.requests} == {"base64"}


@ALL
def test_vectors_that_are_missing(make: Make, server: Server) -> None:
    server.lost = 1
    with pytest.raises(EmbedderError, match=r"returned shape \(5, 16\), expected numbers of shape \(6, d\)"):
        make(server).embed(SENT)
    assert len(server.requests) == 1


@ALL
@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_may_pass_is_tried_again(make: Make, asynchronous: bool, server: Server) -> None:
    embedder = make(server, asynchronous=asynchronous)
    server.refusals += [Refusal(429, {"Retry-After": "1"}), Refusal(500), Refusal(0), Refusal(503)]
    vectors = asyncio.run(embedder.aembed(SENT)) if asynchronous else embedder.embed(SENT)
    assert np.array_equal(vectors, expected(SENT))
    # None is from the client itself, which would multiply them.
    assert len(server.requests) == 5
    assert 1 <= server.requests[1].at - server.requests[0].at < 5


def test_a_date_to_wait_for(server: Server) -> None:
    server.refusals.append(Refusal(429, {"retry-after": formatdate(time.time() + 2, usegmt=True)}))
    over_openai(server).embed(["a"])
    assert 0.8 < server.requests[1].at - server.requests[0].at < 5


@ALL
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_pass_is_raised_at_once(make: Make, status: int, server: Server) -> None:
    server.refusals += [Refusal(status)] * 2
    with pytest.raises((openai.APIStatusError, cohere.core.ApiError, voyageai.error.VoyageError)) as caught:
        make(server).embed(["a"])
    assert services._status(caught.value) == status
    assert KEY not in f"{caught.value!r} {caught.value}"
    assert len(server.requests) == 1


def test_a_quota_that_is_used_up_is_not_tried_again(server: Server) -> None:
    body = {"error": {"message": "quota", "type": "insufficient_quota", "code": "insufficient_quota"}}
    server.refusals.append(Refusal(429, body=body))
    with pytest.raises(openai.RateLimitError):
        over_openai(server).embed(["a"])
    assert len(server.requests) == 1


@ALL
def test_the_attempts_and_the_patience_have_an_end(make: Make, server: Server) -> None:
    failures = (openai.APIStatusError, cohere.core.ApiError, voyageai.error.VoyageError)
    server.refusals += [Refusal(503)] * 9
    with pytest.raises(failures):
        make(server, attempts=3).embed(["a"])
    assert len(server.requests) == 3
    server.requests.clear()
    server.refusals.clear()
    server.refusals += [Refusal(429, {"Retry-After": "3600"})] * 2
    with pytest.raises(failures):
        make(server).embed(["a"])
    assert len(server.requests) == 1


@ALL
def test_a_server_that_is_not_there(make: Make, server: Server) -> None:
    embedder = make(server, attempts=2)
    server.server_close()
    failures = (openai.APIConnectionError, cohere.core.ApiError, voyageai.error.APIConnectionError, OSError)
    with pytest.raises((*failures, httpx.ConnectError)):
        embedder.embed(["a"])


@ALL
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("limit", ["requests_per_minute", "tokens_per_minute"])
def test_requests_are_paced(
    make: Make, asynchronous: bool, limit: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyrate_limiter, "Duration", SimpleNamespace(MINUTE=1_000))  # a minute of one second
    estimator = TokenEstimator("cl100k" if make is over_openai else "any")
    weight = 1 if limit.startswith("requests") else estimator.upper("a") + services._FRAME_TOKENS
    embedder = make(server, asynchronous=asynchronous, max_texts=1, **{limit: 2 * weight})
    vectors = asyncio.run(embedder.aembed(["a"] * 4)) if asynchronous else embedder.embed(["a"] * 4)
    assert np.array_equal(vectors, expected(["a"] * 4))
    # Two go at once; the third and the fourth wait for half of a minute each.
    gaps = np.diff([request.at for request in server.requests])
    assert gaps[1] > 0.3
    assert gaps[2] > 0.3


def test_a_text_larger_than_what_a_minute_grants_is_cut(server: Server) -> None:
    over_openai(server, tokens_per_minute=40).embed(["some words " * 100])
    (sent,) = server.requests[0].texts
    assert TokenEstimator("cl100k").upper(sent) <= 40


def test_options_have_limits(server: Server) -> None:
    wrong: list[dict[str, Any]] = [
        {"dimensions": 0},
        {"max_texts": 0},
        {"max_text_tokens": -1},
        {"max_request_tokens": True},
        {"requests_per_minute": 0},
        {"tokens_per_minute": 1.5},
        {"attempts": 0},
        {"patience": -1},
        {"patience": "long"},
    ]
    for options in wrong:
        (name,) = options
        with pytest.raises(OptionError, match=f"^{name} is "):
            over_openai(server, **options)
    with pytest.raises(OptionError, match="model is ''"):
        OpenAIEmbedder(openai.OpenAI(api_key=KEY), "")


def test_fingerprints_tell_models_apart_and_no_secrets(server: Server) -> None:
    def fingerprint(url: str = f"{server.url}/v1", model: str = "m", key: str = KEY, **options: Any) -> str:
        found = OpenAIEmbedder(openai.OpenAI(api_key=key, base_url=url), model, **options).fingerprint
        assert found is not None
        return found

    plain = fingerprint()
    assert plain == fingerprint(key="another") == fingerprint(requests_per_minute=5, max_texts=3, attempts=1)
    assert plain == fingerprint(url=f"http://user:{KEY}@127.0.0.1:{server.server_port}/v1?key={KEY}")
    others = [
        fingerprint(model="n"),
        fingerprint(dimensions=8),
        fingerprint(max_text_tokens=5),
        fingerprint(url="http://127.0.0.1:1/v1"),
        fingerprint(url=f"{server.url}/v2"),
        over_cohere(server).fingerprint,
        over_voyage(server).fingerprint,
    ]
    assert len({plain, *others}) == 8
    for each in (plain, *others):
        assert each is not None
        assert KEY not in each
        assert "127.0.0.1" not in each


@ALL
def test_prune_context_searches_with_it(make: Make, server: Server) -> None:
    history = records("service.jsonl")[0]["messages"]
    prompt = "What baggage allowance does the reservation have?"
    embedder = make(server)
    chosen = prune_context(prompt, history, 3, embedder=embedder)
    assert chosen == prune_context(prompt, history, 3, embedder=expected)
    assert len(chosen) < len(history)
    asked = len(server.requests)
    prune_context(prompt, history, 3, embedder=make(server))
    assert len(server.requests) == asked
    assert embed.cached(embedder)


def test_a_bare_client_is_told_what_to_do(server: Server) -> None:
    clients = {
        "openai.OpenAI": openai.OpenAI(api_key=KEY),
        "openai.AsyncOpenAI": openai.AsyncOpenAI(api_key=KEY),
        "cohere.ClientV2": cohere.ClientV2(api_key=KEY, base_url=server.url),
        "voyageai.Client": voyageai.Client(api_key=KEY),
    }
    history = [{"role": "user", "content": text} for text in "abcde"]
    for name, client in clients.items():
        with pytest.raises(
            OptionError, match=rf"'{name}', it must be wrapped .*: \w+Embedder\(client, model\)"
        ) as caught:
            prune_context("x", history, embedder=client)
        assert KEY not in str(caught.value)


@pytest.mark.parametrize("package", ["tenacity", "pyrate_limiter"])
def test_no_packages_say_what_to_install(package: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EmbedderUnavailable, match=rf"need a package: .*{package}.* with its extra 'services'"):
        over_openai(server, requests_per_minute=5)


def test_the_caller_s_client_is_left_as_it_was(server: Server) -> None:
    client = voyageai.Client(KEY, base_url=f"{server.url}/voyage", max_retries=7)
    VoyageEmbedder(client, "voyage-4").embed(["a"])
    assert client.max_retries == 7
    other = openai.OpenAI(api_key=KEY, base_url=f"{server.url}/v1", max_retries=7)
    OpenAIEmbedder(other, "m").embed(["a"])
    assert other.max_retries == 7
    assert not other.is_closed()


def test_nothing_is_imported_for_it() -> None:
    import subprocess
    import sys

    code = "import sys, secateur.embed.services; print(*{'openai', 'cohere', 'voyageai', 'tenacity'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
    assert Path(services.__file__).name == "services.py"
