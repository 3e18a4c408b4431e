"""What a provider would refuse in a history, and how to mend it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from secateur import formats
from secateur._core import read_structure
from secateur.errors import OptionError

Fault = Literal[
    "unanswered call",
    "orphan result",
    "empty content",
    "text before a result",
    "wrong first role",
    "roles do not alternate",
]

NO_RESULT = "[No result: the run ended before this call was answered.]"
"""What `repair` answers a call with that has no result."""
BEGINNING = "[The beginning of this conversation is not at hand.]"
"""What `repair` puts before a history that does not begin with the user's message."""
NOTHING = "[no text]"
"""What `repair` puts into a message that holds nothing but must stay."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a history for which its provider would refuse it.

    >>> check([{"role": "tool", "tool_call_id": "1", "content": "x"}])[0]
    Problem(index=0, fault='orphan result', detail='1')
    """

    index: int
    """The message at fault."""
    fault: Fault
    detail: str
    """The id of the call, or the role."""


class _Row(NamedTuple):
    kind: str
    continues: bool
    calls: list[str]
    results: list[str]


def check(messages: Iterable[formats.Message], *, format: str | None = None, pending: bool = False) -> list[Problem]:  # noqa: A002
    """List what a provider would refuse in a history: calls without results, results without calls, and the like.

    Args:
        messages: In any of the wire formats.
        format: Its name; None to detect it.
        pending: Whether calls at the end may still wait for their results.

    Raises:
        MessageError: If a message cannot be read.
        OptionError: If `format` is unknown, or `messages` is no list.

    >>> check([{"role": "user", "content": "Hello."}])
    []
    """
    listed = as_list(messages)
    return problems(listed, formats.named(format, listed), pending=pending)


def repair(messages: Iterable[formats.Message], *, format: str | None = None) -> list[formats.Message]:  # noqa: A002
    """Mend a history so that `check` finds nothing: the messages themselves where they are whole, copies where not.

    Results without their call go; calls without a result are answered with a text that says so; messages without
    content go, or say that they hold none; a history that does not begin with the user gets a first message; where
    roles must alternate, neighbours of one role become one. Mending twice changes nothing more.

    Args:
        messages: In any of the wire formats.
        format: Its name; None to detect it.

    Raises:
        MessageError: If a message cannot be read.
        OptionError: If `format` is unknown, or `messages` is no list.

    >>> repair([{"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "1", "content": "x"}])
    [{'role': 'user', 'content': 'Hi'}]
    """
    listed = as_list(messages)
    wire = formats.named(format, listed)
    mended = _filled(_answered(_without_orphans(listed, wire), wire), wire)
    rows = _rows(mended, wire)
    first = next((index for index, row in enumerate(rows) if row.kind != "system"), None)
    if wire.starts_with_user and first is not None and not _is_users(mended[first]):
        mended.insert(first, wire.note(BEGINNING))
    return alternating(mended, wire) if wire.alternates else mended


def as_list(messages: Iterable[formats.Message], name: str = "messages") -> list[formats.Message]:
    """The messages as a list.

    Raises:
        OptionError: If they are no list of messages.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise OptionError(name, messages, "a list of messages")
    return list(messages)


def problems(messages: list[formats.Message], wire: formats.WireFormat, *, pending: bool) -> list[Problem]:
    """What `check` finds, in the order of the messages."""
    rows = _rows(messages, wire)
    found: list[Problem] = []
    for start, stop in _units(rows):
        open_calls = Counter(call for row in rows[start:stop] for call in row.calls)
        for index in range(start, stop):
            for call in rows[index].results:
                if not call:
                    # It names no call, and answers the first that is open, or is plain text.
                    open_calls -= Counter(list(open_calls.elements())[:1])
                elif open_calls[call]:
                    open_calls[call] -= 1
                else:
                    found.append(Problem(index, "orphan result", call))
        if not pending:
            found += [Problem(start, "unanswered call", call) for call in open_calls.elements()]
    found += [
        Problem(index, "empty content", str(message.get("role", "")))
        for index, message in enumerate(messages)
        if wire.is_empty(message)
    ]
    found += [
        Problem(index, "text before a result", str(message.get("role", "")))
        for index, message in enumerate(messages)
        if rows[index].kind == "result" and wire.ordered(message) is not message
    ]
    spoken = [index for index, row in enumerate(rows) if row.kind != "system"]
    if wire.starts_with_user and spoken and not _is_users(messages[spoken[0]]):
        found.append(Problem(spoken[0], "wrong first role", str(messages[spoken[0]].get("role"))))
    if wire.alternates:
        found += [
            Problem(second, "roles do not alternate", str(messages[second].get("role")))
            for first, second in pairwise(spoken)
            if messages[first].get("role") == messages[second].get("role")
        ]
    return sorted(found, key=lambda problem: problem.index)


def _is_users(message: formats.Message) -> bool:
    return message.get("role") in ("user", "human", "function", None)


def _rows(messages: list[formats.Message], wire: formats.WireFormat) -> list[_Row]:
    return [_Row(*row) for row in read_structure(wire.name, messages)]


def _units(rows: Sequence[_Row]) -> list[tuple[int, int]]:
    """Runs of model output with the results directly behind; every other message by itself."""
    starts: list[int] = []
    for index, row in enumerate(rows):
        before = rows[index - 1].kind if index else None
        joins = (row.kind == "result" and before in ("assistant", "result")) or (
            row.kind == "assistant" and row.continues and before == "assistant"
        )
        if not joins:
            starts.append(index)
    return list(zip(starts, [*starts[1:], len(rows)], strict=False))


def _without_orphans(messages: list[formats.Message], wire: formats.WireFormat) -> list[formats.Message]:
    while True:
        orphans: dict[int, set[str]] = {}
        for problem in problems(messages, wire, pending=True):
            if problem.fault == "orphan result":
                orphans.setdefault(problem.index, set()).add(problem.detail)
        if not orphans:
            return messages
        # Again until there are none: what is left of a message may part a result behind it from its call.
        kept = (
            wire.without_results(message, orphans[index]) if index in orphans else message
            for index, message in enumerate(messages)
        )
        messages = [message for message in kept if message is not None]


def _answered(messages: list[formats.Message], wire: formats.WireFormat) -> list[formats.Message]:
    rows = _rows(messages, wire)
    mended: list[formats.Message] = []
    for start, stop in _units(rows):
        mended += messages[start:stop]
        answered = Counter(call for row in rows[start:stop] for call in row.results)
        unnamed = answered.pop("", 0)
        open_calls = Counter(call for row in rows[start:stop] for call in row.calls) - answered
        missing = list(open_calls.elements())[unnamed:]
        if not missing:
            continue
        answers: list[formats.Message] = list(wire.answer(missing, NO_RESULT, messages[start:stop]))
        if rows[stop - 1].kind == "result" and wire.shares_results:
            # All results of one message stand in one message.
            mended[-1] = _with_answers(mended[-1], answers[0])
        else:
            mended += answers
    return mended


def _with_answers(message: formats.Message, answers: formats.Message) -> formats.Message:
    key = "parts" if "parts" in message else "content"
    return {**message, key: [*answers[key], *message[key]]}


def _filled(messages: list[formats.Message], wire: formats.WireFormat) -> list[formats.Message]:
    rows = _rows(messages, wire)
    mended: list[formats.Message] = []
    for message, row in zip(messages, rows, strict=True):
        filled = wire.without_empty_texts(wire.ordered(message))
        if not wire.is_empty(filled):
            mended.append(filled)
        elif row.kind in ("result", "human"):
            # A result must stand, and a human's turn may begin here.
            mended.append(wire.filled(message, NOTHING))
    return mended


def alternating(messages: list[formats.Message], wire: formats.WireFormat) -> list[formats.Message]:
    """The messages, with neighbours of one role as one; system messages stand apart."""
    mended: list[formats.Message] = []
    spoken = -1
    for message in messages:
        is_system = message.get("role") == "system"
        if not is_system and spoken >= 0 and mended[spoken].get("role") == message.get("role"):
            mended[spoken] = wire.joined(mended[spoken], message)
            continue
        mended.append(message)
        if not is_system:
            spoken = len(mended) - 1
    return mended


def all_text(message: formats.Message) -> str:
    """The texts of a message, joined."""
    value: Any = message.get("content", message.get("parts"))
    return formats.plain_text(value)
