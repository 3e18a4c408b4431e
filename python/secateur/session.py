"""A conversation that grows: its history, and the window for each request."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Self

from secateur import embed, formats
from secateur.embed.template import embedded_texts
from secateur.embed.warm import Warmer
from secateur.errors import ConversationError, HistoryChanged, MessageError, OptionError
from secateur.fit import Fitting, Policy, Setting, Window, as_setting
from secateur.learning import MOST_REPORTS, learn, prompt_tokens
from secateur.notices import Notes
from secateur.tokens import AnyCounter
from secateur.validity import as_list

_VERSION = 1


class Session:
    """An append-only history that is read once, message by message, and fitted at each request.

    Gives the same windows as `fit` for the same history and settings, at a cost that depends on the window, not on the
    history. The messages are kept, not copied: a message of the window whose content was exchanged after it was
    appended is refused (a list that was changed in place is not noticed). Not to be used by several threads at once.

    Args:
        budget: Tokens of a request.
        system, tools, reserve, policy, counter, format, pending: As in `fit`.
        embedder: As in `prune_context`. Appended messages are embedded by it in a thread of the background, so that
            `prune_context` with the same embedder finds them done. "all-MiniLM-L6-v2" names the default, None embeds
            nothing. Close such a session, or use it in a `with` block.

    Raises:
        OptionError: If an argument is outside its limits.

    >>> session = Session(1000)
    >>> session.append({"role": "user", "content": "Hello."})
    >>> session.window()
    [{'role': 'user', 'content': 'Hello.'}]
    """

    def __init__(
        self,
        budget: int,
        *,
        system: Any = None,
        tools: Any = None,
        reserve: int = 0,
        policy: Policy | None = None,
        counter: AnyCounter | None = None,
        format: str | None = None,  # noqa: A002
        pending: bool = False,
        embedder: embed.AnyEmbedder | None = None,
    ) -> None:
        self._warmer = None if embedder is None else Warmer(embed.cached(embedder))
        self._options: dict[str, Any] = {
            "system": system,
            "tools": tools,
            "reserve": reserve,
            "policy": policy,
            "counter": counter,
            "pending": pending,
        }
        self._budget = budget
        self._format = format
        self._fitting = self._new_fitting(formats.named(format or "simple", []))
        self._contents: list[Any] = []
        self._sent: Window | None = None
        """The last window."""
        self._reports: list[tuple[int, int]] = []
        """Estimates of windows, and what the provider counted."""

    @property
    def messages(self) -> list[formats.Message]:
        """The whole history, a list of its own."""
        return list(self._fitting.messages)

    @property
    def settings_history(self) -> list[Setting]:
        """The budgets set since the beginning, for `fit(settings_history=…)`."""
        return list(self._fitting.settings)

    def __len__(self) -> int:
        return len(self._fitting.messages)

    def append(self, message: formats.Message) -> None:
        """Append a message.

        Raises:
            MessageError: If it cannot be read; nothing is appended then.
        """
        self.extend([message])

    def extend(self, messages: Iterable[formats.Message]) -> None:
        """Append messages; all of them, or none if one cannot be read.

        Raises:
            MessageError: If one cannot be read.
        """
        added = as_list(messages)
        fitting = self._fitting
        if self._format is None and fitting.wire.name == "simple":
            wire = formats.named(None, added)
            if wire.name != "simple":
                fitting = self._in_format(wire)
        fitting.extend(added)
        self._fitting = fitting
        self._contents += [_content(message) for message in added]
        if self._warmer is not None:
            self._warmer.add(_texts(added))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the embedding in the background; the session itself goes on working."""
        if self._warmer is not None:
            self._warmer.close()

    def window(self) -> Window:
        """The messages to send after the newest one.

        Raises:
            BudgetError: If what must be sent does not fit.
            HistoryChanged: If a message of the window is not what was appended.
        """
        window = self._fitting.window()
        messages, contents = self._fitting.messages, self._contents
        for index in window.plan.elements:
            if index < 0 or contents[index] is None or messages[index].get("content") is contents[index]:
                continue
            # Under its other names; they are rare, and this runs over the whole window.
            if _content(messages[index]) is not contents[index]:
                raise HistoryChanged(index)
        self._sent = window
        return window

    def observe(self, usage: object) -> Setting:
        """Learn from what the provider counted for the last window.

        Fits a factor and an offset to the last reports, robustly (see `TokenEstimator.observe`); they hold for the
        request points after the newest message, so that earlier cuts stay. `settings_history` has them.

        Args:
            usage: The tokens of the input, or the provider's usage.

        Returns:
            The setting that holds from now on.

        Raises:
            OptionError: If there was no window yet, or the usage holds no count of the input.
        """
        if self._sent is None:
            raise OptionError("usage", usage, "given after a window was made")
        self._reports = [*self._reports, (self._fitting.estimate(self._sent), prompt_tokens(usage))][-MOST_REPORTS:]
        lesson = learn([[float(estimate)] for estimate, _ in self._reports], [tokens for _, tokens in self._reports])
        self.set_budget(self._budget, factor=lesson.factor, offset=lesson.offset)
        return self._fitting.settings[-1]

    def set_budget(self, budget: int, *, factor: float | None = None, offset: int | None = None) -> None:
        """Let another budget hold from the next request on; earlier cuts stay as they are.

        Args:
            budget: Tokens of a request.
            factor: What a counted token costs, in the provider's tokens; None for what it was.
            offset: What every request costs on top; None for what it was.

        Raises:
            OptionError: If one is outside its limits.
        """
        known = self._fitting.settings[-1] if self._fitting.settings else Setting(0, 1.0, 0, budget)
        factor = known.factor if factor is None else factor
        self._fitting.set(Setting(len(self), factor, known.offset if offset is None else offset, budget))

    def save(self, path: str | Path) -> None:
        """Write the session as JSON lines: the settings, then a message a line.

        Raises:
            OptionError: If the policy pins by a function, which no file holds.
            ConversationError: If a message cannot be written as JSON.
        """
        policy = self._fitting.policy
        if callable(policy.pinned):
            raise OptionError("policy.pinned", policy.pinned, "indices, to be saved")
        described = {each.name: getattr(policy, each.name) for each in fields(policy)}
        described |= {"notes": asdict(policy.notes), "pinned": list(policy.pinned), "tools": dict(policy.tools)}
        header = {
            "secateur": _VERSION,
            "budget": self._budget,
            "format": self._format,
            "policy": described,
            "settings": self._fitting.settings,
            "reports": self._reports,
            "counter": self._options["counter"] if isinstance(self._options["counter"], str) else None,
            **{name: self._options[name] for name in ("system", "tools", "reserve", "pending")},
        }
        try:
            lines = [json.dumps(value) for value in (header, *self._fitting.messages)]
        except (TypeError, ValueError, RecursionError) as error:
            raise ConversationError(str(path), None, f"cannot hold this session as JSON: {error}") from error
        # Written beside its place and moved there whole: an interrupted save leaves the old file.
        written = Path(f"{path}.part")
        written.write_text("\n".join(lines) + "\n", encoding="utf-8")
        written.replace(path)

    @classmethod
    def load(cls, path: str | Path, *, counter: AnyCounter | None = None) -> Session:
        """Read a session that `save` wrote; it goes on as if it had never ended.

        Args:
            path: The file.
            counter: The counter of the session, which no file holds unless it is a name.

        Raises:
            ConversationError: If the file is none, or of a newer version.
        """
        try:
            header, *messages = [
                json.loads(line) for line in Path(path).read_text(encoding="utf-8").split("\n") if line
            ]
            version = header["secateur"]
            if version != _VERSION:
                raise ConversationError(str(path), 1, f"has version {version}, expected {_VERSION}")
            policy = header["policy"]
            session = cls(
                header["budget"],
                policy=Policy(**{**policy, "notes": Notes(**policy["notes"])}),
                counter=header.get("counter") if counter is None else counter,
                format=header["format"],
                **{name: header[name] for name in ("system", "tools", "reserve", "pending")},
            )
            session._reports = [(int(estimate), int(tokens)) for estimate, tokens in header.get("reports", [])]
            for setting in header["settings"]:
                session._fitting.set(as_setting(setting))
            session.extend(messages)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, ConversationError):
                raise
            raise ConversationError(str(path), None, f"is no saved session: {error}") from error
        return session

    def _new_fitting(self, wire: formats.WireFormat) -> Fitting:
        return Fitting(wire, self._budget, **self._options)

    def _in_format(self, wire: formats.WireFormat) -> Fitting:
        """The same history read again, where what looked plain so far turns out to be of another format."""
        fitting = self._new_fitting(wire)
        for setting in self._fitting.settings:
            fitting.set(setting)
        if self._fitting.messages:
            fitting.extend(self._fitting.messages)
        return fitting


def _texts(messages: list[formats.Message]) -> list[str]:
    """What `prune_context` would embed of messages; nothing of those that it cannot read."""
    try:
        texts = formats.read(messages).texts
    except MessageError:
        return []
    return embedded_texts(messages, texts)


def _content(message: formats.Message) -> Any:
    """The value by which a change of a message is noticed; none for mappings that make theirs anew."""
    if not isinstance(message, dict):
        return None
    for key in ("content", "parts", "output"):
        if key in message:
            return message[key]
    return None
