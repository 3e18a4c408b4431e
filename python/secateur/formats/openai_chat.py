"""OpenAI chat completions: calls stand beside the content, each result is a message of its own.

| what | where |
| --- | --- |
| call | `tool_calls[].id`, `.function.name`, `.function.arguments` (a JSON string); older: `function_call` |
| result | role "tool" with `tool_call_id`; older: role "function" with `name` |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from secateur.formats.wire import Message, Replace, WireFormat, edited

OLD_CALL_ID = "function_call"
"""Stands for the id that calls of the older form do not have: one call at a time, answered by the next message."""
NO_ID = ""
"""Stands for the id of a result that names no call: it answers one of the calls before it."""


def calls(message: Mapping[str, Any]) -> tuple[tuple[str, ...], list[str]]:
    """Ids of the calls beside the content, and their texts (name and arguments)."""
    ids: list[str] = []
    texts: list[str] = []
    for call in message.get("tool_calls") or ():
        ids.append(str(call.get("id")))
        texts.append(_call_text(call.get("function") or call.get("custom")))
    old_call = message.get("function_call")
    if old_call:
        ids.append(OLD_CALL_ID)
        texts.append(_call_text(old_call))
    return tuple(ids), texts


def results(message: Mapping[str, Any]) -> tuple[str, ...]:
    """Ids of the calls that the message answers, `NO_ID` for one that it does not name."""
    role = message.get("role")
    if role == "tool":
        call = message.get("tool_call_id")
        return (NO_ID if call is None else str(call),)
    return (OLD_CALL_ID,) if role == "function" else ()


def _call_text(function: object) -> str:
    if not isinstance(function, Mapping):
        return ""
    arguments = function.get("arguments") or function.get("input") or ""
    return f"{function.get('name') or ''} {arguments}".strip()


class OpenAIChat(WireFormat):
    """OpenAI chat completions. A result is a message of its own; a call may stand without text; any role may begin."""

    name = "openai_chat"

    def edit(self, message: Message, replace: Replace, *, inputs: bool) -> Message:
        if message.get("role") in ("tool", "function"):
            content = message.get("content")
            new = replace(0, content, "result")
            return message if new is content else {**message, "content": new}
        if not inputs or message.get("role") not in ("assistant", "agent", "model", "ai"):
            return message
        place = 0
        calls = list(message.get("tool_calls") or ())
        new_calls = []
        for call in calls:
            kind = "function" if call.get("function") else "custom"
            function, place = _edited_function(call.get(kind), replace, place)
            new_calls.append(call if function is call.get(kind) else {**call, kind: function})
        message = edited(message, "tool_calls", calls, new_calls) if calls else message
        function, _ = _edited_function(message.get("function_call"), replace, place)
        return message if function is message.get("function_call") else {**message, "function_call": function}

    def answer(self, calls: Sequence[str], text: str, callers: Sequence[Message]) -> list[dict[str, Any]]:
        del callers
        return [
            {"role": "function", "name": "unknown", "content": text}
            if call == OLD_CALL_ID
            else {"role": "tool", "tool_call_id": call, "content": text}
            for call in calls
        ]

    def is_empty(self, message: Message) -> bool:
        if message.get("role") in ("tool", "function"):
            return message.get("content") is None
        spoken = any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))
        return not spoken and super().is_empty(message)


def _edited_function(function: Any, replace: Replace, place: int) -> tuple[Any, int]:
    if not isinstance(function, Mapping):
        return function, place
    key = "arguments" if function.get("arguments") is not None else "input"
    value = function.get(key)
    if value is None:
        return function, place
    new = replace(place, value, "arguments")
    if new is value:
        return function, place + 1
    # The arguments of a function must stay JSON; the input of a custom tool is free text.
    text = json.dumps({"note": new}, ensure_ascii=False) if key == "arguments" else new
    return {**function, key: text}, place + 1
