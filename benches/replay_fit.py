"""Replay real agent traces through fit, with a replay that lies outside of this repository.

    python benches/replay_fit.py [--replay FOLDER] [--low-water 0.6] [--batch 4]

FOLDER holds `replay.py`, `policies.py` and `traces.py` (by default `../shared/replay`), and `../data` beside it the
traces. Prints a row for each set and budget: requests invalid, over the budget, refused; cost against sending
everything; cuts; identifiers that later calls use and that are still there. `--ladder` compares Policy.published() with
the published ladder of `policies.py`, request by request, wherever that keeps the budget.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import secateur

REPLAY = Path(__file__).parents[2] / "shared" / "replay"
SHARES = (0.5, 0.25, 0.1)


def compare_ladders(replay: Any, policies: Any, traces: dict[str, list[Any]]) -> None:
    """Count the requests at which the two ladders send the same."""
    notes = secateur.Notes(result=policies.NOTE, removed=policies.CUT["content"])
    policy = secateur.Policy.published(notes=notes)
    for name, histories in traces.items():
        same = different = over = 0
        for share in SHARES:
            for history in histories:
                budget = replay.share_of_peak(share)(history)
                for stop, message in enumerate(history):
                    if message["role"] != "assistant" or not stop:
                        continue
                    expected = policies.ladder(history[:stop], budget)
                    if sum(map(replay.tokens, expected)) > budget:
                        over += 1
                        continue
                    window = secateur.fit(history[:stop], budget, policy=policy, counter=replay.tokens)
                    same, different = same + (window == expected), different + (window != expected)
        print(f"{name}: the same {same}, different {different}, over the budget in the ladder itself {over}")


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replay", type=Path, default=REPLAY)
    parser.add_argument("--low-water", type=float, default=secateur.Policy().low_water)
    parser.add_argument("--batch", type=int, default=secateur.Policy().batch)
    parser.add_argument("--ladder", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(options.replay))
    import policies
    import replay
    import traces

    data = options.replay.parent / "data"
    sets = {
        "code": traces.openai(data / "agents_derived_openai.jsonl.gz"),
        "service": traces.openai(data / "agents_tau_bench.jsonl.gz"),
    }
    if options.ladder:
        compare_ladders(replay, policies, sets)
        return
    policy = secateur.Policy(low_water=options.low_water, batch=options.batch)

    def fitted(history: list[Any], budget: int) -> Any:
        return secateur.fit(history, budget, policy=policy, counter=replay.tokens, format="openai_chat")

    columns = ("requests", "invalid", "over", "refused", "sent", "cost", "cuts", "survival", "grounded", "ms")
    print(f"| set | {' | '.join(columns)} |\n| --- {'| --- ' * len(columns)}|")
    for name, histories in sets.items():
        for share in SHARES:
            row = replay.replay(histories, fitted, replay.share_of_peak(share)).row()
            print(f"| {name} {share:.0%} | {' | '.join(str(row[column]) for column in columns)} |", flush=True)


if __name__ == "__main__":
    main()
