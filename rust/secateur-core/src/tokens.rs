//! Token estimates by the published script rule.
//!
//! Counts are exact integers; an estimate depends on the text alone, whatever width it is stored in.

use crate::script::Script;
use crate::simd::ascii_and_cjk;
use crate::text::{BLOCK, Text, count, next_code_point};

/// How many characters (code points) of each script class a text has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScriptCounts {
    /// Characters below U+0080.
    pub ascii: usize,
    /// Chinese, Japanese and Korean characters.
    pub cjk: usize,
    /// All others.
    pub other: usize,
}

impl ScriptCounts {
    /// Counts a text in one pass, none where it is known to be ASCII.
    #[must_use]
    pub fn of(text: Text<'_>) -> Self {
        match text {
            Text::Ascii(units) => Self { ascii: units.len(), cjk: 0, other: 0 },
            Text::Latin1(units) => {
                let ascii = count(units, |unit| unit < 0x80);
                Self { ascii, cjk: 0, other: units.len() - ascii }
            }
            Text::Ucs2(units) => Self::of_ucs2(units),
            Text::Ucs4(units) => Self::of_ucs4(units),
            Text::Utf8(bytes) => Self::of_utf8(bytes),
        }
    }

    /// Tokens by the published rule: four ASCII characters a token, one Chinese, Japanese or Korean, two of all
    /// else; each class rounded up.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.ascii.div_ceil(4) + self.cjk + self.other.div_ceil(2)
    }

    fn of_ucs2(units: &[u16]) -> Self {
        let (ascii, cjk) = ascii_and_cjk(units);
        Self { ascii, cjk, other: units.len() - ascii - cjk }
    }

    fn of_ucs4(units: &[u32]) -> Self {
        let (mut ascii, mut cjk) = (0, 0);
        // Block by block, so that the second count finds its units in the first cache.
        for block in units.chunks(BLOCK) {
            ascii += count(block, |unit| unit < 0x80);
            cjk += count(block, |unit| matches!(Script::of(unit), Script::Cjk));
        }
        Self { ascii, cjk, other: units.len() - ascii - cjk }
    }

    fn of_utf8(bytes: &[u8]) -> Self {
        let mut counts = Self::default();
        let mut rest = bytes;
        while let Some((code_point, tail)) = next_code_point(rest) {
            match Script::of(code_point) {
                Script::Ascii => counts.ascii += 1,
                Script::Cjk => counts.cjk += 1,
                Script::Other => counts.other += 1,
            }
            rest = tail;
        }
        counts
    }
}
