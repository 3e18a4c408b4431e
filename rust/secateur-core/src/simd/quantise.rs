//! Rows as codes of 8 and of 4 bits, queries as codes of 8, and how far the codes are off.
#![allow(clippy::indexing_slicing)] // Within lengths that have been checked; loops without branches become vectors.

use super::InstructionSet;
use super::codes::LINE;

/// The share of the largest value that the outermost codes of 4 bits stand for. Values beyond it are cut to those, which
/// leaves the least error: 0.110 of the norm in place of 0.126 (real) or 0.122 (random vectors, dimension 384) for 1.0.
pub(super) const REACH: f32 = 0.82;
/// A step of 4 bits over one of 8.
pub(crate) const NIBBLE_STEP: f32 = REACH * (127.5 / 7.5);
/// Adding it leaves the nearest whole number, ties to even, in the lowest bits.
pub(super) const ROUND: f32 = 12_582_912.0;
/// Sums run in this many lanes.
const LANES: usize = 16;

/// What remains of a row besides its codes, in units of its own values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Quantised {
    /// Step between codes of 8 bits: a value is about `step * (code - 127.5)`, and
    /// `step * NIBBLE_STEP * (code - 7.5)` with codes of 4 bits.
    pub(crate) step: f32,
    /// Sum of the squared differences between values and codes of 8 bits.
    pub(crate) byte_error: f32,
    /// The same for 4 bits.
    pub(crate) nibble_error: f32,
}

/// The largest magnitude of a row.
#[allow(clippy::inline_always)] // As below.
#[inline(always)]
pub(crate) fn largest(row: &[f32]) -> f32 {
    let (blocks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            let value = value.abs();
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.into_iter().chain(rest.iter().map(|value| value.abs())).fold(0.0, f32::max)
}

/// Writes the codes of a row whose largest magnitude is `largest`, from 1e-9 to 1e9. Bytes behind the row are left, nibbles behind it in the last line are 0.
pub(crate) fn quantise(
    set: InstructionSet,
    row: &[f32],
    largest: f32,
    bytes: &mut [u8],
    nibbles: &mut [u8],
) -> Quantised {
    #[cfg(target_arch = "x86_64")]
    {
        if set == InstructionSet::Avx512 && set.is_available() {
            // SAFETY: the instruction set has just been detected.
            return unsafe { quantise_avx512(row, largest, bytes, nibbles) };
        }
        if set == InstructionSet::Avx2 && set.is_available() {
            // SAFETY: as above.
            return unsafe { quantise_avx2(row, largest, bytes, nibbles) };
        }
    }
    let _ = set;
    quantise_portable(row, largest, bytes, nibbles)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx2")]
fn quantise_avx512(row: &[f32], largest: f32, bytes: &mut [u8], nibbles: &mut [u8]) -> Quantised {
    quantise_portable(row, largest, bytes, nibbles)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn quantise_avx2(row: &[f32], largest: f32, bytes: &mut [u8], nibbles: &mut [u8]) -> Quantised {
    quantise_portable(row, largest, bytes, nibbles)
}

// Inlined by force: only inside its caller is it compiled for that caller's instruction set.
#[allow(clippy::inline_always)]
#[inline(always)]
fn quantise_portable(row: &[f32], largest: f32, bytes: &mut [u8], nibbles: &mut [u8]) -> Quantised {
    let step = largest / 127.5;
    let wide_step = step * NIBBLE_STEP;
    let (per_step, per_wide_step) = (1.0 / step, 1.0 / wide_step);
    let byte_of = |value: f32| {
        let rounded = (value * per_step + 127.5) + ROUND;
        let error = value - (rounded - ROUND - 127.5) * step;
        (rounded.to_bits() as u8, error * error)
    };
    let nibble_of = |value: f32| {
        let place = value * per_wide_step + 7.5;
        let place = if place > 0.0 { place } else { 0.0 };
        let rounded = (if place < 15.0 { place } else { 15.0 }) + ROUND;
        let error = value - (rounded - ROUND - 7.5) * wide_step;
        (rounded.to_bits() as u8, error * error)
    };
    let (mut byte_errors, mut nibble_errors) = ([0.0_f32; LANES], [0.0_f32; LANES]);
    let lines = row.chunks(2 * LINE).zip(bytes.chunks_mut(2 * LINE)).zip(nibbles.as_chunks_mut::<LINE>().0);
    for ((values, bytes), nibbles) in lines {
        let mut halves = [0_u8; 2 * LINE];
        let (blocks, rest) = values.as_chunks::<LANES>();
        let whole = blocks.len() * LANES;
        let (to_bytes, rest_of_bytes) = bytes.split_at_mut(whole);
        let (to_halves, rest_of_halves) = halves.split_at_mut(whole);
        let to = to_bytes.as_chunks_mut::<LANES>().0.iter_mut().zip(to_halves.as_chunks_mut::<LANES>().0);
        for (values, (bytes, halves)) in blocks.iter().zip(to) {
            for lane in 0..LANES {
                let (byte, byte_error) = byte_of(values[lane]);
                let (nibble, nibble_error) = nibble_of(values[lane]);
                (bytes[lane], halves[lane]) = (byte, nibble);
                byte_errors[lane] += byte_error;
                nibble_errors[lane] += nibble_error;
            }
        }
        let to = rest_of_bytes.iter_mut().zip(rest_of_halves);
        let errors = byte_errors.iter_mut().zip(&mut nibble_errors);
        for ((&value, (byte, half)), (byte_sum, nibble_sum)) in rest.iter().zip(to).zip(errors) {
            let (code, error) = byte_of(value);
            (*byte, *byte_sum) = (code, *byte_sum + error);
            let (code, error) = nibble_of(value);
            (*half, *nibble_sum) = (code, *nibble_sum + error);
        }
        let (low, high) = halves.split_at(LINE);
        for ((nibble, &low), &high) in nibbles.iter_mut().zip(low).zip(high) {
            *nibble = low | high << 4;
        }
    }
    Quantised { step, byte_error: sum(byte_errors), nibble_error: sum(nibble_errors) }
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn sum(lanes: [f32; LANES]) -> f32 {
    lanes.into_iter().sum()
}

/// Adding it to a float64 leaves the nearest whole number, ties to even, in the lowest bits.
const WIDE_ROUND: f64 = 6_755_399_441_055_744.0;
/// Sums of float64 run in this many lanes.
const WIDE_LANES: usize = 8;

/// A query widened, and its codes.
#[derive(Debug, Clone)]
pub(crate) struct QuantisedQuery {
    pub(crate) wide: Vec<f64>,
    /// From -127 to 127.
    pub(crate) codes: Vec<i8>,
    /// Step between codes, over the norm.
    pub(crate) step: f64,
    /// Distance between the query and its codes, over the norm.
    pub(crate) error: f64,
    /// Norm of what the codes stand for, over that of the query.
    pub(crate) length: f64,
}

/// Widens and quantises a query of some norm; of norm 0 all is 0.
pub(crate) fn quantise_query(set: InstructionSet, values: &[f32], norm: f64) -> QuantisedQuery {
    #[cfg(target_arch = "x86_64")]
    {
        if set == InstructionSet::Avx512 && set.is_available() {
            // SAFETY: the instruction set has just been detected.
            return unsafe { quantise_query_avx512(values, norm) };
        }
        if set == InstructionSet::Avx2 && set.is_available() {
            // SAFETY: as above.
            return unsafe { quantise_query_avx2(values, norm) };
        }
    }
    let _ = set;
    quantise_query_portable(values, norm)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx2")]
fn quantise_query_avx512(values: &[f32], norm: f64) -> QuantisedQuery {
    quantise_query_portable(values, norm)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn quantise_query_avx2(values: &[f32], norm: f64) -> QuantisedQuery {
    quantise_query_portable(values, norm)
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn quantise_query_portable(values: &[f32], norm: f64) -> QuantisedQuery {
    let most = f64::from(largest(values));
    let (per_step, per_norm) = if norm > 0.0 { (127.0 / most, 1.0 / norm) } else { (0.0, 0.0) };
    let step = most / 127.0 * per_norm;
    let wide: Vec<f64> = values.iter().map(|&value| f64::from(value)).collect();
    // One plain loop after the other: compilers turn each into vectors, but not all of them in one.
    let rounded: Vec<f64> = wide.iter().map(|value| value * per_step + WIDE_ROUND).collect();
    // Room for the zeros that follow.
    let mut codes = Vec::with_capacity(values.len().next_multiple_of(2 * LINE));
    codes.extend(rounded.iter().map(|rounded| rounded.to_bits() as i8));
    let (mut errors, mut squares) = ([0.0_f64; WIDE_LANES], [0.0_f64; WIDE_LANES]);
    let (blocks, rest) = wide.as_chunks::<WIDE_LANES>();
    let (rounded_blocks, rounded_rest) = rounded.as_chunks::<WIDE_LANES>();
    for (values, rounded) in blocks.iter().zip(rounded_blocks) {
        for lane in 0..WIDE_LANES {
            let code = rounded[lane] - WIDE_ROUND;
            let off = values[lane] * per_norm - code * step;
            errors[lane] += off * off;
            squares[lane] += code * code;
        }
    }
    let sums = errors.iter_mut().zip(&mut squares);
    for ((&value, &rounded), (error_sum, square_sum)) in rest.iter().zip(rounded_rest).zip(sums) {
        let code = rounded - WIDE_ROUND;
        let off = value * per_norm - code * step;
        *error_sum += off * off;
        *square_sum += code * code;
    }
    QuantisedQuery {
        wide,
        codes,
        step,
        error: errors.iter().sum::<f64>().sqrt(),
        length: squares.iter().sum::<f64>().sqrt() * step,
    }
}
