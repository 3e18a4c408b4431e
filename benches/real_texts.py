"""Texts of real messages, for benches: agents' traces, dialogues, many languages."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

from secateur import formats

SAMPLES = Path(__file__).parent.parent / "tests" / "data"
SHARED = Path(__file__).parents[2] / "shared" / "data"
_SOURCES = (
    "agents_claude_code_entire",
    "agents_derived_openai",
    "agents_swe_agent",
    "agents_tau_bench",
    "dialogues_aider_history",
    "dialogues_bfcl_memory",
    "dialogues_qmsum",
    "multilingual",
)
_SAMPLES = ("coding", "meeting", "memories", "multilingual", "service")
_MOST = 4000


def default_folder() -> Path | None:
    """The folder of shared data where it is present."""
    return SHARED if SHARED.is_dir() else None


def texts_by_source(folder: Path | None) -> list[list[str]]:
    """Distinct texts of each source in a fixed random order, 4,000 at most; of tests/data without a folder."""
    sources = []
    for name in _SAMPLES if folder is None else _SOURCES:
        if folder is None:
            lines = (SAMPLES / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
        else:
            lines = gzip.decompress((folder / f"{name}.jsonl.gz").read_bytes()).decode().split("\n")
        found: dict[str, None] = {}
        for line in filter(None, lines):
            record = json.loads(line)
            if isinstance(record, dict) and "messages" in record:
                texts = formats.read(record["messages"]).texts
                found.update(dict.fromkeys(text for text in texts if text.strip()))
            if len(found) > _MOST:
                break
        shuffled = list(found)
        random.Random(5).shuffle(shuffled)
        sources.append(shuffled[:_MOST])
    return sources
