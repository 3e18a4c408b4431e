//! Fingerprints against a twin that knows the vocabulary and looks at one character at a time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A panic is how a test fails.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use secateur_core::{COUNTERS, Counters, Error, Fingerprints, Margin, Rules, Text};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Upper,
    Lower,
    Letter,
    Han,
    Kana,
    Mark,
    Number,
    Blank,
    Break,
    Sign,
}

/// Characters of all kinds; what is not listed is a sign.
const CHARACTERS: [(u32, Kind); 38] = {
    use Kind::{Blank, Break, Han, Kana, Letter, Lower, Mark, Number, Sign, Upper};
    [
        (0x20, Blank),
        (0x20, Blank),
        (0x09, Blank),
        (0x3000, Blank),
        (0x0A, Break),
        (0x0D, Break),
        (0x61, Lower),
        (0x65, Lower),
        (0x6C, Lower),
        (0x72, Lower),
        (0x73, Lower),
        (0x74, Lower),
        (0x76, Lower),
        (0xE9, Lower),
        (0x44F, Lower),
        (0x41, Upper),
        (0x53, Upper),
        (0x042F, Upper),
        (0x1C5, Upper),
        (0x2B0, Letter),
        (0x0939, Letter),
        (0xAC00, Letter),
        (0x4E2D, Han),
        (0x2_0000, Han),
        (0x3042, Kana),
        (0x0301, Mark),
        (0x093E, Mark),
        (0x31, Number),
        (0x39, Number),
        (0x0661, Number),
        (0x2164, Number),
        (0x27, Sign),
        (0x2F, Sign),
        (0x28, Sign),
        (0x2E, Sign),
        (0x201C, Sign),
        (0x1_F600, Sign),
        (0xD800, Sign),
    ]
};

fn wtf8(points: &[u32]) -> Vec<u8> {
    let six_bits = |point: u32, shift: u32| 0x80 | (point >> shift & 0x3F) as u8;
    let encode = |&point: &u32| {
        let surrogate = || vec![0xE0 | (point >> 12) as u8, six_bits(point, 6), six_bits(point, 0)];
        char::from_u32(point).map_or_else(surrogate, |character| character.to_string().into_bytes())
    };
    points.iter().flat_map(encode).collect()
}

struct Naive<'a> {
    points: &'a [u32],
    rules: u16,
}

impl Naive<'_> {
    fn has(&self, rule: u16) -> bool {
        self.rules & rule != 0
    }

    fn kind(&self, at: usize) -> Option<Kind> {
        let point = *self.points.get(at)?;
        let kind = CHARACTERS.iter().find(|&&(listed, _)| listed == point).map_or(Kind::Sign, |&(_, kind)| kind);
        Some(if kind == Kind::Mark && !self.has(Rules::MARKS) { Kind::Sign } else { kind })
    }

    fn before(&self, at: usize) -> Option<Kind> {
        self.kind(at.checked_sub(1)?)
    }

    fn is_letter(kind: Option<Kind>) -> bool {
        use Kind::{Han, Kana, Letter, Lower, Mark, Upper};
        matches!(kind, Some(Upper | Lower | Letter | Han | Kana | Mark))
    }

    fn is_han(&self, kind: Option<Kind>) -> bool {
        self.has(Rules::HAN) && (kind == Some(Kind::Han) || kind == Some(Kind::Kana) && self.has(Rules::KANA))
    }

    fn is_gap(kind: Option<Kind>) -> bool {
        matches!(kind, Some(Kind::Blank | Kind::Break))
    }

    fn signs_begin(&self, at: usize) -> bool {
        let space = at > 0 && self.points[at - 1] == 0x20;
        self.kind(at) == Some(Kind::Sign) && self.before(at) != Some(Kind::Sign) && !space
    }

    /// Whether a blank or a sign belongs to the word behind it.
    fn attached(&self, at: usize) -> bool {
        let word = Self::is_letter(self.kind(at + 1)) && !self.is_han(self.kind(at + 1));
        let space = self.points[at] == 0x20;
        word && (space || !self.has(Rules::SPACES) && (self.kind(at) == Some(Kind::Blank) || self.signs_begin(at)))
    }

    fn begins(&self, at: usize) -> bool {
        let (before, kind, after) = (self.before(at), self.kind(at), self.kind(at + 1));
        let gap_begins = !Self::is_gap(before);
        match kind.unwrap() {
            Kind::Sign => self.signs_begin(at),
            Kind::Blank => {
                let last = before == Some(Kind::Blank) && after.is_some() && !Self::is_gap(after);
                let to_signs = self.points[at] == 0x20 && after == Some(Kind::Sign);
                gap_begins || before == Some(Kind::Break) || last || to_signs || self.attached(at)
            }
            Kind::Break => gap_begins && !(self.has(Rules::SIGNED_BREAKS) && before == Some(Kind::Sign)),
            Kind::Number => {
                let run = (0..at).rev().take_while(|&at| self.kind(at) == Some(Kind::Number)).count();
                self.has(Rules::SINGLE_DIGITS) || run % 3 == 0
            }
            _ => {
                let word_begins = !(Self::is_letter(before) || at > 0 && self.attached(at - 1));
                let hump = self.has(Rules::CASES) && kind == Some(Kind::Upper) && before == Some(Kind::Lower);
                let other_script = Self::is_letter(before) && self.is_han(before) != self.is_han(kind);
                word_begins || hump || other_script
            }
        }
    }

    /// Whether line breaks before a place belong to signs.
    fn after_signs(&self, at: usize) -> bool {
        let last = (0..at).rev().find(|&at| self.kind(at) != Some(Kind::Break));
        last.is_some_and(|last| self.kind(last) == Some(Kind::Sign))
    }

    fn contraction(&self, at: usize) -> usize {
        let letter = |at: usize| self.points.get(at).and_then(|&point| char::from_u32(point)).unwrap_or(' ');
        match (letter(at + 1).to_ascii_lowercase(), letter(at + 2).to_ascii_lowercase()) {
            ('s' | 't' | 'm' | 'd', _) => 1,
            ('r' | 'v', 'e') | ('l', 'l') => 2,
            _ => 0,
        }
    }

    fn starts(&self) -> Vec<usize> {
        let length = self.points.len();
        let mut begins: Vec<bool> = (0..length).map(|at| at == 0 || self.begins(at)).collect();
        let before_all = begins.clone();
        for at in 0..length {
            let (before, kind) = (self.before(at), self.kind(at));
            if kind == Some(Kind::Blank) && before == Some(Kind::Break) {
                let end = (at..length).find(|&at| self.kind(at) != Some(Kind::Blank)).unwrap_or(length);
                let signed = self.has(Rules::SIGNED_BREAKS) && self.after_signs(at);
                if self.kind(end) == Some(Kind::Break) && !signed {
                    begins[at] = false;
                }
            }
            let within = Self::is_letter(before) && Self::is_letter(self.kind(at + 1));
            let suffix = self.has(Rules::SUFFIXES) && within;
            let own = !self.has(Rules::SUFFIXES) && self.has(Rules::CONTRACTIONS);
            let word = own && self.has(Rules::SPACES) && within;
            let own = own && !self.has(Rules::SPACES) && self.attached(at);
            if self.points[at] == 0x27 && (suffix || own || word) && self.contraction(at) > 0 {
                if suffix {
                    begins[at] = false;
                }
                let behind = at + 1 + self.contraction(at);
                // The letters behind, whether or not marks are letters.
                let mark = self.points.get(behind).is_some_and(|&point| point == 0x0301 || point == 0x093E);
                let goes_on = Self::is_letter(self.kind(behind)) && !mark;
                if word {
                    begins[at + 1] = goes_on;
                } else if goes_on {
                    begins[behind] = true;
                }
            }
            if self.has(Rules::SLASHES)
                && self.points[at] == 0x2F
                && before == Some(Kind::Break)
                && self.after_signs(at)
            {
                begins[at] = false;
                let is_tail = |at: usize| self.points[at] == 0x2F || self.kind(at) == Some(Kind::Break);
                if let Some(end) = (at..length).find(|&at| !is_tail(at)) {
                    begins[end] = true;
                }
            }
            let neutral = matches!(before, Some(Kind::Letter | Kind::Han | Kind::Kana | Kind::Mark));
            if self.has(Rules::CASES) && kind == Some(Kind::Upper) && neutral && !self.is_han(before) {
                let end = (at..length).find(|&at| self.kind(at) != Some(Kind::Upper));
                if end.is_none_or(|end| self.kind(end) != Some(Kind::Lower)) {
                    begins[at] = true;
                }
            }
        }
        assert!(length == 0 || before_all[0]);
        (0..length).filter(|&at| begins[at]).collect()
    }

    /// The counts, for a vocabulary.
    fn counters(&self, tokens: &HashSet<Vec<u8>>) -> Counters {
        let mut counters = Counters { counts: [0; COUNTERS], bytes: wtf8(self.points).len() as u64 };
        let edged = self.has(Rules::EDGES);
        let placed: HashSet<(&[u8], u8)> = tokens
            .iter()
            .map(|token| if edged { (&token[..token.len() - 1], token[token.len() - 1] & 3) } else { (&token[..], 0) })
            .filter(|(token, _)| token.len() > 1)
            .collect();
        let mut starts = self.starts();
        starts.push(self.points.len());
        for pair in starts.windows(2) {
            let whole = wtf8(&self.points[pair[0]..pair[1]]);
            let word = whole.last().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte >= 0x80);
            let closed = edged && (word || self.points.get(pair[1]) == Some(&0x20));
            if whole.len() == 1 || placed.contains(&(&whole[..], u8::from(edged) | u8::from(closed) << 1)) {
                counters.counts[0] += 1;
                continue;
            }
            let (mut at, mut last, mut pieces) = (0, 0, 0);
            while at < whole.len() {
                let rest = &whole[at..];
                let place = |length: usize| u8::from(edged && at == 0) | u8::from(closed && length == rest.len()) << 1;
                let fits = |&length: &usize| length <= rest.len() && placed.contains(&(&rest[..length], place(length)));
                last = (2..=rest.len()).rev().find(fits).unwrap_or(1);
                at += last;
                pieces += 1;
            }
            let lead = whole[whole.len() - last];
            let foreign = whole.iter().take(16).find(|&&byte| byte >= 0xC0);
            let letter = whole.iter().take(2).find(|byte| byte.is_ascii_alphabetic());
            let kind = match foreign {
                None => letter.map_or(0, |letter| if letter.is_ascii_lowercase() { 1 } else { 2 }),
                Some(0xC0..=0xCD) => 3,
                Some(0xCE..=0xCF) => 4,
                Some(0xD0..=0xD3) => 5,
                Some(0xD4..=0xD7) => 6,
                Some(0xD8..=0xDF) => 7,
                Some(&lead @ 0xE0..=0xE3) => usize::from(lead - 0xE0) + 8,
                Some(0xE4..=0xE9) => 12,
                Some(0xEA..=0xED) => 13,
                Some(0xEE..=0xEF) => 14,
                Some(_) => 15,
            };
            let tail = u64::from(last == 1 || lead >= 0xC0 && last <= 3);
            for (sum, count) in counters.counts[1 + kind * 4..].iter_mut().zip([1, pieces, whole.len() as u64, tail]) {
                *sum += count;
            }
        }
        counters
    }
}

fn characters(length: usize) -> impl Strategy<Value = Vec<u32>> {
    let listed: Vec<u32> = CHARACTERS.iter().map(|&(point, _)| point).collect();
    let one = prop::sample::select(listed);
    // Runs of one character, too.
    prop::collection::vec((one, prop_oneof![8 => Just(1_usize), 1 => 2_usize..6]), 0..length)
        .prop_map(|runs| runs.into_iter().flat_map(|(point, times)| std::iter::repeat_n(point, times)).collect())
}

/// Pieces of some lengths out of a text, enough for a vocabulary.
fn vocabulary(text: &[u32]) -> HashSet<Vec<u8>> {
    let bytes = wtf8(text);
    let mut tokens: HashSet<Vec<u8>> = (0..300_u32).map(|number| format!("filler {number}.").into_bytes()).collect();
    for (place, length) in (0..bytes.len()).zip([2, 3, 4, 2, 6, 3, 5, 18, 2, 9, 24, 3].into_iter().cycle()) {
        tokens.extend(bytes.get(place..place + length).map(<[u8]>::to_vec));
    }
    tokens
}

fn fingerprints(rules: u16, tokens: &HashSet<Vec<u8>>) -> Fingerprints {
    let tokens: Vec<&Vec<u8>> = tokens.iter().collect();
    Fingerprints::of("test", "a test", Rules(rules), &tokens).unwrap()
}

proptest! {
    // A fixed seed: once in 65,536 times something else is taken for a token.
    #![proptest_config(ProptestConfig { cases: 200, rng_seed: RngSeed::Fixed(3), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_width_agrees_with_the_naive_count(points in characters(300), rules in 0..=Rules::ALL) {
        let tokens = vocabulary(&points);
        let fingerprints = fingerprints(rules, &tokens);
        let count = |points: &[u32]| Naive { points, rules }.counters(&tokens);
        prop_assert_eq!(fingerprints.counters(Text::Ucs4(&points)), count(&points));
        prop_assert_eq!(fingerprints.counters(Text::Utf8(&wtf8(&points))), count(&points));
        let narrow: Vec<u16> = points.iter().filter_map(|&point| u16::try_from(point).ok()).collect();
        let wide: Vec<u32> = narrow.iter().map(|&unit| unit.into()).collect();
        prop_assert_eq!(fingerprints.counters(Text::Ucs2(&narrow)), count(&wide));
        let bytes: Vec<u8> = points.iter().filter_map(|&point| u8::try_from(point).ok()).collect();
        let wide: Vec<u32> = bytes.iter().map(|&unit| unit.into()).collect();
        prop_assert_eq!(fingerprints.counters(Text::Latin1(&bytes)), count(&wide));
        let ascii: Vec<u8> = bytes.into_iter().filter(u8::is_ascii).collect();
        prop_assert_eq!(fingerprints.counters(Text::Ascii(&ascii)), fingerprints.counters(Text::Latin1(&ascii)));
    }

    #[test]
    fn chunks_join_without_a_trace(words in prop::collection::vec(characters(6), 0..40)) {
        let mut points: Vec<u32> = words.join(&[0x61, 0x20, 0x61][..]);
        let tokens = vocabulary(&points);
        points = points.repeat(1 + 12_000 / points.len().max(1));
        let rules = Rules::MARKS | Rules::CASES | Rules::SUFFIXES | Rules::SIGNED_BREAKS | Rules::SLASHES;
        // Joined by letters around a space, so that there is such a place in each thousand characters.
        points.extend([0x61, 0x20, 0x61]);
        let counted = fingerprints(rules, &tokens).counters(Text::Ucs4(&points));
        if words.len() > 1 {
            prop_assert_eq!(counted, Naive { points: &points, rules }.counters(&tokens));
        }
    }

    #[test]
    fn any_bytes_can_be_counted(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let fingerprints = fingerprints(Rules::ALL, &vocabulary(&[0x61, 0x62, 0x63, 0x4E2D]));
        let tokens = fingerprints.count(Text::Utf8(&bytes));
        prop_assert!(tokens <= bytes.len() as f64 * 2.5 && (tokens >= 1.0) != bytes.is_empty());
    }

    #[test]
    fn hostile_files_are_refused_or_read(cut in 0_usize..4000, at in 0_usize..4000, byte in any::<u8>()) {
        let mut file = fingerprints(Rules::ALL, &vocabulary(&[0x61])).to_bytes();
        file.truncate(file.len().saturating_sub(cut).max(1));
        let place = at % file.len();
        file[place] = byte;
        if let Ok(read) = Fingerprints::from_bytes(&file) {
            let _ = read.count(Text::from("What does this say, in 2026?\n\n    中文 naïve"));
        }
    }
}

#[test]
fn a_file_gives_what_was_written() {
    let tokens = vocabulary(&[0x61, 0x62, 0x63]);
    let weights: Vec<f32> = (0..COUNTERS as u16).map(|place| f32::from(place) / 8.0).collect();
    let margin = Margin { shared: 0.25, own: 0.5 };
    let made = fingerprints(Rules::MARKS, &tokens).with_weights(&weights, margin).unwrap();
    let read = Fingerprints::from_bytes(&made.to_bytes()).unwrap();
    assert_eq!(read, made);
    assert_eq!((read.family.as_str(), read.about.as_str(), read.rules), ("test", "a test", Rules(Rules::MARKS)));
}

#[test]
fn what_is_no_file_is_refused() {
    let file = fingerprints(0, &vocabulary(&[0x61])).to_bytes();
    for bytes in [&b""[..], b"secateur tokens 1\n", &file[..30], &file[..file.len() - 1], &[&file[..], b"x"].concat()] {
        assert!(matches!(Fingerprints::from_bytes(bytes), Err(Error::Weights(_))));
    }
    let (head, shape) = ("secateur fingerprints 1\nabout\nfamily\n", file.len());
    for heading in
        ["0 9 63 9 9 65", "0 9 8 18446744073709551615 1 65", "0 9 0 3 3 65", "9999 9 4 48 16 65", "0 0 4 48 16 65"]
    {
        let bytes = [head.as_bytes(), heading.as_bytes(), b"\n", &vec![0; shape]].concat();
        assert!(matches!(Fingerprints::from_bytes(&bytes), Err(Error::Weights(_))), "{heading}");
    }
    assert!(Fingerprints::of("few", "", Rules(0), &["one"]).is_err());
    let made = fingerprints(0, &vocabulary(&[0x61]));
    assert!(made.clone().with_weights(&[1.0], Margin::default()).is_err());
    assert!(made.with_weights(&[f32::NAN; COUNTERS], Margin::default()).is_err());
}
