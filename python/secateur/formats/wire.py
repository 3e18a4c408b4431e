"""What fitting needs of a wire format: notes in its shape, and messages with parts of them replaced.

The parts of a message are the contents of its results and, where arguments may be cleared, the arguments of its calls,
counted from 0 in the order in which they stand. The core counts them the same way (rust/secateur-python/src/formats).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

Message = Mapping[str, Any]
PartKind = Literal["result", "arguments"]
Replace = Callable[[int, Any, PartKind], Any]
"""Takes the place, the value and the kind of a part; returns a text for it, or the value itself to keep it."""


class WireFormat(ABC):
    """A wire format; see the subclasses for their rules."""

    name: str
    starts_with_user = False
    """Whether the first message that is no system message must be the human's."""
    shares_results = False
    """Whether all results of a message stand in one message."""
    alternates = False
    """Whether user and model must take turns."""
    human_roles: tuple[str | None, ...] = ("user", "human")
    """The roles of the human's messages; None stands for no role."""

    def note(self, text: str) -> dict[str, Any]:
        """A user message that says a text."""
        return {"role": "user", "content": text}

    @abstractmethod
    def edit(self, message: Message, replace: Replace, *, inputs: bool) -> Message:
        """A copy of a message with its parts replaced; the message itself if none is."""

    def is_human(self, message: Message) -> bool:
        """Whether it is a message of the human, and not a result that stands under the user's role."""
        return message.get("role") in self.human_roles

    def texts(self, message: Message) -> list[str]:
        """All that a message says, for a counter of texts: strings as they are, all else as JSON, media left out."""
        return [text for key, value in message.items() if key not in _SILENT for text in _texts(value)]

    def media(self, message: Message) -> list[Mapping[str, Any]]:
        """The images, documents, sounds and films that a message holds, as blocks."""
        return [block for value in message.values() for block in _media(value)]

    def cut_overhead(self, value: Any) -> int:
        """Tokens that stand around the text to which a value is cut, beside what stood around the value."""
        del value
        return 0

    @abstractmethod
    def answer(self, calls: Sequence[str], text: str, callers: Sequence[Message]) -> list[dict[str, Any]]:
        """Messages that answer calls with a text, in the shape that the messages which make them ask for."""

    def ordered(self, message: Message) -> Message:
        """A message with its parts in the order that the provider asks for; itself if they are."""
        return message

    def without_empty_texts(self, message: Message) -> Message:
        """A message without the text blocks that hold nothing; itself if there are none."""
        content = message.get("content")
        if not isinstance(content, (list, tuple)):
            return message
        kept = [block for block in content if not _is_empty_text(block)]
        return message if len(kept) == len(content) else {**message, "content": kept}

    def without_results(self, message: Message, calls: set[str]) -> Message | None:
        """A message without its results for some calls; None if nothing is left, as where each result is a message."""
        del message, calls
        return None

    def is_empty(self, message: Message) -> bool:
        """Whether a provider would refuse it for holding nothing."""
        content = message.get("content")
        if isinstance(content, str):
            return not content
        return not content or any(map(_is_empty_text, content))

    def filled(self, message: Message, text: str) -> Message:
        """A copy of an empty message that says a text."""
        return {**message, "content": text}

    def joined(self, first: Message, second: Message) -> Message:
        """Two messages of one role as one."""
        return {**first, "content": [*_as_blocks(first), *_as_blocks(second)]}


class Part(NamedTuple):
    """What can be replaced in a block."""

    kind: PartKind
    value: Any
    put: Callable[[Any], Mapping[str, Any]]
    """Makes the block with a text in place of the value."""


class BlockFormat(WireFormat):
    """A format in which calls and results are blocks within messages, all results of a message in the one after it."""

    blocks = "content"
    """The key of a message under which its blocks stand."""
    starts_with_user = True
    shares_results = True

    @abstractmethod
    def part(self, block: Mapping[str, Any]) -> Part | None:
        """The result or the arguments in a block; None if it holds neither."""

    @abstractmethod
    def answered(self, block: Mapping[str, Any]) -> str | None:
        """What names the call that a block answers; None if the block is no result."""

    def edit(self, message: Message, replace: Replace, *, inputs: bool) -> Message:
        blocks = message.get(self.blocks)
        if not isinstance(blocks, (list, tuple)):
            return message
        place, new = 0, []
        for block in blocks:
            part = self.part(block) if isinstance(block, Mapping) else None
            if part is None or (part.kind == "arguments" and not inputs):
                new.append(block)
                continue
            text = replace(place, part.value, part.kind)
            new.append(block if text is part.value else part.put(text))
            place += 1
        return edited(message, self.blocks, blocks, new)

    def is_human(self, message: Message) -> bool:
        # Asked before the core has read the message, which may be none.
        blocks = message.get(self.blocks)
        holds_results = isinstance(blocks, (list, tuple)) and any(map(self.is_result, blocks))
        return super().is_human(message) and not holds_results

    def without_results(self, message: Message, calls: set[str]) -> Message | None:
        kept = [
            block for block in message[self.blocks] if not (self.is_result(block) and self.answered(block) in calls)
        ]
        return {**message, self.blocks: kept} if kept else None

    def is_result(self, block: object) -> bool:
        """Whether a block is the result of a call."""
        return isinstance(block, Mapping) and self.answered(block) is not None


def edited(message: Message, key: str, values: Sequence[Any], new: Sequence[Any]) -> Message:
    """A copy of a message with a list in it exchanged, or the message if no element is another object."""
    if all(before is after for before, after in zip(values, new, strict=True)):
        return message
    return {**message, key: list(new)}


def plain_text(value: Any) -> str:
    """The text of the content of a result: its texts joined, all else as JSON."""
    return "\n".join(_texts(value))


def as_json(value: Any) -> str:
    """A value as the JSON that a client would send, without the payloads of media."""
    return json.dumps(_without_payloads(value), ensure_ascii=False, default=str)


_SILENT = frozenset({"role", "id", "tool_call_id", "call_id", "type", "status"})
"""Keys of a message that cost nothing of their own, or are counted with it."""
_MEDIA_KINDS = frozenset(
    {
        *("image", "image_url", "input_image", "document", "document_url", "file", "file_url", "input_file"),
        *("audio", "audio_url", "input_audio", "video", "video_url"),
    }
)
"""As in rust/secateur-python/src/formats/meter.rs."""
_MEDIA_KEYS = ("inlineData", "inline_data", "fileData", "file_data", "image", "document", "video")


def is_media(block: Mapping[str, Any]) -> bool:
    """Whether a block is an image, a document, a sound or a film."""
    return block.get("type") in _MEDIA_KINDS or any(isinstance(block.get(key), Mapping) for key in _MEDIA_KEYS)


def _media(value: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        if is_media(value):
            yield value
        else:
            for each in value.values():
                yield from _media(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _media(each)


def _without_payloads(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {} if is_media(value) else {key: _without_payloads(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_payloads(each) for each in value]
    return "" if isinstance(value, bytes) else value


def _texts(value: Any) -> Iterable[str]:
    """A string as it is, the text of a text block, the elements of a list; anything else as JSON."""
    if value is None:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, Mapping) and is_media(value):
        return
    elif isinstance(value, Mapping) and isinstance(value.get("text"), str) and value.get("type", "text") in _TEXTS:
        yield value["text"]
    elif isinstance(value, Mapping) and value.get("type") == "tool_result":
        yield from _texts(value.get("content"))
    elif isinstance(value, Mapping) and isinstance(value.get("toolResult"), Mapping):
        yield from _texts(value["toolResult"].get("content"))
    else:
        yield as_json(value)


def _is_empty_text(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("text") == "" and block.get("type", "text") in _TEXTS


_TEXTS = ("text", "input_text", "output_text")


def _as_blocks(message: Message) -> list[Any]:
    content = message.get("content")
    return [{"text": content}] if isinstance(content, str) else list(content or [])
