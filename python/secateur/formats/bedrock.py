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

from secateur.formats.wire import BlockFormat, Message, Part


class Bedrock(BlockFormat):
    """Bedrock Converse. The first message is the user's; user and assistant alternate; no content is empty."""

    name = "bedrock"
    alternates = True
    human_roles = ("user",)

    def note(self, text: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"text": text}]}

    def part(self, block: Mapping[str, Any]) -> Part | None:
        call, result = block.get("toolUse"), block.get("toolResult")
        if isinstance(call, Mapping):
            if call.get("input") is None:
                return None
            return Part(
                "arguments", call["input"], lambda text: {**block, "toolUse": {**call, "input": {"note": text}}}
            )
        if isinstance(result, Mapping):
            return Part(
                "result",
                result.get("content"),
                lambda text: {**block, "toolResult": {**result, "content": [{"text": text}]}},
            )
        return None

    def answered(self, block: Mapping[str, Any]) -> str | None:
        result = block.get("toolResult")
        return str(result.get("toolUseId")) if isinstance(result, Mapping) else None

    def answer(self, calls: Sequence[str], text: str, callers: Sequence[Message]) -> list[dict[str, Any]]:
        del callers
        results = [{"toolUseId": call, "content": [{"text": text}], "status": "error"} for call in calls]
        return [{"role": "user", "content": [{"toolResult": result} for result in results]}]

    def filled(self, message: Message, text: str) -> Message:
        return {**message, "content": [{"text": text}]}
