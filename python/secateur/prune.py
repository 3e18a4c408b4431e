"""Semantic pruning: what bears on the prompt, what was said last, and the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain, islice
from numbers import Real
from typing import Literal, NamedTuple, get_args

from secateur import embed, formats
from secateur.embed import lexical
from secateur.embed.template import embedded_texts
from secateur.errors import MessageError, OptionError, whole_number

Unit = Literal["message", "turn"]
Placement = Literal["chronological", "before_prompt"]
Reason = Literal["system", "recent", "recalled", "scored lower", "below min_score", "no text", "broken round"]


def prune_context(
    current_prompt: str | formats.Message,
    history: Iterable[formats.Message],
    top_k: int = 2,
    *,
    embedder: embed.AnyEmbedder | None = None,
    unit: Unit = "message",
    placement: Placement = "chronological",
    min_score: float | None = None,
    keep_last: int | None = None,
) -> list[formats.Message]:
    """Choose the messages to send: the most relevant old ones, the recent turn, the prompt.

    The last two messages always stay. All earlier ones are archived; each is scored by the cosine of its embedding
    to the prompt's, and the best `top_k` come back in chronological order, before the recent ones. A history of two
    messages or fewer comes back whole. The messages returned are the caller's own objects, unchanged; the prompt is
    added as a user message.

    - System and developer messages always stay where they stand and are never counted.
    - A tool call and its results are one unit: chosen whole, by the best score among its messages, or not at all,
      and the recent ones are widened to a whole round. A round that lacks its call or a result would be refused by
      the provider: it is never chosen, nor is a turn that holds one. Among the recent ones it stays as it came.
    - Equal messages are scored alike and told apart by position; equal scores prefer the earlier one.
    - A message without text (empty, or an image) scores lowest: it returns when `top_k` leaves nothing else out.
    - `top_k=0` returns the recent messages and the prompt; `top_k` beyond the archive returns everything.

    MiniLM reads English: for a prompt that is mostly in another script than the Latin one, messages that share words
    with it (BM25) come first, unless `min_score` asks for cosines.

    Embeddings are remembered per text and embedder, so that an unchanged history embeds only the prompt.

    Args:
        current_prompt: The text of the prompt, or a whole message.
        history: Messages in OpenAI, Anthropic or plain role-and-content shape; any role.
        top_k: How many units come back at most.
        embedder: What makes the vectors: None for the local MiniLM model, a path to one, "static" or "instant" (see
            `secateur.embed`), an embedding object of another package, or any object with `embed(texts)` or callable
            that returns float32 of shape (n, d). A message's speaker and date are embedded with its text.
        unit: "message", or "turn" to score and return whole turns (from one human message up to the next), of
            which the last always stays.
        placement: "chronological", or "before_prompt" to put what comes back between the recent messages and the
            prompt, so that a cached prefix lives longer.
        min_score: Leave out what scores lower, from -1 to 1.
        keep_last: How many messages (turns) always stay; 2 (1) by default.

    Returns:
        The messages to send, the prompt last.

    Raises:
        MessageError: If a message cannot be read, or the prompt is empty.
        OptionError: If an argument is outside its limits.
        EmbedderUnavailable: If a model is needed and there is none.
        EmbedderError: If the embedder returns something else than vectors.

    >>> history = [
    ...     {"role": "user", "content": "How long is the bridge?"},
    ...     {"role": "assistant", "content": "It is 200 metres long."},
    ... ]
    >>> prune_context("And how wide?", history) == [*history, {"role": "user", "content": "And how wide?"}]
    True
    """
    pruner = Pruner(top_k, embedder, unit=unit, placement=placement, min_score=min_score, keep_last=keep_last)
    return pruner(current_prompt, history)


@dataclass(frozen=True, slots=True)
class Choice:
    """What became of one message of the history, and why.

    >>> history = [{"role": "user", "content": "Hello."}]
    >>> Pruner().explain("Hello?", history).choices
    [Choice(index=0, kept=True, reason='recent', score=None)]
    """

    index: int
    kept: bool
    reason: Reason
    score: float | None
    """Cosine to the prompt; None if it was not scored."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """The messages to send, and what became of each message of the history.

    >>> pruning = Pruner(top_k=0).explain("Hello?", [])
    >>> len(pruning.messages), pruning.choices
    (1, [])
    """

    messages: list[formats.Message]
    choices: list[Choice]


@dataclass(frozen=True, slots=True)
class Pruner:
    """The settings of `prune_context`, checked once, to be used for many calls; safe to share between threads.

    Raises:
        OptionError: If a setting is outside its limits.

    >>> pruner = Pruner(top_k=3, unit="turn")
    >>> pruner("Hello?", [])
    [{'role': 'user', 'content': 'Hello?'}]
    """

    top_k: int = 2
    embedder: embed.AnyEmbedder | None = None
    _: KW_ONLY
    unit: Unit = "message"
    placement: Placement = "chronological"
    min_score: float | None = None
    keep_last: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "top_k", whole_number("top_k", self.top_k, 0))
        if self.keep_last is not None:
            object.__setattr__(self, "keep_last", whole_number("keep_last", self.keep_last, 0))
        for name, value, allowed in (("unit", self.unit, Unit), ("placement", self.placement, Placement)):
            if value not in get_args(allowed):
                raise OptionError(name, value, " or ".join(map(repr, get_args(allowed))))
        score = self.min_score
        if score is not None:
            if isinstance(score, bool) or not isinstance(score, Real) or not -1 <= score <= 1:
                raise OptionError("min_score", score, "a number from -1 to 1, or None")
            object.__setattr__(self, "min_score", float(score))

    def __call__(
        self, current_prompt: str | formats.Message, history: Iterable[formats.Message]
    ) -> list[formats.Message]:
        """Return the messages to send; see `prune_context`."""
        return self._plan(current_prompt, history, score_all=False).window(self.placement)

    def explain(self, current_prompt: str | formats.Message, history: Iterable[formats.Message]) -> Pruning:
        """Return the messages to send together with the fate and score of each message.

        Scores the whole archive, so that it may embed where a plain call need not.
        """
        plan = self._plan(current_prompt, history, score_all=True)
        return Pruning(plan.window(self.placement), plan.choices(self.min_score))

    def _plan(
        self, current_prompt: str | formats.Message, history: Iterable[formats.Message], *, score_all: bool
    ) -> _Plan:
        prompt, prompt_text = _read_prompt(current_prompt)
        messages = _history(history)
        # The prompt may be the result of a call: what it answers then belongs to it.
        columns = formats.read([*messages, prompt], "history")
        units = formats.turns(columns) if self.unit == "turn" else formats.rounds(columns)
        archive = _Archive.of(columns, units, self._recent(columns, units))
        everything_returns = self.min_score is None and self.top_k >= len(archive.choosable)
        scores: dict[int, float] = {}
        if archive.candidates and (score_all or not (self.top_k == 0 or everything_returns)):
            # Of single messages the best top_k are the answer; of several in a unit one may hold many of the best.
            limit = len(archive.candidates)
            if units.count == len(columns.roles) and not score_all:
                limit = min(self.top_k, limit)
            candidates = archive.candidates
            texts = embedded_texts([messages[i] for i in candidates], [columns.texts[i] for i in candidates])
            cache = embed.cached(self.embedder)
            if cache.english_only and self.min_score is None and lexical.is_foreign(prompt_text):
                # What shares words with the prompt comes first; the embedder orders the rest.
                matches = lexical.scores(prompt_text, texts)
                found = cache.search(prompt_text, texts, len(texts))
                found = sorted(found, key=lambda each: -matches[each[0]])[:limit]
            else:
                found = cache.search(prompt_text, texts, limit)
            scores = {archive.candidates[position]: score for position, score in found}
        return _Plan(messages, prompt, columns, archive, scores, self._chosen(archive, scores))

    def _recent(self, columns: formats.Columns, units: formats.Units) -> int:
        """Index of the first message that always stays, at the start of a unit."""
        prompt = len(columns.roles) - 1
        last = units.holding(prompt)
        if self.unit == "turn":
            keep_last = 1 if self.keep_last is None else self.keep_last
            if units.starts[last] < prompt:
                # It answers a call of the last turn, which stays whatever is asked for.
                keep_last = max(0, keep_last - 1)
            return units.starts[max(0, last - keep_last)]
        first, left = prompt, 2 if self.keep_last is None else self.keep_last
        while left > 0 and first > 0:
            first -= 1
            left -= first not in columns.system
        return min(units.starts[units.holding(first)], units.starts[last])

    def _chosen(self, archive: _Archive, scores: Mapping[int, float]) -> list[int]:
        """The units that come back; `scores` is ordered best first."""
        ranked: dict[int, None] = {}
        for index, score in scores.items():
            if self.min_score is None or score >= self.min_score:
                ranked.setdefault(archive.units.holding(index))
        # What has no text, or was not scored because everything returns.
        unscored = (unit for unit in archive.choosable if self.min_score is None and unit not in ranked)
        return list(islice(chain(ranked, unscored), min(self.top_k, len(archive.choosable))))


class _Archive(NamedTuple):
    """What may come back: the units before the recent messages."""

    units: formats.Units
    recent: int
    choosable: Sequence[int]
    candidates: list[int]
    """The messages in them that have text."""

    @classmethod
    def of(cls, columns: formats.Columns, units: formats.Units, recent: int) -> _Archive:
        archived: Sequence[int] = range(units.holding(recent))
        with_text = [index for index, text in enumerate(islice(columns.texts, recent)) if text and not text.isspace()]
        if units.broken or columns.system:
            archived = [
                unit
                for unit in archived
                if unit not in units.broken and not columns.system.issuperset(units.members(unit))
            ]
            with_text = [
                index for index in with_text if index not in columns.system and units.holding(index) not in units.broken
            ]
        return cls(units, recent, archived, with_text)


class _Plan(NamedTuple):
    messages: list[formats.Message]
    prompt: formats.Message
    columns: formats.Columns
    archive: _Archive
    scores: dict[int, float]
    chosen: list[int]

    def window(self, placement: Placement) -> list[formats.Message]:
        recalled = {index for unit in self.chosen for index in self.archive.units.members(unit)}
        system = self.columns.system
        recent = range(self.archive.recent, len(self.messages))
        early = system.difference(recent)
        if placement == "chronological":
            order = [*sorted(recalled | early), *recent]
        else:
            # Before what the prompt answers, so that no call is parted from its result.
            answered = self.archive.units.starts[self.archive.units.holding(len(self.messages))]
            before, behind = range(recent.start, max(recent.start, answered)), range(answered, recent.stop)
            order = [*sorted(early), *before, *sorted(recalled - system), *behind]
        return [*(self.messages[index] for index in order), self.prompt]

    def choices(self, min_score: float | None) -> list[Choice]:
        chosen = set(self.chosen)
        best: dict[int, float] = {}
        for index, score in self.scores.items():
            best.setdefault(self.archive.units.holding(index), score)
        return [self._choice(index, chosen, best, min_score) for index in range(len(self.messages))]

    def _choice(self, index: int, chosen: set[int], best: Mapping[int, float], min_score: float | None) -> Choice:
        unit = self.archive.units.holding(index)
        score = best.get(unit)
        reason: Reason
        if index in self.columns.system:
            reason = "system"
        elif index >= self.archive.recent:
            reason = "recent"
        elif unit in chosen:
            reason = "recalled"
        elif unit in self.archive.units.broken:
            reason = "broken round"
        elif score is None:
            reason = "no text"
        elif min_score is not None and score < min_score:
            reason = "below min_score"
        else:
            reason = "scored lower"
        return Choice(index, reason in ("system", "recent", "recalled"), reason, self.scores.get(index))


def _read_prompt(prompt: str | formats.Message) -> tuple[formats.Message, str]:
    message: formats.Message = {"role": "user", "content": prompt} if isinstance(prompt, str) else prompt
    try:
        text = formats.read([message]).texts[0]
    except MessageError as error:
        raise MessageError(None, error.problem) from None
    if not text.strip():
        raise MessageError(None, "has no text")
    return message, text


def _history(history: Iterable[formats.Message]) -> list[formats.Message]:
    if isinstance(history, (str, bytes, Mapping)) or not isinstance(history, Iterable):
        raise OptionError("history", history, "a list of messages")
    return list(history)
