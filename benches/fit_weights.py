"""Makes the weights that come with the package.

    python benches/fit_weights.py CALIBRATION MORE --output rust/secateur-core/data/families.bin

CALIBRATION and MORE have JSON lines with `text` and `counts` of the same families, CALIBRATION also with `id`, `lang`,
`kind` and `source`. The networks learn from both; the margins are those of networks that have not seen a document of
CALIBRATION, over conversations of one language, or of one kind where the language is none of the main ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench_tokens import LANGUAGES, NAMES, document
from secateur import families


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the weights of the package")
    parser.add_argument("calibration", type=Path)
    parser.add_argument("more", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--about", help="date and sources, one line")
    arguments = parser.parse_args()
    records = families.read_calibration(arguments.calibration)
    given = list(records[0]["counts"])
    texts = families.Texts.of(records, given)
    more = families.Texts.of(families.read_calibration(arguments.more), given)
    fold_of = families.folds([document(record) for record in records], 5)
    unseen = families.cross_validate(texts, fold_of, more=more)
    alike = [str(record["lang"] if record["lang"] in LANGUAGES else record["kind"]) for record in records]
    margin = families.margins(texts.tokens, unseen, alike)
    names = [NAMES.get(name, name) for name in given]
    weights = families.to_bytes(families.fit_network(texts + more), names, margin, about=arguments.about)
    arguments.output.write_bytes(weights)
    print(f"{arguments.output.name}: {len(weights):,} bytes")


if __name__ == "__main__":
    main()
