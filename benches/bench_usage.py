"""Requests counted by `request_tokens` with exact counters, against what providers billed for them.

    python benches/bench_usage.py [--data FOLDER] [--misses] [--sample FILE]

FOLDER holds `usage.jsonl.gz`; it is `../shared/data` where that is present, and without it the sample of tests/data is
used. Records that are not `clean` (files, server tools, texts that are not recorded) are left out, and so are models
without an exact counter. Grok and Nova are counted with the vocabulary of OpenAI, Kimi and GLM with those that splintr
has. Share exact, share within 1, median and 95th percentile of the absolute error.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from secateur import counters
from secateur.billing import request_tokens
from secateur.errors import CounterUnavailable
from secateur.frames import FRAMES, frame_for, profile_for
from secateur.tokens import TokenCounter

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"
FORMATS = {"openai": "openai_chat", "responses": "openai_responses"}
# Where a model runs, as a prefix of its name.
HOSTS = {
    "aiplatform": "vertex_ai/", "vercel": "vercel/", "azure": "azure/", "services.ai": "azure/", "ollama": "ollama/",
    "11434": "ollama/",
}  # fmt: skip
PARTS = (
    "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "inputTokens", "cacheReadInputTokens",
    "cacheWriteInputTokens",
)  # fmt: skip
OPENAI = ("openai", "o-", "gpt-5")
CALLS = ("tool_calls", "call_id", "tool_use", "toolUse", "functionCall", "function_call")
# Small records for the tests, of free licences.
SAMPLE = (
    "logfire/b8d0c0b581ad", "langchaingo/76c3a831da91", "openinference/a729bb0f4e35", "crewAI/39326482778c",
    "logfire/755b4612a8b3", "fantasy/46b0e2c25fec", "logfire/e7b161cf936d", "fantasy/6ed383bd8e7c",
    "crewAI/e37d313107e5", "ruby_llm/fb285b4b35b4", "openinference/86479b31a25c", "openinference/b22203283500",
)  # fmt: skip
LOADED: dict[str, TokenCounter | None] = {}
# Families without a counter of their own here: a near one, or one that is in a package only.
NEAR: dict[str, Callable[[], TokenCounter]] = {
    "claude": lambda: counters._load_ctok("4.8"),
    "claude-3": lambda: counters._load_ctok("3.0"),
    "kimi": lambda: counters._load_splintr("kimi_k2"),
    "glm": lambda: counters._load_splintr("glm4"),
    "qwen3.6": lambda: counters.exact("qwen3"),
    "any": lambda: counters.exact("o200k"),
}


def counter_of(model: str) -> TokenCounter | None:
    family = profile_for(model)
    if family not in LOADED:
        try:
            LOADED[family] = counters.Remembered(NEAR[family]()) if family in NEAR else counters.exact(family)
        except (CounterUnavailable, ImportError) as error:
            print(f"{family}: {error}")
            LOADED[family] = None
    return LOADED[family]


def named(record: dict[str, Any]) -> str:
    host = next((prefix for part, prefix in HOSTS.items() if part in record.get("provider", "")), "")
    return f"{host}{record['model']}"


def arguments(record: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `request_tokens` for a record."""
    params = record.get("params") or {}
    choice = params.get("tool_choice", params.get("toolConfig"))
    if params.get("parallel_tool_calls") is False and choice in (None, "auto"):
        choice = {"type": "auto", "disable_parallel_tool_use": True}
    more = params.get("additionalModelRequestFields") or {}
    return {
        "messages": record["messages"],
        "model": named(record),
        "system": record.get("system"),
        "tools": record.get("tools") or params.get("functions"),
        "format": FORMATS.get(record["format"], record["format"]),
        "tool_choice": choice,
        "response_format": params.get("response_format") or params.get("text") or params.get("output_config"),
        "thinking": params.get("thinking") or more.get("thinking") or more.get("reasoning_config"),
        "media": lambda _: 0,
    }


def billed(record: dict[str, Any]) -> int:
    usage = record["usage"]
    if record["format"] in ("anthropic", "bedrock"):
        return sum(usage.get(key) or 0 for key in PARTS)
    keys = ("prompt_tokens", "prompt_eval_count", "promptTokenCount", "totalTokens", "input_tokens")
    return int(next(usage[key] for key in keys if key in usage))


def kind(record: dict[str, Any]) -> str:
    written = json.dumps(record["messages"])
    params = record.get("params") or {}
    if any(f'"{key}"' in written for key in CALLS):
        return "calls"
    if record.get("tools") or params.get("functions"):
        return "tools"
    return "schema" if "response_schema" in record["flags"] else "text"


def write_sample(records: list[dict[str, Any]], path: Path) -> None:
    """Write the sample, each record with the counts of the texts that are counted, so that tests need no tokenizer."""
    with path.open("w", encoding="utf-8") as lines:
        for record in (each for name in SAMPLE for each in records if each["id"] == name):
            counter, counts = counter_of(record["model"]), dict[str, int]()
            assert counter is not None
            assert record["licence"] in ("MIT", "Apache-2.0", "BSD-3-Clause")
            request_tokens(**arguments(record), counter=partial(remember, counter, counts))
            kept = {key: value for key, value in record.items() if key not in ("response", "index", "base64_chars")}
            lines.write(json.dumps({**kept, "counts": counts}, ensure_ascii=False) + "\n")


def remember(counter: TokenCounter, counts: dict[str, int], text: str) -> int:
    return counts.setdefault(text, counter.count(text))


def row(name: str, pairs: list[tuple[int, int]]) -> str:
    errors = sorted(abs(counted - true) / true * 100 for counted, true in pairs)
    exact = sum(counted == true for counted, true in pairs) / len(pairs)
    near = sum(abs(counted - true) <= 1 for counted, true in pairs) / len(pairs)
    last = errors[min(len(errors) - 1, int(0.95 * len(errors)))]
    return f"| {name} | {len(pairs)} | {exact:.1%} | {near:.1%} | {statistics.median(errors):.2f} | {last:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Counted requests against what was billed")
    parser.add_argument("--data", type=Path, default=SHARED if SHARED.is_dir() else None)
    parser.add_argument("--misses", action="store_true", help="print what is off by more than a token")
    parser.add_argument("--sample", type=Path, help="write the sample of the tests")
    given = parser.parse_args()
    if given.data is None:
        lines = (ROOT / "tests" / "data" / "usage.jsonl").read_text(encoding="utf-8")
    else:
        lines = gzip.decompress((given.data / "usage.jsonl.gz").read_bytes()).decode()
    records = [json.loads(line) for line in lines.split("\n") if line]
    if given.sample is not None:
        write_sample(records, given.sample)
    groups: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    frames = {id(frame): name for name, frame in FRAMES.items()}
    left_out = Counter[str]()
    for record in records:
        if not record.get("clean", True):
            continue
        counter = counter_of(record["model"])
        if counter is None:
            left_out[profile_for(record["model"])] += 1
            continue
        options = arguments(record)
        pair = request_tokens(**options, counter=counter), billed(record)
        frame = frames[id(frame_for(options["model"], options["format"]))]
        frame = "o-chat" if frame == "o" else frame
        maker = "OpenAI" if frame.startswith(OPENAI) else frame.split("-")[0]
        groups[f"{frame} {kind(record)}"].append(pair)
        groups[f"all {maker} {kind(record)}"].append(pair)
        groups["all"].append(pair)
        if given.misses and abs(pair[0] - pair[1]) > 1:
            print(record["id"], options["model"], frame, kind(record), pair[0] - pair[1], pair[1])
    print("| group | records | exact | within 1 | median % | 95th % |\n| --- | --- | --- | --- | --- | --- |")
    for name in sorted(groups):
        print(row(name, groups[name]))
    if left_out:
        print("without a counter:", dict(left_out))


if __name__ == "__main__":
    main()
