"""Reading messages, rounds and turns of real traces."""

from typing import Any

import pytest

from samples import records
from secateur import MessageError, formats


def shape(units: formats.Units) -> list[tuple[int, int]]:
    return [(units.members(unit).start, units.members(unit).stop) for unit in range(units.count)]


def test_openai_calls_and_results_are_read() -> None:
    (record, *_) = records("functions.jsonl")
    columns = formats.read(record["messages"])
    assert columns.calls
    assert set(columns.results.values()) == {("function_call",)}
    for index in columns.results:
        assert index - 1 in columns.calls
    call = record["messages"][min(columns.calls)]["function_call"]
    assert columns.texts[min(columns.calls)].endswith(f"{call['name']} {call['arguments']}".strip())


@pytest.mark.parametrize("name", ["service.jsonl", "coding.jsonl"])
def test_units_cover_every_message_once(name: str) -> None:
    for record in records(name):
        columns = formats.read(record["messages"])
        assert columns.calls
        for units in (formats.rounds(columns), formats.turns(columns)):
            assert [index for unit in range(units.count) for index in units.members(unit)] == list(
                range(len(columns.roles))
            )
            assert all(units.holding(index) == unit for unit in range(units.count) for index in units.members(unit))
        starts = formats.rounds(columns).starts
        assert set(formats.turns(columns).starts) <= set(starts)
        for index in columns.results:
            assert index not in starts, "a result begins no round"


def test_turns_begin_at_human_messages() -> None:
    for record in records("coding.jsonl"):
        columns = formats.read(record["messages"])
        for start in formats.turns(columns).starts[1:-1]:
            assert columns.roles[start] == "user"
            assert start not in columns.results


def test_rounds_of_many_shapes() -> None:
    def message(role: str, content: Any = "x", **more: Any) -> dict[str, Any]:
        return {"role": role, "content": content, **more}

    def call(*ids: str) -> dict[str, Any]:
        return message("assistant", None, tool_calls=[{"id": each, "function": {"name": "f"}} for each in ids])

    def result(call_id: str) -> dict[str, Any]:
        return message("tool", "r", tool_call_id=call_id)

    history = [
        message("user"),
        call("a", "b"),
        result("b"),
        result("a"),
        call("c"),
        call("d"),
        result("d"),
        result("e"),
        message("tool"),
        message("assistant", function_call={"name": "g", "arguments": "{}"}, content=None),
        message("function", name="g"),
        message("custom", None),
    ]
    units = formats.rounds(formats.read(history))
    assert shape(units) == [(0, 1), (1, 4), (4, 5), (5, 9), (9, 11), (11, 12)]
    assert units.broken == {2, 3}
    late = [call("a"), message("user"), call("b"), result("a"), result("b"), message("user")]
    units = formats.rounds(formats.read(late))
    assert shape(units) == [(0, 5), (5, 6)]
    assert units.broken == {0}


def test_no_history_has_no_units() -> None:
    columns = formats.read([])
    assert formats.rounds(columns).count == formats.turns(columns).count == 0


def test_block_texts() -> None:
    content = [
        "plain",
        {"type": "text", "text": "text"},
        {"type": "input_text", "text": "input"},
        {"type": "refusal", "refusal": "no"},
        {"type": "tool_use", "id": "1", "name": "read", "input": {"path": "ä"}},
        {"type": "tool_result", "tool_use_id": "0", "content": "whole"},
        {"type": "tool_result", "tool_use_id": "0", "content": [{"type": "text", "text": "part"}, {"type": "image"}]},
        {"type": "tool_result", "tool_use_id": "0", "content": ("tuple", {"type": "text", "text": "of both"})},
        {"type": "tool_result", "tool_use_id": "0"},
        {"type": "thinking", "thinking": "hidden"},
        {"type": "text", "text": None},
        {"type": "from the future", "text": "unknown"},
    ]
    columns = formats.read([{"role": "assistant", "content": content}])
    assert columns.texts == ['plain\ntext\ninput\nno\nread {"path": "ä"}\nwhole\npart\ntuple\nof both']
    assert columns.calls == {0: ("1",)}
    assert columns.results == {0: ("0", "0", "0", "0")}


def test_what_is_nested_too_deeply_or_no_json_is_named() -> None:
    nested: Any = "x"
    for _ in range(3000):
        nested = [{"type": "tool_result", "tool_use_id": "1", "content": nested}]
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    for content, problem in [
        (nested, "message 0 is nested too deeply"),
        (
            [{"type": "tool_use", "id": "1", "name": "f", "input": cycle}],
            "message 0 has tool arguments that are no JSON",
        ),
        ([{"type": "tool_use", "id": "1", "name": "f", "input": {(1,): 3}}], "message 0 has tool arguments that are"),
    ]:
        with pytest.raises(MessageError, match=problem):
            formats.read([{"role": "user", "content": content}])
