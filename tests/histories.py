"""Histories to fit: parts to build them from, random ones, and the real ones of every wire format."""

import functools
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from secateur import Policy, fit
from secateur._core import detect_format, read_structure, script_tokens

Message = dict[str, Any]
Policies = st.builds(
    Policy,
    low_water=st.sampled_from([0.3, 0.6, 1.0]),
    batch=st.integers(1, 5),
    keep_share=st.sampled_from([0.0, 0.25, 0.5]),
    keep_last=st.sampled_from([0, 0, 3]),
    clear_inputs=st.booleans(),
)
fit_by_script = functools.partial(fit, counter="script")
"""`fit` by the published rule, whose counts can be worked out by hand: four "x" are a token."""
TRACES = {
    "service.jsonl": "openai_chat",
    "functions.jsonl": "openai_chat",
    "coding.jsonl": "anthropic",
    "responses.jsonl": "openai_responses",
    "gemini.jsonl": "gemini",
    "bedrock.jsonl": "bedrock",
    "memories.jsonl": "simple",
}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def call(*ids: str, arguments: str = "{}", name: str = "look") -> Message:
    calls = [{"id": each, "type": "function", "function": {"name": name, "arguments": arguments}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, content: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Agent histories in OpenAI's shape, whole ones and some that a crash left behind."""
    history: list[Message] = [{"role": "system", "content": "rules"}] if draw(st.booleans()) else []
    sizes = st.sampled_from([0, 20, 200, 200, 3000])
    for number in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["user", "say", "round", "round", "round", "broken", "orphan"]))
        if kind == "user":
            history.append(user(f"question {number} " + "w " * draw(st.sampled_from([1, 40]))))
        elif kind == "say":
            history.append(
                {"role": "assistant", "content": f"answer {number} " + "v " * draw(st.sampled_from([1, 60]))}
            )
        elif kind == "orphan":
            history.append(result(f"gone {number}", "lost"))
        else:
            ids = [f"{number}-{each}" for each in range(draw(st.integers(1, 3)))]
            history.append(call(*ids, arguments=json.dumps({"path": "p" * draw(st.sampled_from([1, 400]))})))
            answered = ids[:-1] if kind == "broken" else ids
            history += [result(each, f"{each} " + "x" * draw(sizes)) for each in answered]
    return history


def tokens(message: Any) -> int:
    """An exact counter of OpenAI's messages, written for these tests alone."""
    texts = [message.get("content") or ""]
    for each in message.get("tool_calls") or []:
        texts += [each["function"]["name"], each["function"]["arguments"]]
    return 5 + sum(map(script_tokens, texts))


def cost(messages: list[Any]) -> int:
    return sum(map(tokens, messages))


def requests(history: list[Message]) -> Iterator[int]:
    """The request points: before each output of the model, and at the end."""
    rows = read_structure(detect_format(history), history)
    for index, (kind, continues, _, _) in enumerate(rows):
        if index and kind == "assistant" and not (continues and rows[index - 1][0] == "assistant"):
            yield index
    yield len(history)
