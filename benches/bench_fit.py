"""fit and Session against what frameworks trim with, on a real agent trace given as OpenAI messages.

    python benches/bench_fit.py [--data FILE] [--sizes 2000 20000] [--budget 32000] [--json FILE]

FILE is a `.jsonl.gz` of records with OpenAI `messages`; by default `../shared/data/agents_derived_openai.jsonl.gz`
where that is present, else the samples of tests/data. Records follow each other, call ids made distinct, until the
size is reached. Peers that are not installed are left out:

    pip install langchain-core haystack-ai pydantic-ai-harness litellm bpe-openai

Each peer gets its own message objects, made beforehand. `fit` remembers nothing between calls. A ratio is the median
time of a peer over that of `fit` in the same run. Needs a release build.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import platform
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import secateur
from secateur import _core

Message = dict[str, Any]
Trim = Callable[[], Any]
SHARED = Path(__file__).parents[2] / "shared" / "data" / "agents_derived_openai.jsonl.gz"
SAMPLES = Path(__file__).parents[1] / "tests" / "data" / "service.jsonl"


def trace(path: Path, size: int) -> list[Message]:
    """So many messages, whole rounds with distinct call ids, every text an object of its own."""
    content = path.read_bytes()
    text = gzip.decompress(content).decode() if path.suffix == ".gz" else content.decode()
    records = [json.loads(line)["messages"] for line in text.split("\n") if line]
    history: list[Message] = []
    for turn in range(size):
        for record in records:
            for message in json.loads(json.dumps(record)):
                if message["role"] == "system" and history:
                    continue
                if "tool_call_id" in message:
                    message["tool_call_id"] += f"-{turn}"
                for call in message.get("tool_calls") or []:
                    call["id"] += f"-{turn}"
                history.append(message)
                if len(history) >= size:
                    while history[-1]["role"] != "tool":
                        history.pop()
                    return history
    return history


def langchain(history: list[Message], budget: int) -> Iterator[tuple[str, Trim]]:
    """langchain-core's trim_messages, by characters and by a real tokenizer."""
    import bpe_openai
    from langchain_core.messages import convert_to_messages, trim_messages
    from langchain_core.messages.utils import count_tokens_approximately

    messages = convert_to_messages(history)
    options: dict[str, Any] = {"max_tokens": budget, "strategy": "last", "start_on": "human", "include_system": True}
    encoding = bpe_openai.get_encoding("cl100k_base")

    def exact(counted: Any) -> int:
        return sum(4 + len(encoding.encode_ordinary(str(message.content))) for message in counted)

    yield (
        "langchain-core trim_messages",
        lambda: trim_messages(messages, token_counter=count_tokens_approximately, **options),
    )
    yield "langchain-core, exact tokenizer", lambda: trim_messages(messages, token_counter=exact, **options)


def haystack(history: list[Message], budget: int) -> Iterator[tuple[str, Trim]]:
    """Haystack's sliding window, with its own counter."""
    from haystack.dataclasses import ChatMessage
    from haystack.hooks.compaction import SlidingWindowCompactor
    from haystack.token_counters import ApproximateTokenCounter

    # Haystack refuses an empty content.
    messages = [
        ChatMessage.from_openai_dict_format({**message, "content": message.get("content") or " "})
        for message in history
    ]
    compactor, counter = SlidingWindowCompactor(), ApproximateTokenCounter()
    yield "haystack SlidingWindowCompactor", lambda: compactor.compact(messages, budget, counter)


def harness(history: list[Message], budget: int) -> Iterator[tuple[str, Trim]]:
    """pydantic-ai-harness, its sliding window run by hand."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models.test import TestModel
    from pydantic_ai_harness.compaction import SlidingWindowCompaction, compact_now

    messages: list[Any] = []
    names: dict[str, str] = {}
    for message in history:
        content = message.get("content") or ""
        if message["role"] == "assistant":
            parts: list[Any] = [TextPart(content)] if content else []
            for call in message.get("tool_calls") or []:
                names[call["id"]] = call["function"]["name"]
                parts.append(ToolCallPart(names[call["id"]], call["function"]["arguments"], call["id"]))
            messages.append(ModelResponse(parts))
        elif message["role"] == "tool":
            call = message["tool_call_id"]
            messages.append(ModelRequest([ToolReturnPart(names.get(call, "tool"), content, call)]))
        else:
            kind = SystemPromptPart if message["role"] == "system" else UserPromptPart
            messages.append(ModelRequest([kind(content)]))
    strategy: Any = SlidingWindowCompaction(max_tokens=budget, keep_tokens=budget // 2)
    model = TestModel()
    yield (
        "pydantic-ai-harness SlidingWindowCompaction",
        lambda: asyncio.run(compact_now(strategy, list(messages), model=model)),
    )


def litellm(history: list[Message], budget: int) -> Iterator[tuple[str, Trim]]:
    """Litellm's trim_messages, which takes a minute for 2,000 messages."""
    if len(history) > 2000:
        return
    from litellm.utils import trim_messages

    yield "litellm trim_messages", lambda: trim_messages(history, model="gpt-4o", max_tokens=budget)


PEERS = (langchain, haystack, harness, litellm)


def median_seconds(work: Trim) -> float:
    """Median of several runs, of one where a run takes seconds."""
    times: list[float] = []
    while len(times) < 15 and sum(times) < 3:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def session_seconds(history: list[Message], budget: int, size: int) -> tuple[float, float]:
    """Median time of an append with its window, at a tenth of the length and at all of it."""
    session = secateur.Session(budget, format="openai_chat", counter="script")
    medians = []
    for stop in (size // 10, size):
        grown = [history[index % len(history)] for index in range(len(session), stop - 400)]
        session.extend(grown)
        times = []
        for index in range(400):
            message = history[(len(grown) + index) % len(history)]
            start = time.perf_counter()
            session.append(message)
            session.window()
            times.append(time.perf_counter() - start)
        medians.append(statistics.median(times))
    return medians[0], medians[1]


def peak_bytes(work: Trim) -> int:
    """What Python objects a call holds at most; the core's own columns come on top (about 100 bytes a message)."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED if SHARED.is_file() else SAMPLES)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 20_000])
    parser.add_argument("--budget", type=int, default=32_000)
    parser.add_argument("--session", type=int, default=100_000, metavar="MESSAGES")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if _core.BUILD_PROFILE != "release":
        sys.exit(f"this is a {_core.BUILD_PROFILE} build: run `pip install .` (not -e) before measuring")
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    print(f"{options.data.name}; {platform.machine()}, Python {platform.python_version()}, budget {options.budget:,}\n")
    print("| messages | MB | what | ms | ratio |\n| --- | --- | --- | --- | --- |")
    for size in options.sizes:
        history = trace(options.data, size)
        megabytes = sum(len(json.dumps(message)) for message in history) / 1e6

        # By the script rule, which reads ASCII texts as little as the peers' characters by four do.
        def again(history: list[Message] = history, counter: str = "script") -> secateur.Window:
            return secateur.fit(history, options.budget, counter=counter)

        # Nothing is remembered between calls of fit, so that a second call over the same objects is as cold; only the
        # caches of the processor are warm.
        start = time.perf_counter()
        again()
        first = time.perf_counter() - start
        ours = median_seconds(again)
        rows += [
            {"messages": size, "what": "secateur fit, first call", "seconds": first},
            {"messages": size, "what": "secateur fit", "seconds": ours},
        ]
        for counter in ("o200k", "any"):
            seconds = median_seconds(partial(again, counter=counter))
            rows.append({"messages": size, "what": f"secateur fit, counter={counter!r}", "seconds": seconds})
        for peer in PEERS:
            try:
                rows += [
                    {"messages": size, "what": name, "seconds": median_seconds(trim)}
                    for name, trim in peer(history, options.budget)
                ]
            except ImportError as error:
                print(f"<!-- {peer.__name__} is not installed: {error} -->")
        for row in rows:
            if row["messages"] == size:
                numbers = f"{1e3 * row['seconds']:,.2f} | {row['seconds'] / ours:,.1f}"
                print(f"| {size:,} | {megabytes:.1f} | {row['what']} | {numbers} |")
        print(f"\nPython objects of one call over the input: {peak_bytes(again) / 2**20:.1f} MiB\n")
    history = trace(options.data, 20_000)
    short, long = session_seconds(history, options.budget, options.session)
    print(f"Session.append and window at {options.session // 10:,} messages: {1e6 * short:.0f} µs;", end=" ")
    print(f"at {options.session:,}: {1e6 * long:.0f} µs")
    rows.append({"messages": options.session, "what": "Session.append and window", "seconds": long})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
