//! The kernels of the search and of the estimate, for the instruction set at hand.
//!
//! The sum of the search is defined by a fixed order of lanes and a fixed tree over them. A product of two float32 values is
//! exact in float64, so that a fused multiply-add rounds like a multiplication and an addition: every instruction
//! set gives the same bits (tests/topk.rs compares them).

mod bytes;
pub(crate) mod kernel;
pub(crate) mod network;
pub(crate) mod transpose;

pub use kernel::InstructionSet;

use crate::script::Script;

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
    dot_lanes(a, b, f64::mul_add)
}

/// [`dot`] without any special instruction: what every machine can run.
#[must_use]
pub fn dot_portable(a: &[f32], b: &[f32]) -> f64 {
    dot_lanes(a, b, |x, y, sum| x * y + sum)
}

// Inlined by force: only inside its caller is it compiled for that caller's instruction set.
#[allow(clippy::inline_always)]
#[inline(always)]
fn dot_lanes(a: &[f32], b: &[f32], add_product: impl Fn(f64, f64, f64) -> f64) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for ((lane, &x), &y) in lanes.iter_mut().zip(x).zip(y) {
            *lane = add_product(f64::from(x), f64::from(y), *lane);
        }
    }
    for ((lane, &x), &y) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane = add_product(f64::from(x), f64::from(y), *lane);
    }
    let [l0, l1, l2, l3, l4, l5, l6, l7, l8, l9, l10, l11, l12, l13, l14, l15] = lanes;
    let (s0, s1, s2, s3) = (l0 + l8, l1 + l9, l2 + l10, l3 + l11);
    let (s4, s5, s6, s7) = (l4 + l12, l5 + l13, l6 + l14, l7 + l15);
    ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
}

/// How many units of a text in two bytes are ASCII, and how many Chinese, Japanese or Korean.
#[must_use]
pub(crate) fn ascii_and_cjk(units: &[u16]) -> (usize, usize) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature that `ascii_and_cjk_avx2` was compiled for has just been detected.
        return unsafe { ascii_and_cjk_avx2(units) };
    }
    ascii_and_cjk_portable(units)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn ascii_and_cjk_avx2(units: &[u16]) -> (usize, usize) {
    ascii_and_cjk_portable(units)
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn ascii_and_cjk_portable(units: &[u16]) -> (usize, usize) {
    let (mut ascii, mut cjk) = (0, 0);
    // So many that 16-bit sums, which are as wide as the units, can hold.
    for block in units.chunks(u16::MAX.into()) {
        let (mut block_ascii, mut block_cjk) = (0_u16, 0_u16);
        for &unit in block {
            block_ascii += u16::from(unit < 0x80);
            block_cjk += u16::from(Script::is_cjk_of_plane_0(unit));
        }
        ascii += usize::from(block_ascii);
        cjk += usize::from(block_cjk);
    }
    (ascii, cjk)
}
