"""
The compiled part of secateur. Import its names from `secateur`.
"""

from collections.abc import Sequence
from numpy import float32, int64
from numpy.typing import ArrayLike, NDArray
from typing import Final, SupportsIndex, final

__all__ = ["BUILD_PROFILE", "VectorIndex", "script_tokens", "top_k"]

BUILD_PROFILE: Final[str]
"""
How this module was compiled: benchmarks refuse anything but "release".
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
    """
