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

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self::Utf8(text.as_bytes())
    }
}
