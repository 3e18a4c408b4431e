//! Everything that can go wrong in the core, as one enum.

/// An input that the core refuses. Nothing has been changed when it is returned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A dimension of zero, which no vector has.
    #[error("dimension is 0, it must be at least 1")]
    ZeroDimension,
    /// A dimension beyond all reason.
    #[error("dimension is {dimension}, it must be at most {most}")]
    LongRows {
        /// The dimension.
        dimension: usize,
        /// The limit.
        most: usize,
    },
    /// A vector that does not have the dimension of the index.
    #[error("vectors have dimension {got}, the index has {expected}")]
    Dimension {
        /// Dimension of what was given.
        got: usize,
        /// Dimension of the index.
        expected: usize,
    },
    /// Values that are not as many as some rows have.
    #[error("{values} values are no whole number of rows of {dimension}")]
    NoWholeRows {
        /// How many values.
        values: usize,
        /// How many a row has.
        dimension: usize,
    },
    /// Values for some rows that are not as many as those have.
    #[error("there are {got} values for {rows} rows of {dimension}")]
    Values {
        /// How many values.
        got: usize,
        /// For how many rows.
        rows: usize,
        /// How many a row has.
        dimension: usize,
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
    /// More rows than a row number can tell apart.
    #[error("there would be {rows} rows, an index holds at most {most}")]
    TooManyRows {
        /// How many there would be.
        rows: usize,
        /// The limit.
        most: usize,
    },
    /// A row that has been deleted.
    #[error("row {row} has been deleted")]
    DeletedRow {
        /// The row asked for.
        row: usize,
    },
    /// A mask or weights for another number of rows than the index has.
    #[error("{what} has {got} values, the index has {expected} rows")]
    RowCount {
        /// What has another length.
        what: &'static str,
        /// Its length.
        got: usize,
        /// Rows of the index, deleted ones included.
        expected: usize,
    },
    /// A weight that makes no score.
    #[error("weight {row} is {value}, it must be {expected}")]
    Weight {
        /// Which one.
        row: usize,
        /// The value.
        value: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// A half-life or a scale that makes no weights.
    #[error("{what} is {value}, it must be {expected}")]
    HalfLife {
        /// Which of the two.
        what: &'static str,
        /// The value.
        value: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// A file that cannot be written or read as an index.
    #[error("{path}: {problem}")]
    File {
        /// Which file.
        path: String,
        /// What is wrong with it.
        problem: String,
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

impl Error {
    pub(crate) fn file(path: &std::path::Path, problem: &str) -> Self {
        Self::File { path: path.display().to_string(), problem: problem.to_owned() }
    }
}
