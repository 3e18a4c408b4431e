"""What a provider bills as input for a request, by the rules that its own records of usage show.

Messages are read by what they carry, like everywhere here, and never changed. What cannot be seen in a request is left
out: items that the server keeps, what its own tools put into the prompt, hidden prompts of gateways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from secateur import formats, renderings
from secateur._core import media_tokens
from secateur.blocks import Block, Said, call_names, read, read_system, without_payloads
from secateur.errors import MessageError, OptionError, whole_number
from secateur.formats import SYSTEM_ROLES, Message
from secateur.frames import Frame, frame_for
from secateur.tokens import TokenCounter, _checked

CountText = TokenCounter | Callable[[str], int]
"""A `TokenCounter`, or a callable that counts the tokens of a text."""
ENCRYPTED_PERCENT = 15
"""Tokens of encrypted reasoning in percent of its characters beyond `Frame.encryption`: fitted on 29 requests to OpenAI
and 13 to xAI, which come out within 12 % with it."""
CountMedia = Callable[[Mapping[str, Any]], int]
"""Counts the tokens of an image, a document or a sound from its block."""


def request_tokens(
    messages: Iterable[Message],
    *,
    model: str,
    counter: CountText,
    system: Any = None,
    tools: Any = None,
    format: str | None = None,  # noqa: A002  # what it is called everywhere here
    tool_choice: Any = None,
    response_format: Any = None,
    thinking: Any = None,
    media: CountMedia | None = None,
    frame: Frame | None = None,
) -> int:
    """Count what a provider bills as input for a request.

    With an exact counter this is what OpenAI bills to the token for messages of text, and mostly so for tools; with
    other providers it is close (benches/bench_usage.py). Cached tokens count like others.

    Args:
        messages: In the shape of any provider.
        model: Decides on the frame, see `frame_for`.
        counter: Counts texts; see `secateur.counters.exact`.
        system: The system prompt, where it is no message: a text, or in the shape of the provider.
        tools: Tools in the shape of the provider.
        format: The wire format; None to detect it. What only some messages of OpenAI Responses show must be said.
        tool_choice: As the provider takes it, `toolConfig` of Gemini and Bedrock too.
        response_format: As the provider takes it: `response_format`, `text`, `output_config`, or what is in it.
        thinking: Whether thinking is switched on: Anthropic's `thinking`, or a bool.
        media: Counts images, documents, sounds and films; None for what they cost with the dearest model.
        frame: In place of the model's.

    Raises:
        MessageError: If a message cannot be read.
        OptionError: If another argument cannot be.

    >>> words = lambda text: len(text.split())
    >>> request_tokens([{"role": "user", "content": "Say this is a test"}], model="gpt-4o", counter=words)
    12
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise OptionError("messages", messages, "a list of messages")
    messages = list(messages)
    shape = formats.named(format, messages)
    if frame is None:
        frame = frame_for(model, shape.name)
    count = _Counts(counter, media)
    said = [read(message, index) for index, message in enumerate(messages)]
    if system:
        said.insert(0, read_system(system))
    names = call_names(messages)
    newest = max((index for index, message in enumerate(messages) if shape.is_human(message)), default=0)
    total = frame.request
    for index, each in enumerate(said, len(messages) - len(said)):
        stays = frame.keeps_thinking or index >= newest
        total += _message_tokens(each, max(index, 0), frame, count, names, thinking=stays)
    if frame.merged:
        roles = [_side(each.role) for each in said]
        total -= frame.message * sum(before == role and role not in SYSTEM_ROLES for before, role in pairwise(roles))
    if said and said[-1].role == "assistant":
        total += frame.prefill
    head = _head(said)
    total += _tool_tokens(tools, frame, count, head, _choice(tool_choice))
    total += _schema_tokens(response_format, frame, count, head)
    return total + (frame.thinking_on if _is_on(thinking) else 0)


def message_tokens(
    message: Message,
    frame: Frame,
    counter: CountText,
    *,
    names: Mapping[str, str] | None = None,
    media: CountMedia | None = None,
    thinking: bool = True,
) -> int:
    """Count what a message adds to a request.

    The sum over the messages and `frame.request` is what `request_tokens` gives for them without tools, save that with
    Anthropic messages of one role in a row share one frame, and that thinking of earlier turns falls away.

    Args:
        message: In the shape of any provider.
        frame: See `frame_for`.
        counter: Counts texts.
        names: Names of the tools by id of the call, see `call_names`: what results are named after.
        media: Counts images, documents, sounds and films; None for what they cost with the dearest model.
        thinking: Whether its thinking stays in the prompt.

    Raises:
        MessageError: If it cannot be read, as message 0.
        OptionError: If a count is no whole number.

    >>> from secateur.frames import frame_for
    >>> message_tokens({"role": "user", "content": "two words"}, frame_for("gpt-4o"), lambda text: len(text.split()))
    6
    """
    said = read(message, 0)
    return _message_tokens(said, 0, frame, _Counts(counter, media), names or {}, thinking=thinking)


def tool_tokens(
    tools: Any, frame: Frame, counter: CountText, *, system: str | None = None, tool_choice: Any = None
) -> int:
    """Count what tools add to a request.

    Args:
        tools: In the shape of any provider.
        frame: See `frame_for`.
        counter: Counts texts.
        system: The text of the system message to which the tools are written, with OpenAI's older models.
        tool_choice: As the provider takes it.

    Raises:
        OptionError: If they are no list of mappings.

    >>> from secateur.frames import frame_for
    >>> words = lambda text: len(text.split())
    >>> tool_tokens([{"name": "now", "input_schema": {"type": "object"}}], frame_for("claude-sonnet-4-5"), words)
    508
    """
    return _tool_tokens(tools, frame, _Counts(counter, None), system, _choice(tool_choice))


class _Counts:
    """Counts texts and media, and checks what comes back."""

    def __init__(self, counter: CountText, media: CountMedia | None) -> None:
        count = counter.count if isinstance(counter, TokenCounter) else counter
        if not callable(count):
            raise OptionError("counter", counter, "a callable that counts a text, or have count(text)")
        if media is not None and not callable(media):
            raise OptionError("media", media, "a callable that counts a block, or None")
        self._count = count
        self._media = media

    def text(self, text: str | None) -> int:
        return _checked(self._count(text)) if text else 0

    def texts(self, texts: Iterable[str]) -> int:
        return sum(map(self.text, texts))

    def media(self, block: Mapping[str, Any]) -> int:
        return media_tokens(dict(block), "") if self._media is None else whole_number("media", self._media(block), 0)


# ---- What messages cost --------------------------------------------------------------------------------------------


def _message_tokens(
    said: Said, index: int, frame: Frame, count: _Counts, names: Mapping[str, str], *, thinking: bool
) -> int:
    try:
        return _said_tokens(said, frame, count, names, thinking=thinking)
    except RecursionError:
        raise MessageError(index, "is nested too deeply") from None


def _said_tokens(said: Said, frame: Frame, count: _Counts, names: Mapping[str, str], *, thinking: bool) -> int:
    total = 0
    if said.role in SYSTEM_ROLES:
        total += frame.system
    elif said.is_plain or frame.merged:
        total += frame.message
    if said.name and frame.name:
        total += frame.name + count.text(said.name) - (said.name == said.role)
    if said.role == "assistant" and said.is_plain:
        total += frame.assistant
    texts = [block.value for block in said.blocks if block.kind == "text"]
    total += count.text("".join(texts)) if frame.joined else count.texts(texts)
    calls = 0
    for block in said.blocks:
        if block.kind == "call":
            calls += 1
            total += frame.call + count.text(block.name) + _arguments_tokens(block.value, frame, count)
        elif block.kind == "result":
            total += _result_tokens(block, frame, count, names)
        elif block.kind == "thinking" and thinking:
            total += count.text(block.value) + frame.thinking
        elif block.kind == "encrypted" and thinking and frame.encryption:
            total += max(0, len(block.value) - frame.encryption) * ENCRYPTED_PERCENT // 100
        elif block.kind == "media":
            total += count.media(block.value)
    return total + (frame.parallel * (calls - 1) + frame.several if calls > 1 else 0)


def _arguments_tokens(arguments: Any, frame: Frame, count: _Counts) -> int:
    if frame.arguments_as == "leaves":
        return count.texts(renderings.leaves(arguments))
    if frame.arguments_as == "values":
        values = renderings.parsed(arguments) if isinstance(arguments, str) else arguments
        if isinstance(values, Mapping):
            return sum(
                frame.argument + count.text(str(name)) + count.text(renderings.as_json(value))
                for name, value in values.items()
            )
    return count.text("" if arguments is None else renderings.as_json(arguments))


def _result_tokens(block: Block, frame: Frame, count: _Counts, names: Mapping[str, str]) -> int:
    total = frame.result + sum(map(count.media, block.media))
    if frame.results_named:
        total += count.text(block.name or names.get(block.call, ""))
    if frame.arguments_as == "leaves":
        return total + count.texts(renderings.leaves(block.value))
    return total + count.text(renderings.as_json(block.value))


def _side(role: str) -> str:
    """The role under which a provider that merges messages takes them."""
    return "user" if role in ("tool", "function") else role


# ---- What tools and schemas cost -----------------------------------------------------------------------------------


class _Choice(NamedTuple):
    kind: Literal["auto", "none", "any", "named"] = "auto"
    name: str = ""
    single: bool = False


_CHOICES: dict[str, Literal["auto", "none", "any", "named"]] = {
    "auto": "auto",
    "none": "none",
    "any": "any",
    "required": "any",
    "tool": "named",
    "function": "named",
    "custom": "named",
}


def _choice(given: Any) -> _Choice:
    """Read a choice of tools in the shape of any provider; what is not known is "auto"."""
    if isinstance(given, str):
        return _Choice(_CHOICES.get(given.lower(), "auto"))
    if not isinstance(given, Mapping):
        return _Choice()
    for key in ("functionCallingConfig", "function_calling_config", "toolChoice"):
        if isinstance(given.get(key), Mapping):
            return _choice({"type": given[key]["mode"]} if "mode" in given[key] else given[key])
    kind = given.get("type")
    if kind is None:
        # Bedrock: the kind is the only key.
        kind = next((key for key in ("auto", "any", "tool") if key in given), "auto")
    inner = next((given[key] for key in ("function", "custom", "tool") if isinstance(given.get(key), Mapping)), given)
    name = inner.get("name")
    return _Choice(
        _CHOICES.get(str(kind).lower(), "auto"),
        name if isinstance(name, str) else "",
        bool(given.get("disable_parallel_tool_use")),
    )


def _tool_tokens(given: Any, frame: Frame, count: _Counts, head: str | None, choice: _Choice) -> int:
    tools = renderings.read_tools(given)
    # Templates leave the tools out where none may be called; OpenAI, Anthropic and Gemini keep them.
    if not tools or (choice.kind == "none" and frame.tools_as in ("json", "compact")):
        return 0
    try:
        return frame.tools + _choice_tokens(choice, frame, count) + _written_tokens(tools, frame, count, head)
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError("tools", type(given).__name__, f"writable as JSON ({error})") from error


def _choice_tokens(choice: _Choice, frame: Frame, count: _Counts) -> int:
    if choice.kind == "named":
        # The older models of OpenAI are told by the beginning of their answer.
        told = count.text(f" to=functions.{choice.name}") if frame.tools_as == "system" else 0
        return frame.named_choice + told
    if choice.kind == "any":
        return frame.any_choice
    return frame.single_call if choice.single else 0


def _written_tokens(tools: Sequence[renderings.Tool], frame: Frame, count: _Counts, head: str | None) -> int:
    others = [tool.raw for tool in tools if tool.raw is not None]
    functions = [tool for tool in tools if tool.raw is None]
    total = sum(frame.tool + count.text(renderings.as_json(without_payloads(other))) for other in others)
    if not functions:
        return total
    if frame.tools_as in ("typescript", "system"):
        text, excess = renderings.typescript(functions)
        if frame.tools_as == "typescript":
            return total + count.text(text) - excess
        return total - excess + _appended(f"# Tools\n\n## functions\n\n{text}", frame, count, head)
    for tool in functions:
        total += frame.tool
        if frame.tools_as == "strings":
            total += frame.property * renderings.property_count(tool.schema) + count.text(tool.name)
            total += count.text(tool.description) + count.texts(renderings.schema_strings(tool.schema))
        elif frame.tools_as == "described":
            total += count.text(renderings.as_json(renderings.described(tool)))
        else:
            total += count.text(renderings.as_json(renderings.wrapped(tool), compact=frame.tools_as == "compact"))
    return total


def _appended(text: str, frame: Frame, count: _Counts, head: str | None) -> int:
    """What a text adds at the end of the system message, which is made if there is none."""
    if head is None:
        return frame.system + count.text(text)
    return count.text(f"{head}\n\n{text}") - count.text(head)


def _schema_tokens(given: Any, frame: Frame, count: _Counts, head: str | None) -> int:
    if not isinstance(given, Mapping):
        return 0
    if isinstance(given.get("format"), Mapping):
        given = given["format"]
    inner = given.get("json_schema")
    if not isinstance(inner, Mapping):
        inner = given
    schema = inner.get("schema")
    total = frame.formatted if given else 0
    if frame.schema_as == "nothing" or not isinstance(schema, Mapping):
        return total
    total += frame.schema
    try:
        if frame.schema_as == "json":
            return total + count.text(renderings.as_json(schema))
        written = renderings.as_json(renderings.stripped(schema), compact=True)
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError("response_format", type(given).__name__, f"writable as JSON ({error})") from error
    name, description = (value if isinstance(value := inner.get(key), str) else "" for key in ("name", "description"))
    if frame.schema_as == "stripped":
        return total + count.texts((written, name, description))
    comment = f"// {description}\n" if description else ""
    return total + _appended(f"# Response Formats\n\n## {name}\n\n{comment}{written}", frame, count, head)


def _is_on(thinking: Any) -> bool:
    if isinstance(thinking, Mapping):
        return thinking.get("type") in ("enabled", "adaptive")
    return bool(thinking)


def _head(said: Sequence[Said]) -> str | None:
    """The text of the first system message."""
    for each in said:
        if each.role in SYSTEM_ROLES:
            return "".join(block.value for block in each.blocks if block.kind == "text")
    return None
