//! The features of texts against a naive twin, in every storage width and with every instruction set.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // A panic is how a test fails.

use proptest::prelude::*;
use secateur_core::simd::InstructionSet;
use secateur_core::{Features, SAMPLED_FROM, Text, class_of, feature_names};

/// What a character is, as a condition asks.
#[derive(Clone, Copy)]
struct Seen<'a>(&'a [u8]);

impl Seen<'_> {
    /// The class byte some places back; a line break before the text.
    fn back(self, places: usize) -> u8 {
        self.0.len().checked_sub(places + 1).map_or(b'\n', |at| self.0[at])
    }
    fn is(self, places: usize, kind: fn(u8) -> bool) -> bool {
        kind(self.back(places))
    }
    fn run(self, length: usize, kind: fn(u8) -> bool) -> bool {
        (0..length).all(|places| self.is(places, kind))
    }
    fn starts(self, kind: fn(u8) -> bool) -> bool {
        self.is(0, kind) && !self.is(1, kind)
    }
}

fn letter(class: u8) -> bool {
    class.is_ascii_alphabetic() || (0x80..=0x8F).contains(&class)
}
fn upper(class: u8) -> bool {
    class.is_ascii_uppercase()
}
fn lower(class: u8) -> bool {
    letter(class) && !upper(class)
}
fn digit(class: u8) -> bool {
    class.is_ascii_digit()
}
fn space(class: u8) -> bool {
    class == b' '
}
fn gap(class: u8) -> bool {
    class == b' ' || (9..=13).contains(&class)
}
fn punctuation(class: u8) -> bool {
    class.is_ascii() && !letter(class) && !digit(class) && !gap(class)
}
fn chinese(class: u8) -> bool {
    (0x90..=0x96).contains(&class)
}
fn other_letter(class: u8) -> bool {
    (0x97..=0xEC).contains(&class)
}
fn sign(class: u8) -> bool {
    (0xED..=0xFE).contains(&class)
}
fn foreign(class: u8) -> bool {
    (0x80..=0xFE).contains(&class)
}

/// Whether a condition holds for the last character seen.
fn holds(name: &str, seen: Seen<'_>) -> bool {
    let last = seen.back(0);
    let single = |name: &str| name.bytes().next_back().unwrap();
    match name {
        "letter" => letter(last),
        "upper" => upper(last),
        "digit" => digit(last),
        "space" => space(last),
        "newline" => last == b'\n',
        "tab" => last == b'\t',
        "punctuation" => punctuation(last),
        "word" => seen.starts(letter),
        "word after space" => seen.starts(letter) && seen.is(1, space),
        "word after punctuation" => seen.starts(letter) && seen.is(1, punctuation),
        "letter 3" => seen.run(3, letter),
        "letter 5" => seen.run(5, letter),
        "letter 8" => seen.run(8, letter),
        "case change" => (upper(last) && seen.is(1, lower)) || (lower(last) && seen.is(1, upper)),
        "capital" => upper(last) && !seen.is(1, letter),
        "hump" => lower(last) && seen.is(1, upper) && seen.is(2, lower),
        "number" => seen.starts(digit),
        "digit 2" => seen.run(2, digit),
        "digit 4" => seen.run(4, digit),
        "digit 4 or 7 exactly" => [4, 7].iter().any(|&length| seen.run(length, digit) && !seen.is(length, digit)),
        "signs" => seen.starts(punctuation),
        "punctuation 2" => seen.run(2, punctuation),
        "punctuation after letter" => punctuation(last) && seen.is(1, letter),
        "punctuation repeated" => punctuation(last) && last == seen.back(1),
        "gap" => seen.starts(gap),
        "spaces" => seen.run(2, space) && !seen.is(2, space),
        "space 5" => seen.run(5, space),
        "newline 2" => last == b'\n' && seen.back(1) == b'\n',
        "space after newline" => last == b' ' && seen.back(1) == b'\n',
        "other word" => seen.starts(other_letter),
        "other word after space" => seen.starts(other_letter) && seen.is(1, space),
        "other letter 3" => seen.run(3, other_letter),
        "Chinese run" => seen.starts(chinese),
        "sign run" => seen.starts(sign),
        "foreign run" => seen.starts(foreign),
        "foreign run after space" => seen.starts(foreign) && seen.is(1, space),
        "latin letters" => letter(last) && !last.is_ascii(),
        "Chinese and Japanese" => chinese(last),
        "other letters" => other_letter(last),
        "signs not ASCII" => sign(last),
        "not ASCII" => foreign(last),
        _ if name.starts_with("letter ") => last.eq_ignore_ascii_case(&single(name)),
        _ if name.starts_with("sign ") => last == single(name),
        _ if name.starts_with("word begins with ") => seen.starts(letter) && last.eq_ignore_ascii_case(&single(name)),
        _ if name.starts_with("word after ") => seen.starts(letter) && seen.back(1) == single(name),
        _ if name.starts_with("word ends in ") => {
            !letter(last) && seen.is(1, letter) && seen.back(1).eq_ignore_ascii_case(&single(name))
        }
        _ => panic!("no twin of {name}"),
    }
}

fn naive(points: &[u32]) -> Vec<u32> {
    let mut classes: Vec<u8> = points.iter().map(|&point| class_of(point)).collect();
    let names = feature_names();
    let mut counts = vec![0; names.len()];
    // A word ends where the text ends.
    classes.push(0xFF);
    for end in 1..=classes.len() {
        for (count, name) in counts.iter_mut().zip(&names) {
            if !name.starts_with("class ") {
                *count += u32::from(holds(name, Seen(&classes[..end])));
            }
        }
    }
    let first_class = names.iter().position(|name| name.starts_with("class ")).unwrap();
    for &class in classes.iter().filter(|&&class| foreign(class)) {
        counts[first_class + usize::from(class) - 0x80] += 1;
    }
    counts
}

fn point() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => prop::sample::select(" \n\t  eaidyktwzAQHello._/,-(\":[=01234567890''".chars().map(u32::from).collect::<Vec<_>>()),
        2 => 0_u32..0x80,
        2 => prop::sample::select("éßłžđПриветіїґ你好說ひカ한글हिन्दीالعربيةٹпى…—“”🎉👍🏽".chars().map(u32::from).collect::<Vec<_>>()),
        1 => 0x80_u32..0x3_0000,
        1 => prop::sample::select(vec![0xD800, 0xDFFF, 0x1_FFFF, 0x2_0000, 0x10_FFFF]),
    ]
}

const SETS: [InstructionSet; 3] = [InstructionSet::Portable, InstructionSet::Baseline, InstructionSet::Avx2];

proptest! {
    #[test]
    fn every_instruction_set_agrees_with_the_naive_twin(points in prop::collection::vec(point(), 0..300)) {
        let expected = naive(&points);
        for set in SETS {
            let features = Features::of_with(set, Text::Ucs4(&points));
            let different: Vec<_> = feature_names().into_iter().zip(features.counts.iter().zip(&expected)).filter(|(_, (a, b))| a != b).collect();
            prop_assert!(different.is_empty(), "{:?}: {:?}", set, different);
        }
    }

    #[test]
    fn every_width_gives_the_same_counts(points in prop::collection::vec(point(), 0..5000)) {
        let expected = Features::of(Text::Ucs4(&points));
        let text: String = points.iter().filter_map(|&point| char::from_u32(point)).collect();
        let characters: Vec<u32> = text.chars().map(u32::from).collect();
        let utf8 = Features::of(Text::Utf8(text.as_bytes()));
        prop_assert_eq!(&utf8, &Features::of(Text::Ucs4(&characters)));
        prop_assert_eq!(utf8.bytes, text.len() as u64);
        let narrow: Vec<u16> = points.iter().filter_map(|&point| u16::try_from(point).ok()).collect();
        let wide: Vec<u32> = narrow.iter().map(|&unit| unit.into()).collect();
        prop_assert_eq!(Features::of(Text::Ucs2(&narrow)), Features::of(Text::Ucs4(&wide)));
        let bytes: Vec<u8> = points.iter().filter_map(|&point| u8::try_from(point).ok()).collect();
        let wide: Vec<u32> = bytes.iter().map(|&byte| byte.into()).collect();
        prop_assert_eq!(Features::of(Text::Latin1(&bytes)), Features::of(Text::Ucs4(&wide)));
        let ascii: Vec<u8> = bytes.into_iter().filter(u8::is_ascii).collect();
        prop_assert_eq!(Features::of(Text::Ascii(&ascii)), Features::of(Text::Utf8(&ascii)));
        prop_assert_eq!(expected.characters, points.len() as u64);
    }
}

#[test]
fn blocks_join_without_a_seam() {
    // Longer than a block, with runs across its end.
    let text = "wordsAcross 123456789 ...  \n".repeat(300);
    let points: Vec<u32> = text.chars().map(u32::from).collect();
    assert!(points.len() > 3 * 2048);
    assert_eq!(Features::of(Text::from(text.as_str())).counts.to_vec(), naive(&points));
}

#[test]
fn a_sample_is_near_the_whole_and_the_same_in_every_width() {
    let lines: Vec<String> =
        (0..12_000).map(|number| format!("Line {number}: words, {}!", number * 7919 % 1000)).collect();
    let text = lines.join("\n");
    assert!(text.len() > 4 * SAMPLED_FROM);
    let sampled = Features::of(Text::from(text.as_str()));
    let wide: Vec<u16> = text.encode_utf16().collect();
    assert_eq!(sampled, Features::of(Text::Ucs2(&wide)));
    let mut whole = Features::default();
    for part in text.as_bytes().chunks(1024) {
        whole.add(Text::Ascii(part));
    }
    let words = feature_names().iter().position(|name| name == "word").unwrap();
    let (a, b) = (f64::from(sampled.counts[words]), f64::from(whole.counts[words]));
    assert!((a / b - 1.0).abs() < 0.02, "{a} against {b}");
    assert_eq!(sampled.characters, text.len() as u64);
}
