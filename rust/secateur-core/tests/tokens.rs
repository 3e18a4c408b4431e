//! The script rule against a one-line twin, in every storage width.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A panic is how a test fails.

use proptest::prelude::*;
use secateur_core::{Script, ScriptCounts, Text};

/// The rule as it was published, character by character.
fn naive(code_points: &[u32]) -> ScriptCounts {
    let ascii = code_points.iter().filter(|&&point| point < 0x80).count();
    let is_cjk = |point: u32| {
        (0x1100..0x1200).contains(&point)
            || (0x2E80..0xD800).contains(&point)
            || (0xF900..0xFB00).contains(&point)
            || point >= 0x2_0000
    };
    let cjk = code_points.iter().filter(|&&point| is_cjk(point)).count();
    ScriptCounts { ascii, cjk, other: code_points.len() - ascii - cjk }
}

/// UTF-8 as Python's `surrogatepass` writes it: `char` cannot hold surrogates.
fn wtf8(code_points: &[u32]) -> Vec<u8> {
    let six_bits = |point: u32, shift: u32| 0x80 | (point >> shift & 0x3F) as u8;
    let encode = |&point: &u32| {
        let surrogate = || vec![0xE0 | (point >> 12) as u8, six_bits(point, 6), six_bits(point, 0)];
        char::from_u32(point).map_or_else(surrogate, |character| character.to_string().into_bytes())
    };
    code_points.iter().flat_map(encode).collect()
}

fn code_point() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0_u32..0x80,
        2 => 0x80_u32..0x1_0000,
        1 => 0_u32..0x11_0000,
        // The borders of the classes and of the encodings.
        2 => prop::sample::select(vec![
            0x7F, 0x80, 0xFF, 0x100, 0x7FF, 0x800, 0x10FF, 0x1100, 0x11FF, 0x1200, 0x2E7F, 0x2E80, 0xD7FF, 0xD800,
            0xDFFF, 0xE000, 0xF8FF, 0xF900, 0xFAFF, 0xFB00, 0xFFFF, 0x1_0000, 0x1_F600, 0x1_FFFF, 0x2_0000, 0x10_FFFF,
        ]),
    ]
}

proptest! {
    #[test]
    fn every_width_agrees_with_the_naive_count(points in prop::collection::vec(code_point(), 0..700)) {
        let expected = naive(&points);
        prop_assert_eq!(ScriptCounts::of(Text::Ucs4(&points)), expected);
        prop_assert_eq!(ScriptCounts::of(Text::Utf8(&wtf8(&points))), expected);
        let narrow: Vec<u16> = points.iter().filter_map(|&point| u16::try_from(point).ok()).collect();
        let wide: Vec<u32> = narrow.iter().map(|&unit| unit.into()).collect();
        prop_assert_eq!(ScriptCounts::of(Text::Ucs2(&narrow)), naive(&wide));
        let bytes: Vec<u8> = points.iter().filter_map(|&point| u8::try_from(point).ok()).collect();
        let wide: Vec<u32> = bytes.iter().map(|&byte| byte.into()).collect();
        prop_assert_eq!(ScriptCounts::of(Text::Latin1(&bytes)), naive(&wide));
        let ascii: Vec<u8> = bytes.iter().map(|byte| byte & 0x7F).collect();
        prop_assert_eq!(ScriptCounts::of(Text::Ascii(&ascii)), ScriptCounts::of(Text::Latin1(&ascii)));
    }

    #[test]
    fn any_bytes_can_be_counted(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let counts = ScriptCounts::of(Text::Utf8(&bytes));
        prop_assert!(counts.ascii + counts.cjk + counts.other <= bytes.len());
        prop_assert_eq!(bytes.is_empty(), counts == ScriptCounts::default());
    }

    #[test]
    fn appending_never_lowers_an_estimate(points in prop::collection::vec(code_point(), 1..100), at in 0_usize..100) {
        let prefix = points.get(..at.min(points.len())).unwrap_or(&points);
        prop_assert!(ScriptCounts::of(Text::Ucs4(prefix)).tokens() <= ScriptCounts::of(Text::Ucs4(&points)).tokens());
    }
}

#[test]
fn both_sides_of_every_border_have_their_class() {
    use Script::{Ascii, Cjk, Other};
    for (last, class, next) in [
        (0x7F, Ascii, Other),
        (0x10FF, Other, Cjk),
        (0x11FF, Cjk, Other),
        (0x2E7F, Other, Cjk),
        (0xD7FF, Cjk, Other),
        (0xF8FF, Other, Cjk),
        (0xFAFF, Cjk, Other),
        (0x1_FFFF, Other, Cjk),
    ] {
        assert_eq!((Script::of(last), Script::of(last + 1)), (class, next), "at {last:#x}");
    }
}

#[test]
fn each_class_is_rounded_up() {
    let tokens = |text: &str| ScriptCounts::of(text.into()).tokens();
    assert_eq!(tokens(""), 0);
    assert_eq!(tokens("a"), 1);
    assert_eq!(tokens("abcd"), 1);
    assert_eq!(tokens("abcde"), 2);
    assert_eq!(tokens("д"), 1);
    assert_eq!(tokens("при"), 2);
    assert_eq!(tokens("漢字"), 2);
    assert_eq!(tokens("한국어"), 3);
    assert_eq!(tokens("😀"), 1);
    assert_eq!(tokens("a漢д"), 3);
}

#[test]
fn every_unit_of_two_bytes_is_classed_as_its_code_point() {
    for unit in 0..=u16::MAX {
        let expected = naive(&[unit.into()]);
        assert_eq!(ScriptCounts::of(Text::Ucs2(&[unit])), expected, "U+{unit:04X}");
    }
}
