//! The kernels of the search and of the estimate, for the instruction set at hand; all give the same bits.

mod bytes;
pub(crate) mod codes;
mod dot;
pub(crate) mod kernel;
pub(crate) mod network;
pub(crate) mod quantise;
pub(crate) mod rotate;
pub(crate) mod transpose;

pub(crate) use dot::dot_and_square_of_four;
pub use dot::{dot, dot_of_four, dot_portable};

use crate::script::Script;

/// Instruction sets, for tests that force each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionSet {
    /// What every machine can run.
    Portable,
    /// What every machine of this architecture has.
    Baseline,
    /// AVX2.
    Avx2,
    /// AVX-512 with byte vectors and the dot products of bytes (VNNI).
    Avx512,
    /// NEON with the dot products of bytes.
    DotProduct,
}

impl InstructionSet {
    /// All of them, the best last.
    pub const ALL: [Self; 5] = [Self::Portable, Self::Baseline, Self::DotProduct, Self::Avx2, Self::Avx512];

    /// Whether this machine has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable | Self::Baseline => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                std::arch::is_x86_feature_detected!("avx512vnni")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx2")
            }
            #[cfg(target_arch = "aarch64")]
            Self::DotProduct => std::arch::is_aarch64_feature_detected!("dotprod"),
            _ => false,
        }
    }

    /// The best that this machine has.
    #[must_use]
    pub fn best() -> Self {
        // Each has been detected once and is remembered by the standard library.
        Self::ALL.into_iter().rev().find(|set| set.is_available()).unwrap_or(Self::Portable)
    }
}

/// Whether products of unsigned with signed bytes saturate in the usual kernels of this machine: x86 without VNNI has
/// only an instruction that adds two of them in 16 bits.
#[must_use]
pub fn byte_products_saturate() -> bool {
    #[cfg(target_arch = "x86_64")]
    return !std::arch::is_x86_feature_detected!("avx512vnni") && !std::arch::is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    false
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
