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
from collections.abc import Iterable, Mapping
from typing import Any


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
