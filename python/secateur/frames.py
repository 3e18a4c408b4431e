"""What a request costs beside its texts: tokens that providers put around messages, calls, results and tools.

Most were measured by comparing counts of the texts with what providers billed (benches/bench_usage.py says how well
they hold); those of models without enough such records are from their published chat templates, or by analogy. They are
dated and will change: `FRAMES` can be changed, and every function that uses a frame takes another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from secateur.errors import OptionError
from secateur.formats import FORMATS

MEASURED = "measured on provider usage records, 30 November 2026"
PUBLISHED = "published chat template"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What a model family adds to texts; all numbers are tokens.

    Attributes:
        message: For each message that says something (with Anthropic for each message).
        system: For each system or developer message, in place of `message`.
        request: Once a request: beginning of the text, beginning of the answer, system text of the template.
        assistant: For each message of the assistant that says something, beside `message`.
        name: For the name of a message, beside the name itself; 0 where names are not sent.
        prefill: Once, if the last message is the assistant's, to be continued.
        call: For each call, beside its name and arguments.
        argument: For each argument of a call, beside its name and value.
        parallel: For each call after the first of a message.
        several: Once for each message of several calls.
        result: For each result, beside its content, and beside the name of the tool if `results_named`.
        tools: Once, if there are tools.
        tool: For each tool, beside what is written of it.
        property: For each property in the schemas of the tools.
        any_choice: Once, if some tool must be called.
        named_choice: Once, if one tool must be called.
        single_call: Once, if there are tools and parallel calls are switched off.
        formatted: Once, if a format of the response is asked for.
        schema: Once, if a schema of the response is given, beside the schema.
        thinking: For each block of thinking that stays in the prompt, beside its text.
        thinking_on: Once, if thinking is switched on.
        encryption: Characters of encrypted reasoning that hold nothing; 0 where reasoning is not sent.
        keeps_thinking: Whether the thinking of earlier turns stays in the prompt.
        joined: Whether the texts of a message are counted as one text.
        merged: Whether messages of one role in a row are one message, to which results belong too.
        results_named: Whether a result repeats the name of its tool.
        arguments_as: How arguments and results are written: "json"; "values", each argument by its name and its bare
            value; "leaves", names and strings each by itself, numbers free.
        tools_as: How tools are written: "typescript"; "system", as TypeScript at the end of the system message;
            "described", "json" and "compact" (JSON of different keys and spaces); "strings", each by itself.
        schema_as: How a schema of the response is written: "nothing"; "json"; "stripped", as compact JSON with its
            name and description; "system", as that at the end of the system message.
        source: Where the numbers are from.

    >>> frame_for("gpt-4o").request, frame_for("gpt-5").request
    (3, 2)
    """

    message: int
    system: int
    request: int
    assistant: int = 0
    name: int = 0
    prefill: int = 0
    call: int = 8
    argument: int = 0
    parallel: int = 0
    several: int = 0
    result: int = 6
    tools: int = 20
    tool: int = 0
    property: int = 0
    any_choice: int = 0
    named_choice: int = 0
    single_call: int = 0
    formatted: int = 0
    schema: int = 0
    thinking: int = 0
    thinking_on: int = 0
    encryption: int = 0
    keeps_thinking: bool = False
    joined: bool = False
    merged: bool = False
    results_named: bool = True
    arguments_as: Literal["json", "values", "leaves"] = "json"
    tools_as: Literal["typescript", "system", "described", "json", "compact", "strings"] = "json"
    schema_as: Literal["nothing", "json", "stripped", "system"] = "nothing"
    source: str = MEASURED


_OPENAI = Frame(
    message=4, system=4, request=3, name=1, call=7, several=8, result=6, tools=-1, named_choice=4, schema=4,
    joined=True, tools_as="system", schema_as="system",
)  # fmt: skip
_RESPONSES = replace(
    _OPENAI, call=6, several=0, result=5, tools=3, named_choice=0, schema=7, tools_as="typescript", schema_as="stripped"
)
_REASONING = replace(_RESPONSES, request=2, call=8, result=8, tools=10, schema=12, encryption=900)
_GPT_5 = replace(_REASONING, assistant=2, call=11, tools=91)
_CLAUDE = Frame(
    message=3, system=0, request=4, prefill=-3, call=40, argument=14, parallel=18, result=0, tools=497, tool=6,
    any_choice=91, named_choice=97, schema=120, thinking=15, thinking_on=29, joined=True, merged=True,
    results_named=False, arguments_as="values", tools_as="described", schema_as="json",
)  # fmt: skip
_CLAUDE_4_5 = replace(_CLAUDE, single_call=-207, schema=117)
_CLAUDE_4 = replace(_CLAUDE, tools=314, any_choice=4, named_choice=4, thinking=8)
_GEMINI = Frame(
    message=0, system=0, request=0, call=0, result=0, tools=0, arguments_as="leaves", tools_as="strings"
)  # fmt: skip
_GEMINI_2_5 = replace(_GEMINI, message=1, system=1, call=9, result=9, tool=17, property=7)
_GEMINI_3 = replace(_GEMINI_2_5, property=17)
_LLAMA_3 = Frame(message=5, system=5, request=5, tools=110, source=f"{PUBLISHED}; {MEASURED}")
_QWEN = Frame(message=5, system=5, request=5, call=20, result=12, tools=148, tools_as="compact")
_GROK = Frame(message=2, system=2, request=190, tools=40, encryption=80, keeps_thinking=True, tools_as="compact")
_NOVA = Frame(message=4, system=4, request=42, call=28, result=20, tools=812)

DEFAULT = "default"
"""The frame of models that are not known; a host behind a template of its own may add up to 800 tokens more."""

FRAMES: dict[str, Frame] = {
    "openai": _OPENAI,
    "openai-responses": _RESPONSES,
    "o": _REASONING,
    "o-responses": replace(_REASONING, call=9, tools=6, schema=6),
    "gpt-5": _GPT_5,
    "gpt-5-responses": replace(_GPT_5, result=9, tools=9, schema=6),
    "gpt-5.0-responses": replace(_GPT_5, call=8, result=9, tools=9, schema=6),
    "gpt-oss": Frame(message=4, system=4, request=67, call=11, result=9, tools_as="typescript"),
    "claude-3-haiku": replace(_CLAUDE, tools=264),
    "claude-3-opus": replace(_CLAUDE, tools=533),
    "claude-3.5-sonnet": replace(_CLAUDE, tools=294),
    "claude-3.7": replace(_CLAUDE_4, thinking_on=28),
    "claude-4": _CLAUDE_4,
    "claude-4.5": _CLAUDE_4_5,
    "claude-4.6": replace(_CLAUDE_4_5, schema=120, keeps_thinking=True),
    "claude-4.7": replace(_CLAUDE_4_5, request=8, keeps_thinking=True, source="by analogy with claude-4.6"),
    "claude-4.8": replace(
        _CLAUDE,
        message=2,
        prefill=-2,
        call=24,
        tools=353,
        tool=9,
        any_choice=130,
        named_choice=130,
        keeps_thinking=True,
    ),
    "gemini": _GEMINI,
    "gemini-2.5": _GEMINI_2_5,
    "gemini-3": _GEMINI_3,
    "gemini-3.5-flash": replace(_GEMINI_3, system=0),
    "gemma-3": Frame(message=5, system=5, request=4, source=f"{PUBLISHED}; {MEASURED}"),
    "deepseek": Frame(
        message=2, system=0, request=2, call=25, result=20, tools=221, tool=-9, any_choice=7, named_choice=7
    ),
    "mistral": Frame(message=2, system=2, request=13, call=5, result=3, tools=3, tool=1, formatted=-12),
    "llama-3": _LLAMA_3,
    "llama-3.1": replace(_LLAMA_3, request=30),
    "qwen": _QWEN,
    "qwen-ollama": replace(_QWEN, tools=74),
    "kimi": Frame(message=4, system=4, request=4, call=14, result=9, tools=6),
    "kimi-k2.5": Frame(message=4, system=4, request=4, call=14, result=9, tools=15, tools_as="typescript"),
    "glm": Frame(message=1, system=1, request=4, call=15, tools=96, tool=-5, result=8),
    "grok": _GROK,
    "grok-4-fast": replace(_GROK, request=152, tools=140),
    "grok-code": replace(_GROK, request=200, tools=140),
    "grok-azure": replace(_GROK, request=0, tools=140),
    "nova": replace(_NOVA, message=0, system=0, request=0),
    "nova-2": _NOVA,
    "sonar": Frame(message=0, system=0, request=0),
    DEFAULT: Frame(message=4, system=4, request=3, name=1, source="by analogy with OpenAI's"),
}
"""Frames by name. Put another one under a name to have it used for the models of that family."""


def frame_for(model: str, format: str | None = None) -> Frame:  # noqa: A002  # what it is called everywhere here
    """Return the frame of a model.

    A prefix says where it runs, where that changes the numbers, as in "vertex_ai/gemini-2.5-flash", "azure/gpt-5",
    "ollama/qwen3" and "openrouter/openai/gpt-5".

    Args:
        model: The model as the provider, a gateway or a library names it; upper and lower case are alike.
        format: The wire format; "openai_responses" has numbers of its own.

    Returns:
        The frame; that of "default" for a model that is not known.

    Raises:
        OptionError: If the model is no string or empty, or there is no such format.

    >>> frame_for("us.anthropic.claude-sonnet-4-5-20250929-v1:0") is FRAMES["claude-4.5"]
    True
    >>> frame_for("gpt-4o", "openai_responses") is FRAMES["openai-responses"]
    True
    """
    if format is not None and (not isinstance(format, str) or format not in FORMATS):
        raise OptionError("format", format, f"one of {', '.join(map(repr, FORMATS))}, or None")
    return FRAMES[_frame_name(_prepared(model), format)]


# The first that is found holds.
_FRAME_PATTERNS = (
    (r"gpt-oss", "gpt-oss"),
    (r"deepseek", "deepseek"),
    (r"stral|pixtral|voxtral", "mistral"),
    (r"sonar", "sonar"),
    (r"llama-?v?3[.p-][123](?!\d|b)", "llama-3.1"),
    (r"llama", "llama-3"),
    (r"qwen.*:(?!free)", "qwen-ollama"),
    (r"qwen|qwq", "qwen"),
    (r"kimi-k2[.p]5", "kimi-k2.5"),
    (r"kimi", "kimi"),
    (r"glm", "glm"),
    (r"grok-4.*fast", "grok-4-fast"),
    (r"grok-code", "grok-code"),
    (r"grok", "grok"),
    (r"nova-2", "nova-2"),
    (r"nova-(micro|lite|pro|premier)", "nova"),
    (r"gemma", "gemma-3"),
)
_HOST_PATTERNS = ((r"azure.*/.*grok", "grok-azure"), (r"ollama.*/.*qwen", "qwen-ollama"))
# Least version, a word in the name, and the frame; the first that holds.
_CLAUDE_FRAMES = (
    ((4, 8), "", "claude-4.8"),
    ((4, 7), "", "claude-4.7"),
    ((4, 6), "", "claude-4.6"),
    ((4, 5), "opus", "claude-4.6"),
    ((4, 5), "", "claude-4.5"),
    ((4, 0), "", "claude-4"),
    ((3, 7), "", "claude-3.7"),
    ((3, 0), "haiku", "claude-3-haiku"),
    ((3, 0), "opus", "claude-3-opus"),
    ((3, 5), "", "claude-3.5-sonnet"),
    ((0, 0), "", "claude-4.5"),
)


def _frame_name(model: str, wire: str | None) -> str:
    name = model.rsplit("/", 1)[-1]
    if "claude" in name:
        version = _claude_version(name)
        return next(frame for least, word, frame in _CLAUDE_FRAMES if version >= least and word in name)
    if "gemini" in name or (wire == "gemini" and "gemma" in name):
        return _gemini_frame(model, name)
    if _openai_profile(name) and "gpt-oss" not in name:
        return _openai_frame(model, name, wire)
    found = (frame for pattern, frame in _HOST_PATTERNS if re.search(pattern, model))
    return next(found, None) or next((frame for pattern, frame in _FRAME_PATTERNS if re.search(pattern, name)), DEFAULT)


def _gemini_frame(model: str, name: str) -> str:
    if re.search(r"(vertex|vercel|publishers/).*/|1\.5|2\.0|google/gemini-2\.5", model):
        return "gemini"
    newer = next((frame for frame in ("gemini-3.5-flash", "gemini-3") if frame in name), None)
    return newer or "gemini-2.5"


def _openai_frame(model: str, name: str, wire: str | None) -> str:
    # Gateways that name models by their maker call the Responses interface for the newer ones.
    relayed = re.search(r"openai/gpt-[5-9]", model)
    behind = "-responses" if wire == "openai_responses" or relayed else ""
    if re.search(_O_SERIES, name):
        return f"o{behind}"
    if re.search(r"gpt-[5-9]", name):
        return f"gpt-5.0{behind}" if behind and re.search(r"gpt-5(-|$)", name) else f"gpt-5{behind}"
    return f"openai{behind}"


PROFILES = (
    "o200k", "cl100k", "claude", "claude-3", "claude-2", "llama3", "mistral", "qwen3", "qwen3.6", "deepseek3", "gemma3",
    "kimi", "glm", "any",
)  # fmt: skip
"""Names of the tokenizer families that `profile_for` gives."""

_O_SERIES = r"(^|[.:])o[1-9](-|$)"
_CL100K = r"gpt-?(4(?!\d)|3\.?5)|text-embedding-(3|ada-002)"
_O200K = rf"gpt-?(4o|4\.1|4\.5|oss|audio|realtime|[5-9]|1\d)|{_O_SERIES}|codex-mini|computer-use-preview"
# The first that is found holds. What is named after two families is of the one whose weights it began with.
_PROFILE_PATTERNS = (
    (r"distill-?(?=qwen)", "qwen3"),
    (r"distill-?(?=llama)", "llama3"),
    (r"deepseek-(v2(?![.p]5)|llm|coder|moe|math|vl|v1)", "any"),
    (r"deepseek", "deepseek3"),
    (r"(mistral-(large|small)|codestral)-(23|2402|2405|2407|2409|2411)", "any"),
    (r"mistral-(large|medium|small|nemo)|open-mistral-nemo|ministral|(code|dev|magi)stral|pixtral|voxtral", "mistral"),
    (r"llama-?v?[3-9]", "llama3"),
    (r"qwen-?3[.p_][56]", "qwen3.6"),
    (r"qwen|qwq|qvq", "qwen3"),
    (r"gemini|gemma", "gemma3"),
    (r"kimi", "kimi"),
    (r"(?<!chat)glm", "glm"),
)


def profile_for(model: str) -> str:
    """Return the name of the tokenizer family of a model, "any" if it is not known.

    "claude" is 4.7 and later, "claude-3" is 3 to 4.6; "llama3" is 3 and later; "mistral" the models with Tekken;
    "qwen3" Qwen 2 to 3; "qwen3.6" Qwen 3.5 and 3.6; "deepseek3" V2.5 and later; "gemma3" Gemma and Gemini.

    Raises:
        OptionError: If the model is no string or empty.

    >>> [profile_for(model) for model in ("gpt-4o-mini", "azure/gpt-4-turbo", "models/gemini-2.5-pro", "mystery")]
    ['o200k', 'cl100k', 'gemma3', 'any']
    """
    name = _prepared(model).rsplit("/", 1)[-1]
    if "claude" in name:
        version = _claude_version(name)
        return "claude" if version >= (4, 7) else "claude-3" if version >= (3, 0) else "claude-2"
    for pattern, profile in _PROFILE_PATTERNS:
        if re.search(pattern, name):
            return profile
    return _openai_profile(name) or "any"


def _openai_profile(name: str) -> str | None:
    if re.search(_O200K, name):
        return "o200k"
    return "cl100k" if re.search(_CL100K, name) else None


_NEWEST = (9, 0)
_CLAUDE_NUMBER = re.compile(r"(?<![\dv.:])(\d)(?:[.-](\d{1,2})(?!\d))?(?!\d)")


def _claude_version(name: str) -> tuple[int, int]:
    """Version of a Claude model, wherever in its name it stands; the newest if it has none."""
    if "instant" in name:
        return 1, 2
    if old := re.search(r"claude-?v(\d)", name):
        return int(old[1]), 0
    found = _CLAUDE_NUMBER.search(name, name.index("claude"))
    return (int(found[1]), int(found[2] or 0)) if found else _NEWEST


_LONGEST_NAME = 300


def _prepared(model: object) -> str:
    """A name in lower case, without what is put around it."""
    if not isinstance(model, str) or not model.strip():
        raise OptionError("model", model, "the name of a model")
    # Names are short; patterns take long over long ones.
    name = model.strip().lower()[:_LONGEST_NAME].replace("%3a", ":").replace("%2f", "/").rstrip("/")
    return re.sub(r"(^|/)ft:([^/:]+).*", r"\1\2", name) or "/"
