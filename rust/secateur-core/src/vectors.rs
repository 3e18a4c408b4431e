//! Rows of float32 vectors, append-only, each with its norm.
//!
//! Invariant: every stored value is finite and `norms[i]` is the norm of row `i` summed in float64.

use crate::error::Error;
use crate::simd::dot;

/// Rows of equal dimension that can be searched by [`top_k`](crate::top_k).
#[derive(Debug, Clone)]
pub struct Vectors {
    dimension: usize,
    values: Vec<f32>,
    norms: Vec<f64>,
}

impl Vectors {
    /// An empty store for vectors of `dimension` values.
    ///
    /// # Errors
    /// [`Error::ZeroDimension`].
    pub fn new(dimension: usize) -> Result<Self, Error> {
        if dimension == 0 {
            return Err(Error::ZeroDimension);
        }
        Ok(Self { dimension, values: Vec::new(), norms: Vec::new() })
    }

    /// Values per row.
    #[must_use]
    pub const fn dimension(&self) -> usize {
        self.dimension
    }

    /// How many rows are stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.norms.len()
    }

    /// Whether no row is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.norms.is_empty()
    }

    /// Appends rows laid out one after the other. All are stored or, on an error, none.
    ///
    /// # Errors
    /// [`Error::Dimension`] if `rows` is not a whole number of rows, [`Error::NonFiniteRow`].
    pub fn append(&mut self, rows: &[f32]) -> Result<(), Error> {
        let excess = rows.len() % self.dimension;
        if excess != 0 {
            return Err(Error::Dimension { got: excess, expected: self.dimension });
        }
        if let Some(at) = rows.iter().position(|value| !value.is_finite()) {
            let (row, column) = (at / self.dimension, at % self.dimension);
            return Err(Error::NonFiniteRow { row, column, value: rows.get(at).copied().unwrap_or(f32::NAN) });
        }
        self.values.extend_from_slice(rows);
        self.norms.extend(rows.chunks_exact(self.dimension).map(|row| dot(row, row).sqrt()));
        Ok(())
    }

    /// The values of a row, or nothing if there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> Option<&[f32]> {
        let start = row.checked_mul(self.dimension)?;
        self.values.get(start..start.checked_add(self.dimension)?)
    }

    pub(crate) fn row_and_norm(&self, row: usize) -> Option<(&[f32], f64)> {
        Some((self.row(row)?, *self.norms.get(row)?))
    }
}
