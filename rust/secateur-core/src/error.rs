//! Everything that can go wrong in the core, as one enum.

/// An input that the core refuses. Nothing has been changed when it is returned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A dimension of zero, which no vector has.
    #[error("dimension is 0, it must be at least 1")]
    ZeroDimension,
    /// A vector or matrix whose rows do not have the dimension of the index.
    #[error("vectors have dimension {got}, the index has {expected}")]
    Dimension {
        /// Dimension of what was given.
        got: usize,
        /// Dimension of the index.
        expected: usize,
    },
    /// A NaN or an infinity in a row that was to be stored.
    #[error("row {row} holds {value} in column {column}, every value must be finite in float32")]
    NonFiniteRow {
        /// Row within the rows given, not within the index.
        row: usize,
        /// Column of the first such value.
        column: usize,
        /// The value.
        value: f32,
    },
    /// A NaN or an infinity in a query.
    #[error("the query holds {value} in column {column}, every value must be finite in float32")]
    NonFiniteQuery {
        /// Column of the first such value.
        column: usize,
        /// The value.
        value: f32,
    },
    /// Bytes that are no weights for estimating tokens.
    #[error("the file {0}")]
    Weights(&'static str),
    /// A row number that the index does not have.
    #[error("row {row} is out of range, the index has {len} rows")]
    RowOutOfRange {
        /// The row asked for.
        row: usize,
        /// How many rows there are.
        len: usize,
    },
}
