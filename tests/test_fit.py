"""fit: what every window must be, on random histories and on real ones of every wire format."""

import contextlib
import copy
import json
import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import secateur
from histories import (
    TRACES,
    Message,
    Policies,
    call,
    cost,
    fit_by_script,
    histories,
    requests,
    result,
    tokens,
    user,
)
from samples import records
from secateur import BudgetError, MessageError, Notes, OptionError, Policy, Session, TokenEstimator, fit, formats
from secateur._core import Fitter, detect_format, media_tokens, script_tokens
from secateur.tokens import MESSAGE_TOKENS

counters = st.sampled_from([None, "script", "gpt-4o"])


class TestEveryWindow:
    @settings(max_examples=300)
    @given(histories(), st.integers(20, 900), Policies)
    def test_is_within_budget_valid_and_whole(self, history: list[Message], budget: int, policy: Policy) -> None:
        before = copy.deepcopy(history)
        faults = {(problem.fault, problem.detail) for problem in secateur.check(history)}
        window: Any = None
        with contextlib.suppress(BudgetError):
            window = fit(history, budget, policy=policy, counter=tokens)
        assert history == before, "the caller's messages were changed"
        if window is None:
            return
        assert cost(list(window)) == window.tokens <= budget
        assert {(problem.fault, problem.detail) for problem in secateur.check(window, format="openai_chat")} <= faults
        assert window[-1].get("role") == history[-1]["role"]
        for message in history:
            if message["role"] == "system":
                assert any(message is sent for sent in window)
        goal = next((message for message in history if message["role"] == "user"), None)
        assert goal is None or any(goal is sent for sent in window)
        if cost(history) <= budget:
            assert all(sent is message for sent, message in zip(window, history, strict=True))

    @settings(max_examples=100)
    @given(histories(), st.integers(60, 900), Policies, counters)
    def test_extends_the_one_before_or_begins_at_a_cut(
        self, history: list[Message], budget: int, policy: Policy, counter: str | None
    ) -> None:
        sent: list[Any] | None = None
        for stop in requests(history):
            try:
                window = fit(history[:stop], budget, policy=policy, counter=counter)
            except BudgetError:
                sent = None
                continue
            if sent is not None:
                extends = list(window[: len(sent)]) == sent
                assert extends == (window.plan.changed is None)
                if not extends:
                    assert window.report().cuts[-1] == stop
                    assert len(window.report().cuts) == window.plan.cuts
                    changed = window.plan.changed
                    assert changed is not None
                    assert list(window[:changed]) == sent[:changed]
            sent = list(window)

    @settings(max_examples=60)
    @given(histories(), st.integers(60, 900), Policies, counters)
    def test_a_session_gives_the_same(
        self, history: list[Message], budget: int, policy: Policy, counter: str | None
    ) -> None:
        session = Session(budget, policy=policy, counter=counter)
        for stop, message in enumerate(history, 1):
            session.append(message)
            windows: list[Any] = []
            for make in (session.window, lambda stop=stop: fit(history[:stop], budget, policy=policy, counter=counter)):
                try:
                    windows.append(make())
                except BudgetError as error:
                    windows.append(error.args)
            assert windows[0] == windows[1]

    def test_is_the_same_object_where_nothing_was_done(self) -> None:
        history = [user("goal"), call("a"), result("a", "x" * 4000), call("b"), result("b", "new"), user("next")]
        window = fit_by_script(history, 200)
        assert window[0] is history[0]
        assert all(any(sent is message for sent in window) for message in history[3:])


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("counter", [None, "script"])
def test_real_traces_of_every_format(name: str, share: float, counter: str | None) -> None:
    """At every request: within budget, no new fault, stable, the same from a session; nothing is changed."""
    fitted = 0
    for record in records(name):
        history = record["messages"]
        before = copy.deepcopy(history)
        assert detect_format(history) == TRACES[name]
        wire = formats.FORMATS[TRACES[name]]
        faults = {(each.fault, each.detail) for each in secateur.check(history)}
        whole = fit(history, 10**9, counter=counter).tokens
        system = [str(message.get("content")) for message in history if message.get("role") == "system"]
        fixed = sum(map(TokenEstimator(counter).upper, system))
        budget = fixed + max(60, int(share * whole))
        session = Session(budget, counter=counter)
        sent: list[Any] = []
        for stop in requests(history):
            session.extend(history[len(session) : stop])
            try:
                window = fit(history[:stop], budget, format=wire.name, counter=counter)
            except BudgetError:
                sent = []
                continue
            assert window == session.window()
            assert window.tokens <= budget
            new = {(each.fault, each.detail) for each in secateur.check(window, format=wire.name, pending=True)}
            assert new <= faults
            assert window.plan.changed is not None or list(window[: len(sent)]) == sent
            sent = list(window)
            fitted += 1
        assert history == before
    assert fitted > 0


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("inputs", [False, True])
def test_the_core_and_python_see_the_same_parts(name: str, *, inputs: bool) -> None:
    found = 0
    for record in records(name):
        wire = formats.FORMATS[TRACES[name]]
        options: dict[str, Any] = dict.fromkeys(
            ["min_cleared", "keep_results", "keep_last", "note", "note_without_goal", "result_note", "input_note"], 0
        )
        fitter = Fitter(
            wire.name, 100, low_water=1.0, batch=1, keep_share=0.0, min_saving=None, smallest_cut=1, pending=False,
            lead=False, divide=False, clear_inputs=inputs, tools={}, published=False, **options,
        )  # fmt: skip
        fitter.extend(record["messages"], [])
        for message, parts in zip(record["messages"], fitter.parts(), strict=True):
            kinds: list[str] = []

            def collect(_: int, value: Any, kind: str, kinds: list[str] = kinds) -> Any:
                kinds.append(kind)
                return value

            assert wire.edit(message, collect, inputs=inputs) is message
            assert [each == "result" for each in kinds] == [part[2] for part in parts]
            found += len(parts)
    assert found > 0 or name == "memories.jsonl"


class TestCuts:
    def rounds(self, count: int, size: int = 400) -> list[Message]:
        history = [user("the goal")]
        for number in range(count):
            history += [call(f"c{number}"), result(f"c{number}", f"{number}:" + "x" * size)]
        return history

    def test_oldest_results_first_in_batches_the_newest_whole(self) -> None:
        window = fit_by_script(self.rounds(10), 900, policy=Policy(low_water=1.0, batch=4))
        contents = [message["content"] for message in window if message["role"] == "tool"]
        cleared = [content.startswith("[This result was removed") for content in contents]
        assert cleared == [True] * 4 + [False] * 6

    def test_small_results_are_left_alone(self) -> None:
        history = self.rounds(6, size=60)
        for number in range(6, 12):
            history += [call(f"c{number}"), result(f"c{number}", "x" * 400)]
        window = fit_by_script(history, 800)
        small = [message for message in window if message["role"] == "tool" and len(message["content"]) < 80]
        assert small
        assert all(message in history for message in small)

    def test_turns_then_rounds(self) -> None:
        history = []
        for turn in range(6):
            history += [user(f"turn {turn}"), {"role": "assistant", "content": "w" * 400}]
        window = fit_by_script(history, 420, policy=Policy(low_water=0.8))
        assert window[0] is history[0]
        assert "Earlier parts" in window[1]["content"]
        assert "turn 0" in window[1]["content"], "the note repeats the goal"
        assert list(window[2:]) == history[8:], "whole turns"
        inside = self.rounds(12, size=60)
        window = fit_by_script(inside, 200, policy=Policy(low_water=0.9))
        assert window[2]["role"] == "assistant"
        assert list(window[2:]) == inside[-len(window) + 2 :], "whole rounds of the one turn"

    def test_a_long_turn_before_a_new_prompt_keeps_its_newest_rounds(self) -> None:
        history = [*self.rounds(1), user("long job"), *self.rounds(30, size=60)[1:], user("and now?")]
        window = fit_by_script(history, 400)
        assert any(message.get("content") == "long job" for message in window)
        assert sum(message["role"] == "tool" for message in window) >= 3

    def test_the_middle_of_a_giant_result_is_cut(self) -> None:
        giant = "head " + "пёс 🏳️‍🌈 e\u0301 " * 3000 + "tail"
        history = [user("goal"), call("a"), result("a", giant)]
        window = fit_by_script(history, 500)
        content = window[-1]["content"]
        assert content.startswith("head ")
        assert content.endswith("tail")
        assert "characters left out of this copy" in content
        assert window.tokens <= 500
        assert [fate.action for fate in window.report().fates] == ["kept", "kept", "cut"]
        assert "\ufffd" not in content

    def test_results_that_are_no_single_text_are_cut_too(self) -> None:
        for value in ({"output": "x" * 9000, "exit_code": 0}, {"a long key of a response": "y" * 9000}):
            response = {"functionResponse": {"name": "f", "response": value}}
            call_part = {"functionCall": {"name": "f", "args": {}}}
            history = [
                {"role": "user", "parts": [{"text": "goal"}]},
                {"role": "model", "parts": [call_part]},
                {"role": "user", "parts": [response]},
            ]
            window = fit_by_script(history, 300)
            assert "left out of this copy" in json.dumps(window[-1])
            assert fit_by_script(list(window), 10**6).tokens <= window.tokens <= 300
        blocks = [{"type": "text", "text": "z" * 9000}, {"type": "note from the future", "n": 1}]
        window = fit_by_script([user("goal"), call("a"), result("a", blocks)], 300)
        assert "left out of this copy" in window[-1]["content"]

    def test_images_are_never_cut_in_two(self) -> None:
        blocks = [{"type": "image", "source": {"type": "base64", "data": "A" * 5000, "media_type": "image/png"}}]
        history = [
            user("goal"),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "shot", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": blocks}]},
        ]
        assert fit_by_script(history, 2750) == history
        with pytest.raises(BudgetError):
            fit_by_script(history, 500)

    def test_tool_rules(self) -> None:
        history = [user("goal")]
        for number, tool in enumerate(["plan", "read", "read", "poll", "poll", "read"]):
            history += [call(f"c{number}", name=tool), result(f"c{number}", f"{tool} " + "x" * 400)]
        policy = Policy(tools={"plan": "never", "poll": "first"}, low_water=1.0, batch=1, notes=Notes(removed=""))
        window = fit_by_script(history, 560, policy=policy)
        whole = [
            message["content"][:4] for message in window if message["role"] == "tool" and len(message["content"]) > 400
        ]
        assert whole == ["plan", "read", "read", "read"]

    def test_arguments(self) -> None:
        body = json.dumps({"body": "x" * 800})
        history = [user("goal")]
        for number in range(4):
            history += [call(f"c{number}", arguments=body), result(f"c{number}", "ok")]
        kept = fit_by_script(history, 600, policy=Policy(low_water=0.9))
        assert len(kept) < len(history), "without clearing arguments rounds must go"
        window = fit_by_script(history, 600, policy=Policy(low_water=0.9, clear_inputs=True, batch=1))
        assert len([message for message in window if message.get("tool_calls")]) == 4
        arguments = [
            message["tool_calls"][0]["function"]["arguments"] for message in window if message.get("tool_calls")
        ]
        assert [json.loads(each) == json.loads(body) for each in arguments][-1]
        assert "note" in json.loads(arguments[0])

    def test_pinned_messages_stay_whole(self) -> None:
        history = self.rounds(10)
        for pinned in (
            [3, 4],
            lambda message: message.get("tool_call_id") == "c1" or "c1" in str(message.get("tool_calls")),
        ):
            window = fit_by_script(history, 500, policy=Policy(pinned=pinned))
            assert any(sent is history[3] for sent in window)
            assert any(sent is history[4] for sent in window)

    def test_the_last_messages_and_results_stay(self) -> None:
        history = self.rounds(10)
        window = fit_by_script(history, 700, policy=Policy(keep_last=5))
        assert list(window[-6:]) == history[-6:], "widened to a whole round"
        window = fit_by_script(history, 900, policy=Policy(keep_results=5, keep_share=0.0, low_water=0.9))
        assert sum(len(message["content"]) > 400 for message in window if message["role"] == "tool") == 6

    def test_min_cleared_is_a_floor_not_a_ceiling(self) -> None:
        history = self.rounds(40)
        least = fit_by_script(history, 4000, policy=Policy(low_water=1.0, batch=1))
        more = fit_by_script(history, 4000, policy=Policy(low_water=1.0, batch=1, min_cleared=1500))
        assert least.tokens - more.tokens >= 1000
        assert fit_by_script(history, 1000, policy=Policy(min_cleared=10)).tokens <= 1000

    def test_a_call_that_waits_is_kept_until_it_is_answered(self) -> None:
        history = [user("delete it"), call("confirm")]
        for number in range(12):
            history += [user(f"question {number}"), {"role": "assistant", "content": "w" * 80}]
        assert not any(message.get("tool_calls") for message in fit_by_script(history, 200))
        waiting = fit_by_script(history, 200, pending=True)
        assert any(sent is history[1] for sent in waiting)
        answered = fit_by_script([*history, result("confirm", "yes")], 200, pending=True)
        assert any(sent is history[1] for sent in answered)
        assert answered[-1]["tool_call_id"] == "confirm"

    def test_alternating_formats_get_a_note_that_fits_between(self) -> None:
        history: list[Message] = []
        for number in range(8):
            history.append({"role": "user", "content": [{"text": f"question {number}"}]})
            history.append({"role": "assistant", "content": [{"text": "w" * 400}]})
        history.append({"role": "user", "content": [{"text": "last"}]})
        window = fit_by_script(history, 400)
        assert len(window) < len(history)
        assert secateur.check(window, format="bedrock") == []
        rounds: list[Message] = history[:1]
        for number in range(12):
            call = {"toolUse": {"toolUseId": str(number), "name": "f", "input": {}}}
            answer = {"toolResult": {"toolUseId": str(number), "content": [{"text": "r" * 80}]}}
            rounds += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]
        before = copy.deepcopy(rounds)
        for budget in range(60, 400, 10):
            with contextlib.suppress(BudgetError):
                window = fit_by_script(rounds, budget)
                assert secateur.check(window, format="bedrock") == []
                assert window.tokens <= budget
        assert rounds == before
        window = fit_by_script(rounds, 150)
        assert "Earlier parts" in window[0]["content"][1]["text"], "joined to the message of the user"

    def test_a_window_without_a_human_message_begins_with_the_note(self) -> None:
        """A log that begins with a result, as one cut off by its harness: the provider wants the user first."""
        history: list[Message] = []
        for number in range(12):
            history.append(
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": str(number), "content": "r" * 80}]}
            )
            use = {"type": "tool_use", "id": str(number + 1), "name": "f", "input": {}}
            history.append({"role": "assistant", "content": [use]})
        window = fit_by_script(history, 150)
        assert "Earlier parts" in window[0]["content"]
        assert {each.fault for each in secateur.check(window)} <= {"unanswered call"}


class TestArguments:
    def test_system_tools_and_reserve_count(self) -> None:
        history = [user("w" * 400)]
        plain = fit_by_script(history, 1000).tokens
        system, tools = "s" * 400, [{"name": "look", "description": "d" * 400}]
        window = fit_by_script(history, 1000, system=system, tools=tools, reserve=50)
        assert window.tokens >= plain + 100 + 100 + 50
        assert window.system is system
        assert window.tools is tools
        with pytest.raises(BudgetError) as caught:
            fit_by_script(history, 300, system=system, tools=tools, reserve=50)
        error = caught.value
        assert error.parts["system"] == 100
        assert error.parts["reserve"] == 50
        assert (error.budget, error.largest in error.parts) == (300, True)
        assert "needed" in str(error)
        assert "300" in str(error)

    def test_the_prompt_is_appended_once(self) -> None:
        history = [user("a"), {"role": "assistant", "content": "b"}]
        assert fit(history, 100, prompt="c")[-1] == user("c")
        assert len(fit([*history, user("c")], 100, prompt="c")) == 3
        gemini = [{"role": "user", "parts": [{"text": "a"}]}]
        assert fit(gemini, 100, prompt="c")[-1] == {"role": "user", "parts": [{"text": "c"}]}

    @pytest.mark.parametrize("budget", [0, -5, 1.5, math.nan, "100", True, None])
    def test_bad_budgets(self, budget: Any) -> None:
        with pytest.raises(OptionError, match=r"budget is .*, it must be a whole number, 1 or more"):
            fit([user("x")], budget)

    def test_any_whole_number_is_a_budget(self) -> None:
        assert fit([user("x")], np.int32(50)).budget == 50  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("options", "name"),
        [
            ({"low_water": 0}, "low_water"),
            ({"low_water": 1.5}, "low_water"),
            ({"keep_share": -0.1}, "keep_share"),
            ({"batch": 0}, "batch"),
            ({"min_saving": -1}, "min_saving"),
            ({"keep_last": 1.5}, "keep_last"),
            ({"tools": {"x": "always"}}, "tools['x']"),
        ],
    )
    def test_bad_policies(self, options: dict[str, Any], name: str) -> None:
        with pytest.raises(OptionError) as caught:
            Policy(**options)
        assert caught.value.name == name

    def test_bad_messages_and_formats(self) -> None:
        with pytest.raises(OptionError, match="format is 'smtp', it must be one of 'openai_chat'"):
            fit([user("x")], 10, format="smtp")
        with pytest.raises(MessageError, match="message 1 is a int, expected a mapping"):
            fit([user("x"), 5], 10)  # type: ignore[list-item]
        with pytest.raises(OptionError, match="messages is 'text', it must be a list of messages"):
            fit("text", 10)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=r"counter is .*, it must be a callable that counts"):
            fit([user("x")], 10, counter=lambda: 1)  # type: ignore[arg-type]

    def test_counters_of_every_kind(self) -> None:
        history = [user("goal")]
        for number in range(20):
            history += [call(f"c{number}"), result(f"c{number}", "word " * 100)]

        class OfMessages:
            def count(self, text: str) -> int:
                return len(text)

            def count_message(self, message: Any) -> int:
                return 7 + len(json.dumps(message))

        def of_message(message: dict[str, Any]) -> int:
            return 7 + len(json.dumps(dict(message.items())))

        wire = formats.FORMATS["openai_chat"]
        cases: list[tuple[Any, Callable[[Any], int]]] = [
            (len, lambda message: MESSAGE_TOKENS + sum(map(len, wire.texts(message)))),
            (OfMessages(), OfMessages().count_message),
            (of_message, of_message),
        ]
        for counter, measure in cases:
            window = fit(history, 3000, counter=counter)
            assert sum(map(measure, window)) <= window.tokens <= 3000
            assert len(window) < len(history)

    def test_numbers_beyond_every_limit(self) -> None:
        for options in ({"batch": 2**65}, {"smallest_cut": 2**33}, {"pinned": [-1]}, {"pinned": 5}, {"notes": "x"}):
            with pytest.raises(OptionError):
                Policy(**options)
        for budget in (10**20, 2**64):
            with pytest.raises(OptionError, match="budget is"):
                fit([user("x")], budget)
        for wrong in (-1, 2**31):
            counter = {True: wrong}.get
            with pytest.raises(OptionError, match="counter is"):
                fit([user("a word " * 99)], 10, counter=lambda text, get=counter: get(len(text) > 600, len(text)))
        for setting in [(0, "a", 0, 100), (0, 1.0), (0, 1.0, "x", 100), (0, 1e-300, 0, 100), (0, math.nan, 0, 9)]:
            with pytest.raises(OptionError):
                fit([user("x")], 10, settings_history=[setting])  # type: ignore[list-item]

    def test_what_a_text_counter_must_see(self) -> None:
        big = "x" * 4000
        for content in (
            [{"type": "tool_use", "id": "a", "name": "f", "input": {"text": "hi", "body": big}}],
            [{"type": "tool_use", "id": "a", "name": "f", "input": {big: 1, "status": "s"}}],
            [{"type": "server_tool_use", "id": "a", "name": "f", "input": {"query": big}}],
            [{"type": "thinking", "thinking": big, "signature": "s"}],
        ):
            assert fit([user("g"), {"role": "assistant", "content": content}], 10**6, counter=len).tokens > 4000
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 90_000}}
        tokens = fit([{"role": "user", "content": [picture]}], 10**6, counter=len).tokens
        assert media_tokens(picture, "") < tokens < 3000, "an image is no text"
        shown: list[Message] = [{"role": "user", "content": [picture]}]
        assert media_tokens(picture, "") < fit(shown, 10**6).tokens < 2 * media_tokens(picture, "") < 6000
        hexadecimal = [{"type": "tool_use", "id": "a", "name": "f", "input": {"data": "0af9" * 10_000}}]
        assert fit([user("g"), {"role": "assistant", "content": hexadecimal}], 10**6).tokens > 9000

    def test_a_system_prompt_alone_may_exceed_the_budget(self) -> None:
        with pytest.raises(BudgetError):
            fit([], 10, system="x" * 1000)
        with pytest.raises(BudgetError):
            Session(10, system="x" * 1000).window()

    def test_mappings_of_any_class(self) -> None:
        history = records("coding.jsonl")[0]["messages"]
        proxies = [MappingProxyType(message) for message in history]
        assert [dict(message) for message in fit(proxies, 3000)] == [dict(message) for message in fit(history, 3000)]

    def test_prompts(self) -> None:
        said = [user("say yes"), {"role": "assistant", "content": "yes"}]
        assert fit(said, 100, prompt="yes")[-1] == user("yes")
        with pytest.raises(OptionError, match="prompt is ' ', it must be a text"):
            fit(said, 100, prompt=" ")
        bedrock = [{"role": "user", "content": [{"text": "a"}]}]
        assert fit(bedrock, 100, prompt="b") == [{"role": "user", "content": [{"text": "a"}, {"text": "b"}]}]

    def test_empty_history(self) -> None:
        assert fit([], 10) == []


def ladder(history: list[Message], budget: int, count: Callable[[Any], int], policy: Policy) -> list[Message]:
    """The published three steps, written from their description."""
    note, removed = policy.notes.result, user(policy.notes.removed)
    total = sum(map(count, history))
    if total <= budget:
        return history
    results = [index for index, message in enumerate(history) if message["role"] == "tool"]
    kept, room = set(), budget * 0.25
    for place, index in enumerate(reversed(results)):
        if place and count(history[index]) > room:
            break
        kept.add(index)
        room -= count(history[index])
    shaped = list(history)
    clearable = [
        index for index in results
        if index not in kept and count(history[index]) > 2 * count({**history[index], "content": note})
    ]  # fmt: skip
    for place, index in enumerate(clearable):
        if place % 4 == 0 and sum(map(count, shaped)) <= budget:
            break
        shaped[index] = {**history[index], "content": note}
    if sum(map(count, shaped)) <= budget:
        return shaped
    humans = [index for index, message in enumerate(history) if message["role"] == "user"]
    head = [message for message in shaped[:1] if message["role"] == "system"] + [history[humans[0]], removed]
    room = budget - sum(map(count, head))
    for starts in (humans[1:], [i for i, message in enumerate(history) if i > humans[0] and message["role"] != "tool"]):
        fitting = [start for start in starts if sum(map(count, shaped[start:])) <= room]
        if fitting:
            return head + shaped[min(fitting) :]
    return head


@pytest.mark.parametrize("share", [0.2, 0.4, 0.7])
def test_the_published_ladder(share: float) -> None:
    def count(message: Any) -> int:
        return (
            4 + script_tokens(str(message.get("content") or "")) + script_tokens(str(message.get("tool_calls") or ""))
        )

    policy, compared = Policy.published(), 0
    for record in records("service.jsonl"):
        history = record["messages"]
        system = count(history[0])
        budget = system + int(share * (sum(map(count, history)) - system))
        for stop in requests(history):
            expected = ladder(history[:stop], budget, count, policy)
            if sum(map(count, expected)) <= budget:
                assert fit(history[:stop], budget, policy=policy, counter=count) == expected
                compared += len(expected) < stop
    assert compared > 0
