"""What secateur raises.

Every class is a `SecateurError` and also the builtin error that it is, so that either can be caught; all can be
pickled. The text names what was given and what is allowed; a place or a name is an attribute too::

    SecateurError
    ├── MessageError         ValueError    a message that cannot be read
    ├── OptionError          ValueError    an argument outside its limits
    ├── BudgetError          ValueError    what must be sent exceeds the budget
    ├── HistoryChanged       RuntimeError  a message of a session changed after it was appended
    ├── VectorError          ValueError    vectors of the wrong shape, dtype or value
    ├── WeightsError         ValueError    a file that holds no weights for estimating tokens
    ├── EmbedderError        ValueError    an embedder that returned something else than vectors
    ├── EmbedderUnavailable  ImportError   no model, or no package to run it
    ├── CounterUnavailable   ImportError   no package to count tokens with
    ├── ModelError           RuntimeError  model files that could not be fetched, checked or built
    └── ConversationError    ValueError    a file that holds no conversation
"""

from __future__ import annotations

import operator
import sys


class SecateurError(Exception):
    """Base of all errors raised by secateur."""


class MessageError(SecateurError, ValueError):
    """A message that cannot be read as one; catch it to point a user at the place in the history.

    Attributes:
        index: Position in the history, from 0; None for the prompt.
        problem: What is wrong, as a clause without its subject.
    """

    def __init__(self, index: int | None, problem: str) -> None:
        super().__init__(index, problem)
        self.index = index
        self.problem = problem

    def __str__(self) -> str:
        subject = "current_prompt" if self.index is None else f"message {self.index}"
        return f"{subject} {self.problem}"


class OptionError(SecateurError, ValueError):
    """An argument outside its limits.

    Attributes:
        name: The argument.
        value: What was given.
        limit: What is allowed, in words.
    """

    def __init__(self, name: str, value: object, limit: str) -> None:
        super().__init__(name, value, limit)
        self.name = name
        self.value = value
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.name} is {self.value!r}, it must be {self.limit}"


class BudgetError(SecateurError, ValueError):
    """What must be sent does not fit into the budget, even when all that can be left out is left out.

    Catch it to tell the person to start a new chat, to raise the budget, or to shorten what is named as the largest
    part.

    Attributes:
        needed: Tokens that the smallest window takes, with system prompt, tools and reserve.
        budget: Tokens that there are.
        largest: The largest part.
        parts: Tokens of "system", "tools", "reserve", "pinned" (system messages, the first human message, what the
            policy pins) and "newest" (the newest round or message, uncut).
    """

    def __init__(self, needed: int, budget: int, largest: str, parts: dict[str, int]) -> None:
        super().__init__(needed, budget, largest, parts)
        self.needed = needed
        self.budget = budget
        self.largest = largest
        self.parts = parts

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {tokens:,}" for name, tokens in self.parts.items() if tokens)
        return f"needed {self.needed:,} tokens, the budget is {self.budget:,}; largest part: {self.largest} ({parts})"


class HistoryChanged(SecateurError, RuntimeError):
    """A message of a session was changed after it was appended: append a new one instead.

    Attributes:
        index: Its place in the history.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index

    def __str__(self) -> str:
        return f"message {self.index} was changed after it was appended; a session's history only grows"


class VectorError(SecateurError, ValueError):
    """Vectors of the wrong shape or dtype, or values that are not finite in float32."""


class WeightsError(SecateurError, ValueError):
    """A file that holds no weights or fingerprints for estimating tokens, or those of another version."""


class EmbedderError(SecateurError, ValueError):
    """An embedder that returned something else than one finite float32 vector per text.

    Attributes:
        embedder: Its name.
        problem: What it returned and what was expected.
    """

    def __init__(self, embedder: str, problem: str) -> None:
        super().__init__(embedder, problem)
        self.embedder = embedder
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.embedder} returned {self.problem}"


class EmbedderUnavailable(SecateurError, ImportError):
    """No model or no package to embed with; the message says what to install."""


class CounterUnavailable(SecateurError, ImportError):
    """No package that counts the tokens of a model family exactly.

    Attributes:
        family: The family that was asked for.
        packages: What can be installed, the fastest first; one is enough.
        problems: What is wrong with those that are installed, by package.
    """

    def __init__(self, family: str, packages: tuple[str, ...], problems: dict[str, str]) -> None:
        super().__init__(family, packages, problems)
        self.family = family
        self.packages = packages
        self.problems = problems

    def __str__(self) -> str:
        first, *others = self.packages
        install = f"pip install {first}" + (f" (or {', or '.join(others)})" if others else "")
        problems = "".join(f"; {package}: {problem}" for package, problem in self.problems.items())
        return f"no package counts the tokens of {self.family!r}: {install}{problems}"


class ModelError(SecateurError, RuntimeError):
    """Model files that could not be fetched, do not have the expected SHA-256, or could not be built."""


class ConversationError(SecateurError, ValueError):
    """A file that does not hold a conversation.

    Attributes:
        path: The file.
        line: Line of the fault, from 1; None where no single line is at fault.
        problem: What is wrong.
    """

    def __init__(self, path: str, line: int | None, problem: str) -> None:
        super().__init__(path, line, problem)
        self.path = path
        self.line = line
        self.problem = problem

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}, line {self.line}"
        return f"{place}: {self.problem}"


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """A whole number within limits, as an int.

    Raises:
        OptionError: If it is something else; True and False are.
    """
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least or (most is not None and number > most):
        up_to = "" if most is None or most == sys.maxsize else f", {most} at most"
        raise OptionError(name, value, f"a whole number, {least} or more{up_to}")
    return number
