//! Binding of `secateur_core::Vectors` and `secateur_core::top_k`.

use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;
use secateur_core::{Error, Vectors};

use crate::arrays::{Count, Float32Array, Found, Matrix, RowNumbers};
use crate::error::to_python;

/// Rows of float32 vectors, append-only, searched by exact cosine.
///
/// Copies what it is given; safe to share between threads.
///
/// Args:
///     dimension: Values per row, at least 1.
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
        py.detach(|| self.vectors.read().unwrap_or_else(PoisonError::into_inner).len())
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
    fn append(&self, py: Python<'_>, vectors: Float32Array) -> PyResult<usize> {
        let (values, _) = vectors.into_rows(Some(self.dimension))?;
        py.detach(|| {
            let mut stored = self.vectors.write().unwrap_or_else(PoisonError::into_inner);
            let first = stored.len();
            stored.append(&values).map(|()| first)
        })
        .map_err(to_python)
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
    ///     VectorError: If a row does not exist.
    fn take(&self, py: Python<'_>, rows: RowNumbers) -> PyResult<Matrix> {
        let numbers = rows.0;
        py.detach(|| {
            let stored = self.vectors.read().unwrap_or_else(PoisonError::into_inner);
            let found =
                numbers.iter().map(|&row| stored.row(row).ok_or(Error::RowOutOfRange { row, len: stored.len() }));
            // Collected before it is copied: no memory is asked for on behalf of rows that do not exist.
            let found = found.collect::<Result<Vec<_>, _>>()?;
            Ok(Matrix { values: found.concat(), rows: numbers.len(), columns: self.dimension })
        })
        .map_err(to_python)
    }

    /// Find the rows with the highest cosine to a query.
    ///
    /// A score is the cosine summed in float64 and rounded once to float32; a zero row or a zero query scores 0.0.
    /// Equal scores are ordered by row.
    ///
    /// Args:
    ///     query: Shape (dimension,), any real dtype.
    ///     k: How many at most.
    ///     rows: Score only these rows, each as often as it is named; positions then count within `rows`.
    ///
    /// Returns:
    ///     Positions (int64) and scores (float32), both of shape (min(k, number of rows),), best first.
    ///
    /// Raises:
    ///     VectorError: If the query does not fit or is not finite, or a row does not exist.
    #[pyo3(signature = (query, k, *, rows=None))]
    fn top_k(&self, py: Python<'_>, query: Float32Array, k: Count, rows: Option<RowNumbers>) -> PyResult<Found> {
        let query = query.into_query(self.dimension)?;
        let candidates = rows.map(|rows| rows.0);
        py.detach(|| {
            let stored = self.vectors.read().unwrap_or_else(PoisonError::into_inner);
            secateur_core::top_k(&stored, &query, k.0, candidates.as_deref())
        })
        .map(Found)
        .map_err(to_python)
    }
}

/// Find the rows of a matrix with the highest cosine to a query; see `VectorIndex.top_k`.
///
/// For one search. For several over the same rows, a `VectorIndex` saves the copy and the norms.
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
pub(crate) fn top_k(py: Python<'_>, matrix: Float32Array, query: Float32Array, k: Count) -> PyResult<Found> {
    let (values, dimension) = matrix.into_rows(None)?;
    let query = query.into_query(dimension)?;
    py.detach(|| {
        let mut vectors = Vectors::new(dimension)?;
        vectors.append(&values)?;
        secateur_core::top_k(&vectors, &query, k.0, None)
    })
    .map(Found)
    .map_err(to_python)
}
