"""Conversations from files: JSON or JSON lines, gzipped or not."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from secateur import formats
from secateur.errors import ConversationError, MessageError

_LIST_KEYS = ("messages", "history")


def load(path: str, record: int | str | None = None) -> list[formats.Message]:
    """Read the messages of one conversation.

    The file holds a JSON list of messages, a JSON object with such a list under "messages" (or "history"), or a list
    of either; or, as JSON lines, one message a line, or one of these a line.

    Args:
        path: The file; a name ending in ".gz" is unpacked; "-" reads standard input.
        record: Which conversation of a file that holds several: its number from 0, or its "id". None takes the
            only one.

    Raises:
        ConversationError: If the file cannot be read or holds no such thing; names the line.
    """
    content = _content(path)
    # Split at line feeds alone: strings in JSON may hold other line separators.
    lines = [(number, line) for number, line in enumerate(content.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and _is_whole(lines[0][1]):
        values, numbers = [_parsed(line, path, number) for number, line in lines], [number for number, _ in lines]
    else:
        try:
            value = _parsed(content, path, 1)
        except ConversationError:
            if len(lines) > 1 and _is_whole(lines[1][1]):
                # JSON lines of which the first is broken.
                _parsed(lines[0][1], path, lines[0][0])
            raise
        # A list of conversations is what JSON lines of them are.
        several = isinstance(value, list) and value and all(map(_is_conversation, value))
        values = value if several else [value]
        numbers = [lines[0][0]] * len(values)
    if len(values) > 1 and all(isinstance(value, Mapping) and "role" in value for value in values):
        if record not in (None, 0, "0"):
            raise ConversationError(path, None, f"has no record {record!r}, it holds one conversation")
        return _checked(values, path, numbers)
    index = _record_index(values, record, path)
    return _messages(values[index], path, numbers[index] if len(lines) > 1 else None)


def _is_conversation(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, Mapping) and any(key in value for key in _LIST_KEYS))


def _content(path: str) -> str:
    try:
        if path == "-" and sys.stdin is None:
            raise ConversationError(path, None, "standard input is closed")
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        if path.endswith(".gz"):
            raw = gzip.decompress(raw)
        content = raw.decode("utf-8-sig")
    except OSError as error:
        raise ConversationError(path, None, error.strerror or str(error)) from error
    except (EOFError, zlib.error) as error:
        raise ConversationError(path, None, f"cannot be unpacked: {error}") from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConversationError(path, line, f"is not UTF-8 (byte {error.start})") from error
    if not content.strip():
        raise ConversationError(path, None, "is empty")
    return content


def _is_whole(line: str) -> bool:
    """Whether a line is a JSON value of its own, as in JSON lines."""
    try:
        return isinstance(json.loads(line), (Mapping, list))
    except (ValueError, RecursionError):
        return False


def _parsed(text: str, path: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise ConversationError(path, line, f"is not valid JSON: {error.msg}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise ConversationError(path, first_line, f"cannot be read as JSON: {error}") from None


def _record_index(values: list[Any], record: int | str | None, path: str) -> int:
    if record is None:
        if len(values) == 1:
            return 0
        raise ConversationError(path, None, f"holds {len(values)} conversations, say which with --record")
    ids = [str(value["id"]) if isinstance(value, Mapping) and "id" in value else None for value in values]
    if str(record) in ids:
        return ids.index(str(record))
    numbers = {str(number): number for number in range(len(values))}
    if str(record) in numbers:
        return numbers[str(record)]
    raise ConversationError(path, None, f"has no record {record!r}, expected 0 to {len(values) - 1} or an id")


def _messages(value: Any, path: str, line: int | None) -> list[formats.Message]:
    if isinstance(value, Mapping) and "role" in value:
        value = [value]
    elif isinstance(value, Mapping):
        key = next((key for key in _LIST_KEYS if isinstance(value.get(key), list)), None)
        if key is None:
            raise ConversationError(path, line, f"has none of the lists {', '.join(map(repr, _LIST_KEYS))}")
        value = value[key]
    if not isinstance(value, list):
        raise ConversationError(path, line, f"holds a {type(value).__name__}, expected a list of messages")
    return _checked(value, path, None if line is None else [line] * len(value))


def _checked(messages: list[Any], path: str, lines: list[int] | None) -> list[formats.Message]:
    try:
        formats.read(messages)
    except MessageError as error:
        line = lines[error.index] if lines and error.index is not None else None
        raise ConversationError(path, line, str(error)) from error
    return messages
