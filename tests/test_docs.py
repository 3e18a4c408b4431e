"""Public names are documented, exported on purpose, and shown with an example."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import secateur
from secateur import _core

ROOT = Path(__file__).parent.parent


def test_public_names_have_docstrings() -> None:
    names = [name for name in vars(secateur) if not name.startswith("_")]
    public = [name for name in names if not inspect.ismodule(getattr(secateur, name))]
    assert sorted(public) == sorted(secateur.__all__)
    for name in secateur.__all__:
        value = getattr(secateur, name)
        documentation = value.__doc__ or ""
        assert documentation, f"{name} has no docstring"
        assert not documentation.startswith(f"{name}("), f"{name} has a generated docstring only"
        if inspect.isfunction(value) or (isinstance(value, type) and not issubclass(value, Exception)):
            assert ">>> " in documentation, f"{name} has no example"


def test_the_examples_of_the_core_run() -> None:
    for name in ("VectorIndex", "top_k"):
        parsed = doctest.DocTestParser().get_doctest(getattr(_core, name).__doc__, {}, name, None, None)
        assert parsed.examples
        assert doctest.DocTestRunner().run(parsed).failed == 0


def test_the_examples_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
        printed = capsys.readouterr().out.splitlines()
        assert printed == list(re.findall(r"# (.+)", block))


def test_ci_calls_the_test_command_of_the_readme() -> None:
    (command,) = re.findall(r"^\$ (.+pytest)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"\n{command} || exit 1\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_changelog_names_the_version() -> None:
    from importlib.metadata import version

    assert f"## {version('secateur')}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
