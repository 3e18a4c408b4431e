//! Estimates: the weights that come with the crate, files of weights, bounds.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A panic is how a test fails.

use std::sync::Arc;

use proptest::prelude::*;
use secateur_core::{Error, Estimator, Features, Margin, Mix, Model, Profile, Text, square};

const WEIGHTS: &[u8] = include_bytes!("../data/families.bin");
const ENGLISH: &str = "The quick brown fox jumps over the lazy dog. It was not amused, and said so at length.";
const RUSSIAN: &str = "Съешь же ещё этих мягких французских булок, да выпей чаю.";

fn model() -> Arc<Model> {
    Model::built_in().unwrap()
}

fn estimator(name: &str) -> Estimator {
    let family = model().families.iter().position(|family| family == name).unwrap();
    Estimator::new(model(), Profile::Family(family), 1.0)
}

#[test]
fn families_differ_as_their_tokenizers_do() {
    // True counts: o200k 20 and 17, Claude 4.8 28 and 24, within a tenth or two of a text so short.
    let counts = |name: &str| (estimator(name).count(ENGLISH.into()), estimator(name).count(RUSSIAN.into()));
    let (english, russian) = counts("o200k");
    assert!((17..=23).contains(&english), "{english}");
    assert!((14..=24).contains(&russian), "{russian}");
    let (more_english, more_russian) = counts("claude");
    assert!(more_english > english && more_russian > russian);
    assert_eq!(counts("o200k"), counts("o200k"));
}

#[test]
fn an_unknown_tokenizer_is_the_most_of_all_or_a_mix() {
    let all: Vec<f64> = estimator("o200k").families(ENGLISH.into());
    let most = Estimator::new(model(), Profile::Envelope, 1.0).count(ENGLISH.into());
    assert!((most as f64 - all.iter().copied().fold(0.0, f64::max)).abs() <= 0.5);
    let mut weights = vec![0.0; all.len()];
    weights[0] = 1.0;
    let mix = |trust| Mix { weights: weights.clone(), possible: vec![1.0; all.len()], trust };
    let mixed = |trust| Estimator::new(model(), Profile::Mix(mix(trust)), 1.0);
    assert!((mixed(1.0).count(ENGLISH.into()) as f64 - all[0]).abs() <= 0.5);
    assert_eq!(mixed(0.0).count(ENGLISH.into()), most);
    assert!(mixed(1.0).upper(ENGLISH.into()) > most);
}

#[test]
fn nothing_costs_nothing_and_a_character_something() {
    for name in &model().families {
        assert_eq!(estimator(name).count(Text::from("")), 0);
        assert_eq!(estimator(name).upper(Text::from("")), 0);
        assert!((1..=2).contains(&estimator(name).count(Text::from("a"))));
    }
}

#[test]
fn a_file_cut_short_is_refused() {
    assert!(Model::from_bytes(WEIGHTS).is_ok());
    for length in (0..WEIGHTS.len()).step_by(97) {
        assert!(matches!(Model::from_bytes(&WEIGHTS[..length]), Err(Error::Weights(_))), "{length}");
    }
}

proptest! {
    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(Model::from_bytes(&bytes).is_err());
        let headed = [b"secateur tokens 1\n".as_slice(), &bytes].concat();
        prop_assert!(Model::from_bytes(&headed).is_err());
    }

    #[test]
    fn a_limit_is_met_or_not(repeats in 0_usize..6000, limit in 0_u64..60_000) {
        let text = ENGLISH.repeat(repeats);
        let whole = estimator("o200k").count(Text::from(text.as_str()));
        let counted = estimator("o200k").count_up_to(Text::from(text.as_str()), limit);
        // Estimates of a part and of the whole differ by little, so that near the limit either may hold.
        prop_assert!(counted == Some(whole).filter(|&whole| whole <= limit) || whole.abs_diff(limit) < whole / 20);
    }

    #[test]
    fn bounds_lie_above_and_grow(total in 0_u64..1_000_000, more in 0_u64..1000, shared in 0.0..0.1, own in 0.0..0.4) {
        let margin = Margin { shared, own };
        let bound = margin.bound(total, square(total));
        prop_assert!(bound >= total);
        prop_assert!(margin.bound(total + more, square(total + more)) >= bound);
        let most = margin.within(total);
        prop_assert!(margin.bound(most, square(most)) <= total || most == 0);
        prop_assert!(margin.bound(most + 1, square(most + 1)) > total);
    }

    #[test]
    fn any_text_has_an_estimate(text in ".{0,200}") {
        let features = Features::of(Text::from(text.as_str()));
        for family in 0..model().families.len() {
            let tokens = model().tokens(&features, family);
            prop_assert!(tokens.is_finite() && tokens >= 0.0 && tokens <= 1.25 * text.len() as f64);
        }
    }
}
