//! Token estimates by the published script rule.
//!
//! Counts are exact integers; an estimate depends on the text alone, whatever width it is stored in.

use crate::script::Script;
use crate::simd::ascii_and_cjk;
use crate::text::Text;

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

/// Units whose matches an 8-bit sum can hold.
const BLOCK: usize = u8::MAX as usize;

/// Counts in blocks of 8-bit sums, which the compiler turns into vector code for every instruction set.
fn count<U: Copy>(units: &[U], is: impl Fn(U) -> bool) -> usize {
    units.chunks(BLOCK).map(|block| usize::from(block.iter().map(|&unit| u8::from(is(unit))).sum::<u8>())).sum()
}

/// Splits the first code point off; a byte that starts no complete sequence stands for itself.
fn next_code_point(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let continuation = |byte: u8| (byte & 0xC0 == 0x80).then_some(u32::from(byte & 0x3F));
    let (&first, rest) = bytes.split_first()?;
    let lead = u32::from(first);
    let decoded = match (first, rest) {
        (0xC2..=0xDF, &[a, ref tail @ ..]) => continuation(a).map(|a| ((lead & 0x1F) << 6 | a, tail)),
        (0xE0..=0xEF, &[a, b, ref tail @ ..]) => {
            continuation(a).zip(continuation(b)).map(|(a, b)| ((lead & 0x0F) << 12 | a << 6 | b, tail))
        }
        (0xF0..=0xF4, &[a, b, c, ref tail @ ..]) => continuation(a)
            .zip(continuation(b))
            .zip(continuation(c))
            .map(|((a, b), c)| ((lead & 0x07) << 18 | a << 12 | b << 6 | c, tail)),
        _ => None,
    };
    Some(decoded.unwrap_or((lead, rest)))
}
