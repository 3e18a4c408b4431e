//! What one pass over a text counts: the features from which tokens are estimated.
//!
//! A text is read as class bytes: an ASCII character is itself, any other the code of its class (`class_table`).
//! Each feature counts the places where a condition on a character and a few before it holds, so that counts of
//! texts add up. They depend on the characters alone, whatever width they are stored in and whatever the instruction
//! set; `tests/features.rs` keeps the naive twin.

// Tables of 256 entries are indexed by bytes, those of 65,536 by 16 bits; sums by a number below their count.
#![allow(clippy::indexing_slicing)]

use std::cell::RefCell;
use std::sync::OnceLock;

use crate::class_table::{BEYOND, LAST_HAN, LAST_LATIN, LAST_LETTER, PAGES, TABLE};
use crate::simd::InstructionSet;
use crate::simd::kernel::{self, BLOCK, MARGIN, Masks};
use crate::text::{Text, next_code_point};

/// How many conditions are counted for every text.
pub(crate) const GENERAL: usize = kernel::GENERAL;
/// How many more are counted where there is anything but ASCII.
const FOREIGN: usize = kernel::FOREIGN;
/// Latin letters, Chinese and Japanese, other letters, signs, and all of them: sums of classes.
const SUMS: usize = 5;
/// Codes from 0x80 up to 0xFE.
const CLASSES: usize = crate::class_table::NAMES.len();
/// All features.
pub const FEATURES: usize = GENERAL + FOREIGN + SUMS + CLASSES;

/// From how many characters on only a part of the blocks is read.
pub const SAMPLED_FROM: usize = 32 * 1024;
/// Characters that are read at least where a text is sampled.
const SAMPLE: usize = 16 * 1024;
/// At most one block of so many is read.
const SPARSEST: usize = 4;
/// From how many characters on classes are counted in four tables.
const TURNS_FROM: usize = 256;
/// Characters of a block of a sampled text: small, so that the sample is spread.
const SAMPLED_BLOCK: usize = 256;

/// The counts of one text, or the sum over several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// How often each condition holds, in the order of [`feature_names`].
    pub counts: [u32; FEATURES],
    /// Characters (code points).
    pub characters: u64,
    /// Bytes in UTF-8; lone surrogates take three.
    pub bytes: u64,
}

impl Default for Features {
    fn default() -> Self {
        Self { counts: [0; FEATURES], characters: 0, bytes: 0 }
    }
}

thread_local! {
    // Kept, since clearing so much for each short text would cost more than reading it.
    static SCANNER: RefCell<Box<Scanner>> = RefCell::new(Box::default());
}

impl Features {
    /// Reads a text.
    ///
    /// Texts of [`SAMPLED_FROM`] characters and more are sampled: of blocks of 256 characters one in two to four, in a
    /// fixed irregular order, at least 16 Ki characters in all, and the counts scaled up.
    #[must_use]
    pub fn of(text: Text<'_>) -> Self {
        let mut features = Self::default();
        features.add(text);
        features
    }

    /// Whether there was nothing but ASCII.
    #[must_use]
    pub fn is_ascii(&self) -> bool {
        self.bytes == self.characters
    }

    /// Reads a text with an instruction set of choice; all give the same counts.
    #[must_use]
    pub fn of_with(set: InstructionSet, text: Text<'_>) -> Self {
        let mut features = Self::default();
        SCANNER.with_borrow_mut(|scanner| {
            let best = std::mem::replace(&mut scanner.set, set);
            scanner.read(&mut features, text);
            scanner.set = best;
        });
        features
    }

    /// Adds the counts of another text, as if a line break stood before it.
    pub fn add(&mut self, text: Text<'_>) {
        SCANNER.with_borrow_mut(|scanner| scanner.read(self, text));
    }
}

/// The class of a character: itself for ASCII.
#[must_use]
pub fn class_of(point: u32) -> u8 {
    if point < 0x80 {
        return point as u8;
    }
    let (index, pages) = TABLE.split_at(2 * PAGES);
    let page = index.as_chunks().0.get((point >> 7) as usize).map(|&page| usize::from(u16::from_le_bytes(page)) << 7);
    page.and_then(|page| pages.get(page | (point as usize & 0x7F))).copied().unwrap_or(BEYOND)
}

/// The classes of plane 0, one after the other: one look-up a character in place of two, for 64 KiB.
fn plane_0() -> &'static [u8; 0x1_0000] {
    static CLASSES: OnceLock<Box<[u8; 0x1_0000]>> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let classes: Vec<u8> = (0..0x1_0000).map(class_of).collect();
        // As many as there are numbers of 16 bits, so that it is an array of that length.
        classes.try_into().unwrap_or_else(|_| unreachable!("the range has that length"))
    })
}

fn copy_ascii(units: &[u8], at: usize, into: &mut [u8]) -> bool {
    if let Some(units) = units.get(at..at + into.len()) {
        into.copy_from_slice(units);
    }
    false
}

/// Writes the classes of the units from `at` on; whether there is anything but ASCII.
fn translate<U>(units: &[U], at: usize, into: &mut [u8], class: impl Fn(&U) -> u8) -> bool {
    let units = units.get(at..).unwrap_or_default();
    let mut all = 0;
    for (into, unit) in into.iter_mut().zip(units) {
        *into = class(unit);
        all |= *into;
    }
    all >= 0x80
}

/// The place where blocks are laid out and their masks are kept.
struct Scanner {
    set: InstructionSet,
    masks: Masks,
    /// Four tables in turn, since equal classes follow each other and each count waits for the one before.
    classes: [[u32; 256]; 4],
    /// Whether more than the first is in use.
    in_turns: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self { set: InstructionSet::best(), masks: Masks::default(), classes: [[0; 256]; 4], in_turns: false }
    }
}

impl Scanner {
    /// Adds the counts of a text.
    fn read(&mut self, features: &mut Features, text: Text<'_>) {
        features.bytes += text.utf8_length();
        match text {
            Text::Ascii(units) => self.scan(features, units.len(), |at, into| copy_ascii(units, at, into)),
            Text::Latin1(units) => {
                self.scan(features, units.len(), |at, into| translate(units, at, into, |&unit| class_of(unit.into())));
            }
            Text::Ucs2(units) => {
                let classes = plane_0();
                let class = |&unit: &u16| classes[usize::from(unit)];
                self.scan(features, units.len(), |at, into| translate(units, at, into, class));
            }
            Text::Ucs4(units) => {
                self.scan(features, units.len(), |at, into| translate(units, at, into, |&unit| class_of(unit)));
            }
            Text::Utf8(bytes) => {
                // Blocks are counted in characters, so that a sample is the same in every width.
                let classes: Vec<u8> = std::iter::successors(next_code_point(bytes), |(_, rest)| next_code_point(rest))
                    .map(|(point, _)| class_of(point))
                    .collect();
                self.scan(features, classes.len(), |at, into| translate(&classes, at, into, |&class| class));
            }
        }
    }

    /// Adds the counts of a text of `length` characters; `fill` writes the classes of those from a place on.
    fn scan(&mut self, features: &mut Features, length: usize, mut fill: impl FnMut(usize, &mut [u8]) -> bool) {
        features.characters += length as u64;
        let sparse = if length < SAMPLED_FROM { 1 } else { (length / SAMPLE).min(SPARSEST) };
        let size = if sparse == 1 { BLOCK } else { SAMPLED_BLOCK };
        let mut counts = [0; GENERAL + FOREIGN];
        let (mut read, mut foreign) = (0, false);
        for (place, start) in (0..length).step_by(size).enumerate() {
            // In 32 bits, so that it is the same on every machine.
            let group = (place / sparse) as u32;
            // A multiplicative hash, so that no regularity of the text meets one of the sample.
            let chosen = (group.wrapping_mul(0x9E37_79B1) >> 16) as usize % sparse;
            if place % sparse != chosen {
                continue;
            }
            let end = (start + size).min(length);
            let foreign_here = self.read_block(start, end, &mut fill);
            let with_end = end - start + usize::from(end == length);
            kernel::count(self.set, &mut self.masks, with_end, foreign_here, &mut counts);
            if foreign_here {
                foreign = true;
                self.count_classes(end - start);
            }
            read += end - start;
        }
        // Counts are below 2^32: Python has no string so long that they are not, and saturate if one is made.
        let scaled = |count: u32| {
            if read == length { count } else { (u64::from(count) * length as u64 / read.max(1) as u64) as u32 }
        };
        for (sum, &count) in features.counts.iter_mut().zip(&counts) {
            *sum = sum.saturating_add(scaled(count));
        }
        if foreign {
            self.add_classes(features, scaled);
        }
    }

    /// Lays out a block, with what stands before it; whether there is anything but ASCII.
    fn read_block(&mut self, start: usize, end: usize, fill: &mut impl FnMut(usize, &mut [u8]) -> bool) -> bool {
        let text = &mut self.masks.text;
        let before = start.min(MARGIN);
        let (margin, block) = text.split_at_mut(MARGIN);
        let (blank, known) = margin.split_at_mut(MARGIN - before);
        blank.fill(b'\n');
        let foreign_before = fill(start - before, known);
        let foreign = block.get_mut(..end - start).is_some_and(|block| fill(start, block));
        if let Some(rest) = block.get_mut(end - start..) {
            // Nothing, for which no condition holds but that a word ends before it.
            let pad = rest.len().min(2 * MARGIN);
            rest[..pad].fill(kernel::NOTHING);
        }
        foreign || foreign_before
    }

    fn count_classes(&mut self, length: usize) {
        let [a, b, c, d] = &mut self.classes;
        let block = self.masks.text.get(MARGIN..MARGIN + length).unwrap_or_default();
        // Clearing and adding up four tables costs as much as counting so many characters in one.
        let (fours, rest) = if length < TURNS_FROM { (&[][..], block) } else { block.as_chunks::<4>() };
        self.in_turns |= !fours.is_empty();
        for &[w, x, y, z] in fours {
            a[usize::from(w)] += 1;
            b[usize::from(x)] += 1;
            c[usize::from(y)] += 1;
            d[usize::from(z)] += 1;
        }
        for &class in rest {
            a[usize::from(class)] += 1;
        }
    }

    fn add_classes(&mut self, features: &mut Features, scaled: impl Fn(u32) -> u32) {
        let [counted, more @ ..] = &mut self.classes;
        if std::mem::take(&mut self.in_turns) {
            for table in more {
                for (sum, count) in counted.iter_mut().zip(table.iter_mut()) {
                    *sum += std::mem::take(count);
                }
            }
        }
        let mut sums = [0_u32; SUMS];
        let (_, rest) = features.counts.split_at_mut(GENERAL + FOREIGN);
        let (of_sums, of_classes) = rest.split_at_mut(SUMS);
        for ((code, into), count) in (0x80..=0xFE_u8).zip(of_classes).zip(&counted[0x80..]) {
            if *count == 0 {
                continue;
            }
            let count = scaled(*count);
            *into = into.saturating_add(count);
            let sum = usize::from(code > LAST_LATIN) + usize::from(code > LAST_HAN) + usize::from(code > LAST_LETTER);
            sums[sum] += count;
            sums[SUMS - 1] += count;
        }
        for (sum, count) in of_sums.iter_mut().zip(sums) {
            *sum = sum.saturating_add(count);
        }
        counted.fill(0);
    }
}

/// The names of the features, in their order.
#[must_use]
pub fn feature_names() -> Vec<String> {
    let sums = ["latin letters", "Chinese and Japanese", "other letters", "signs not ASCII", "not ASCII"];
    let classes = crate::class_table::NAMES.iter().map(|name| format!("class {name}"));
    kernel::NAMES.iter().chain(&sums).map(|&name| name.to_owned()).chain(classes).collect()
}
