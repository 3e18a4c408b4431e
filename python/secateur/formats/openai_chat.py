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
    """Ids of the calls that the message answers; a "tool" message without an id is plain text."""
    role = message.get("role")
    if role == "tool" and message.get("tool_call_id") is not None:
        return (str(message["tool_call_id"]),)
    return (OLD_CALL_ID,) if role == "function" else ()


def _call_text(function: object) -> str:
    if not isinstance(function, Mapping):
        return ""
    arguments = function.get("arguments") or function.get("input") or ""
    return f"{function.get('name') or ''} {arguments}".strip()
