"""Bedrock Converse: like Anthropic's messages, with the kind of a block as its only key.

| what | where |
| --- | --- |
| text | `{"text": …}` |
| call | `{"toolUse": {"toolUseId": …, "name": …, "input": {…}}}` in an assistant message |
| result | `{"toolResult": {"toolUseId": …, "content": [{"text": …}], "status": …}}` in the user message after it |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secateur.formats.wire import Message, Replace, WireFormat, edited


class Bedrock(WireFormat):
    """Bedrock Converse. The first message is the user's; user and assistant alternate; no content is empty."""

    name = "bedrock"
    starts_with_user = True
    shares_results = True
    alternates = True

    def note(self, text: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"text": text}]}

    def is_human(self, message: Message) -> bool:
        blocks = message.get("content") or ()
        return super().is_human(message) and not any("toolResult" in block for block in blocks)

    def edit(self, message: Message, replace: Replace, *, inputs: bool) -> Message:
        content = message.get("content")
        if not isinstance(content, (list, tuple)):
            return message
        place, new = 0, []
        for block in content:
            result = block.get("toolResult") if isinstance(block, Mapping) else None
            call = block.get("toolUse") if isinstance(block, Mapping) else None
            if isinstance(result, Mapping):
                value = result.get("content")
                text = replace(place, value, "result")
                new.append(block if text is value else {**block, "toolResult": {**result, "content": [{"text": text}]}})
                place += 1
            elif isinstance(call, Mapping) and inputs and call.get("input") is not None:
                text = replace(place, call["input"], "arguments")
                same = text is call["input"]
                new.append(block if same else {**block, "toolUse": {**call, "input": {"note": text}}})
                place += 1
            else:
                new.append(block)
        return edited(message, "content", content, new)

    def answer(self, calls: Sequence[str], text: str, callers: Sequence[Message]) -> list[dict[str, Any]]:
        del callers
        results = [{"toolUseId": call, "content": [{"text": text}], "status": "error"} for call in calls]
        return [{"role": "user", "content": [{"toolResult": result} for result in results]}]

    def without_results(self, message: Message, calls: set[str]) -> Message | None:
        blocks = [
            block
            for block in message["content"]
            if not (isinstance(block.get("toolResult"), Mapping) and str(block["toolResult"].get("toolUseId")) in calls)
        ]
        return {**message, "content": blocks} if blocks else None

    def filled(self, message: Message, text: str) -> Message:
        return {**message, "content": [{"text": text}]}
