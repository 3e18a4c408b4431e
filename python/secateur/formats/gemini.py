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
from secateur.formats.wire import Message, Replace, WireFormat, edited


class Gemini(WireFormat):
    """Gemini contents. The first is the user's; a call is followed by its results; thought signatures stay."""

    name = "gemini"
    starts_with_user = True
    shares_results = True

    def note(self, text: str) -> dict[str, Any]:
        return {"role": "user", "parts": [{"text": text}]}

    def is_human(self, message: Message) -> bool:
        answers = any(_key(part, "functionResponse", "function_response") for part in message.get("parts") or ())
        return message.get("role") in ("user", None) and not answers

    def cut_overhead(self, value: Any) -> int:
        # What is no single text is written under a key of its own.
        return 0 if isinstance(value, str) else script_tokens("result") + 2

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

    def without_results(self, message: Message, calls: set[str]) -> Message | None:
        parts = [part for part in message["parts"] if not self._answers(part, calls)]
        return {**message, "parts": parts} if parts else None

    def _answers(self, part: Any, calls: set[str]) -> bool:
        key = _key(part, "functionResponse", "function_response")
        return key is not None and _name(part[key]) in calls

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
