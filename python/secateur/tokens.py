"""Token estimates for texts and messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol, SupportsIndex, runtime_checkable

from secateur import formats
from secateur._core import script_tokens
from secateur.errors import OptionError

MESSAGE_TOKENS = 4
"""What a message costs beside its texts: role and separators."""

_MOST_TOKENS = 2**31
MEDIA_TOKENS = 1024
"""What an image, a document or a sound counts as, like in the core (rust/secateur-python/src/formats/mod.rs)."""


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens of texts.

    A method `count_message(message)` may count whole messages; without it a message costs its texts, each by itself,
    `MEDIA_TOKENS` for each image, document or sound, and `MESSAGE_TOKENS`. A method `upper(text)` may give a bound that
    the true count does not exceed.

    >>> class Words:
    ...     def count(self, text: str) -> int:
    ...         return len(text.split())
    >>> isinstance(Words(), TokenCounter)
    True
    """

    def count(self, text: str, /) -> int:
        """Return the tokens of a text."""
        ...


AnyCounter = TokenCounter | Callable[[str], int] | Callable[[Any], int]
"""A `TokenCounter`, or a callable that counts the tokens of a text or of a message."""


class Measure:
    """A counter as the fitting uses it: for texts, for messages, for anything that is sent as JSON.

    Args:
        counter: What the caller gave; None for the script rule.
        wire: The format of the messages.

    Raises:
        OptionError: If it counts neither texts nor messages.
    """

    def __init__(self, counter: AnyCounter | None, wire: formats.WireFormat) -> None:
        self.is_default = counter is None
        self._wire = wire
        self._of_message: Callable[[Any], int] | None = None
        self._of_text: Callable[[str], int] | None = None
        if counter is None:
            self._of_text = script_tokens
            return
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
        media = MEDIA_TOKENS * self._wire.media(message)
        return MESSAGE_TOKENS + media + sum(map(self.text, self._wire.texts(message)))

    def value(self, value: Any) -> int:
        """Tokens of a system prompt or of tool schemas: a string as it is, anything else as JSON."""
        try:
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError) as error:
            raise OptionError("system or tools", type(value).__name__, f"writable as JSON ({error})") from error
        return self.text(written)


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


PROFILES = ("script",)
"""The estimates that can be named; "script" is the published rule."""


def estimate_tokens(text_or_messages: str | Iterable[formats.Message], *, profile: str | None = None) -> int:
    """Estimate how many tokens a text or the texts of messages have.

    The profile "script" counts by script, as published: four ASCII characters a token; Chinese, Japanese and
    Korean one; all else (Cyrillic, Greek, Arabic, accented letters, emoji) two; each class rounded up. Chinese,
    Japanese and Korean are U+1100-11FF, U+2E80-D7FF, U+F900-FAFF and U+20000 up. A message counts as its text,
    tool calls and results included; what a provider adds per message is not counted.

    Args:
        text_or_messages: A string (lone surrogates allowed), or messages.
        profile: "script", which is also the default.

    Raises:
        OptionError: If there is no such profile, or it is neither a string nor a list of messages.
        MessageError: If a message cannot be read.

    >>> estimate_tokens("Hello, world!")
    4
    >>> estimate_tokens("Привет, мир!")
    6
    >>> estimate_tokens([{"role": "user", "content": "你好"}])
    2
    """
    if profile not in (None, *PROFILES):
        raise OptionError("profile", profile, " or ".join(map(repr, PROFILES)))
    if isinstance(text_or_messages, str):
        return script_tokens(text_or_messages)
    return sum(map(script_tokens, formats.read(text_or_messages, "text_or_messages").texts))
