"""Writes src/class_table.rs and data/classes.bin: the class of each character, for the features of token estimation.

    pip install "fonttools==4.68.0" && python rust/secateur-core/tools/classes.py

Scripts come from Unicode (fontTools carries the property, which Python does not), categories from `unicodedata`, and
which Chinese characters are common from the levels of GB 2312 and Big5, as Python's codecs have them. The letters of
Latin, Cyrillic, Greek and Arabic are grouped by the languages that use them: what a text costs depends on its
language, and those letters tell it.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

from fontTools import unicodedata as scripts

FIRST = 0x80
PAGE = 128
END = 0x20000

# Letters whose use tells languages apart, lower case; what stands beside them are the languages meant.
LATIN = {
    "Acute": "é",
    "French": "èêàçîëïûù",
    "Spanish": "ñóíáú",
    "German": "üöäß",
    "Nordic": "åøæ",
    "Portuguese": "òôõãâ",
    "Polish": "łąęśżźćń",
    "Caron": "čšž",
    "Czech": "řěůďťňý",
    "Hungarian": "őű",
    "Turkish": "ğı",
    "Romanian": "şţșță",
    "Latvian": "āēīūķļņģ",
    "Lithuanian": "ėįų",
    "Vietnamese": "đơư",
}
CYRILLIC = {
    "CyrillicO": "о",
    "CyrillicA": "а",
    "CyrillicVowel": "еи",
    "CyrillicCommon": "нтсрвлкмдп",
    "CyrillicYery": "ы",
    "CyrillicSoft": "ь",
    "CyrillicRare": "уязбгчйхжшщъэюфцё",
    "Ukrainian": "і",
    "UkrainianOnly": "їєґ",
    "Belarusian": "ў",
    "Serbian": "јљњћђџѓќѕ",
}
ARABIC = {
    "ArabicAlef": "ا",
    "ArabicLam": "لي",
    "ArabicCommon": "منوره",
    "ArabicRare": "تبعدسفكقح",
    "ArabicFinal": "ةى",
    "ArabicHamza": "أإآئؤء",
    "Persian": "یک",
    "PersianOnly": "پچژگ",
    "Urdu": "ٹڈڑںےہھۓۂ",
    "ArabicMark": "ًٌٍَُِّْٰ",
}
GREEK = {"GreekAccented": "άέήίόύώ", "GreekVowel": "αεηιουω"}
LETTERS = LATIN | CYRILLIC | ARABIC | GREEK

INDIC = {
    "Deva": "Devanagari",
    "Beng": "Bengali",
    "Guru": "Gurmukhi",
    "Gujr": "Gujarati",
    "Orya": "Oriya",
    "Taml": "Tamil",
    "Telu": "Telugu",
    "Knda": "Kannada",
    "Mlym": "Malayalam",
    "Sinh": "Sinhala",
}
# Letters and marks apart: a mark seldom begins a token.
MARKED = INDIC | {
    "Thai": "Thai",
    "Laoo": "Lao",
    "Tibt": "Tibetan",
    "Mymr": "Myanmar",
    "Khmr": "Khmer",
    "Hebr": "Hebrew",
}
PLAIN = {
    "Geor": "Georgian",
    "Ethi": "Ethiopic",
    "Armn": "Armenian",
    "Syrc": "Syriac",
    "Copt": "Coptic",
    "Cher": "Cherokee",
    "Cans": "CanadianSyllabics",
    "Mong": "Mongolian",
    "Nkoo": "Nko",
    "Tfng": "Tifinagh",
    "Cyrl": "Cyrillic",
    "Arab": "Arabic",
    "Grek": "Greek",
}
HAN = ["HanCommon", "HanSimplified", "HanTraditional", "HanSecond", "HanRare", "Hiragana", "Katakana"]
VIRAMA = 9
SYMBOLS = {
    "Apostrophe": "‘’",
    "Quote": "“”",
    "Dash": "–—",
    "Ellipsis": "…",
    "Bullet": "•·",
    "IdeographicStop": "、。",
}

# The order is part of the kernels: Latin letters first, then what is written without spaces, then all other letters.
NAMES = [
    *LATIN,
    "Latin",
    *HAN,
    *CYRILLIC,
    *ARABIC,
    *GREEK,
    *(
        name
        for script, each in MARKED.items()
        for name in (each, f"{each}Mark", *([f"{each}Virama"] if script in INDIC else []))
    ),
    "TibetanPunctuation",
    "HangulOpen",
    "HangulClosed",
    *PLAIN.values(),
    "LatinRare",
    "Combining",
    "Letter2",
    "Letter3",
    "Letter4",
    *SYMBOLS,
    "ArabicSign",
    "Ideographic",
    "FullWidth",
    "Latin1Sign",
    "Punctuation",
    "Symbol",
    "BoxDrawing",
    "Dingbat",
    "Emoji",
    "Joiner",
    "Flag",
    "RarePunctuation",
]
LAST_LATIN, LAST_HAN = NAMES.index("Latin"), NAMES.index("Katakana")
LAST_LETTER = NAMES.index("Letter4")
CODE = {name: FIRST + place for place, name in enumerate(NAMES)}
LISTED = {
    variant: name
    for name, letters in reversed((LETTERS | SYMBOLS).items())
    for letter in letters
    for variant in (letter, letter.upper())
    if len(variant) == 1
}


def within(character: str, codec: str, first: int, last: int) -> bool:
    """Whether a character has two bytes in a codec, within a range."""
    try:
        encoded = character.encode(codec)
    except UnicodeEncodeError:
        return False
    return len(encoded) == 2 and first <= int.from_bytes(encoded, "big") <= last


def han(character: str) -> str:
    """How common a Chinese character is, and where: first level of both standards, of one, second level, neither."""
    if not 0x4E00 <= ord(character) <= 0x9FFF:
        return "HanRare"
    simplified = within(character, "gb2312", 0xB0A1, 0xD7F9)
    traditional = within(character, "big5", 0xA440, 0xC67E)
    if simplified or traditional:
        return "HanCommon" if simplified and traditional else "HanSimplified" if simplified else "HanTraditional"
    return "HanSecond" if within(character, "gb2312", 0xD8A1, 0xF7FE) else "HanRare"


def by_block(point: int) -> str | None:
    """Classes that are ranges."""
    for first, last, name in (
        (0x80, 0xA0, "Latin1Sign"),
        (0x1EA0, 0x1EF9, "Vietnamese"),
        (0x2500, 0x259F, "BoxDrawing"),
        (0x3000, 0x303F, "Ideographic"),
        (0xD800, 0xDFFF, "Symbol"),  # lone surrogates, like U+FFFD in whose place tokenizers see them
        (0xFE00, 0xFE0F, "Joiner"),
        (0xFF00, 0xFFEF, "FullWidth"),
        (0x1F1E6, 0x1F1FF, "Flag"),
        (0x1F3FB, 0x1F3FF, "Joiner"),
        (0x1F000, 0x1FAFF, "Emoji"),
    ):
        if first <= point <= last:
            return name
    return "Joiner" if point == 0x200D else None


def by_script(character: str, category: str) -> str | None:  # noqa: PLR0911
    """Classes that are scripts."""
    point, script = ord(character), scripts.script(character)
    if script == "Hang":
        syllable = 0xAC00 <= point <= 0xD7A3
        return "HangulOpen" if syllable and (point - 0xAC00) % 28 == 0 else "HangulClosed"
    if script == "Hani":
        return han(character)
    if script in ("Hira", "Kana"):
        return "Hiragana" if script == "Hira" else "Katakana"
    if script in MARKED:
        name = MARKED[script]
        if script == "Tibt" and category == "Po":
            return "TibetanPunctuation"
        if script in INDIC and unicodedata.combining(character) == VIRAMA:
            return f"{name}Virama"
        return f"{name}Mark" if category[0] == "M" else name
    if script == "Arab" and category[0] not in "LM":
        return "ArabicSign"
    if script in PLAIN:
        return PLAIN[script]
    if script == "Latn":
        return "Latin" if point < 0x250 or 0x1E00 <= point < 0x1F00 else "LatinRare"
    return None


def by_category(character: str, category: str) -> str:  # noqa: PLR0911
    """Classes of what is left."""
    point = ord(character)
    if category[0] == "M":
        return "Combining"
    if point < 0x100:
        return "Latin1Sign"
    if 0x2600 <= point <= 0x27BF:
        return "Dingbat"
    if 0x2000 <= point <= 0x206F:
        return "Punctuation"
    if category[0] in "SN":
        return "Symbol" if point < 0x10000 else "Emoji"
    if category[0] == "P":
        return "RarePunctuation"
    return "Letter2" if point < 0x800 else "Letter3" if point < 0x10000 else "Letter4"


def class_of(point: int) -> int:
    """The code of a character's class: itself for ASCII."""
    if point < FIRST:
        return point
    character = chr(point)
    category = unicodedata.category(character)
    name = LISTED.get(character) or by_block(point) or by_script(character, category)
    return CODE[name or by_category(character, category)]


def main() -> None:
    """Writes the table."""
    pages: dict[tuple[int, ...], int] = {}
    index = []
    for start in range(0, END, PAGE):
        page = tuple(class_of(point) for point in range(start, start + PAGE))
        index.append(pages.setdefault(page, len(pages)))
    flat = [code for page in pages for code in page]
    assert len(NAMES) < 0xFF - FIRST + 1, len(NAMES)
    names = "\n".join(f'    "{name}",' for name in NAMES)
    source = f"""//! Written by tools/classes.py; Unicode {unicodedata.unidata_version}.

/// Names of the classes, from code {FIRST:#04x} on.
pub(crate) const NAMES: [&str; {len(NAMES)}] = [
{names}
];

/// Codes up to here are Latin letters.
pub(crate) const LAST_LATIN: u8 = {FIRST + LAST_LATIN:#04x};
/// Codes after those up to here are Chinese characters and Japanese syllables.
pub(crate) const LAST_HAN: u8 = {FIRST + LAST_HAN:#04x};
/// Codes after those up to here are all other letters and their marks; what follows are signs.
pub(crate) const LAST_LETTER: u8 = {FIRST + LAST_LETTER:#04x};
/// What stands from U+20000 on, where the table ends.
pub(crate) const BEYOND: u8 = {CODE["HanRare"]:#04x};

/// For each multiple of {PAGE} which page holds the characters from there on (16 bits, low byte first); then the pages.
pub(crate) static TABLE: &[u8; {2 * len(index) + len(flat)}] = include_bytes!("../data/classes.bin");
/// How many entries the first part has.
pub(crate) const PAGES: usize = {len(index)};
"""
    crate = Path(__file__).parents[1]
    (crate / "data" / "classes.bin").write_bytes(b"".join(page.to_bytes(2, "little") for page in index) + bytes(flat))
    (crate / "src" / "class_table.rs").write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
