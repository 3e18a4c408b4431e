//! The three script classes of the published token rule.

/// What a character counts as in the published rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// Below U+0080: four characters a token.
    Ascii,
    /// Chinese, Japanese, Korean: one character a token.
    Cjk,
    /// Everything else (Cyrillic, Greek, Arabic, accented letters, emoji): two characters a token.
    Other,
}

impl Script {
    /// The class of a code point. Lone surrogates, which Python strings may hold, are `Other`.
    #[must_use]
    pub const fn of(code_point: u32) -> Self {
        match code_point {
            0..=0x7F => Self::Ascii,
            // Hangul Jamo; CJK radicals up to the Hangul syllables; compatibility ideographs; every plane from 2 up.
            0x1100..=0x11FF | 0x2E80..=0xD7FF | 0xF900..=0xFAFF | 0x2_0000.. => Self::Cjk,
            _ => Self::Other,
        }
    }

    /// Whether a code point below U+10000 is `Cjk`: the ranges of [`Script::of`] in 16 bits and without branches,
    /// for vector code.
    #[inline]
    pub(crate) const fn is_cjk_of_plane_0(code_point: u16) -> bool {
        (code_point.wrapping_sub(0x1100) <= 0xFF)
            | (code_point.wrapping_sub(0x2E80) <= 0xD7FF - 0x2E80)
            | (code_point.wrapping_sub(0xF900) <= 0x1FF)
    }
}
