"""The wheel of data `secateur-minilm`: what the default embedder needs, so that a release needs no network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib import resources
from pathlib import Path

from secateur.embed.model import ABOUT, GRAPHS, MINILM, PACKAGE, STATIC

VERSION = "1.0.0"
"""Raised with the version of the graph or the table."""
_FILES = (GRAPHS["int8"], STATIC, "tokenizer.json", ABOUT)
_NOTICE = f"""\
{MINILM.name}

The files of this package are made from the weights and the tokenizer of
{MINILM.repository} at revision
{MINILM.revision}, published under the Apache License 2.0.

Changes: the weights were quantised to 8 bits, and a table of static token
vectors was distilled from them, by `python -m secateur.embed.build`. The same
weights give the same bytes. {ABOUT} names the checksums of the originals.
"""


def write(files: Path, folder: Path) -> Path:
    """Pack built files into a wheel; the same files and the same zlib give the same bytes.

    Args:
        files: What `build_all` wrote.
        folder: Where the wheel goes; made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = PACKAGE.replace("_", "-")
    info = f"{PACKAGE}-{VERSION}.dist-info"
    licence = resources.files("secateur.embed").joinpath("LICENSE-Apache-2.0").read_bytes()
    metadata = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {VERSION}",
        f"Summary: The {MINILM.name} sentence encoder for secateur: int8 graph, static table, tokenizer",
        f"License-Expression: {MINILM.licence}",
        "License-File: LICENSE",
        "License-File: NOTICE",
        "Requires-Python: >=3.11",
    ]
    contents = {
        f"{PACKAGE}/__init__.py": f'"""The files of {MINILM.name} for secateur, which finds them."""\n'.encode(),
        **{f"{PACKAGE}/{each}": (files / each).read_bytes() for each in _FILES},
        f"{info}/licenses/LICENSE": licence,
        f"{info}/licenses/NOTICE": _NOTICE.encode(),
        f"{info}/METADATA": ("\n".join(metadata) + "\n").encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: secateur\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{info}/RECORD"
    lines = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in contents.items()]
    contents[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    wheel = folder / f"{PACKAGE}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in contents.items():
            entry = zipfile.ZipInfo(path)  # of 1980: no date of today
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return wheel


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
