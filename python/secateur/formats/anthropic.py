"""Anthropic messages: calls and results are blocks within the content.

| what | where |
| --- | --- |
| text | `{"type": "text", "text": …}`, as in OpenAI's content parts |
| call | `{"type": "tool_use", "id": …, "name": …, "input": {…}}` in an assistant message |
| result | `{"type": "tool_result", "tool_use_id": …, "content": text or blocks}` in the user message after it |

Thinking, images, documents and unknown blocks hold no text to search.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from secateur.formats.wire import BlockFormat, Message, Part, edited


def calls(content: Iterable[object]) -> tuple[str, ...]:
    """Ids of the calls among the blocks."""
    return tuple(str(block.get("id")) for block in _blocks(content, "tool_use"))


def results(content: Iterable[object]) -> tuple[str, ...]:
    """Ids of the calls that blocks answer."""
    return tuple(str(block.get("tool_use_id")) for block in _blocks(content, "tool_result"))


def block_text(block: Mapping[str, Any]) -> str:
    """The text of a block, "" if it has none."""
    kind = block.get("type")
    if kind == "tool_use":
        arguments = json.dumps(block.get("input"), ensure_ascii=False, default=str)
        return f"{block.get('name') or ''} {arguments}".strip()
    if kind == "tool_result":
        content = block.get("content")
        if isinstance(content, str):
            return content
        parts = content if isinstance(content, (list, tuple)) else ()
        texts = (
            part if isinstance(part, str) else block_text(part) for part in parts if isinstance(part, (str, Mapping))
        )
        return "\n".join(filter(None, texts))
    for key in ("text", "refusal"):
        if kind in (key, f"input_{key}", f"output_{key}") and isinstance(block.get(key), str):
            return str(block[key])
    return ""


def _blocks(content: Iterable[object], kind: str) -> Iterable[Mapping[str, Any]]:
    return (block for block in content if isinstance(block, Mapping) and block.get("type") == kind)


class Anthropic(BlockFormat):
    """Anthropic messages.

    The first message is the user's. All results of a message stand in the one user message directly after it, before
    any text. Messages of one role in a row are taken as one. Thinking blocks are kept byte for byte, with their
    signatures, or removed with their message. No content may be empty.
    """

    name = "anthropic"

    def part(self, block: Mapping[str, Any]) -> Part | None:
        if block.get("type") == "tool_result":
            return Part("result", block.get("content"), lambda text: {**block, "content": text})
        if block.get("type") == "tool_use" and block.get("input") is not None:
            return Part("arguments", block["input"], lambda text: {**block, "input": {"note": text}})
        return None

    def answered(self, block: Mapping[str, Any]) -> str | None:
        return str(block.get("tool_use_id")) if block.get("type") == "tool_result" else None

    def answer(self, calls: Sequence[str], text: str, callers: Sequence[Message]) -> list[dict[str, Any]]:
        del callers
        blocks = [{"type": "tool_result", "tool_use_id": call, "content": text, "is_error": True} for call in calls]
        return [{"role": "user", "content": blocks}]

    def ordered(self, message: Message) -> Message:
        content = message.get("content")
        if not isinstance(content, (list, tuple)):
            return message
        # Sorting is stable: results first, each kind in its own order.
        return edited(message, "content", content, sorted(content, key=lambda block: not self.is_result(block)))
