"""What requests cost: against what providers billed, by hand, in every wire format, and on odd messages."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from samples import records
from secateur import MessageError, OptionError
from secateur._core import media_tokens
from secateur.billing import message_tokens, request_tokens, tool_tokens
from secateur.blocks import call_names
from secateur.formats import FORMATS
from secateur.frames import DEFAULT, FRAMES, frame_for
from secateur.renderings import read_tools, typescript

RECORDED = records("usage.jsonl")
WIRE = {"openai": "openai_chat", "responses": "openai_responses"}


def words(text: str) -> int:
    """A counter that can be followed by hand."""
    return len(text.split())


def billed(record: Mapping[str, Any]) -> int:
    keys = ("prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount")
    return int(next(record["usage"][key] for key in keys if key in record["usage"]))


# ---- Against what was billed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: record["id"])
def test_a_recorded_request_costs_what_was_billed(record: dict[str, Any]) -> None:
    before = copy.deepcopy(record)
    counted = request_tokens(
        record["messages"],
        model=record["model"],
        counter=record["counts"].__getitem__,
        system=record.get("system"),
        tools=record.get("tools"),
        format=WIRE.get(record["format"], record["format"]),
        tool_choice=(record.get("params") or {}).get("tool_choice"),
    )
    assert counted == billed(record)
    assert record == before


def test_the_sample_has_calls_tools_and_formats() -> None:
    assert len(RECORDED) == 12
    assert {record["format"] for record in RECORDED} == {"openai", "responses", "anthropic", "bedrock", "gemini"}
    assert sum(bool(record.get("tools")) for record in RECORDED) >= 5


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: record["id"])
def test_messages_add_up_to_the_request(record: dict[str, Any]) -> None:
    wire = WIRE.get(record["format"], record["format"])
    frame, names = frame_for(record["model"], wire), call_names(record["messages"])
    each = [message_tokens(message, frame, words, names=names) for message in record["messages"]]
    request = request_tokens(record["messages"], model=record["model"], counter=words, format=wire)
    merged = sum(_side(one) == _side(two) for one, two in zip(record["messages"], record["messages"][1:], strict=False))
    assert sum(each) + frame.request - (frame.message * merged if frame.merged else 0) == request


def _side(message: Mapping[str, Any]) -> str:
    role = str(message.get("role"))
    return "user" if role == "tool" else role


# ---- The rules, by hand --------------------------------------------------------------------------------------------

USER = {"role": "user", "content": "one two three"}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o", 3 + 4 + 3),
        ("gpt-5", 2 + 4 + 3),
        ("o3-mini", 2 + 4 + 3),
        ("claude-sonnet-4", 4 + 3 + 3),
        ("claude-opus-4-8", 4 + 2 + 3),
        ("gemini-2.0-flash", 3),
        ("gemini-2.5-flash", 1 + 3),
        ("mistral-small-latest", 13 + 2 + 3),
        ("llama3.1:8b", 5 + 25 + 5 + 3),
        ("mystery", 3 + 4 + 3),
    ],
)
def test_one_message(model: str, expected: int) -> None:
    assert request_tokens([USER], model=model, counter=words) == expected


def test_names_and_earlier_answers() -> None:
    named = [{**USER, "name": "user"}, {**USER, "name": "Ann"}, {"role": "assistant", "content": "yes"}]
    assert request_tokens(named, model="gpt-4o", counter=words) == 3 + (4 + 3 + 1) + (4 + 3 + 2) + (4 + 1)
    assert request_tokens(named, model="gpt-5", counter=words) == 2 + (4 + 3 + 1) + (4 + 3 + 2) + (4 + 1 + 2)


def test_texts_of_a_message_are_joined_where_the_provider_joins_them() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "on"}, {"type": "text", "text": "ce more"}]}]
    assert request_tokens(parts, model="gpt-4o", counter=words) == 3 + 4 + 2
    assert request_tokens(parts, model="mystery", counter=words) == 3 + 4 + 3


def test_system_prompts_in_every_shape() -> None:
    for system in (
        "be brief",
        [{"type": "text", "text": "be brief"}],
        {"parts": [{"text": "be brief"}]},
        {"text": "be brief"},
    ):
        assert request_tokens([USER], model="gpt-4o", counter=words, system=system) == 3 + 4 + 3 + 4 + 2
    assert request_tokens([USER], model="claude-sonnet-4-5", counter=words, system="be brief") == 4 + 3 + 3 + 2


def test_anthropic_merges_neighbours_and_continues_an_answer() -> None:
    frame = frame_for("claude-sonnet-4-5")
    twice = request_tokens([USER, USER], model="claude-sonnet-4-5", counter=words)
    assert twice == frame.request + frame.message + 6
    prefilled = [USER, {"role": "assistant", "content": "so"}]
    assert request_tokens(prefilled, model="claude-sonnet-4-5", counter=words) == 1 + 3 + 3 + 3 + 1


CALL = {"id": "1", "type": "function", "function": {"name": "now", "arguments": '{"zone": "UTC"}'}}
LOOPS: dict[str, list[dict[str, Any]]] = {
    "openai_chat": [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "noon sharp"},
    ],
    "openai_responses": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one two three"}]},
        {"type": "function_call", "call_id": "1", "name": "now", "arguments": '{"zone": "UTC"}'},
        {"type": "function_call_output", "call_id": "1", "output": "noon sharp"},
    ],
    "anthropic": [
        USER,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "now", "input": {"zone": "UTC"}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "noon sharp"}]}
            ],
        },
    ],
    "bedrock": [
        {"role": "user", "content": [{"text": "one two three"}, {"cachePoint": {"type": "default"}}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "1", "name": "now", "input": {"zone": "UTC"}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "1", "content": [{"text": "noon sharp"}]}}]},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "one two three"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "now", "args": {"zone": "UTC"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "now", "response": {"result": "noon sharp"}}}]},
    ],
}


@pytest.mark.parametrize("shape", LOOPS)
@pytest.mark.parametrize("given_format", [True, False])
def test_the_rule_is_the_models_and_not_the_shapes(shape: str, given_format: bool) -> None:
    messages = LOOPS[shape]
    name = shape if given_format else None
    before = json.dumps(messages)

    def count(model: str) -> int:
        return request_tokens(messages, model=model, counter=words, format=name)

    result = 3 if shape == "gemini" else 2  # with its key, as JSON
    # Anthropic: three messages, the frame of the call with an argument, its name, key and value, the result.
    assert count("claude-sonnet-4-5") == 4 + 3 * 3 + 3 + (40 + 1 + 14 + 1 + 1) + result
    openai = frame_for("gpt-4o", shape)
    assert count("gpt-4o") == 3 + 4 + 3 + (openai.call + 1 + 2) + (openai.result + 1 + result)
    assert json.dumps(messages) == before


def test_gemini_counts_names_and_strings() -> None:
    counted = request_tokens(LOOPS["gemini"], model="gemini-2.5-flash", counter=words)
    assert counted == (1 + 3) + (9 + 1 + 1 + 1) + (9 + 1 + 1 + 2)


def test_several_calls_of_a_message() -> None:
    both: list[dict[str, Any]] = [USER, {"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "2"}]}]
    one: list[dict[str, Any]] = [USER, {"role": "assistant", "tool_calls": [CALL]}]

    def more(model: str) -> int:
        return request_tokens(both, model=model, counter=words) - request_tokens(one, model=model, counter=words)

    assert more("gpt-4o") == 7 + 1 + 2 + 8
    assert more("claude-sonnet-4-5") == 40 + 1 + 14 + 1 + 1 + 18


def test_thinking_of_the_running_turn() -> None:
    thought = {"type": "thinking", "thinking": "a b c", "signature": "x" * 400}
    call = {"type": "tool_use", "id": "1", "name": "now", "input": {}}
    messages: list[dict[str, Any]] = [USER, {"role": "assistant", "content": [thought, call]}, LOOPS["anthropic"][2]]
    without: list[dict[str, Any]] = [USER, {"role": "assistant", "content": [call]}, LOOPS["anthropic"][2]]

    def more(model: str, *rest: dict[str, Any]) -> int:
        with_it = request_tokens([*messages, *rest], model=model, counter=words)
        return with_it - request_tokens([*without, *rest], model=model, counter=words)

    assert more("claude-sonnet-4-5") == 15 + 3
    assert more("claude-sonnet-4") == 8 + 3
    done = [{"role": "assistant", "content": "noon"}, USER]
    assert more("claude-sonnet-4-5", *done) == 0
    assert more("claude-opus-4-5", *done) == 15 + 3
    on = request_tokens(messages, model="claude-sonnet-4-5", counter=words, thinking={"type": "enabled"})
    assert on == request_tokens(messages, model="claude-sonnet-4-5", counter=words) + 29


def test_encrypted_reasoning_of_the_running_turn() -> None:
    reasoning = {"type": "reasoning", "summary": [], "encrypted_content": "g" * 1900}
    user, call, output = LOOPS["openai_responses"]

    def count(*items: dict[str, Any]) -> int:
        return request_tokens(items, model="gpt-5", counter=words, format="openai_responses")

    assert count(user, reasoning, call, output) == count(user, call, output) + 150
    assert count(user, reasoning, call, output, user) == count(user, call, output, user)


# ---- Tools and schemas ---------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where"},
        "unit": {"enum": ["C", "F"], "default": "C"},
        "days": {"type": ["integer", "null"]},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/Stop"}},
    },
    "required": ["city"],
    "$defs": {"Stop": {"title": "Stop", "type": "object", "properties": {"at": {"type": "string", "title": "At"}}}},
}
FUNCTION = {"name": "weather", "description": "Says\nthe weather", "parameters": SCHEMA}
TOOLS: dict[str, Any] = {
    "chat": [{"type": "function", "function": FUNCTION}],
    "responses": [{"type": "function", **FUNCTION}],
    "old": [FUNCTION],
    "anthropic": [{"name": "weather", "description": "Says\nthe weather", "input_schema": SCHEMA}],
    "gemini": [{"functionDeclarations": [FUNCTION]}],
    "bedrock": {
        "tools": [
            {"toolSpec": {"name": "weather", "description": "Says\nthe weather", "inputSchema": {"json": SCHEMA}}},
            {"cachePoint": {"type": "default"}},
        ]
    },
}


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-5", "claude-sonnet-4-5", "gemini-2.5-flash", "qwen3", "gpt-oss"])
def test_tools_cost_the_same_in_every_shape(model: str) -> None:
    counted = {shape: tool_tokens(tools, frame_for(model), words) for shape, tools in TOOLS.items()}
    assert len(set(counted.values())) == 1
    assert min(counted.values()) > 10
    request = request_tokens([USER], model=model, counter=words, tools=TOOLS["chat"])
    assert request == request_tokens([USER], model=model, counter=words) + counted["chat"]


def test_tools_as_openai_writes_them() -> None:
    text, excess = typescript(read_tools(TOOLS["chat"]))
    assert excess == 0
    assert text == (
        "namespace functions {\n\n// Says\n// the weather\ntype weather = (_: {\n// Where\ncity: string,\n"
        'unit?: "C" | "F", // default: "C"\ndays?: number | null,\n'
        "stops?: Array<\n// Stop\n{\n// At\nat?: string,\n}\n>,\n}) => any;\n\n} // namespace functions"
    )
    assert typescript(read_tools([{"name": "now"}, {"name": "add", "parameters": {"properties": {"a": {}}}}])) == (
        "namespace functions {\n\ntype now = () => any;\n\ntype add = (_: {\na?: any,\n}) => any;\n\n"
        "} // namespace functions",
        1,
    )


def test_tools_stand_at_the_end_of_the_system_message() -> None:
    seen: list[str] = []

    def counter(text: str) -> int:
        seen.append(text)
        return words(text)

    request_tokens(
        [{"role": "system", "content": "be brief"}, USER], model="gpt-4o", counter=counter, tools=TOOLS["chat"]
    )
    assert any(text.startswith("be brief\n\n# Tools\n\n## functions\n\nnamespace") for text in seen)


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "any"},
        {"any": {}},
        {"functionCallingConfig": {"mode": "ANY"}},
        {"toolChoice": {"any": {}}},
    ],
)
def test_a_call_that_must_be_made(choice: Any) -> None:
    frame = frame_for("claude-sonnet-4-5")
    assert tool_tokens(TOOLS["chat"], frame, words, tool_choice=choice) == tool_tokens(TOOLS["chat"], frame, words) + 91


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "weather"}},
        {"type": "tool", "name": "weather"},
        {"tool": {"name": "weather"}},
    ],
)
def test_one_tool_that_must_be_called(choice: Any) -> None:
    for model, more in (("claude-sonnet-4-5", 97), ("gpt-4o", 4 + 1), ("gpt-5", 0)):
        frame = frame_for(model)
        plain = tool_tokens(TOOLS["chat"], frame, words)
        assert tool_tokens(TOOLS["chat"], frame, words, tool_choice=choice) == plain + more


def test_other_choices() -> None:
    claude, qwen = frame_for("claude-sonnet-4-5"), frame_for("qwen3")
    single = {"type": "auto", "disable_parallel_tool_use": True}
    plain = tool_tokens(TOOLS["chat"], claude, words)
    assert tool_tokens(TOOLS["chat"], claude, words, tool_choice=single) == plain - 207
    assert tool_tokens(TOOLS["chat"], claude, words, tool_choice="none") == plain
    assert tool_tokens(TOOLS["chat"], qwen, words, tool_choice="none") == 0
    assert tool_tokens([], claude, words) == tool_tokens(None, claude, words) == 0


def test_schemas_of_the_response() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    named = {"name": "out", "schema": schema}
    chat = {"type": "json_schema", "json_schema": named}
    responses = {"format": {"type": "json_schema", **named}}

    def more(model: str, given: Any, wire: str | None = None) -> int:
        with_it = request_tokens([USER], model=model, counter=words, response_format=given, format=wire)
        return with_it - request_tokens([USER], model=model, counter=words, format=wire)

    assert more("gpt-4o", chat) == 8 + words("# Response Formats\n\n## out\n\n{}")
    assert more("gpt-4o", responses, "openai_responses") == 7 + 2
    assert more("gpt-5", responses, "openai_responses") == 6 + 2
    assert more("claude-sonnet-4-5", {"format": {"schema": schema}}) == 117 + words(json.dumps(schema))
    assert more("mistral-small", {"type": "json_object"}) == -12
    assert more("gpt-4o", {"type": "json_object"}) == more("gemini-2.5-flash", chat) == 0


# ---- Media, payloads, unknown blocks -------------------------------------------------------------------------------

PAYLOAD = "iVBORw0KGgo" * 400
IMAGES: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PAYLOAD}"}}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{PAYLOAD}"}]},
    {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": PAYLOAD}}]},
    {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": PAYLOAD}}]},
    {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}]},
    {"role": "user", "content": [{"type": "file_url", "file_url": {"url": PAYLOAD}}]},
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "image", "source": {}}]}],
    },
    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_image", "image_url": PAYLOAD}]},
]


@pytest.mark.parametrize("message", IMAGES)
def test_media_are_counted_by_the_hook(message: dict[str, Any]) -> None:
    seen: list[Mapping[str, Any]] = []

    def media(block: Mapping[str, Any]) -> int:
        seen.append(block)
        return 85

    frame = replace(FRAMES[DEFAULT], result=4)
    assert message_tokens(message, frame, len, media=media) == 4 + 85
    assert message_tokens(message, frame, len) == 4 + media_tokens(dict(seen[0]), "")
    assert len(seen) == 1


def test_unknown_blocks_are_json_without_payloads() -> None:
    frame = frame_for("mystery")
    odd = {"role": "user", "content": [{"type": "hologram", "depth": 3, "blob": PAYLOAD}]}
    assert message_tokens(odd, frame, len) == 4 + len('{"type": "hologram", "depth": 3, "blob": ""}')
    item = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PAYLOAD}
    assert message_tokens(item, frame, len) == 4 + len('{"type": "image_generation_call", "result": ""}')


# ---- What cannot be read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("text", "is a str, expected a mapping"),
        ({"content": "no role"}, "has role None"),
        ({"role": "", "content": "x"}, "has role ''"),
        ({"role": "user", "content": 5}, "has content of type int"),
        ({"role": "user", "content": [5]}, "has a block of type int"),
        ({"role": "assistant", "tool_calls": "x"}, "has tool_calls of type str"),
        ({"role": "assistant", "tool_calls": [5]}, "has a tool call of type int"),
        ({"role": "assistant", "content": [{"type": "tool_use", "input": {(1, 2): 3}}]}, "is not writable as JSON"),
    ],
)
def test_malformed_messages(message: Any, problem: str) -> None:
    with pytest.raises(MessageError, match=f"message 1 {problem}".replace("(", r"\(")):
        request_tokens([USER, message], model="gpt-4o", counter=words, format="openai_chat")


@pytest.mark.parametrize("depth", [300, 900, 100_000])
@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-5", "gemini-2.5-flash"])
def test_deep_values_are_counted_or_refused(depth: int, model: str) -> None:
    deep: Any = "x"
    for _ in range(depth):
        deep = {"a": deep}
    messages = [{"role": "assistant", "content": [{"type": "tool_use", "name": "now", "input": deep}]}]
    written = [
        {"role": "assistant", "tool_calls": [{"function": {"name": "now", "arguments": "[" * depth + "]" * depth}}]}
    ]
    for given_messages in (messages, written):
        with suppress(MessageError):
            request_tokens(given_messages, model=model, counter=len)
    with suppress(OptionError):
        tool_tokens([{"name": "now", "parameters": {"properties": {"a": deep}, "items": deep}}], frame_for(model), len)


@pytest.mark.parametrize(
    "options",
    [
        {"messages": "text"},
        {"messages": USER},
        {"format": "telegram"},
        {"counter": 5},
        {"counter": lambda _: -1},
        {"counter": lambda _: 1.5},
        {"tools": "now"},
        {"tools": [5]},
        {"tools": [{"name": "x", "parameters": {"properties": {"a": {"enum": [{(1, 2): 3}]}}}}]},
        {"system": 5},
        {"media": 5},
        {"messages": [IMAGES[0]], "media": lambda _: "many"},
    ],
)
def test_other_arguments_that_cannot_be_read(options: dict[str, Any]) -> None:
    given = {"messages": [USER], "model": "gpt-4o", "counter": words, **options}
    with pytest.raises(OptionError):
        request_tokens(given.pop("messages"), **given)


KEY_NAMES = (
    "role content parts type text name id input args arguments output tool_calls function call_id toolUse toolResult "
    "functionCall functionResponse response json thinking reasoningContent source image $ref properties items enum "
    "anyOf required schema parameters mode tool"
)
KEYS = st.sampled_from(KEY_NAMES.split())
KIND_NAMES = (
    "user assistant system tool function model text tool_use tool_result thinking reasoning function_call image "
    "function_call_output message object array string #/properties ANY auto now"
)
KINDS = st.sampled_from(KIND_NAMES.split())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | KINDS | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
MODELS = ["gpt-4o", "gpt-5", "claude-sonnet-4-5", "gemini-2.5-flash", "qwen3", "gpt-oss", "mystery"]


@given(
    messages=st.lists(st.dictionaries(KEYS, VALUES, max_size=5) | VALUES, max_size=4),
    model=st.sampled_from(MODELS),
    wire=st.none() | st.sampled_from(sorted(FORMATS)),
    options=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("system", "tools", "tool_choice", "response_format", "thinking"), VALUES),
    ),
)
@example(messages=[], model="gpt-4o", wire=None, options={})
def test_odd_messages_are_counted_or_refused_and_never_changed(
    messages: list[Any], model: str, wire: str | None, options: dict[str, Any]
) -> None:
    before = repr((messages, options))
    with suppress(MessageError, OptionError):
        assert isinstance(request_tokens(messages, model=model, counter=len, format=wire, **options), int)
    assert repr((messages, options)) == before
