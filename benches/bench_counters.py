"""Packages that count tokens exactly: speed, and whether they agree with each other and with known counts.

    python benches/bench_counters.py [--data FOLDER] [--every N]

FOLDER holds `multilingual.jsonl.gz` (conversations, for the speed) and `tokens_calib.jsonl.gz` (texts with `counts`);
it is `../shared/data` where that is present. Without it the samples of tests/data are counted, and compared with
nothing. Packages that are not installed are named and left out. Speeds are medians of rounds in which all packages of a
family take turns.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from secateur import formats
from secateur.counters import _FAMILIES, Counter, Remembered
from secateur.tokens import TokenCounter

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"
ROUNDS = 7
# What the families are called in the file of known counts.
KNOWN = {"claude": "claude47", "claude-3": "claude3", "mistral": "tekken"}


def records(folder: Path | None, name: str) -> list[dict[str, Any]]:
    """What a file of JSON lines holds; nothing without a folder, unless the tests have a sample of it."""
    if folder is not None:
        lines = gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()).decode()
    else:
        sample = ROOT / "tests" / "data" / f"{name}.jsonl"
        lines = sample.read_text(encoding="utf-8") if sample.exists() else ""
    return [json.loads(line) for line in lines.split("\n") if line]


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and agreement of exact counters")
    parser.add_argument("--data", type=Path, default=SHARED if SHARED.is_dir() else None)
    parser.add_argument("--every", type=int, default=1, help="compare every Nth of the known counts")
    arguments = parser.parse_args()
    conversations = records(arguments.data, "multilingual")
    texts = [text for record in conversations for text in formats.read(record["messages"]).texts]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    known = records(arguments.data, "tokens_calib")[:: arguments.every]
    print(f"Python {platform.python_version()}, {platform.machine()}, {sys.platform}")
    print(f"{len(texts)} texts of {megabytes:.2f} MB for the speed, {len(known)} texts with known counts\n")
    print("| family | package | load ms | counts/s | MB/s | counts/s, batch | remembered/s | equal | like the first |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for family, sources in ((name, each.sources) for name, each in _FAMILIES.items()):
        counters: dict[str, Counter] = {}
        load: dict[str, float] = {}
        for source, vocabulary in sources:
            start = time.perf_counter()
            try:
                counters[source.package] = source.load(vocabulary)
            except Exception as error:  # noqa: BLE001  # a package that is not there, or not as it was
                print(f"| {family} | {source.package} | {type(error).__name__}: {error} |")
            load[source.package] = time.perf_counter() - start
        one: dict[str, list[float]] = {name: [] for name in counters}
        batch: dict[str, list[float]] = {name: [] for name in counters}
        again: dict[str, list[float]] = {name: [] for name in counters}
        kept: dict[str, TokenCounter] = {name: Remembered(counter) for name, counter in counters.items()}
        for _ in range(ROUNDS):
            for name, counter in counters.items():
                one[name].append(seconds(lambda counter=counter: [counter.count(text) for text in texts]))  # type: ignore[misc]
                batch[name].append(seconds(lambda counter=counter: counter.count_many(texts)))  # type: ignore[misc]
                for runs in ([], again[name]):
                    runs.append(seconds(lambda counter=kept[name]: [counter.count(text) for text in texts]))  # type: ignore[misc]
        first: list[int] | None = None
        for name, counter in counters.items():
            counts = [counter.count(record["text"]) for record in known]
            first = first or counts
            right = [record["counts"][KNOWN.get(family, family)] for record in known]
            equal = sum(map(int.__eq__, counts, right))
            like = sum(map(int.__eq__, counts, first))
            speed = len(texts) / statistics.median(one[name])
            print(
                f"| {family} | {name} | {load[name] * 1e3:.0f} | {speed:,.0f} | {speed * megabytes / len(texts):.1f} "
                f"| {len(texts) / statistics.median(batch[name]):,.0f} "
                f"| {len(texts) / statistics.median(again[name]):,.0f} "
                f"| {equal} / {len(known)} | {like} / {len(known)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
