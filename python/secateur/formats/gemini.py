"""Gemini contents: a role and parts; snake_case names, as the Python SDK dumps them, are read too.

| what | where |
| --- | --- |
| text | `{"text": …}`; the model's role is "model" |
| call | `{"functionCall": {"id": …, "name": …, "args": {…}}}`, the id optional, with a `thoughtSignature` or without |
| result | `{"functionResponse": {"id": …, "name": …, "response": {…}}}` in the content after it; by name, in order |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secateur._core import script_tokens
from secateur.formats.wire import BlockFormat, Message, Part


class Gemini(BlockFormat):
    """Gemini contents. The first is the user's; a call is followed by its results; thought signatures stay."""

    name = "gemini"
    blocks = "parts"
    human_roles = ("user", None)

    def note(self, text: str) -> dict[str, Any]:
        return {"role": "user", "parts": [{"text": text}]}

    def cut_overhead(self, value: Any) -> int:
        # What is no single text is written under a key of its own.
        return 0 if isinstance(value, str) else script_tokens("result") + 2

    def part(self, block: Mapping[str, Any]) -> Part | None:
        if call_key := _key(block, "functionCall", "function_call"):
            call = block[call_key]
            if call.get("args") is None:
                return None
            return Part("arguments", call["args"], lambda text: {**block, call_key: {**call, "args": {"note": text}}})
        if result_key := _key(block, "functionResponse", "function_response"):
            result = block[result_key]
            value = result.get("response")
            # A response of one text keeps its key.
            key = next(iter(value)) if isinstance(value, Mapping) and len(value) == 1 else "result"
            return Part(
                "result", _only_text(value), lambda text: {**block, result_key: {**result, "response": {key: text}}}
            )
        return None

    def answered(self, block: Mapping[str, Any]) -> str | None:
        key = _key(block, "functionResponse", "function_response")
        return _name(block[key]) if key else None

    def answer(self, calls: Sequence[str], text: str, callers: Sequence[Message]) -> list[dict[str, Any]]:
        made: dict[str, list[Mapping[str, Any]]] = {}
        for part in (part for each in callers for part in each["parts"]):
            if key := _key(part, "functionCall", "function_call"):
                made.setdefault(_name(part[key]), []).append(part[key])
        responses: list[dict[str, Any]] = []
        for call in calls:
            # Those of one name that are left unanswered are the last ones.
            last = made[call].pop() if made.get(call) else {"name": call}
            named = {key: last[key] for key in ("id", "name") if key in last}
            responses.append({**named, "response": {"error": text}})
        return [{"role": "user", "parts": [{"functionResponse": response} for response in responses]}]

    def is_empty(self, message: Message) -> bool:
        return not message.get("parts")

    def filled(self, message: Message, text: str) -> Message:
        return {**message, "parts": [{"text": text}]}


def _name(call: Mapping[str, Any]) -> str:
    """What pairs a call with its result: the name, in order; ids stand on one side only with some clients."""
    return str(call.get("name") or call.get("id"))


def _key(part: Any, *names: str) -> str | None:
    """Which of the names a part has a mapping under."""
    if not isinstance(part, Mapping):
        return None
    return next((name for name in names if isinstance(part.get(name), Mapping)), None)


def _only_text(response: Any) -> Any:
    """The text of a response that holds one; else the response."""
    if isinstance(response, Mapping) and len(response) == 1:
        (value,) = response.values()
        return value if isinstance(value, str) else response
    return response
