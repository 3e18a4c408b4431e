"""Write the small samples in this folder from the project's collection of real conversations.

    python tests/data/sample.py FOLDER

FOLDER holds `agents_*.jsonl.gz` and `dialogues_*.jsonl.gz`: a record a line with `id`, `source_repo`, `licence`,
`commit`, `path`, `format` and `messages`; and `tokens_calib.jsonl.gz`: texts with their true `counts`. Only records
under MIT, Apache-2.0 or BSD are taken; the licence texts are in `licences/`.
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

REPOSITORIES = {
    "microsoft/IoT-For-Beginners": "microsoft/IoT-For-Beginners",
    "tesseract-ocr/langdata": "tesseract-ocr/langdata",
    "SchemaStore": "SchemaStore/schemastore",
    "SWE-agent": "SWE-agent/SWE-agent",
    "gin": "gin-gonic/gin",
    "libuv": "libuv/libuv",
    "okio": "square/okio",
    "aider": "Aider-AI/aider",
    "ohmyzsh": "ohmyzsh/ohmyzsh",
    "emojilib": "muan/emojilib",
}
"""Sources of counted texts whose licence texts are here."""
NOT_SO_LICENSED = ("libuv/docs/", "uv/tree.h")
"""Parts of them that have another licence."""
MORE_LANGUAGES = {"Latin": 6, "LatinExt": 8, "Cyrillic": 3, "Arabic": 3, "Devanagari": 2, "Han": 2, "Hebrew": 2}
"""Of how many languages there is a text, where it is not one for a script."""
MORE_OF_KIND = {"json": 3, "json_min": 2, "agent_obs": 3}
FAMILIES = {
    "claude2": "claude-2",
    "claude3": "claude-3",
    "claude47": "claude",
    "tekken": "mistral",
    "qwen36": "qwen3.6",
    "kimi_k2": "kimi",
    "glm4": "glm",
}
"""Names of families in the collection, where they are others than ours."""


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


def counted(folder: Path) -> Iterator[dict[str, Any]]:
    """Texts of 100 to 800 characters with their true counts: of each script a few languages, of each kind a few."""
    languages: dict[str, set[str]] = {}
    taken: dict[str, int] = {}
    for record in sorted(records(folder, "tokens_calib"), key=lambda record: record["id"]):
        if record["source"] not in REPOSITORIES or not 100 <= len(record["text"]) <= 800:
            continue
        if any(part in record["id"] for part in NOT_SO_LICENSED):
            continue
        kind, lang = record["kind"], record["lang"]
        if kind in ("prose", "markdown"):
            seen = languages.setdefault(record["script"], set())
            if lang in seen or len(seen) >= MORE_LANGUAGES.get(record["script"], 1):
                continue
            seen.add(lang)
        else:
            group = lang if kind == "code" else kind
            taken[group] = taken.get(group, 0) + 1
            if taken[group] > MORE_OF_KIND.get(group, 1):
                continue
        kept = {"id": record["id"], "source_repo": REPOSITORIES[record["source"]]}
        kept |= {name: record[name] for name in ("licence", "lang", "script", "kind", "text")}
        yield kept | {"counts": {FAMILIES.get(name, name): count for name, count in record["counts"].items()}}


def main() -> None:
    folder = Path(sys.argv[1])
    texts_with_counts = [json.dumps(record, ensure_ascii=False) + "\n" for record in counted(folder)]
    (HERE / "tokens.jsonl").write_text("".join(texts_with_counts), encoding="utf-8")
    for name, (source, form, count, least, most) in CONVERSATIONS.items():
        chosen = pick(folder, source, form, count, least, most)
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in chosen]
        (HERE / name).write_text("".join(lines), encoding="utf-8")
    texts = sentences(folder)
    (HERE / "sentences.json").write_text(json.dumps(texts, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
