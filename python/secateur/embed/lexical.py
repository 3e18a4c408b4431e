"""Recall by words, for prompts in scripts that an English embedder cannot read.

BM25 (Robertson and Zaragoza 2009) over lower-case words, and over pairs of neighbouring characters where a script
writes no spaces between words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

_SATURATION = 1.2
_LENGTH_SHARE = 0.75
_MOST_REMEMBERED = 50_000
_WORDS = re.compile(r"\w+")
# Han, kana, hangul; Thai, Lao, Khmer and Burmese.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+"
)
_LAST_LATIN = "\u024f"


def is_foreign(text: str) -> bool:
    """Whether most letters of a text are of another script than the Latin one.

    >>> is_foreign("What did it cost?"), is_foreign("Сколько это стоило?"), is_foreign("42?")
    (False, True, False)
    """
    letters = [character for character in text if character.isalpha()]
    return sum(letter > _LAST_LATIN for letter in letters) * 2 > len(letters)


@lru_cache(maxsize=_MOST_REMEMBERED)
def terms(text: str) -> Mapping[str, int]:
    """The terms of a text, and how often each stands in it.

    >>> sorted(terms("Die Katze, die Katze! 東京都"))
    ['die', 'katze', '京都', '東京']
    """
    found: Counter[str] = Counter()
    for word in _WORDS.findall(text.casefold()):
        rest = _UNSPACED.sub(" ", word)
        found.update(rest.split())
        for run in _UNSPACED.findall(word):
            found.update([run] if len(run) == 1 else map("".join, pairwise(run)))
    return found


def scores(query: str, texts: Sequence[str]) -> list[float]:
    """How well each text matches the words of a query; 0.0 where no word does."""
    documents = [terms(text) for text in texts]
    lengths = [sum(document.values()) for document in documents]
    mean = max(1.0, sum(lengths) / max(1, len(lengths)))
    totals = [0.0] * len(texts)
    for term in terms(query):
        holding = [index for index, document in enumerate(documents) if term in document]
        weight = math.log(1 + (len(texts) - len(holding) + 0.5) / (len(holding) + 0.5))
        for index in holding:
            often = documents[index][term]
            room = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * lengths[index] / mean)
            totals[index] += weight * often * (_SATURATION + 1) / (often + room)
    return totals
