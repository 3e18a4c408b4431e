"""Session: the windows of fit, saved and loaded, and what it refuses."""

import copy
import math
import pickle
from typing import Any

import pytest

import secateur
from histories import Message, cost, fit_by_script, user
from samples import records
from secateur import MessageError, Notes, OptionError, Policy, Session, Setting, TokenEstimator, fit


class TestSession:
    def history(self) -> list[Message]:
        return list(records("service.jsonl")[0]["messages"])

    def test_save_and_load_go_on_alike(self, tmp_path: Any) -> None:
        history = self.history()
        policy = Policy(low_water=0.5, tools={"think": "never"}, pinned=[2], notes=Notes(result="[gone]"))
        session = Session(2500, policy=policy, system="rules", reserve=10, pending=True, counter="script")
        session.extend(history[:9])
        session.set_budget(2300)
        session.extend(history[9:14])
        session.save(tmp_path / "session.jsonl")
        again = Session.load(tmp_path / "session.jsonl")  # the name of a counter is saved too
        assert again.messages == session.messages
        assert again.settings_history == session.settings_history
        for message in history[14:]:
            session.append(message)
            again.append(message)
            assert again.window() == session.window()
        whole = fit_by_script(
            history, 2500, policy=policy, system="rules", reserve=10, pending=True,
            settings_history=session.settings_history,
        )  # fmt: skip
        assert whole == session.window()
        assert whole.budget == 2300

    def test_a_changed_budget_leaves_earlier_cuts(self) -> None:
        history = self.history()
        for start in (8, 14):
            session = Session(2600, counter="script")
            session.extend(history[:start])
            session.set_budget(2200, factor=1.1, offset=20)
            session.extend(history[start:])
            window = fit_by_script(history, 2600, settings_history=[(start, 1.1, 20, 2200)])
            assert window == session.window()
            assert window.tokens <= 2200
            assert window.tokens >= 1.1 * cost(list(window))
        with pytest.raises(OptionError, match="factor is nan"):
            fit(history, 2600, settings_history=[Setting(0, math.nan, 0, 100)])

    def test_what_the_provider_counted_corrects_later_windows(self, tmp_path: Any) -> None:
        history = records("coding.jsonl")[0]["messages"]
        session = Session(20_000, counter="claude-sonnet-4-5")
        with pytest.raises(OptionError, match="usage is 5, it must be given after a window was made"):
            session.observe(5)
        for stop in range(4, 16, 2):
            session.extend(history[len(session) : stop])
            window = session.window()
            counted = TokenEstimator(model="claude-sonnet-4-5").count_request(window)
            setting = session.observe({"input_tokens": 100, "cache_read_input_tokens": round(1.5 * counted) + 300})
        assert setting == session.settings_history[-1]
        assert setting.start == len(session) == 14
        assert 1.5 * counted + 400 == pytest.approx(setting.factor * counted + setting.offset, rel=0.1)
        uncorrected = fit(history[:14], 20_000, counter="claude-sonnet-4-5")
        assert 1.3 * uncorrected.tokens < session.window().tokens <= 20_000
        session.save(tmp_path / "s")
        again = Session.load(tmp_path / "s")
        for each in (session, again):
            each.extend(history[14:])
        assert again.window() == session.window()
        assert again.observe(9000) == session.observe(9000)

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
