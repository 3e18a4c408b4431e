"""What is embedded of a message."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples import WordEmbedder, records
from secateur import prune_context
from secateur.embed.template import embedded_text, embedded_texts


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "text"),
        ({"name": "Ann"}, "Ann: text"),
        ({"speaker": "Ann", "date": "8 May 2023"}, "[8 May 2023] Ann: text"),
        ({"timestamp": "2024-05-01T10:00:00.123Z"}, "[2024-05-01] text"),
        ({"created_at": 1_700_000_000}, "[2023-11-14] text"),
        ({"created_at": 1_700_000_000_000}, "[2023-11-14] text"),
        ({"timestamp": "yesterday"}, "text"),
        ({"name": 7, "date": None, "timestamp": True, "time": float("inf")}, "text"),
        ({"name": "", "created_at": 10**30}, "text"),
        ({"name": "x" * 500}, "x" * 80 + ": text"),
    ],
)
def test_speaker_and_date_stand_before_the_text(fields: dict[str, Any], expected: str) -> None:
    assert embedded_text({"role": "user", "content": "text"} | fields, "text") == expected


def test_a_message_without_text_stays_without() -> None:
    assert embedded_text({"role": "user", "content": "", "name": "Ann"}, "") == ""


json_values = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=3)


@given(st.dictionaries(st.sampled_from(["role", "content", "name", "date", "timestamp", "time"]), json_values))
def test_any_message_can_be_embedded(message: dict[str, Any]) -> None:
    assert embedded_text(message, "text").endswith("text")
    message |= {"role": "user", "content": "text"}
    assert embedded_texts([message, {}], ["text", "other"]) == [embedded_text(message, "text"), "other"]


def test_pruning_embeds_the_speakers_of_a_real_meeting() -> None:
    history = records("meeting.jsonl")[0]["messages"]
    words = WordEmbedder()
    window = prune_context("What did the Project Manager say?", history, 5, embedder=words)
    assert json.dumps(window[0]) in {json.dumps(message) for message in history}
    assert any(text.startswith("Project Manager: ") for text in words.embedded)
    assert words.embedded[0] == "What did the Project Manager say?"
