"""check and repair, on what crashes and other tools leave behind, in every format."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from histories import TRACES, Message, call, fit_by_script, histories, result, user
from samples import records
from secateur import BudgetError, MessageError, Notes, Policy, check, fit, formats, repair
from secateur.validity import NO_RESULT


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


@given(histories(), st.integers(60, 900), st.sampled_from([None, "script"]))
def test_a_repaired_window_has_no_problem(history: list[Message], budget: int, counter: str | None) -> None:
    try:
        window = fit(history, budget, repair=True, counter=counter)
    except BudgetError:
        return
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
    cuts = 0
    for record in records("coding.jsonl"):
        history = record["messages"]
        for budget in (1200, 2000, 4000):
            window = fit_by_script(history, budget)
            cuts += len(window) < len(history) or window != history
            for message in window:
                if message["role"] == "assistant":
                    assert any(message is original for original in history)
    assert cuts > 3


def test_pinned_messages_and_silent_notes_leave_a_valid_window() -> None:
    anthropic = records("coding.jsonl")[0]["messages"]
    before = faults(anthropic)
    for pinned in range(len(anthropic)):
        for policy in (Policy(pinned=[pinned]), Policy(pinned=[pinned], notes=Notes(removed=""))):
            try:
                window = fit_by_script(anthropic, 3000, policy=policy)
            except BudgetError:
                continue
            assert len(faults(window, format="anthropic")) <= len(before)
    bedrock: list[Message] = []
    for number in range(12):
        bedrock.append({"role": "user", "content": [{"text": f"question {number} " + "w" * 200}]})
        bedrock.append({"role": "assistant", "content": [{"text": "v" * 200}]})
    for policy in (Policy(pinned=[4, 6]), Policy(notes=Notes(removed="")), Policy(keep_last=3)):
        window = fit_by_script(bedrock, 500, policy=policy)
        assert len(window) < len(bedrock)
        assert faults(window, format="bedrock") == []


def test_answers_have_the_shape_of_their_calls() -> None:
    gemini = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [{"functionCall": {"id": "abc", "name": "look", "args": {}}}]},
    ]
    answer = repair(gemini)[-1]["parts"][0]["functionResponse"]
    assert (answer["id"], answer["name"]) == ("abc", "look")
    by_name = [*gemini, {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"r": 1}}}]}]
    assert repair(by_name) == by_name
    responses = [
        {"type": "message", "role": "user", "content": "q"},
        {"type": "custom_tool_call", "call_id": "c", "name": "sh", "input": "ls"},
    ]
    assert repair(responses)[-1]["type"] == "custom_tool_call_output"


def test_one_pass_mends_what_mending_uncovers() -> None:
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
    stray = [{"type": "tool_result", "tool_use_id": "zz", "content": "x"}, {"type": "text", "text": "also"}]
    late = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r"}]}
    mended = repair([user("g"), use, {"role": "user", "content": stray}, late])
    assert check(mended, format="anthropic") == []
    assert repair(mended, format="anthropic") == mended
    mixed = [{"type": "text", "text": ""}, {"type": "text", "text": "t"}, late["content"][0]]
    history = [user("g"), use, {"role": "user", "content": mixed}]
    assert {fault for _, fault, _ in faults(history)} == {"empty content", "text before a result"}
    assert repair(history)[-1]["content"] == [mixed[2], mixed[1]]


def test_no_content_is_ever_empty() -> None:
    for wire in formats.FORMATS.values():
        assert not wire.is_empty(wire.note("x"))
        assert check([wire.note("x")], format=wire.name) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (name, {"role": "user", key: value})
        for name, key in [
            ("anthropic", "content"),
            ("bedrock", "content"),
            ("gemini", "parts"),
            ("openai_chat", "content"),
        ]
        for value in (7, [7])
    ],
)
@pytest.mark.parametrize("use", [check, repair, functools.partial(fit, budget=100)])
def test_what_is_no_block_is_refused(use: Callable[..., object], name: str, message: dict[str, object]) -> None:
    with pytest.raises(MessageError, match=r"message 0 has (content|parts|a block|a part) of type int, expected a"):
        use([message], format=name)
