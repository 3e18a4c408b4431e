"""The published rule against itself, written out in Python; other profiles are in test_estimator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples import records
from secateur import OptionError, TokenEstimator, estimate_tokens, formats


def naive(text: str) -> int:
    ascii_count = sum(character < "\x80" for character in text)
    cjk = sum(
        "\u1100" <= character <= "\u11ff"
        or "\u2e80" <= character <= "\ud7ff"
        or "\uf900" <= character <= "\ufaff"
        or character >= "\U00020000"
        for character in text
    )
    other = len(text) - ascii_count - cjk
    return -(-ascii_count // 4) + cjk + -(-other // 2)


any_text = st.one_of(
    st.text(st.characters(exclude_categories=[])),
    st.text(st.characters(max_codepoint=0x7F)),
    st.text(st.characters(max_codepoint=0xFF)),
    st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=[])),
)


@given(any_text, st.sampled_from([1, 1000]))
def test_equals_the_rule(text: str, times: int) -> None:
    assert estimate_tokens(text * times, profile="script") == naive(text * times)


class Named(str):
    """A string of a class of its own, which keeps its units elsewhere than plain ones."""


@given(any_text)
def test_subclasses_of_str_are_counted_alike(text: str) -> None:
    assert estimate_tokens(Named(text), profile="script") == naive(text)


def test_both_sides_of_every_border() -> None:
    borders = [0x7F, 0xFF, 0x10FF, 0x11FF, 0x2E7F, 0xD7FF, 0xF8FF, 0xFAFF, 0xFFFF, 0x1FFFF]
    for text in (chr(border + side) * 5 for border in borders for side in (0, 1)):
        assert estimate_tokens(text, profile="script") == naive(text), hex(ord(text[0]))


def test_real_conversations() -> None:
    seen = set()
    for record in records("multilingual.jsonl") + records("service.jsonl") + records("coding.jsonl"):
        texts = formats.read(record["messages"]).texts
        assert estimate_tokens(record["messages"], profile="script") == sum(map(naive, texts)) > 0
        # By default the whole request counts, and an unknown tokenizer as the worst one.
        whole = TokenEstimator("any")
        assert estimate_tokens(record["messages"]) == whole.count_request(record["messages"])
        assert estimate_tokens(record["messages"]) > sum(whole.count_many(texts))
        seen.add(record.get("lang"))
    assert len(seen) >= 8


def test_russian_costs_twice_what_four_characters_a_token_say() -> None:
    chapter = "Глава первая, в которой всё начинается. " * 100
    assert estimate_tokens(chapter, profile="script") > 1.7 * len(chapter) / 4


def test_a_text_keeps_no_copy_of_itself() -> None:
    import sys

    text = "Привет" * 1000
    size = sys.getsizeof(text)
    estimate_tokens(text, profile="script")
    assert sys.getsizeof(text) == size


def test_refused() -> None:
    with pytest.raises(OptionError, match=r"profile is 'o300k', it must be 'script' or 'o200k' or .* or 'any'"):
        estimate_tokens("x", profile="o300k")
    for neither in (None, b"abc", {"role": "user", "content": "x"}):
        with pytest.raises(OptionError, match=r"text_or_messages is .*, it must be a list of messages"):
            estimate_tokens(neither)  # type: ignore[arg-type]
