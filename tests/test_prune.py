"""prune_context: the published behaviour, the shapes of real histories, and what must be refused."""

import copy
from collections.abc import Sequence
from typing import Any, cast, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples import WordEmbedder, records
from secateur import MessageError, OptionError, Pruner, formats, prune_context
from secateur.cli import EXAMPLE, EXAMPLE_PROMPT
from secateur.embed.minilm import MiniLM
from secateur.prune import Placement

Message = dict[str, Any]


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def assistant(content: Any, *call_ids: str) -> Message:
    calls = [{"id": each, "type": "function", "function": {"name": "look", "arguments": "{}"}} for each in call_ids]
    return {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})


def tool(call_id: str, content: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def naive(prompt: str, history: Sequence[Message], top_k: int) -> list[Message]:
    """The published sketch, with positions instead of `list.index`."""
    if len(history) <= 2:
        return [*history, user(prompt)]
    archive, recent = history[:-2], history[-2:]
    embedder = WordEmbedder()
    query = embedder.embed([prompt])[0].astype(np.float64)

    def cosine(text: str) -> np.float32:
        vector = embedder.embed([text])[0].astype(np.float64)
        norms = np.sqrt(query @ query) * np.sqrt(vector @ vector)
        return np.float32(query @ vector / norms if norms else 0.0)

    ranked = sorted(
        range(len(archive)),
        key=lambda index: (not archive[index]["content"].strip(), -cosine(archive[index]["content"]), index),
    )
    return [archive[index] for index in sorted(ranked[:top_k])] + [*recent, user(prompt)]


few_words = st.lists(st.sampled_from(["fleet", "route", "rain", "load", " ", "Σ", "地図"]), max_size=4).map(" ".join)
plain_messages = st.lists(
    st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "agent", "Bob"]), few_words),
    max_size=12,
)


class TestPublished:
    def test_worked_example(self, minilm: MiniLM) -> None:
        assert len(EXAMPLE) == 8
        window = prune_context(EXAMPLE_PROMPT, EXAMPLE, top_k=2, embedder=minilm)
        assert window == [EXAMPLE[4], EXAMPLE[5], EXAMPLE[6], EXAMPLE[7], user(EXAMPLE_PROMPT)]

    @given(few_words.filter(str.strip), plain_messages, st.integers(0, 14))
    def test_equals_the_sketch(self, prompt: str, history: list[Message], top_k: int) -> None:
        embedder = WordEmbedder()
        assert prune_context(prompt, history, top_k, embedder=embedder) == naive(prompt, history, top_k)
        pruning = Pruner(top_k, embedder).explain(prompt, history)
        assert pruning.messages == naive(prompt, history, top_k)
        assert [history[each.index] for each in pruning.choices if each.kept] == pruning.messages[:-1]

    @given(plain_messages)
    def test_messages_are_the_callers_own_and_unchanged(self, history: list[Message]) -> None:
        before = copy.deepcopy(history)
        window = prune_context("fleet route", history, embedder=WordEmbedder())
        assert history == before
        own = {id(message) for message in history}
        assert all(id(message) in own for message in window[:-1])

    def test_short_history_needs_no_model(self) -> None:
        def refuse(_: Sequence[str]) -> Any:
            raise AssertionError("nothing is to be embedded")

        history = [user("a"), assistant("b")]
        assert prune_context("c", history, embedder=refuse) == [*history, user("c")]
        long = [user(str(number)) for number in range(9)]
        assert prune_context("c", long, 0, embedder=refuse) == [*long[-2:], user("c")]
        assert prune_context("c", long, 7, embedder=refuse) == [*long, user("c")]
        assert prune_context("c", long, 10**9, embedder=refuse) == [*long, user("c")]

    def test_equal_messages_are_told_apart(self, words: WordEmbedder) -> None:
        history = [user("fleet"), user("rain"), user("fleet"), user("fleet"), user("x"), user("y")]
        window = prune_context("fleet", history, 2, embedder=words)
        assert [id(message) for message in window[:2]] == [id(history[0]), id(history[2])]

    def test_only_the_prompt_is_embedded_again(self, words: WordEmbedder) -> None:
        history = [user(f"fleet {number}") for number in range(20)]
        prune_context("fleet", history, embedder=words)
        assert len(words.embedded) == 19
        prune_context("rain", [*history, user("more")], embedder=words)
        assert words.embedded[19:] == ["rain", "fleet 18"]


class TestRounds:
    history = (
        user("start"),
        assistant(None, "a", "b"),
        tool("a", "rain"),
        tool("b", "the fleet route"),
        assistant("done"),
        user("next"),
        assistant("calling", "c"),
        tool("c", "recent"),
    )

    def test_a_round_returns_whole(self, words: WordEmbedder) -> None:
        window = prune_context("fleet route", self.history, 1, embedder=words)
        assert window[:4] == [*self.history[1:4], self.history[6]]

    def test_recent_messages_are_widened_to_a_round(self, words: WordEmbedder) -> None:
        window = prune_context("nothing", self.history, 0, embedder=words, keep_last=1)
        assert window[:-1] == list(self.history[6:])

    def test_broken_rounds_are_never_chosen(self, words: WordEmbedder) -> None:
        history = [
            assistant("fleet", "lost"),
            user("hm"),
            tool("orphan", "fleet"),
            assistant("fleet", "p", "q"),
            tool("p", "fleet"),
            user("fleet"),
            user("recent"),
            assistant("recent"),
        ]
        pruning = Pruner(9, words).explain("fleet", history)
        assert [choice.reason for choice in pruning.choices] == [
            "broken round",
            "recalled",
            "broken round",
            "broken round",
            "broken round",
            "recalled",
            "recent",
            "recent",
        ]

    def test_what_stands_between_a_call_and_its_result_stays_there(self, words: WordEmbedder) -> None:
        note = {"role": "system", "content": "note"}
        history = [user("q"), assistant(None, "a", "b"), tool("a", "fleet"), note, tool("b", "fleet"), assistant("y")]
        assert prune_context("fleet", history, 0, embedder=words)[:-1] == history[1:]
        broken = Pruner(9, words).explain("fleet", [*history, user("x"), user("y")])
        reasons = ["broken round", "broken round", "system", "broken round"]
        assert [choice.reason for choice in broken.choices[1:5]] == reasons

    def test_a_prompt_that_answers_a_call_keeps_it(self, words: WordEmbedder) -> None:
        history = [user("fleet"), assistant("b"), user("x"), assistant(None, "p", "q"), tool("p", "r")]
        answer = tool("q", "fleet")
        for placement in get_args(Placement):
            for keep_last in (0, 1, 2):
                window = prune_context(answer, history, 1, embedder=words, placement=placement, keep_last=keep_last)
                assert window[-3:] == [*history[3:], answer]
                assert history[0] in window
        window = prune_context(answer, history, 1, embedder=words, unit="turn", keep_last=0)
        assert window[-4:] == [*history[2:], answer]

    def test_a_round_and_a_textless_message_do_not_hide_a_better_one(self, words: WordEmbedder) -> None:
        pair = [assistant("fleet", "a"), tool("a", "fleet")]
        image = user([{"type": "image_url", "image_url": {"url": "data:,"}}])
        history = [*pair, image, user("fleet rain"), user("x"), assistant("y")]
        for window in (
            prune_context("fleet", history, 2, embedder=words),
            Pruner(2, words).explain("fleet", history).messages,
        ):
            assert window[:-3] == [*pair, history[3]]

    def test_calls_of_an_sdk_must_be_dumped(self) -> None:
        class Call:
            def model_dump(self) -> dict[str, Any]:
                return {}

        hint = "expected a mapping; pass its model_dump()"
        for message, problem in [
            (assistant(None) | {"tool_calls": [Call()]}, f"has a tool call of type Call, {hint}"),
            (assistant(None) | {"tool_calls": {"id": "a"}}, "has tool_calls of type dict, expected a list or None"),
            (user([Call()]), f"has a block of type Call, expected a string or a {hint[11:]}"),
        ]:
            with pytest.raises(MessageError) as caught:
                prune_context("x", [message])
            assert caught.value.problem == problem

    def test_anthropic_blocks(self, words: WordEmbedder) -> None:
        history = [
            user([{"type": "text", "text": "start"}]),
            assistant(
                [
                    {"type": "thinking", "thinking": "secret fleet", "signature": "s"},
                    {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "route.txt"}},
                ]
            ),
            user([{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "fleet"}]}]),
            user("rain"),
            assistant("x"),
            user("y"),
        ]
        assert prune_context("fleet", history, 1, embedder=words)[:2] == history[1:3]

    @pytest.mark.parametrize("name", ["service.jsonl", "coding.jsonl", "functions.jsonl"])
    @pytest.mark.parametrize("top_k", [0, 1, 5])
    def test_real_traces_keep_every_round_whole(self, name: str, top_k: int, minilm: MiniLM) -> None:
        checked = 0
        for record in records(name):
            for stop in range(3, len(record["messages"]), 4):
                history = record["messages"][:stop]
                window = prune_context("What did the customer order?", history, top_k, embedder=minilm)
                sent = {id(message) for message in window[:-1]}
                columns = formats.read(history)
                units = formats.rounds(columns)
                for unit in range(units.count):
                    members = [index for index in units.members(unit) if index not in columns.system]
                    assert len({id(history[index]) in sent for index in members}) <= 1, "a round was torn"
                checked += bool(columns.calls)
        assert checked > 0

    def test_ids_that_are_used_again(self, words: WordEmbedder) -> None:
        history = [user("start"), assistant(None, "a")]
        history += [user("fleet"), assistant("fleet"), user("fleet"), assistant(None, "a"), tool("a", "r")]
        history += [user("x"), assistant("y")]
        assert prune_context("fleet", history, 3, embedder=words)[:3] == history[2:5]

    def test_a_result_without_an_id_belongs_to_the_calls_before_it(self, words: WordEmbedder) -> None:
        loose = {"role": "tool", "content": "fleet"}
        whole = [user("start"), assistant(None, "a"), loose, user("x"), assistant("y")]
        assert prune_context("fleet", whole, 1, embedder=words)[:2] == whole[1:3]
        lacking = [user("start"), assistant(None, "a", "b"), loose, user("x"), assistant("y")]
        assert prune_context("fleet", lacking, 9, embedder=words)[:-1] == [lacking[0], *lacking[3:]]

    def test_a_turn_with_a_broken_round_is_never_chosen(self, words: WordEmbedder) -> None:
        history = [user("fleet"), assistant(None, "lost"), user("fleet"), assistant("b"), user("x"), assistant("y")]
        assert prune_context("fleet", history, 9, embedder=words, unit="turn")[:-1] == history[2:]

    def test_reasons_are_those_of_the_unit(self, words: WordEmbedder) -> None:
        history = [user("fleet"), assistant("rain", "a"), tool("a", "fleet rain"), user("x"), assistant("y")]
        choices = Pruner(1, words, min_score=0.5).explain("fleet", history).choices
        assert [choice.reason for choice in choices[1:3]] == ["scored lower", "scored lower"]

    def test_system_messages_always_stay(self, words: WordEmbedder) -> None:
        rules, late = {"role": "system", "content": "rules"}, {"role": "developer", "content": "late"}
        history = [rules, user("fleet"), assistant("rain"), late, user("route"), user("x"), assistant("y")]
        assert prune_context("fleet", history, 1, embedder=words)[:3] == [rules, history[1], late]
        assert prune_context("fleet", history, 0, embedder=words)[:2] == [rules, late]
        window = prune_context("fleet", history, 1, embedder=words, placement="before_prompt")
        assert window == [rules, late, *history[5:], history[1], user("fleet")]

    def test_system_messages_are_not_counted_as_recent(self, words: WordEmbedder) -> None:
        notes = [{"role": "system", "content": "s1"}, {"role": "developer", "content": ""}]
        history = [user("old"), user("question"), assistant("answer"), *notes]
        assert prune_context("fleet", history, 0, embedder=words)[:-1] == history[1:]


class TestTurns:
    history = (
        assistant("welcome"),
        user("the fleet"),
        assistant("route", "a"),
        tool("a", "load"),
        assistant("answer"),
        user("rain"),
        assistant("sun"),
        user("last"),
        assistant("one"),
    )

    def test_whole_turns_return(self, words: WordEmbedder) -> None:
        window = prune_context("load", self.history, 1, embedder=words, unit="turn")
        assert window[:-1] == [*self.history[1:5], *self.history[7:]]

    def test_the_last_turns_stay(self, words: WordEmbedder) -> None:
        for keep_last, first in [(0, 9), (1, 7), (2, 5), (3, 1), (4, 0), (99, 0)]:
            window = prune_context("x", self.history, 0, embedder=words, unit="turn", keep_last=keep_last)
            assert window[:-1] == list(self.history[first:])

    def test_real_meeting(self, minilm: MiniLM) -> None:
        (meeting,) = records("meeting.jsonl")
        window = prune_context("How much will it cost?", meeting["messages"], 3, embedder=minilm, unit="turn")
        assert len(window) == 3 + 1 + 1, "every message of a meeting is a turn"


class TestOptions:
    def test_min_score(self, words: WordEmbedder) -> None:
        history = [user("fleet"), user("fleet rain"), user("rain"), user(""), user("x"), user("y")]
        assert prune_context("fleet", history, 9, embedder=words, min_score=0.5)[:-3] == history[:2]
        assert prune_context("fleet", history, 9, embedder=words, min_score=1.0)[:-3] == history[:1]
        reasons = [choice.reason for choice in Pruner(1, words, min_score=0.5).explain("fleet", history).choices]
        assert reasons == ["recalled", "scored lower", "below min_score", "no text", "recent", "recent"]

    def test_textless_messages_return_last(self, words: WordEmbedder) -> None:
        image = user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}])
        history = [user(""), image, user(None), user("rain"), user("x"), user("y")]
        assert prune_context("fleet", history, 1, embedder=words)[0] is history[3]
        assert prune_context("fleet", history, 2, embedder=words)[:2] == [history[0], history[3]]

    def test_numbers_of_any_kind(self, words: WordEmbedder) -> None:
        history = [user(f"m{number}") for number in range(6)]
        assert len(prune_context("a", history, 0, embedder=words, keep_last=cast(int, np.uint64(200)))) == 7
        one, three = cast(int, np.int8(1)), cast(int, np.int8(3))
        assert len(prune_context("a", history * 100, one, embedder=words, keep_last=three)) == 5
        assert len(prune_context("a", history, 2**70, embedder=words, min_score=-1)) == 7
        half = cast(float, np.float32(0.5))
        assert len(prune_context("m1", history, 9, embedder=words, min_score=half)) == 4

    def test_a_prompt_may_be_a_message(self, words: WordEmbedder) -> None:
        prompt = {"role": "user", "content": [{"type": "text", "text": "fleet"}], "id": 7}
        assert prune_context(prompt, [user("a")], embedder=words)[-1] is prompt

    @pytest.mark.parametrize(
        ("options", "name"),
        [
            ({"top_k": -1}, "top_k"),
            ({"top_k": 1.5}, "top_k"),
            ({"top_k": True}, "top_k"),
            ({"keep_last": -1}, "keep_last"),
            ({"unit": "word"}, "unit"),
            ({"placement": "anywhere"}, "placement"),
            ({"min_score": 1.01}, "min_score"),
            ({"min_score": float("nan")}, "min_score"),
            ({"min_score": "high"}, "min_score"),
            ({"min_score": True}, "min_score"),
            ({"top_k": [1]}, "top_k"),
            ({"embedder": WordEmbedder}, "embedder"),
            ({"embedder": 7}, "embedder"),
        ],
    )
    def test_bad_options(self, options: dict[str, Any], name: str) -> None:
        with pytest.raises(OptionError) as caught:
            prune_context("x", [user(str(number)) for number in range(9)], **options)
        assert caught.value.name == name
        assert str(caught.value).startswith(f"{name} is {caught.value.value!r}, it must be")

    @pytest.mark.parametrize(
        ("message", "problem"),
        [
            ("hello", "message 1 is a str, expected a mapping with role and content"),
            ({"content": "x"}, "message 1 has role None, expected a non-empty string"),
            ({"role": 3, "content": "x"}, "message 1 has role 3, expected a non-empty string"),
            ({"role": [], "content": "x"}, "message 1 has role [], expected a non-empty string"),
            ({"role": "user"}, "message 1 has no content"),
            (user(None) | {"tool_calls": 5}, "message 1 has tool_calls of type int, expected a list or None"),
            (user(5), "message 1 has content of type int, expected a string, a list or None"),
            (user(b"x"), "message 1 has content of type bytes, expected a string, a list or None"),
            (user([7]), "message 1 has a block of type int, expected a string or a mapping"),
        ],
    )
    def test_bad_messages(self, message: Any, problem: str) -> None:
        with pytest.raises(MessageError) as caught:
            prune_context("x", [user("a"), message])
        assert str(caught.value) == problem
        assert caught.value.index == 1

    @pytest.mark.parametrize("prompt", ["", " \n", user(""), {"role": "user", "content": []}])
    def test_empty_prompt(self, prompt: Any) -> None:
        with pytest.raises(MessageError, match="current_prompt has no text"):
            prune_context(prompt, [])

    def test_history_must_be_a_list(self) -> None:
        for history in ("text", {"role": "user", "content": "x"}, None, 5):
            with pytest.raises(OptionError, match="it must be a list of messages"):
                prune_context("x", history)  # type: ignore[arg-type]

    def test_an_iterator_will_do(self) -> None:
        assert len(prune_context("x", (user(text) for text in "ab"))) == 3

    def test_lone_surrogates_are_embedded(self, minilm: MiniLM) -> None:
        history = [user("half a \ud83d pair"), user("\ud83d\ude00 smile"), user("a"), user("b")]
        assert prune_context("smile \udfff", history, 1, embedder=minilm)[0] is history[1]
