"""Write the small samples in this folder from the project's collection of real conversations.

    python tests/data/sample.py FOLDER

FOLDER holds `agents_*.jsonl.gz` and `dialogues_*.jsonl.gz`: a record a line with `id`, `source_repo`, `licence`,
`commit`, `path`, `format` and `messages`. Only records under MIT, Apache-2.0 or BSD are taken; the licence texts are
in `licences/`.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FREE = ("MIT", "Apache-2.0", "BSD-3-Clause")

CONVERSATIONS = {
    # file: (source file, format, how many, least and most messages); of several languages the shortest of each
    "service.jsonl": ("agents_tau_bench", "openai", 4, 20, 40),
    "coding.jsonl": ("agents_claude_code_entire", "anthropic", 2, 20, 60),
    "functions.jsonl": ("agents_toolbench", "openai", 2, 5, 20),
    "responses.jsonl": ("agents_vcr", "responses", 4, 8, 40),
    "gemini.jsonl": ("agents_vcr", "gemini", 4, 6, 40),
    "bedrock.jsonl": ("agents_vcr", "bedrock", 4, 3, 40),
    "meeting.jsonl": ("dialogues_qmsum", "simple", 1, 100, 260),
    "memories.jsonl": ("dialogues_madial", "simple", 2, 40, 90),
    "multilingual.jsonl": ("multilingual", "simple", 40, 4, 60),
}


def records(folder: Path, source: str) -> Iterator[dict[str, Any]]:
    """The records of one file that may be copied."""
    with gzip.open(folder / f"{source}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from (record for record in map(json.loads, lines) if record["licence"] in FREE)


def pick(folder: Path, source: str, form: str, count: int, least: int, most: int) -> list[dict[str, Any]]:
    """The shortest records of a fitting length, of each language if the records name theirs; agents must use tools."""
    fitting = [record for record in records(folder, source) if record["format"] == form]
    fitting = [record for record in fitting if least <= len(record["messages"]) <= most]
    if source.startswith("agents_"):
        marks = ('"tool_call_id"', '"tool_result"', '"function_call"', '"functionResponse"', '"toolResult"')
        enough = 1 if source == "agents_vcr" else 3
        fitting = [record for record in fitting if sum(map(json.dumps(record["messages"]).count, marks)) >= enough]
    fitting.sort(key=lambda record: len(json.dumps(record)))
    shortest = {record.get("lang", record["id"]): record for record in reversed(fitting)}
    return list(reversed(shortest.values()))[:count]


def sentences(folder: Path) -> list[str]:
    """200 varied texts of at most 1,500 characters: chat, tool output, questions, code, many languages."""
    shares = {
        "agents_tau_bench": 40,
        "agents_derived_openai": 40,
        "dialogues_aider_history": 20,
        "dialogues_qmsum": 40,
        "dialogues_madial": 15,
        "multilingual": 45,
    }
    chosen: list[str] = []
    for source, share in shares.items():
        contents = [message.get("content") for record in records(folder, source) for message in record["messages"]]
        texts = list(dict.fromkeys(text[:1500] for text in contents if isinstance(text, str) and text.strip()))
        chosen += texts[:: len(texts) // share][:share]
    return chosen


def main() -> None:
    folder = Path(sys.argv[1])
    for name, (source, form, count, least, most) in CONVERSATIONS.items():
        chosen = pick(folder, source, form, count, least, most)
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in chosen]
        (HERE / name).write_text("".join(lines), encoding="utf-8")
    texts = sentences(folder)
    (HERE / "sentences.json").write_text(json.dumps(texts, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
