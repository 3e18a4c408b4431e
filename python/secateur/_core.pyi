"""
The compiled part of secateur. Import its names from `secateur`.
"""

from _typeshed import SupportsGetItem
from collections.abc import Sequence
from numpy import float32, int64
from numpy.typing import ArrayLike, NDArray
from typing import Final, SupportsFloat, SupportsIndex, final

__all__ = ["BUILD_PROFILE", "Fitter", "VectorIndex", "detect_format", "grapheme_boundaries", "read_structure", "script_tokens", "top_k"]

BUILD_PROFILE: Final[str]
"""
How this module was compiled: benchmarks refuse anything but "release".
"""

@final
class Fitter:
    """
    A history and the automaton that fits it; see `secateur.fit` for what the settings mean.
    """
    def __len__(self, /) -> int: ...
    def __new__(cls, /, format: str, budget: SupportsIndex, *, low_water: SupportsFloat | SupportsIndex, batch: SupportsIndex, keep_share: SupportsFloat | SupportsIndex, min_saving: SupportsIndex | None, min_cleared: SupportsIndex, keep_results: SupportsIndex, keep_last: SupportsIndex, note: SupportsIndex, note_without_goal: SupportsIndex, result_note: SupportsIndex, input_note: SupportsIndex, smallest_cut: SupportsIndex, pending: bool, lead: bool, divide: bool, clear_inputs: bool, tools: dict[str, str], published: bool) -> Fitter: ...
    def cuts(self, /) -> list[int]:
        """
        The request points of the cuts that the walk has made.
        """
    def extend(self, /, messages: list, pinned: SupportsGetItem[int, SupportsIndex], counts: SupportsGetItem[int, tuple[SupportsIndex, SupportsGetItem[int, tuple[SupportsIndex, SupportsIndex]]]] | None = None) -> None:
        """
        Append messages; all are appended or, on an error, none.

        Args:
            messages: In the wire format named at the start.
            pinned: Indices of messages never to be cleared or removed, within the whole history, rising.
            counts: Tokens of each message, and of each of its parts and the note for it, where a counter counted them.
        """
    def faults(self, /, pending: bool) -> list[tuple[int, str, bool]]:
        """
        Calls without their result and results without their call: (message, id of the call, whether it is a result).
        """
    def floor(self, /) -> tuple[int, int]:
        """
        What must be sent, in tokens: the pinned messages, and the newest round or message.
        """
    def parts(self, /) -> list[list[tuple[int, int, bool]]]:
        """
        The parts of each message that can be cleared: (tokens, tokens of the note, whether it is a result).
        """
    def plan(self, /) -> tuple[list[int], list[tuple[int, int, int]], int, int, int | None, int]:
        """
        The window to send now, as if a request were sent after the newest message.
        """
    def set_budget(self, /, start: SupportsIndex, budget: SupportsIndex) -> None:
        """
        Set the budget, in tokens, for request points from a message on.
        """
    def tokens(self, /) -> list[int]:
        """
        Tokens of each message, whole.
        """

@final
class VectorIndex:
    """
    Rows of float32 vectors, append-only, searched by exact cosine.

    Copies what it is given; safe to share between threads.

    Args:
        dimension: Values per row, at least 1.

    Raises:
        VectorError: If the dimension is 0.

    >>> from secateur import VectorIndex
    >>> index = VectorIndex(2)
    >>> index.append([[1, 0], [0, 1], [3, 3]])
    0
    >>> rows, scores = index.top_k([2, 0], 2)
    >>> rows.tolist(), scores.round(3).tolist()
    ([0, 2], [1.0, 0.7070000171661377])
    """
    def __len__(self, /) -> int: ...
    def __new__(cls, /, dimension: SupportsIndex) -> VectorIndex: ...
    def __repr__(self, /) -> str: ...
    def append(self, /, vectors: ArrayLike) -> int:
        """
        Append vectors and return the number of the first new row.

        Args:
            vectors: Shape (n, dimension), or (dimension,) for one row; any real dtype, stored as float32.

        Raises:
            VectorError: If the shape or the dtype does not fit, or a value is not finite in float32; nothing is
                stored then.
        """
    @property
    def dimension(self, /) -> int:
        """
        Values per row.
        """
    def take(self, /, rows: Sequence[int] | NDArray[int64]) -> NDArray[float32]:
        """
        Return a copy of some rows.

        Args:
            rows: Their numbers, in any order, each as often as wanted.

        Returns:
            An array of shape (number of rows, dimension), as they were appended.

        Raises:
            VectorError: If a row does not exist.
        """
    def top_k(self, /, query: ArrayLike, k: SupportsIndex, *, rows: Sequence[int] | NDArray[int64] | None = None) -> tuple[NDArray[int64], NDArray[float32]]:
        """
        Find the rows with the highest cosine to a query.

        A score is the cosine summed in float64 and rounded once to float32; a zero row or a zero query scores 0.0.
        Equal scores are ordered by row.

        Args:
            query: Shape (dimension,), any real dtype.
            k: How many at most.
            rows: Score only these rows, each as often as it is named; positions then count within `rows`.

        Returns:
            Positions (int64) and scores (float32), both of shape (min(k, number of rows),), best first.

        Raises:
            VectorError: If the query does not fit or is not finite, or a row does not exist.
        """

def detect_format(messages: list) -> str:
    """
    Name the wire format of messages, by the first that shows it; "simple" if all are plain role and text.
    """

def grapheme_boundaries(text: str, /) -> list[int]:
    """
    The positions in a text at which it can be cut without tearing a grapheme cluster (UAX #29), its end included.
    """

def read_structure(format: str, messages: list) -> list[tuple[str, bool, list[str], list[str]]]:
    """
    What messages are: (kind, whether it continues the output before it, calls, results).
    """

def script_tokens(text: str, /) -> int:
    """
    Estimate the tokens of a text by the published script rule.
    """

def top_k(matrix: ArrayLike, query: ArrayLike, k: SupportsIndex) -> tuple[NDArray[int64], NDArray[float32]]:
    """
    Find the rows of a matrix with the highest cosine to a query; see `VectorIndex.top_k`.

    For one search. For several over the same rows, a `VectorIndex` saves the copy and the norms.

    Args:
        matrix: Shape (n, d), any real dtype.
        query: Shape (d,), any real dtype.
        k: How many at most.

    Returns:
        Rows (int64) and scores (float32), both of shape (min(k, n),), best first.

    Raises:
        VectorError: If the shapes or dtypes do not fit or a value is not finite in float32.

    >>> import secateur
    >>> rows, scores = secateur.top_k([[0, 0], [2, 0], [-1, 0]], [1, 0], 3)
    >>> rows.tolist(), scores.tolist()
    ([1, 0, 2], [1.0, 0.0, -1.0])
    """
