//! The sums of [`crate::Model`], the same bits with every instruction set: whole numbers, and fixed lanes.

/// Hidden units.
pub(crate) const HIDDEN: usize = 96;
/// Weights of two inputs for each hidden unit, in turns.
pub(crate) type Pair = [i16; 2 * HIDDEN];
/// Sums of float32 values run in this many lanes: element `i` belongs to lane `i % LANES`.
const LANES: usize = 8;

/// Adds to each unit the inputs times its weights: whole numbers, so that no order matters.
pub(crate) fn add_inputs(units: &mut [i32; HIDDEN], inputs: &[[i16; 2]], weights: &[Pair]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature that `add_inputs_avx2` was compiled for has just been detected.
        unsafe { add_inputs_avx2(units, inputs, weights) };
        return;
    }
    add_inputs_portable(units, inputs, weights);
}

/// [`add_inputs`] without any special instruction: what every machine can run.
pub(crate) fn add_inputs_portable(units: &mut [i32; HIDDEN], inputs: &[[i16; 2]], weights: &[Pair]) {
    for (&[first, second], weights) in inputs.iter().zip(weights) {
        if (first, second) == (0, 0) {
            continue;
        }
        for (unit, &[of_first, of_second]) in units.iter_mut().zip(weights.as_chunks::<2>().0) {
            let product = i32::from(first) * i32::from(of_first) + i32::from(second) * i32::from(of_second);
            *unit = unit.wrapping_add(product);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_inputs_avx2(units: &mut [i32; HIDDEN], inputs: &[[i16; 2]], weights: &[Pair]) {
    use std::arch::x86_64::{
        _mm256_add_epi32, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi32, _mm256_setzero_si256,
        _mm256_storeu_si256,
    };
    const VECTORS: usize = HIDDEN / 8;
    let mut sums = [_mm256_setzero_si256(); VECTORS];
    for (&[first, second], weights) in inputs.iter().zip(weights) {
        let both = i32::from(second) << 16 | (i32::from(first) & 0xFFFF);
        if both == 0 {
            continue;
        }
        let both = _mm256_set1_epi32(both);
        for (sum, weights) in sums.iter_mut().zip(weights.as_chunks::<16>().0) {
            // SAFETY: sixteen numbers of 16 bits are the 32 bytes of the load, at any address.
            let weights = unsafe { _mm256_loadu_si256(weights.as_ptr().cast()) };
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(weights, both));
        }
    }
    for (units, sum) in units.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
        // SAFETY: eight numbers of 32 bits are the 32 bytes of load and store, at any address.
        unsafe {
            let known = _mm256_loadu_si256(units.as_ptr().cast());
            _mm256_storeu_si256(units.as_mut_ptr().cast(), _mm256_add_epi32(known, sum));
        }
    }
}

/// The square roots of counts times `root`, and the counts times `share`.
pub(crate) fn scale(counts: &[u32], root: f32, share: f32, roots: &mut [f32], shares: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature that `scale_avx2` was compiled for has just been detected.
        return unsafe { scale_avx2(counts, root, share, roots, shares) };
    }
    scale_portable(counts, root, share, roots, shares);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn scale_avx2(counts: &[u32], root: f32, share: f32, roots: &mut [f32], shares: &mut [f32]) {
    scale_portable(counts, root, share, roots, shares);
}

// Inlined by force: only inside its caller is it compiled for that caller's instruction set.
#[allow(clippy::inline_always)]
#[inline(always)]
fn scale_portable(counts: &[u32], root: f32, share: f32, roots: &mut [f32], shares: &mut [f32]) {
    for ((&count, to_root), to_share) in counts.iter().zip(roots).zip(shares) {
        let count = count as f32;
        *to_root = count.sqrt() * root;
        *to_share = count * share;
    }
}

/// Adds what round(factor · min(value, cap)) is to whole numbers of 16 bits.
pub(crate) fn quantise(values: &[f32], caps: &[f32], factors: &[f32], inputs: &mut [i16]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature that `quantise_avx2` was compiled for has just been detected.
        return unsafe { quantise_avx2(values, caps, factors, inputs) };
    }
    quantise_portable(values, caps, factors, inputs);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn quantise_avx2(values: &[f32], caps: &[f32], factors: &[f32], inputs: &mut [i16]) {
    quantise_portable(values, caps, factors, inputs);
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn quantise_portable(values: &[f32], caps: &[f32], factors: &[f32], inputs: &mut [i16]) {
    for (((&value, &cap), &factor), input) in values.iter().zip(caps).zip(factors).zip(inputs) {
        let value = if value < cap { value } else { cap };
        // The half makes the conversion, which cuts off, round; out of range it would be 0, as from NaN.
        let scaled = value * factor + 0.5;
        let scaled = if (0.0..32_768.0).contains(&scaled) { scaled } else { 0.0 };
        // SAFETY: the number is finite and within the range.
        *input = unsafe { scaled.to_int_unchecked::<i32>() } as i16;
    }
}

/// The dot product of float32 values, as many as both have.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let length = a.len().min(b.len());
    let (a, b) = (a.get(..length).unwrap_or(a), b.get(..length).unwrap_or(b));
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature that `dot_avx2` was compiled for has just been detected.
        return unsafe { dot_avx2(a, b) };
    }
    dot_portable(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(a: &[f32], b: &[f32]) -> f32 {
    dot_portable(a, b)
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn dot_portable(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for ((lane, &x), &y) in lanes.iter_mut().zip(x).zip(y) {
            *lane += x * y;
        }
    }
    for ((lane, &x), &y) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
        *lane += x * y;
    }
    let [l0, l1, l2, l3, l4, l5, l6, l7] = lanes;
    ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HIDDEN, Pair, add_inputs, add_inputs_portable, dot, dot_portable, quantise, quantise_portable};

    fn pair() -> impl Strategy<Value = Pair> {
        prop::collection::vec(-127_i16..=127, 2 * HIDDEN).prop_map(|weights| std::array::from_fn(|at| weights[at]))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_instruction_set_gives_the_same_bits(
            weights in prop::collection::vec(pair(), 0..20),
            inputs in prop::collection::vec(any::<[i16; 2]>(), 20),
            values in prop::collection::vec(0_f32..2.0, 0..60),
        ) {
            let mut expected = [1; HIDDEN];
            let mut units = expected;
            add_inputs_portable(&mut expected, &inputs, &weights);
            add_inputs(&mut units, &inputs, &weights);
            prop_assert_eq!(units, expected);
            prop_assert_eq!(dot(&values, &values).to_bits(), dot_portable(&values, &values).to_bits());
            let (caps, factors) = (vec![1.5; values.len()], vec![2000.0; values.len()]);
            let (mut one, mut other) = (vec![0; values.len()], vec![0; values.len()]);
            quantise(&values, &caps, &factors, &mut one);
            quantise_portable(&values, &caps, &factors, &mut other);
            prop_assert_eq!(one, other);
        }
    }
}
