"""Reading messages in the shapes that providers use.

A message is a mapping with a `role` and a `content`; what it says and which tool calls it makes or answers is read
here, in one place. Nothing is changed or copied. One module per wire format; a message is read by what it carries,
so that a history may mix them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from secateur._core import detect_format
from secateur.errors import MessageError, OptionError
from secateur.formats import anthropic, bedrock, gemini, openai_chat, openai_responses, simple
from secateur.formats.wire import Message, PartKind, WireFormat, plain_text

__all__ = [
    "FORMATS",
    "Columns",
    "Message",
    "PartKind",
    "Units",
    "WireFormat",
    "named",
    "plain_text",
    "read",
    "rounds",
    "turns",
]

FORMATS: dict[str, WireFormat] = {
    each.name: each
    for each in (
        openai_chat.OpenAIChat(),
        openai_responses.OpenAIResponses(),
        anthropic.Anthropic(),
        gemini.Gemini(),
        bedrock.Bedrock(),
        simple.Simple(),
    )
}
"""The wire formats by name."""

SYSTEM_ROLES = frozenset({"system", "developer"})
_PLAIN_ROLES = frozenset({"user", "assistant", "agent"})


def named(name: str | None, messages: list[Message]) -> WireFormat:
    """The format of a name, or the one that the messages show.

    Raises:
        OptionError: If there is no format of that name.
        MessageError: If a message is of no format.
    """
    if name is None:
        name = detect_format(messages)
    if name not in FORMATS:
        raise OptionError("format", name, f"one of {', '.join(map(repr, FORMATS))}, or None to detect it")
    return FORMATS[name]


class Columns(NamedTuple):
    """What the messages of a history say, a column each."""

    roles: list[str]
    texts: list[str]
    """Everything in a message that is text, calls and results included; "" if nothing is."""
    calls: dict[int, tuple[str, ...]]
    """Ids of the tool calls that a message makes, by its index; messages without calls are absent."""
    results: dict[int, tuple[str, ...]]
    """Ids of the tool calls that a message answers, likewise."""
    system: set[int]
    """System and developer messages."""


def read(messages: Iterable[Message], name: str = "messages") -> Columns:
    """Read a history.

    Args:
        messages: Mappings with "role" (any non-empty string) and "content" (a string, None, or a list of strings
            and blocks). Blocks of unknown type hold no text.
        name: What the argument is called, for the error.

    Raises:
        MessageError: If one is no such mapping.
        OptionError: If it is no list of messages at all.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise OptionError(name, messages, "a list of messages")
    columns = Columns([], [], {}, {}, set())
    add_role, add_text = columns.roles.append, columns.texts.append
    for index, message in enumerate(messages):
        # Most messages hold a role, a string and nothing else: this way around is eight times faster.
        if type(message) is dict and len(message) == 2:
            content, role = message.get("content"), message.get("role")
            if type(content) is str and type(role) is str and role in _PLAIN_ROLES:
                add_role(role)
                add_text(content)
                continue
        role, text, calls, results = _read_any(message, index)
        add_role(role)
        add_text(text)
        if role in SYSTEM_ROLES:
            columns.system.add(index)
        if calls:
            columns.calls[index] = calls
        if results:
            columns.results[index] = results
    return columns


def _read_any(message: object, index: int) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    if not isinstance(message, Mapping):
        raise MessageError(index, f"is a {_named(message)}, expected a mapping with role and content{_hint(message)}")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise MessageError(index, f"has role {role!r}, expected a non-empty string")
    for call in _list_of(message.get("tool_calls"), index, "tool_calls"):
        if not isinstance(call, Mapping):
            raise MessageError(index, f"has a tool call of type {_named(call)}, expected a mapping{_hint(call)}")
    content = message.get("content")
    if content is None and "content" not in message and not ("tool_calls" in message or "function_call" in message):
        raise MessageError(index, "has no content")
    try:
        calls, call_texts = openai_chat.calls(message)
        blocks = [content] if isinstance(content, str) else _list_of(content, index, "content", "a string, ")
        texts = [_block_text(block, index) for block in blocks]
    except RecursionError:
        raise MessageError(index, "is nested too deeply") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, MessageError):
            raise
        raise MessageError(index, f"has tool arguments that are no JSON: {error}") from error
    results = openai_chat.results(message)
    if not isinstance(content, str):
        calls += anthropic.calls(content or ())
        results += anthropic.results(content or ())
    return role, "\n".join(text for text in (*texts, *call_texts) if text), calls, results


def _list_of(value: object, index: int, name: str, also: str = "") -> Sequence[object]:
    if value is None:
        return ()
    if isinstance(value, (list, tuple)):
        return value
    raise MessageError(index, f"has {name} of type {_named(value)}, expected {also}a list or None")


def _block_text(block: object, index: int) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping):
        return anthropic.block_text(block)
    raise MessageError(index, f"has a block of type {_named(block)}, expected a string or a mapping{_hint(block)}")


def _named(value: object) -> str:
    return type(value).__name__


def _hint(value: object) -> str:
    """What to do with the objects of an SDK."""
    return "; pass its model_dump()" if hasattr(value, "model_dump") else ""


@dataclass(frozen=True, slots=True)
class Units:
    """A history split into runs of messages that are kept or left out together."""

    starts: Sequence[int]
    """Unit `u` holds the messages from `starts[u]` up to `starts[u + 1]`."""
    broken: frozenset[int]
    """Units with calls that lack results, or results that lack their call: a provider refuses either."""

    @property
    def count(self) -> int:
        """How many units there are."""
        return len(self.starts) - 1

    def members(self, unit: int) -> range:
        """The messages of a unit."""
        return range(self.starts[unit], self.starts[unit + 1])

    def holding(self, index: int) -> int:
        """The unit that holds a message."""
        return bisect_right(self.starts, index) - 1


def rounds(columns: Columns) -> Units:
    """Split into rounds: a message with calls up to the last of their results, or a single message.

    A round with anything but the results of its calls in it, or without one of them, is broken.
    """
    count = len(columns.roles)
    if not columns.calls and not columns.results:
        return Units(range(count + 1), frozenset())
    answers, callers = _places(columns.results), _places(columns.calls)
    starts, broken = [0], set()
    while (start := starts[-1]) < count:
        stop = start + 1
        member = start
        while member < stop:
            for each in columns.calls.get(member, ()):
                answer, again = _next(answers.get(each), member), _next(callers.get(each), member)
                # Ids are used again: a result belongs to the newest call of its id.
                if answer is not None and (again is None or answer < again):
                    stop = max(stop, answer + 1)
            member += 1
            # A result directly behind belongs here even if it answers nothing here.
            if member == stop and stop in columns.results and start in columns.calls and stop not in columns.calls:
                stop += 1
        if _is_broken(columns, start, stop):
            broken.add(len(starts) - 1)
        starts.append(stop)
    return Units(starts, frozenset(broken))


def _places(ids_of: Mapping[int, Sequence[str]]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for index, ids in ids_of.items():
        for each in ids:
            places.setdefault(each, []).append(index)
    return places


def _next(places: list[int] | None, index: int) -> int | None:
    """The first place after an index."""
    if not places:
        return None
    at = bisect_right(places, index)
    return places[at] if at < len(places) else None


def _is_broken(columns: Columns, start: int, stop: int) -> bool:
    calls = columns.calls.get(start, ())
    if start in columns.results:
        # A tool message that names no call, where none was made, is plain text; any other result lacks its call.
        return bool(calls) or set(columns.results[start]) != {openai_chat.NO_ID}
    behind = range(start + 1, stop)
    if any(index not in columns.results or index in columns.calls for index in behind):
        return True
    answered = [each for index in behind for each in columns.results[index]]
    named = {each for each in answered if each != openai_chat.NO_ID}
    return not named <= set(calls) or len(named) + answered.count(openai_chat.NO_ID) != len(set(calls))


def turns(columns: Columns) -> Units:
    """Split into turns: each begins at a human message; what stands before the first is one too."""
    whole_rounds = rounds(columns)
    starts, broken = [0], set()
    for unit in range(whole_rounds.count):
        start = whole_rounds.starts[unit]
        if start > starts[-1] and columns.roles[start] == "user" and start not in columns.results:
            starts.append(start)
        if unit in whole_rounds.broken:
            broken.add(len(starts) - 1)
    return Units([*starts, len(columns.roles)] if columns.roles else [0], frozenset(broken))
