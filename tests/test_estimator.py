"""Estimates by families of tokenizers: how near they are on real texts, what bounds them, and what corrects them."""

import base64
import functools
import json
import math
import random
import struct
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from histories import Message, user
from samples import records
from secateur import OptionError, TokenEstimator, Window, estimate_tokens, fit, formats
from secateur._core import feature_names, media_tokens, text_features
from secateur.counters import as_counter
from secateur.frames import PROFILES
from secateur.learning import learn, prompt_tokens
from secateur.tokens import MESSAGE_TOKENS, Measure

RECORDS = records("tokens.jsonl")
TEXTS = [record["text"] for record in RECORDS]
FAMILIES = [name for name in PROFILES if name != "any"]
SCRIPT = TokenEstimator("script")
estimator = functools.cache(TokenEstimator)


def true(family: str, chosen: list[dict[str, Any]] = RECORDS) -> list[int]:
    return [record["counts"][family] for record in chosen]


def shuffled(seed: int) -> list[dict[str, Any]]:
    return random.Random(seed).sample(RECORDS, len(RECORDS))


class TestFamilies:
    def test_the_samples_are_varied(self) -> None:
        assert 55 <= len(RECORDS) <= 70
        assert len({record["script"] for record in RECORDS}) >= 20
        assert {"code", "json", "json_min", "agent_obs", "prose", "markdown"} <= {record["kind"] for record in RECORDS}
        assert all(set(record["counts"]) == set(FAMILIES) and record["licence"] for record in RECORDS)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_is_near_and_nearer_than_the_script_rule(self, family: str) -> None:
        counts = np.array(true(family))
        error = np.abs(np.array(estimator(family).count_many(TEXTS)) / counts - 1).mean()
        assert error < 0.08
        assert error < np.abs(np.array(SCRIPT.count_many(TEXTS)) / counts - 1).mean() / 2

    @pytest.mark.parametrize("family", FAMILIES)
    def test_upper_bounds_hold_and_are_no_more_than_any_tokenizer_gives(self, family: str) -> None:
        bounds = [estimator(family).upper(text) for text in TEXTS]
        assert sum(count > bound for count, bound in zip(true(family), bounds, strict=True)) <= 2
        for text, bound in zip(TEXTS, bounds, strict=True):
            assert estimator(family).count(text) <= bound <= math.ceil(1.25 * len(text.encode()))

    @pytest.mark.parametrize("family", FAMILIES)
    def test_the_bound_of_a_total_is_nearer_than_the_sum_of_bounds(self, family: str) -> None:
        counts = estimator(family).count_many(TEXTS)
        total, bound = sum(true(family)), estimator(family).upper_of_total(counts)
        assert total < bound < 1.25 * total
        assert bound - total < 0.6 * (sum(map(estimator(family).upper, TEXTS)) - total)

    def test_any_is_the_most_that_a_family_gives(self) -> None:
        every = estimator("any")
        for record in RECORDS:
            by_family = every.by_family(record["text"])
            assert by_family == {name: estimator(name).count(record["text"]) for name in FAMILIES}
            assert every.count(record["text"]) == max(by_family.values())
            assert every.upper(record["text"]) >= max(record["counts"].values())

    def test_the_script_rule_needs_no_bound(self) -> None:
        assert [SCRIPT.upper(text) for text in TEXTS] == SCRIPT.count_many(TEXTS)
        assert SCRIPT.upper_of_total([3, 4]) == 7

    @pytest.mark.parametrize(
        ("model", "profile"),
        [
            ("openai/gpt-4o", "o200k"),
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-3"),
            ("claude-opus-4-8", "claude"),
            ("a model of tomorrow", "any"),
            (None, "any"),
        ],
    )
    def test_a_model_has_a_profile(self, model: str | None, profile: str) -> None:
        named = TokenEstimator(model=model)
        assert named.profile == profile
        assert named.count_many(TEXTS) == estimator(profile).count_many(TEXTS)
        assert [estimate_tokens(text, model) for text in TEXTS[:5]] == named.count_many(TEXTS[:5])
        assert estimate_tokens(TEXTS[0], model, upper=True) == named.upper(TEXTS[0])
        assert repr(named) == f"TokenEstimator({profile!r}, model={model!r})"

    def test_a_profile_goes_before_the_model(self) -> None:
        assert TokenEstimator("glm", model="gpt-4o").count_many(TEXTS) == estimator("glm").count_many(TEXTS)

    def test_unknown_profiles_are_refused_with_those_that_are_known(self) -> None:
        for make in (lambda: TokenEstimator("o300k"), lambda: estimate_tokens("x", profile="o300k")):
            with pytest.raises(OptionError, match="profile is 'o300k', it must be 'script' or 'o200k'") as raised:
                make()
            assert all(repr(name) in raised.value.limit for name in PROFILES)


any_text = st.text(st.characters(exclude_categories=[])) | st.text(st.characters(max_codepoint=0xFF))
profiles = st.sampled_from(["script", *PROFILES])


class Named(str):
    """A string of a class of its own."""


class TestTexts:
    @given(profiles, st.lists(any_text, max_size=5))
    def test_count_many_is_count_of_each(self, profile: str, texts: list[str]) -> None:
        each = estimator(profile)
        assert each.count_many(texts) == each.count_many(tuple(map(Named, texts))) == list(map(each.count, texts))
        assert all(0 <= each.count(text) <= each.upper(text) for text in texts)
        assert each.count("") == each.upper("") == 0

    @settings(max_examples=60)
    @given(profiles, any_text | st.sampled_from(TEXTS), st.integers(0, 200_000), st.integers(-3, 3), st.floats(0, 2))
    def test_count_up_to_is_count_within_the_limit(
        self, profile: str, text: str, length: int, off: int, share: float
    ) -> None:
        each, long = estimator(profile), text * (length // max(1, len(text)))
        tokens = each.count(long)
        for limit in (max(0, tokens + off), int(share * tokens)):
            assert each.count_up_to(long, limit) == (tokens if tokens <= limit else None)

    @given(profiles, any_text, st.integers(0xD800, 0xDFFF).map(chr), any_text)
    def test_lone_surrogates_are_counted(self, profile: str, before: str, lone: str, after: str) -> None:
        each, text = estimator(profile), before + lone + after
        marked = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        assert 0 < each.count(text) <= each.upper(text)
        names = [*feature_names(), "characters", "bytes"]
        columns = [names.index(name) for name in ("not ASCII", "characters", "bytes")]
        if len(marked) == len(text):
            # Of the width that U+FFFD has; to the script rule there is no difference, families take it for a letter.
            assert text_features([text])[0, columns].tolist() == text_features([marked])[0, columns].tolist()
            assert SCRIPT.count(text) == SCRIPT.count(marked)

    @pytest.mark.parametrize("text", ["é" * 999, "я\ud800" * 999, "🙂" * 999])
    @pytest.mark.parametrize("profile", ["script", "o200k", "any"])
    def test_no_copy_is_left_in_a_string(self, text: str, profile: str) -> None:
        text = "".join(list(text))  # an object of its own, which nothing has read as UTF-8
        size = sys.getsizeof(text)
        each = TokenEstimator(profile)
        for use in (each.count, each.upper, each.by_family, lambda text: each.count_many([text])):
            use(text)
        each.count_up_to(text, 5)
        each.count_request([user(text)], upper=True)
        each.observe(text, 500)
        assert sys.getsizeof(text) == size

    @given(any_text, profiles)
    def test_classes_of_strings_are_counted_alike(self, text: str, profile: str) -> None:
        each = estimator(profile)
        assert each.count(Named(text)) == each.count(text)
        assert each.upper(Named(text)) == each.upper(text)
        assert each.by_family(Named(text)) == each.by_family(text)

    def test_what_is_no_text_is_refused(self) -> None:
        for use in (estimator("o200k").count, estimator("any").upper, lambda x: estimator("glm").count_many([x])):
            for value in (None, 5, b"bytes"):
                with pytest.raises(TypeError):
                    use(value)  # type: ignore[arg-type]


class TestLearning:
    def talk(self, each: TokenEstimator, factor: float, offset: int, seed: int, odd: int = 0) -> float:
        """Report a growing conversation; how near the estimate for all of it is then."""
        chosen = shuffled(seed)
        messages = [user(record["text"]) for record in chosen]
        counts = true("o200k", chosen)
        for stop in range(5, 61, 5):
            tokens = round(factor * sum(counts[:stop])) + offset + 4 * stop + 3
            each.observe(messages[:stop], 5 * tokens if stop == odd else {"prompt_tokens": tokens})
        return each.count_request(messages) / (factor * sum(counts) + offset + 4 * len(counts) + 3)

    @pytest.mark.parametrize(("factor", "offset"), [(1.0, 0), (1.2, 0), (1.0, 800), (1.3, 800)])
    @pytest.mark.parametrize("odd", [0, 30])
    def test_a_factor_and_an_offset_are_found_in_spite_of_an_outlier(
        self, factor: float, offset: int, odd: int
    ) -> None:
        for seed in range(3):
            each = TokenEstimator("o200k")
            assert self.talk(each, factor, offset, seed, odd) == pytest.approx(1, abs=0.03)
            assert each.lesson.factor == pytest.approx(factor, abs=0.03)
            assert each.lesson.offset == pytest.approx(offset, abs=60)

    def test_downwards_is_believed_slowly(self) -> None:
        messages = [user(text) for text in TEXTS]
        for share, least in ((0.9, 0.97), (0.5, 0.88)):
            each = TokenEstimator("o200k")
            before = each.count_request(messages)
            each.observe(messages, int(share * before))
            assert least * before < each.count_request(messages) < before
            each.observe(messages, int(share * before))
            second = each.count_request(messages)
            for _ in range(30):
                each.observe(messages, int(share * before))
            assert share * before < each.count_request(messages) < second
        upwards = TokenEstimator("o200k")
        upwards.observe(messages, int(1.5 * before))
        assert upwards.count_request(messages) == pytest.approx(1.5 * before, rel=0.02)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_any_learns_which_families_fit(self, family: str) -> None:
        chosen, each = shuffled(1), TokenEstimator("any")
        rest, total = [record["text"] for record in chosen[30:]], sum(true(family, chosen[30:]))
        before = sum(each.count_many(rest))
        assert each.lesson.mix is None
        for place in range(0, 30, 3):
            said = chosen[place : place + 3]
            tokens = each.frame.request + sum(each.frame.message + count for count in true(family, said))
            each.observe([user(record["text"]) for record in said], tokens)
        after = sum(each.count_many(rest))
        assert after == pytest.approx(total, rel=0.25)
        assert abs(after - total) < abs(before - total) / 2
        assert each.lesson.mix is not None
        assert min(each.lesson.mix) >= 0

    def test_what_is_learned_has_limits(self) -> None:
        assert learn([[1000.0]], [10**9]).factor <= 10
        assert learn([[1000.0]] * 60, [1] * 60).factor >= 0.1
        each = TokenEstimator("o200k")
        with pytest.raises(OptionError, match="usage is"):
            each.observe(TEXTS[0], {"completion_tokens": 4})
        assert each.lesson == TokenEstimator("o200k").lesson

    @pytest.mark.parametrize(
        ("usage", "tokens"),
        [
            (12, 12),
            ({"prompt_tokens": 40, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 32}}, 40),
            ({"input_tokens": 50, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 5}, 50),
            ({"input_tokens": 3, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 50}, 953),
            ({"input_tokens": 3, "cache_read_input_tokens": None, "cache_creation_input_tokens": None}, 3),
            ({"promptTokenCount": 70, "cachedContentTokenCount": 60, "candidatesTokenCount": 9}, 70),
            ({"inputTokens": 3, "outputTokens": 9, "cacheReadInputTokens": 60, "cacheWriteInputTokens": 7}, 70),
            (SimpleNamespace(prompt_token_count=70, cached_content_token_count=60), 70),
            (SimpleNamespace(input_tokens=3, cache_read_input_tokens=60, cache_creation_input_tokens=None), 63),
            (SimpleNamespace(model_dump=lambda: {"prompt_tokens": 8}), 8),
        ],
    )
    def test_usage_of_every_provider(self, usage: object, tokens: int) -> None:
        assert prompt_tokens(usage) == tokens

    def test_usage_as_it_was_recorded(self) -> None:
        seen = set()
        for record in records("usage.jsonl"):
            seen.add(record["format"])
            assert prompt_tokens(record["usage"]) > 0
        assert len(seen) >= 3

    @pytest.mark.parametrize("usage", [None, True, -1, 2**60, 1.5, "12", {}, {"output_tokens": 4}, object()])
    def test_what_is_no_usage(self, usage: object) -> None:
        with pytest.raises(OptionError, match="usage is"):
            prompt_tokens(usage)


class Words:
    """A tokenizer with few tokens, that tells what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.asked.append(text)
        return [hash(word) for word in text.split()]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A small tokenizer, trained on the samples that it is to count."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [text for record in records("service.jsonl") for text in formats.read(record["messages"]).texts]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [*TEXTS, *texts], trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet, show_progress=False)
    )
    return made


class TestFitting:
    def history(self) -> list[Message]:
        return list(records("service.jsonl")[0]["messages"])

    def lessons(self) -> TokenEstimator:
        taught = TokenEstimator(model="gpt-4o")
        taught.observe(self.history(), round(1.25 * taught.count_request(self.history())))
        return taught

    @pytest.mark.parametrize("counter", [None, "gpt-4o", "claude-opus-4-8", "o200k", "script", "taught"])
    def test_names_and_estimators_count(self, counter: Any) -> None:
        each = self.lessons() if counter == "taught" else counter
        history = records("coding.jsonl")[0]["messages"]
        measured = Measure(each, formats.FORMATS["anthropic"]).estimator
        assert measured is not None
        whole = fit(history, 10**6, counter=each)
        assert whole.tokens >= measured.count_request(history) or counter == "script"
        for share in (0.3, 0.6, 0.9):
            budget = int(share * whole.tokens)
            window = fit(history, budget, counter=each)
            assert len(window) < len(history) or window != history
            assert sum(measured.count_many(formats.read(window).texts)) < window.tokens <= budget

    def test_a_lesson_counts(self) -> None:
        plain, taught = fit(self.history(), 10**6, counter="gpt-4o"), fit(self.history(), 10**6, counter=self.lessons())
        assert 1.15 * plain.tokens < taught.tokens < 1.35 * plain.tokens

    def test_a_tokenizer_is_exact_where_it_matters(self, tokenizer: Any) -> None:
        counter, history, cuts = as_counter(tokenizer), self.history(), 0
        assert counter is not None

        def exact(messages: list[Any]) -> int:
            texts = formats.FORMATS["openai_chat"].texts
            return sum(MESSAGE_TOKENS + sum(map(counter.count, texts(message))) for message in messages)

        whole = exact(history)
        for share in (0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1, 1.1, 1.5, 3):
            window: Window = fit(history, int(share * whole), counter=tokenizer)
            assert exact(window) <= window.tokens <= share * whole
            assert (window == history) == (share >= 1)
            cuts += window != history
        assert cuts >= 5

    def test_below_the_budget_an_estimate_stands_in(self) -> None:
        asked = Words()
        history = self.history()
        assert fit(history, 10**6, counter=asked) == history
        few = len(asked.asked)
        assert few < len(history) / 2
        assert not any(text == message.get("content") for text in asked.asked for message in history)
        assert fit(history, 1200, counter=asked) != history
        assert len(asked.asked) - few > len(history)


def png(width: int, height: int) -> str:
    """The beginning of a picture, which says its size, and more bytes than could be taken for text."""
    header = struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0)
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + header + bytes(30_000)).decode()


def chat(data: str) -> Message:
    url = {"url": f"data:image/png;base64,{data}"}
    return {"role": "user", "content": [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": url}]}


def anthropic(data: str) -> Message:
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"role": "user", "content": [{"type": "text", "text": "what?"}, {"type": "image", "source": source}]}


def gemini(data: str) -> Message:
    return {"role": "user", "parts": [{"text": "what?"}, {"inlineData": {"mimeType": "image/png", "data": data}}]}


class TestRequests:
    @pytest.mark.parametrize(
        ("model", "shape", "small", "large"),
        [
            ("gpt-4o", chat, 85 + 170, 85 + 4 * 170),
            ("claude-opus-4-1", anthropic, 350, 1600),
            ("gemini-2.0-flash", gemini, 1290, 1290),
        ],
    )
    def test_images_are_counted_by_their_size(
        self, model: str, shape: Callable[[str], Message], small: int, large: int
    ) -> None:
        each = TokenEstimator(model=model)
        for size, expected in ((512, small), (1024, large)):
            message = shape(png(size, size))
            key = "parts" if "parts" in message else "content"
            bare = {**message, key: message[key][:1]}
            image = each.count_request([message]) - each.count_request([bare])
            assert image == media_tokens(message[key][1], model) == pytest.approx(expected, rel=0.2)
            more = fit([message], 10**6, counter=model).tokens - fit([bare], 10**6, counter=model).tokens
            assert image <= more < 1.5 * image, "no payload is counted as text"

    def test_base64_inside_text_is_text(self) -> None:
        data, each = base64.b64encode(random.Random(1).randbytes(6000)).decode(), TokenEstimator(model="gpt-4o")
        assert each.count(data) > len(data) / 3
        assert each.count_request([user(f"look: {data}")]) > each.count(data)
        assert fit([user(f"look: {data}")], 10**6, counter="gpt-4o").tokens > each.count(data)

    @pytest.mark.parametrize("model", ["gpt-4o", "claude-opus-4-8", "gemini-2.5-pro", "mystery"])
    def test_tools_and_system_prompts_cost(self, model: str) -> None:
        schema = {"type": "object", "properties": {"what": {"type": "string", "description": "what to look up"}}}
        tools = [{"type": "function", "function": {"name": "look", "description": "Look it up.", "parameters": schema}}]
        each, messages = TokenEstimator(model=model), [user("hello")]
        plain, written = each.count_request(messages), each.count(json.dumps(schema))
        assert each.count_request(messages, tools=tools) > plain + written // 2
        assert each.count_request(messages, system=TEXTS[0]) > plain + 0.9 * each.count(TEXTS[0])
        assert each.count_request(messages, tools=tools, upper=True) > each.count_request(messages, tools=tools)
        more = fit(messages, 10**6, counter=model, tools=tools).tokens - fit(messages, 10**6, counter=model).tokens
        assert more > written // 2
