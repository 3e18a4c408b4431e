"""Session: the windows of fit, saved and loaded, and what it refuses."""

import copy
import math
import pickle
from typing import Any

import pytest

import secateur
from histories import Message, cost, fit_by_script, user
from samples import records
from secateur import MessageError, Notes, OptionError, Policy, Session, Setting, fit


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
        again = Session.load(tmp_path / "session.jsonl", counter="script")
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
