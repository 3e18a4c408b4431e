"""The report of a window: what became of each message, and what was wrong with the input."""

from histories import call, fit_by_script, result, user
from samples import records
from secateur import fit
from secateur._core import script_tokens
from secateur.tokens import MESSAGE_TOKENS


class TestReport:
    def test_each_message_has_its_fate(self) -> None:
        history = records("service.jsonl")[0]["messages"]
        window = fit_by_script(history, 2200)
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
