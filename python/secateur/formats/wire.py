"""What fitting needs of a wire format: notes in its shape, and messages with parts of them replaced.

The parts of a message are the contents of its results and, where arguments may be cleared, the arguments of its calls,
counted from 0 in the order in which they stand. The core counts them the same way (rust/secateur-python/src/formats).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

Message = Mapping[str, Any]
PartKind = Literal["result", "arguments"]
Replace = Callable[[int, Any, PartKind], Any]
"""Takes the place, the value and the kind of a part; returns a text for it, or the value itself to keep it."""


class WireFormat:
    """A wire format; see the subclasses for their rules."""

    name: str
    starts_with_user = False
    """Whether the first message that is no system message must be the human's."""
    alternates = False
    """Whether user and model must take turns."""

    def note(self, text: str) -> dict[str, Any]:
        """A user message that says a text."""
        return {"role": "user", "content": text}

    def edit(self, message: Message, replace: Replace, *, inputs: bool) -> Message:
        """A copy of a message with its parts replaced; the message itself if none is."""
        raise NotImplementedError

    def texts(self, message: Message) -> list[str]:
        """All that a message says, for a counter of texts: strings as they are, all else as JSON."""
        return list(_texts({key: value for key, value in message.items() if key not in _SILENT}))

    def answer(self, calls: Sequence[str], text: str) -> list[dict[str, Any]]:
        """Messages that answer calls with a text."""
        raise NotImplementedError

    def without_results(self, message: Message, calls: set[str]) -> Message | None:
        """A message without its results for some calls; None if nothing is left, as where each result is a message."""
        del message, calls
        return None

    def is_empty(self, message: Message) -> bool:
        """Whether a provider would refuse it for holding nothing."""
        content = message.get("content")
        if isinstance(content, str):
            return not content
        return not content or all(isinstance(block, Mapping) and block.get("text") == "" for block in content)

    def filled(self, message: Message, text: str) -> Message:
        """A copy of an empty message that says a text."""
        return {**message, "content": text}

    def joined(self, first: Message, second: Message) -> Message:
        """Two messages of one role as one."""
        return {**first, "content": [*_as_blocks(first), *_as_blocks(second)]}


def edited(message: Message, key: str, values: Sequence[Any], new: Sequence[Any]) -> Message:
    """A copy of a message with a list in it exchanged, or the message if no element is another object."""
    if all(before is after for before, after in zip(values, new, strict=True)):
        return message
    return {**message, key: list(new)}


def plain_text(value: Any) -> str:
    """The text of the content of a result: its texts joined, all else as JSON."""
    return "\n".join(_texts(value))


def as_json(value: Any) -> str:
    """A value as the JSON that a client would send."""
    return json.dumps(value, ensure_ascii=False, default=str)


_SILENT = frozenset({"role", "id", "tool_call_id", "call_id", "type", "status", "cache_control"})
"""Keys whose values cost nothing of their own, or are counted with the message."""


def _texts(value: Any) -> Iterable[str]:
    if value is None:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        if isinstance(value.get("text"), str):
            yield value["text"]
        elif isinstance(value.get("type"), str) and value["type"] in ("image", "image_url", "input_image"):
            return
        else:
            for key, each in value.items():
                if key not in _SILENT:
                    yield from _texts(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
    else:
        yield as_json(value)


def _as_blocks(message: Message) -> list[Any]:
    content = message.get("content")
    return [{"text": content}] if isinstance(content, str) else list(content or [])
