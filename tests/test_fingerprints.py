"""Fingerprints of vocabularies: reading each kind of file, building, fitting, loading."""

import base64
import gzip
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from secateur import WeightsError
from secateur.errors import OptionError
from secateur.fingerprints import (
    CLAUDE,
    Fingerprints,
    Rules,
    Vocabulary,
    build,
    marked_tokens,
    read_vocabulary,
    rules_of,
)

WORDS = [" " + "".join(letters) for letters in itertools.product("bdfgk", "aeiou", "lmnrst")]
TOKENS = [bytes([byte]) for byte in range(256)] + [f"{word}{end}".encode() for word in WORDS for end in ("", "o")]


def tokens_of(text: str) -> int:
    """A tokenizer for words of the vocabulary and ones that are made of two."""
    return sum(1 + (len(word) > 4) for word in text.split())  # "balo" is a token, "balobi" is one with "bi"


def records(count: int = 200) -> list[dict[str, Any]]:
    rng = random.Random(5)
    texts = []
    for _ in range(count):
        words = rng.choices(WORDS, k=rng.randint(20, 200))
        texts.append("".join(word if rng.random() < 0.9 else word + "ox" for word in words))
    return [
        {"text": text, "counts": {"toy": tokens_of(text)}, "source": str(number % 7), "lang": "en"}
        for number, text in enumerate(texts)
    ]


def test_a_vocabulary_becomes_a_file_that_counts_as_its_tokenizer() -> None:
    built = Fingerprints(build(TOKENS, records(), family="toy", about="a toy"))
    assert (built.family, built.about) == ("toy", "a toy")
    for record in records(20):
        assert built.count(record["text"]) == pytest.approx(tokens_of(record["text"]), rel=0.02)
    texts = [record["text"] for record in records(3)]
    assert built.count_many(texts) == [built.count(text) for text in texts]
    assert Fingerprints(bytes(built.to_bytes())).count_many(texts) == built.count_many(texts)
    assert built.count("") == 0
    assert repr(built) == 'Fingerprints(family="toy", about="a toy")'


def test_any_text_is_counted() -> None:
    built = Fingerprints(build(TOKENS, records(), family="toy"))
    for text in ("\ud800", "naïve 中文 \U0001f600", "\0", " " * 5000, "a" * 10_000, "中" * 5000, "\n \n" * 3000):
        assert 1 <= built.count(text) <= 1.25 * len(text.encode("utf-8", "surrogatepass"))


def test_large_vocabularies_are_cut_to_the_size_of_a_file() -> None:
    whole = build(TOKENS, records(), family="toy")
    assert len(build(TOKENS, records(), family="toy", most_bytes=len(whole) - 1)) < len(whole)
    with pytest.raises(WeightsError, match="too few tokens"):
        build(TOKENS, records(), family="toy", most_bytes=600)


def test_bytes_that_are_no_file_are_refused() -> None:
    for data in (b"", b"secateur tokens 1\n", build(TOKENS, records(), family="toy")[:-1]):
        with pytest.raises(WeightsError):
            Fingerprints(data)


def test_calibration_without_the_family_is_refused() -> None:
    with pytest.raises(OptionError, match="100 records"):
        build(TOKENS, records(), family="other")


@pytest.mark.parametrize("compress", [False, True])
def test_tiktoken_files_are_read(tmp_path: Path, compress: bool) -> None:
    lines = [base64.b64encode(token) + b" %d" % number for number, token in enumerate(TOKENS)]
    raw = b"\n".join(reversed(lines))
    path = tmp_path / "toy.tiktoken"
    path.write_bytes(gzip.compress(raw) if compress else raw)
    assert read_vocabulary(path) == (TOKENS, None)


def test_files_of_byte_level_tokenizers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    split = {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}|[^\r\n\p{L}]?\p{L}+"}}
    vocabulary = {"Ġthe": 1, "Ċ": 0, "é": 2, "<|end|>special ▁": 3}
    path.write_text(
        json.dumps(
            {
                "model": {"vocab": vocabulary},
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel"}]},
            }
        )
    )
    assert read_vocabulary(str(path)) == ([b"\n", b" the", b"\xe9"], Rules(0))


def test_files_of_sentence_piece_tokenizers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"vocab": [["<0x41>", 0], ["▁the", -1.5]]}, "decoder": None}))
    assert read_vocabulary(path) == ([b" the"], None)


def test_files_of_mistral_are_read(tmp_path: Path) -> None:
    path = tmp_path / "tekken.json"
    vocab = [{"rank": number, "token_bytes": base64.b64encode(token).decode()} for number, token in enumerate(TOKENS)]
    config = {"pattern": r"\p{N}|\p{Lu}", "default_vocab_size": 110, "default_num_special_tokens": 10}
    path.write_text(json.dumps({"config": config, "vocab": vocab}))
    assert read_vocabulary(path) == (TOKENS[:100], Rules.SINGLE_DIGITS | Rules.CASES)


def test_encodings_are_read() -> None:
    class Toy:
        _pat_str = r"'s|\p{N}{1,3}|\p{L}+| ?[^\s]+[\r\n]*"

        def token_byte_values(self) -> list[bytes]:
            return TOKENS

    assert read_vocabulary(Toy()) == (TOKENS, Rules.CONTRACTIONS | Rules.SIGNED_BREAKS)


@pytest.mark.parametrize("wrong", [["a", "b"], [1]])
def test_what_is_no_vocabulary_is_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="vocabulary"):
        read_vocabulary(wrong)
    for text in ("{}", "what is this"):
        path = tmp_path / "file"
        path.write_text(text)
        vocabulary: Vocabulary = path
        with pytest.raises(OptionError, match=r"\.tiktoken"):
            read_vocabulary(vocabulary)


def test_rules_are_read_off_patterns() -> None:
    o200k = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s+"
    assert rules_of(o200k) == Rules.MARKS | Rules.CASES | Rules.SUFFIXES | Rules.SIGNED_BREAKS | Rules.SLASHES


def test_marked_pieces_know_where_they_stand() -> None:
    pieces = ["⟨bow⟩the", "⟨caps⟩⟨bow⟩usa⟨eow⟩", "'s", ",⟨eow⟩", "12", "⟨bow⟩("]
    assert set(marked_tokens(pieces)) == {
        *(b" the\x01", b"the\x01", b" USA\x03", b"USA\x03", b",\x02", b",\x03", b" (\x00", b" (\x01"),
        *(b"'s" + bytes([edges]) for edges in range(4)),
        *(b"12" + bytes([edges]) for edges in range(4)),
    }
    words = [f"⟨bow⟩{word.strip()}⟨eow⟩" for word in WORDS]
    pieces = [*words, *(word.strip() for word in WORDS), "ox⟨eow⟩"]
    built = Fingerprints(build(marked_tokens(pieces), records(), family="toy", rules=CLAUDE))
    assert built.count(records(1)[0]["text"]) == pytest.approx(tokens_of(records(1)[0]["text"]), rel=0.02)
