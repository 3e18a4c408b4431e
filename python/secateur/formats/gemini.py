"""Gemini contents: a role and parts; snake_case names, as the Python SDK dumps them, are read too.

| what | where |
| --- | --- |
| text | `{"text": …}`; the model's role is "model" |
| call | `{"functionCall": {"id": …, "name": …, "args": {…}}}`, the id optional, with a `thoughtSignature` or without |
| result | `{"functionResponse": {"id": …, "name": …, "response": {…}}}` in the content after it; without ids by order |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secateur.formats.wire import Message, Replace, WireFormat, edited


class Gemini(WireFormat):
    """Gemini contents. The first is the user's; a call is followed by its results; thought signatures stay."""

    name = "gemini"
    starts_with_user = True

    def note(self, text: str) -> dict[str, Any]:
        return {"role": "user", "parts": [{"text": text}]}

    def edit(self, message: Message, replace: Replace, *, inputs: bool) -> Message:
        parts = message.get("parts")
        if not isinstance(parts, (list, tuple)):
            return message
        place, new = 0, []
        for part in parts:
            call_key, result_key = (
                _key(part, "functionCall", "function_call"),
                _key(part, "functionResponse", "function_response"),
            )
            if result_key and not call_key:
                result = part[result_key]
                value = result.get("response")
                text = replace(place, _only_text(value), "result")
                same = text is _only_text(value)
                # A response of one text keeps its key.
                key = next(iter(value)) if isinstance(value, Mapping) and len(value) == 1 else "result"
                new.append(part if same else {**part, result_key: {**result, "response": {key: text}}})
                place += 1
            elif call_key and inputs and part[call_key].get("args") is not None:
                arguments = part[call_key]["args"]
                text = replace(place, arguments, "arguments")
                same = text is arguments
                new.append(part if same else {**part, call_key: {**part[call_key], "args": {"note": text}}})
                place += 1
            else:
                new.append(part)
        return edited(message, "parts", parts, new)

    def answer(self, calls: Sequence[str], text: str) -> list[dict[str, Any]]:
        responses = [{"name": call, "response": {"error": text}} for call in calls]
        return [{"role": "user", "parts": [{"functionResponse": response} for response in responses]}]

    def without_results(self, message: Message, calls: set[str]) -> Message | None:
        parts = [part for part in message["parts"] if not self._answers(part, calls)]
        return {**message, "parts": parts} if parts else None

    def _answers(self, part: Any, calls: set[str]) -> bool:
        key = _key(part, "functionResponse", "function_response")
        return bool(key) and str(part[key].get("id") or part[key].get("name")) in calls

    def is_empty(self, message: Message) -> bool:
        return not message.get("parts")

    def filled(self, message: Message, text: str) -> Message:
        return {**message, "parts": [{"text": text}]}


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
