"""fit: what every window must be, on random histories and on real ones of every wire format."""

import contextlib
import copy
import json
import math
import pickle
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import secateur
from samples import records
from secateur import BudgetError, MessageError, Notes, OptionError, Policy, Session, Setting, fit, formats
from secateur._core import Fitter, detect_format, read_structure, script_tokens
from secateur.tokens import MESSAGE_TOKENS

Message = dict[str, Any]
Policies = st.builds(
    Policy,
    low_water=st.sampled_from([0.3, 0.6, 1.0]),
    batch=st.integers(1, 5),
    keep_share=st.sampled_from([0.0, 0.25, 0.5]),
    keep_last=st.sampled_from([0, 0, 3]),
    clear_inputs=st.booleans(),
)
TRACES = {
    "service.jsonl": "openai_chat",
    "functions.jsonl": "openai_chat",
    "coding.jsonl": "anthropic",
    "responses.jsonl": "openai_responses",
    "gemini.jsonl": "gemini",
    "bedrock.jsonl": "bedrock",
    "memories.jsonl": "simple",
}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def call(*ids: str, arguments: str = "{}", name: str = "look") -> Message:
    calls = [{"id": each, "type": "function", "function": {"name": name, "arguments": arguments}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, content: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Agent histories in OpenAI's shape, whole ones and some that a crash left behind."""
    history: list[Message] = [{"role": "system", "content": "rules"}] if draw(st.booleans()) else []
    sizes = st.sampled_from([0, 20, 200, 200, 3000])
    for number in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["user", "say", "round", "round", "round", "broken", "orphan"]))
        if kind == "user":
            history.append(user(f"question {number} " + "w " * draw(st.sampled_from([1, 40]))))
        elif kind == "say":
            history.append(
                {"role": "assistant", "content": f"answer {number} " + "v " * draw(st.sampled_from([1, 60]))}
            )
        elif kind == "orphan":
            history.append(result(f"gone {number}", "lost"))
        else:
            ids = [f"{number}-{each}" for each in range(draw(st.integers(1, 3)))]
            history.append(call(*ids, arguments=json.dumps({"path": "p" * draw(st.sampled_from([1, 400]))})))
            answered = ids[:-1] if kind == "broken" else ids
            history += [result(each, f"{each} " + "x" * draw(sizes)) for each in answered]
    return history


def tokens(message: Any) -> int:
    """An exact counter of OpenAI's messages, written for these tests alone."""
    texts = [message.get("content") or ""]
    for each in message.get("tool_calls") or []:
        texts += [each["function"]["name"], each["function"]["arguments"]]
    return 5 + sum(map(script_tokens, texts))


def cost(messages: list[Any]) -> int:
    return sum(map(tokens, messages))


def requests(history: list[Message]) -> Iterator[int]:
    """The request points: before each output of the model, and at the end."""
    rows = read_structure(detect_format(history), history)
    for index, (kind, continues, _, _) in enumerate(rows):
        if index and kind == "assistant" and not (continues and rows[index - 1][0] == "assistant"):
            yield index
    yield len(history)


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
    @given(histories(), st.integers(60, 900), Policies)
    def test_extends_the_one_before_or_begins_at_a_cut(
        self, history: list[Message], budget: int, policy: Policy
    ) -> None:
        sent: list[Any] | None = None
        for stop in requests(history):
            try:
                window = fit(history[:stop], budget, policy=policy)
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
    @given(histories(), st.integers(60, 900), Policies)
    def test_a_session_gives_the_same(self, history: list[Message], budget: int, policy: Policy) -> None:
        session = Session(budget, policy=policy)
        for stop, message in enumerate(history, 1):
            session.append(message)
            windows: list[Any] = []
            for make in (session.window, lambda stop=stop: fit(history[:stop], budget, policy=policy)):
                try:
                    windows.append(make())
                except BudgetError as error:
                    windows.append(error.args)
            assert windows[0] == windows[1]

    def test_is_the_same_object_where_nothing_was_done(self) -> None:
        history = [user("goal"), call("a"), result("a", "x" * 4000), call("b"), result("b", "new"), user("next")]
        window = fit(history, 200)
        assert window[0] is history[0]
        assert all(any(sent is message for sent in window) for message in history[3:])


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_real_traces_of_every_format(name: str, share: float) -> None:
    """At every request: within budget, no new fault, stable, the same from a session; nothing is changed."""
    fitted = 0
    for record in records(name):
        history = record["messages"]
        before = copy.deepcopy(history)
        assert detect_format(history) == TRACES[name]
        wire = formats.FORMATS[TRACES[name]]
        faults = {(each.fault, each.detail) for each in secateur.check(history)}
        whole = fit(history, 10**9).tokens
        fixed = sum(
            script_tokens(str(message.get("content"))) for message in history if message.get("role") == "system"
        )
        budget = fixed + max(60, int(share * whole))
        session = Session(budget)
        sent: list[Any] = []
        for stop in requests(history):
            session.extend(history[len(session) : stop])
            try:
                window = fit(history[:stop], budget, format=wire.name)
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
        window = fit(self.rounds(10), 900, policy=Policy(low_water=1.0, batch=4))
        contents = [message["content"] for message in window if message["role"] == "tool"]
        cleared = [content.startswith("[This result was removed") for content in contents]
        assert cleared == [True] * 4 + [False] * 6

    def test_small_results_are_left_alone(self) -> None:
        history = self.rounds(6, size=60)
        for number in range(6, 12):
            history += [call(f"c{number}"), result(f"c{number}", "x" * 400)]
        window = fit(history, 800)
        small = [message for message in window if message["role"] == "tool" and len(message["content"]) < 80]
        assert small
        assert all(message in history for message in small)

    def test_turns_then_rounds(self) -> None:
        history = []
        for turn in range(6):
            history += [user(f"turn {turn}"), {"role": "assistant", "content": "w" * 400}]
        window = fit(history, 420, policy=Policy(low_water=0.8))
        assert window[0] is history[0]
        assert "Earlier parts" in window[1]["content"]
        assert "turn 0" in window[1]["content"], "the note repeats the goal"
        assert list(window[2:]) == history[8:], "whole turns"
        inside = self.rounds(12, size=60)
        window = fit(inside, 200, policy=Policy(low_water=0.9))
        assert window[2]["role"] == "assistant"
        assert list(window[2:]) == inside[-len(window) + 2 :], "whole rounds of the one turn"

    def test_a_long_turn_before_a_new_prompt_keeps_its_newest_rounds(self) -> None:
        history = [*self.rounds(1), user("long job"), *self.rounds(30, size=60)[1:], user("and now?")]
        window = fit(history, 400)
        assert any(message.get("content") == "long job" for message in window)
        assert sum(message["role"] == "tool" for message in window) >= 3

    def test_the_middle_of_a_giant_result_is_cut(self) -> None:
        giant = "head " + "пёс 🏳️‍🌈 e\u0301 " * 3000 + "tail"
        history = [user("goal"), call("a"), result("a", giant)]
        window = fit(history, 500)
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
            window = fit(history, 300)
            assert "left out of this copy" in json.dumps(window[-1])
            assert fit(list(window), 10**6).tokens <= window.tokens <= 300
        blocks = [{"type": "text", "text": "z" * 9000}, {"type": "note from the future", "n": 1}]
        window = fit([user("goal"), call("a"), result("a", blocks)], 300)
        assert "left out of this copy" in window[-1]["content"]

    def test_images_are_never_cut_in_two(self) -> None:
        blocks = [{"type": "image", "source": {"type": "base64", "data": "A" * 5000, "media_type": "image/png"}}]
        history = [
            user("goal"),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "shot", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": blocks}]},
        ]
        assert fit(history, 2000) == history
        with pytest.raises(BudgetError):
            fit(history, 500)

    def test_tool_rules(self) -> None:
        history = [user("goal")]
        for number, tool in enumerate(["plan", "read", "read", "poll", "poll", "read"]):
            history += [call(f"c{number}", name=tool), result(f"c{number}", f"{tool} " + "x" * 400)]
        policy = Policy(tools={"plan": "never", "poll": "first"}, low_water=1.0, batch=1, notes=Notes(removed=""))
        window = fit(history, 560, policy=policy)
        whole = [
            message["content"][:4] for message in window if message["role"] == "tool" and len(message["content"]) > 400
        ]
        assert whole == ["plan", "read", "read", "read"]

    def test_arguments(self) -> None:
        body = json.dumps({"body": "x" * 800})
        history = [user("goal")]
        for number in range(4):
            history += [call(f"c{number}", arguments=body), result(f"c{number}", "ok")]
        kept = fit(history, 600, policy=Policy(low_water=0.9))
        assert len(kept) < len(history), "without clearing arguments rounds must go"
        window = fit(history, 600, policy=Policy(low_water=0.9, clear_inputs=True, batch=1))
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
            window = fit(history, 500, policy=Policy(pinned=pinned))
            assert any(sent is history[3] for sent in window)
            assert any(sent is history[4] for sent in window)

    def test_the_last_messages_and_results_stay(self) -> None:
        history = self.rounds(10)
        window = fit(history, 700, policy=Policy(keep_last=5))
        assert list(window[-6:]) == history[-6:], "widened to a whole round"
        window = fit(history, 900, policy=Policy(keep_results=5, keep_share=0.0, low_water=0.9))
        assert sum(len(message["content"]) > 400 for message in window if message["role"] == "tool") == 6

    def test_min_cleared_is_a_floor_not_a_ceiling(self) -> None:
        history = self.rounds(40)
        least = fit(history, 4000, policy=Policy(low_water=1.0, batch=1))
        more = fit(history, 4000, policy=Policy(low_water=1.0, batch=1, min_cleared=1500))
        assert least.tokens - more.tokens >= 1000
        assert fit(history, 1000, policy=Policy(min_cleared=10)).tokens <= 1000

    def test_a_call_that_waits_is_kept_until_it_is_answered(self) -> None:
        history = [user("delete it"), call("confirm")]
        for number in range(12):
            history += [user(f"question {number}"), {"role": "assistant", "content": "w" * 80}]
        assert not any(message.get("tool_calls") for message in fit(history, 200))
        waiting = fit(history, 200, pending=True)
        assert any(sent is history[1] for sent in waiting)
        answered = fit([*history, result("confirm", "yes")], 200, pending=True)
        assert any(sent is history[1] for sent in answered)
        assert answered[-1]["tool_call_id"] == "confirm"

    def test_alternating_formats_get_a_note_that_fits_between(self) -> None:
        history: list[Message] = []
        for number in range(8):
            history.append({"role": "user", "content": [{"text": f"question {number}"}]})
            history.append({"role": "assistant", "content": [{"text": "w" * 400}]})
        history.append({"role": "user", "content": [{"text": "last"}]})
        window = fit(history, 400)
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
                window = fit(rounds, budget)
                assert secateur.check(window, format="bedrock") == []
                assert window.tokens <= budget
        assert rounds == before
        window = fit(rounds, 150)
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
        window = fit(history, 150)
        assert "Earlier parts" in window[0]["content"]
        assert {each.fault for each in secateur.check(window)} <= {"unanswered call"}


class TestArguments:
    def test_system_tools_and_reserve_count(self) -> None:
        history = [user("w" * 400)]
        plain = fit(history, 1000).tokens
        system, tools = "s" * 400, [{"name": "look", "description": "d" * 400}]
        window = fit(history, 1000, system=system, tools=tools, reserve=50)
        assert window.tokens >= plain + 100 + 100 + 50
        assert window.system is system
        assert window.tools is tools
        with pytest.raises(BudgetError) as caught:
            fit(history, 300, system=system, tools=tools, reserve=50)
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
        assert 1000 < tokens < 2000, "an image is no text"
        assert 1000 < fit([{"role": "user", "content": [picture]}], 10**6).tokens < 2000
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


class TestSession:
    def history(self) -> list[Message]:
        return list(records("service.jsonl")[0]["messages"])

    def test_save_and_load_go_on_alike(self, tmp_path: Any) -> None:
        history = self.history()
        policy = Policy(low_water=0.5, tools={"think": "never"}, pinned=[2], notes=Notes(result="[gone]"))
        session = Session(2500, policy=policy, system="rules", reserve=10, pending=True)
        session.extend(history[:9])
        session.set_budget(2300)
        session.extend(history[9:14])
        session.save(tmp_path / "session.jsonl")
        again = Session.load(tmp_path / "session.jsonl")
        assert again.messages == session.messages
        assert again.settings_history == session.settings_history
        for message in history[14:]:
            session.append(message)
            again.append(message)
            assert again.window() == session.window()
        whole = fit(
            history, 2500, policy=policy, system="rules", reserve=10, pending=True,
            settings_history=session.settings_history,
        )  # fmt: skip
        assert whole == session.window()
        assert whole.budget == 2300

    def test_a_changed_budget_leaves_earlier_cuts(self) -> None:
        history = self.history()
        for start in (8, 14):
            session = Session(2600)
            session.extend(history[:start])
            session.set_budget(2200, factor=1.1, offset=20)
            session.extend(history[start:])
            window = fit(history, 2600, settings_history=[(start, 1.1, 20, 2200)])
            assert window == session.window()
            assert window.tokens <= 2200
            assert window.tokens >= 1.1 * cost(list(window))
        with pytest.raises(OptionError, match="factor is nan"):
            fit(history, 2600, settings_history=[Setting(0, math.nan, 0, 100)])

    def test_changed_messages_are_refused(self) -> None:
        session = Session(10_000)
        session.extend(copy.deepcopy(self.history()))
        session.window()
        session.messages[3]["content"] = "something else"  # type: ignore[index]
        with pytest.raises(secateur.HistoryChanged, match="message 3 was changed after it was appended"):
            session.window()

    def test_nothing_is_appended_with_a_bad_message(self) -> None:
        session = Session(100)
        session.append(user("a"))
        with pytest.raises(MessageError):
            session.extend([user("b"), 7])  # type: ignore[list-item]
        assert session.messages == [user("a")]
        assert len(session.window()) == 1

    def test_an_old_window_reports_what_it_was(self) -> None:
        history = self.history()
        session = Session(100_000)
        session.extend(history[:5])
        window = session.window()
        session.extend(history[5:])
        report = window.report()
        assert [fate.action for fate in report.fates] == ["kept"] * 5
        assert report.problems == []
        assert pickle.loads(pickle.dumps(window)) == copy.deepcopy(window) == window

    def test_a_plain_beginning_is_saved_as_such(self, tmp_path: Any) -> None:
        history = records("coding.jsonl")[0]["messages"]
        session = Session(1500)
        session.append(user("goal"))
        session.save(tmp_path / "s")
        again = Session.load(tmp_path / "s")
        for each in (session, again):
            each.extend(history)
        assert again.window() == session.window()

    def test_bytes_cannot_be_saved_and_the_old_file_stays(self, tmp_path: Any) -> None:
        session = Session(5000)
        session.append({"role": "user", "content": [{"text": "goal"}]})
        session.save(tmp_path / "s")
        saved = (tmp_path / "s").read_bytes()
        session.append({"role": "user", "content": [{"image": {"source": {"bytes": b"png"}}}]})
        with pytest.raises(secateur.ConversationError, match="cannot hold this session as JSON"):
            session.save(tmp_path / "s")
        assert (tmp_path / "s").read_bytes() == saved

    def test_a_format_that_shows_late(self) -> None:
        for name in ("coding.jsonl", "service.jsonl"):
            history = [user("hello"), {"role": "assistant", "content": "hi"}, *records(name)[0]["messages"]]
            session = Session(3000)
            for message in history:
                session.append(message)
            assert session.window() == fit(history, 3000)

    def test_what_no_file_holds(self, tmp_path: Any) -> None:
        session = Session(100, policy=Policy(pinned=lambda _: False))
        with pytest.raises(OptionError, match=r"policy\.pinned is .*, it must be indices"):
            session.save(tmp_path / "x")
        for content in ("", "{}", "[1]", '{"secateur": 99}'):
            (tmp_path / "x").write_text(content)
            with pytest.raises(secateur.ConversationError):
                Session.load(tmp_path / "x")


class TestReport:
    def test_each_message_has_its_fate(self) -> None:
        history = records("service.jsonl")[0]["messages"]
        window = fit(history, 2200)
        report = window.report()
        assert [fate.index for fate in report.fates] == list(range(len(history)))
        kept = sum(fate.tokens_after for fate in report.fates)
        note = window[window.plan.elements.index(-1)]
        assert window.tokens == kept + MESSAGE_TOKENS + script_tokens(note["content"]) + 3
        assert (report.tokens, report.budget) == (window.tokens, 2200)
        assert all(fate.tokens_after == 0 for fate in report.fates if fate.action == "removed")
        assert f"{report.tokens:,} of 2,200 tokens" in str(report)

    def test_faults_of_the_input_are_reported(self) -> None:
        history = [user("a"), call("lost"), user("b"), result("gone", "x")]
        problems = fit(history, 1000).report().problems
        assert [(each.index, each.fault, each.detail) for each in problems] == [
            (1, "unanswered call", "lost"),
            (3, "orphan result", "gone"),
        ]
        assert "message 1: unanswered call (lost)" in str(fit(history, 1000).report())
        assert fit(history, 1000, repair=True).report().problems == []


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
