//! What learning a rotation and rotating rows spend their time on.
#![allow(clippy::indexing_slicing)] // Within lengths that have been checked; loops without branches become vectors.

use super::InstructionSet;
use super::codes::{LINE, PACKED_UNITS};
use super::quantise::{REACH, ROUND};
use crate::rotation::{KEPT, TOGETHER};

/// Rows along the directions of a rotation, before they are quantised.
pub(crate) struct Projected<'a> {
    /// For each direction the products of its codes and twice those of the rows.
    pub(crate) values: &'a [[f32; TOGETHER]],
    /// Of the directions.
    pub(crate) steps: &'a [f32],
    pub(crate) spreads: &'a [f32],
    /// Bound of how far the directions are from orthonormal.
    pub(crate) skew: f32,
    pub(crate) dimension: usize,
    /// Of the rows.
    pub(crate) bytes: &'a [u8],
    pub(crate) scales: &'a [f32],
}

/// Writes codes of 4 bits of rotated rows and what is known besides; returns the greatest length of the codes of a row.
pub(crate) fn project(set: InstructionSet, projected: &Projected<'_>, codes: &mut [u8], known: &mut [u32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if matches!(set, InstructionSet::Avx2 | InstructionSet::Avx512) && set.is_available() {
        // SAFETY: the features have just been detected, those of AVX-512 include AVX2.
        return unsafe { project_avx2(projected, codes, known) };
    }
    let _ = set;
    project_portable(projected, codes, known)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn project_avx2(projected: &Projected<'_>, codes: &mut [u8], known: &mut [u32]) -> f32 {
    project_portable(projected, codes, known)
}

// Inlined by force: only inside its caller is it compiled for that caller's instruction set. All loops run over rows, so that
// compilers turn them into vectors.
#[allow(clippy::inline_always)]
#[inline(always)]
fn project_portable(projected: &Projected<'_>, codes: &mut [u8], known: &mut [u32]) -> f32 {
    let Projected { values, steps, spreads, skew, dimension, bytes, scales } = *projected;
    let mut row_scales = [0.0_f32; TOGETHER];
    for (to, &scale) in row_scales.iter_mut().zip(scales) {
        *to = scale;
    }
    let directions =
        || values.iter().zip(steps).zip(spreads).map(|((v, &step), &spread)| (v, 0.5 * step / spread, spread));
    let mut most = [0.0_f32; TOGETHER];
    for (values, factor, _) in directions() {
        for (most, &value) in most.iter_mut().zip(values) {
            let value = (value * factor).abs();
            *most = if value > *most { value } else { *most };
        }
    }
    let (mut units, mut per_unit) = ([0.0_f32; TOGETHER], [0.0_f32; TOGETHER]);
    for (((unit, per_unit), &most), &scale) in units.iter_mut().zip(&mut per_unit).zip(&most).zip(&row_scales) {
        // As many bits as are stored.
        *unit = f32::from_bits((most * (REACH / 7.5) * scale).to_bits() & 0xFFFF_0000);
        *per_unit = if *unit > 0.0 { 1.0 / *unit } else { 0.0 };
    }
    let (mut errors, mut lengths, mut code_lengths) = ([0.0_f32; TOGETHER], [0.0_f32; TOGETHER], [0.0_f32; TOGETHER]);
    let mut nibbles = [[0_u8; TOGETHER]; KEPT];
    for ((values, factor, spread), nibbles) in directions().zip(&mut nibbles) {
        for row in 0..TOGETHER {
            let value = values[row] * factor * row_scales[row];
            let place = value * per_unit[row] + 7.5;
            let place = if place > 0.0 { place } else { 0.0 };
            let rounded = (if place < 15.0 { place } else { 15.0 }) + ROUND;
            let stands_for = (rounded - ROUND - 7.5) * units[row];
            let error = (value - stands_for) * spread;
            errors[row] += error * error;
            lengths[row] += (value * spread) * (value * spread);
            code_lengths[row] += stands_for * stands_for;
            nibbles[row] = rounded.to_bits() as u8;
        }
    }
    let stride = bytes.len() / scales.len().max(1);
    let mut longest = 0.0_f32;
    let to = codes.chunks_exact_mut(LINE).zip(known).zip(bytes.chunks_exact(stride.max(1)));
    for (row, ((codes, known), bytes)) in to.enumerate().take(scales.len()) {
        for (place, code) in codes.iter_mut().enumerate() {
            *code = nibbles[place][row] | nibbles[place + LINE][row] << 4;
        }
        let square = bytes.iter().take(dimension).map(|&code| (2 * i32::from(code) - 255).pow(2)).sum::<i32>() as f32;
        let length = square * (0.25 * row_scales[row] * row_scales[row]);
        // What float32 rounds off is far less than one part in 10,000.
        let tail = (length * 1.0001 - lengths[row] / (1.0 + skew) * 0.9999).max(0.0).sqrt();
        let (error, tail) = (in_units(errors[row].sqrt()), in_units(tail));
        *known = if error > 255 || tail > 255 {
            // Codes that say nothing. The query along the directions is at least (1 - skew) sqrt(1 + skew), 0.94, of its part
            // there, and what the codes of 8 bits stand for at most 1.1: error and tail of 255 / 200 bound every row.
            0xFFFF
        } else {
            longest = longest.max(code_lengths[row]);
            units[row].to_bits() | error << 8 | tail
        };
    }
    longest.sqrt() * 1.0001
}

/// Rounded up; not negative.
#[allow(clippy::cast_sign_loss)]
fn in_units(value: f32) -> u32 {
    (value * (PACKED_UNITS * 1.0001) + 0.01).ceil() as u32
}

/// Adds to the lower half of a square matrix the products of the values of four rows with each other.
pub(crate) fn add_products(set: InstructionSet, matrix: &mut [f32], four: &[f32], dimension: usize) {
    #[cfg(target_arch = "x86_64")]
    if matches!(set, InstructionSet::Avx2 | InstructionSet::Avx512) && set.is_available() {
        // SAFETY: the features have just been detected, those of AVX-512 include AVX2.
        unsafe { add_products_avx2(matrix, four, dimension) };
        return;
    }
    let _ = set;
    add_products_portable(matrix, four, dimension);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_products_avx2(matrix: &mut [f32], four: &[f32], dimension: usize) {
    add_products_portable(matrix, four, dimension);
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn add_products_portable(matrix: &mut [f32], four: &[f32], dimension: usize) {
    let (a, rest) = four.split_at(dimension);
    let (b, rest) = rest.split_at(dimension);
    let (c, d) = rest.split_at(dimension);
    let factors = a.iter().zip(b).zip(c).zip(d);
    for (at, (sums, (((&fa, &fb), &fc), &fd))) in matrix.chunks_exact_mut(dimension).zip(factors).enumerate() {
        for ((((sum, &a), &b), &c), &d) in sums.iter_mut().zip(a).zip(b).zip(c).zip(d).take(at + 1) {
            *sum += (fa * a + fb * b) + (fc * c + fd * d);
        }
    }
}

/// Adds to a vector the rows of a square matrix, each times a factor.
pub(crate) fn multiply(set: InstructionSet, sums: &mut [f32], matrix: &[f32], factors: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if matches!(set, InstructionSet::Avx2 | InstructionSet::Avx512) && set.is_available() {
        // SAFETY: the features have just been detected, those of AVX-512 include AVX2.
        unsafe { multiply_avx2(sums, matrix, factors) };
        return;
    }
    let _ = set;
    multiply_portable(sums, matrix, factors);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_avx2(sums: &mut [f32], matrix: &[f32], factors: &[f32]) {
    multiply_portable(sums, matrix, factors);
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn multiply_portable(sums: &mut [f32], matrix: &[f32], factors: &[f32]) {
    for (row, &factor) in matrix.chunks_exact(factors.len()).zip(factors) {
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum += factor * value;
        }
    }
}
