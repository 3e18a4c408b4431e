//! Exact top-K by cosine.
//!
//! The score of a row is its cosine to the query, summed in float64 and rounded once to float32; 0.0 where either
//! has norm zero. The order is total: score descending, then position ascending.

use crate::error::Error;
use crate::simd::dot;
use crate::vectors::Vectors;

/// One row found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Match {
    /// The row, or its place among the candidates where candidates were given.
    pub position: usize,
    /// Cosine to the query, in [-1, 1].
    pub score: f32,
}

/// The `k` best rows, best first; all of them if there are fewer.
///
/// With `candidates` only those rows are scored, in the order given and as often as they are named, and
/// [`Match::position`] is the place among them.
///
/// # Errors
/// [`Error::Dimension`], [`Error::NonFiniteQuery`], [`Error::RowOutOfRange`].
pub fn top_k(vectors: &Vectors, query: &[f32], k: usize, candidates: Option<&[usize]>) -> Result<Vec<Match>, Error> {
    if query.len() != vectors.dimension() {
        return Err(Error::Dimension { got: query.len(), expected: vectors.dimension() });
    }
    if let Some((column, &value)) = query.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        return Err(Error::NonFiniteQuery { column, value });
    }
    let query_norm = dot(query, query).sqrt();
    let score = |row: usize| -> Result<f32, Error> {
        let (values, norm) = vectors.row_and_norm(row).ok_or(Error::RowOutOfRange { row, len: vectors.len() })?;
        let norms = query_norm * norm;
        // Adding zero turns -0.0 into 0.0, so that equal scores are equal in the total order too.
        Ok(if norms == 0.0 { 0.0 } else { (dot(query, values) / norms) as f32 + 0.0 })
    };
    let mut matches = match candidates {
        None => (0..vectors.len())
            .map(|row| Ok(Match { position: row, score: score(row)? }))
            .collect::<Result<Vec<_>, Error>>()?,
        Some(rows) => rows
            .iter()
            .enumerate()
            .map(|(position, &row)| Ok(Match { position, score: score(row)? }))
            .collect::<Result<Vec<_>, Error>>()?,
    };
    let best_first = |a: &Match, b: &Match| b.score.total_cmp(&a.score).then(a.position.cmp(&b.position));
    if k < matches.len() {
        if k > 0 {
            matches.select_nth_unstable_by(k - 1, best_first);
        }
        matches.truncate(k);
    }
    matches.sort_unstable_by(best_first);
    Ok(matches)
}
