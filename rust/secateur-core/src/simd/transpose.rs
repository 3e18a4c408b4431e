//! The bits of 64 bytes as eight masks.

/// For each bit of a byte, the highest first, in which of 64 bytes it is set.
#[cfg(target_arch = "x86_64")]
pub(crate) fn masks(bytes: &[u8; 64]) -> [u64; 8] {
    // SAFETY: SSE2 is part of every x86-64.
    unsafe { sse2(bytes) }
}

/// The same for other machines.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn masks(bytes: &[u8; 64]) -> [u64; 8] {
    portable(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn sse2(bytes: &[u8; 64]) -> [u64; 8] {
    use std::arch::x86_64::{_mm_add_epi8, _mm_movemask_epi8, _mm_set_epi64x};

    let mut masks = [0; 8];
    for (quarter, &sixteen) in bytes.as_chunks::<16>().0.iter().enumerate() {
        let whole = u128::from_le_bytes(sixteen);
        let mut vector = _mm_set_epi64x((whole >> 64) as i64, whole as i64);
        for mask in &mut masks {
            // The highest bits are gathered; each doubling moves the next ones there.
            *mask |= u64::from(_mm_movemask_epi8(vector).cast_unsigned()) << (quarter * 16);
            vector = _mm_add_epi8(vector, vector);
        }
    }
    masks
}

/// Gathers the bits of eight bytes at a time by a multiplication.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable(bytes: &[u8; 64]) -> [u64; 8] {
    let mut masks = [0; 8];
    for (eighth, &eight) in bytes.as_chunks::<8>().0.iter().enumerate() {
        let word = u64::from_le_bytes(eight);
        for (mask, bit) in masks.iter_mut().zip((0..8).rev()) {
            let bits = ((word >> bit) & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            *mask |= bits << (eighth * 8);
        }
    }
    masks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_instruction_set_agrees(bytes in prop::array::uniform32(any::<u8>()), more in prop::array::uniform32(any::<u8>())) {
            let mut all = [0; 64];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            let naive = std::array::from_fn(|bit| {
                all.iter().enumerate().map(|(place, &byte)| u64::from(byte >> (7 - bit) & 1) << place).sum()
            });
            prop_assert_eq!(super::portable(&all), naive);
            prop_assert_eq!(super::masks(&all), naive);
        }
    }
}
