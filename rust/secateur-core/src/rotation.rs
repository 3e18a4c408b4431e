//! A rotation of the rows after which few values hold most of their length, learnt from the rows themselves.
//!
//! The first [`KEPT`] values of a rotated row, as codes of 4 bits, bound its scores where the rows crowd in few directions,
//! as embeddings do: 68 bytes in place of 200 at dimension 384. Which rotation it is decides the speed only: the bounds
//! hold for any.

use crate::query::{Query, ROUNDING};
use crate::simd::codes::{Bound, Coded, Known, LINE, PACKED_UNITS, Packing, QueryCodes, Rows, upper_bounds_of_four};
use crate::simd::quantise::quantise_query;
use crate::simd::rotate::{Projected, add_products, multiply, project};
use crate::simd::{InstructionSet, dot, dot_of_four};

/// Values of a rotated row that are kept: one line of codes.
pub(crate) const KEPT: usize = 2 * LINE;
/// Rows that are rotated together.
pub(crate) const TOGETHER: usize = 64;
/// Steps of the subspace iteration: enough for directions that crowd, the others make no difference.
const STEPS: usize = 8;
/// The rotation does not pay if it leaves more of the squared length of rows to the values that are not kept: real MiniLM
/// vectors of dimension 384 leave 0.18, rows without any preference would leave two thirds.
const MOST_LEFT: f64 = 0.3;
/// Directions must not be further from orthonormal: so far the largest error and tail that can be stored bound every row.
const MOST_SKEW: f64 = 0.1;
/// What codes of 8 bits stand for is at most so many times as long as the row.
const LONGEST_CODES: f64 = 1.1;
/// Dimensions for which it is tried: shorter rows have codes hardly longer, longer ones take too long to learn from.
pub(crate) const DIMENSIONS: std::ops::RangeInclusive<usize> = 256..=2048;

/// Directions, as whole numbers and a step: `step[i] * codes[i]` is direction `i`.
#[derive(Debug, Clone)]
pub(crate) struct Rotation {
    codes: Vec<QueryCodes>,
    /// Twice the sum of codes, times what stands for half a code of a row.
    bias: Vec<i32>,
    /// The directions, one after the other.
    directions: Vec<f32>,
    /// Steps of the directions.
    steps: Vec<f32>,
    /// By what the values along each direction are divided before they are quantised: the root of their spread.
    spreads: Vec<f32>,
    /// The directions' products with each other, less one on the diagonal.
    excess: Vec<f32>,
    /// An upper bound of the spectral norm of `excess`.
    skew: f64,
    /// Codes and spreads, as they are stored.
    pub(crate) stored: Vec<u8>,
}

/// A query against rotated rows.
pub(crate) struct RotatedQuery {
    codes: QueryCodes,
    bound: Bound,
    /// What an error of its codes makes of the codes of a row.
    code_error: f32,
}

impl Rotation {
    /// Learns from rows of unit length, one after the other; nothing if it would not pay.
    pub(crate) fn learn(set: InstructionSet, rows: &[f32], dimension: usize) -> Option<Self> {
        if !DIMENSIONS.contains(&dimension) || rows.len() < KEPT * dimension {
            return None;
        }
        let count = rows.len() / dimension;
        // Second moments, of which only the lower half is computed.
        let mut moments = vec![0.0_f32; dimension * dimension];
        for four in rows.chunks_exact(4 * dimension) {
            add_products(set, &mut moments, four, dimension);
        }
        for row in 0..dimension {
            let (before, rest) = moments.split_at_mut(row * dimension);
            for (other, product) in before.chunks_exact_mut(dimension).zip(&*rest) {
                if let Some(mirrored) = other.get_mut(row) {
                    *mirrored = *product;
                }
            }
        }
        let mut directions = numbers(0).take(KEPT * dimension).collect::<Vec<_>>();
        let mut lengths = Vec::new();
        for _ in 0..STEPS {
            let mut next = vec![0.0_f32; directions.len()];
            for (next, direction) in next.chunks_exact_mut(dimension).zip(directions.chunks_exact(dimension)) {
                multiply(set, next, &moments, direction);
            }
            lengths = orthonormalise(&mut next, dimension);
            directions = next;
        }
        // A direction of the moments is stretched by the sum of the squared values along it.
        let kept: f64 = lengths.iter().sum::<f64>() / count as f64;
        if 1.0 - kept > MOST_LEFT {
            return None;
        }
        let mut stored = Vec::with_capacity(KEPT * (dimension + 8));
        for (direction, length) in directions.chunks_exact(dimension).zip(lengths) {
            let spread = (length / count as f64).sqrt().sqrt().max(1e-3) as f32;
            let quantised = quantise_query(set, direction, dot(direction, direction).sqrt());
            stored.extend_from_slice(&spread.to_le_bytes());
            stored.extend_from_slice(&(quantised.step as f32).to_le_bytes());
            stored.extend(quantised.codes.iter().map(|code| code.cast_unsigned()));
        }
        Self::load(stored, dimension)
    }

    /// Bytes that it takes.
    pub(crate) fn memory(&self) -> usize {
        let codes = self.stored.len();
        // The codes once more in 8 bits, and in float32.
        6 * codes + size_of_val(&*self.excess)
    }

    /// From what [`Rotation::stored`] holds; nothing if it is none.
    pub(crate) fn load(stored: Vec<u8>, dimension: usize) -> Option<Self> {
        if !DIMENSIONS.contains(&dimension) || stored.len() != KEPT * (dimension + 8) {
            return None;
        }
        let set = InstructionSet::best();
        let (mut codes, mut bias, mut directions) = (Vec::new(), Vec::new(), Vec::new());
        let (mut steps, mut spreads) = (Vec::new(), Vec::new());
        for one in stored.chunks_exact(dimension + 8) {
            let (numbers, values) = one.split_at(8);
            let (spread, step) = numbers.split_at(4);
            let number = |bytes: &[u8]| bytes.first_chunk().map(|&bytes| f32::from_le_bytes(bytes));
            let (spread, step) = (number(spread)?, number(step)?);
            if !(1e-6..=1e6).contains(&spread) || !(1e-9..=1.0).contains(&step) {
                return None;
            }
            let values: Vec<i8> = values.iter().map(|code| code.cast_signed()).collect();
            directions.extend(values.iter().map(|&code| f32::from(code) * step));
            let values = QueryCodes::new(set, values);
            bias.push(255 * values.sum());
            codes.push(values);
            steps.push(step);
            spreads.push(spread);
        }
        let mut excess = Vec::with_capacity(KEPT * KEPT);
        for (row, one) in directions.chunks_exact(dimension).enumerate() {
            let others = directions.chunks_exact(dimension).enumerate();
            excess.extend(others.map(|(column, other)| (dot(one, other) - f64::from(u8::from(row == column))) as f32));
        }
        let skew = spectral_norm(&excess);
        (skew < MOST_SKEW).then_some(Self { codes, bias, directions, steps, spreads, excess, skew, stored })
    }

    /// Rotates rows: from their codes of 8 bits and the steps of those to codes of 4 bits and what is known of these. Returns
    /// the greatest length of the codes of a row.
    pub(crate) fn rotate(
        &self,
        set: InstructionSet,
        bytes: &[u8],
        scales: &[f32],
        codes: &mut [u8],
        known: &mut [u32],
    ) -> f32 {
        let dimension = self.directions.len() / KEPT;
        let stride = Packing::Bytes.stride(dimension);
        let mut longest = 0.0_f32;
        let blocks = bytes.chunks(TOGETHER * stride).zip(scales.chunks(TOGETHER));
        let to = codes.chunks_mut(TOGETHER * LINE).zip(known.chunks_mut(TOGETHER));
        let mut values = vec![[0.0_f32; TOGETHER]; KEPT];
        let (ones, zeros) = ([1.0; TOGETHER], [0.0; TOGETHER]);
        for ((bytes, scales), (codes, known)) in blocks.zip(to) {
            let count = scales.len();
            let (ones, zeros) = (ones.split_at(count).0, zeros.split_at(count).0);
            // With a step of one and no error, bounds are the dot products.
            let rows = Coded { rows: Rows::Together(bytes), known: Known::Plain { scales: ones, errors: zeros } };
            let fours = self.codes.as_chunks::<4>().0.iter().zip(self.bias.as_chunks::<4>().0);
            for ((codes, &bias), values) in fours.zip(values.as_chunks_mut::<4>().0) {
                let [c0, c1, c2, c3] = codes;
                let [b0, b1, b2, b3] =
                    bias.map(|bias| Bound { bias, gain: 1.0, error_gain: 0.0, tail_gain: 0.0, slack: 0.0 });
                let to = values.each_mut().map(|values| values.split_at_mut(count).0);
                upper_bounds_of_four(set, stride, rows, [(c0, b0), (c1, b1), (c2, b2), (c3, b3)], to);
            }
            let projected = Projected {
                values: &values,
                steps: &self.steps,
                spreads: &self.spreads,
                skew: self.skew as f32,
                dimension,
                bytes,
                scales,
            };
            longest = longest.max(project(set, &projected, codes, known));
        }
        longest
    }

    /// The query against rotated rows.
    ///
    /// With `A` the directions, `G` their products, `e` the bound of the norm of `G - 1`, `P` the projection on what they
    /// span, `y` the values of a row along them, `z` the codes of those times spread and step, and `v = A q`,
    /// `w = 2 v - G v`: `<q, x> = <w, z> + <w, y - z> + <q - A'w, x'> + <q, x - x'>` where `x'` is what the codes of 8 bits
    /// stand for. The second is at most `|w| |y - z|`, the last the error of those codes. In the third, `P (q - A'w) =
    /// A' G^-1 (1 - G)^2 v` is at most `e^2 sqrt((1 + e) / (1 - e))` long, and `x'` at most 1.1, and `|(1 - P) q|^2 <= 1 - |v|^2 / (1 + e)`, the same
    /// for the row: those lengths are multiplied.
    pub(crate) fn query(&self, set: InstructionSet, query: &Query) -> RotatedQuery {
        let dimension = query.wide.len();
        let per_norm = 1.0 / query.norm;
        // As float32, so that products with it are exact in float64 and the same on every machine.
        let along: Vec<f64> = products(set, &query.wide, &self.directions, dimension)
            .map(|dot| f64::from((dot * per_norm) as f32))
            .collect();
        let bent = products(set, &along, &self.excess, KEPT);
        let weights: Vec<f64> = along.iter().zip(bent).map(|(&v, bent)| v - bent).collect();
        let length = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let spread: Vec<f32> = weights.iter().zip(&self.spreads).map(|(&w, &s)| (w * f64::from(s)) as f32).collect();
        let norm = dot(&spread, &spread).sqrt();
        let quantised = quantise_query(set, &spread, norm);
        let codes = QueryCodes::new(set, quantised.codes);
        let skew = self.skew;
        let along = length(&along);
        let tail = (1.0 - along * along / (1.0 + skew)).max(0.0).sqrt();
        let bend = LONGEST_CODES * skew * skew * ((1.0 + skew) / (1.0 - skew)).sqrt();
        RotatedQuery {
            bound: Bound {
                bias: 15 * codes.sum(),
                gain: (0.5 * quantised.step * norm) as f32,
                error_gain: (length(&weights) * 1.000_001) as f32 / PACKED_UNITS,
                tail_gain: (tail * 1.000_001) as f32 / PACKED_UNITS,
                slack: (bend + 10.0 * ROUNDING) as f32,
            },
            code_error: (quantised.error * norm * 1.000_001) as f32,
            codes,
        }
    }
}

impl RotatedQuery {
    /// Codes and bound for the rows of a segment, of which is known what [`crate::segment::Segment::rotated`] says.
    pub(crate) fn against(&self, [length, byte_error]: [f32; 2]) -> (&QueryCodes, Bound) {
        let slack = self.bound.slack + (length * self.code_error + byte_error);
        (&self.codes, Bound { slack, ..self.bound })
    }
}

/// The products of a vector with each row of a matrix whose rows are a multiple of four.
fn products<'a>(
    set: InstructionSet,
    vector: &'a [f64],
    matrix: &'a [f32],
    columns: usize,
) -> impl Iterator<Item = f64> + 'a {
    matrix.chunks_exact(4 * columns).flat_map(move |four| {
        let mut rows = four.chunks_exact(columns);
        let rows = std::array::from_fn(|_| rows.next().unwrap_or_default());
        dot_of_four(set, vector, rows)
    })
}

/// Numbers from -1 to 1 that look random and are the same everywhere: Knuth's linear congruence of 64 bits.
pub(crate) fn numbers(seed: u64) -> impl Iterator<Item = f32> {
    let mut state = 2 * seed + 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    })
}

/// Makes rows orthogonal to those before and of unit length, and returns the lengths they had then.
fn orthonormalise(rows: &mut [f32], dimension: usize) -> Vec<f64> {
    let mut lengths = Vec::with_capacity(KEPT);
    for at in 0..rows.len() / dimension {
        let (before, rest) = rows.split_at_mut(at * dimension);
        let row = rest.get_mut(..dimension).unwrap_or_default();
        for other in before.chunks_exact(dimension) {
            let along = dot(row, other) as f32;
            for (value, &other) in row.iter_mut().zip(other) {
                *value -= along * other;
            }
        }
        let length = dot(row, row).sqrt();
        let factor = if length > 0.0 { (1.0 / length) as f32 } else { 0.0 };
        for value in row.iter_mut() {
            *value *= factor;
        }
        lengths.push(length);
    }
    lengths
}

/// An upper bound of the spectral norm of a symmetric matrix: the 16th root of the Frobenius norm of its 16th power.
fn spectral_norm(matrix: &[f32]) -> f64 {
    let mut power: Vec<f64> = matrix.iter().map(|&value| f64::from(value)).collect();
    let mut bound = 1.0;
    for squarings in 0..=4 {
        let norm = power.iter().map(|value| value * value).sum::<f64>().sqrt();
        if norm == 0.0 {
            return 0.0;
        }
        // The power is kept at norm one, so that nothing vanishes; what it was divided by has its part in the root.
        bound *= (0..squarings).fold(norm, |root, _| root.sqrt());
        for value in &mut power {
            *value /= norm;
        }
        let mut square = vec![0.0; power.len()];
        for (row, to) in power.chunks_exact(KEPT).zip(square.chunks_exact_mut(KEPT)) {
            for (&value, other) in row.iter().zip(power.chunks_exact(KEPT)) {
                for (to, &other) in to.iter_mut().zip(other) {
                    *to += value * other;
                }
            }
        }
        power = square;
    }
    bound * 1.000_001
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::tests::assert_bounded;
    use crate::vectors::Vectors;

    /// Queries along what is not kept of a row, along what its codes leave over, and in the plane of both; and rows that
    /// lie off all directions.
    #[test]
    fn no_bound_of_rotated_rows_lies_below_a_score_even_where_it_is_tight() {
        const DIMENSION: usize = 256;
        let crowd: Vec<f32> = numbers(1).take(20 * DIMENSION).collect();
        let mut factors = numbers(2);
        let mut vectors = Vectors::new(DIMENSION).unwrap();
        for _ in 0..16_384 {
            let mut row: Vec<f32> = factors.by_ref().take(DIMENSION).map(|noise| noise * 2.0).collect();
            for direction in crowd.chunks_exact(DIMENSION) {
                let factor = factors.next().unwrap();
                row.iter_mut().zip(direction).for_each(|(value, part)| *value += factor * part);
            }
            vectors.append(&row).unwrap();
        }
        let one_hot: Vec<f32> = (0..DIMENSION).map(|place| f32::from(u8::from(place == 9))).collect();
        let alien: Vec<f32> = numbers(77).take(DIMENSION).map(|value| value.powi(21) * 1e20).collect();
        let rotation = vectors.rotation().unwrap().clone();
        for row in [0, 500, 16_383, 3, 4] {
            if row == 3 {
                // Only now, since they widen the bounds of all others in their segment.
                vectors.update(&[3, 4, 5], &[one_hot.clone(), alien.clone(), vec![0.0; DIMENSION]].concat()).unwrap();
            }
            let values: Vec<f64> =
                vectors.row(row).unwrap().iter().map(|&value| f64::from(value) / vectors.norm(row)).collect();
            let along: Vec<f64> =
                products(InstructionSet::Portable, &values, &rotation.directions, DIMENSION).collect();
            let back = |weights: &[f64]| -> Vec<f64> {
                let mut sum = vec![0.0; DIMENSION];
                for (weight, direction) in weights.iter().zip(rotation.directions.chunks_exact(DIMENSION)) {
                    sum.iter_mut().zip(direction).for_each(|(sum, &value)| *sum += weight * f64::from(value));
                }
                sum
            };
            let tail: Vec<f64> = values.iter().zip(back(&along)).map(|(value, kept)| value - kept).collect();
            let segment = &vectors.segments()[row / 4096];
            let (codes, known) = segment.rotated_codes(row % 4096..row % 4096 + 1);
            let step = f64::from(f32::from_bits(known[0] & 0xFFFF_0000));
            let left: Vec<f64> = along
                .iter()
                .zip(&rotation.spreads)
                .enumerate()
                .map(|(at, (value, &spread))| {
                    let code = if at < LINE { codes[at] & 0x0F } else { codes[at - LINE] >> 4 };
                    value - step * (f64::from(code) - 7.5) * f64::from(spread)
                })
                .collect();
            let left = back(&left);
            for share in [0.0, 0.3, 1.0] {
                let query = tail.iter().zip(&left).map(|(tail, left)| (tail * share + left * (1.0 - share)) as f32);
                assert_bounded(&vectors, &query.collect::<Vec<_>>());
            }
        }
        assert_bounded(&vectors, &one_hot);
    }

    #[test]
    fn codes_that_say_nothing_bound_every_row() {
        // Directions far from orthonormal, though within what is taken.
        let dimension = *DIMENSIONS.start();
        let mut stored = Vec::new();
        for at in 0..KEPT {
            stored.extend_from_slice(&1e-6_f32.to_le_bytes());
            stored.extend_from_slice(&(1.0 / 124.0_f32).to_le_bytes());
            stored.extend((0..dimension).map(|place| if place == at { 127_u8 } else { 0 }));
        }
        let rotation = Rotation::load(stored, dimension).unwrap();
        assert!(rotation.skew > 0.04);
        let mut vectors = Vectors::new(dimension).unwrap();
        let row: Vec<f32> = (0..dimension).map(|place| if place == 5 { 1.0 } else { 0.01 }).collect();
        vectors.append(&row.repeat(4096)).unwrap();
        vectors.set_rotation(rotation);
        assert_bounded(&vectors, &row);
        assert_bounded(&vectors, &row.iter().rev().copied().collect::<Vec<_>>());
    }
}
