//! Splitting a text where tokenizers split it before they merge: into words with the sign before them, numbers, runs
//! of signs, blanks.
//!
//! Tokenizers do so by a regular expression; nearly all of them are variants of one, told apart by [`Rules`]. Here the
//! characters of a block become masks of 64 bits each, in which the beginnings of pre-tokens are found for all
//! characters at once; what needs a look further ahead is corrected after. `tests/fingerprint.rs` keeps the naive twin.

use std::sync::OnceLock;

use crate::simd::transpose;
use crate::text::{Text, next_code_point};

/// Bits of a character's code, as `tools/categories.py` writes them. A letter is upper, lower or
/// neither.
const LETTER: u8 = 0x80;
const UPPER: u8 = 0x40;
const LOWER: u8 = 0x20;
const NUMBER: u8 = 0x10;
const BLANK: u8 = 0x08;
const NEWLINE: u8 = 0x04;
/// A combining mark; with `SPECIAL`, a slash.
const MARK: u8 = 0x02;
/// Of blanks, the space; of letters, Chinese characters (and with `MARK`, Japanese syllables); else the apostrophe.
const SPECIAL: u8 = 0x01;
const APOSTROPHE: u8 = SPECIAL;
const SLASH: u8 = SPECIAL | MARK;

/// Characters that are split at once.
pub(crate) const CHUNK: usize = 4096;
/// How far back from the end of a chunk a place is looked for where a pre-token begins in any case.
const SEARCH: usize = 1024;
/// Bytes behind those of a chunk that can be read.
pub(crate) const PADDING: usize = 16;

/// The variants of the regular expression, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules(pub u16);

impl Rules {
    /// Each digit by itself, not up to three.
    pub const SINGLE_DIGITS: u16 = 1;
    /// Combining marks are part of words.
    pub const MARKS: u16 = 1 << 1;
    /// An upper-case letter behind a lower-case one begins a word.
    pub const CASES: u16 = 1 << 2;
    /// `'s`, `'ll` and the like are pre-tokens.
    pub const CONTRACTIONS: u16 = 1 << 3;
    /// `'s`, `'ll` and the like are part of the word before.
    pub const SUFFIXES: u16 = 1 << 4;
    /// Line breaks behind signs are part of their run.
    pub const SIGNED_BREAKS: u16 = 1 << 5;
    /// Slashes behind such line breaks are, too.
    pub const SLASHES: u16 = 1 << 6;
    /// Chinese characters are split from other letters, and take no sign before them.
    pub const HAN: u16 = 1 << 7;
    /// With `HAN`: Japanese syllables belong to the Chinese characters.
    pub const KANA: u16 = 1 << 8;
    /// Of signs and blanks only a space belongs to the word behind it, and of contractions only whole words are one.
    pub const SPACES: u16 = 1 << 9;
    /// Tokens are told apart by whether they begin a pre-token, and by whether they end one that is a word or has a
    /// space behind it.
    pub const EDGES: u16 = 1 << 10;
    /// All bits that have a meaning.
    pub const ALL: u16 = (1 << 11) - 1;

    pub(crate) const fn has(self, rule: u16) -> bool {
        self.0 & rule != 0
    }
}

/// The codes of plane 0 and the ranges above.
#[derive(Debug)]
struct Categories {
    plane_0: Vec<u8>,
    above: Vec<(u32, u8)>,
}

static RANGES: &[u8] = include_bytes!("../data/categories.bin");

fn categories() -> &'static Categories {
    static CATEGORIES: OnceLock<Categories> = OnceLock::new();
    CATEGORIES.get_or_init(|| {
        let mut plane_0 = vec![0; 0x1_0000];
        let (mut above, mut last) = (Vec::new(), 0);
        for &[a, b, c, code] in RANGES.as_chunks::<4>().0 {
            let first = u32::from_le_bytes([a, b, c, 0]);
            match plane_0.get_mut(first as usize..) {
                Some(rest) => {
                    rest.fill(code);
                    last = code;
                }
                None => above.push((first, code)),
            }
        }
        above.insert(0, (0x1_0000, last));
        Categories { plane_0, above }
    })
}

impl Categories {
    fn code(&self, point: u32) -> u8 {
        if let Some(&code) = self.plane_0.get(point as usize) {
            return code;
        }
        let behind = self.above.partition_point(|&(first, _)| first <= point);
        behind.checked_sub(1).and_then(|at| self.above.get(at)).map_or(0, |&(_, code)| code)
    }
}

/// The code of an ASCII character, without a table, so that the compiler makes vector code of it.
const fn ascii_code(byte: u8) -> u8 {
    const fn bits(holds: bool, code: u8) -> u8 {
        if holds { code } else { 0 }
    }
    bits(byte.wrapping_sub(b'a') < 26, LETTER | LOWER)
        | bits(byte.wrapping_sub(b'A') < 26, LETTER | UPPER)
        | bits(byte.wrapping_sub(b'0') < 10, NUMBER)
        | bits(byte == b'\n', NEWLINE)
        | bits(byte == b'\r', NEWLINE)
        | bits(byte == b'\t', BLANK)
        | bits(byte.wrapping_sub(0x0B) < 2, BLANK)
        | bits(byte == b' ', BLANK | SPECIAL)
        | bits(byte == b'\'', APOSTROPHE)
        | bits(byte == b'/', SLASH)
}

/// What 64 characters are, one bit each.
#[derive(Debug, Clone, Copy, Default)]
struct Masks {
    letter: u64,
    upper: u64,
    lower: u64,
    number: u64,
    blank: u64,
    newline: u64,
    mark: u64,
    special: u64,
    /// The characters that there are: all but in the last block.
    there: u64,
}

impl Masks {
    fn of(codes: &[u8; 64], there: u64) -> Self {
        let [letter, upper, lower, number, blank, newline, mark, special] = transpose::masks(codes);
        Self { letter, upper, lower, number, blank, newline, mark, special, there }
    }
}

/// Splits texts, chunk by chunk, in buffers that are kept.
#[derive(Debug)]
pub(crate) struct Splitter {
    codes: Vec<u8>,
    /// The chunk in UTF-8 and some bytes behind it.
    pub(crate) bytes: Vec<u8>,
    /// Where each character begins in it, unless all are ASCII.
    offsets: Vec<u32>,
    masks: Vec<Masks>,
    bounds: Vec<u64>,
    suspects: Vec<u32>,
    /// Where each pre-token begins in `bytes`; at last, where the chunk ends.
    pub(crate) starts: Vec<u32>,
    foreign: bool,
    categories: &'static Categories,
}

impl Default for Splitter {
    fn default() -> Self {
        Self {
            codes: vec![0; CHUNK + 64],
            bytes: vec![0; CHUNK * 4 + PADDING],
            offsets: vec![0; CHUNK + 1],
            masks: Vec::new(),
            bounds: Vec::new(),
            suspects: Vec::new(),
            starts: Vec::new(),
            foreign: false,
            categories: categories(),
        }
    }
}

/// Characters that are looked at together whether they are ASCII.
const SOME: usize = 16;

/// Writes a chunk of characters that are not all ASCII into the buffers.
struct Writer<'a> {
    splitter: &'a mut Splitter,
    length: usize,
    end: usize,
}

impl Writer<'_> {
    fn write(&mut self, point: u32) {
        let Splitter { codes, offsets, bytes, categories, .. } = &mut *self.splitter;
        let (encoded, more) = encode(point);
        if let (Some(code), Some(offset)) = (codes.get_mut(self.length), offsets.get_mut(self.length))
            && let Some(into) = bytes.get_mut(self.end..self.end + 4)
        {
            *code = categories.code(point);
            *offset = self.end as u32;
            into.copy_from_slice(&encoded.to_le_bytes());
        }
        self.end += more;
        self.length += 1;
    }

    fn write_ascii(&mut self, characters: [u8; SOME]) {
        let Splitter { codes, offsets, bytes, .. } = &mut *self.splitter;
        let (from, to) = (self.length, self.length + SOME);
        if let (Some(codes), Some(offsets)) = (codes.get_mut(from..to), offsets.get_mut(from..to))
            && let Some(into) = bytes.get_mut(self.end..self.end + SOME)
        {
            into.copy_from_slice(&characters);
            codes.copy_from_slice(&characters.map(ascii_code));
            for (offset, at) in offsets.iter_mut().zip(self.end as u32..) {
                *offset = at;
            }
        }
        self.end += SOME;
        self.length = to;
    }

    /// Whether there was more than ASCII.
    fn finish(self) -> bool {
        if let Some(offset) = self.splitter.offsets.get_mut(self.length) {
            *offset = self.end as u32;
        }
        self.end > self.length
    }
}

impl Splitter {
    /// Splits a text; `each` sees the splitter after each chunk.
    pub(crate) fn split(&mut self, text: Text<'_>, rules: Rules, mut each: impl FnMut(&mut Self)) {
        let mut at = 0;
        loop {
            let (length, foreign) = self.read(text, at);
            if length == 0 {
                return;
            }
            self.foreign = foreign;
            self.find(length, rules);
            self.list(length, foreign);
            each(self);
            at = match text {
                Text::Utf8(bytes) => (0..length).fold(at, |at, _| {
                    let rest = bytes.get(at..).unwrap_or_default();
                    next_code_point(rest).map_or(at, |(_, after)| bytes.len() - after.len())
                }),
                _ => at + length,
            };
        }
    }

    /// Reads a chunk from a unit on: how many characters, and whether they are more than ASCII.
    fn read(&mut self, text: Text<'_>, at: usize) -> (usize, bool) {
        let (length, whole, foreign) = match text {
            Text::Ascii(units) => {
                let units = units.get(at..).unwrap_or_default();
                let taken = units.get(..CHUNK).unwrap_or(units);
                if let Some(bytes) = self.bytes.get_mut(..taken.len()) {
                    bytes.copy_from_slice(taken);
                }
                for (code, &unit) in self.codes.iter_mut().zip(taken) {
                    *code = ascii_code(unit);
                }
                (taken.len(), taken.len() == units.len(), false)
            }
            Text::Latin1(units) => self.widen(units.get(at..).unwrap_or_default()),
            Text::Ucs2(units) => self.widen(units.get(at..).unwrap_or_default()),
            Text::Ucs4(units) => self.widen(units.get(at..).unwrap_or_default()),
            Text::Utf8(bytes) => {
                let mut rest = bytes.get(at..).unwrap_or_default();
                self.decode(std::iter::from_fn(|| {
                    let (point, after) = next_code_point(rest)?;
                    rest = after;
                    Some(point)
                }))
            }
        };
        let kept = if whole { length } else { self.cut(length) };
        let end = if foreign { self.offsets.get(kept).map_or(0, |&offset| offset as usize) } else { kept };
        if let Some(behind) = self.bytes.get_mut(end..end + PADDING) {
            behind.fill(0);
        }
        if let Some(behind) = self.codes.get_mut(kept..kept + 64) {
            behind.fill(0);
        }
        (kept, foreign)
    }

    /// Reads units that are code points: how many, whether all, and whether they are more than ASCII.
    fn widen<U: Copy + Into<u32>>(&mut self, units: &[U]) -> (usize, bool, bool) {
        let taken = units.get(..CHUNK).unwrap_or(units);
        let mut writer = Writer { splitter: self, length: 0, end: 0 };
        for some in taken.chunks(SOME) {
            match some.first_chunk::<SOME>().map(|some| some.map(Into::into)) {
                Some(some) if some.iter().all(|&point: &u32| point < 0x80) => {
                    writer.write_ascii(some.map(|point| point as u8));
                }
                _ => some.iter().for_each(|&unit| writer.write(unit.into())),
            }
        }
        let foreign = writer.finish();
        (taken.len(), taken.len() == units.len(), foreign)
    }

    /// The same for characters one by one.
    fn decode(&mut self, mut points: impl Iterator<Item = u32>) -> (usize, bool, bool) {
        let mut writer = Writer { splitter: self, length: 0, end: 0 };
        points.by_ref().take(CHUNK).for_each(|point| writer.write(point));
        let (length, foreign) = (writer.length, writer.finish());
        (length, length < CHUNK || points.next().is_none(), foreign)
    }

    /// Where a chunk that is not the last may end: before a space between letters, behind which nothing depends on
    /// what is before it.
    fn cut(&self, length: usize) -> usize {
        let is_letter = |code: u8| code & LETTER != 0;
        let codes = self.codes.get(..length).unwrap_or_default();
        let from = length.saturating_sub(SEARCH);
        let found = codes.windows(3).skip(from).rposition(|three| {
            matches!(*three, [before, code, after] if code == BLANK | SPECIAL && is_letter(before) && is_letter(after))
        });
        found.map_or(length, |place| from + place + 1)
    }

    /// Finds the characters with which a pre-token begins.
    fn find(&mut self, length: usize, rules: Rules) {
        self.masks.clear();
        for (block, codes) in self.codes.as_chunks::<64>().0.iter().take(length.div_ceil(64)).enumerate() {
            let rest = length - block * 64;
            let there = if rest >= 64 { u64::MAX } else { (1 << rest) - 1 };
            self.masks.push(Masks::of(codes, there));
        }
        self.bounds.clear();
        self.suspects.clear();
        let mut blocks = self.masks.iter().map(|masks| Found::of(masks, rules)).chain([Found::default()]);
        let (mut before, mut found) = (Found::default(), blocks.next().unwrap_or_default());
        for (place, after) in (0..).step_by(64).zip(blocks) {
            let mut suspects = found.begin(&before, &after, rules);
            self.bounds.push(found.bounds);
            while suspects != 0 {
                self.suspects.push(place + suspects.trailing_zeros());
                suspects &= suspects - 1;
            }
            before = found;
            found = after;
        }
        if let Some(first) = self.bounds.first_mut() {
            *first |= 1;
        }
        for at in 0..self.suspects.len() {
            let place = self.suspects.get(at).map_or(0, |&place| place as usize);
            self.correct(place, length, rules);
        }
    }

    fn code(&self, place: usize) -> u8 {
        self.codes.get(place).copied().unwrap_or_default()
    }

    fn set(&mut self, place: usize, length: usize, bound: bool) {
        if let Some(word) = self.bounds.get_mut(place / 64)
            && place < length
        {
            *word = *word & !(1 << (place % 64)) | u64::from(bound) << (place % 64);
        }
    }

    /// The first place from one on that has not all of some bits.
    fn run_end(&self, from: usize, length: usize, of: impl Fn(u8) -> bool) -> usize {
        let codes = self.codes.get(from..length).unwrap_or_default();
        codes.iter().position(|&code| !of(code)).map_or(length, |end| from + end)
    }

    /// Whether the line breaks before a place belong to signs before them.
    fn after_signs(&self, place: usize, rules: Rules) -> bool {
        let before = self.codes.get(..place).unwrap_or_default();
        let sign = before.iter().rev().find(|&&code| code != NEWLINE);
        sign.is_some_and(|&code| code & !SLASH == 0 && !(code == MARK && rules.has(Rules::MARKS)))
    }

    /// Looks at a place for which masks did not suffice.
    fn correct(&mut self, place: usize, length: usize, rules: Rules) {
        match self.code(place) {
            code if code & BLANK != 0 => {
                // Blanks behind a line break: only those behind the last one are a pre-token.
                let end = self.run_end(place, length, |code| code & BLANK != 0);
                let joined = end < length && self.code(end) == NEWLINE;
                if joined && !(rules.has(Rules::SIGNED_BREAKS) && self.after_signs(place, rules)) {
                    self.set(place, length, false);
                }
            }
            APOSTROPHE => {
                let ending = self.contraction(place, length);
                if ending > 0 {
                    if rules.has(Rules::SUFFIXES) {
                        self.set(place, length, false);
                    }
                    let goes_on = self.code(place + 1 + ending) & LETTER != 0;
                    if rules.has(Rules::SPACES) && !rules.has(Rules::SUFFIXES) {
                        self.set(place + 1, length, goes_on);
                    } else if goes_on {
                        self.set(place + 1 + ending, length, true);
                    }
                }
            }
            SLASH => {
                if self.after_signs(place, rules) {
                    self.set(place, length, false);
                    let end = self.run_end(place, length, |code| code == SLASH || code == NEWLINE);
                    self.set(end, length, true);
                }
            }
            _ => {
                // An upper-case letter behind one that is neither: both are one word if a lower-case one follows.
                let end = self.run_end(place, length, |code| code & UPPER != 0);
                if !(end < length && self.code(end) & LOWER != 0) {
                    self.set(place, length, true);
                }
            }
        }
    }

    /// How many letters the contraction behind an apostrophe has, or none.
    fn contraction(&self, place: usize, length: usize) -> usize {
        // All these letters are ASCII, so that the bytes behind the apostrophe are they.
        let at = self.offset(place) + 1;
        let lower = |byte: &u8| byte.to_ascii_lowercase();
        let (first, second) = (self.bytes.get(at).map(lower), self.bytes.get(at + 1).map(lower));
        let ending = match (first, second) {
            (Some(b's' | b't' | b'm' | b'd'), _) => 1,
            (Some(b'r' | b'v'), Some(b'e')) | (Some(b'l'), Some(b'l')) => 2,
            _ => 0,
        };
        if place + ending < length { ending } else { 0 }
    }

    fn offset(&self, place: usize) -> usize {
        if self.foreign { self.offsets.get(place).map_or(0, |&offset| offset as usize) } else { place }
    }

    /// Lists where pre-tokens begin.
    fn list(&mut self, length: usize, foreign: bool) {
        self.starts.clear();
        for (block, &bounds) in (0_u32..).step_by(64).zip(&self.bounds) {
            let mut bounds = bounds;
            while bounds != 0 {
                self.starts.push(block + bounds.trailing_zeros());
                bounds &= bounds - 1;
            }
        }
        self.starts.push(length as u32);
        if foreign {
            for start in &mut self.starts {
                *start = self.offsets.get(*start as usize).copied().unwrap_or_default();
            }
        }
    }
}

/// Masks by what the rules make of characters, and what has been found of a block.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    letter: u64,
    upper: u64,
    lower: u64,
    /// Letters that are neither, and marks in words.
    neutral: u64,
    number: u64,
    blank: u64,
    space: u64,
    newline: u64,
    sign: u64,
    apostrophe: u64,
    slash: u64,
    han: u64,
    /// Neither blanks nor breaks, nor the end.
    dark: u64,
    attached: u64,
    numbers: u64,
    bounds: u64,
}

impl Found {
    fn of(masks: &Masks, rules: Rules) -> Self {
        let combining = masks.mark & !masks.letter & !masks.special;
        let letter = if rules.has(Rules::MARKS) { masks.letter | combining } else { masks.letter };
        let cjk = masks.letter & masks.special;
        let han = if rules.has(Rules::KANA) { cjk } else { cjk & !masks.mark };
        let sign = masks.there & !(letter | masks.number | masks.blank | masks.newline);
        Self {
            letter,
            upper: masks.upper,
            lower: masks.lower,
            neutral: letter & !masks.upper & !masks.lower,
            number: masks.number,
            blank: masks.blank,
            space: masks.blank & masks.special,
            newline: masks.newline,
            sign,
            apostrophe: sign & masks.special & !masks.mark,
            slash: sign & masks.special & masks.mark,
            han: if rules.has(Rules::HAN) { han } else { 0 },
            dark: masks.there & !masks.blank & !masks.newline,
            ..Self::default()
        }
    }

    /// Finds the beginnings; returns the places that must be looked at again.
    fn begin(&mut self, before: &Self, after: &Self, rules: Rules) -> u64 {
        // For each character, whether the one before it or behind it is such.
        macro_rules! behind {
            ($what:ident) => {
                self.$what << 1 | before.$what >> 63
            };
        }
        macro_rules! ahead {
            ($what:ident) => {
                self.$what >> 1 | after.$what << 63
            };
        }
        let blank_before = self.blank << 1 | before.blank >> 63;
        let break_before = behind!(newline);
        let space_before = behind!(space);
        let letter_before = behind!(letter);
        let sign_before = behind!(sign);

        // Signs, with the space before them; alone before letters, they belong to the word, as a blank does.
        let signs = self.sign & !sign_before & !space_before;
        let joined = if rules.has(Rules::SPACES) { self.space } else { self.blank | signs };
        self.attached = ahead!(letter) & joined & !ahead!(han);
        self.bounds = signs | self.space & ahead!(sign) | self.attached;

        let words = self.letter & !letter_before;
        self.bounds |= words & !(behind!(attached));

        let gaps = (self.blank | self.newline) & !blank_before & !break_before;
        let signed = if rules.has(Rules::SIGNED_BREAKS) { self.newline & sign_before } else { 0 };
        let indents = self.blank & break_before;
        let last_blanks = self.blank & blank_before & ahead!(dark);
        self.bounds |= gaps & !signed | indents | last_blanks;

        self.numbers = self.number & !(behind!(number));
        if rules.has(Rules::SINGLE_DIGITS) {
            self.numbers = self.number;
        } else {
            let inner = self.number & (behind!(number)) & (self.number << 2 | before.number >> 62);
            let mut newest = (self.numbers << 3 | before.numbers >> 61) & inner;
            while newest & !self.numbers != 0 {
                self.numbers |= newest;
                newest = newest << 3 & inner;
            }
        }
        self.bounds |= self.numbers;

        let mut suspects = indents;
        if rules.has(Rules::CASES) {
            self.bounds |= self.upper & (behind!(lower));
            suspects |= self.upper & (behind!(neutral)) & !(behind!(han));
        }
        if rules.has(Rules::HAN) {
            let other = self.letter & !self.han;
            let other_before = letter_before & !(behind!(han));
            self.bounds |= self.han & other_before | other & (behind!(han));
        }
        if rules.has(Rules::SUFFIXES) || rules.has(Rules::CONTRACTIONS) && rules.has(Rules::SPACES) {
            suspects |= self.apostrophe & letter_before & ahead!(letter);
        } else if rules.has(Rules::CONTRACTIONS) {
            suspects |= self.apostrophe & self.attached;
        }
        if rules.has(Rules::SLASHES) {
            suspects |= self.slash & break_before;
        }
        suspects
    }
}

/// The UTF-8 of a character, and how many bytes it has; lone surrogates have three. Without branches: scripts and
/// spaces alternate.
const fn encode(point: u32) -> (u32, usize) {
    let (a, b, c) = (point & 0x3F, point >> 6 & 0x3F, point >> 12 & 0x3F);
    let two = 0x80C0 | point >> 6 | a << 8;
    let three = 0x80_80E0 | point >> 12 | b << 8 | a << 16;
    let four = 0x8080_80F0 | point >> 18 & 0x07 | c << 8 | b << 16 | a << 24;
    let encoded = if point < 0x80 { point } else { two };
    let encoded = if point < 0x800 { encoded } else { three };
    let encoded = if point < 0x1_0000 { encoded } else { four };
    (encoded, 1 + (point >= 0x80) as usize + (point >= 0x800) as usize + (point >= 0x1_0000) as usize)
}

#[cfg(test)]
mod tests {
    use super::{ascii_code, categories};

    #[test]
    fn the_table_agrees_on_ascii() {
        for byte in 0..0x80 {
            assert_eq!(ascii_code(byte), categories().code(byte.into()), "{byte:#x}");
        }
    }
}
