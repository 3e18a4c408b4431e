"""Fitting a history into a budget: the window to send."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Literal, NamedTuple

from secateur import formats, validity
from secateur._core import Fitter
from secateur.errors import BudgetError, MessageError, OptionError, whole_number
from secateur.notices import GOAL_CHARACTERS, Notes
from secateur.tokens import AnyCounter, Measure
from secateur.truncate import truncate

Action = Literal["kept", "mended", "cleared", "cut", "removed"]
ToolRule = Literal["never", "first"]
MOST_TOKENS = 2**31 - 1
"""More than any context window has."""
_PUBLISHED_NOTE = "[Earlier messages were removed to keep the conversation within the model's context.]"
_NOTE_KEY_TOKENS = 4
"""What stands around the note for arguments, which must stay JSON: `{"note": …}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How to cut when a history outgrows its budget.

    The defaults were chosen on recorded agent sessions (benches/NOTES.md): few, deep cuts, since each cut makes the
    provider read anew what it had cached.

    Attributes:
        low_water: Share of the budget to which a cut goes down, above 0 and up to 1.
        batch: How many results are cleared at a time.
        keep_share: The newest results stay whole up to this share of the budget, at least one.
        min_saving: Tokens that clearing a result must save; None for more than its note costs.
        min_cleared: Tokens that clearing must save at a cut, where there is as much to clear.
        keep_results: How many of the newest clearable results before the newest round stay whole, whatever their size.
        keep_last: How many of the newest messages are neither cleared nor removed.
        clear_inputs: Whether long arguments of calls are cleared like results.
        tools: By name of a tool: "never" to keep its results, "first" to clear them before all others.
        pinned: Messages never to be cleared or removed: their indices, or a function that says so of a message.
        notes: The texts that stand for what was taken out.
        smallest_cut: To how many tokens a newest result may be cut where nothing else helps.

    Raises:
        OptionError: If one is outside its limits.

    >>> Policy(low_water=0.5, tools={"read_plan": "never"}).low_water
    0.5
    """

    low_water: float = 0.6
    batch: int = 4
    keep_share: float = 0.25
    min_saving: int | None = None
    min_cleared: int = 0
    keep_results: int = 0
    keep_last: int = 0
    clear_inputs: bool = False
    tools: Mapping[str, ToolRule] = field(default_factory=dict)
    pinned: Collection[int] | Callable[[formats.Message], bool] = ()
    notes: Notes = field(default_factory=Notes)
    smallest_cut: int = 20
    _ladder: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("low_water", "keep_share"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise OptionError(name, value, "a number from 0 to 1")
        if self.low_water == 0:
            raise OptionError("low_water", self.low_water, "above 0")
        for name in ("batch", "smallest_cut"):
            whole_number(name, getattr(self, name), 1, MOST_TOKENS)
        for name in ("min_cleared", "keep_results", "keep_last"):
            whole_number(name, getattr(self, name), 0, MOST_TOKENS)
        if self.min_saving is not None:
            whole_number("min_saving", self.min_saving, 0, MOST_TOKENS)
        self._check_pinned()
        if not isinstance(self.notes, Notes) or not all(isinstance(each, str) for each in astuple(self.notes)):
            raise OptionError("notes", self.notes, "Notes of strings")
        if not isinstance(self.tools, Mapping):
            raise OptionError("tools", self.tools, "a mapping from tools to rules")
        for tool, rule in self.tools.items():
            if rule not in ("never", "first"):
                raise OptionError(f"tools[{tool!r}]", rule, "'never' or 'first'")

    def _check_pinned(self) -> None:
        if callable(self.pinned):
            return
        if not isinstance(self.pinned, Collection) or isinstance(self.pinned, (str, bytes)):
            raise OptionError("pinned", self.pinned, "indices of messages, or a function")
        for index in self.pinned:
            whole_number("pinned", index, 0, sys.maxsize)

    @classmethod
    def published(
        cls,
        *,
        pinned: Collection[int] | Callable[[formats.Message], bool] = (),
        tools: Mapping[str, ToolRule] | None = None,
        notes: Notes | None = None,
        min_saving: int | None = None,
    ) -> Policy:
        """The ladder as it was published, recomputed from the whole history at each request.

        Clears the oldest results four at a time until the budget is met; else keeps the newest whole turns that fit;
        else the newest whole rounds, be it none: the newest messages are lost where they are too large. It knows
        nothing of earlier requests, so that a provider's prefix cache helps it little, and a report says neither what
        changed nor how many cuts there were.

        Args:
            pinned: As in the class.
            tools: As in the class; "first" means nothing here.
            notes: As in the class.
            min_saving: As in the class.

        >>> Policy.published().batch
        4
        """
        if notes is None:
            notes = Notes(
                removed="[Earlier messages were removed to keep the conversation within the model's context.]"
            )
        return cls(low_water=1.0, pinned=pinned, tools=tools or {}, notes=notes, min_saving=min_saving, _ladder=True)


class Setting(NamedTuple):
    """A budget, and what was learned of a counter, from a message on.

    >>> Setting(start=40, factor=1.1, offset=300, budget=100_000).budget
    100000
    """

    start: int
    """The request points from this message on."""
    factor: float
    """What a counted token costs, in the provider's tokens."""
    offset: int
    """What every request costs on top."""
    budget: int


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one message.

    Attributes:
        index: Its place in the history.
        action: What was done with it.
        tokens_before: What it costs whole.
        tokens_after: What it costs in the window.
        reason: Why, in words.

    >>> fit([{"role": "user", "content": "Hello."}], 100).report().fates
    [Fate(index=0, action='kept', tokens_before=7, tokens_after=7, reason='in the window')]
    """

    index: int
    action: Action
    tokens_before: int
    tokens_after: int
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a window is made of.

    Attributes:
        tokens: What the request costs: messages, system prompt, tools, reserve.
        budget: What it may cost.
        first_changed: The first message of the window that differs from the window at the request point before; None
            if this one extends it.
        cuts: The request points at which the window changed otherwise than by growing, as places in the history.
        fates: What became of each message.
        problems: What the history came with that its provider may refuse.

    >>> print(fit([{"role": "user", "content": "Hello."}], 100).report())
    15 of 100 tokens; 1 kept; 0 cuts so far
    """

    tokens: int
    budget: int
    first_changed: int | None
    cuts: list[int]
    fates: list[Fate]
    problems: list[validity.Problem]

    def __str__(self) -> str:
        counts = {
            action: sum(fate.action == action for fate in self.fates)
            for action in ("kept", "cleared", "cut", "removed")
        }
        parts = [f"{count:,} {action}" for action, count in counts.items() if count]
        lines = [f"{self.tokens:,} of {self.budget:,} tokens; {', '.join(parts)}; {len(self.cuts)} cuts so far"]
        if self.first_changed is not None:
            lines.append(f"changed from message {self.first_changed} of the window on")
        lines += [f"message {fate.index}: {fate.reason}" for fate in self.fates if fate.action == "cut"]
        lines += [f"message {each.index}: {each.fault} ({each.detail})" for each in self.problems]
        return "\n".join(lines)


class Plan(NamedTuple):
    """Which messages stand in a window, and in which shape."""

    elements: list[int]
    """Places in the history; -1 is the note for what was removed."""
    shapes: list[tuple[int, int, int]]
    """Message, place of the part in it, and the tokens to which it is cut, or -1 if it is cleared."""
    tokens: int
    """What it costs, at most."""
    note_point: int
    """The request point at which the note was put in: it knows the history up to there."""
    changed: int | None
    """The first element that differs from the window at the request point before; None if this one extends it."""
    cuts: int
    """How many cuts there were, one here included."""
    estimate: int
    """What it is estimated to cost, without what the estimate may be too low by."""


class Window(list[formats.Message]):
    """The messages to send, a list like any other; with what belongs to them.

    Attributes:
        system: The system prompt, as it was given.
        tools: The tool schemas, as they were given.
        tokens: What the request costs, at most.
        budget: What it may cost.
        length: How many messages the history had.
        plan: Which messages it is made of.

    >>> window = fit([{"role": "user", "content": "Hello."}], 100)
    >>> len(window), window.tokens <= window.budget
    (1, True)
    """

    def __init__(
        self, messages: Iterable[formats.Message], fitting: Fitting, plan: Plan, tokens: int, budget: int
    ) -> None:
        super().__init__(messages)
        self._fitting = fitting
        self.plan = plan
        self.budget = budget
        self.length = len(fitting.messages)
        self.tokens = tokens
        self.system = fitting.system
        self.tools = fitting.tools

    def report(self) -> Report:
        """Say what became of each message of the history, and why."""
        return self._fitting.report(self)

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[formats.Message]]]:
        """Copies and pickles are plain lists: the history behind a window stays where it is."""
        return (list, (list(self),))


class Fixed(NamedTuple):
    """What every request costs beside its messages, in tokens."""

    system: int
    tools: int
    reserve: int
    request: int
    """What the provider adds; a counter of the caller's is taken to count all that there is."""

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


def fit(
    messages: Iterable[formats.Message],
    budget: int,
    *,
    system: Any = None,
    tools: Any = None,
    prompt: str | None = None,
    reserve: int = 0,
    policy: Policy | None = None,
    counter: AnyCounter | None = None,
    format: str | None = None,  # noqa: A002
    repair: bool = False,
    pending: bool = False,
    settings_history: Sequence[Setting | tuple[int, float, int, int]] | None = None,
) -> Window:
    """Choose and shape the messages to send, within a budget of tokens.

    Below the budget the window is the history itself. Above it, at a request point (before each message of the model,
    and at the end), old tool results are cleared, then the oldest turns removed, then the oldest rounds of the turn
    that is left, down to the policy's low-water mark; if even the newest round is too large, the middle of its results
    is cut. System messages, the first human message and what the policy pins always stay; a call is never parted from
    its results. The window depends on the history and the settings alone: called again after the next step, it extends
    the window from before, unless there was a cut.

    Messages that stay whole are the caller's own objects; others are shallow copies. The history is never changed.

    Args:
        messages: The whole history, oldest first, in any of the wire formats.
        budget: Tokens of the request: messages, system prompt and tool schemas.
        system: The system prompt, where it is no message: counted, and handed back as `window.system`.
        tools: The tool schemas: counted, and handed back as `window.tools`.
        prompt: A text to append as the last user message, unless the history already ends with it.
        reserve: Tokens of the budget to leave free.
        policy: How to cut; `Policy()` by default.
        counter: Counts tokens: the name of a model ("claude-opus-4-8") or of a profile ("o200k", "script"), a
            `TokenEstimator`, a tokenizer (of tiktoken, tokenizers, transformers, `secateur.exact`), a callable or an
            object with `count(text)`, or either for whole messages (`count_message`). By default the estimate for an
            unknown model, which errs high: name the model.
        format: The name of the wire format; None to detect it.
        repair: Mend a history that its provider would refuse before fitting it.
        pending: Whether calls may wait for their results over several turns; they are kept until then.
        settings_history: Budgets and factors as a `Session` learned them: from which message on, factor, offset,
            budget. Replaces `budget` for the request points that it covers.

    Returns:
        The window, a list of messages.

    Raises:
        BudgetError: If what must be sent does not fit.
        MessageError: If a message cannot be read.
        OptionError: If an argument is outside its limits.

    >>> history = [{"role": "user", "content": f"Question {number}? " * 20} for number in range(50)]
    >>> window = fit(history, 1000)
    >>> window.tokens <= 1000, window[0] is history[0], window[-1] is history[-1]
    (True, True, True)
    """
    listed = validity.as_list(messages)
    wire = formats.named(format, listed)
    mended: set[int] = set()
    if repair:
        original = {id(message) for message in listed}
        repaired = validity.repair(listed, format=wire.name)
        mended = {index for index, message in enumerate(repaired) if id(message) not in original}
        listed = repaired
    if prompt is not None:
        _append_prompt(listed, wire, prompt)
    fitting = Fitting(
        wire, budget, system=system, tools=tools, reserve=reserve, policy=policy, counter=counter, pending=pending
    )
    fitting.mended = mended
    for setting in settings_history or ():
        fitting.set(as_setting(setting))
    fitting.extend(listed)
    return fitting.window()


def as_setting(values: Iterable[Any]) -> Setting:
    """The setting of four values.

    Raises:
        OptionError: If they are not four.
    """
    try:
        return Setting(*values)
    except TypeError:
        raise OptionError("settings_history", values, "settings of start, factor, offset and budget") from None


def _append_prompt(messages: list[formats.Message], wire: formats.WireFormat, prompt: str) -> None:
    if not isinstance(prompt, str) or not prompt.strip():
        raise OptionError("prompt", prompt, "a text, or None")
    last = messages[-1] if messages else {}
    if messages and wire.is_human(last) and validity.all_text(last) == prompt:
        return
    message = wire.note(prompt)
    if wire.alternates and last.get("role") == message["role"]:
        messages[-1] = wire.joined(last, message)
    else:
        messages.append(message)


class Fitting:
    """A growing history and what fits it: what `fit` does once and a `Session` keeps."""

    def __init__(
        self,
        wire: formats.WireFormat,
        budget: int,
        *,
        system: Any,
        tools: Any,
        reserve: int,
        policy: Policy | None,
        counter: AnyCounter | None,
        pending: bool,
    ) -> None:
        self.messages: list[formats.Message] = []
        self.wire = wire
        self.policy = Policy() if policy is None else policy
        self.system = system
        self.tools = tools
        self.pending = pending
        self.settings: list[Setting] = []
        self.mended: set[int] = set()
        """Messages that `repair` put in or changed."""
        self._measure = Measure(counter, wire)
        self._estimated = self._measure.is_tokenizer
        """Whether an estimate stands in for an exact counter: until its bound exceeds the budget."""
        whole_number("reserve", reserve, 0, sys.maxsize)
        system_tokens = 0 if system is None else self._measure.value(system)
        tool_tokens = 0 if not tools else self._measure.tools(tools)
        request = (
            0
            if self._measure.estimator is None
            else max(0, self._measure.frame.request + self._measure.estimator.lesson.offset)
        )
        self.fixed = Fixed(system_tokens, tool_tokens, reserve, request)
        self._around = (system, tools, request)
        self._first_budget = whole_number("budget", budget, 1, sys.maxsize)
        self._fitter: Fitter | None = None
        self._goal_index = 0
        self._note: formats.Message | None = None
        self._note_without_goal: formats.Message | None = None
        self._rendered: tuple[list[int], list[tuple[int, int, int]], list[formats.Message]] = ([], [], [])
        self._edited: dict[tuple[int, tuple[tuple[int, int], ...]], formats.Message] = {}

    def set(self, setting: Setting) -> None:
        """Let another budget, factor or offset hold from a message on."""
        whole_number("start", setting.start, 0, sys.maxsize)
        whole_number("budget", setting.budget, 1, sys.maxsize)
        whole_number("offset", setting.offset, -MOST_TOKENS, MOST_TOKENS)
        factor = setting.factor
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0.01 <= factor <= 100:
            raise OptionError("factor", factor, "a number from 0.01 to 100")
        self.settings.append(setting)
        if self._fitter is not None:
            self._fitter.set_budget(setting.start, self._room(setting))

    def extend(self, messages: list[formats.Message]) -> None:
        """Append messages.

        Raises:
            MessageError: If one cannot be read; none is appended then.
        """
        # Each type is asked once: asking every message takes longer than reading it.
        mappings = all(issubclass(kind, Mapping) for kind in set(map(type, messages)))
        for place, message in enumerate(() if mappings else messages):
            if not isinstance(message, Mapping):
                hint = "; pass its model_dump()" if hasattr(message, "model_dump") else ""
                problem = f"is a {type(message).__name__}, expected a mapping{hint}"
                raise MessageError(len(self.messages) + place, problem)
        if self._fitter is None or (self._goal_index == len(self.messages) and any(map(self.wire.is_human, messages))):
            # The note for removed messages repeats the goal, so that its cost is known only with it.
            everything = [*self.messages, *messages]
            fitter = self._new_fitter(everything)
            self._feed(fitter, 0, everything)
            self._fitter = fitter
            self._edited.clear()
            self._rendered = ([], [], [])
        else:
            if self._goal_index == len(self.messages):
                self._goal_index += len(messages)
            self._feed(self._fitter, len(self.messages), messages)
        self.messages += messages

    def _feed(self, fitter: Fitter, first: int, messages: list[formats.Message]) -> None:
        pinned = self.policy.pinned
        if callable(pinned):
            chosen = [first + place for place, message in enumerate(messages) if pinned(message)]
        else:
            chosen = sorted(index for index in pinned if index >= first)
        fitter.extend(messages, chosen, self._counts(messages))

    def window(self) -> Window:
        """The window for a request after the newest message."""
        setting = self._setting(len(self.messages))
        if self._fitter is None:
            self._fitter = self._new_fitter([])
        plan = Plan(*self._fitter.plan())
        if self._estimated and (plan.cuts or plan.tokens > self._room(setting)):
            # Where a bound is not enough each text is counted.
            self._estimated = False
            messages, self.messages, self._fitter = self.messages, [], None
            self.extend(messages)
            return self.window()
        tokens = math.ceil((plan.tokens + self.fixed.total) * setting.factor) + setting.offset
        if tokens > setting.budget:
            raise self._over(tokens, setting)
        return Window(self._render(plan), self, plan, tokens, setting.budget)

    def report(self, window: Window) -> Report:
        """What became of each message."""
        assert self._fitter is not None
        plan = window.plan
        kept = set(plan.elements)
        savings: dict[int, int] = {}
        parts = self._fitter.parts()
        actions: dict[int, tuple[Action, str]] = {}
        for message, place, tokens in plan.shapes:
            whole, note, _ = parts[message][place]
            savings[message] = savings.get(message, 0) + whole - (note if tokens < 0 else tokens)
            cut = tokens >= 0
            reason = f"its result was cut to {tokens:,} of {whole:,} tokens" if cut else "an old result, cleared"
            actions[message] = ("cut" if cut else "cleared", reason)
        fates = []
        for index, tokens in enumerate(self._fitter.tokens()[: window.length]):
            mended: tuple[Action, str] = ("mended", "its provider would have refused it as it came")
            whole_fate: tuple[Action, str] = ("kept", "in the window")
            action, reason = actions.get(index, mended if index in self.mended else whole_fate)
            if index not in kept:
                action, reason = "removed", "older than what fits"
            after = tokens - savings.get(index, 0) if index in kept else 0
            fates.append(Fate(index, action, tokens, after, reason))
        problems = [
            validity.Problem(message, "orphan result" if answered else "unanswered call", call)
            for message, call, answered in self._fitter.faults(self.pending)
            if message < window.length
        ]
        return Report(window.tokens, window.budget, plan.changed, self._cuts(window), fates, problems)

    def _cuts(self, window: Window) -> list[int]:
        assert self._fitter is not None
        plan, walked = window.plan, self._fitter.cuts()
        # The cut that made this window may not have been confirmed by a message of the model yet.
        return walked[: plan.cuts] if plan.changed is None else [*walked[: plan.cuts - 1], window.length]

    def estimate(self, window: Window) -> int:
        """What a request with a window is estimated to cost, without bounds and without what is reserved."""
        system, tools, request = self._around
        beside = 0 if system is None else self._measure.value(system, upper=False)
        return window.plan.estimate + beside + (self._measure.tools(tools, upper=False) if tools else 0) + request

    def _setting(self, index: int) -> Setting:
        applying = [setting for setting in self.settings if setting.start <= index]
        return applying[-1] if applying else Setting(0, 1.0, 0, self._first_budget)

    def _room(self, setting: Setting) -> int:
        """What a setting leaves for the messages, in counted tokens."""
        return max(0, int((setting.budget - setting.offset) / setting.factor) - self.fixed.total)

    def _new_fitter(self, messages: list[formats.Message]) -> Fitter:
        policy, notes, measure = self.policy, self.policy.notes, self._measure
        places = (index for index, message in enumerate(messages) if self.wire.is_human(message))
        self._goal_index = next(places, len(messages))
        self._note = self._removed_note(messages[self._goal_index : self._goal_index + 1])
        self._note_without_goal = self._removed_note([])
        removed = self._note
        fitter = Fitter(
            self.wire.name,
            self._room(Setting(0, 1.0, 0, self._first_budget)),
            low_water=policy.low_water,
            batch=policy.batch,
            keep_share=policy.keep_share,
            min_saving=policy.min_saving,
            min_cleared=policy.min_cleared,
            keep_results=policy.keep_results,
            keep_last=policy.keep_last,
            note=0 if removed is None else measure.message(removed),
            note_without_goal=0 if self._note_without_goal is None else measure.message(self._note_without_goal),
            result_note=measure.text(notes.result),
            input_note=measure.text(notes.arguments) + _NOTE_KEY_TOKENS,
            smallest_cut=policy.smallest_cut,
            pending=self.pending,
            lead=self.wire.starts_with_user,
            divide=self.wire.alternates,
            clear_inputs=policy.clear_inputs,
            tools=dict(policy.tools),
            published=policy._ladder,
            **measure.counting(estimated=self._estimated),
        )
        for setting in self.settings:
            fitter.set_budget(setting.start, self._room(setting))
        return fitter

    def _removed_note(self, goal: Sequence[formats.Message]) -> formats.Message | None:
        """The note for what was removed, with the beginning of the goal if there is one."""
        removed = self.policy.notes.removed
        if not removed and (self.wire.starts_with_user or self.wire.alternates):
            # Something must stand there, or a window would begin with the model, or two messages of the user follow.
            removed = "[…]"
        if not removed:
            return None
        text = " ".join(validity.all_text(goal[0]).split()) if goal else "not known yet"
        goal_text = truncate(text, GOAL_CHARACTERS, keep="head", count=len)
        return self.wire.note(removed.replace("{goal}", goal_text))

    def _counts(self, messages: Sequence[formats.Message]) -> list[tuple[int, list[tuple[int, int]]]] | None:
        """What a counter of the caller's says of messages and of their parts; None for the core's own counts."""
        if self._measure.estimator is not None or self._estimated:
            return None
        counts: list[tuple[int, list[tuple[int, int]]]] = []
        for place, message in enumerate(messages):
            try:
                counts.append(self._count(message))
            except RecursionError:
                raise MessageError(len(self.messages) + place, "is nested too deeply") from None
        return counts

    def _count(self, message: formats.Message) -> tuple[int, list[tuple[int, int]]]:
        kinds: list[formats.PartKind] = []

        def collect(_: int, value: Any, kind: formats.PartKind) -> Any:
            kinds.append(kind)
            return value

        self.wire.edit(message, collect, inputs=self.policy.clear_inputs)
        measure = self._measure.message
        parts: list[tuple[int, int]] = []
        left = message
        for place, kind in enumerate(kinds):
            # Emptied one after the other, so that the costs of the parts add up to what the message loses.
            empty, noted = self._with_part(left, place, ""), self._with_part(left, place, self._part_note(kind))
            bare = measure(empty)
            parts.append((max(0, measure(left) - bare), max(0, measure(noted) - bare)))
            left = empty
        return measure(message), parts

    def _with_part(self, message: formats.Message, place: int, text: str) -> formats.Message:
        inputs = self.policy.clear_inputs
        return self.wire.edit(message, lambda at, value, _: text if at == place else value, inputs=inputs)

    def _part_note(self, kind: formats.PartKind) -> str:
        return self.policy.notes.result if kind == "result" else self.policy.notes.arguments

    def _render(self, plan: Plan) -> list[formats.Message]:
        elements, shapes, window = self._rendered
        if plan.shapes != shapes or plan.elements[: len(elements)] != elements:
            elements, window = [], []
        if self.wire.alternates:
            # What was left out may leave neighbours of one role.
            return validity.alternating(self._render_from(plan, 0), self.wire)
        # Mostly the window from before with what was appended; that one is the caller's now, this one is kept.
        window = [*window, *self._render_from(plan, len(elements))]
        self._rendered = (plan.elements, plan.shapes, window)
        return list(window)

    def _render_from(self, plan: Plan, first: int) -> list[formats.Message]:
        shapes: dict[int, list[tuple[int, int]]] = {}
        for message, place, tokens in plan.shapes:
            shapes.setdefault(message, []).append((place, tokens))
        window: list[formats.Message] = []
        for position in range(first, len(plan.elements)):
            index = plan.elements[position]
            if index < 0:
                self._put_note(window, plan, position)
            else:
                window.append(self._shaped(index, tuple(shapes[index])) if index in shapes else self.messages[index])
        return window

    def _put_note(self, window: list[formats.Message], plan: Plan, position: int) -> None:
        # A note from before the first human message does not know the goal.
        note = self._note if self._goal_index < plan.note_point else self._note_without_goal
        assert note is not None
        behind = plan.elements[position + 1 : position + 2]
        divides = self.wire.alternates and window and behind and self.messages[behind[0]].get("role") == "user"
        # Between two messages of the user only one of the model may stand.
        window.append({**note, "role": "assistant"} if divides else note)

    def _shaped(self, index: int, shapes: tuple[tuple[int, int], ...]) -> formats.Message:
        key = (index, shapes)
        if key not in self._edited:
            by_place = dict(shapes)
            self._edited[key] = self.wire.edit(
                self.messages[index],
                lambda place, value, kind: (
                    self._replacement(value, kind, by_place[place]) if place in by_place else value
                ),
                inputs=self.policy.clear_inputs,
            )
        return self._edited[key]

    def _replacement(self, value: Any, kind: formats.PartKind, tokens: int) -> str:
        if tokens < 0:
            return self._part_note(kind)
        text = value if isinstance(value, str) else formats.plain_text(value)
        tokens = max(0, tokens - self.wire.cut_overhead(value))
        return truncate(text, tokens, marker=self.policy.notes.cut, count=self._measure.text)

    def _over(self, needed: int, setting: Setting) -> BudgetError:
        assert self._fitter is not None
        pinned, newest = self._fitter.floor()
        fixed = self.fixed
        parts = {
            "system": fixed.system,
            "tools": fixed.tools,
            "reserve": fixed.reserve,
            "pinned": pinned,
            "newest": newest,
        }
        # What the provider adds, and what the estimate may be too low by.
        parts["around"] = max(0, needed - sum(parts.values()))
        largest = max(parts, key=lambda name: parts[name])
        return BudgetError(needed, setting.budget, largest, parts)
