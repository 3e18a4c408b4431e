//! Binding of `secateur_core::Vectors` and its search.
#![allow(clippy::needless_pass_by_value)] // Arguments come by value from Python.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use secateur_core::{Error, Match, OfRows, Search, Vectors, Weights, Within};

use crate::arrays::{Count, Float32Array, Found, FoundOfEach, Int64Array, Mask, Matrix, RowNumbers, RowWeights};
use crate::error::{VectorError, to_python};

/// A weight of rows that halves with every so many rows of age, for `VectorIndex.top_k(weights=...)`.
///
/// The newest row of the index has age 0, deleted ones count. The same bits on every machine.
///
/// Args:
///     rows: After how many rows the weight is half as high, above 0.
///     scale: The weight of the newest row, 0 or more.
///
/// Raises:
///     VectorError: If a number is outside its limits.
///
/// >>> from secateur import HalfLife
/// >>> round(HalfLife(10, scale=0.5).at(20), 9)
/// 0.125
#[pyclass(frozen, module = "secateur")]
pub(crate) struct HalfLife {
    weights: secateur_core::HalfLife,
    /// After how many rows the weight is half as high.
    #[pyo3(get)]
    rows: f64,
    /// The weight of the newest row.
    #[pyo3(get)]
    scale: f64,
}

#[pymethods]
impl HalfLife {
    #[new]
    #[pyo3(signature = (rows, scale=1.0))]
    fn new(rows: f64, scale: f64) -> PyResult<Self> {
        let weights = secateur_core::HalfLife::new(rows, scale).map_err(to_python)?;
        Ok(Self { weights, rows, scale })
    }

    fn __repr__(&self) -> String {
        format!("HalfLife({}, scale={})", self.rows, self.scale)
    }

    /// The weight of a row that so many rows were appended after.
    fn at(&self, age: Count) -> f64 {
        self.weights.at(age.0)
    }
}

/// Rows of float32 vectors, searched by exact cosine.
///
/// A row has a number, from 0 in the order of appending, which stays when others are deleted. Copies what it is given;
/// safe to share between threads; the interpreter is released while it works. Besides the rows it keeps codes of 8 and
/// 4 bits, by which a search leaves nearly all rows unread: together 1.4 times the size of the rows at dimension 384.
///
/// Args:
///     dimension: Values per row, from 1 to 1,048,576.
///
/// Raises:
///     VectorError: If the dimension is 0.
///
/// >>> from secateur import VectorIndex
/// >>> index = VectorIndex(2)
/// >>> index.append([[1, 0], [0, 1], [3, 3]])
/// 0
/// >>> rows, scores = index.top_k([2, 0], 2)
/// >>> rows.tolist(), scores.round(3).tolist()
/// ([0, 2], [1.0, 0.7070000171661377])
#[pyclass(frozen, module = "secateur")]
pub(crate) struct VectorIndex {
    // Taken inside `detach` only: a thread that holds it never waits for the interpreter.
    vectors: RwLock<Vectors>,
    /// Values per row.
    #[pyo3(get)]
    dimension: usize,
}

#[pymethods]
impl VectorIndex {
    #[new]
    fn new(dimension: Count) -> PyResult<Self> {
        let Count(dimension) = dimension;
        let vectors = Vectors::new(dimension).map_err(to_python)?;
        Ok(Self { vectors: RwLock::new(vectors), dimension })
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.read().len())
    }

    /// The number that the next row will have: how many there are, deleted ones included.
    #[getter]
    fn next_row(&self, py: Python<'_>) -> usize {
        py.detach(|| self.read().rows())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("VectorIndex(dimension={}, rows={})", self.dimension, self.__len__(py))
    }

    /// Append vectors and return the number of the first new row.
    ///
    /// Args:
    ///     vectors: Shape (n, dimension), or (dimension,) for one row; any real dtype, stored as float32.
    ///
    /// Raises:
    ///     VectorError: If the shape or the dtype does not fit, or a value is not finite in float32; nothing is
    ///         stored then.
    fn append(&self, py: Python<'_>, vectors: Float32Array<'_>) -> PyResult<usize> {
        let (values, _) = vectors.rows(Some(self.dimension))?;
        py.detach(|| {
            let mut stored = self.write();
            let first = stored.rows();
            stored.append(values).map(|()| first)
        })
        .map_err(to_python)
    }

    /// Replace the vectors of some rows.
    ///
    /// Args:
    ///     rows: Their numbers.
    ///     vectors: Shape (number of rows, dimension); any real dtype.
    ///
    /// Raises:
    ///     VectorError: If a row does not exist or has been deleted, or the vectors do not fit or are not finite; nothing is
    ///         replaced then.
    fn update(&self, py: Python<'_>, rows: RowNumbers, vectors: Float32Array<'_>) -> PyResult<()> {
        let values = vectors.several("vectors have", self.dimension)?;
        let numbers = rows.0;
        if values.len() != numbers.len() * self.dimension {
            let (got, expected) = (values.len() / self.dimension, numbers.len());
            return Err(VectorError::new_err(format!("there are {got} vectors for {expected} rows")));
        }
        py.detach(|| self.write().update(&numbers, values)).map_err(to_python)
    }

    /// Delete rows: they are found no more, the numbers of the others stay.
    ///
    /// Their memory is freed by `compact`.
    ///
    /// Args:
    ///     rows: Their numbers.
    ///
    /// Raises:
    ///     VectorError: If a row does not exist or has been deleted; nothing is deleted then.
    fn delete(&self, py: Python<'_>, rows: RowNumbers) -> PyResult<()> {
        let numbers = rows.0;
        py.detach(|| self.write().delete(&numbers)).map_err(to_python)
    }

    /// Free the memory of deleted rows and number the others anew, in their order.
    ///
    /// Returns:
    ///     The old number of each row, int64, of shape (len(index),).
    ///
    /// >>> from secateur import VectorIndex
    /// >>> index = VectorIndex(2)
    /// >>> index.append([[1, 0], [0, 1], [1, 1]])
    /// 0
    /// >>> index.delete([0])
    /// >>> len(index), index.next_row, index.compact().tolist(), index.next_row
    /// (2, 3, [1, 2], 2)
    fn compact(&self, py: Python<'_>) -> Int64Array {
        Int64Array(py.detach(|| self.write().compact()))
    }

    /// Return a copy of some rows.
    ///
    /// Args:
    ///     rows: Their numbers, in any order, each as often as wanted.
    ///
    /// Returns:
    ///     An array of shape (number of rows, dimension), as they were appended.
    ///
    /// Raises:
    ///     VectorError: If a row does not exist or has been deleted.
    ///     MemoryError: If there is no memory for so many.
    fn take(&self, py: Python<'_>, rows: RowNumbers) -> PyResult<Matrix> {
        let numbers = rows.0;
        let mut values: Vec<f32> = Vec::new();
        let bytes = numbers.len().saturating_mul(self.dimension * size_of::<f32>());
        py.detach(|| {
            let stored = self.read();
            // Checked before anything is copied: no memory is asked for on behalf of rows that do not exist.
            stored.check_rows(&numbers).map_err(to_python)?;
            let reserved = values.try_reserve_exact(numbers.len().saturating_mul(self.dimension));
            reserved.map_err(|_| PyMemoryError::new_err(format!("{bytes} bytes for {} rows", numbers.len())))?;
            for row in numbers.iter().filter_map(|&row| stored.row(row)) {
                values.extend_from_slice(row);
            }
            Ok(Matrix { values, rows: numbers.len(), columns: self.dimension })
        })
    }

    /// Find the rows with the highest cosine to a query.
    ///
    /// A score is the cosine summed in float64, weighted if asked for, and rounded once to float32; a zero row or a zero
    /// query scores 0.0 before weights. Equal scores are ordered by row. The same bits on every machine.
    ///
    /// Args:
    ///     query: Shape (dimension,), any real dtype.
    ///     k: How many at most.
    ///     rows: Score only these rows, each as often as it is named; positions then count within `rows`.
    ///     mask: Find only some rows: an array of bool with a value for each row number, of shape (index.next_row,), or a
    ///         slice of the row numbers, or several slices. `slice(None, -5)` leaves out the newest 5 and costs nothing.
    ///     weights: What each cosine is multiplied with: a number from 0 to 1e30 for each row number, or a `HalfLife`,
    ///         with which old rows are not even looked at once they cannot be found any more.
    ///     additive: Add the weights instead, which may then be negative, down to -1e30.
    ///     threads: Among how many threads to split the rows, from 50,000 on; 1 is right on a machine that has
    ///         other work.
    ///
    /// Returns:
    ///     Row numbers, or positions within `rows` (int64), and scores (float32), both of shape (min(k, n),) for n rows that
    ///     may be found, best first.
    ///
    /// Raises:
    ///     VectorError: If the query, the mask or the weights do not fit or are not finite, or a row does not exist.
    ///
    /// >>> from secateur import HalfLife, VectorIndex
    /// >>> index = VectorIndex(2)
    /// >>> index.append([[1, 0], [1, 0.1], [0, 1]])
    /// 0
    /// >>> rows, scores = index.top_k([1, 0], 3, weights=HalfLife(1))
    /// >>> rows.tolist(), scores.round(2).tolist()
    /// ([1, 0, 2], [0.5, 0.25, 0.0])
    #[pyo3(signature = (query, k, *, rows=None, mask=None, weights=None, additive=false, threads=1))]
    #[allow(clippy::too_many_arguments)] // One argument for each keyword.
    fn top_k(
        &self,
        py: Python<'_>,
        query: Float32Array<'_>,
        k: Count,
        rows: Option<RowNumbers>,
        mask: Option<Mask>,
        weights: Option<RowWeights>,
        additive: bool,
        threads: i64,
    ) -> PyResult<Found> {
        let query = query.query(self.dimension)?;
        let asked = Asked { k, rows: rows.map(|rows| rows.0), mask, weights, additive, threads };
        self.search(py, &[query], &asked).map(|mut found| Found(found.pop().unwrap_or_default()))
    }

    /// Find the rows with the highest cosine to each of several queries: the same as `top_k` of each, faster.
    ///
    /// Args:
    ///     queries: Shape (m, dimension), any real dtype.
    ///     k: How many at most for each.
    ///     mask: As for `top_k`.
    ///     weights: As for `top_k`.
    ///     additive: As for `top_k`.
    ///     threads: As for `top_k`.
    ///
    /// Returns:
    ///     Row numbers (int64) and scores (float32), both of shape (m, min(k, n)) for n rows that may be found, best
    ///     first; (0, 0) without queries.
    ///
    /// Raises:
    ///     VectorError: As for `top_k`.
    ///
    /// >>> from secateur import VectorIndex
    /// >>> index = VectorIndex(2)
    /// >>> index.append([[1, 0], [0, 1]])
    /// 0
    /// >>> index.top_k_batch([[1, 0], [0, 2]], 1)[0].tolist()
    /// [[0], [1]]
    #[pyo3(signature = (queries, k, *, mask=None, weights=None, additive=false, threads=1))]
    #[allow(clippy::too_many_arguments)] // One argument for each keyword.
    fn top_k_batch(
        &self,
        py: Python<'_>,
        queries: Float32Array<'_>,
        k: Count,
        mask: Option<Mask>,
        weights: Option<RowWeights>,
        additive: bool,
        threads: i64,
    ) -> PyResult<FoundOfEach> {
        let values = queries.several("the queries have", self.dimension)?;
        let queries: Vec<&[f32]> = values.chunks_exact(self.dimension).collect();
        let asked = Asked { k, rows: None, mask, weights, additive, threads };
        self.search(py, &queries, &asked).map(FoundOfEach)
    }

    /// Write the index to a file.
    ///
    /// A file that is there already is replaced in one step, once the new one is on disk; it keeps its permissions.
    ///
    /// Args:
    ///     path: Where to.
    ///
    /// Raises:
    ///     VectorError: If the file cannot be written.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.read().save(&path)).map_err(to_python)
    }

    /// Read an index from a file that `save` has written.
    ///
    /// The file is mapped into memory: rows are read when they are needed, several processes share them. Changes stay in
    /// memory until `save`. Nobody may change the file in place meanwhile, or cut it off, which would end the process; `save`
    /// puts a new one in its place.
    ///
    /// Args:
    ///     path: The file.
    ///     verify: Read all of it once and compare its checksums; else those of the header only.
    ///
    /// Raises:
    ///     VectorError: If the file cannot be read, is no index, of another version, cut off or damaged.
    #[staticmethod]
    #[pyo3(signature = (path, *, verify=true))]
    fn load(py: Python<'_>, path: PathBuf, verify: bool) -> PyResult<Self> {
        let vectors = py.detach(|| Vectors::load(&path, verify)).map_err(to_python)?;
        let dimension = vectors.dimension();
        Ok(Self { vectors: RwLock::new(vectors), dimension })
    }

    /// Bytes of memory that the rows take, with all that is kept for the search; a mapped file is not counted.
    fn memory(&self, py: Python<'_>) -> usize {
        py.detach(|| self.read().memory().owned)
    }
}

/// The arguments of a search.
struct Asked {
    k: Count,
    rows: Option<Vec<usize>>,
    mask: Option<Mask>,
    weights: Option<RowWeights>,
    additive: bool,
    threads: i64,
}

impl VectorIndex {
    fn read(&self) -> RwLockReadGuard<'_, Vectors> {
        self.vectors.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vectors> {
        self.vectors.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn search(&self, py: Python<'_>, queries: &[&[f32]], asked: &Asked) -> PyResult<Vec<Vec<Match>>> {
        let Some(threads) = usize::try_from(asked.threads).ok().filter(|&threads| threads > 0) else {
            return Err(VectorError::new_err(format!("threads is {}, it must be 1 or more", asked.threads)));
        };
        let half_life = match &asked.weights {
            Some(RowWeights::HalfLife(half_life)) => Some(&half_life.get().weights),
            _ => None,
        };
        let of_rows = match (&asked.weights, half_life) {
            (Some(RowWeights::Values(values)), _) => Some(OfRows::Values(values)),
            (_, Some(half_life)) => Some(OfRows::HalfLife(half_life)),
            _ => None,
        };
        let weights = of_rows.map(|of_rows| Weights { of_rows, additive: asked.additive });
        if asked.rows.is_some() && asked.mask.is_some() {
            return Err(VectorError::new_err("rows and mask exclude each other"));
        }
        py.detach(|| {
            let stored = self.read();
            let ranges: Vec<Range<usize>>;
            let within = match (&asked.rows, &asked.mask) {
                (Some(rows), _) => Within::Rows(rows),
                (None, None) => Within::All,
                (None, Some(Mask::Slices(slices))) => {
                    ranges = slices.iter().map(|slice| slice.of(stored.rows())).collect();
                    Within::Ranges(&ranges)
                }
                (None, &Some(Mask::Bits(_, got))) if got != stored.rows() => {
                    return Err(Error::RowCount { what: "mask", got, expected: stored.rows() });
                }
                (None, Some(Mask::Bits(words, _))) => Within::Mask(words),
            };
            let search = Search { within, weights, threads, ..Search::new(asked.k.0) };
            secateur_core::search(&stored, queries, &search)
        })
        .map_err(to_python)
    }
}

/// Find the rows of a matrix with the highest cosine to a query; see `VectorIndex.top_k`.
///
/// For one search: nothing is copied or kept. From the second search over the same rows on a `VectorIndex` is faster.
///
/// Args:
///     matrix: Shape (n, d), any real dtype.
///     query: Shape (d,), any real dtype.
///     k: How many at most.
///
/// Returns:
///     Rows (int64) and scores (float32), both of shape (min(k, n),), best first.
///
/// Raises:
///     VectorError: If the shapes or dtypes do not fit or a value is not finite in float32.
///
/// >>> import secateur
/// >>> rows, scores = secateur.top_k([[0, 0], [2, 0], [-1, 0]], [1, 0], 3)
/// >>> rows.tolist(), scores.tolist()
/// ([1, 0, 2], [1.0, 0.0, -1.0])
#[pyfunction]
pub(crate) fn top_k(py: Python<'_>, matrix: Float32Array<'_>, query: Float32Array<'_>, k: Count) -> PyResult<Found> {
    let (values, dimension) = matrix.rows(None)?;
    let query = query.query(dimension)?;
    py.detach(|| secateur_core::search_matrix(values, dimension, query, k.0)).map(Found).map_err(to_python)
}
