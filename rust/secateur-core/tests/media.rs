//! Worked examples of the providers' guides, counts that providers made, and bounds that hold for any size.

use proptest::prelude::*;
use secateur_core::media::{Detail, MediaRule, PatchLimit};

const MODELS: [&str; 16] = [
    "gpt-4o",
    "gpt-4o-mini",
    "gpt-4.1-mini",
    "gpt-4.1-nano",
    "gpt-5",
    "gpt-5-nano",
    "gpt-5.2",
    "gpt-5.4",
    "gpt-5.5",
    "gpt-6-astra",
    "o3",
    "o4-mini",
    "claude-haiku-4-5",
    "claude-sonnet-5",
    "gemini-2.5-flash",
    "grok-4",
];

fn tokens(model: &str, width: u32, height: u32) -> u32 {
    MediaRule::of_model(model).image_tokens(Some((width, height)), Detail::Auto)
}

#[test]
fn examples_of_the_guides() {
    let gpt_4o = MediaRule::of_model("gpt-4o");
    assert_eq!(gpt_4o.image_tokens(Some((1_024, 1_024)), Detail::High), 765);
    assert_eq!(gpt_4o.image_tokens(Some((2_048, 4_096)), Detail::High), 1_105);
    assert_eq!(gpt_4o.image_tokens(Some((4_096, 8_192)), Detail::Low), 85);
    let patches = |multiplier_percent| {
        let limit = PatchLimit { most: 1_536, longest_edge: 2_048 };
        MediaRule::OpenAiPatches { multiplier_percent, high: limit, auto: limit, original: limit }
    };
    assert_eq!(patches(100).image_tokens(Some((1_024, 1_024)), Detail::High), 1_024);
    assert_eq!(patches(100).image_tokens(Some((1_800, 2_400)), Detail::High), 1_452);
    for (side, expected) in [(200, 64), (1_000, 1_296), (1_092, 1_521)] {
        assert_eq!(tokens("claude-sonnet-4-6", side, side), expected);
        assert_eq!(tokens("claude-opus-4-8", side, side), expected);
    }
    assert_eq!(tokens("gemini-2.0-flash", 384, 384), 258);
    assert_eq!(tokens("gemini-3-pro-preview", 4_000, 3_000), 1_120);
    assert_eq!(tokens("grok-4", 4_000, 3_000), 1_792);
}

/// From recorded requests and measurements that others published: what was counted, less the text beside it.
#[test]
fn counts_of_the_providers() {
    for (model, width, height, counted) in [
        ("gpt-4.1", 2_049, 513, 1_445),
        ("gpt-4.1", 2_050, 513, 765),
        ("gpt-4o-mini-2024-07-18", 1, 1, 8_500),
        ("gpt-4o-mini-2024-07-18", 640, 480, 14_167),
        ("gpt-5-2025-08-07", 50, 50, 210),
        ("gpt-5-mini", 256, 256, 77),
        ("gpt-5-mini", 1_024, 1_024, 1_229),
        ("gpt-5-mini", 2_048, 768, 1_844),
        ("gpt-5-nano-2025-08-07", 128, 128, 24),
        ("gpt-4.1-mini", 4_000, 1_474, 2_489), // Published as 2,488; one more where the factor leaves a fraction.
        ("gpt-5.5", 4_032, 3_024, 11_868),
        ("gpt-6-astra", 2_560, 1_440, 4_320),
        ("gpt-6-astra", 4_032, 3_024, 14_364),
        ("claude-haiku-4-5-20251001", 128, 128, 25),
        ("claude-haiku-4-5-20251001", 239, 178, 63),
        ("claude-haiku-4-5-20251001", 1_024, 768, 1_036),
        ("claude-haiku-4-5-20251001", 1_920, 1_080, 1_560),
        ("claude-haiku-4-5-20251001", 4_032, 3_024, 1_564),
        ("claude-opus-5-5", 1_920, 1_080, 2_691),
        ("gemini-2.0-flash", 640, 480, 1_290),
        ("gemini-2.5-pro", 50, 50, 258),
    ] {
        assert_eq!(tokens(model, width, height), counted, "{model} {width}x{height}");
    }
    let gpt_6 = MediaRule::of_model("gpt-6-astra");
    assert_eq!(gpt_6.image_tokens(Some((2_560, 1_440)), Detail::High), 2_931);
    assert_eq!(gpt_6.image_tokens(Some((4_032, 3_024)), Detail::High), 2_942);
    assert_eq!(MediaRule::of_model("gemini-2.5-flash").document_tokens(Some(1), 0), 1_290);
    assert_eq!(MediaRule::of_model("gpt-4o-audio-preview").audio_tokens(Some(200), 0), 2);
    assert_eq!(MediaRule::of_model("gemini-2.5-flash").audio_tokens(Some(5_000), 0), 160);
}

#[test]
fn rules_by_name() {
    for (name, like) in [
        ("openai/gpt-5", "gpt-5"),
        ("azure/gpt-5.1-2025-11-13", "gpt-5"),
        ("GPT-4-turbo-2024-04-09", "gpt-4o"),
        ("chatgpt-4o-latest", "gpt-4o"),
        ("gpt-4.5-preview", "gpt-4o"),
        ("gpt-5.3-codex", "gpt-5.2"),
        ("gpt-5.6-terra", "gpt-6-astra"),
        ("gpt-audio", "gpt-6-astra"),
        ("openai/o1-2024-12-17", "o3"),
        ("openrouter/openai/o4-mini:high", "o4-mini"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-haiku-4-5"),
        ("anthropic/claude-4.5-haiku-20251001", "claude-haiku-4-5"),
        ("claude-3-5-sonnet-20240620", "claude-haiku-4-5"),
        ("claude-sonnet-4-20250514", "claude-haiku-4-5"),
        ("claude-opus-4-7", "claude-sonnet-5"),
        ("claude-latest", "claude-sonnet-5"),
        ("models/gemini-1.5-pro-002", "gemini-2.5-flash"),
        ("x-ai/grok-4.1-fast", "grok-4"),
        ("", "claude-sonnet-5"),
        ("openai/whisper-1", "claude-sonnet-5"),
    ] {
        assert_eq!(MediaRule::of_model(name), MediaRule::of_model(like), "{name}");
    }
    assert_eq!(MediaRule::of_model("gemini-flash-latest"), MediaRule::GeminiFixed);
}

#[test]
fn what_is_unknown() {
    let claude = MediaRule::of_model("claude-sonnet-5");
    assert_eq!(claude.image_tokens(None, Detail::Auto), tokens("claude-sonnet-5", 1_920, 1_080));
    assert_eq!(claude.document_tokens(None, 25_000), 9_600);
    assert_eq!(claude.document_tokens(None, 0), 3_200);
    assert_eq!(claude.document_tokens(Some(u32::MAX), 0), 3_200_000);
    assert_eq!(MediaRule::of_model("gpt-4o").document_tokens(Some(2), 0), 2 * (765 + 800));
    assert_eq!(MediaRule::of_model("gpt-4o-mini").document_tokens(Some(1), 0), 2_800);
    let gemini = MediaRule::of_model("gemini-2.5-flash");
    assert_eq!(gemini.audio_tokens(None, 8_000), 64);
    assert_eq!(gemini.video_tokens(None, 125_000), 600);
    assert_eq!(gemini.video_tokens(Some(u64::MAX), 0), u32::MAX);
    let most = |model: &&&str| tokens(model, 1_920, 1_080) > tokens("any other", 1_920, 1_080);
    assert_eq!(MODELS.iter().filter(most).collect::<Vec<_>>(), [&"gpt-4o-mini", &"gpt-4.1-nano"]);
}

/// The largest size within the limit, edge by edge.
fn naive_anthropic(width: u32, height: u32, most: u32, longest_edge: u32) -> u32 {
    let (longer, shorter) = (u64::from(width.max(height)), u64::from(width.min(height)));
    (1..=longer.min(longest_edge.into()))
        .rev()
        .map(|edge| {
            let other = (2 * shorter * edge + longer - 1) / (2 * longer);
            edge.div_ceil(28) as u32 * other.max(1).div_ceil(28) as u32
        })
        .find(|&patches| patches <= most)
        .unwrap_or(1)
}

/// The guide's own steps, in fractions.
fn naive_patches(width: u32, height: u32, most: u32) -> f64 {
    let (width, height, most) = (f64::from(width), f64::from(height), f64::from(most));
    let shrink = (most * 1_024.0 / (width * height)).sqrt();
    let (across, down) = (width * shrink / 32.0, height * shrink / 32.0);
    let shrink = (across.floor() / across).min(down.floor() / down);
    // Less a hair, for one of the two is a whole number but for its rounding.
    (across * shrink - 1e-6).ceil() * (down * shrink - 1e-6).ceil()
}

proptest! {
    #[test]
    fn anthropic_as_the_naive_twin(width in 1..9_000_u32, height in 1..9_000_u32) {
        prop_assert_eq!(tokens("claude-haiku-4-5", width, height), naive_anthropic(width, height, 1_568, 1_568));
        prop_assert_eq!(tokens("claude-sonnet-5", width, height), naive_anthropic(width, height, 4_784, 2_576));
    }

    #[test]
    fn patches_as_the_guide(width in 1_700..9_000_u32, height in 1_700..9_000_u32) {
        let limit = PatchLimit { most: 2_500, longest_edge: u32::MAX };
        let rule = MediaRule::OpenAiPatches { multiplier_percent: 100, high: limit, auto: limit, original: limit };
        let counted = rule.image_tokens(Some((width, height)), Detail::High);
        prop_assert!((f64::from(counted) - naive_patches(width, height, 2_500)).abs() < 0.5);
    }

    #[test]
    fn every_size_and_name_has_a_bounded_cost(
        model in prop_oneof![prop::sample::select(&MODELS[..]).prop_map(str::to_owned), "\\PC{0,30}"],
        width in any::<u32>(),
        height in any::<u32>(),
        numbers in any::<(u32, u64, u64)>(),
    ) {
        let rule = MediaRule::of_model(&model);
        for detail in [Detail::Low, Detail::High, Detail::Auto, Detail::Original] {
            let tokens = rule.image_tokens(Some((width, height)), detail);
            prop_assert!((1..=48_169).contains(&tokens), "{} {}", model, tokens);
        }
        let (pages, milliseconds, bytes) = numbers;
        prop_assert!(rule.document_tokens(Some(pages), bytes) > 0);
        let _ = rule.document_tokens(None, bytes);
        let _ = rule.audio_tokens(Some(milliseconds), bytes);
        let _ = rule.video_tokens(None, bytes);
    }
}
