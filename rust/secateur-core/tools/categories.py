"""Writes data/categories.bin: what each character is to the patterns by which tokenizers split texts.

    python rust/secateur-core/tools/categories.py

Ranges of equal code, each four little-endian bytes: three for the first character, one for the code, whose bits are
named in src/pretoken.rs. Categories come from `unicodedata`.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

LETTER, UPPER, LOWER, NUMBER, BLANK, NEWLINE, MARK, SPECIAL = (1 << bit for bit in range(7, -1, -1))
SPACES = {0x09, 0x0B, 0x0C, 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
HAN = (
    (0x2E80, 0x2FD5),
    (0x3005, 0x3005),
    (0x3007, 0x3007),
    (0x3021, 0x3029),
    (0x3038, 0x303B),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAD9),
    (0x20000, 0x3FFFD),
)
KANA = ((0x3040, 0x30FF),)
CATEGORIES = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER, "Lm": 0, "Lo": 0}


def within(point: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    """Whether a character is in one of some ranges."""
    return any(first <= point <= last for first, last in ranges)


def code_of(point: int) -> int:
    """The code of a character."""
    if point in (0x0A, 0x0D):
        return NEWLINE
    if point in SPACES:
        return BLANK | SPECIAL * (point == 0x20)
    if point in (0x27, 0x2F):
        return SPECIAL | MARK * (point == 0x2F)
    category = unicodedata.category(chr(point))
    if category in CATEGORIES:
        special = SPECIAL if within(point, HAN) else SPECIAL | MARK if within(point, KANA) else 0
        return LETTER | CATEGORIES[category] | special
    return {"M": MARK, "N": NUMBER}.get(category[0], 0)


def main() -> None:
    """Writes the ranges."""
    ranges, last = [], None
    for point in range(0x110000):
        code = code_of(point)
        if code != last:
            ranges.append(point.to_bytes(3, "little") + bytes([code]))
            last = code
    (Path(__file__).parents[1] / "data" / "categories.bin").write_bytes(b"".join(ranges))


if __name__ == "__main__":
    main()
