//! A query, prepared for the passes of the search.

use crate::error::Error;
use crate::simd::codes::{Bound, QueryCodes};
use crate::simd::quantise::{NIBBLE_STEP, QuantisedQuery, quantise_query};
use crate::simd::{InstructionSet, dot};
use crate::vectors::first_not_finite;

/// A query with its codes and what turns dot products of codes into upper bounds of cosines.
///
/// With `q` the query and `x` a row, both of norm 1, `s` and `c` the step and the codes of `q`, and `y` what the codes of the
/// row stand for: `<q, x> = <s c, y> + <s c, x - y> + <q - s c, x>`, and by Cauchy and Schwarz the second term is at most
/// `|s c| |x - y|`, the third `|q - s c|`. What float32 rounds off the first, 4 operations of `2^-24` of at most 1.1,
/// and off the score stays below [`ROUNDING`].
pub(crate) struct Query {
    pub(crate) wide: Vec<f64>,
    pub(crate) norm: f64,
    pub(crate) codes: QueryCodes,
    pub(crate) of_bytes: Bound,
    pub(crate) of_nibbles: Bound,
}

/// What rounding may add to a score, and more.
pub(crate) const ROUNDING: f64 = 2e-6;

impl Query {
    pub(crate) fn new(set: InstructionSet, values: &[f32], dimension: usize) -> Result<Self, Error> {
        if values.len() != dimension {
            return Err(Error::Dimension { got: values.len(), expected: dimension });
        }
        if let Some((column, value)) = first_not_finite(values) {
            return Err(Error::NonFiniteQuery { column, value });
        }
        let norm = dot(values, values).sqrt();
        let QuantisedQuery { wide, codes, step, error, length } = quantise_query(set, values, norm);
        let codes = QueryCodes::new(set, codes);
        let sum = codes.sum();
        let bound = |levels: i32, unit: f32| Bound {
            bias: levels * sum,
            gain: (0.5 * step) as f32 * unit,
            error_gain: (length * (1.0 + 1e-6)) as f32,
            tail_gain: 0.0,
            slack: (error + ROUNDING) as f32,
        };
        let (of_bytes, of_nibbles) = (bound(255, 1.0), bound(15, NIBBLE_STEP));
        Ok(Self { wide, norm, codes, of_bytes, of_nibbles })
    }
}
