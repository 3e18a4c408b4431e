"""Remembered: what is asked once, what is dropped first, and what it passes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secateur import OptionError
from secateur.counters import Counter, Remembered
from standins import fail, kind, together


class Asked:
    """Counts letters, and tells what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        self.asked.append(text)
        return len(text)


class AskedMany(Asked):
    def count_many(self, texts: list[str]) -> list[int]:
        return [self.count(text) for text in texts]


class Naive:
    """The same memory, written out: pairs in the order of their last use."""

    def __init__(self, entries: int, characters: int, longest: int) -> None:
        self.limits = entries, characters
        self.longest = min(longest, characters)
        self.used: list[str] = []

    def held(self) -> int:
        return sum(len(text) for text in self.used if len(text) <= self.longest)

    def look_up(self, text: str) -> bool:
        found = text in self.used
        if found:
            self.used.remove(text)
            self.used.append(text)
        return found

    def add(self, text: str) -> None:
        if text not in self.used:
            self.used.append(text)
        while len(self.used) > self.limits[0] or self.held() > self.limits[1]:
            self.used.pop(0)


sizes = st.integers(0, 8)
few_texts = st.text("ab\ud800я", max_size=6)


@given(
    sizes, st.integers(0, 20), sizes, st.lists(few_texts | st.lists(few_texts, max_size=5), max_size=30), st.booleans()
)
def test_remembers_like_a_list_in_order_of_use(
    entries: int, characters: int, longest: int, steps: list[str | list[str]], batches: bool
) -> None:
    asked = AskedMany() if batches else Asked()
    remembered = Remembered(asked, entries=entries, characters=characters, longest=longest)
    naive = Naive(entries, characters, longest)
    expected: list[str] = []
    for step in steps:
        if isinstance(step, str):
            assert remembered.count(step) == len(step)
            new = [] if naive.look_up(step) else [step]
        else:
            assert remembered.count_many(iter(step)) == list(map(len, step))
            new = list(dict.fromkeys([text for text in step if not naive.look_up(text)]))
        expected += new
        for text in new:
            naive.add(text)
        assert (len(remembered), remembered.characters) == (len(naive.used), naive.held())
    assert asked.asked == expected


def test_a_long_text_is_not_kept() -> None:
    asked = Asked()
    remembered = Remembered(asked, longest=10)
    long = "я\ud800" * 100
    assert remembered.count(long) == remembered.count("я\ud800" + long[2:]) == 200
    assert (len(asked.asked), len(remembered), remembered.characters) == (1, 1, 0)
    assert remembered.count(long + "!") == 201
    assert [type(key) for key in remembered._counts] == [bytes, bytes]


class Odd(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("a")

    def __str__(self) -> str:
        return "another"


def test_a_string_of_a_class_of_its_own_is_looked_up_by_its_characters() -> None:
    remembered = Remembered(Asked())
    assert remembered.count("a") == 1
    assert remembered.count(Odd("abc")) == 3
    assert remembered.count("abc") == 3
    assert {type(key) for key in remembered._counts} == {str}


def test_what_fails_is_not_remembered() -> None:
    class Failing(Asked):
        def count(self, text: str) -> int:
            if super().count(text) and len(self.asked) == 1:
                raise ValueError("once")
            return len(text)

    remembered = Remembered(Failing())
    with pytest.raises(ValueError, match="once"):
        remembered.count("ab")
    assert len(remembered) == 0
    assert remembered.count("ab") == 2


def test_a_counter_that_gives_too_few_counts() -> None:
    short = kind("mine", "Mine", count=lambda _, text: len(text), count_many=lambda _, __: [1])
    with pytest.raises(ValueError, match="zip"):
        Remembered(short).count_many(["a", "b"])


def test_bounds_and_messages_are_passed_on_if_there_are_any() -> None:
    remembered = Remembered(Asked())
    for name in ("upper", "count_message", "observe"):
        assert not hasattr(remembered, name)
    more = kind("mine", "Mine", count=lambda _, text: len(text), upper=lambda _, text: 2 * len(text), observe=fail)
    assert Remembered(more).upper("abc") == 6
    assert not hasattr(Remembered(more), "count_message")
    assert not hasattr(Remembered(more), "observe")


@pytest.mark.parametrize("name", ["entries", "characters", "longest"])
@pytest.mark.parametrize("value", [-1, 1.5, None, True])
def test_limits_are_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"{name} is {value!r}, it must be a whole number, 0 or more"):
        Remembered(Asked(), **{name: value})  # type: ignore[arg-type]


def test_counts_and_bounds_hold_under_threads() -> None:
    texts = [chr(97 + i % 26) * (i % 40) for i in range(300)]
    remembered = Remembered(Counter("letters", len), entries=50, characters=800, longest=30)

    def run(start: int) -> None:
        for _ in range(20):
            for i in range(start, len(texts), 3):
                assert remembered.count(texts[i]) == len(texts[i])
            assert remembered.count_many(texts[start::7]) == list(map(len, texts[start::7]))
            assert len(remembered) <= 50

    together([lambda start=start: run(start) for start in range(6)])  # type: ignore[misc]
    held = [key for key in remembered._counts if isinstance(key, str)]
    assert remembered.characters == sum(map(len, held)) <= 800
    assert len(remembered) <= 50
