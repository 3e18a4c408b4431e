"""The command line as a user runs it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from samples import DATA, records
from secateur import TokenEstimator, cli, estimate_tokens, formats, prune_context
from secateur.embed import model
from secateur.tokens import PROFILES

Capture = pytest.CaptureFixture[str]


def run(*arguments: str) -> int:
    return cli.main(arguments)


def test_demo_shows_scores_and_reasons(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run("demo") == 0
    output = capsys.readouterr().out
    rows = [line.split() for line in output.splitlines()]
    assert [row[2] for row in rows[5:7]] == ["recalled", "recalled"]
    assert "4 of 8 messages and the prompt are sent." in output


def test_demo_as_json(capsys: Capture) -> None:
    assert run("demo", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [message["content"] for message in result["messages"]] == [
        *(message["content"] for message in cli.EXAMPLE[4:]),
        cli.EXAMPLE_PROMPT,
    ]
    assert [choice["kept"] for choice in result["choices"]] == [False] * 4 + [True] * 4


def test_prune_is_prune_context(capsys: Capture) -> None:
    path, prompt = str(DATA / "meeting.jsonl"), "What did they say about the budget?"
    assert run("prune", path, "--prompt", prompt, "--top-k", "3", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["messages"] == prune_context(prompt, records("meeting.jsonl")[0]["messages"], 3)
    assert run("prune", path, "--prompt", prompt, "--top-k", "3", "--all") == 0
    assert "5 of 168 messages and the prompt are sent." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["--unit", "turn"], {"unit": "turn"}),
        (["--keep-last", "5"], {"keep_last": 5}),
        (["--min-score", "0.2", "--top-k", "50"], {"min_score": 0.2, "top_k": 50}),
        (["--top-k", "7"], {"top_k": 7}),
    ],
)
def test_prune_options(flags: list[str], options: dict[str, Any], capsys: Capture) -> None:
    history, prompt = records("service.jsonl")[1]["messages"], "Which flight was cancelled?"
    assert run("prune", str(DATA / "service.jsonl"), "--record", "1", "--prompt", prompt, "--json", *flags) == 0
    expected = prune_context(prompt, history, **options)
    assert json.loads(capsys.readouterr().out)["messages"] == expected
    assert expected != prune_context(prompt, history), "the option matters here"


def test_count(capsys: Capture) -> None:
    path = str(DATA / "coding.jsonl")
    messages = records("coding.jsonl")[0]["messages"]
    assert run("count", path, "--record", "0", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["messages"] == len(messages) == sum(result["roles"].values())
    assert list(result["profiles"]) == list(PROFILES)
    texts = formats.read(messages).texts
    for profile, counted in result["profiles"].items():
        assert counted["tokens"] == sum(TokenEstimator(profile).count_many(texts)) == sum(counted["roles"].values()) > 0
    assert result["profiles"]["script"]["tokens"] == estimate_tokens(messages, profile="script")
    assert run("count", path, "--record", "0") == 0
    shown = capsys.readouterr().out
    for profile, counted in result["profiles"].items():
        assert re.search(rf"^{re.escape(profile)} .* {counted['tokens']:,}$", shown, re.MULTILINE), profile


def test_count_for_a_model_and_by_chosen_profiles(capsys: Capture) -> None:
    path = str(DATA / "coding.jsonl")
    messages = records("coding.jsonl")[0]["messages"]
    assert run("count", path, "--record", "0", "--json", "--model", "claude-opus-4-8") == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["profiles"]) == ["claude"]
    assert (result["model"], result["request"]) == ("claude-opus-4-8", estimate_tokens(messages, "claude-opus-4-8"))
    assert result["request"] > result["profiles"]["claude"]["tokens"]
    assert run("count", path, "--record", "0", "--model", "claude-opus-4-8") == 0
    assert f"A request to claude-opus-4-8 costs about {result['request']:,} tokens." in capsys.readouterr().out
    assert run("count", path, "--record", "0", "--json", "--profile", "script", "--profile", "kimi") == 0
    result = json.loads(capsys.readouterr().out)
    assert (list(result["profiles"]), "request" in result) == (["script", "kimi"], False)


def test_fit_tokens(tmp_path: Path, capsys: Capture) -> None:
    calibration, weights = tmp_path / "calibration.jsonl", tmp_path / "weights.bin"
    calibration.write_bytes((DATA / "tokens.jsonl").read_bytes() * 4)
    assert run("fit-tokens", str(calibration), "--output", str(weights), "--epochs", "2", "--about", "samples") == 0
    captured = capsys.readouterr()
    assert captured.out == f"{weights}: {weights.stat().st_size:,} bytes\n"
    assert captured.err.endswith("12 of 12 epochs\n")
    assert TokenEstimator("kimi", weights=weights).native.about == "samples"
    calibration.write_text('{"text": "too few", "counts": {"mine": 2}}\n')
    assert run("fit-tokens", str(calibration), "--output", str(weights)) == 1
    assert "records is 1, it must be at least 200 texts" in capsys.readouterr().err


def test_model_path_and_fetch(capsys: Capture) -> None:
    assert run("model", "fetch") == 0
    assert capsys.readouterr().err == f"already in {model.directory()}\n"
    assert run("model", "path") == 0
    assert capsys.readouterr().out.strip() == str(model.locate().graph.parent)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["count", "absent.json"], "absent.json: No such file or directory"),
        (["count", str(DATA / "service.jsonl")], "say which with --record"),
        (["prune", str(DATA / "meeting.jsonl"), "--prompt", ""], "current_prompt has no text"),
        (["prune", str(DATA / "meeting.jsonl"), "--prompt", "x", "--top-k", "-1"], "top_k is -1, it must be"),
        (["demo", "--model", "nowhere"], "nowhere has no model.onnx"),
        (["model", "fetch", "--force", "--from", "nowhere"], "cannot be read: No such file or directory"),
    ],
)
def test_errors_are_one_line(arguments: Sequence[str], problem: str, capsys: Capture) -> None:
    assert run(*arguments) == 1
    captured = capsys.readouterr()
    assert problem in captured.err.splitlines()[-1]
    assert captured.err.splitlines()[-1].startswith("secateur: ")
    assert captured.out == ""


@pytest.mark.parametrize("arguments", [[], ["cut"], ["prune", "x.json"], ["demo", "--top-k", "2"]])
def test_wrong_usage(arguments: Sequence[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2
    assert "usage: secateur" in capsys.readouterr().err


def test_without_rich(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name in [name for name in sys.modules if name == "rich" or name.startswith("rich.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert run("count", str(DATA / "meeting.jsonl")) == 1
    assert "extra 'cli', or use --json" in capsys.readouterr().err
    assert run("count", str(DATA / "meeting.jsonl"), "--json") == 0


def test_what_a_terminal_would_obey_is_shown_as_text(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps([{"role": "user\x1b[0m", "content": "\x1b[31m [bold]red[/bold] \ud800 \u202e"}]))
    assert run("prune", str(path), "--prompt", "x") == 0
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert "[bold]red[/bold]" in output


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in bash, a pipe failing if any part does."""
    line = command.replace("secateur", f"{sys.executable} -m secateur", 1)
    run = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(run, capture_output=True, text=True, check=False, env=os.environ | environment)


@pytest.mark.parametrize("form", ["--all", "--json"])
def test_a_closed_pipe_is_no_error(form: str) -> None:
    done = shell(f"secateur prune {DATA / 'meeting.jsonl'} --prompt x --top-k 0 {form} | head -1")
    assert (done.stderr, done.returncode) == ("", 0)
    assert len(done.stdout.splitlines()) == 1


def test_a_full_disk_and_a_closed_input_are_said() -> None:
    done = shell(f"secateur count {DATA / 'meeting.jsonl'} > /dev/full")
    assert (done.returncode, done.stderr) == (1, "secateur: the output cannot be written: No space left on device\n")
    done = shell("secateur count - <&-")
    assert (done.returncode, done.stderr) == (1, "secateur: -: standard input is closed\n")


def test_a_terminal_without_the_characters_gets_marks() -> None:
    done = shell(f"secateur prune {DATA / 'memories.jsonl'} --record 1 --prompt x", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "???" in done.stdout


def test_import_needs_no_model_package() -> None:
    heavy = "onnxruntime tokenizers onnx rich huggingface_hub"
    code = f"import sys, secateur, secateur.cli; print([name for name in '{heavy}'.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
