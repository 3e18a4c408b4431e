//! Counting tokens by the fingerprints of a vocabulary: nearly as true as a tokenizer, in half a megabyte.
//!
//! A vocabulary is kept as fingerprints of 16 bits, each the exclusive or of three places of one table (a binary fuse
//! filter: Graf and Lemire, 2022), so that something else is taken for a token once in 65,536 times. A pre-token that
//! is in the vocabulary is one token. Any other is divided into the longest tokens from the left; what tokenizers
//! merge otherwise is put right by weights for what has been counted, fitted to each family.

use std::cell::RefCell;

use crate::error::Error;
use crate::estimate::Margin;
use crate::pretoken::{CHUNK, Rules, Splitter};
use crate::text::Text;

const MAGIC: &[u8] = b"secateur fingerprints 1\n";
/// Most tokens for a byte of UTF-8.
const MOST_PER_BYTE: f64 = 1.25;
/// Kinds of pre-tokens that are no tokens, by their first character that is not ASCII, or else by their first letter.
const KINDS: usize = 16;
/// What is counted of each kind: pre-tokens, the longest tokens in them, bytes, and tokens of a single character at
/// their end.
const PER_KIND: usize = 4;
/// All that is counted: pre-tokens that are tokens, then what is counted of each kind.
pub const COUNTERS: usize = 1 + KINDS * PER_KIND;

/// Beginnings of tokens for which the lengths are kept have so many bytes.
const BEGINNING: usize = 4;
/// Lengths of tokens that have a bit of their own, from `BEGINNING` on; the highest bit is for all longer ones.
const LENGTHS: usize = 15;
const LONGER: usize = BEGINNING + LENGTHS;
/// The table of lengths has 2 to the power of so many entries, at most.
const MOST_LENGTH_BITS: u32 = 16;
/// The longest token that is looked for.
const LONGEST: usize = 255;
/// Segments of the filter have 2 to the power of so many places, at most.
const MOST_SEGMENT_BITS: u32 = 18;
/// How many pre-tokens are remembered, in 64 KiB a thread.
const SEEN: usize = 4096;
/// How often another seed is tried for a filter.
const ATTEMPTS: u64 = 64;

/// The fingerprints of a family's vocabulary, its rules, and the weights of its counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Fingerprints {
    /// The name of the family.
    pub family: String,
    /// Where the vocabulary is from, and on what the weights were fitted.
    pub about: String,
    /// How the family splits texts.
    pub rules: Rules,
    /// By how much estimates may be too low.
    pub margin: Margin,
    weights: [f64; COUNTERS],
    filter: Filter,
    /// Which lengths tokens have that begin with four bytes, by the hash of these.
    lengths: Vec<u16>,
    longest: usize,
}

/// Buffers that are kept, and how pre-tokens seen lately were divided: texts repeat their words.
struct Workspace {
    splitter: Splitter,
    misses: Vec<Miss>,
    /// The hash of a pre-token, mixed with that of the vocabulary, and how it was divided.
    seen: Vec<(u64, Division)>,
}

/// A pre-token that is no token.
#[derive(Debug, Clone, Copy, Default)]
struct Miss {
    start: u32,
    end: u32,
    hash: u64,
}

/// How a pre-token is divided into the longest tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Division {
    pieces: u16,
    kind: u8,
    /// Whether the last piece is a single character.
    tail: bool,
}

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::new(Workspace {
        splitter: Splitter::default(),
        misses: vec![Miss::default(); CHUNK + 1],
        seen: vec![(0, Division::default()); SEEN],
    });
}

impl Fingerprints {
    /// Takes the fingerprints of a vocabulary; every pre-token and every piece of one then counts 1.
    ///
    /// With [`Rules::EDGES`] the last byte of each token is no part of it but says where it stands: 1 for one that begins
    /// a pre-token, 2 for one that ends a word or has a space behind it, 3 for both, 0 for neither.
    ///
    /// # Errors
    ///
    /// [`Error::Weights`] for a vocabulary of less than 256 tokens or more than a million, or if no table can be made.
    pub fn of<T: AsRef<[u8]>>(family: &str, about: &str, rules: Rules, tokens: &[T]) -> Result<Self, Error> {
        let tokens = tokens.iter().map(AsRef::as_ref);
        let placed = tokens.map(|token| match token.split_last() {
            Some((edges, token)) if rules.has(Rules::EDGES) => (token, u64::from(edges & 3)),
            _ => (token, 0),
        });
        let mut known: Vec<(&[u8], u64)> = placed.filter(|(token, _)| (2..=LONGEST).contains(&token.len())).collect();
        known.sort_unstable();
        known.dedup();
        if !(0x100..=1_000_000).contains(&known.len()) {
            return Err(Error::Weights("would hold too few tokens, or too many"));
        }
        let bits = (usize::BITS - known.len().leading_zeros()).clamp(8, 18) - 5;
        let mut lengths = vec![0_u16; 1 << bits];
        for (token, _) in &known {
            if let Some(beginning) = token.first_chunk::<BEGINNING>()
                && let Some(entry) = lengths.get_mut(place_of(*beginning, bits))
            {
                *entry |= 1 << (token.len() - BEGINNING).min(LENGTHS);
            }
        }
        let line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        let mut fingerprints = Self {
            family: line(family),
            about: line(about),
            rules,
            margin: Margin::default(),
            weights: [0.0; COUNTERS],
            filter: Filter::of(&known).ok_or(Error::Weights("could not be made of these tokens"))?,
            lengths,
            longest: known.iter().map(|(token, _)| token.len()).max().unwrap_or(1),
        };
        fingerprints.weights[0] = 1.0;
        for kind in fingerprints.weights[1..].as_chunks_mut::<PER_KIND>().0 {
            kind[1] = 1.0;
        }
        Ok(fingerprints)
    }

    /// The same with weights of their own.
    ///
    /// # Errors
    ///
    /// [`Error::Weights`] if there are not [`COUNTERS`] of them, or if one is not finite in float32.
    pub fn with_weights(mut self, weights: &[f32], margin: Margin) -> Result<Self, Error> {
        let finite = weights.iter().all(|weight| weight.is_finite()) && (margin.shared + margin.own).is_finite();
        if weights.len() != COUNTERS || !finite {
            return Err(Error::Weights("would hold weights that are not numbers, or not as many as there are counts"));
        }
        for (into, &weight) in self.weights.iter_mut().zip(weights) {
            *into = weight.into();
        }
        self.margin = margin;
        Ok(self)
    }

    /// Writes the file: a heading in lines, then little-endian numbers.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Filter { seed, segment_bits, table, .. } = &self.filter;
        let heading = format!(
            "{}\n{}\n{} {} {segment_bits} {} {} {COUNTERS}\n",
            self.about,
            self.family,
            self.rules.0,
            self.longest,
            table.len(),
            self.lengths.len(),
        );
        let margin = [self.margin.shared, self.margin.own];
        let mut bytes = [MAGIC, heading.as_bytes(), &seed.to_le_bytes()].concat();
        bytes.extend(self.weights.iter().chain(&margin).flat_map(|&weight| (weight as f32).to_le_bytes()));
        bytes.extend(self.lengths.iter().chain(table).flat_map(|entry| entry.to_le_bytes()));
        bytes
    }

    /// Reads such a file.
    ///
    /// # Errors
    ///
    /// [`Error::Weights`] if the bytes are no such file, or one of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(Error::Weights("holds no fingerprints"))?;
        let mut line = || {
            let end = rest.iter().position(|&byte| byte == b'\n').ok_or(Error::Weights("has no heading"))?;
            let (line, behind) = rest.split_at(end);
            rest = behind.get(1..).unwrap_or_default();
            Ok(String::from_utf8_lossy(line).into_owned())
        };
        let (about, family, shape) = (line()?, line()?, line()?);
        let numbers: Option<Vec<usize>> = shape.split(' ').map(|number| number.parse().ok()).collect();
        let Some(&[rules, longest, segment_bits, entries, lengths, counters]) = numbers.as_deref() else {
            return Err(Error::Weights("has no heading"));
        };
        let rules = u16::try_from(rules).ok().filter(|rules| rules & !Rules::ALL == 0);
        let Some(rules) = rules.filter(|_| counters == COUNTERS) else {
            return Err(Error::Weights("is for another version"));
        };
        let segment_bits = u32::try_from(segment_bits).ok().filter(|&bits| bits <= MOST_SEGMENT_BITS);
        let Some(segment_bits) = segment_bits.filter(|bits| {
            lengths.is_power_of_two()
                && lengths <= 1 << MOST_LENGTH_BITS
                && (1..=LONGEST).contains(&longest)
                && entries >> bits >= 3
                && entries % (1 << bits) == 0
        }) else {
            return Err(Error::Weights("has a heading that is not possible"));
        };
        let (head, tables) = rest.split_at_checked(8 + (COUNTERS + 2) * 4).ok_or(Error::Weights("ends too early"))?;
        let (seed, weights) = head.split_first_chunk::<8>().ok_or(Error::Weights("ends too early"))?;
        let weights: Vec<f32> = weights.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        if Some(tables.len()) != entries.checked_add(lengths).and_then(|entries| entries.checked_mul(2)) {
            return Err(Error::Weights("does not have the length that its heading says"));
        }
        let mut table = tables.as_chunks().0.iter().map(|&bytes| u16::from_le_bytes(bytes));
        let lengths = table.by_ref().take(lengths).collect();
        let fingerprints = Self {
            family,
            about,
            rules: Rules(rules),
            margin: Margin::default(),
            weights: [0.0; COUNTERS],
            filter: Filter { seed: u64::from_le_bytes(*seed), segment_bits, checksum: 0, table: table.collect() }
                .checked(),
            lengths,
            longest,
        };
        let (weights, margin) = weights.split_at_checked(COUNTERS).unwrap_or_default();
        let margin = |at: usize| margin.get(at).copied().map_or(f64::NAN, f64::from);
        fingerprints.with_weights(weights, Margin { shared: margin(0), own: margin(1) })
    }

    /// The tokens of a text, in fractions; the same on every machine.
    #[must_use]
    pub fn count(&self, text: Text<'_>) -> f64 {
        self.weigh(&self.counters(text))
    }

    /// What is counted of a text; counts of texts add up.
    #[must_use]
    pub fn counters(&self, text: Text<'_>) -> Counters {
        WORKSPACE.with_borrow_mut(|Workspace { splitter, misses, seen }| {
            let mut counters = Counters { counts: [0; COUNTERS], bytes: 0 };
            splitter.split(text, self.rules, |splitter| self.count_chunk(splitter, misses, seen, &mut counters));
            counters
        })
    }

    /// The tokens for what has been counted.
    #[must_use]
    pub fn weigh(&self, counters: &Counters) -> f64 {
        let sum =
            self.weights.iter().zip(counters.counts).fold(0.0, |sum, (weight, count)| sum + weight * count as f64);
        let least = if counters.bytes == 0 { 0.0 } else { 1.0 };
        sum.min(counters.bytes as f64 * MOST_PER_BYTE).max(least)
    }

    fn count_chunk(
        &self,
        splitter: &Splitter,
        misses: &mut [Miss],
        seen: &mut [(u64, Division)],
        counters: &mut Counters,
    ) {
        let mut count = 0;
        let told = self.rules.has(Rules::EDGES);
        let pre_tokens = splitter.starts.len().saturating_sub(1);
        for pair in splitter.starts.windows(2) {
            let &[start, end] = pair else { continue };
            let (from, to) = (start as usize, end as usize);
            let edges = if told { 1 | u64::from(closes(&splitter.bytes, to)) << 1 } else { 0 };
            let hash = if to - from <= 16 {
                self.filter.hash_short(load(&splitter.bytes, from), to - from, edges)
            } else {
                self.filter.hash(splitter.bytes.get(from..to).unwrap_or_default(), edges)
            };
            let is_token = u8::from(self.filter.holds(hash)) | u8::from(to - from == 1);
            // Written in any case, so that there is no branch to predict.
            if let Some(miss) = misses.get_mut(count) {
                *miss = Miss { start, end, hash };
            }
            count += usize::from(is_token == 0);
        }
        counters.counts[0] += (pre_tokens - count) as u64;
        counters.bytes += splitter.starts.last().map_or(0, |&end| u64::from(end));
        let (_, kinds) = counters.counts.split_at_mut(1);
        let kinds = kinds.as_chunks_mut::<PER_KIND>().0;
        for &Miss { start, end, hash } in misses.get(..count).unwrap_or_default() {
            let key = hash ^ self.filter.checksum;
            let Some(seen) = seen.get_mut(key as usize % SEEN) else { continue };
            if seen.0 != key {
                *seen = (key, self.divide(&splitter.bytes, start as usize, end as usize));
            }
            let Division { pieces, kind, tail } = seen.1;
            if let Some([pre_tokens, longest, bytes, tails]) = kinds.get_mut(usize::from(kind)) {
                *pre_tokens += 1;
                *longest += u64::from(pieces);
                *bytes += u64::from(end - start);
                *tails += u64::from(tail);
            }
        }
    }

    /// Divides a pre-token, from a byte to another, into the longest tokens.
    fn divide(&self, bytes: &[u8], start: usize, end: usize) -> Division {
        let (mut at, mut pieces, mut last) = (start, 0, 0);
        while at < end {
            last = self.longest_token(bytes, at, end, at == start);
            at += last;
            pieces += 1;
        }
        let lead = bytes.get(end - last.min(end)).copied().unwrap_or_default();
        let kind = kind_of(load(bytes, start) & (u128::MAX >> (128 - (end - start).clamp(1, 16) * 8)));
        Division { pieces, kind: kind as u8, tail: last == 1 || lead >= 0xC0 && last <= 3 }
    }

    /// The length of the longest token from a place on; at least a byte.
    fn longest_token(&self, bytes: &[u8], at: usize, end: usize, first: bool) -> usize {
        let most = (end - at).min(self.longest);
        let word = load(bytes, at);
        let told = self.rules.has(Rules::EDGES);
        let closed = told && closes(bytes, end);
        let edges = |length: usize| u64::from(told && first) | u64::from(closed && at + length == end) << 1;
        let holds_long = |length: usize| {
            let token = bytes.get(at..at + length).unwrap_or_default();
            self.filter.holds(self.filter.hash(token, edges(length)))
        };
        // A bit for each length that a token may have: two and three, and those known for the first four bytes.
        let mut lengths = 0b1100_u32;
        if most >= BEGINNING {
            let beginning = (word as u32).to_le_bytes();
            let bits = self.lengths.len().trailing_zeros();
            let known = u32::from(self.lengths.get(place_of(beginning, bits)).copied().unwrap_or_default());
            if most >= LONGER
                && known >> LENGTHS != 0
                && let Some(length) = (LONGER..=most).rev().find(|&length| holds_long(length))
            {
                return length;
            }
            lengths |= (known & ((1 << LENGTHS) - 1)) << BEGINNING;
        }
        lengths &= (2_u32 << most.min(30)) - 1;
        while lengths != 0 {
            let length = lengths.ilog2() as usize;
            let is_token = if length <= 16 {
                self.filter.holds(self.filter.hash_short(word, length, edges(length)))
            } else {
                holds_long(length)
            };
            if is_token {
                return length;
            }
            lengths ^= 1 << length;
        }
        1
    }
}

/// What has been counted of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// Pre-tokens that are tokens; of each kind of others, how many, the longest tokens in them, their bytes, and how
    /// many end in a token of a single character.
    pub counts: [u64; COUNTERS],
    /// Bytes in UTF-8.
    pub bytes: u64,
}

/// Whether a pre-token that ends here is a word, or has a space behind it.
fn closes(bytes: &[u8], end: usize) -> bool {
    let is_word = |&byte: &u8| byte.is_ascii_alphabetic() || byte >= 0x80;
    bytes.get(end.wrapping_sub(1)).is_some_and(is_word) || bytes.get(end) == Some(&b' ')
}

/// Sixteen bytes from a place on.
fn load(bytes: &[u8], at: usize) -> u128 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |&bytes| u128::from_le_bytes(bytes))
}

/// Where the lengths for a beginning are kept.
const fn place_of(beginning: [u8; BEGINNING], bits: u32) -> usize {
    (u32::from_le_bytes(beginning).wrapping_mul(0x9E37_79B1) as u64 >> (32 - bits)) as usize
}

/// The kind of a pre-token, by its first sixteen bytes.
fn kind_of(word: u128) -> usize {
    let leads = word & word << 1 & 0x8080_8080_8080_8080_8080_8080_8080_8080;
    let lead = (word >> (leads.trailing_zeros() & !7 & 0x7F)) as u8;
    if leads == 0 {
        let [first, second, ..] = word.to_le_bytes();
        let letter = if first.is_ascii_alphabetic() { first } else { second };
        return if letter.is_ascii_lowercase() { 1 } else { usize::from(letter.is_ascii_uppercase()) * 2 };
    }
    match lead {
        0xE0..=0xE3 => usize::from(lead - 0xE0) + 8,
        0xE4..=0xE9 => 12,
        0xEA..=0xED => 13,
        0xEE..=0xEF => 14,
        0xF0.. => 15,
        0xCE..=0xCF => 4,
        0xD0..=0xD3 => 5,
        0xD4..=0xD7 => 6,
        0xD8..=0xDF => 7,
        _ => 3,
    }
}

/// A set of byte strings, of which it knows fingerprints.
#[derive(Debug, Clone, PartialEq)]
struct Filter {
    seed: u64,
    segment_bits: u32,
    /// Of the table, to tell filters apart.
    checksum: u64,
    /// Segments of `1 << segment_bits` places; a string's three places are in three segments next to each other.
    table: Vec<u16>,
}

const FIRST_FACTOR: u64 = 0xA076_1D64_78BD_642F;
const SECOND_FACTOR: u64 = 0xE703_7ED1_A0B4_28DB;
const LENGTH_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

const fn mix(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    (product >> 64) as u64 ^ product as u64
}

/// The bytes of the lower and the upper half that a string of up to sixteen has.
#[allow(clippy::indexing_slicing)] // While compiling.
const KEPT: [(u64, u64); 17] = {
    let mut kept = [(0, 0); 17];
    let mut length = 1;
    while length <= 16 {
        let bytes = u128::MAX >> (128 - length * 8);
        kept[length] = (bytes as u64, (bytes >> 64) as u64);
        length += 1;
    }
    kept
};

/// One step of a hash: sixteen bytes into the state.
const fn step(state: u64, word: u128) -> u64 {
    mix(word as u64 ^ state, (word >> 64) as u64 ^ SECOND_FACTOR)
}

impl Filter {
    /// The hash of the first bytes of sixteen.
    fn hash_short(&self, word: u128, length: usize, edges: u64) -> u64 {
        let (low, high) = KEPT.get(length).copied().unwrap_or((u64::MAX, u64::MAX));
        let state = self.seed ^ (length as u64 | edges << 32).wrapping_mul(LENGTH_FACTOR);
        mix(word as u64 & low ^ state, (word >> 64) as u64 & high ^ SECOND_FACTOR)
    }

    fn checked(self) -> Self {
        let fold = |state, &entry: &u16| mix(state ^ u64::from(entry), LENGTH_FACTOR);
        Self { checksum: self.table.iter().fold(self.seed, fold) | 1 << 63, ..self }
    }

    fn hash(&self, bytes: &[u8], edges: u64) -> u64 {
        let mut state = self.seed ^ (bytes.len() as u64 | edges << 32).wrapping_mul(LENGTH_FACTOR);
        for chunk in bytes.chunks(16) {
            let mut word = [0; 16];
            for (into, &byte) in word.iter_mut().zip(chunk) {
                *into = byte;
            }
            state = step(state, u128::from_le_bytes(word));
        }
        state
    }

    const fn fingerprint(hash: u64) -> u16 {
        (hash ^ hash >> 32) as u16
    }

    /// The three places of a hash, for a number of first places.
    const fn places(hash: u64, first_places: usize, segment_bits: u32) -> [usize; 3] {
        let first = (((hash >> 32) * first_places as u64) >> 32) as usize;
        let size = 1_usize << segment_bits;
        let second = (first + size) ^ ((hash >> 18) as usize & (size - 1));
        let third = (first + 2 * size) ^ (hash as usize & (size - 1));
        [first, second, third]
    }

    fn holds(&self, hash: u64) -> bool {
        let first_places = self.table.len().saturating_sub(2 << self.segment_bits);
        let [a, b, c] = Self::places(hash, first_places, self.segment_bits);
        let at = |place: usize| self.table.get(place).copied().unwrap_or_default();
        at(a) ^ at(b) ^ at(c) == Self::fingerprint(hash)
    }

    /// The table for strings that differ, by taking away again and again what has a place for itself.
    fn of(strings: &[(&[u8], u64)]) -> Option<Self> {
        // The sizes of the filter's inventors: segments grow more slowly than the table, whose surplus shrinks.
        let count = strings.len() as f64;
        #[allow(clippy::cast_sign_loss)] // Logarithms of 256 and more.
        let segment_bits = ((count.ln() / 3.33_f64.ln() + 2.25).floor() as u32).min(MOST_SEGMENT_BITS);
        let factor = (0.875 + 0.25 * 1e6_f64.ln() / count.ln()).max(1.125);
        #[allow(clippy::cast_sign_loss)]
        let segments = ((count * factor) as usize).div_ceil(1 << segment_bits).max(3);
        let first_places = (segments - 2) << segment_bits;
        (1..=ATTEMPTS).find_map(|attempt| {
            let mut filter = Self {
                seed: mix(attempt, FIRST_FACTOR),
                segment_bits,
                checksum: 0,
                table: vec![0; segments << segment_bits],
            };
            let mut hashes: Vec<u64> = strings.iter().map(|&(string, edges)| filter.hash(string, edges)).collect();
            hashes.sort_unstable();
            if hashes.windows(2).any(|pair| pair.first() == pair.last()) {
                return None;
            }
            // How many hashes have each place, and the exclusive or of these.
            let mut holders = vec![(0_u32, 0_u64); filter.table.len()];
            for &hash in &hashes {
                for place in Self::places(hash, first_places, segment_bits) {
                    if let Some((count, all)) = holders.get_mut(place) {
                        *count += 1;
                        *all ^= hash;
                    }
                }
            }
            let mut alone: Vec<usize> =
                (0..holders.len()).filter(|&place| holders.get(place).is_some_and(|&(count, _)| count == 1)).collect();
            let mut order = Vec::with_capacity(hashes.len());
            while let Some(place) = alone.pop() {
                let Some(&(1, hash)) = holders.get(place) else { continue };
                order.push((place, hash));
                for place in Self::places(hash, first_places, segment_bits) {
                    if let Some((count, all)) = holders.get_mut(place) {
                        *count -= 1;
                        *all ^= hash;
                        if *count == 1 {
                            alone.push(place);
                        }
                    }
                }
            }
            if order.len() < hashes.len() {
                return None;
            }
            for &(place, hash) in order.iter().rev() {
                let [a, b, c] = Self::places(hash, first_places, segment_bits);
                let at = |place: usize| filter.table.get(place).copied().unwrap_or_default();
                let value = at(a) ^ at(b) ^ at(c) ^ at(place) ^ Self::fingerprint(hash);
                if let Some(entry) = filter.table.get_mut(place) {
                    *entry = value;
                }
            }
            Some(filter.checked())
        })
    }
}
