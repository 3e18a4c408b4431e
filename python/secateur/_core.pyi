"""
The compiled part of secateur. Import its names from `secateur`.
"""

from _typeshed import Incomplete, SupportsGetItem
from collections.abc import Sequence
from numpy import bool_, float32, int64
from numpy.typing import ArrayLike, NDArray
from os import PathLike
from typing import Final, SupportsFloat, SupportsIndex, final

__all__ = ["BUILD_PROFILE", "Estimator", "Fingerprints", "Fitter", "HalfLife", "VectorIndex", "byte_products_saturate", "detect_format", "feature_names", "grapheme_boundaries", "media_tokens", "read_structure", "script_tokens", "text_features", "top_k"]

BUILD_PROFILE: Final[str]
"""
How this module was compiled: benchmarks refuse anything but "release".
"""

@final
class Estimator:
    """
    Estimates tokens by a profile; see `secateur.TokenEstimator`.
    """
    def __new__(cls, /, profile: str, *, weights: bytes | None = None, mix: tuple[SupportsGetItem[int, SupportsFloat | SupportsIndex], SupportsGetItem[int, SupportsFloat | SupportsIndex], SupportsFloat | SupportsIndex] | None = None, factor: SupportsFloat | SupportsIndex = 1.0, fingerprints: bytes | None = None) -> Estimator: ...
    @property
    def about(self, /) -> str:
        """
        When the weights were fitted, and on what.
        """
    def by_family(self, text: str, /) -> list[float]:
        """
        The tokens of a text in each family, in fractions.
        """
    def count(self, text: str, /) -> int:
        """
        The tokens of a text.
        """
    def count_many(self, texts: list, /) -> list[int]:
        """
        The tokens of each text of a list.
        """
    def count_up_to(self, text: str, limit: SupportsIndex, /) -> int | None:
        """
        The tokens of a text if they are no more than a limit, else None; of a long text only a part is read then.
        """
    @property
    def families(self, /) -> list[str]:
        """
        The names of the families.
        """
    @property
    def margin(self, /) -> tuple[float, float]:
        """
        By how much estimates may be too low: (share of a total as a whole, share of each text by itself).
        """
    def upper(self, text: str, /) -> int:
        """
        A bound on the tokens of a text.
        """
    def upper_of_total(self, counts: SupportsGetItem[int, SupportsIndex], /) -> int:
        """
        A bound on the sum of several counts.
        """

@final
class Fingerprints:
    """
    The fingerprints of a vocabulary, by which tokens are counted; see `secateur.fingerprints`.

    Args:
        data: What `to_bytes` wrote.

    Raises:
        WeightsError: If it did not, or another version did.
    """
    def __new__(cls, data: bytes, /) -> Fingerprints: ...
    def __repr__(self, /) -> str: ...
    @property
    def about(self, /) -> str:
        """
        Where the vocabulary is from, and on what the weights were fitted.
        """
    def count(self, text: str, /) -> float:
        """
        The tokens of a text, in fractions.
        """
    def count_many(self, texts: list, /) -> list[float]:
        """
        The tokens of texts, in fractions, each by itself.
        """
    def counters(self, texts: list, /) -> Incomplete:
        """
        What is counted of texts, a row for each: pre-tokens that are tokens, what the weights of other kinds are for,
        and the bytes in UTF-8.
        """
    @property
    def family(self, /) -> str:
        """
        The name of the family.
        """
    @property
    def margin(self, /) -> tuple[float, float]:
        """
        By how much estimates may be too low: of a total as a whole, and of each text by itself.
        """
    @staticmethod
    def of(family: str, about: str, rules: SupportsIndex, tokens: SupportsGetItem[int, SupportsGetItem[int, SupportsIndex]]) -> Fingerprints:
        """
        Take the fingerprints of a vocabulary; each pre-token that is a token, and each piece of others, counts 1.

        Args:
            family: Its name.
            about: Where it is from; one line.
            rules: How it splits texts, as bits.
            tokens: The tokens, as bytes.

        Raises:
            WeightsError: If there are less than 256 tokens of two bytes or more, or more than a million.
        """
    def to_bytes(self, /) -> bytes:
        """
        Write the file that the constructor reads.
        """
    def with_weights(self, /, weights: SupportsGetItem[int, SupportsFloat | SupportsIndex], margin: tuple[SupportsFloat | SupportsIndex, SupportsFloat | SupportsIndex]) -> Fingerprints:
        """
        The same with weights for what `counters` counts, and by how much estimates may be too low: (shared, own).

        Raises:
            WeightsError: If weights are missing or not finite.
        """

@final
class Fitter:
    """
    A history and the automaton that fits it; see `secateur.fit` for what the settings mean.
    """
    def __len__(self, /) -> int: ...
    def __new__(cls, /, format: str, budget: SupportsIndex, *, low_water: SupportsFloat | SupportsIndex, batch: SupportsIndex, keep_share: SupportsFloat | SupportsIndex, min_saving: SupportsIndex | None, min_cleared: SupportsIndex, keep_results: SupportsIndex, keep_last: SupportsIndex, note: SupportsIndex, note_without_goal: SupportsIndex, result_note: SupportsIndex, input_note: SupportsIndex, smallest_cut: SupportsIndex, pending: bool, lead: bool, divide: bool, clear_inputs: bool, tools: dict[str, str], published: bool, estimator: Estimator | None = None, model: str = "", frame: tuple[SupportsIndex, SupportsIndex, SupportsIndex, SupportsIndex] = ...) -> Fitter: ...
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
    def plan(self, /) -> tuple[list[int], list[tuple[int, int, int]], int, int, int | None, int, int]:
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
class HalfLife:
    """
    A weight of rows that halves with every so many rows of age, for `VectorIndex.top_k(weights=...)`.

    The newest row of the index has age 0, deleted ones count. The same bits on every machine.

    Args:
        rows: After how many rows the weight is half as high, above 0.
        scale: The weight of the newest row, 0 or more.

    Raises:
        VectorError: If a number is outside its limits.

    >>> from secateur import HalfLife
    >>> round(HalfLife(10, scale=0.5).at(20), 9)
    0.125
    """
    def __new__(cls, /, rows: SupportsFloat | SupportsIndex, scale: SupportsFloat | SupportsIndex = 1.0) -> HalfLife: ...
    def __repr__(self, /) -> str: ...
    def at(self, /, age: SupportsIndex) -> float:
        """
        The weight of a row that so many rows were appended after.
        """
    @property
    def rows(self, /) -> float:
        """
        After how many rows the weight is half as high.
        """
    @property
    def scale(self, /) -> float:
        """
        The weight of the newest row.
        """

@final
class VectorIndex:
    """
    Rows of float32 vectors, searched by exact cosine.

    A row has a number, from 0 in the order of appending, which stays when others are deleted. Copies what it is given;
    safe to share between threads; the interpreter is released while it works. Besides the rows it keeps codes of 8 and
    4 bits, by which a search leaves nearly all rows unread: together 1.4 times the size of the rows at dimension 384.

    Args:
        dimension: Values per row, from 1 to 1,048,576.

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
    def compact(self, /) -> NDArray[int64]:
        """
        Free the memory of deleted rows and number the others anew, in their order.

        Returns:
            The old number of each row, int64, of shape (len(index),).

        >>> from secateur import VectorIndex
        >>> index = VectorIndex(2)
        >>> index.append([[1, 0], [0, 1], [1, 1]])
        0
        >>> index.delete([0])
        >>> len(index), index.next_row, index.compact().tolist(), index.next_row
        (2, 3, [1, 2], 2)
        """
    def delete(self, /, rows: Sequence[int] | NDArray[int64]) -> None:
        """
        Delete rows: they are found no more, the numbers of the others stay.

        Their memory is freed by `compact`.

        Args:
            rows: Their numbers.

        Raises:
            VectorError: If a row does not exist or has been deleted; nothing is deleted then.
        """
    @property
    def dimension(self, /) -> int:
        """
        Values per row.
        """
    @staticmethod
    def load(path: str | PathLike[str], *, verify: bool = True) -> VectorIndex:
        """
        Read an index from a file that `save` has written.

        The file is mapped into memory: rows are read when they are needed, several processes share them. Changes stay in
        memory until `save`. Nobody may change the file in place meanwhile, or cut it off, which would end the process; `save`
        puts a new one in its place.

        Args:
            path: The file.
            verify: Read all of it once and compare its checksums; else those of the header only.

        Raises:
            VectorError: If the file cannot be read, is no index, of another version, cut off or damaged.
        """
    def memory(self, /) -> int:
        """
        Bytes of memory that the rows take, with all that is kept for the search; a mapped file is not counted.
        """
    @property
    def next_row(self, /) -> int:
        """
        The number that the next row will have: how many there are, deleted ones included.
        """
    def save(self, /, path: str | PathLike[str]) -> None:
        """
        Write the index to a file.

        A file that is there already is replaced in one step, once the new one is on disk; it keeps its permissions.

        Args:
            path: Where to.

        Raises:
            VectorError: If the file cannot be written.
        """
    def take(self, /, rows: Sequence[int] | NDArray[int64]) -> NDArray[float32]:
        """
        Return a copy of some rows.

        Args:
            rows: Their numbers, in any order, each as often as wanted.

        Returns:
            An array of shape (number of rows, dimension), as they were appended.

        Raises:
            VectorError: If a row does not exist or has been deleted.
            MemoryError: If there is no memory for so many.
        """
    def top_k(self, /, query: ArrayLike, k: SupportsIndex, *, rows: Sequence[int] | NDArray[int64] | None = None, mask: slice | Sequence[slice] | NDArray[bool_] | None = None, weights: HalfLife | ArrayLike | None = None, additive: bool = False, threads: SupportsIndex = 1) -> tuple[NDArray[int64], NDArray[float32]]:
        """
        Find the rows with the highest cosine to a query.

        A score is the cosine summed in float64, weighted if asked for, and rounded once to float32; a zero row or a zero
        query scores 0.0 before weights. Equal scores are ordered by row. The same bits on every machine.

        Args:
            query: Shape (dimension,), any real dtype.
            k: How many at most.
            rows: Score only these rows, each as often as it is named; positions then count within `rows`.
            mask: Find only some rows: an array of bool with a value for each row number, of shape (index.next_row,), or a
                slice of the row numbers, or several slices. `slice(None, -5)` leaves out the newest 5 and costs nothing.
            weights: What each cosine is multiplied with: a number from 0 to 1e30 for each row number, or a `HalfLife`,
                with which old rows are not even looked at once they cannot be found any more.
            additive: Add the weights instead, which may then be negative, down to -1e30.
            threads: Among how many threads to split the rows, from 50,000 on; 1 is right on a machine that has
                other work.

        Returns:
            Row numbers, or positions within `rows` (int64), and scores (float32), both of shape (min(k, n),) for n rows that
            may be found, best first.

        Raises:
            VectorError: If the query, the mask or the weights do not fit or are not finite, or a row does not exist.

        >>> from secateur import HalfLife, VectorIndex
        >>> index = VectorIndex(2)
        >>> index.append([[1, 0], [1, 0.1], [0, 1]])
        0
        >>> rows, scores = index.top_k([1, 0], 3, weights=HalfLife(1))
        >>> rows.tolist(), scores.round(2).tolist()
        ([1, 0, 2], [0.5, 0.25, 0.0])
        """
    def top_k_batch(self, /, queries: ArrayLike, k: SupportsIndex, *, mask: slice | Sequence[slice] | NDArray[bool_] | None = None, weights: HalfLife | ArrayLike | None = None, additive: bool = False, threads: SupportsIndex = 1) -> tuple[NDArray[int64], NDArray[float32]]:
        """
        Find the rows with the highest cosine to each of several queries: the same as `top_k` of each, faster.

        Args:
            queries: Shape (m, dimension), any real dtype.
            k: How many at most for each.
            mask: As for `top_k`.
            weights: As for `top_k`.
            additive: As for `top_k`.
            threads: As for `top_k`.

        Returns:
            Row numbers (int64) and scores (float32), both of shape (m, min(k, n)) for n rows that may be found, best
            first; (0, 0) without queries.

        Raises:
            VectorError: As for `top_k`.

        >>> from secateur import VectorIndex
        >>> index = VectorIndex(2)
        >>> index.append([[1, 0], [0, 1]])
        0
        >>> index.top_k_batch([[1, 0], [0, 2]], 1)[0].tolist()
        [[0], [1]]
        """
    def update(self, /, rows: Sequence[int] | NDArray[int64], vectors: ArrayLike) -> None:
        """
        Replace the vectors of some rows.

        Args:
            rows: Their numbers.
            vectors: Shape (number of rows, dimension); any real dtype.

        Raises:
            VectorError: If a row does not exist or has been deleted, or the vectors do not fit or are not finite; nothing is
                replaced then.
        """

def byte_products_saturate() -> bool:
    """
    Whether products of unsigned with signed bytes saturate in the usual kernels of this machine.
    """

def detect_format(messages: list) -> str:
    """
    Name the wire format of messages, by the first that shows it; "simple" if all are plain role and text.
    """

def feature_names() -> list[str]:
    """
    The names of the counts that `text_features` gives.
    """

def grapheme_boundaries(text: str, /) -> list[int]:
    """
    The positions in a text at which it can be cut without tearing a grapheme cluster (UAX #29), its end included.
    """

def media_tokens(block: dict, model: str) -> int:
    """
    The tokens of a block that holds an image, a document, a sound or a film, by the rule of a model.
    """

def read_structure(format: str, messages: list) -> list[tuple[str, bool, list[str], list[str]]]:
    """
    What messages are: (kind, whether it continues the output before it, calls, results).
    """

def script_tokens(text: str, /) -> int:
    """
    Estimate the tokens of a text by the published script rule.
    """

def text_features(texts: list, /) -> Incomplete:
    """
    The counts from which tokens are estimated: a row for each text, of the features named by `feature_names`, then its
    characters and its bytes in UTF-8.
    """

def top_k(matrix: ArrayLike, query: ArrayLike, k: SupportsIndex) -> tuple[NDArray[int64], NDArray[float32]]:
    """
    Find the rows of a matrix with the highest cosine to a query; see `VectorIndex.top_k`.

    For one search: nothing is copied or kept. From the second search over the same rows on a `VectorIndex` is faster.

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
