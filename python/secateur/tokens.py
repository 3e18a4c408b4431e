"""Token estimates for texts and messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, SupportsIndex, runtime_checkable

from secateur import formats
from secateur._core import Estimator, Fingerprints, media_tokens
from secateur.errors import CounterUnavailable, OptionError, whole_number
from secateur.frames import DEFAULT, FRAMES, Frame, frame_for, profile_for
from secateur.frames import PROFILES as _FAMILIES
from secateur.learning import MOST_REPORTS, Lesson, learn, prompt_tokens

PROFILES = ("script", *_FAMILIES)
"""The estimates that can be named; "script" is the published rule, "any" is for unknown models."""
MESSAGE_TOKENS = 4
"""What a message costs beside its texts: role and separators."""

_MOST_TOKENS = 2**31
_SCRIPT_FRAME = Frame(message=MESSAGE_TOKENS, system=MESSAGE_TOKENS, request=3, call=0, result=0, tools=0)
_PROBE = "Some words of English, 1234567 and def f(x): return x\n\tПривет, мир! 你好，世界。 مرحبا नमस्ते 🙂 " * 4
"""Of many kinds, to see whether a tokenizer is like those known."""
_EXAMPLES = {
    "o200k": "gpt-4o",
    "cl100k": "gpt-4",
    "claude": "claude-opus-4-8",
    "claude-3": "claude-sonnet-4-5",
    "claude-2": "claude-2.1",
    "llama3": "llama-3.3",
    "mistral": "mistral-large",
    "qwen3": "qwen3",
    "qwen3.6": "qwen3.6",
    "deepseek3": "deepseek-chat",
    "gemma3": "gemini-2.5-pro",
    "kimi": "kimi-k2",
    "glm": "glm-4.7",
}
"""A model of each family, for what stands around texts where only the family is known."""


_MEDIA_MODEL = "gpt-4o"
"""Whose rule holds for media where neither the model nor its provider is known."""
_MEDIA_MODELS = {"anthropic": "claude-opus-4-8", "bedrock": "claude-opus-4-8", "gemini": "gemini-2.5-pro"}
"""Whose rule holds where only the format tells the provider."""


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens of texts.

    A method `count_message(message)` may count whole messages; without it a message costs its texts, each by itself,
    what an image, a document or a sound costs with a model of its format's provider, and `MESSAGE_TOKENS`. A method
    `upper(text)` may give a bound that the true count does not exceed.

    >>> class Words:
    ...     def count(self, text: str) -> int:
    ...         return len(text.split())
    >>> isinstance(Words(), TokenCounter)
    True
    """

    def count(self, text: str, /) -> int:
        """Return the tokens of a text."""
        ...


class TokenEstimator:
    """Estimates tokens without a vocabulary, in one pass over the text.

    The profile "script" is the published rule: four ASCII characters a token; Chinese, Japanese and Korean one; all
    else two; each class rounded up. The profile of a family ("o200k", "cl100k", "claude" for 4.7 and later, "claude-3"
    up to 4.6, "claude-2", "llama3", "mistral", "qwen3", "qwen3.6", "deepseek3", "gemma3" also for Gemini, "kimi",
    "glm") counts features of the text and weighs them with a small network that was fitted to the family's tokenizer
    (errors by family: benches/NOTES.md). "any" is for unknown models: the most that a family gives, until `observe` has
    seen what the provider counted, then the mix of families that fits it.

    The same text gives the same estimate on every machine. Not to be changed (by `observe`) while other threads count.

    Args:
        profile: One of `PROFILES`; None for the model's.
        model: The name of the model, in any of its forms ("gpt-4o", "anthropic/claude-opus-4-8"); also says how images
            are counted and what stands around messages.
        weights: A file of weights, or its content, from `secateur fit-tokens`; its families are further profiles.
        fingerprints: A file of fingerprints of the family's vocabulary, or its content, from
            `secateur.fingerprints.build`; True for that of the package secateur-fingerprints (o200k and cl100k).
            Estimates are several times nearer then, and take several times as long (benches/NOTES.md).

    Raises:
        CounterUnavailable: If that package has none for the profile, or is not installed.
        OptionError: If there is no such profile.
        WeightsError: If a file holds no weights, or no fingerprints, for this version.

    >>> estimator = TokenEstimator(model="gpt-4o")
    >>> estimator.profile, estimator.count("Hello, world!")
    ('o200k', 4)
    """

    def __init__(
        self,
        profile: str | None = None,
        *,
        model: str | None = None,
        weights: Path | str | bytes | None = None,
        fingerprints: Path | str | bytes | bool = False,
    ) -> None:
        self._weights = weights if weights is None or isinstance(weights, bytes) else Path(weights).read_bytes()
        for name, value in (("profile", profile), ("model", model)):
            if value is not None and not isinstance(value, str):
                raise OptionError(name, value, "a name, or None")
        if profile is None:
            profile = "any" if model is None else profile_for(model)
        self.profile = profile
        self.model = model
        self._fingerprints = _fingerprints(fingerprints, profile)
        if self._fingerprints is not None and (family := Fingerprints(self._fingerprints).family) != profile:
            raise OptionError("profile", profile, f"{family!r}, whose fingerprints these are")
        self.lesson = Lesson()
        self._reports: list[tuple[tuple[float, ...], int]] = []
        self.native = self._new_native()

    def _new_native(self) -> Estimator:
        try:
            if self.lesson == Lesson():
                return _estimator(self.profile, self._weights, self._fingerprints)
            mix = None
            if self.lesson.mix is not None and self.lesson.possible is not None:
                mix = (list(self.lesson.mix), list(self.lesson.possible), self.lesson.trust)
            return Estimator(
                self.profile,
                weights=self._weights,
                mix=mix,
                factor=self.lesson.factor,
                fingerprints=self._fingerprints,
            )
        except KeyError:
            known = ("script", *Estimator("any", weights=self._weights).families, "any")
            raise OptionError("profile", self.profile, " or ".join(map(repr, known))) from None

    def __repr__(self) -> str:
        """The profile and the model."""
        return f"TokenEstimator({self.profile!r}, model={self.model!r})"

    @property
    def like_model(self) -> str:
        """The model, or one of the family; "" where neither is known."""
        return self.model or _EXAMPLES.get(self.profile, "")

    def media_model(self, format: str) -> str:  # noqa: A002
        """The model by whose rule images, documents, sounds and films are counted."""
        return self.like_model or _MEDIA_MODELS.get(format, _MEDIA_MODEL)

    @property
    def frame(self) -> Frame:
        """What stands around the texts of a request to the model, or to one of the family."""
        return self.frame_in(None)

    def frame_in(self, format: str | None) -> Frame:  # noqa: A002
        """The frame in a wire format."""
        if self.profile == "script" and self.model is None:
            return _SCRIPT_FRAME
        return frame_for(self.like_model, format) if self.like_model else FRAMES[DEFAULT]

    def count(self, text: str, /) -> int:
        """Return the tokens of a text; lone surrogates are allowed."""
        return self.native.count(text)

    def count_many(self, texts: Sequence[str], /) -> list[int]:
        """Return the tokens of each text, in one crossing into the core."""
        return self.native.count_many(list(texts))

    def count_up_to(self, text: str, limit: int, /) -> int | None:
        """Return the tokens of a text if they are no more than a limit, else None.

        Of a text far beyond the limit only a part is read: None if its beginning alone is estimated beyond the limit.
        """
        return self.native.count_up_to(text, whole_number("limit", limit, 0, _MOST_TOKENS))

    def upper(self, text: str, /) -> int:
        """Return a bound that the true count exceeds for less than one text in a hundred (benches/NOTES.md)."""
        return self.native.upper(text)

    def upper_of_total(self, counts: Sequence[int], /) -> int:
        """Return a bound on the sum of several counts, which errors that average out let be nearer."""
        return self.native.upper_of_total([whole_number("counts", each, 0, 2**63 - 1) for each in counts])

    def by_family(self, text: str, /) -> dict[str, int]:
        """Return the tokens of a text in every family."""
        return dict(zip(self.native.families, map(round, self.native.by_family(text)), strict=True))

    def count_request(
        self,
        messages: Iterable[formats.Message],
        *,
        system: Any = None,
        tools: Any = None,
        format: str | None = None,  # noqa: A002
        upper: bool = False,
    ) -> int:
        """Estimate what a request costs: messages, calls, results, images, system prompt, tool schemas, and the frame.

        Args:
            messages: In any of the wire formats.
            system: The system prompt, where it is no message.
            tools: The tool schemas, as the provider takes them.
            format: The wire format; None to detect it.
            upper: Whether to give the bound.

        Raises:
            MessageError: If a message cannot be read.

        >>> TokenEstimator(model="gpt-4o").count_request([{"role": "user", "content": "Hello, world!"}])
        11
        """
        listed = _listed(messages)
        counts, total = self._request(self.native.count, listed, system, tools, format)
        bound = self.upper_of_total(counts) - sum(counts) if upper else 0
        return max(0, total + bound + self.lesson.offset)

    def _request(
        self,
        count: Callable[[str], int],
        messages: list[formats.Message],
        system: Any,
        tools: Any,
        format: str | None,  # noqa: A002
    ) -> tuple[list[int], int]:
        from secateur import billing

        counts: list[int] = []

        def counted(text: str) -> int:
            counts.append(count(text))
            return counts[-1]

        wire = formats.named(format, messages)
        total = billing.request_tokens(
            messages,
            model=self.like_model,
            counter=counted,
            system=system,
            tools=tools,
            format=wire.name,
            media=lambda block: media_tokens(dict(block), self.media_model(wire.name)),
            frame=self.frame_in(wire.name),
        )
        return counts, total

    def observe(
        self,
        messages: str | Iterable[formats.Message],
        usage_or_tokens: object,
        *,
        system: Any = None,
        tools: Any = None,
        format: str | None = None,  # noqa: A002
    ) -> Lesson:
        """Learn from what the provider counted for a request, or from a true count of a text.

        Fits a factor and an offset to the last reports, robustly, forgetting slowly; corrections downwards are believed
        only little by little. For "any" a mix of families is found in place of the factor. Counts change from here on.

        Args:
            messages: What was sent; or a text.
            usage_or_tokens: The tokens of the input, or the provider's usage.
            system: The system prompt, where it is no message.
            tools: The tool schemas.
            format: The wire format; None to detect it.

        Returns:
            What has been learned so far.

        Raises:
            MessageError: If a message cannot be read.
            OptionError: If the usage holds no count of the input, or 0 for what is not empty.

        >>> estimator = TokenEstimator("o200k")
        >>> for words in (400, 800, 1600):
        ...     lesson = estimator.observe("word " * words, words + 300)
        >>> lesson.offset > 150
        True
        """
        tokens = prompt_tokens(usage_or_tokens)
        listed = messages if isinstance(messages, str) else _listed(messages)
        if not tokens and listed:
            raise OptionError("usage_or_tokens", usage_or_tokens, "at least 1 token for what is not empty")
        mixed = self.profile == "any"
        plain = _estimator(self.profile, self._weights, None)
        names = plain.families if mixed else [self.profile]
        estimates = []
        for name in names:
            native = _estimator(name, self._weights, self._fingerprints)
            if isinstance(listed, str):
                estimates.append(float(native.count(listed)))
            else:
                estimates.append(float(self._request(native.count, listed, system, tools, format)[1]))
        self._reports.append((tuple(estimates), tokens))
        del self._reports[:-MOST_REPORTS]
        rows, counted = zip(*self._reports, strict=True)
        self.lesson = learn(rows, counted)
        self.native = self._new_native()
        return self.lesson


@lru_cache(maxsize=32)
def _estimator(profile: str, weights: bytes | None, fingerprints: bytes | None) -> Estimator:
    """Estimators that have learned nothing are kept, since each remembers the texts that it was asked for."""
    return Estimator(profile, weights=weights, fingerprints=fingerprints)


def _fingerprints(given: Path | str | bytes | bool, profile: str) -> bytes | None:  # noqa: FBT001
    """The content of a file of fingerprints."""
    if given is False:
        return None
    if isinstance(given, bytes):
        return given
    if given is not True:
        return Path(given).read_bytes()
    package = "secateur-fingerprints"
    try:
        return resources.files("secateur_fingerprints").joinpath(f"{profile}.fingerprints").read_bytes()
    except ModuleNotFoundError:
        raise CounterUnavailable(profile, (package,), {}) from None
    except FileNotFoundError:
        problem = "has o200k and cl100k; secateur.fingerprints.build makes others from a vocabulary"
        raise CounterUnavailable(profile, (package,), {package: problem}) from None


class Tokenizer(Protocol):
    """What tokenizers have in common, whatever else they take and give."""

    @property
    def encode(self) -> Callable[..., Any]:
        """Encodes a text."""
        ...


AnyCounter = TokenCounter | Tokenizer | str | Callable[[str], int] | Callable[[Any], int]
"""A `TokenCounter`, a tokenizer, the name of a profile or of a model, or a callable that counts a text or a message."""


def _listed(messages: Any) -> list[formats.Message]:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise OptionError("messages", messages, "a list of messages")
    return list(messages)


def estimator_for(counter: object) -> TokenEstimator | None:
    """The estimator that a counter is or names; None for a counter of another kind."""
    if counter is None:
        return TokenEstimator("any")
    if isinstance(counter, TokenEstimator):
        return counter
    if isinstance(counter, str):
        return TokenEstimator(counter) if counter in PROFILES else TokenEstimator(model=counter)
    return None


class Measure:
    """A counter as the fitting uses it: for texts, for messages, for anything that is sent as JSON.

    Args:
        counter: What the caller gave; None for the estimate of an unknown model.
        wire: The format of the messages.

    Raises:
        OptionError: If it counts neither texts nor messages.
    """

    def __init__(self, counter: AnyCounter | None, wire: formats.WireFormat) -> None:
        self._wire = wire
        self._of_message: Callable[[Any], int] | None = None
        self._of_text: Callable[[str], int] | None = None
        self.estimator = estimator_for(counter)
        self.is_tokenizer = False
        """Whether it is an exact counter, so that an estimate with a bound may stand in for it where that is enough."""
        if self.estimator is not None:
            self._of_text = self.estimator.count
            return
        from secateur.counters import Counter, Remembered, as_counter

        adapted = as_counter(counter)
        if adapted is not None:
            known = isinstance(adapted, (Counter, Remembered)) and not hasattr(adapted, "count_message")
            # One that splits finer than any family known is asked for every text.
            self.is_tokenizer = known and adapted.count(_PROBE) <= TokenEstimator("any").count(_PROBE)
            counter = adapted
        if isinstance(counter, TokenCounter):
            self._of_text = getattr(counter, "upper", counter.count)
            self._of_message = getattr(counter, "count_message", None)
        elif callable(counter):
            # What a bare callable counts shows when it is called: a counter of messages grows with their text. (`len`
            # takes a message too, but counts its keys.)
            if _grows(counter, wire.note):
                self._of_message = counter
            elif _grows(counter, str):
                self._of_text = counter
        if self._of_text is None and self._of_message is None:
            raise OptionError("counter", counter, "a callable that counts a text or a message, or have count(text)")

    @property
    def frame(self) -> Frame:
        """What stands around texts, where an estimator counts."""
        return _SCRIPT_FRAME if self.estimator is None else self.estimator.frame_in(self._wire.name)

    def counting(self, *, estimated: bool) -> dict[str, Any]:
        """How the core counts messages; `estimated` if an estimate stands in for the counter."""
        estimator = TokenEstimator("any") if estimated else self.estimator or TokenEstimator("script")
        media = estimator.media_model(self._wire.name)
        if estimator.profile == "script" and estimator.lesson.factor == 1:
            return {"model": media}
        frame = estimator.frame_in(self._wire.name)
        around = (max(frame.message, frame.system), frame.call, frame.argument, frame.result)
        return {"estimator": estimator.native, "model": media, "frame": around}

    def text(self, text: str) -> int:
        """Tokens of a text."""
        if self._of_text is not None:
            return _checked(self._of_text(text))
        assert self._of_message is not None
        with_text, without = self._of_message(self._wire.note(text)), self._of_message(self._wire.note(""))
        return max(0, _checked(with_text) - _checked(without))

    def message(self, message: formats.Message) -> int:
        """Tokens of a message."""
        if self._of_message is not None:
            return _checked(self._of_message(message))
        like = (self.estimator or TokenEstimator("script")).media_model(self._wire.name)
        media = sum(media_tokens(dict(block), like) for block in self._wire.media(message))
        return self.frame.message + media + sum(map(self.text, self._wire.texts(message)))

    def value(self, value: Any, *, upper: bool = True) -> int:
        """Tokens of a system prompt or of tool schemas, at most: a string as it is, anything else as JSON."""
        try:
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError) as error:
            raise OptionError("system or tools", type(value).__name__, f"writable as JSON ({error})") from error
        if self.estimator is not None and upper:
            return self.estimator.upper(written)
        return self.text(written)

    def tools(self, tools: Any, *, upper: bool = True) -> int:
        """Tokens of tool schemas, at most, as the family writes them."""
        if self.estimator is None or self.estimator.profile == "script":
            return self.value(tools, upper=upper)
        from secateur import billing

        try:
            count = self.estimator.upper if upper else self.estimator.count
            return billing.tool_tokens(tools, self.frame, count)
        except OptionError:
            return self.value(tools, upper=upper)


def _grows(counter: Callable[[Any], object], make: Callable[[str], Any]) -> bool:
    """Whether a counter counts more for a long text than for a short one."""
    try:
        short, long = counter(make("a")), counter(make("a word " * 64))
    except Exception:  # noqa: BLE001  # a counter for the other kind fails in whichever way it likes
        return False
    return isinstance(short, SupportsIndex) and isinstance(long, SupportsIndex) and long.__index__() > short.__index__()


def _checked(tokens: object) -> int:
    if type(tokens) is int and 0 <= tokens < _MOST_TOKENS:
        return tokens
    # Numbers of other kinds, as numpy has them.
    if isinstance(tokens, bool) or not isinstance(tokens, SupportsIndex) or not 0 <= tokens.__index__() < _MOST_TOKENS:
        raise OptionError("counter", tokens, f"a counter that gives whole numbers from 0 to {_MOST_TOKENS - 1}")
    return tokens.__index__()


def estimate_tokens(
    text_or_messages: str | Iterable[formats.Message],
    model: str | None = None,
    *,
    profile: str | None = None,
    upper: bool = False,
) -> int:
    """Estimate how many tokens a text has, or a request of messages costs.

    Args:
        text_or_messages: A string (lone surrogates allowed), or messages. Messages cost their texts, calls, results and
            images and what the model's provider puts around them; with the profile "script", as it was published, their
            texts alone.
        model: The name of the model.
        profile: The profile, see `TokenEstimator`; None for the model's, or "any" without one.
        upper: Whether to give a bound in place of the estimate.

    Raises:
        OptionError: If there is no such profile, or it is neither a string nor a list of messages.
        MessageError: If a message cannot be read.

    >>> estimate_tokens("Hello, world!", "gpt-4o")
    4
    >>> estimate_tokens("Привет, мир!", profile="script")
    6
    >>> estimate_tokens([{"role": "user", "content": "你好"}], profile="script")
    2
    """
    estimator = TokenEstimator(profile, model=model)
    if isinstance(text_or_messages, str):
        return estimator.upper(text_or_messages) if upper else estimator.count(text_or_messages)
    if estimator.profile == "script":
        return sum(estimator.count_many(formats.read(text_or_messages, "text_or_messages").texts))
    if isinstance(text_or_messages, (bytes, Mapping)) or not isinstance(text_or_messages, Iterable):
        raise OptionError("text_or_messages", text_or_messages, "a list of messages")
    return estimator.count_request(text_or_messages, upper=upper)
