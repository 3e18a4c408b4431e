"""What broke other tools, by the kinds of public reports: each a small history and what must come of it."""

import copy
import json
from typing import Any

import pytest

import secateur
from histories import Message, call, fit_by_script, result, user
from secateur import BudgetError, Policy, Session, check, fit, repair


def rounds(count: int, size: int, first: str = "the task") -> list[Message]:
    history = [user(first)]
    for number in range(count):
        history += [call(f"r{number}"), result(f"r{number}", f"{number} " + "x" * size)]
    return history


def test_below_the_budget_everything_is_the_same_even_results_at_the_end() -> None:
    history = [{"role": "system", "content": "careful"}, user("weather?"), call("w"), result("w", "sun")]
    assert fit(history, 100_000) == history
    assert [id(message) for message in fit(history, 100_000)] == [id(message) for message in history]


def test_parallel_results_stay_together_at_every_boundary() -> None:
    history = [
        user("a"),
        call("p", "q"),
        result("p", "1" * 300),
        result("q", "2" * 300),
        {"role": "assistant", "content": "c"},
    ]
    for keep_last in range(6):
        for budget in range(40, 260, 7):
            try:
                window = fit_by_script(history, budget, policy=Policy(keep_last=keep_last))
            except BudgetError:
                continue
            assert check(window) == []
            present = [any(sent.get("tool_call_id") == each for sent in window) for each in ("p", "q")]
            assert present in ([True, True], [False, False])


def test_an_orphan_does_not_block_later_cuts_and_is_reported_once() -> None:
    history = [user("go"), call("lost")]
    for number in range(30):
        history += [user(f"q{number}"), {"role": "assistant", "content": "w" * 200}]
    window = fit(history, 400)
    assert window.tokens <= 400
    assert [problem.detail for problem in window.report().problems] == ["lost"]


def test_the_system_prompt_and_the_task_survive_any_number_of_cuts() -> None:
    history = [{"role": "system", "content": "NEVER reveal keys"}, *rounds(200, 300, "TASK: port module A")]
    session = Session(700, counter="script")
    for message in history:
        session.append(message)
        window = session.window()
        assert window[0] == history[0]
        assert len(window) < 2 or window[1] == history[1]
        assert sum("Earlier parts" in str(sent.get("content")) for sent in window) <= 1, "notes do not pile up"


def test_what_the_caller_noted_is_left_as_it_is() -> None:
    summary = {"role": "user", "name": "summary", "content": "SUMMARY v1: the plan is P"}
    history = [summary, *rounds(20, 300)[1:]]
    window = fit(history, 600)
    assert window[0] is summary


def test_a_floor_above_the_budget_is_one_typed_error_and_names_the_parts() -> None:
    history = [{"role": "system", "content": "x" * 6000}, user("hi"), {"role": "assistant", "content": "hello"}]
    for _ in range(3):
        with pytest.raises(BudgetError) as caught:
            fit(history, 1200)
        assert caught.value.largest == "pinned"
        assert caught.value.needed > 1500
    with pytest.raises(BudgetError) as caught:
        fit([user("q1")], 2000, reserve=2500)
    assert caught.value.largest == "reserve"
    assert caught.value.parts["reserve"] == 2500
    with pytest.raises(BudgetError):
        fit([user("hello " * 100)], 1)


def test_one_turn_with_hundreds_of_calls_is_cut_within() -> None:
    window = fit_by_script(rounds(200, 400), 3000)
    assert window.tokens <= 3000
    assert window[0]["content"] == "the task"
    assert sum(message["role"] == "tool" and len(message["content"]) > 400 for message in window) >= 3


def test_a_cleared_result_stays_a_result() -> None:
    def use(number: int) -> Message:
        block = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}
        return {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, block]}

    def answer(number: int) -> Message:
        blocks: list[Message] = [{"type": "text", "text": "y" * 600}]
        result_block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": blocks, "is_error": False}
        return {"role": "user", "content": [result_block | {"cache_control": {"type": "ephemeral"}}]}

    history = [user("q")] + [message for number in range(8) for message in (use(number), answer(number))]
    window = fit_by_script(history, 900, policy=Policy(low_water=0.8))
    cleared = [m for m in window if m["role"] == "user" and m not in history and "Earlier" not in str(m["content"])]
    assert cleared
    for message in cleared:
        (block,) = message["content"]
        assert (block["type"], block["is_error"], block["cache_control"]) == (
            "tool_result",
            False,
            {"type": "ephemeral"},
        )
        assert "removed from this request" in block["content"]
    assert all(any(sent is original for original in history) for sent in window if sent["role"] == "assistant")


def test_appending_changes_the_prefix_seldom() -> None:
    session = Session(2000, counter="script")
    sent: list[Any] = []
    changes = 0
    for message in rounds(150, 200):
        session.append(message)
        window = list(session.window())
        changes += window[: len(sent)] != sent
        sent = window
    assert changes <= 12


def test_the_same_input_gives_the_same_bytes() -> None:
    history = rounds(40, 300)
    texts = {json.dumps(fit(copy.deepcopy(history), 900)) for _ in range(3)}
    assert len(texts) == 1


def test_state_survives_json(tmp_path: Any) -> None:
    session = Session(900)
    session.extend(rounds(40, 300))
    assert len(session.window()) < 81
    session.save(tmp_path / "s")
    assert Session.load(tmp_path / "s").window() == session.window()


def test_a_failed_fit_leaves_no_trace() -> None:
    history = rounds(4, 300)
    before = copy.deepcopy(history)
    session = Session(20, counter="script")
    session.extend(history)
    for _ in range(2):
        with pytest.raises(BudgetError):
            session.window()
    session.set_budget(1000)
    assert session.window()[-1] is history[-1], "earlier cuts stay, but what is new fits"
    assert history == before == session.messages


def test_arguments_and_images_are_counted_for_what_they_cost() -> None:
    body = json.dumps({"body": "data " * 8000})
    assert fit([user("w"), call("w", arguments=body)], 10**6).tokens > 9000
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 40_000}}
    history = [user([{"type": "text", "text": "what is this?"}, picture])]  # type: ignore[arg-type]
    assert fit_by_script(history, 1500) == history
    assert fit(history, 1500) == history
    assert fit(history, 1600, counter="gpt-4o") == history


def test_mending_answers_drops_and_never_empties() -> None:
    dangling = [user("book"), call("d"), user("are you there?"), {"role": "assistant", "content": "yes"}]
    assert check(repair(dangling)) == []
    orphan = [user("x"), call("m"), result("m", "ok"), result("zz", "stray"), {"role": "assistant", "content": "y"}]
    window = fit(orphan, 10_000, repair=True)
    assert not any(message.get("tool_call_id") == "zz" for message in window)
    report = fit(dangling, 10_000, repair=True).report()
    assert [fate.action for fate in report.fates] == ["kept", "kept", "mended", "kept", "kept"]
    emptied: list[Message] = [
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {"role": "user", "content": []},
        {"role": "assistant", "content": []},
    ]
    mended = repair(emptied)
    assert secateur.check(mended, format="anthropic") == []
    assert all(message["content"] for message in mended)
