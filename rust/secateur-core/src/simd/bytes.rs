//! Vectors of bytes for the instruction set at hand, with one set of operations for all.
//!
//! A mask has 0xFF where a condition holds, so that subtracting it counts.

/// A vector of `WIDTH` bytes.
///
/// # Safety
///
/// Whoever calls a method has made sure that the instruction set of the type is there.
pub(super) unsafe trait Bytes: Copy {
    /// Bytes of a vector.
    const WIDTH: usize;
    /// The vector of equal bytes.
    unsafe fn splat(byte: u8) -> Self;
    /// Reads `WIDTH` bytes, at any address.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `WIDTH` bytes, at any address.
    unsafe fn store(self, to: *mut u8);
    /// Where the bytes are equal.
    unsafe fn equal(self, other: Self) -> Self;
    /// Where a byte is not above the other's.
    unsafe fn at_most(self, other: Self) -> Self;
    /// Bytes of both.
    unsafe fn and(self, other: Self) -> Self;
    /// Bytes of the first without those of the other.
    unsafe fn without(self, other: Self) -> Self;
    /// Bytes of either.
    unsafe fn or(self, other: Self) -> Self;
    /// Difference, modulo 256.
    unsafe fn minus(self, other: Self) -> Self;
    /// The sum of all bytes.
    unsafe fn sum(self) -> u32;
}

/// What every machine can run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Portable([u8; 16]);

impl Portable {
    fn zip(self, other: Self, of: impl Fn(u8, u8) -> u8) -> Self {
        let mut bytes = self.0;
        for (byte, other) in bytes.iter_mut().zip(other.0) {
            *byte = of(*byte, other);
        }
        Self(bytes)
    }
}

// SAFETY: no instruction set is needed; loads and stores touch 16 bytes, as the trait says.
unsafe impl Bytes for Portable {
    const WIDTH: usize = 16;
    unsafe fn splat(byte: u8) -> Self {
        Self([byte; 16])
    }
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller has 16 bytes there; arrays of bytes may stand at any address.
        Self(unsafe { from.cast::<[u8; 16]>().read() })
    }
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as in `load`.
        unsafe { to.cast::<[u8; 16]>().write(self.0) }
    }
    unsafe fn equal(self, other: Self) -> Self {
        self.zip(other, |a, b| if a == b { 0xFF } else { 0 })
    }
    unsafe fn at_most(self, other: Self) -> Self {
        self.zip(other, |a, b| if a <= b { 0xFF } else { 0 })
    }
    unsafe fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }
    unsafe fn without(self, other: Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }
    unsafe fn or(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }
    unsafe fn minus(self, other: Self) -> Self {
        self.zip(other, u8::wrapping_sub)
    }
    unsafe fn sum(self) -> u32 {
        self.0.iter().map(|&byte| u32::from(byte)).sum()
    }
}

/// A vector in a register: each operation in the intrinsics of an instruction set.
macro_rules! register {
    (
        $(#[$doc:meta])* $name:ident($register:ty), $width:literal,
        splat($byte:ident) $splat:expr, load($from:ident) $load:expr, store($what:ident, $to:ident) $store:expr,
        sum($all:ident) $sum:expr,
        ($a:ident, $b:ident) equal $equal:expr, at_most $at_most:expr, and $and:expr, without $without:expr, or $or:expr,
        minus $minus:expr $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub(in crate::simd) struct $name($register);

        #[allow(clippy::inline_always)] // Only inside its caller is it compiled for that caller's instruction set.
        // SAFETY: callers have the instruction set, as the trait asks, and memory of the width for loads and stores,
        // which are those for any address.
        unsafe impl Bytes for $name {
            const WIDTH: usize = $width;
            #[inline(always)]
            unsafe fn splat($byte: u8) -> Self {
                // SAFETY: as for the whole.
                Self(unsafe { $splat })
            }
            #[inline(always)]
            unsafe fn load($from: *const u8) -> Self {
                // SAFETY: as for the whole.
                Self(unsafe { $load })
            }
            #[inline(always)]
            unsafe fn store(self, $to: *mut u8) {
                let $what = self.0;
                // SAFETY: as for the whole.
                unsafe { $store }
            }
            #[inline(always)]
            unsafe fn sum(self) -> u32 {
                let $all = self.0;
                // SAFETY: as for the whole.
                unsafe { $sum }
            }
            register!(@pairs $a $b equal $equal, at_most $at_most, and $and, without $without, or $or, minus $minus);
        }
    };
    (@pairs $a:ident $b:ident $($operation:ident $of:expr),+) => {
        $(
            #[inline(always)]
            unsafe fn $operation(self, other: Self) -> Self {
                let ($a, $b) = (self.0, other.0);
                // SAFETY: as for the whole.
                Self(unsafe { $of })
            }
        )+
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Sse2};

#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports)] // Intrinsics have their names from one place.
mod x86 {
    use std::arch::x86_64::*;

    use super::Bytes;

    register! {
        /// SSE2, which every x86-64 has.
        Sse2(__m128i), 16,
        splat(byte) _mm_set1_epi8(byte.cast_signed()),
        load(from) _mm_loadu_si128(from.cast()),
        store(what, to) _mm_storeu_si128(to.cast(), what),
        sum(all) {
            let halves = _mm_sad_epu8(all, _mm_setzero_si128());
            (_mm_cvtsi128_si32(halves) + _mm_extract_epi16::<4>(halves)).cast_unsigned()
        },
        (a, b) equal _mm_cmpeq_epi8(a, b), at_most _mm_cmpeq_epi8(_mm_min_epu8(a, b), a), and _mm_and_si128(a, b),
        without _mm_andnot_si128(b, a), or _mm_or_si128(a, b), minus _mm_sub_epi8(a, b),
    }

    register! {
        /// AVX2.
        Avx2(__m256i), 32,
        splat(byte) _mm256_set1_epi8(byte.cast_signed()),
        load(from) _mm256_loadu_si256(from.cast()),
        store(what, to) _mm256_storeu_si256(to.cast(), what),
        sum(all) {
            let quarters = _mm256_sad_epu8(all, _mm256_setzero_si256());
            let halves = _mm_add_epi64(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256::<1>(quarters));
            (_mm_cvtsi128_si32(halves) + _mm_extract_epi16::<4>(halves)).cast_unsigned()
        },
        (a, b) equal _mm256_cmpeq_epi8(a, b), at_most _mm256_cmpeq_epi8(_mm256_min_epu8(a, b), a),
        and _mm256_and_si256(a, b), without _mm256_andnot_si256(b, a), or _mm256_or_si256(a, b),
        minus _mm256_sub_epi8(a, b),
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) use arm::Neon;

#[cfg(target_arch = "aarch64")]
#[allow(clippy::wildcard_imports)] // As above.
mod arm {
    use std::arch::aarch64::*;

    use super::Bytes;

    register! {
        /// NEON, which every aarch64 has.
        Neon(uint8x16_t), 16,
        splat(byte) vdupq_n_u8(byte),
        load(from) vld1q_u8(from),
        store(what, to) vst1q_u8(to, what),
        sum(all) u32::from(vaddlvq_u8(all)),
        (a, b) equal vceqq_u8(a, b), at_most vcleq_u8(a, b), and vandq_u8(a, b), without vbicq_u8(a, b),
        or vorrq_u8(a, b), minus vsubq_u8(a, b),
    }
}
