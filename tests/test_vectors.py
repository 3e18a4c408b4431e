"""VectorIndex and top_k from Python: what arrays are taken, what is refused, and the real vectors' order."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

import secateur
from samples import DATA
from secateur import HalfLife, VectorError, VectorIndex

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


@pytest.mark.parametrize("additive", [False, True])
def test_masks_and_weights_of_real_vectors(reference: NDArray[np.float32], additive: bool) -> None:
    index = VectorIndex(384)
    index.append(reference)
    count = len(reference)
    every_third = np.arange(count) % 3 == 0
    in_slices = np.zeros(count, bool)
    in_slices[10:60] = in_slices[150:] = True
    weights = np.random.default_rng(0).random(count)
    half_life = HalfLife(30, scale=0.8)
    decay = np.array([half_life.at(count - 1 - row) for row in range(count)])
    np.testing.assert_allclose(decay, 0.8 * 0.5 ** (np.arange(count)[::-1] / 30), rtol=1e-12)
    masks: list[tuple[Any, NDArray[np.bool_]]] = [
        (None, np.ones(count, bool)),
        (every_third, every_third),
        (slice(None, -20), np.arange(count) < count - 20),
        ([slice(150, None), slice(10, 40), slice(30, 60)], in_slices),
        (slice(90, 10), np.zeros(count, bool)),
        (slice(-(2**70), 2**70), np.ones(count, bool)),
    ]
    for mask, allowed in masks:
        for argument, factors in ((None, None), (weights, weights), (weights.tolist(), weights), (half_life, decay)):
            for query in reference[::40]:
                cosines = reference.astype(np.float64) @ query.astype(np.float64)
                cosines /= np.linalg.norm(reference.astype(np.float64), axis=1) * np.linalg.norm(query.astype(float))
                scores = cosines if factors is None else cosines + factors if additive else cosines * factors
                expected = sorted(np.flatnonzero(allowed), key=lambda row, of=scores: -of[row])[:12]  # type: ignore[misc]
                rows, found = index.top_k(query, 12, mask=mask, weights=argument, additive=additive)
                assert rows.tolist() == expected
                np.testing.assert_allclose(found, scores[expected], atol=1e-7)
                batch = index.top_k_batch(query[None], 12, mask=mask, weights=argument, additive=additive, threads=2)
                assert (batch[0][0].tolist(), batch[1][0].tobytes()) == (rows.tolist(), found.tobytes())


def test_a_batch_is_as_many_searches(reference: NDArray[np.float32]) -> None:
    index = VectorIndex(384)
    index.append(np.concatenate([reference + shift for shift in np.linspace(-0.01, 0.01, 40, dtype=np.float32)]))
    for size in (0, 1, 4, 19):
        rows, scores = index.top_k_batch(reference[:size], 7)
        assert rows.shape == scores.shape == (size, 7 if size else 0)
        assert rows.dtype == np.int64
        assert scores.dtype == np.float32
        for query, found_rows, found_scores in zip(reference, rows, scores, strict=False):
            for threads in (1, 3):
                single = index.top_k(query, 7, threads=threads)
                assert single[0].tolist() == found_rows.tolist()
                assert single[1].tobytes() == found_scores.tobytes()


def test_deleted_updated_and_compacted_rows(reference: NDArray[np.float32]) -> None:
    index = VectorIndex(384)
    index.append(reference)
    index.delete([3, 5])
    index.delete(np.array([], np.int64))
    assert (len(index), index.append(reference[5])) == (198, 200)
    assert index.top_k(reference[5], 1)[0].tolist() == [200]
    index.update([7, 8], reference[[5, 3]])
    assert index.top_k(reference[5], 2)[0].tolist() == [7, 200]
    for refused, problem in (
        (lambda: index.delete([4, 3]), "row 3 has been deleted"),
        (lambda: index.delete([201]), "row 201 is out of range, the index has 201 rows"),
        (lambda: index.update([3], reference[:1]), "row 3 has been deleted"),
        (lambda: index.update([1, 2], reference[:1]), "there are 1 vectors for 2 rows"),
        (lambda: index.update([1], reference[0]), r"vectors have shape \(384,\), expected \(m, 384\)"),
        (lambda: index.update([1], np.full((1, 384), np.inf)), "row 0 holds inf in column 0"),
        (lambda: index.take([3]), "row 3 has been deleted"),
        (lambda: index.top_k(reference[0], 1, rows=[3]), "row 3 has been deleted"),
    ):
        with pytest.raises(VectorError, match=problem):
            refused()
    assert len(index) == 199
    assert index.compact().tolist() == [0, 1, 2, 4, *range(6, 201)]
    assert len(index) == 199
    assert index.top_k(reference[5], 2)[0].tolist() == [5, 198]


def test_a_saved_index_is_the_same(reference: NDArray[np.float32], tmp_path: Path) -> None:
    index = VectorIndex(384)
    index.append(reference)
    index.delete([0])
    path = tmp_path / "vectors.index"
    index.save(path)
    loaded = VectorIndex.load(str(path))
    assert (len(loaded), loaded.next_row, loaded.dimension) == (199, 200, 384)
    assert loaded.memory() < 1000
    assert index.memory() <= 1.5 * reference.nbytes
    rows, scores = loaded.top_k(reference[0], 9)
    assert (rows.tolist(), scores.tobytes()) == (
        index.top_k(reference[0], 9)[0].tolist(),
        index.top_k(reference[0], 9)[1].tobytes(),
    )
    loaded.append(reference[0])
    assert loaded.top_k(reference[0], 1)[0].tolist() == [200]
    assert len(VectorIndex.load(path, verify=False)) == 199
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(VectorError, match=r"vectors\.index: is cut off or damaged"):
        VectorIndex.load(path)
    with pytest.raises(VectorError, match="none: No such file"):
        VectorIndex.load(tmp_path / "none")
    with pytest.raises(VectorError, match=r"none\.index"):
        index.save(tmp_path / "none" / "none.index")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"mask": np.ones(3, bool)}, "mask has 3 values, the index has 2 rows"),
        ({"mask": slice(0, 2, 2)}, "mask has a slice with step 2, it must be 1"),
        ({"mask": "all"}, r"mask is a str \(dtype none, shape none\), expected an array of bool"),
        ({"mask": np.ones(2)}, r"mask is a ndarray \(dtype float64, shape \(2,\)\), expected an array of bool"),
        ({"mask": slice(1), "rows": [0]}, "rows and mask exclude each other"),
        ({"weights": [1, 2, 3]}, "weights has 3 values, the index has 2 rows"),
        ({"weights": [[1], [2]]}, r"weights have shape \(2, 1\), expected \(n,\)"),
        ({"weights": [1, -2]}, "weight 1 is -2, it must be a number from 0 to 1e30"),
        ({"weights": [np.nan, 1]}, "weight 0 is NaN, it must be a number from 0 to 1e30"),
        ({"weights": [1, 1e31], "additive": True}, "weight 1 is 10{31}, it must be a number from -1e30 to 1e30"),
        ({"weights": ["a", "b"]}, "weights have dtype <U1, expected real numbers"),
        ({"threads": 0}, "threads is 0, it must be 1 or more"),
        ({"threads": -1}, "threads is -1, it must be 1 or more"),
    ],
)
def test_refused_options(arguments: dict[str, Any], problem: str) -> None:
    index = VectorIndex(2)
    index.append([[1, 0], [0, 1]])
    with pytest.raises(VectorError, match=problem):
        index.top_k([1, 0], 1, **arguments)
    if "rows" not in arguments:
        with pytest.raises(VectorError, match=problem):
            index.top_k_batch([[1, 0]], 1, **arguments)


def test_masks_that_are_views(reference: NDArray[np.float32]) -> None:
    index = VectorIndex(384)
    index.append(reference)
    flags = np.arange(400) % 3 == 0
    for mask in (flags[::2], flags[::-2], np.stack([flags[:200], flags[:200]])[:, ::1].T[:, 0]):
        rows, _ = index.top_k(reference[0], 200, mask=mask)
        assert sorted(rows.tolist()) == np.flatnonzero(mask).tolist()


def test_saving_keeps_permissions_and_links(tmp_path: Path) -> None:
    index = VectorIndex(2)
    index.append([[1, 0]])
    path = tmp_path / ("v" * 250)
    index.save(path)
    path.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(path)
    index.save(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", "v" * 250]


def test_refused_half_lives_and_batches() -> None:
    for rows, scale, problem in (
        (0, 1, "the half-life is 0, it must be a number of rows above 0"),
        (np.inf, 1, "the half-life is inf"),
        (1, -1, "scale is -1, it must be a number from 0 to 1e30"),
    ):
        with pytest.raises(VectorError, match=problem):
            HalfLife(rows, scale)
    assert repr(HalfLife(2.5)) == "HalfLife(2.5, scale=1)"
    with pytest.raises(VectorError, match=r"the queries have shape \(2,\), expected \(m, 2\)"):
        VectorIndex(2).top_k_batch([1, 0], 1)


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
    with pytest.raises(VectorError, match="dimension is 4611686018427387904, it must be at most 1048576"):
        VectorIndex(2**62)
    for many in (range(2**45), range(2**31, 2**33)):
        with pytest.raises(VectorError, match=r"there are [0-9]+ row numbers, there may be at most 4294967295"):
            index.take(many)
    with pytest.raises(VectorError, match="mask is a range"):
        index.top_k([0, 1], 1, mask=range(2**60))  # type: ignore[arg-type]
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
