//! Counting the conditions of [`crate::Features`] over a block of class bytes.
//!
//! Masks of what characters are come first; then each group of conditions walks over the block with its counters in
//! registers, since counters in memory cost a store each (measured: benches/NOTES.md).

use super::InstructionSet;
use super::bytes::{Bytes, Portable};
use crate::class_table::{LAST_HAN, LAST_LATIN, LAST_LETTER};

/// Characters of a block: fewer than counters of eight bits can hold with vectors of 16 bytes, and its masks stay in the
/// first cache.
pub(crate) const BLOCK: usize = 2048;
/// Characters before a block that conditions look back on, and room behind it for the last vector.
pub(crate) const MARGIN: usize = 32;
const LENGTH: usize = BLOCK + 3 * MARGIN;
/// Loops over a block and one character of padding stay within the arrays, with vectors of 32 bytes.
const FITS: () = assert!(MARGIN + BLOCK + 1 + MARGIN / 2 + 32 <= LENGTH);
/// The class byte of no character.
pub(crate) const NOTHING: u8 = 0xFF;

/// The conditions counted for every text, in their order. A run is of equal kind, without a break; "letter 3" counts
/// the letters that are at least the third of their run.
pub(crate) const NAMES: [&str; GENERAL + FOREIGN] = [
    // Kinds of characters.
    "letter",
    "upper",
    "digit",
    "space",
    "newline",
    "tab",
    "punctuation",
    // Words.
    "word",
    "word after space",
    "word after punctuation",
    "letter 3",
    "letter 5",
    "letter 8",
    "case change",
    "capital",
    "hump",
    // Numbers and runs of signs.
    "number",
    "digit 2",
    "digit 4",
    "digit 4 or 7 exactly",
    "signs",
    "punctuation 2",
    "punctuation after letter",
    "punctuation repeated",
    // Gaps.
    "gap",
    "spaces",
    "space 5",
    "newline 2",
    "space after newline",
    // Letters that tell languages apart.
    "letter k",
    "letter j",
    "letter z",
    "letter h",
    "letter d",
    "letter o",
    "letter t",
    "letter a",
    "letter c",
    "letter u",
    // Edges of words.
    "word ends in a",
    "word ends in i",
    "word ends in y",
    "word ends in d",
    "word ends in e",
    "word begins with t",
    "word begins with w",
    "word after _",
    "word after .",
    "word after /",
    // Signs.
    "sign -",
    "sign ,",
    "sign _",
    "sign .",
    "sign (",
    "sign \"",
    "sign :",
    "sign [",
    "sign /",
    // What is not ASCII.
    "other word",
    "other word after space",
    "other letter 3",
    "Chinese run",
    "sign run",
    "foreign run",
    "foreign run after space",
];
/// Conditions counted for every text.
pub(crate) const GENERAL: usize = 58;
/// Conditions counted where there is anything but ASCII.
pub(crate) const FOREIGN: usize = 7;

/// A block of class bytes, and what its characters are.
#[repr(C, align(64))]
pub(crate) struct Masks {
    /// `MARGIN` bytes of what stands before, then the block, then [`NOTHING`].
    pub(crate) text: [u8; LENGTH],
    letter: [u8; LENGTH],
    /// Letters that are at least the fourth of their run.
    letter4: [u8; LENGTH],
    upper: [u8; LENGTH],
    digit: [u8; LENGTH],
    /// Digits that are at least the fourth of their run.
    digit4: [u8; LENGTH],
    space: [u8; LENGTH],
    gap: [u8; LENGTH],
    punctuation: [u8; LENGTH],
}

impl Default for Masks {
    fn default() -> Self {
        let blank = [0; LENGTH];
        Self {
            text: blank,
            letter: blank,
            letter4: blank,
            upper: blank,
            digit: blank,
            digit4: blank,
            space: blank,
            gap: blank,
            punctuation: blank,
        }
    }
}

/// Adds the counts of `length` characters of the block in `masks.text`, at most [`BLOCK`] and one of padding, with an
/// instruction set; the portable one where that is not there.
pub(crate) fn count(
    set: InstructionSet,
    masks: &mut Masks,
    length: usize,
    foreign: bool,
    counts: &mut [u32; GENERAL + FOREIGN],
) {
    let () = FITS;
    let length = length.min(BLOCK + 1);
    // SAFETY: the instruction set has been detected or is part of the architecture; `length` is within the block.
    unsafe {
        match set {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 | InstructionSet::Avx512 if InstructionSet::Avx2.is_available() => {
                count_avx2(masks, length, foreign, counts);
            }
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Baseline => count_in::<super::bytes::Sse2>(masks, length, foreign, counts),
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Baseline | InstructionSet::DotProduct => {
                count_in::<super::bytes::Neon>(masks, length, foreign, counts)
            }
            _ => count_in::<Portable>(masks, length, foreign, counts),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn count_avx2(masks: &mut Masks, length: usize, foreign: bool, counts: &mut [u32; GENERAL + FOREIGN]) {
    // SAFETY: AVX2 is there, as the attribute says; `length` is the caller's.
    unsafe { count_in::<super::bytes::Avx2>(masks, length, foreign, counts) }
}

/// A walk over the vectors of a block: `counter[n] += condition` for each of a group.
macro_rules! walk {
    ($masks:ident, $length:ident, $counts:ident, $vector:ty, |$at:ident| { $($setup:stmt;)* } $($condition:expr,)+) => {{
        const GROUP: usize = [$(stringify!($condition)),+].len();
        let mut counters = [<$vector>::splat(0); GROUP];
        let mut $at = MARGIN;
        while $at < MARGIN + $length {
            $($setup)*
            let conditions = [$($condition),+];
            for (counter, condition) in counters.iter_mut().zip(conditions) {
                *counter = counter.minus(condition);
            }
            $at += <$vector>::WIDTH;
        }
        for counter in counters {
            if let Some(count) = $counts.next() {
                *count += counter.sum();
            }
        }
    }};
}

/// # Safety
///
/// The instruction set of `V` is there, and `length` is at most [`BLOCK`] + 1.
// Only inside its caller is it compiled for that caller's instruction set; one list of conditions reads better whole.
#[allow(clippy::inline_always, clippy::too_many_lines)]
#[inline(always)]
unsafe fn count_in<V: Bytes>(masks: &mut Masks, length: usize, foreign: bool, counts: &mut [u32; GENERAL + FOREIGN]) {
    let mut counts = counts.iter_mut();
    // SAFETY: every access lies in MARGIN - 7 .. MARGIN + length + 32 of arrays of LENGTH bytes, which FITS says is enough.
    unsafe {
        set_masks::<V>(masks, length, foreign);
        let m = &*masks;
        let load = |array: &[u8; LENGTH], at: usize| V::load(array.as_ptr().add(at));
        let byte = |value: u8| V::splat(value);
        walk!(m, length, counts, V, |at| { let text = load(&m.text, at); }
            load(&m.letter, at),
            load(&m.upper, at),
            load(&m.digit, at),
            load(&m.space, at),
            text.equal(byte(b'\n')),
            text.equal(byte(b'\t')),
            load(&m.punctuation, at),
        );
        walk!(m, length, counts, V, |at| {
                let letter = load(&m.letter, at);
                let before = load(&m.letter, at - 1);
                let word = letter.without(before);
                let four = load(&m.letter4, at);
                let fourth_back = load(&m.letter4, at - 4);
                let three = letter.and(before).and(load(&m.letter, at - 2));
                let upper = load(&m.upper, at);
                let upper_before = load(&m.upper, at - 1);
                let lower = letter.without(upper);
                let lower_before = before.without(upper_before);
                let falls = lower.and(upper_before);
            }
            word,
            word.and(load(&m.space, at - 1)),
            word.and(load(&m.punctuation, at - 1)),
            three,
            four.and(load(&m.letter, at - 4)),
            four.and(fourth_back),
            falls.or(upper.and(lower_before)),
            upper.and(word),
            falls.and(load(&m.letter, at - 2)).without(load(&m.upper, at - 2)),
        );
        walk!(m, length, counts, V, |at| {
                let digit = load(&m.digit, at);
                let before = load(&m.digit, at - 1);
                let four = load(&m.digit4, at);
                let fourth = four.without(load(&m.digit, at - 4));
                let seventh = four.and(load(&m.digit4, at - 3)).without(load(&m.digit, at - 7));
                let punctuation = load(&m.punctuation, at);
                let punctuation_before = load(&m.punctuation, at - 1);
            }
            digit.without(before),
            digit.and(before),
            four,
            fourth.or(seventh),
            punctuation.without(punctuation_before),
            punctuation.and(punctuation_before),
            punctuation.and(load(&m.letter, at - 1)),
            punctuation.and(load(&m.text, at).equal(load(&m.text, at - 1))),
        );
        walk!(m, length, counts, V, |at| {
                let gap = load(&m.gap, at);
                let space = load(&m.space, at);
                let two = space.and(load(&m.space, at - 1));
                let third = load(&m.space, at - 2);
                let newline = load(&m.text, at).equal(byte(b'\n'));
                let newline_before = load(&m.text, at - 1).equal(byte(b'\n'));
            }
            gap.without(load(&m.gap, at - 1)),
            two.without(third),
            two.and(third).and(load(&m.space, at - 3)).and(load(&m.space, at - 4)),
            newline.and(newline_before),
            space.and(newline_before),
        );
        walk!(m, length, counts, V, |at| { let folded = load(&m.text, at).or(byte(0x20)); }
            folded.equal(byte(b'k')),
            folded.equal(byte(b'j')),
            folded.equal(byte(b'z')),
            folded.equal(byte(b'h')),
            folded.equal(byte(b'd')),
            folded.equal(byte(b'o')),
            folded.equal(byte(b't')),
            folded.equal(byte(b'a')),
            folded.equal(byte(b'c')),
            folded.equal(byte(b'u')),
        );
        walk!(m, length, counts, V, |at| {
                let letter = load(&m.letter, at);
                let before = load(&m.letter, at - 1);
                let word = letter.without(before);
                let end = before.without(letter);
                let first = load(&m.text, at).or(byte(0x20));
                let raw = load(&m.text, at - 1);
                let last = raw.or(byte(0x20));
            }
            end.and(last.equal(byte(b'a'))),
            end.and(last.equal(byte(b'i'))),
            end.and(last.equal(byte(b'y'))),
            end.and(last.equal(byte(b'd'))),
            end.and(last.equal(byte(b'e'))),
            word.and(first.equal(byte(b't'))),
            word.and(first.equal(byte(b'w'))),
            word.and(raw.equal(byte(b'_'))),
            word.and(raw.equal(byte(b'.'))),
            word.and(raw.equal(byte(b'/'))),
        );
        walk!(m, length, counts, V, |at| { let text = load(&m.text, at); }
            text.equal(byte(b'-')),
            text.equal(byte(b',')),
            text.equal(byte(b'_')),
            text.equal(byte(b'.')),
            text.equal(byte(b'(')),
            text.equal(byte(b'"')),
            text.equal(byte(b':')),
            text.equal(byte(b'[')),
            text.equal(byte(b'/')),
        );
        if foreign {
            walk!(m, length, counts, V, |at| {
                    let space_before = load(&m.space, at - 1);
                    let [other, other1, other2] = [0, 1, 2].map(|back| other_letter(load(&m.text, at - back)));
                    let word = other.without(other1);
                    let [(chinese, sign), (chinese_before, sign_before)] = [0, 1].map(|back| chinese_and_sign(load(&m.text, at - back)));
                    let [all, all_before] = [0, 1].map(|back| foreign_character(load(&m.text, at - back)));
                    let run = all.without(all_before);
                }
                word,
                word.and(space_before),
                other.and(other1).and(other2),
                chinese.without(chinese_before),
                sign.without(sign_before),
                run,
                run.and(space_before),
            );
        }
    }
}

/// Writes the masks of a block, and of the margin before it.
#[allow(clippy::inline_always)] // Only inside its caller is it compiled for that caller's instruction set.
#[inline(always)]
unsafe fn set_masks<V: Bytes>(m: &mut Masks, length: usize, foreign: bool) {
    let mut at = 0;
    while at < MARGIN + length {
        // SAFETY: from 0 to at most MARGIN + length + 31.
        unsafe {
            let text = V::load(m.text.as_ptr().add(at));
            let folded = text.or(V::splat(0x20));
            let mut letter = within(folded, b'a', b'z');
            if foreign {
                letter = letter.or(within(text, 0x80, LAST_LATIN));
            }
            let digit = within(text, b'0', b'9');
            let space = text.equal(V::splat(b' '));
            let gap = space.or(within(text, b'\t', b'\r'));
            let ascii = text.at_most(V::splat(0x7F));
            let ascii_letter = letter.and(ascii);
            letter.store(m.letter.as_mut_ptr().add(at));
            ascii_letter.without(text.and(V::splat(0x20)).equal(V::splat(0x20))).store(m.upper.as_mut_ptr().add(at));
            digit.store(m.digit.as_mut_ptr().add(at));
            space.store(m.space.as_mut_ptr().add(at));
            gap.store(m.gap.as_mut_ptr().add(at));
            ascii.without(letter).without(digit).without(gap).store(m.punctuation.as_mut_ptr().add(at));
        }
        at += V::WIDTH;
    }
    // Half a margin in, so that three more characters stand before; and as far behind, where vectors end elsewhere.
    let mut at = MARGIN / 2;
    while at < MARGIN + length + MARGIN / 2 {
        // SAFETY: from MARGIN / 2 - 3 to at most MARGIN + length + MARGIN / 2 + 31.
        unsafe {
            run::<V, 4>(&m.digit, at).store(m.digit4.as_mut_ptr().add(at));
            run::<V, 4>(&m.letter, at).store(m.letter4.as_mut_ptr().add(at));
        }
        at += V::WIDTH;
    }
}

/// Where the last `N` characters all are of a kind.
#[allow(clippy::inline_always)] // Only inside its caller is it compiled for that caller's instruction set.
#[inline(always)]
unsafe fn run<V: Bytes, const N: usize>(mask: &[u8; LENGTH], at: usize) -> V {
    // SAFETY: the caller's places reach back at least N characters.
    unsafe {
        let mut all = V::load(mask.as_ptr().add(at));
        let mut back = 1;
        while back < N {
            all = all.and(V::load(mask.as_ptr().add(at - back)));
            back += 1;
        }
        all
    }
}

#[allow(clippy::inline_always)] // Only inside its caller is it compiled for that caller's instruction set.
#[inline(always)]
unsafe fn within<V: Bytes>(text: V, first: u8, last: u8) -> V {
    // SAFETY: the caller has the instruction set.
    unsafe { text.minus(V::splat(first)).at_most(V::splat(last - first)) }
}

#[allow(clippy::inline_always)] // Only inside its caller is it compiled for that caller's instruction set.
#[inline(always)]
unsafe fn other_letter<V: Bytes>(text: V) -> V {
    // SAFETY: the caller has the instruction set.
    unsafe { within(text, LAST_HAN + 1, LAST_LETTER) }
}

#[allow(clippy::inline_always)] // Only inside its caller is it compiled for that caller's instruction set.
#[inline(always)]
unsafe fn chinese_and_sign<V: Bytes>(text: V) -> (V, V) {
    // SAFETY: the caller has the instruction set.
    unsafe { (within(text, LAST_LATIN + 1, LAST_HAN), within(text, LAST_LETTER + 1, NOTHING - 1)) }
}

#[allow(clippy::inline_always)] // Only inside its caller is it compiled for that caller's instruction set.
#[inline(always)]
unsafe fn foreign_character<V: Bytes>(text: V) -> V {
    // SAFETY: the caller has the instruction set.
    unsafe { within(text, 0x80, NOTHING - 1) }
}
