"""OpenAI chat completions: calls stand beside the content, each result is a message of its own.

| what | where |
| --- | --- |
| call | `tool_calls[].id`, `.function.name`, `.function.arguments` (a JSON string); older: `function_call` |
| result | role "tool" with `tool_call_id`; older: role "function" with `name` |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
