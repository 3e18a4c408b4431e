"""Conversation files: every layout that is read, and where a broken one is at fault."""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from samples import DATA, records
from secateur import ConversationError, conversation

MESSAGES = [{"role": "user", "content": "a\u2028b"}, {"role": "assistant", "content": "c"}]


def lines(*values: Any) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(MESSAGES),
        json.dumps(MESSAGES, indent=2),
        "[\n" + json.dumps(MESSAGES[0]) + "\n,\n" + json.dumps(MESSAGES[1]) + "\n]",
        json.dumps({"messages": MESSAGES, "model": "m"}, indent=2),
        lines({"history": MESSAGES}),
        lines(*MESSAGES),
        "\n" + lines(*MESSAGES).replace("\n", "\r\n\n"),
        "\ufeff" + lines(*MESSAGES),
    ],
)
def test_layouts(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, packed = tmp_path / "c.json", tmp_path / "c.json.gz"
    plain.write_bytes(content.encode())
    packed.write_bytes(gzip.compress(content.encode()))
    assert conversation.load(str(plain)) == conversation.load(str(packed)) == MESSAGES
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    assert conversation.load("-") == MESSAGES


def test_one_message(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(lines(MESSAGES[1]), encoding="utf-8")
    assert conversation.load(str(path)) == MESSAGES[1:]


def test_records_by_number_and_id() -> None:
    path = str(DATA / "service.jsonl")
    by_number = conversation.load(path, "1")
    identifier = records("service.jsonl")[1]["id"]
    assert conversation.load(path, 1) == by_number == conversation.load(path, identifier)
    with pytest.raises(ConversationError, match="holds 4 conversations, say which with --record"):
        conversation.load(path)
    for absent in ("4", "-1", "nobody"):
        with pytest.raises(ConversationError, match=f"has no record '{absent}', expected 0 to 3 or an id"):
            conversation.load(path, absent)


@pytest.mark.parametrize(
    "content",
    [
        lines(MESSAGES, MESSAGES[:1]),
        json.dumps([MESSAGES, MESSAGES[:1]]),
        json.dumps([{"id": 7, "messages": MESSAGES}, {"id": 0, "messages": MESSAGES[:1]}], indent=1),
        lines({"id": 7, "messages": MESSAGES}, {"id": 0, "messages": MESSAGES[:1]}),
    ],
)
def test_several_conversations(content: str, tmp_path: Path) -> None:
    path = tmp_path / "several.json"
    path.write_bytes(content.encode())
    assert conversation.load(str(path), "1") == MESSAGES[:1]
    if '"id"' in content:
        assert conversation.load(str(path), "7") == MESSAGES
        assert conversation.load(str(path), 0) == MESSAGES[:1], "an id goes before a number"
    else:
        assert conversation.load(str(path), 0) == MESSAGES


def test_a_record_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(lines({"id": "a", "messages": MESSAGES}), encoding="utf-8")
    assert conversation.load(str(path), "a") == conversation.load(str(path), "0") == MESSAGES
    by_line = tmp_path / "lines.jsonl"
    by_line.write_text(lines(*MESSAGES), encoding="utf-8")
    assert conversation.load(str(by_line), "0") == MESSAGES
    with pytest.raises(ConversationError, match="has no record '5', it holds one conversation"):
        conversation.load(str(by_line), "5")
    for record in ("7", "b", "9" * 5000):
        with pytest.raises(ConversationError, match="has no record"):
            conversation.load(str(path), record)


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"", None, "is empty"),
        (b" \n", None, "is empty"),
        (b"hello", 1, "is not valid JSON: Expecting value, column 1"),
        (b'[\n {"role": "user",\n "content" 1}]', 3, "is not valid JSON: Expecting ':' delimiter, column 12"),
        (b'{"role": "user", "content": "a"}\n\n{"role": \n', 3, "is not valid JSON: Expecting value, column 10"),
        (b'{"role": "user", "content": "a"}\n{"role": "user", "content": 3}\n', 2, "message 1 has content of type int"),
        (b'{"role": "user", "content": \n{"role": "user", "content": "b"}\n', 1, "is not valid JSON"),
        (b'[{"role": "user", "content": "a"}, 5]', None, "message 1 is a int"),
        (b'{"a": 1}', None, "has none of the lists 'messages', 'history'"),
        (b"7", None, "holds a int, expected a list of messages"),
        (b"abc\n\xff", 2, "is not UTF-8"),
        (b"[" * 100_000, 1, "cannot be read as JSON"),
        (b"[" + b"9" * 5000 + b"]", 1, "cannot be read as JSON"),
    ],
)
def test_broken_files(content: bytes, line: int | None, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ConversationError) as caught:
        conversation.load(str(path))
    assert caught.value.line == line
    assert caught.value.problem.startswith(problem)
    place = str(path) if line is None else f"{path}, line {line}"
    assert str(caught.value).startswith(f"{place}: {problem}")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ConversationError, match="No such file or directory"):
        conversation.load(str(tmp_path / "absent.json"))
    with pytest.raises(ConversationError, match="Is a directory"):
        conversation.load(str(tmp_path))
    (tmp_path / "x.gz").write_bytes(b"no gzip")
    with pytest.raises(ConversationError, match="Not a gzipped file"):
        conversation.load(str(tmp_path / "x.gz"))
    (tmp_path / "y.gz").write_bytes(gzip.compress(b"[]")[:-4])
    with pytest.raises(ConversationError, match="cannot be unpacked"):
        conversation.load(str(tmp_path / "y.gz"))
