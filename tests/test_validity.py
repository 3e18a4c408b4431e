"""check and repair, on what crashes and other tools leave behind, in every format."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples import records
from secateur import check, fit, formats, repair
from secateur.validity import NO_RESULT
from test_fit import TRACES, Message, call, histories, result, user


def faults(messages: Any, **options: Any) -> list[tuple[int, str, str]]:
    return [(problem.index, problem.fault, problem.detail) for problem in check(messages, **options)]


@given(histories())
def test_mending_finds_nothing_more_and_changes_nothing_twice(history: list[Message]) -> None:
    before = copy.deepcopy(history)
    mended = repair(history)
    assert history == before
    assert check(mended, format="openai_chat") == []
    assert repair(mended, format="openai_chat") == mended
    whole = [message for message in history if any(message is each for each in mended)]
    assert [message for message in mended if any(message is each for each in history)] == whole
    if not check(history):
        assert all(sent is message for sent, message in zip(mended, history, strict=True))


@given(histories(), st.integers(60, 900))
def test_a_repaired_window_has_no_problem(history: list[Message], budget: int) -> None:
    whole = fit(history, 10**6, repair=True)
    assert check(whole, format="openai_chat") == []
    floor = fit([user("x")], 10**6).tokens
    window = fit(history, max(budget, floor) + 4000, repair=True)
    assert check(window, format="openai_chat") == []


@pytest.mark.parametrize("name", TRACES)
def test_real_traces_broken_at_every_place(name: str) -> None:
    """Any message is lost: what is left is mended."""
    broken = 0
    for record in records(name):
        history = record["messages"]
        for lost in range(len(history)):
            left = history[:lost] + history[lost + 1 :]
            mended = repair(left, format=TRACES[name])
            assert check(mended, format=TRACES[name]) == []
            assert repair(mended, format=TRACES[name]) == mended
            broken += check(left, format=TRACES[name]) != []
    assert broken > 0 or name == "memories.jsonl"


def test_openai_faults() -> None:
    history = [
        user("a"),
        call("x", "y"),
        result("x", "1"),
        user("b"),
        result("y", "late"),
        {"role": "assistant", "content": ""},
        result("z", "orphan"),
        {"role": "assistant", "content": "end"},
        call("open"),
    ]
    assert faults(history) == [
        (1, "unanswered call", "y"),
        (4, "orphan result", "y"),
        (5, "empty content", "assistant"),
        (6, "orphan result", "z"),
        (8, "unanswered call", "open"),
    ]
    assert (8, "unanswered call", "open") not in faults(history, pending=True)
    mended = repair(history)
    assert [message.get("tool_call_id") for message in mended] == [None, None, "x", "y", None, None, None, "open"]
    assert mended[3]["content"] == NO_RESULT


def test_anthropic_results_share_one_message() -> None:
    def use(*ids: str) -> Message:
        return {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in ids]}

    def answer(*ids: str) -> Message:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": "r"} for i in ids]}

    history = [use("a", "b"), answer("b", "zz"), use("c"), user("hm")]
    assert faults(history) == [
        (0, "unanswered call", "a"),
        (0, "wrong first role", "assistant"),
        (1, "orphan result", "zz"),
        (2, "unanswered call", "c"),
    ]
    mended = repair(history)
    assert [message["role"] for message in mended] == ["user", "assistant", "user", "assistant", "user", "user"]
    assert [block["tool_use_id"] for block in mended[2]["content"]] == ["a", "b"]
    assert mended[4]["content"][0]["is_error"] is True


def test_bedrock_roles_alternate() -> None:
    texts = [
        {"role": role, "content": [{"text": text}]} for role, text in [("user", "a"), ("user", "b"), ("assistant", "c")]
    ]
    assert faults(texts, format="bedrock") == [(1, "roles do not alternate", "user")]
    assert repair(texts, format="bedrock") == [
        {"role": "user", "content": [{"text": "a"}, {"text": "b"}]},
        texts[2],
    ]


def test_thinking_blocks_are_left_byte_for_byte() -> None:
    for record in records("coding.jsonl"):
        history = record["messages"]
        for budget in (2000, 6000):
            for message in fit(history, 20_000 + budget):
                if message["role"] == "assistant":
                    assert any(message is original for original in history) or message not in history
        thinking = [
            block
            for message in fit(history, 6000)
            if isinstance(message["content"], list)
            for block in message["content"]
            if block.get("type") == "thinking"
        ]
        originals = [
            block for message in history if isinstance(message["content"], list) for block in message["content"]
        ]
        assert all(any(block is original for original in originals) for block in thinking)


def test_no_content_is_ever_empty() -> None:
    for wire in formats.FORMATS.values():
        assert not wire.is_empty(wire.note("x"))
        assert check([wire.note("x")], format=wire.name) == []
