"""The texts that secateur puts into a window."""

from __future__ import annotations

from dataclasses import dataclass

GOAL_CHARACTERS = 240
"""How much of the first human message a note repeats."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What stands in the place of what was taken out of a request.

    Agents have read a bare "[cleared]" as a damaged file and set out to mend it: each text says that only this copy
    was shortened.

    Attributes:
        result: For the content of a tool result.
        arguments: For the arguments of a call.
        removed: For messages removed, behind the first human message; "" for none. "{goal}" in it becomes the beginning
            of that message.
        cut: Between head and tail of a result; "{characters}" in it becomes how many were cut out.

    >>> Notes(removed="").removed
    ''
    """

    result: str = (
        "[This result was removed from this request to fit the model's context; the source is unchanged."
        " Run the tool again if it is needed.]"
    )
    arguments: str = "removed from this request to fit the model's context"
    removed: str = (
        "[Earlier parts of this conversation were removed from this request to fit the model's context;"
        " nothing was lost at the source. The goal, as first stated: {goal}]"
    )
    cut: str = "\n[… {characters} characters left out of this copy …]\n"
