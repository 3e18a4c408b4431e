"""Texts to token ids and to pieces, with the tokenizer of a model. The only importer of tokenizers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from secateur.embed import model
from secateur.errors import ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CHARACTERS_A_TOKEN = 8
"""More than most text has; a text that has more is read again further."""
_LONGEST_WORD = 200
"""The tokenizer takes no word of more than 100 characters apart."""


class Reader:
    """Reads texts no further than the model does; safe to share between threads.

    Args:
        path: `tokenizer.json`.
        max_tokens: Tokens of a text that are read, the markers included; None for all.

    Raises:
        EmbedderUnavailable: If tokenizers is not installed.
        ModelError: If the file holds no tokenizer.
    """

    def __init__(self, path: Path, max_tokens: int | None = None) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise model.missing_package(error) from error
        self._path = path
        self._load = Tokenizer.from_file
        self._whole: Tokenizer | None = None
        self._tokenizer = self._loaded()
        self._max_tokens = max_tokens
        if max_tokens is None:
            self._tokenizer.no_truncation()
            self._whole = self._tokenizer
        else:
            self._tokenizer.enable_truncation(max_tokens)
        self.vocabulary_size: int = self._tokenizer.get_vocab_size()
        self._lock = Lock()

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, cut at `max_tokens`; what lies far behind the cut is not tokenized.

        A text read up to a number of characters begins with the same tokens but for its last word, so that the ids
        are those of the whole text if they end well before.
        """
        if self._max_tokens is None:
            return [self._tokenizer.encode(well_formed(text)).ids for text in texts]
        return [self._ids(well_formed(text), self._max_tokens) for text in texts]

    def pieces(self, text: str, most_tokens: int, most_pieces: int) -> list[str]:
        """Cut a text into pieces of a number of tokens at most, between words where there are any.

        Args:
            text: Any text.
            most_tokens: Tokens of a piece, markers not counted.
            most_pieces: What has more loses its middle.
        """
        text = well_formed(text)
        if len(text) <= most_tokens:
            return [text]
        characters = most_pieces * most_tokens * _CHARACTERS_A_TOKEN
        if len(text) > 2 * characters:
            text = text[:characters] + text[-characters:]
        encoding = self._untruncated().encode(text, add_special_tokens=False)
        words, offsets = encoding.word_ids, encoding.offsets
        starts = [0]
        while len(words) - starts[-1] > most_tokens:
            start = end = starts[-1] + most_tokens
            while end > starts[-1] and words[end] == words[end - 1]:
                end -= 1
            starts.append(end if end > starts[-1] else start)
        cuts = [0, *(offsets[start][0] for start in starts[1:]), len(text)]
        pieces = [text[start:end] for start, end in pairwise(cuts) if start < end]
        if len(pieces) > most_pieces:
            head = (most_pieces + 1) // 2
            pieces = [*pieces[:head], *pieces[len(pieces) - most_pieces + head :]]
        return pieces or [text]

    def _ids(self, text: str, most: int) -> list[int]:
        characters = most * _CHARACTERS_A_TOKEN
        while True:
            encoding = self._tokenizer.encode(text[:characters])
            ids: list[int] = encoding.ids
            if len(text) <= characters:
                return ids
            if len(ids) == most and encoding.offsets[-2][1] < characters - _LONGEST_WORD:
                return ids
            characters *= 8

    def _untruncated(self) -> Tokenizer:
        # Most users never need it, and its vocabulary takes some megabytes.
        with self._lock:
            if self._whole is None:
                self._whole = self._loaded()
                self._whole.no_truncation()
            return self._whole

    def _loaded(self) -> Tokenizer:
        try:
            tokenizer = self._load(os.fspath(self._path))
        except Exception as error:  # tokenizers raises a bare Exception
            raise ModelError(f"{self._path.parent} holds no tokenizer that can be loaded: {error}") from error
        # The official file asks for padding to 128 tokens.
        tokenizer.no_padding()
        return tokenizer


def well_formed(text: str) -> str:
    """The text with its lone surrogates replaced by U+FFFD, which no tokenizer and no wire takes.

    >>> well_formed("a" + chr(0xD800)), well_formed(chr(0xD83D) + chr(0xDE42))
    ('a�', '🙂')
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        # Through UTF-16, so that two halves of a pair become the character that they stand for.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
