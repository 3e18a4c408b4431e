//! Estimating tokens by a profile: the published rule, a family of tokenizers, or what an unknown one may be.

use std::sync::Arc;

use crate::estimate::{Margin, Model, Read};
use crate::features::Features;
use crate::fingerprint::Fingerprints;
use crate::text::Text;
use crate::tokens::ScriptCounts;

/// Whose tokens are estimated.
#[derive(Debug, Clone, PartialEq)]
pub enum Profile {
    /// The published rule by script.
    Script,
    /// One family of a model's.
    Family(usize),
    /// An unknown tokenizer: the most that any family gives.
    Envelope,
    /// An unknown tokenizer, of which usage figures have shown something.
    Mix(Mix),
}

/// What usage figures have shown of an unknown tokenizer.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// The weight of each family.
    pub weights: Vec<f64>,
    /// By what each family is multiplied that may still be the one; 0 for those that cannot.
    pub possible: Vec<f64>,
    /// How far the weights are believed, from 0 to 1; the rest is the most of what may be.
    pub trust: f64,
}

/// An estimate of tokens, with what was learned of it.
#[derive(Debug, Clone)]
pub struct Estimator {
    model: Arc<Model>,
    /// What is known of the vocabulary, if that is to count.
    fingerprints: Option<Arc<Fingerprints>>,
    profile: Profile,
    factor: f64,
    margin: Margin,
    most_per_byte: f64,
}

/// The error of short texts does not shrink with the text: so many tokens are added to each before it is squared.
const LEAST_OFF: f64 = 8.0;
/// Longest text that is counted whole before asking whether a part of it exceeds a limit.
const PREFIX: usize = 16 * 1024;

impl Estimator {
    /// An estimator by a profile, whose estimates are multiplied by a factor learned from usage.
    #[must_use]
    pub fn new(model: Arc<Model>, profile: Profile, factor: f64) -> Self {
        let margin = match &profile {
            // An exact rule, without a tokenizer that it could miss.
            Profile::Script => Margin::default(),
            Profile::Family(family) => model.margin(*family),
            Profile::Envelope | Profile::Mix(_) => model.margin(usize::MAX),
        };
        // Byte-pair encodings have at most a token a byte; Claude's tokenizers add marks of their own.
        let marked = |family: usize| model.families.get(family).is_some_and(|name| name.starts_with("claude"));
        let most_per_byte = match &profile {
            Profile::Family(family) if !marked(*family) => 1.0,
            _ => 1.25,
        };
        Self { model, fingerprints: None, profile, factor, margin, most_per_byte }
    }

    /// The same profile, counted by the fingerprints of its vocabulary.
    #[must_use]
    pub fn with_fingerprints(self, fingerprints: Arc<Fingerprints>) -> Self {
        Self { margin: fingerprints.margin, fingerprints: Some(fingerprints), ..self }
    }

    /// By how much the estimates may be too low.
    #[must_use]
    pub fn margin(&self) -> Margin {
        self.margin
    }

    /// Tokens of a text.
    #[must_use]
    pub fn count(&self, text: Text<'_>) -> u64 {
        if let Some(fingerprints) = &self.fingerprints {
            return self.scaled(fingerprints.count(text));
        }
        match self.profile {
            _ if text.units() == 0 => 0,
            Profile::Script => self.scaled(ScriptCounts::of(text).tokens() as f64),
            _ => self.count_features(&Features::of(text)),
        }
    }

    /// Tokens of what was counted before.
    fn count_features(&self, features: &Features) -> u64 {
        if features.characters == 0 {
            return 0;
        }
        let read = self.model.read(features);
        let families = (0..self.model.families.len()).map(|family| read.tokens(family));
        let estimate = match &self.profile {
            Profile::Family(family) => read.tokens(*family),
            Profile::Mix(mix) => {
                let mixed: f64 = families.zip(&mix.weights).map(|(tokens, weight)| tokens * weight).sum();
                mixed * mix.trust + mix.most(&read) * (1.0 - mix.trust)
            }
            Profile::Script | Profile::Envelope => families.fold(0.0, f64::max),
        };
        self.scaled(estimate).max(1)
    }

    /// Tokens of a text if they are no more than a limit. Of a long text no more is read than shows that they are.
    #[must_use]
    pub fn count_up_to(&self, text: Text<'_>, limit: u64) -> Option<u64> {
        let mut prefix = PREFIX;
        while prefix < text.units() / 2 {
            if self.count(text.prefix(prefix)) > limit {
                return None;
            }
            prefix *= 4;
        }
        Some(self.count(text)).filter(|&tokens| tokens <= limit)
    }

    /// A bound that the true count of a text exceeds in less than one of a hundred texts.
    #[must_use]
    pub fn upper(&self, text: Text<'_>) -> u64 {
        if self.profile == Profile::Script && self.fingerprints.is_none() {
            return self.count(text);
        }
        let tokens = self.count(text).max(self.most_possible(text));
        let most = self.scaled((text.utf8_length() as f64 * self.most_per_byte).ceil());
        self.margin.bound(tokens, square(tokens)).min(most.max(tokens))
    }

    /// What a text may cost by any family that may be the one: reports on one script say little of another.
    fn most_possible(&self, text: Text<'_>) -> u64 {
        match &self.profile {
            Profile::Mix(mix) => self.scaled(mix.most(&self.model.read(&Features::of(text)))),
            _ => 0,
        }
    }

    /// Tokens of a text in each family of the model, in fractions, without the factor.
    #[must_use]
    pub fn families(&self, text: Text<'_>) -> Vec<f64> {
        let features = Features::of(text);
        let read = self.model.read(&features);
        (0..self.model.families.len()).map(|family| read.tokens(family)).collect()
    }

    fn scaled(&self, tokens: f64) -> u64 {
        #[allow(clippy::cast_sign_loss)] // Tokens and factors are not negative.
        let whole = (tokens * self.factor).round() as u64;
        whole
    }
}

impl Mix {
    fn most(&self, read: &Read<'_>) -> f64 {
        self.possible.iter().enumerate().map(|(family, factor)| factor * read.tokens(family)).fold(0.0, f64::max)
    }
}

/// What a text adds to the sum of squares of [`Margin::bound`]: (tokens + 8)².
#[must_use]
pub fn square(tokens: u64) -> f64 {
    let off = tokens as f64 + LEAST_OFF;
    off * off
}
