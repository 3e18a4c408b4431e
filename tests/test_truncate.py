"""truncate: within the limit, never inside what a reader sees as one character."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secateur import OptionError, TokenEstimator, estimate_tokens, truncate

odd = st.sampled_from(["e\u0301", "🏳️‍🌈", "👨‍👩‍👧", "🇷🇴🇯🇵", "ก็", "한국", "\r\n", "\ud800", "नि", "plain ", "日本語🙂"])


@given(st.lists(odd, max_size=60).map("".join), st.integers(0, 60), st.sampled_from(["head", "tail", "both"]))
def test_fits_and_keeps_ends(text: str, limit: int, keep: Any) -> None:
    cut = truncate(text, limit, keep=keep, marker="|")
    assert estimate_tokens(cut) <= limit
    if estimate_tokens(text) <= limit:
        assert cut == text
        return
    head, found, tail = cut.partition("|")
    if found:
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + len(tail) < len(text)
        assert not (tail if keep == "head" else head if keep == "tail" else "")
        for side, neighbour in ((text[len(head) :], head[-1:]), (tail, text[: len(text) - len(tail)][-1:])):
            first = side[:1]
            if first and neighbour:
                assert not unicodedata.combining(first), "a mark was torn from its letter"
                assert first not in "\u200d\ufe0f"
                assert neighbour != "\u200d"
                assert (neighbour, first) != ("\r", "\n")


def test_flags_stay_whole() -> None:
    for limit in range(1, 90):
        cut = truncate("🇷🇴" * 400, limit, marker="|")
        head, _, tail = cut.partition("|")
        assert len(head) % 2 == len(tail) % 2 == 0


def test_no_character_is_damaged() -> None:
    text = "日本語🙂" * 300
    cut = truncate(text, 101)
    assert "\ufffd" not in cut
    assert estimate_tokens(cut) <= 101
    assert cut[0] == "日"
    assert cut[-1] == "🙂"


def test_the_marker_says_how_much_is_gone() -> None:
    cut = truncate("x" * 1000, 20, marker="[{characters}]")
    gone = int(cut[cut.index("[") + 1 : cut.index("]")])
    assert len(cut) - len(f"[{gone}]") + gone == 1000


def test_a_marker_too_long_is_left_out() -> None:
    assert "marker" not in truncate("word " * 100, 2, marker="a marker of many tokens")
    assert estimate_tokens(truncate("word " * 100, 2, marker="a marker of many tokens")) <= 2
    assert truncate("日本", 0) == ""


def test_another_counter() -> None:
    assert truncate("one two three", 7, keep="head", marker="…", count=len) == "one tw…"
    count = TokenEstimator("claude").count
    for limit in (5, 50, 500):
        assert 0 < count(truncate("日本語🙂 " * 300, limit, count=count)) <= limit


@pytest.mark.parametrize(("limit", "keep"), [(-1, "both"), (1.5, "both"), (True, "both"), (5, "middle")])
def test_refused(limit: Any, keep: Any) -> None:
    with pytest.raises(OptionError):
        truncate("x" * 100, limit, keep=keep)
