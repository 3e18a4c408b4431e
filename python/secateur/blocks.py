"""What messages say, block by block, for counting: texts, calls, results, thinking and media of every wire format.

A message is read by what it carries, so that a history may mix formats. Nothing is changed. Payloads and signatures are
no text; a block of unknown kind is one, as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from secateur import renderings
from secateur.errors import MessageError, OptionError
from secateur.formats import Message, wire


class Block(NamedTuple):
    """A part of a message."""

    kind: Literal["text", "call", "result", "thinking", "encrypted", "media"]
    name: str = ""
    """Of the tool that is called or that answers; "" where a result does not say."""
    call: str = ""
    """Id of the call that a result answers."""
    value: Any = ""
    """A text; arguments as they are given; the text of a result, or a mapping; the block of media."""
    media: tuple[Mapping[str, Any], ...] = ()
    """What a result shows."""


class Said(NamedTuple):
    """What a message says."""

    role: str
    name: str | None
    blocks: list[Block]

    @property
    def is_plain(self) -> bool:
        """Whether it is not only calls and results."""
        return not self.blocks or any(block.kind in ("text", "media") for block in self.blocks)


def call_names(messages: Iterable[Message]) -> dict[str, str]:
    """Return the names of the tools that are called, by the id of the call.

    >>> call_names([{"type": "function_call", "call_id": "1", "name": "now", "arguments": "{}"}])
    {'1': 'now'}
    """
    names: dict[str, str] = {}
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        if isinstance(message.get("call_id"), str) and isinstance(message.get("name"), str):
            names[message["call_id"]] = message["name"]
        calls = message.get("tool_calls")
        content = message.get("content")
        for block in (
            *(calls if isinstance(calls, (list, tuple)) else ()),
            *(content if isinstance(content, (list, tuple)) else ()),
        ):
            if isinstance(block, Mapping):
                call = next((block[key] for key in _INNER_CALLS if isinstance(block.get(key), Mapping)), block)
                name, identifier = call.get("name"), call.get("toolUseId") or block.get("id")
                if isinstance(name, str) and isinstance(identifier, str):
                    names[identifier] = name
    return names


_INNER_CALLS = ("function", "custom", "toolUse")


_TEXTS = ("text", "input_text", "output_text", "refusal")
_ENCRYPTED = frozenset({"encrypted_content", "thoughtSignature", "thought_signature"})
_PAYLOAD = re.compile(r"data:[^,]{0,200},.{64,}|[A-Za-z0-9+/_-]{256,}={0,2}", re.DOTALL)


def read(message: object, index: int) -> Said:
    """Read a message.

    Raises:
        MessageError: If it cannot be read, at that index.
    """
    if not isinstance(message, Mapping):
        hint = "; pass its model_dump()" if hasattr(message, "model_dump") else ""
        raise MessageError(index, f"is a {type(message).__name__}, expected a mapping{hint}")
    try:
        kind = message.get("type")
        if isinstance(kind, str) and kind != "message" and "role" not in message:
            return _item(message, kind)
        return _message(message, index)
    except (TypeError, ValueError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(index, f"is not writable as JSON: {error}") from error
    except RecursionError:
        raise MessageError(index, "is nested too deeply") from None


def _item(item: Message, kind: str) -> Said:
    """An item of OpenAI Responses that is no message."""
    if kind in ("function_call", "custom_tool_call"):
        return Said("assistant", None, [_call(item)])
    if kind.endswith("_call_output"):
        return Said("tool", None, [_result(item.get("call_id"), item.get("output"))])
    if kind == "reasoning":
        if isinstance(item.get("encrypted_content"), str):
            return Said("assistant", None, [Block("encrypted", value=item["encrypted_content"])])
        return Said("assistant", None, [Block("thinking", value=_joined(item.get("content")))])
    said = {key: value for key, value in item.items() if key not in _SAYING_NOTHING}
    return Said("assistant", None, [Block("text", value=_as_text(said))])


def _message(message: Message, index: int) -> Said:
    role = message.get("role")
    if role is None and "parts" in message:
        role = "user"
    if not isinstance(role, str) or not role:
        raise MessageError(index, f"has role {role!r}, expected a non-empty string")
    given = message.get("content")
    if "parts" in message:
        given = [message["parts"]] if isinstance(message["parts"], Mapping) else message["parts"]
    content = _checked_blocks(given, index)
    name = _string(message.get("name")) or None
    if role in ("tool", "function"):
        call = message.get("tool_call_id")
        return Said(role, None, [_result(call, content, name if call is None else None)])
    blocks: list[Block] = []
    if isinstance(message.get("reasoning_content"), str):
        blocks.append(Block("thinking", value=message["reasoning_content"]))
    if isinstance(message.get("refusal"), str):
        blocks.append(Block("text", value=message["refusal"]))
    blocks += [found for block in content if (found := _read_block(block))]
    blocks += map(_call, _calls_beside(message, index))
    if any(block.kind in ("call", "result") for block in blocks):
        blocks = [block for block in blocks if block.kind != "text" or block.value]
    return Said("assistant" if role == "model" else role, name, blocks)


def _calls_beside(message: Message, index: int) -> list[Mapping[str, Any]]:
    """The calls that stand beside the content."""
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, (list, tuple)):
        raise MessageError(index, f"has tool_calls of type {type(calls).__name__}, expected a list or None")
    found = []
    for call in calls or ():
        if not isinstance(call, Mapping):
            raise MessageError(index, f"has a tool call of type {type(call).__name__}, expected a mapping")
        found.append(call.get("function") or call.get("custom"))
    if message.get("function_call"):
        found.append(message["function_call"])
    return [function if isinstance(function, Mapping) else {} for function in found]


def _checked_blocks(given: Any, index: int) -> Sequence[Any]:
    if given is None:
        return ()
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, (list, tuple)):
        raise MessageError(index, f"has content of type {type(given).__name__}, expected a string, a list or None")
    for block in given:
        if not isinstance(block, (str, Mapping)):
            hint = "; pass its model_dump()" if hasattr(block, "model_dump") else ""
            kind = type(block).__name__
            raise MessageError(index, f"has a block of type {kind}, expected a string or a mapping{hint}")
    return given


def _call(call: Mapping[str, Any]) -> Block:
    arguments = next((call[key] for key in ("arguments", "args", "input") if call.get(key) is not None), None)
    return Block("call", _string(call.get("name")), value=_writable(arguments))


def _read_block(block: str | Mapping[str, Any]) -> Block | None:
    """A block of a message; None if it says nothing."""
    if isinstance(block, str):
        return Block("text", value=block)
    read_it = _typed_block if isinstance(block.get("type"), str) else _keyed_block
    if found := read_it(block):
        return found
    if wire.is_media(block):
        return Block("media", value=block)
    said = {key: value for key, value in block.items() if key not in _SAYING_NOTHING}
    return Block("text", value=_as_text(said)) if said else None


def _typed_block(block: Mapping[str, Any]) -> Block | None:
    """A block of OpenAI or Anthropic; None if it is no other than media."""
    kind = block["type"]
    if kind in _TEXTS:
        text = block.get("refusal" if kind == "refusal" else "text")
        return Block("text", value=text) if isinstance(text, str) else None
    if kind.endswith("tool_use"):
        return _call(block)
    if kind.endswith("tool_result"):
        return _result(block.get("tool_use_id"), block.get("content"))
    if kind in ("thinking", "redacted_thinking"):
        return Block("thinking", value=_string(block.get("thinking")))
    return None


def _keyed_block(block: Mapping[str, Any]) -> Block | None:
    """A block of Gemini or Bedrock, whose kind is a key; None if it is no other than media."""
    if isinstance(block.get("text"), str):
        return Block("thinking" if block.get("thought") is True else "text", value=block["text"])
    for key in ("functionCall", "function_call", "toolUse"):
        if isinstance(block.get(key), Mapping):
            return _call(block[key])
    for key in ("functionResponse", "function_response"):
        if isinstance(result := block.get(key), Mapping):
            media = tuple(part for part in _list(result.get("parts")) if isinstance(part, Mapping))
            value = _writable(without_payloads(result.get("response")))
            return Block("result", _string(result.get("name")), value=value, media=media)
    if isinstance(result := block.get("toolResult"), Mapping):
        return _result(result.get("toolUseId"), result.get("content"))
    if isinstance(reasoning := block.get("reasoningContent"), Mapping):
        inner = reasoning.get("reasoningText")
        return Block("thinking", value=_string(inner.get("text")) if isinstance(inner, Mapping) else "")
    return None


_SAYING_NOTHING = _ENCRYPTED | {"cachePoint", "cache_control", "id", "signature", "status", "thought"}


def _result(call: Any, content: Any, name: str | None = None) -> Block:
    """A result: its texts joined, what else it holds as JSON, and its media."""
    texts: list[str] = []
    media: list[Mapping[str, Any]] = []
    for part in _list(content):
        if isinstance(part, Mapping) and wire.is_media(part):
            media.append(part)
        elif isinstance(part, Mapping):
            is_text = isinstance(part.get("text"), str) and part.get("type", "text") in _TEXTS
            texts.append(part["text"] if is_text else _as_text(part.get("json", part)))
        else:
            texts.append(part if isinstance(part, str) else _as_text(part))
    return Block("result", name or "", _string(call), "".join(texts), tuple(media))


def _list(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return value if isinstance(value, (list, tuple)) else (value,)


def _joined(content: Any) -> str:
    return "".join(_string(part.get("text")) for part in _list(content) if isinstance(part, Mapping))


def _string(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _writable(value: Any) -> Any:
    """The value, once it is known that it can be written as JSON."""
    if value is not None and not isinstance(value, str):
        renderings.as_json(value)
    return value


def _as_text(value: Any) -> str:
    """A value as JSON, without payloads and signatures."""
    return wire.as_json(without_payloads(value))


def without_payloads(value: Any) -> Any:
    """A value without its payloads and signatures."""
    if isinstance(value, Mapping):
        return {key: without_payloads(each) for key, each in value.items() if key not in _ENCRYPTED}
    if isinstance(value, (list, tuple)):
        return [without_payloads(each) for each in value]
    if isinstance(value, bytes) or (isinstance(value, str) and len(value) > 64 and _PAYLOAD.fullmatch(value)):
        return ""
    return value


def read_system(system: Any) -> Said:
    """A system prompt that is no message."""
    try:
        content: Any = system
        if isinstance(system, Mapping):
            content = system.get("parts") if "parts" in system else [system]
        said = _message({"role": "system", "content": [content] if isinstance(content, Mapping) else content}, 0)
    except (MessageError, TypeError, ValueError, RecursionError) as error:
        problem = error.problem if isinstance(error, MessageError) else str(error)
        raise OptionError("system", type(system).__name__, f"a text, or blocks of text: it {problem}") from error
    return said
