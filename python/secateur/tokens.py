"""Token estimates for texts and messages."""

from __future__ import annotations

from collections.abc import Iterable

from secateur import formats
from secateur._core import script_tokens
from secateur.errors import OptionError

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
