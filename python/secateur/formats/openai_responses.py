"""OpenAI Responses: a list of items.

| what | where |
| --- | --- |
| text | `{"type": "message", "role": …, "content": text or [{"type": "input_text" or "output_text", "text": …}]}` |
| call | `{"type": "function_call", "call_id": …, "name": …, "arguments": …}`; also custom and built-in tools |
| result | `{"type": "function_call_output", "call_id": …, "output": …}` |
| kept whole | reasoning items, with the item that follows them; built-in tool items; compaction items |
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from secateur.formats.wire import Message, Replace, WireFormat


class OpenAIResponses(WireFormat):
    """OpenAI Responses. One response is a run of items of the model; the outputs of its calls come after it."""

    name = "openai_responses"

    def note(self, text: str) -> dict[str, Any]:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}

    def is_human(self, message: Message) -> bool:
        return message.get("type", "message") == "message" and super().is_human(message)

    def edit(self, message: Message, replace: Replace, *, inputs: bool) -> Message:
        kind = message.get("type")
        if kind in ("function_call_output", "custom_tool_call_output"):
            output = message.get("output")
            text = replace(0, output, "result")
            return message if text is output else {**message, "output": text}
        if inputs and kind in ("function_call", "custom_tool_call"):
            key = "arguments" if message.get("arguments") is not None else "input"
            value = message.get(key)
            text = value if value is None else replace(0, value, "arguments")
            if text is not value:
                return {**message, key: json.dumps({"note": text}) if key == "arguments" else text}
        return message

    def answer(self, calls: Sequence[str], text: str, callers: Sequence[Message]) -> list[dict[str, Any]]:
        kinds = {str(item.get("call_id")): item.get("type", "function_call") for item in callers}
        return [
            {"type": f"{kinds.get(call, 'function_call')}_output", "call_id": call, "output": text} for call in calls
        ]

    def is_empty(self, message: Message) -> bool:
        return message.get("type", "message") == "message" and super().is_empty(message)
