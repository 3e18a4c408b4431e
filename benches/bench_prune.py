"""prune_context against the same task in pure Python, as published and with numpy, on real conversations.

    python benches/bench_prune.py [--data FOLDER] [--sizes 100 1000 10000] [--json FILE]

FOLDER holds `dialogues_qmsum.jsonl.gz` and the like; it is `../shared/data` where that is present. Without it the
small samples of tests/data are repeated up to the size asked for. Needs the extra `bench`, a release build (`pip
install '.[bench]'`) and the fetched model.

- published: every message and the prompt are encoded anew at every call, one at a time, and compared by scipy's cosine.
- numpy: one batch, one matrix product; when warm, the vectors are kept in a dictionary by text.
- secateur: `prune_context`, stateless; when warm, its own memory.

All three use the same model (secateur's MiniLM), so that the ratios are those of the code around it. "Lookup" rows
replace the model by a table of its vectors: what is left is the pruning itself.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cosine

import secateur
from secateur import _core, embed
from secateur.embed.minilm import MiniLM

Message = dict[str, Any]
Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]

SAMPLES = Path(__file__).parent.parent / "tests" / "data"
SHARED = Path(__file__).parents[2] / "shared" / "data"
SOURCES = ("dialogues_qmsum", "dialogues_madial", "dialogues_bfcl_memory", "dialogues_beam", "agents_tau_bench")
PROMPT = "How much is the remote control going to cost?"
TOP_K = 10
LOOKUP_RUNS = 51


def messages(folder: Path | None) -> Iterator[Message]:
    """Real messages with plain text, in the order of the files."""
    if folder is None:
        lines: Iterator[str] = itertools.chain.from_iterable(
            (SAMPLES / name).read_text(encoding="utf-8").splitlines() for name in ("meeting.jsonl", "memories.jsonl")
        )
    else:
        lines = itertools.chain.from_iterable(
            gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()).decode().split("\n")[:-1] for name in SOURCES
        )
    for line in lines:
        for message in json.loads(line)["messages"]:
            content = message.get("content")
            if isinstance(content, str) and content.strip() and message["role"] in ("user", "assistant"):
                yield {"role": message["role"], "content": content}


def history_of(size: int, folder: Path | None) -> list[Message]:
    """The first `size` distinct messages; of the samples, repeated with a number."""
    distinct: dict[str, Message] = {}
    for turn in itertools.count():
        for message in messages(folder):
            content = message["content"] if turn == 0 else f"{message['content']} ({turn})"
            distinct.setdefault(content, {**message, "content": content})
            if len(distinct) == size:
                return list(distinct.values())
    raise AssertionError("unreachable")


def published(prompt: str, history: list[Message], encode: Embed) -> list[Message]:
    """The published sketch, with positions in place of `list.index`."""
    query = encode([prompt])[0]
    archive = history[:-2]
    scores = [(1 - cosine(query, encode([message["content"]])[0]), -index) for index, message in enumerate(archive)]
    best = sorted(scores, reverse=True)[:TOP_K]
    chosen = sorted(-negative for _, negative in best)
    return [*(archive[index] for index in chosen), *history[-2:], {"role": "user", "content": prompt}]


def with_numpy(prompt: str, history: list[Message], encode: Embed, kept: dict[str, Vectors]) -> list[Message]:
    """One batch and one product; vectors of unit length are kept by text."""
    texts = [prompt, *(message["content"] for message in history[:-2])]
    missing = [text for text in texts if text not in kept]
    if missing:
        vectors = encode(missing)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        kept.update(zip(missing, vectors, strict=True))
    matrix = np.stack([kept[text] for text in texts])
    scores = matrix[1:] @ matrix[0]
    best = np.argpartition(-scores, TOP_K)[:TOP_K]
    return [*(history[index] for index in sorted(best)), *history[-2:], {"role": "user", "content": prompt}]


def seconds(work: Callable[[], object], prepare: Callable[[], object], runs: int) -> float:
    """Median time of a call, each after its preparation."""
    times = []
    for _ in range(runs):
        prepare()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def lookup(texts: Sequence[str], encode: Embed) -> Embed:
    """An embedder that has the vectors of these texts ready."""
    table = dict(zip(texts, encode(texts), strict=True))
    return lambda wanted: np.stack([table[text] for text in wanted])


def nothing() -> None:
    """Prepare nothing."""


def measure(history: list[Message], encode: Embed, *, runs: int, loop_runs: int) -> list[dict[str, float]]:
    """Time cold and warm calls of the three; all must choose the same messages."""
    kept: dict[str, Vectors] = {}

    def secateur_call() -> list[Any]:
        return secateur.prune_context(PROMPT, history, TOP_K, embedder=encode)

    def numpy_call() -> list[Message]:
        return with_numpy(PROMPT, history, encode, kept)

    # A warm call has a new prompt: everything but that is remembered.
    prompts = iter([f"{PROMPT} ({number})" for number in range(2 * runs)])
    windows = [published(PROMPT, history, encode), numpy_call(), secateur_call()]
    loop = seconds(lambda: published(PROMPT, history, encode), nothing, loop_runs)
    assert windows[0] == windows[1] == windows[2], "the three disagree"
    return [
        {
            "published": loop,
            "numpy": seconds(numpy_call, kept.clear, runs),
            "secateur": seconds(secateur_call, embed.clear_caches, runs),
        },
        {
            "published": loop,
            "numpy": seconds(lambda: with_numpy(next(prompts), history, encode, kept), nothing, runs),
            "secateur": seconds(
                lambda: secateur.prune_context(next(prompts), history, TOP_K, embedder=encode), nothing, runs
            ),
        },
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED if SHARED.is_dir() else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if _core.BUILD_PROFILE != "release":
        sys.exit(f"this is a {_core.BUILD_PROFILE} build: run `pip install .` (not -e) before measuring")
    model = MiniLM()
    rows = []
    for size in options.sizes:
        history = history_of(size, options.data)
        prompts = [PROMPT, *(f"{PROMPT} ({number})" for number in range(2 * LOOKUP_RUNS))]
        ready = lookup([*prompts, *(message["content"] for message in history)], model.embed)
        large = size > 1000
        for name, encode, runs, loop_runs in [
            ("lookup", ready, LOOKUP_RUNS, 1 if large else 5),
            ("MiniLM", model.embed, 1 if large else 3, 1),
        ]:
            measured = measure(history, encode, runs=runs, loop_runs=loop_runs)
            for state, times in zip(("cold", "warm"), measured, strict=True):
                rows.append({"messages": size, "vectors": name, "state": state, **times})
    data = "real conversations" if options.data else "samples, repeated"
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    print(f"{data}; {platform.machine()}, {_core.BUILD_PROFILE} build, {versions}, top_k={TOP_K}; medians\n")
    print("| messages | vectors | state | secateur ms | published / secateur | numpy / secateur |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        ratios = [f"{row[name] / row['secateur']:,.1f}" for name in ("published", "numpy")]
        numbers = [f"{row['messages']:,}", row["vectors"], row["state"], f"{1e3 * row['secateur']:,.2f}", *ratios]
        print(f"| {' | '.join(map(str, numbers))} |")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
