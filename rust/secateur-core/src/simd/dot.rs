//! The float64 sum that defines a score.
//!
//! It has a fixed order of lanes and a fixed tree over them. A product of two float32 values is exact in float64, so that
//! a fused multiply-add rounds like a multiplication and an addition: every instruction set gives the same bits.

use super::InstructionSet;

/// Sums run in this many lanes: element `i` belongs to lane `i % LANES`.
const LANES: usize = 16;

/// The dot product of two vectors of equal length, summed in float64.
#[must_use]
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the features that `dot_avx2` was compiled for have just been detected.
        return unsafe { dot_avx2(a, b) };
    }
    dot_portable(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dot_avx2(a: &[f32], b: &[f32]) -> f64 {
    dot_lanes(a, b, f64::from, f64::mul_add)
}

/// [`dot`] without any special instruction: what every machine can run.
#[must_use]
pub fn dot_portable(a: &[f32], b: &[f32]) -> f64 {
    dot_lanes(a, b, f64::from, |x, y, sum| x * y + sum)
}

/// The dot products of a vector of float32 values, widened to float64 beforehand, with four of equal length: [`dot`] of each.
/// Other values would give other bits on other machines.
#[must_use]
pub fn dot_of_four(set: InstructionSet, query: &[f64], rows: [&[f32]; 4]) -> [f64; 4] {
    #[cfg(target_arch = "x86_64")]
    {
        if set == InstructionSet::Avx512 && set.is_available() {
            // SAFETY: the instruction set has just been detected.
            return unsafe { dot_of_four_avx512::<false>(query, rows) }.0;
        }
        if set == InstructionSet::Avx2 && set.is_available() && std::arch::is_x86_feature_detected!("fma") {
            // SAFETY: the features have just been detected.
            return rows.map(|row| unsafe { wide_dot_avx2(query, row) });
        }
    }
    let _ = set;
    rows.map(|row| dot_lanes(query, row, |x| x, |x, y, sum| x * y + sum))
}

/// [`dot_of_four`], and the squared norms of the four, while they are at hand.
#[must_use]
pub(crate) fn dot_and_square_of_four(set: InstructionSet, query: &[f64], rows: [&[f32]; 4]) -> ([f64; 4], [f64; 4]) {
    #[cfg(target_arch = "x86_64")]
    if set == InstructionSet::Avx512 && set.is_available() {
        // SAFETY: the instruction set has just been detected.
        return unsafe { dot_of_four_avx512::<true>(query, rows) };
    }
    (dot_of_four(set, query, rows), rows.map(|row| dot(row, row)))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn wide_dot_avx2(query: &[f64], row: &[f32]) -> f64 {
    dot_lanes(query, row, |x| x, f64::mul_add)
}

// Inlined by force: only inside its caller is it compiled for that caller's instruction set.
#[allow(clippy::inline_always)]
#[inline(always)]
fn dot_lanes<T: Copy>(a: &[T], b: &[f32], widen: impl Fn(T) -> f64, add_product: impl Fn(f64, f64, f64) -> f64) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for ((lane, &x), &y) in lanes.iter_mut().zip(x).zip(y) {
            *lane = add_product(widen(x), f64::from(y), *lane);
        }
    }
    for ((lane, &x), &y) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane = add_product(widen(x), f64::from(y), *lane);
    }
    let [l0, l1, l2, l3, l4, l5, l6, l7, l8, l9, l10, l11, l12, l13, l14, l15] = lanes;
    let (s0, s1, s2, s3) = (l0 + l8, l1 + l9, l2 + l10, l3 + l11);
    let (s4, s5, s6, s7) = (l4 + l12, l5 + l13, l6 + l14, l7 + l15);
    ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
}

/// Four rows at once hide the latency of their sums. The squares of their norms come second, if asked for.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn dot_of_four_avx512<const SQUARES: bool>(query: &[f64], rows: [&[f32]; 4]) -> ([f64; 4], [f64; 4]) {
    use std::arch::x86_64::{
        __m512d, _mm_add_pd, _mm_cvtsd_f64, _mm_unpackhi_pd, _mm256_add_pd, _mm256_castpd256_pd128,
        _mm256_extractf128_pd, _mm256_loadu_ps, _mm512_add_pd, _mm512_castpd512_pd256, _mm512_cvtps_pd,
        _mm512_extractf64x4_pd, _mm512_fmadd_pd, _mm512_loadu_pd, _mm512_setzero_pd,
    };

    let length = rows.iter().fold(query.len(), |length, row| length.min(row.len()));
    let whole = length - length % LANES;
    // Lanes 0 to 7 and 8 to 15 of each row.
    let mut sums = [[_mm512_setzero_pd(); 2]; 4];
    let mut squares = [[_mm512_setzero_pd(); 2]; 4];
    let mut add = |query: *const f64, rows: [*const f32; 4]| {
        for ((sums, squares), row) in sums.iter_mut().zip(&mut squares).zip(rows) {
            for (half, (sum, square)) in sums.iter_mut().zip(squares).enumerate() {
                // SAFETY: whoever calls it has `LANES` values behind each pointer; loads take any address.
                let (query, values) =
                    unsafe { (_mm512_loadu_pd(query.add(8 * half)), _mm256_loadu_ps(row.add(8 * half))) };
                let values = _mm512_cvtps_pd(values);
                *sum = _mm512_fmadd_pd(query, values, *sum);
                if SQUARES {
                    *square = _mm512_fmadd_pd(values, values, *square);
                }
            }
        }
    };
    for at in (0..whole).step_by(LANES) {
        // SAFETY: `LANES` values from `at` on are within all five.
        unsafe { add(query.as_ptr().add(at), rows.map(|row| row.as_ptr().add(at))) };
    }
    if whole < length {
        // Behind the end stand zeros, whose products change no lane.
        let mut query_rest = [0.0; LANES];
        let mut rows_rest = [[0.0; LANES]; 4];
        for (to, &from) in query_rest.iter_mut().zip(query.iter().take(length).skip(whole)) {
            *to = from;
        }
        for (rest, row) in rows_rest.iter_mut().zip(rows) {
            for (to, &from) in rest.iter_mut().zip(row.iter().take(length).skip(whole)) {
                *to = from;
            }
        }
        add(query_rest.as_ptr(), rows_rest.each_ref().map(|rest| rest.as_ptr()));
    }
    let sum = |[low, high]: [__m512d; 2]| {
        let eight = _mm512_add_pd(low, high);
        let four = _mm256_add_pd(_mm512_castpd512_pd256(eight), _mm512_extractf64x4_pd::<1>(eight));
        let two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
        _mm_cvtsd_f64(_mm_add_pd(two, _mm_unpackhi_pd(two, two)))
    };
    let of_four = |[a, b, c, d]: [[__m512d; 2]; 4]| [sum(a), sum(b), sum(c), sum(d)];
    (of_four(sums), of_four(squares))
}
