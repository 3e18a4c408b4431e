"""Embedding real messages: secateur's MiniLM against sentence-transformers and fastembed, in one run.

    python benches/bench_embed.py [--reference FOLDER] [--data FOLDER] [--threads 1 2] [--rounds 5] [--json FILE]

REFERENCE is the folder of all-MiniLM-L6-v2 as sentence-transformers publishes it, with `onnx/model.onnx` for its ONNX
backend and fastembed; without it, or without the packages, secateur stands alone. DATA holds the shared traces and
dialogues, `../shared/data` where that is present; else the samples of tests/data are read. Prints CPU time a message,
tokenization included, medians of rounds in which all take turns; then single messages, the cold start, peak memory,
how true int8 is to fp32, and the evidence that each tier finds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from real_texts import SAMPLES, default_folder, texts_by_source
from secateur import _core
from secateur.embed.minilm import MiniLM
from secateur.embed.static import StaticEmbedder
from secateur.embed.template import embedded_text

Encode = Callable[[list[str]], Any]
SIZES = {"short": (8, 20, 256), "medium": (45, 70, 128), "long": (256, 256, 32)}
"""Least and most tokens of a message as the model reads it, and how many messages."""
MIXED = 200
DIALOGUES = {"dialogues_qmsum": 8, "dialogues_beam": 3, "dialogues_bfcl_memory": 8, "dialogues_madial": 4}
COLD = "from secateur.embed.minilm import MiniLM; MiniLM({arguments}).embed(['route efficiency'])"


def message_sets(folder: Path | None, model: MiniLM, share: float) -> dict[str, list[str]]:
    """Real messages by their length, and as they come."""
    sources = texts_by_source(folder)
    texts = [text for row in zip(*(source[:400] for source in sources), strict=False) for text in row]
    if folder is None:
        texts = [text for source in sources for text in source]
    lengths = [len(ids) for ids in model._reader.token_ids(texts)]
    sets = {}
    for name, (least, most, number) in SIZES.items():
        found = [text for text, length in zip(texts, lengths, strict=True) if least <= length <= most]
        sets[name] = found[: max(2, int(share * number))]
    sets["mixed"] = texts[: max(2, int(share * MIXED))]
    return sets


def contestants(reference: Path | None, threads: int) -> dict[str, Encode]:
    """Who is there, each with that many threads."""
    found: dict[str, Encode] = {
        "secateur int8": MiniLM(precision="int8", threads=threads).embed,
        "secateur fp32": MiniLM(precision="fp32", threads=threads).embed,
        "secateur static": StaticEmbedder().embed,
    }
    if reference is None:
        return found
    try:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(threads)
        model = SentenceTransformer(str(reference), device="cpu")
        found["sentence-transformers torch"] = lambda texts: model.encode(texts, batch_size=32)
        options = {"session_options": session_options(threads), "provider": "CPUExecutionProvider"}
        onnx_model = SentenceTransformer(str(reference), device="cpu", backend="onnx", model_kwargs=options)
        found["sentence-transformers ONNX"] = lambda texts: onnx_model.encode(texts, batch_size=32)
    except ImportError as error:
        print(f"without sentence-transformers: {error}")
    try:
        from fastembed import TextEmbedding

        name = "sentence-transformers/all-MiniLM-L6-v2"
        fast = TextEmbedding(name, specific_model_path=str(fastembed_folder(reference)), threads=threads)
        found["fastembed (reads 128 tokens)"] = lambda texts: list(fast.embed(texts))
        longer = TextEmbedding(name, specific_model_path=str(fastembed_folder(reference)), threads=threads)
        longer.model.tokenizer.enable_truncation(256)
        found["fastembed (256, as the others)"] = lambda texts: list(longer.embed(texts))
    except ImportError as error:
        print(f"without fastembed: {error}")
    return found


def session_options(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return options


def fastembed_folder(reference: Path) -> Path:
    """The same files with the graph where fastembed looks for it."""
    if not (reference / "model.onnx").exists():
        (reference / "model.onnx").hardlink_to(reference / "onnx" / "model.onnx")
    return reference


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def speed(sets: dict[str, list[str]], encoders: dict[str, Encode], rounds: int) -> dict[str, dict[str, float]]:
    """CPU milliseconds a message, by set and contestant."""
    table: dict[str, dict[str, float]] = {}
    for name, texts in sets.items():
        times: dict[str, list[float]] = {who: [] for who in encoders}
        for encode in encoders.values():
            encode(texts[:2])
        for _ in range(rounds):
            for who, encode in encoders.items():
                times[who].append(cpu_seconds(lambda encode=encode, texts=texts: encode(texts)))  # type: ignore[misc]
        table[name] = {who: 1e3 * statistics.median(each) / len(texts) for who, each in times.items()}
    return table


def single(texts: list[str], encoders: dict[str, Encode]) -> dict[str, float]:
    """Wall milliseconds of one short message alone, warm."""
    found = {}
    for who, encode in encoders.items():
        times = []
        for text in texts[:60]:
            start = time.perf_counter()
            encode([text])
            times.append(time.perf_counter() - start)
        found[who] = 1e3 * statistics.median(times)
    return found


def cold(arguments: str) -> tuple[float, float]:
    """Wall seconds from the start of Python to the first vector, and the peak memory in MB; the median of five."""
    times, peaks = [], []
    # Not by getrusage, which counts what the parent had when it forked.
    peak = "import re, pathlib; print(re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])"
    script = f"{COLD.format(arguments=arguments)}; {peak}"
    for _ in range(5):
        start = time.perf_counter()
        ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
        times.append(time.perf_counter() - start)
        peaks.append(int(ran.stdout) / 1024)
    return statistics.median(times), statistics.median(peaks)


def spearman(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Rank correlation of all cosines between the texts."""
    upper = np.triu_indices(len(one), 1)
    ranks = [np.argsort(np.argsort((vectors @ vectors.T)[upper])).astype(np.float64) for vectors in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def dialogues(folder: Path | None) -> Iterator[tuple[str, list[str], list[dict[str, Any]]]]:
    """Conversations in English with questions whose evidence is known: source, texts, questions."""
    for source, most in DIALOGUES.items() if folder else {"memories": 4}.items():
        content = (SAMPLES / f"{source}.jsonl").read_bytes() if folder is None else None
        content = content or gzip.decompress((folder / f"{source}.jsonl.gz").read_bytes())  # type: ignore[operator]
        number = 0
        for record in map(json.loads, content.decode().split("\n")[:-1]):
            questions = [each for each in record.get("questions") or [] if each.get("evidence_message_indices")]
            if questions and record["lang"] == "en" and number < most:
                number += 1
                texts = [embedded_text(message, message["content"] or "") for message in record["messages"]]
                yield source, texts, questions


def evidence(folder: Path | None, encoders: dict[str, Encode]) -> dict[str, dict[str, list[float]]]:
    """Share of the evidence among the 10 nearest messages, a figure a question, by source and contestant."""
    found: dict[str, dict[str, list[float]]] = {}
    for source, texts, questions in dialogues(folder):
        for who, encode in encoders.items():
            vectors, queries = encode(texts), encode([each["question"] for each in questions])
            for query, question in zip(queries, questions, strict=True):
                best = set(np.argsort(-(vectors @ query), kind="stable")[:10].tolist())
                wanted = set(question["evidence_message_indices"])
                found.setdefault(source, {}).setdefault(who, []).append(len(best & wanted) / len(wanted))
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")
    print()


def instruction_set() -> str:
    """The widest of the processor's extensions that products of integers use."""
    flags = Path("/proc/cpuinfo")
    known = flags.read_text(encoding="utf-8") if flags.exists() else ""
    names = {"amx_int8": "AMX", "avx512_vnni": "AVX-512 VNNI", "avx_vnni": "AVX VNNI", "avx2": "AVX2"}
    return next((name for flag, name in names.items() if flag in known), os.uname().machine)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--data", type=Path, default=default_folder())
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="of the messages; for a trial")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if _core.BUILD_PROFILE != "release":
        sys.exit(f"this is a {_core.BUILD_PROFILE} build: run `pip install .` (not -e) before measuring")
    exact, quantised = MiniLM(precision="fp32"), MiniLM(precision="int8")
    sets = message_sets(options.data, exact, options.share)
    results: dict[str, Any] = {"instruction set": instruction_set()}
    print(f"products of integers by {instruction_set()}; CPU ms a message, as many times as long as secateur int8\n")
    for threads in options.threads:
        encoders = contestants(options.reference, threads)
        measured = results[f"{threads} threads"] = speed(sets, encoders, options.rounds)
        rows = []
        for who in encoders:
            cells = [f"{each[who]:.3f} ({each[who] / each['secateur int8']:.2f})" for each in measured.values()]
            rows.append([who, *cells])
        table([f"{threads} thread(s)", *sets], rows)
        if threads == 1:
            alone = results["single"] = single(sets["short"], encoders)
            table(["one short message, ms", ""], [[who, f"{milliseconds:.2f}"] for who, milliseconds in alone.items()])
    rows = []
    for precision in ("int8", "fp32"):
        seconds, peak = results[f"cold {precision}"] = cold(f"precision={precision!r}")
        rows.append([precision, f"{seconds:.2f}", f"{peak:.0f}"])
    table(["cold start", "seconds to the first vector", "peak MB"], rows)
    texts = [text for source in texts_by_source(options.data) for text in source[400:463]][: int(500 * options.share)]
    results["spearman"] = spearman(exact.embed(texts), quantised.embed(texts)) if len(texts) > 2 else None
    print(f"int8 against fp32 on {len(texts)} texts: Spearman {results['spearman']}\n")
    tiers: dict[str, Encode] = {"fp32": exact.embed, "int8": quantised.embed, "static": StaticEmbedder().embed}
    found = results["evidence"] = evidence(options.data, tiers)
    rows = [[source, *(f"{statistics.mean(each[who]):.4f}" for who in tiers)] for source, each in found.items()]
    table(["evidence among the 10 nearest", *tiers], rows)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
