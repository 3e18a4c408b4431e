"""Token estimates: errors by family, and speed beside tokenizers.

    python benches/bench_tokens.py [--calibration FILE] [--more FILE] [--cross-validate source|document|none]
                                   [--learn] [--leave-languages-out] [--speed]

FILE has JSON lines with `text`, `counts`, and where known `lang`, `kind`, `script`, `source`, `id`; by default it is
`../shared/data/tokens_calib.jsonl.gz` where that is present, and else a sample in tests/data. Errors are those of the
weights that come with the package and, cross-validated, those of networks that have not seen a text's source or its
document; `--more` are further texts that those learn from. Speeds are medians of rounds in which all take turns, as
ratios in one run.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import secateur
from secateur import _core, families, learning
from secateur.counters import _FAMILIES

Floats = npt.NDArray[np.float64]
Chosen = npt.NDArray[np.bool_]
Record = dict[str, Any]

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data" / "tokens_calib.jsonl.gz"
SAMPLE = ROOT / "tests" / "data" / "tokens.jsonl"
# What the calibration file calls the families.
NAMES = {
    "claude2": "claude-2",
    "claude3": "claude-3",
    "claude47": "claude",
    "tekken": "mistral",
    "qwen36": "qwen3.6",
    "kimi_k2": "kimi",
    "glm4": "glm",
}
LANGUAGES = [
    "en", "zh", "zh_TW", "es", "fr", "de", "ru", "ja", "ko", "pt", "pt_BR", "it", "nl", "pl", "tr", "vi", "th",
    "id", "ar", "hi", "bn", "fa", "uk", "cs", "sv", "el", "hu", "ro", "he", "da", "fi", "nb", "ur", "ta", "mr",
]  # fmt: skip
TOOLS = [
    "code", "json", "log", "csv", "json_min", "sql", "yaml", "xml", "html", "diff", "agent_msg", "agent_obs",
    "stacktrace", "minjs", "mdtable", "urls", "json_escaped", "latex",
]  # fmt: skip
PROSE = ["prose", "markdown", "docs", "manpage", "tldr", "agent_msg"]
UNSEEN = [
    "be", "bg", "el", "fa", "fi", "hu", "id", "ka", "kk", "ko", "mk", "mr", "ne", "nl", "pl", "ro", "sr", "sv",
    "sw", "ta", "tr", "uk", "ur", "vi",
]  # fmt: skip
CONVERSATION = 50
COLUMNS = [
    "all", "main", "en+code", ">=4KB", "worst", "p95under", "conv", "conv95", "bias", "upper%", "upperconv%",
]  # fmt: skip


def column(records: Sequence[Record], name: str) -> npt.NDArray[np.str_]:
    return np.array([str(record.get(name) or "") for record in records])


def document(record: Record) -> str:
    """A document, translations of it included."""
    name = str(record.get("id", "")).split("#")[0]
    language = re.escape(str(record.get("lang", "")))
    return f"{record.get('source')} {re.sub(rf'(?<=[/._-]){language}(?=[/._-])', '*', name)}"


def conversations(records: Sequence[Record]) -> list[npt.NDArray[np.int64]]:
    """Fifty texts each, of one language and of tools."""
    random = np.random.default_rng(5)
    languages, kinds = column(records, "lang"), column(records, "kind")
    tools = np.isin(kinds, TOOLS)
    groups = []
    for language in sorted(LANGUAGES):
        members = np.flatnonzero((languages == language) | (tools & (random.random(len(records)) < 0.3)))
        if len(members) and (languages == language).any():
            groups.append(members)
    groups = groups or [np.arange(len(records))]
    return [random.choice(groups[number % len(groups)], CONVERSATION) for number in range(2000)]


def table(records: Sequence[Record], tokens: Floats, estimates: Floats, names: Sequence[str]) -> None:
    """One row a family: errors in percent."""
    languages, kinds, scripts = (column(records, name) for name in ("lang", "kind", "script"))
    characters = np.array([len(record["text"]) for record in records])
    size = np.array([len(record["text"].encode("utf-8", "surrogatepass")) for record in records])
    main = (np.isin(languages, LANGUAGES) | np.isin(kinds, TOOLS)) & (characters >= 200)
    english = (languages == "en") & np.isin(kinds, PROSE) | (kinds == "code")
    english &= characters >= 200
    groups = [scripts == each for each in np.unique(scripts)] + [kinds == each for each in np.unique(kinds)]
    groups = [group for group in groups if group.sum() >= 20]
    drawn = conversations(records)
    rows: list[list[Any]] = []
    print(f"{'':10}" + "".join(f"{heading:>11}" for heading in COLUMNS))
    for name, true, estimate in zip(names, tokens.T, estimates.T, strict=True):
        ratio = estimate / true - 1
        totals = np.array([estimate[each].sum() / true[each].sum() - 1 for each in drawn])

        def mean(chosen: Chosen, ratio: Floats = ratio) -> float:
            return float(np.abs(ratio[chosen]).mean()) if chosen.any() else float("nan")

        row: list[Any] = [mean(characters > 0), mean(main), mean(english), mean(size >= 4096)]
        row += [max((mean(group) for group in groups), default=float("nan")), -np.quantile(ratio[main], 0.05)]
        row += [np.abs(totals).mean(), np.quantile(np.abs(totals), 0.95), estimate.sum() / true.sum() - 1]
        shared, own = secateur.TokenEstimator(name).native.margin
        spread = own**2 * (estimate + 8) ** 2
        row.append(np.mean(estimate + np.sqrt((shared * estimate) ** 2 + spread) < true))
        bounds = [
            estimate[each].sum() + np.hypot(shared * estimate[each].sum(), np.sqrt(spread[each].sum()))
            for each in drawn
        ]
        row.append(np.mean(np.array(bounds) < [true[each].sum() for each in drawn]))
        rows.append(row)
        print(f"{name:10}" + "".join(f"{100 * value:11.2f}" for value in row))
    # What no text of a small file is for stays empty.
    absolute = np.abs(np.array(rows, dtype=np.float64))
    for label, of in (("mean", np.mean), ("worst", np.max)):
        print(f"{label:10}" + "".join(f"{100 * value:11.2f}" for value in of(absolute, axis=0)), flush=True)


def learn(records: Sequence[Record], tokens: Floats, estimates: Floats, names: Sequence[str]) -> None:
    """Errors of the total of what follows after some reports, for a family that is not known, and for one that is."""
    random = np.random.default_rng(3)
    drawn = [random.permutation(each) for each in conversations(records)[:150]]
    after = (0, 1, 3, 5, 10, 25)
    print(f"{'reports':10}" + "".join(f"{number:>8}" for number in after) * 2)
    for family, name in enumerate(names):
        cells = []
        for known in (False, True):
            columns = [family] if known else [other for other in range(len(names)) if other != family]
            for number in after:
                errors = []
                for each in drawn:
                    seen, rest = each[:number], each[number:]
                    of_rest, true = estimates[rest][:, columns], tokens[rest, family].sum()
                    if number == 0:
                        total = of_rest.max(axis=1).sum()
                    else:
                        reports = [int(count) for count in tokens[seen, family]]
                        lesson = learning.learn(estimates[seen][:, columns].tolist(), reports)
                        if lesson.mix is None:
                            total = of_rest.sum() * lesson.factor
                        else:
                            most = (of_rest * lesson.possible).max(axis=1).sum()
                            total = lesson.trust * (of_rest @ lesson.mix).sum() + (1 - lesson.trust) * most
                        total += lesson.offset * len(rest)
                    errors.append(abs(total / true - 1))
                cells.append(f"{100 * np.mean(errors):8.1f}")
        print(f"{name:10}" + "".join(cells))


def leave_languages_out(records: Sequence[Record], texts: families.Texts, names: Sequence[str], epochs: int) -> None:
    """Errors on languages that the network has seen, and on the same unseen."""
    languages = column(records, "lang")
    unseen = np.isin(languages, UNSEEN)
    fold_of = families.folds([document(record) for record in records], 5)
    seen = families.cross_validate(texts, fold_of, epochs=epochs)
    without = families.fit_network(texts[~unseen], epochs=epochs)(texts)
    print(f"{'':10}{'n':>6}" + "".join(f"{name:>16}" for name in names[:5]))
    for language in UNSEEN:
        chosen = languages == language
        cells = []
        for family in range(min(5, len(names))):
            errors = [
                np.abs(each[chosen, family] / texts.tokens[chosen, family] - 1).mean() for each in (seen, without)
            ]
            cells.append(f"{100 * errors[0]:7.1f} ->{100 * errors[1]:6.1f}")
        print(f"{language:10}{chosen.sum():6}" + "".join(f"{cell:>16}" for cell in cells))


def median(function: Callable[[Any], object], argument: object, rounds: int = 7, least: float = 0.02) -> float:
    """Seconds of a call: the median of rounds that each last a while."""
    start = time.perf_counter()
    function(argument)
    repeats = max(1, int(least / max(time.perf_counter() - start, 1e-7)))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(repeats):
            function(argument)
        times.append((time.perf_counter() - start) / repeats)
    return statistics.median(times)


def exact_counters() -> dict[str, Callable[[str], int]]:
    """Every package at hand that counts o200k exactly."""
    found: dict[str, Callable[[str], int]] = {}
    for source, vocabulary in _FAMILIES["o200k"].sources:
        try:
            found[source.package] = source.load(vocabulary).count
        except Exception as error:  # noqa: BLE001  # each package fails in its own way
            print(f"{source.package}: {type(error).__name__}")
    return found


def speed(records: Sequence[Record]) -> None:
    """Microseconds a call and gigabytes of UTF-8 a second, from Python."""
    if _core.BUILD_PROFILE != "release":
        raise SystemExit("build for release first: maturin develop --release")
    estimator, script = secateur.TokenEstimator("o200k"), secateur.TokenEstimator("script")
    counters: dict[str, Callable[[str], object]] = {"o200k": estimator.count, "script": script.count}
    counters |= exact_counters()
    languages = column(records, "lang")
    prose = np.isin(column(records, "kind"), PROSE)
    print(f"an empty call: {1e6 * median(estimator.count, ''):.3f} us")
    for label, language in (("English", "en"), ("Russian", "ru"), ("Chinese", "zh")):
        chosen = [records[int(at)]["text"] for at in np.flatnonzero((languages == language) & prose)]
        whole = "\n".join(text for text in chosen if language != "en" or text.isascii())
        whole = "".join(character for character in whole if ord(character) < 0x10000)
        whole *= (1 << 20) // max(len(whole), 1) + 1
        for length in (50, 200, 2048, 1 << 20):
            text = whole[:length]
            size = len(text.encode())
            times = {name: median(count, text) for name, count in counters.items()}
            cells = [f"{name} {1e6 * each:10.3f} us {size / each / 1e9:7.3f} GB/s" for name, each in times.items()]
            ratios = [f"{name}/o200k {each / times['o200k']:.1f}" for name, each in times.items() if name != "o200k"]
            print(f"{label:8}{length:9} characters  " + "  ".join([*cells, *ratios]))
        many = [whole[at * 50 : at * 50 + 50] for at in range(2000)]
        each = 1e6 * median(estimator.count_many, many) / len(many)
        print(f"{label:8} count_many of 2,000 texts of 50 characters: {each:.3f} us each")


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors and speed of token estimates")
    parser.add_argument("--calibration", type=Path, default=SHARED if SHARED.exists() else SAMPLE)
    parser.add_argument("--more", type=Path, help="texts to learn from beside the calibration")
    parser.add_argument("--cross-validate", choices=("source", "document", "none"), default="none")
    parser.add_argument("--learn", action="store_true", help="with --cross-validate: what usage reports teach")
    parser.add_argument("--leave-languages-out", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--epochs", type=int, default=100)
    arguments = parser.parse_args()
    records = families.read_calibration(arguments.calibration)
    given = list(records[0]["counts"])
    names = [NAMES.get(name, name) for name in given]
    texts = families.Texts.of(records, given)
    estimator = secateur.TokenEstimator("any")
    known = estimator.native.families
    print(f"{len(records):,} texts; weights {estimator.native.about}")
    by_family = np.array([estimator.native.by_family(record["text"]) for record in records])
    table(records, texts.tokens, by_family[:, [known.index(name) for name in names]], names)
    if arguments.cross_validate != "none":
        of = {"source": lambda record: str(record.get("source")), "document": document}[arguments.cross_validate]
        fold_of = families.folds([of(record) for record in records], 10 if arguments.cross_validate == "source" else 5)
        more = None
        if arguments.more:
            more = families.Texts.of(families.read_calibration(arguments.more), given)
        estimates = families.cross_validate(texts, fold_of, more=more, epochs=arguments.epochs)
        print(f"cross-validated by {arguments.cross_validate}")
        table(records, texts.tokens, estimates, names)
        if arguments.learn:
            learn(records, texts.tokens, estimates, names)
    if arguments.leave_languages_out:
        leave_languages_out(records, texts, names, arguments.epochs)
    if arguments.speed:
        speed(records)


if __name__ == "__main__":
    main()
