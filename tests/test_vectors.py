"""VectorIndex and top_k from Python: what arrays are taken, what is refused, and the real vectors' order."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

import secateur
from samples import DATA
from secateur import VectorError, VectorIndex

finite = st.floats(-1e6, 1e6, width=32)
matrices = arrays.arrays(np.float32, st.tuples(st.integers(1, 20), st.integers(1, 40)), elements=finite)


@pytest.fixture(scope="module")
def reference() -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = np.load(DATA / "minilm_reference.npz")["vectors"]
    return vectors


def brute_force(matrix: NDArray[Any], query: NDArray[Any], k: int) -> tuple[list[int], NDArray[np.float64]]:
    products = matrix.astype(np.float64) @ query.astype(np.float64)
    norms = np.linalg.norm(matrix.astype(np.float64), axis=1) * np.linalg.norm(query.astype(np.float64))
    scores = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    order = sorted(range(len(matrix)), key=lambda row: (-np.float32(scores[row]), row))[:k]
    return order, scores[order]


def test_real_vectors_in_the_order_of_brute_force(reference: NDArray[np.float32]) -> None:
    index = VectorIndex(384)
    for start in range(0, 200, 7):
        assert index.append(reference[start : start + 7]) == start
    assert (len(index), index.dimension, repr(index)) == (200, 384, "VectorIndex(dimension=384, rows=200)")
    for query in reference[::9]:
        rows, scores = index.top_k(query, 25)
        expected_rows, expected_scores = brute_force(reference, query, 25)
        assert rows.tolist() == expected_rows
        np.testing.assert_allclose(scores, expected_scores, atol=1e-7)
        assert rows.dtype == np.int64
        assert scores.dtype == np.float32
        one_shot_rows, one_shot_scores = secateur.top_k(reference, query, 25)
        assert one_shot_rows.tolist() == rows.tolist()
        assert one_shot_scores.tobytes() == scores.tobytes()


@given(matrices, st.integers(0, 25), st.data())
def test_layout_and_dtype_do_not_matter(matrix: NDArray[np.float32], k: int, data: st.DataObject) -> None:
    query = data.draw(arrays.arrays(np.float32, matrix.shape[1], elements=finite))
    rows, scores = secateur.top_k(matrix, query, k)
    for same in (
        np.asfortranarray(matrix),
        matrix.astype(np.float64),
        np.repeat(matrix, 2, axis=0)[::2],
        matrix.tolist(),
    ):
        again = secateur.top_k(same, query.astype(np.float64), k)
        assert again[0].tolist() == rows.tolist()
        assert again[1].tobytes() == scores.tobytes()


@given(matrices, st.data())
def test_candidates_and_take(matrix: NDArray[np.float32], data: st.DataObject) -> None:
    index = VectorIndex(matrix.shape[1])
    index.append(matrix)
    rows = data.draw(st.lists(st.integers(0, len(matrix) - 1), max_size=30))
    np.testing.assert_array_equal(index.take(rows), matrix[rows])
    positions, scores = index.top_k(matrix[0], 5, rows=rows)
    chosen = secateur.top_k(matrix[rows].reshape(-1, matrix.shape[1]), matrix[0], 5)
    assert positions.tolist() == chosen[0].tolist()
    assert scores.tobytes() == chosen[1].tobytes()
    by_array = index.top_k(matrix[0], 5, rows=np.array(rows, np.int64))
    assert by_array[0].tolist() == positions.tolist()


def test_the_index_keeps_its_own_copy() -> None:
    vector = np.ones(3, np.float32)
    index = VectorIndex(3)
    index.append(vector)
    vector[:] = np.nan
    assert index.take([0]).tolist() == [[1, 1, 1]]


@pytest.mark.parametrize(
    ("vectors", "problem"),
    [
        (np.zeros((2, 4), np.float32), r"vectors have shape \(2, 4\), expected \(n, 3\)"),
        (np.zeros((1, 2, 3), np.float32), r"vectors have shape \(1, 2, 3\), expected \(n, 3\)"),
        (np.float32(1), r"vectors have shape \(\), expected \(n, 3\)"),
        (np.zeros(4), r"vectors have shape \(4,\), expected \(n, 3\)"),
        ([[0, 0, 0], [0, np.nan, 0]], "row 1 holds NaN in column 1, every value must be finite in float32"),
        ([[0, 1e300, 0]], "row 0 holds inf in column 1, every value must be finite in float32"),
        (np.array([["a", "b", "c"]]), "vectors have dtype <U1, expected real numbers"),
        ([[1, 2, 3], [1]], "vectors cannot be read as an array: .*inhomogeneous"),
        (np.zeros((4, *(1,) * 39))[::2], "vectors have shape .*, expected"),
        (np.zeros((1, 3), complex), "vectors have dtype complex128, expected real numbers"),
    ],
)
def test_refused_vectors(vectors: Any, problem: str) -> None:
    index = VectorIndex(3)
    with pytest.raises(VectorError, match=problem):
        index.append(vectors)
    assert len(index) == 0


def test_refused_searches() -> None:
    with pytest.raises(VectorError, match="dimension is 0"):
        VectorIndex(0)
    index = VectorIndex(2)
    index.append([[1, 0]])
    with pytest.raises(VectorError, match=r"the query has shape \(3,\), expected \(2,\)"):
        index.top_k([1, 2, 3], 1)
    with pytest.raises(VectorError, match="the query holds inf in column 1"):
        index.top_k([0, np.inf], 1)
    with pytest.raises(VectorError, match="row 1 is out of range, the index has 1 rows"):
        index.top_k([0, 1], 1, rows=[0, 1])
    with pytest.raises(VectorError, match="row -1 is out of range"):
        index.take([-1])
    with pytest.raises(VectorError, match="-1 is no number of rows or values: it must be 0 or more"):
        index.top_k([0, 1], -1)
    with pytest.raises(VectorError, match="a row is out of range: "):
        index.top_k([0, 1], 1, rows=[2**70])
    with pytest.raises(VectorError, match="row 0 is out of range, the index has 0 rows"):
        VectorIndex(2**62).take([0])
    with pytest.raises(VectorError, match="-1 is no number of rows or values"):
        VectorIndex(-1)


def test_edges() -> None:
    index = VectorIndex(2)
    assert [part.tolist() for part in index.top_k([1, 1], 5)] == [[], []]
    index.append(np.empty((0, 2)))
    index.append([[0, 0], [1, 1], [-1, -1]])
    rows, scores = index.top_k([2, 2], 99)
    assert (rows.tolist(), scores.tolist()) == ([1, 0, 2], [1.0, 0.0, -1.0])
    assert index.top_k([2, 2], 2**80)[0].tolist() == [1, 0, 2]
    assert index.top_k([0, 0], 2)[0].tolist() == [0, 1]
    assert index.top_k([1, 0], 0)[0].size == 0


def test_unaligned_values_are_copied_before_they_are_read() -> None:
    bytes_behind_one = np.arange(17, dtype=np.uint8)[1:]
    unaligned = bytes_behind_one.view(np.float32).reshape(2, 2)
    index = VectorIndex(2)
    index.append(unaligned)
    assert index.take([0, 1]).tobytes() == bytes_behind_one.tobytes()
    with pytest.raises(VectorError, match=r"vectors have shape \(2,\), expected \(n, d\)"):
        secateur.top_k([1, 2], [1], 1)


def test_threads_append_and_search_at_once(reference: NDArray[np.float32]) -> None:
    index = VectorIndex(384)
    index.append(reference)

    def work(number: int) -> list[int]:
        index.append(-reference[number : number + 5])
        return list(index.top_k(reference[number], 3, rows=range(200))[0])

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(100)))
    assert len(index) == 200 + 100 * 5
    texts = json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))
    assert [texts[rows[0]] for rows in found] == texts[:100]
