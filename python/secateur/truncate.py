"""Cutting a text to a number of tokens, at the borders of what a reader sees as characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from secateur._core import grapheme_boundaries
from secateur.errors import OptionError, whole_number
from secateur.tokens import TokenEstimator, estimator_for

Keep = Literal["head", "tail", "both"]
_NEAR = 64
"""Code points on either side of a cut that are looked at: longer than any cluster of real text."""


def truncate(
    text: str,
    limit: int,
    *,
    keep: Keep = "both",
    marker: str = "…",
    count: Callable[[str], int] | TokenEstimator | str | None = None,
) -> str:
    """Cut a text so that it holds no more than a number of tokens, its marker included.

    Cuts at the borders of grapheme clusters (UAX #29), so that no letter loses its accents and no emoji falls apart.
    A text within the limit comes back as it is.

    Args:
        text: Any string.
        limit: Tokens, 0 or more.
        keep: What is kept: "head", "tail", or "both" with the middle left out.
        marker: Stands where text was left out; "{characters}" in it becomes how many characters that were. Left out
            itself where it alone exceeds the limit, for "…" where that fits.
        count: Counts the tokens of a text: a callable, an estimator, or the name of a profile or a model; by default
            the estimate for an unknown model, which errs high.

    Raises:
        OptionError: If `limit` is negative or no whole number, or `keep` is none of the three.

    >>> truncate("one two three four five six", 4, marker="[…]", count="script")
    'one t[…]e six'
    >>> truncate("Привет, мир", 3, keep="head", count="script")
    'Приве…'
    """
    limit = whole_number("limit", limit, 0)
    if keep not in get_args(Keep):
        raise OptionError("keep", keep, " or ".join(map(repr, get_args(Keep))))
    estimator = estimator_for(count)
    measure = estimator.count if estimator is not None else count
    if not callable(measure):
        raise OptionError("count", count, "a callable, an estimator, or a name")
    if measure(text) <= limit:
        return text

    def cut(kept: int, mark: str) -> str:
        head = {"head": kept, "tail": 0, "both": (kept + 1) // 2}[keep]
        start, end = _border(text, head, -1), _border(text, len(text) - (kept - head), 1)
        return text[:start] + mark.replace("{characters}", str(end - start)) + text[end:]

    for mark in (marker, "…", ""):
        # Bisection: the longest cut that fits, as far as counts grow with the text. Something is left out: with the
        # marker the whole text may count as less than without.
        low, high = 0, max(0, len(text) - 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if measure(cut(middle, mark)) <= limit else (low, middle - 1)
        if measure(shortened := cut(low, mark)) <= limit:
            return shortened
    return ""


def _border(text: str, at: int, step: Literal[-1, 1]) -> int:
    """The nearest border of grapheme clusters at or before (-1), at or after (1) a position."""
    if at <= 0 or at >= len(text):
        return min(max(at, 0), len(text))
    start = max(0, at - _NEAR)
    while start > 0 and "\U0001f1e6" <= text[start] <= "\U0001f1ff":
        # Flags are pairs of letters: only the beginning of their run says where a pair begins.
        start -= 1
    near = text[start : at + _NEAR]
    # Lone surrogates are clusters of their own, like the mark that stands for them here.
    near = "".join("\N{REPLACEMENT CHARACTER}" if "\ud800" <= each <= "\udfff" else each for each in near)
    borders = [start + border for border in grapheme_boundaries(near)]
    if step < 0:
        return max(border for border in borders if border <= at)
    return min(border for border in borders if border >= at)
