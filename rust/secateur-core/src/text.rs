//! Text in the widths that interpreters store it in, so that it can be read in place.

/// A borrowed text: one code point per element, or UTF-8.
#[derive(Debug, Clone, Copy)]
pub enum Text<'a> {
    /// One byte per code point, U+0000 to U+007F, as the owner of the text knows: its length says all about its script.
    Ascii(&'a [u8]),
    /// One byte per code point, U+0000 to U+00FF.
    Latin1(&'a [u8]),
    /// Two bytes per code point, U+0000 to U+FFFF, lone surrogates included.
    Ucs2(&'a [u16]),
    /// Four bytes per code point.
    Ucs4(&'a [u32]),
    /// UTF-8 in which surrogates may be encoded too (three bytes each). Bytes that are not so encoded are read as
    /// one code point each.
    Utf8(&'a [u8]),
}

impl Text<'_> {
    /// How many elements (bytes, or code units) are stored: the measure of the work to read it.
    #[must_use]
    pub const fn units(&self) -> usize {
        match self {
            Self::Ascii(units) | Self::Latin1(units) | Self::Utf8(units) => units.len(),
            Self::Ucs2(units) => units.len(),
            Self::Ucs4(units) => units.len(),
        }
    }
}

impl Text<'_> {
    /// The first `units` elements, or a little less, so that no character is torn.
    #[must_use]
    pub fn prefix(&self, units: usize) -> Self {
        fn cut<U>(all: &[U], units: usize) -> &[U] {
            all.get(..units).unwrap_or(all)
        }
        match *self {
            Self::Ascii(all) => Self::Ascii(cut(all, units)),
            Self::Latin1(all) => Self::Latin1(cut(all, units)),
            Self::Ucs2(all) => Self::Ucs2(cut(all, units)),
            Self::Ucs4(all) => Self::Ucs4(cut(all, units)),
            Self::Utf8(all) => {
                let begins = |&at: &usize| all.get(at).is_none_or(|byte| byte & 0xC0 != 0x80);
                Self::Utf8(cut(all, (0..=units).rev().find(begins).unwrap_or(units)))
            }
        }
    }

    /// Bytes in UTF-8; lone surrogates take three.
    #[must_use]
    pub fn utf8_length(&self) -> u64 {
        let bytes = match *self {
            Self::Ascii(units) | Self::Utf8(units) => units.len(),
            Self::Latin1(units) => units.len() + count(units, |unit| unit >= 0x80),
            Self::Ucs2(units) => units.len() + count(units, |unit| unit >= 0x80) + count(units, |unit| unit >= 0x800),
            Self::Ucs4(units) => {
                let above = |least: u32| count(units, |unit| unit >= least);
                units.len() + above(0x80) + above(0x800) + above(0x1_0000)
            }
        };
        bytes as u64
    }

    /// Appends the text, with U+FFFD in place of what is no character.
    pub fn append_to(&self, text: &mut String) {
        let character = |point: u32| char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER);
        match *self {
            Self::Ascii(units) => text.push_str(&String::from_utf8_lossy(units)),
            Self::Latin1(units) => text.extend(units.iter().map(|&unit| char::from(unit))),
            Self::Ucs2(units) => text.extend(units.iter().map(|&unit| character(unit.into()))),
            Self::Ucs4(units) => text.extend(units.iter().map(|&unit| character(unit))),
            Self::Utf8(bytes) => text.push_str(&String::from_utf8_lossy(bytes)),
        }
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        if text.is_ascii() { Self::Ascii(text.as_bytes()) } else { Self::Utf8(text.as_bytes()) }
    }
}

/// Splits the first code point off; a byte that starts no complete sequence stands for itself.
pub(crate) fn next_code_point(bytes: &[u8]) -> Option<(u32, &[u8])> {
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

/// Units whose matches an 8-bit sum can hold.
pub(crate) const BLOCK: usize = u8::MAX as usize;

/// Counts in blocks of 8-bit sums, which the compiler turns into vector code for every instruction set.
pub(crate) fn count<U: Copy>(units: &[U], is: impl Fn(U) -> bool) -> usize {
    units.chunks(BLOCK).map(|block| usize::from(block.iter().map(|&unit| u8::from(is(unit))).sum::<u8>())).sum()
}
