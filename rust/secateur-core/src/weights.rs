//! Weights of rows: how a score depends on more than the cosine, such as age.

use std::ops::Range;

use crate::error::Error;

/// The largest weight: scores stay within float32.
const MOST: f64 = 1e30;

/// What is multiplied with each cosine, or added to it, before the score is rounded to float32.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    /// The weight of each row.
    pub of_rows: OfRows<'a>,
    /// Added rather than multiplied.
    pub additive: bool,
}

/// The weight of each row.
#[derive(Debug, Clone, Copy)]
pub enum OfRows<'a> {
    /// One for each row, deleted ones included.
    Values(&'a [f64]),
    /// By age.
    HalfLife(&'a HalfLife),
}

/// A weight that halves with every so many rows of age; the newest row has age 0.
///
/// Computed by multiplications in a fixed order, so that it has the same bits on every machine.
#[derive(Debug, Clone)]
pub struct HalfLife {
    /// Weights of the ages 0 to 63.
    young: [f64; 64],
    /// What 64 rows of age multiply a weight with.
    per_64: f64,
}

impl HalfLife {
    /// `scale * 2^(-age / rows)`.
    ///
    /// # Errors
    /// [`Error::HalfLife`] if `rows` is not above 0 and finite, or `scale` not from 0 to 1e30.
    pub fn new(rows: f64, scale: f64) -> Result<Self, Error> {
        if !(rows.is_finite() && rows > 0.0) {
            return Err(Error::HalfLife { what: "the half-life", value: rows, expected: "a number of rows above 0" });
        }
        if !(0.0..=MOST).contains(&scale) {
            return Err(Error::HalfLife { what: "scale", value: scale, expected: "a number from 0 to 1e30" });
        }
        let per_row = half_to_the(1.0 / rows);
        let mut young = [scale; 64];
        let mut weight = scale;
        for slot in &mut young {
            *slot = weight;
            weight *= per_row;
        }
        Ok(Self { young, per_64: power(per_row, 64) })
    }

    /// The weight of a row of some age.
    #[must_use]
    pub fn at(&self, age: usize) -> f64 {
        self.young.get(age % 64).copied().unwrap_or_default() * power(self.per_64, age / 64)
    }
}

/// 2^-x for x >= 0, by the series of e^(-x ln 2), without the library of the platform.
#[allow(clippy::cast_sign_loss)] // 0 to 1100.
fn half_to_the(exponent: f64) -> f64 {
    let whole = exponent.min(1100.0).floor();
    let x = -(exponent.min(1100.0) - whole) * std::f64::consts::LN_2;
    let series = (1..=24).rev().fold(1.0, |sum, term| 1.0 + sum * x / f64::from(term));
    series * power(0.5, whole as usize)
}

fn power(mut base: f64, mut exponent: usize) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

impl Weights<'_> {
    /// Refuses what gives no scores.
    ///
    /// # Errors
    /// [`Error::RowCount`], [`Error::Weight`].
    pub(crate) fn check(&self, rows: usize) -> Result<(), Error> {
        let OfRows::Values(values) = self.of_rows else { return Ok(()) };
        if values.len() != rows {
            return Err(Error::RowCount { what: "weights", got: values.len(), expected: rows });
        }
        let (allowed, expected) = if self.additive {
            (-MOST..=MOST, "a number from -1e30 to 1e30")
        } else {
            (0.0..=MOST, "a number from 0 to 1e30")
        };
        match values.iter().position(|value| !allowed.contains(value)) {
            Some(row) => Err(Error::Weight { row, value: values.get(row).copied().unwrap_or_default(), expected }),
            None => Ok(()),
        }
    }

    /// The weight of a row, of `rows` in all.
    pub(crate) fn at(&self, row: usize, rows: usize) -> f64 {
        match self.of_rows {
            OfRows::Values(values) => values.get(row).copied().unwrap_or_default(),
            OfRows::HalfLife(half_life) => half_life.at(rows - 1 - row),
        }
    }

    /// A score from a cosine.
    pub(crate) fn score(&self, cosine: f64, weight: f64) -> f64 {
        if self.additive { cosine + weight } else { cosine * weight }
    }

    /// An upper bound of a score from one of its cosine.
    pub(crate) fn upper(&self, cosine: f32, weight: f64) -> f32 {
        let score = self.score(cosine.into(), weight) as f32;
        // Rounded up beyond what rounding may have taken off, also where numbers have no more digits.
        score + score.abs() * 1e-6 + f32::MIN_POSITIVE
    }

    /// Turns upper bounds of the cosines of rows one after the other into upper bounds of their scores, of `rows` in all.
    pub(crate) fn raise(&self, bounds: &mut [f32], first: usize, rows: usize) {
        match self.of_rows {
            OfRows::Values(values) => {
                for (bound, &weight) in bounds.iter_mut().zip(values.get(first..).unwrap_or_default()) {
                    *bound = self.upper(*bound, weight);
                }
            }
            OfRows::HalfLife(half_life) => {
                // The power is the same for 64 ages, and what takes time.
                let mut known = (usize::MAX, 0.0);
                for (row, bound) in (first..).zip(bounds) {
                    let age = rows - 1 - row;
                    if known.0 != age / 64 {
                        known = (age / 64, power(half_life.per_64, age / 64));
                    }
                    let weight = half_life.young.get(age % 64).copied().unwrap_or_default() * known.1;
                    *bound = self.upper(*bound, weight);
                }
            }
        }
    }

    /// An upper bound of the score of each of some rows, of `rows` in all.
    pub(crate) fn upper_of_all(&self, of: Range<usize>, rows: usize) -> f32 {
        let most = match self.of_rows {
            OfRows::Values(values) => {
                values.get(of).unwrap_or_default().iter().copied().fold(f64::NEG_INFINITY, f64::max)
            }
            // Rounding may leave an older row a little above a newer one, by far less than `upper` adds.
            OfRows::HalfLife(half_life) => half_life.at(rows - of.end),
        };
        // A cosine may be a little above one before it is rounded, which counts where the weight takes the one away.
        self.upper(1.000_001, most)
    }
}
