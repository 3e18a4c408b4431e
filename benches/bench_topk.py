"""Exact top-K by cosine against what else there is, on vectors of real texts and on random ones.

    python benches/bench_topk.py [--data FOLDER] [--vectors FILE] [--sizes 100 1000 10000] [--json FILE]

FOLDER holds dialogues and agent traces (`../shared/data` where that is present); up to 110,000 distinct pieces of them
are embedded by MiniLM, once: FILE keeps the vectors. Beyond them, and without FOLDER beyond the 200 of tests/data, a
row is the mean of two real rows, of unit length. Queries are rows that are not searched. Needs a release build, the
extra `bench` and, without FILE, the fetched model; peers that are not installed (faiss-cpu, torch, usearch, simsimd,
numkong) are left out.

One thread for all. Every round runs all contestants in turn, each for at least 2 ms, with another query each time; a
figure is the median of the rounds, in CPU time. Before that the answers are compared with brute force: ours must be
those rows; peers that miss some are named.

- numpy: `M @ q`, `argpartition`, sorting of what is left; the norms have been divided out beforehand. As for all peers.
- published: scipy's `cosine` for each row, in a loop.
- one shot: `secateur.top_k` on the bare matrix, which numpy needs to read twice (product and norms).
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import gzip
import itertools
import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cosine

import secateur
from secateur import _core
from secateur.embed.minilm import MiniLM

Matrix = NDArray[np.float32]
Rows = NDArray[np.int64]
Search = Callable[[Matrix, int], Any]

SAMPLES = Path(__file__).parent.parent / "tests" / "data"
SHARED = Path(__file__).parents[2] / "shared" / "data"
PIECES = 110_000
QUERIES = 64
BATCH = 16
LEAST_SECONDS = 0.002


def strings(value: Any) -> Iterator[str]:
    """All strings within JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def pieces(folder: Path) -> list[str]:
    """Distinct sentences and paragraphs of 20 to 400 characters."""
    found: dict[str, None] = {}
    for file in [*sorted(folder.glob("dialogues_*.jsonl.gz")), *sorted(folder.glob("agents_*.jsonl.gz"))]:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for text in itertools.chain.from_iterable(strings(json.loads(line)) for line in lines):
                for piece in re.split(r"\n\s*\n|\n(?=[-*#>])|(?<=[.!?])\s+(?=[A-Z])", text):
                    if 20 <= len(piece.strip()) <= 400:
                        found.setdefault(piece.strip())
    distinct = list(found)
    np.random.default_rng(0).shuffle(distinct)
    return distinct[:PIECES]


def real_vectors(folder: Path | None, file: Path | None, wanted: int) -> Matrix:
    """What MiniLM makes of real texts, as many as wanted if there are."""
    if file is not None and file.exists():
        stored: Matrix = np.load(file)
        return stored
    if folder is None:
        reference: Matrix = np.load(SAMPLES / "minilm_reference.npz")["vectors"]
        return reference
    texts, model = pieces(folder)[: wanted + QUERIES], MiniLM()
    vectors = np.concatenate([model.embed(texts[start : start + 2000]) for start in range(0, len(texts), 2000)])
    if file is not None:
        np.save(file, vectors)
    return vectors


def real(count: int, known: Matrix) -> tuple[Matrix, Matrix]:
    """`count` rows and some queries; means of two where there are not as many."""
    queries, rows = known[:QUERIES], known[QUERIES:]
    if count > len(rows):
        generator = np.random.default_rng(1)
        mixed = np.empty((count - len(rows), rows.shape[1]), np.float32)
        for start in range(0, len(mixed), 65536):
            part = mixed[start : start + 65536]
            first, second = generator.integers(0, len(rows), (2, len(part)))
            part[:] = rows[first] + rows[second]
            part /= np.linalg.norm(part, axis=1, keepdims=True)
        rows = np.concatenate([rows, mixed])
    return np.ascontiguousarray(rows[:count]), np.ascontiguousarray(queries)


def random(count: int, dimension: int) -> tuple[Matrix, Matrix]:
    """Directions without any preference, all rows of unit length."""
    generator = np.random.default_rng(2)
    rows = np.empty((count + QUERIES, dimension), np.float32)
    for start in range(0, len(rows), 65536):
        part = rows[start : start + 65536]
        part[:] = generator.standard_normal(part.shape, np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return rows[:count], rows[count:].copy()


def of_scores(scores: Matrix, k: int) -> Rows:
    """The `k` highest, best first."""
    best = np.argpartition(-scores, min(k, len(scores) - 1))[:k]
    found: Rows = best[np.argsort(-scores[best])]
    return found


def published(rows: Matrix) -> Search:
    """One comparison at a time."""

    def search(query: Matrix, k: int) -> Rows:
        return of_scores(np.array([1 - cosine(query, row) for row in rows], np.float32), k)

    return search


def faiss_flat(rows: Matrix) -> Any:
    """The exact index of faiss over float32 rows."""
    import faiss

    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(rows.shape[1])
    flat.add(rows)
    return flat


def peers(rows: Matrix) -> dict[str, Search]:
    """What else searches a matrix whose rows have unit length, each with its data prepared."""
    found: dict[str, Search] = {"numpy": lambda query, k: of_scores(rows @ query, k)}
    try:
        import simsimd  # before torch, after which it reads no arrays

        found["simsimd"] = lambda query, k: of_scores(
            np.asarray(simsimd.cdist(query[None], rows, "dot"))[0].astype(np.float32), k
        )
    except ImportError:
        pass
    try:
        import faiss

        flat = faiss_flat(rows)
        found["faiss flat"] = lambda query, k: flat.search(query[None], k)[1][0]
        coarse = faiss.IndexScalarQuantizer(rows.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
        refined = faiss.IndexRefineFlat(coarse)
        refined.train(rows[:50_000])
        refined.add(rows)
        refined.k_factor = 4
        found["faiss SQ8 refine"] = lambda query, k: refined.search(query[None], k)[1][0]
    except ImportError:
        pass
    try:
        import torch

        torch.set_num_threads(1)
        tensor = torch.from_numpy(rows)
        found["torch"] = lambda query, k: torch.topk(tensor @ torch.from_numpy(query), k)[1].numpy()
    except ImportError:
        pass
    try:
        from usearch.index import search as usearch

        found["usearch exact"] = lambda query, k: usearch(rows, query, k, "ip", exact=True, threads=1).keys
    except ImportError:
        pass
    try:
        import numkong

        packed = numkong.dots_pack(rows)
        found["numkong"] = lambda query, k: of_scores(
            np.asarray(numkong.dots_packed(query[None], packed))[0].astype(np.float32), k
        )
    except (ImportError, AttributeError):
        pass
    for name, search in list(found.items()):
        try:
            search(rows[0], 1)
        except (TypeError, ValueError, RuntimeError) as error:
            print(f"- {name} is left out: {error}")
            del found[name]
    return found


def batches(rows: Matrix) -> dict[str, Search]:
    """The same for several queries at once."""

    def with_numpy(queries: Matrix, k: int) -> Rows:
        scores = queries @ rows.T
        best = np.argpartition(-scores, min(k, len(rows) - 1), axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
        found: Rows = np.take_along_axis(best, order, 1)
        return found

    found: dict[str, Search] = {"numpy": with_numpy}
    try:
        import torch

        torch.set_num_threads(1)
        tensor = torch.from_numpy(rows)
        found["torch"] = lambda queries, k: torch.topk(torch.from_numpy(queries) @ tensor.T, k)[1].numpy()
    except ImportError:
        pass
    try:
        flat = faiss_flat(rows)
        found["faiss flat"] = lambda queries, k: flat.search(queries, k)[1]
    except ImportError:
        pass
    return found


def measure(contestants: dict[str, Search], queries: list[Matrix], k: int, rounds: int) -> dict[str, float]:
    """Median CPU time of a call, in microseconds."""
    repeats: dict[str, int] = {}
    for name, search in contestants.items():
        search(queries[0], k)
        start = time.process_time()
        search(queries[-1], k)
        repeats[name] = max(1, min(1000, round(LEAST_SECONDS / max(time.process_time() - start, 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    turn = itertools.cycle(queries)
    for _ in range(rounds):
        for name, search in contestants.items():
            now = [next(turn) for _ in range(repeats[name])]
            start = time.process_time()
            for query in now:
                search(query, k)
            times[name].append((time.process_time() - start) / repeats[name] * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def compare(contestants: dict[str, Search], queries: list[Matrix], rows: Matrix, k: int) -> None:
    """Ends the run if we find other rows than float64 brute force, beyond rounding; says which peers do."""
    for name, search in contestants.items():
        missed = 0
        for query in queries[:4]:
            for one, found in zip(np.atleast_2d(query), np.atleast_2d(search(query, k)), strict=True):
                scores = (
                    rows.astype(np.float64, copy=False) @ one.astype(np.float64) if len(rows) <= 100_000 else rows @ one
                )
                least = np.partition(scores, len(scores) - k)[len(scores) - k]
                missed += len(set(found.tolist())) != k or scores[found.astype(np.int64)].min() < least - 2e-6
        if missed:
            print(f"- {name} misses rows for k={k}")
            if name in ("secateur", "one shot"):
                sys.exit("we must not")


def bench(name: str, rows: Matrix, queries: Matrix, ks: list[int], rounds: int) -> list[dict[str, Any]]:
    """All figures of one matrix."""
    count, dimension = rows.shape
    index = secateur.VectorIndex(dimension)
    start = time.perf_counter()
    index.append(rows)
    per_row = (time.perf_counter() - start) / count * 1e6
    memory = index.memory() / rows.nbytes
    print(f"\n{name}, {count:,} rows: append {per_row:.2f} us a row, memory {memory:.2f} x float32\n")
    records: list[dict[str, Any]] = []
    others, others_of_batch = peers(rows), batches(rows)
    for k in [k for k in ks if k <= count]:
        ours: dict[str, Search] = {"secateur": lambda query, k: index.top_k(query, k)[0]}
        shot: dict[str, Search] = {"one shot": lambda query, k: secateur.top_k(rows, query, k)[0]}
        if k == 10 and count <= 100_000:
            shot["published"] = published(rows)
        contestants = ours | others | shot
        compare(contestants, list(queries), rows, k)
        times = measure(contestants, list(queries), k, rounds if count < 1_000_000 else max(5, rounds // 2))
        records.append({"data": name, "rows": count, "k": k, "batch": 1, "append": per_row, "memory": memory, **times})
        show(records[-1])
    if count >= 1000:
        ours = {"secateur": lambda queries, k: index.top_k_batch(queries, k)[0]}
        groups = [queries[start : start + BATCH] for start in range(0, QUERIES, BATCH)]
        compare(ours | others_of_batch, groups, rows, 10)
        times = measure(ours | others_of_batch, groups, 10, max(5, rounds // 2))
        records.append({"data": name, "rows": count, "k": 10, "batch": BATCH, **times})
        show(records[-1])
    if count >= 10_000:
        recent = secateur.HalfLife(200)
        print(
            f"one thread {wall(index, queries):,.0f} us wall, two {wall(index, queries, threads=2):,.0f}; "
            f"half-life of 200 rows {wall(index, queries, weights=recent):,.0f}, "
            f"newest 1,000 hidden {wall(index, queries, mask=slice(None, -1000)):,.0f}",
            flush=True,
        )
    return records


def wall(index: secateur.VectorIndex, queries: Matrix, **options: Any) -> float:
    """Median wall time of a search for the ten best, in microseconds."""
    times = []
    for query in itertools.chain(queries, queries):
        start = time.perf_counter()
        index.top_k(query, 10, **options)
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def show(record: dict[str, Any]) -> None:
    """One line: our time, and how many times as long the others take."""
    own = record["secateur"]
    plain = ("data", "rows", "k", "batch", "append", "memory", "secateur")
    others = ", ".join(f"{name} {value / own:.1f}x" for name, value in record.items() if name not in plain)
    print(f"k={record['k']}, batch {record['batch']}: {own:,.1f} us; {others}", flush=True)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED if SHARED.exists() else None)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--ks", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", choices=["real", "random"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if _core.BUILD_PROFILE != "release":
        sys.exit("This is a debug build: install with `pip install '.[bench]'`.")
    known = real_vectors(options.data, options.vectors, max(options.sizes))
    print(
        f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}, {len(known):,} real vectors"
    )
    records = []
    for size in options.sizes:
        if options.only != "random":
            records += bench("real", *real(size, known), options.ks, options.rounds)
        if options.only != "real":
            records += bench("random", *random(size, known.shape[1]), options.ks, options.rounds)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
