"""Reading messages in the shapes that providers use.

A message is a mapping with a `role` and a `content`; what it says and which tool calls it makes or answers is read
here, in one place. Nothing is changed or copied. One module per wire format; a message is read by what it carries,
so that a history may mix them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from secateur.errors import MessageError
from secateur.formats import anthropic, openai_chat

Message = Mapping[str, Any]
"""One element of a provider's list, in the provider's own shape."""

SYSTEM_ROLES = frozenset({"system", "developer"})
_PLAIN_ROLES = frozenset({"user", "assistant", "agent"})


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


def read(messages: Iterable[Message]) -> Columns:
    """Read a history.

    Args:
        messages: Mappings with "role" (any non-empty string) and "content" (a string, None, or a list of strings
            and blocks). Blocks of unknown type hold no text.

    Raises:
        MessageError: If one is no such mapping.
    """
    columns = Columns([], [], {}, {}, set())
    add_role, add_text = columns.roles.append, columns.texts.append
    for index, message in enumerate(messages):
        # Most messages hold a role, a string and nothing else: this way around is eight times faster.
        if type(message) is dict and len(message) == 2:
            content = message.get("content")
            if type(content) is str and (role := message.get("role")) in _PLAIN_ROLES:
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
        hint = "; pass message.model_dump()" if hasattr(message, "model_dump") else ""
        raise MessageError(index, f"is a {type(message).__name__}, expected a mapping with role and content{hint}")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise MessageError(index, f"has role {role!r}, expected a non-empty string")
    content = message.get("content")
    calls, call_texts = openai_chat.calls(message)
    results = openai_chat.results(message)
    texts: list[str] = []
    if isinstance(content, str):
        texts = [content]
    elif isinstance(content, Sequence) and not isinstance(content, (bytes, bytearray)):
        texts = [_block_text(block, index) for block in content]
        calls += anthropic.calls(content)
        results += anthropic.results(content)
    elif content is not None:
        raise MessageError(index, f"has content of type {type(content).__name__}, expected a string, a list or None")
    elif "content" not in message and not calls:
        raise MessageError(index, "has no content")
    return role, "\n".join(text for text in (*texts, *call_texts) if text), calls, results


def _block_text(block: object, index: int) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping):
        return anthropic.block_text(block)
    raise MessageError(index, f"has a block of type {type(block).__name__}, expected a string or a mapping")


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
    """Split into rounds: a message with calls and all the results after it, or a single message."""
    count = len(columns.roles)
    if not columns.calls and not columns.results:
        return Units(range(count + 1), frozenset())
    starts, broken = [0], set()
    while (start := starts[-1]) < count:
        stop = start + 1
        answered = set(columns.results.get(start, ()))
        if start in columns.calls:
            while stop in columns.results and stop not in columns.calls:
                answered.update(columns.results[stop])
                stop += 1
        if answered != set(columns.calls.get(start, ())):
            broken.add(len(starts) - 1)
        starts.append(stop)
    return Units(starts, frozenset(broken))


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
