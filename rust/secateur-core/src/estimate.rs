//! From features to tokens: one small network for all families of tokenizers.
//!
//! With the share `p` of each feature among the characters, a family's tokens a character are
//! `max(L·p, 0.04) · exp(W2·relu(W1·min(√p, cap) + b1) + b2)`; the length enters the network as one more input. The sums run in
//! a fixed order of IEEE operations without fused ones, and the exponential is our own, so that every machine gives
//! the same tokens.

use std::sync::{Arc, OnceLock};

use crate::error::Error;
use crate::estimator::square;
use crate::features::{FEATURES, Features, GENERAL};
use crate::simd::network::{self, HIDDEN, Pair};

/// The most families that a model can hold.
const MOST_FAMILIES: usize = 16;
/// Features and the length.
const INPUTS: usize = FEATURES + 1;
/// Inputs stand in pairs.
const PAIRS: usize = INPUTS.div_ceil(2);
/// What a unit of the hidden layer's whole numbers is: 1/65,536 of a weight's product with its input.
const UNIT: f32 = 1.0 / 65_536.0;
/// Tokens a character, at least: no text known has fewer.
const LEAST_RATE: f32 = 0.04;
/// Most tokens for a byte of UTF-8: byte-pair encodings have at most one; Claude 3 and later were measured at 1.24 on
/// text made of markers.
const MOST_PER_BYTE: f64 = 1.25;
/// ln(n)/8 keeps the length in the range of the other inputs.
const LENGTH_SCALE: f32 = 0.125;
/// Characters from which on a text counts as no longer: longer ones were not learned from, and cost as their parts do.
const LONGEST: u64 = 8_192;

const MAGIC: &[u8] = b"secateur tokens 1\n";
static BUILT_IN: &[u8] = include_bytes!("../data/families.bin");

/// Weights for families of tokenizers, as the command `secateur fit-tokens` writes them.
#[derive(Debug, Clone)]
pub struct Model {
    /// Names of the families, in the order of the estimates.
    pub families: Vec<String>,
    /// When the weights were fitted, and on what.
    pub about: String,
    /// The most that an input may be.
    caps: Vec<f32>,
    /// What makes a whole number of an input.
    factors: Vec<f32>,
    /// Rates of the features, for each family.
    linear: Vec<Vec<f32>>,
    /// Weights of the inputs in the hidden layer.
    first: Vec<Pair>,
    first_bias: Vec<f32>,
    /// Weights of the hidden units, for each family.
    second: Vec<Vec<f32>>,
    second_bias: Vec<f32>,
    margins: Vec<Margin>,
}

/// By how much estimates may be too low, as a share: of a total as a whole, and of each text by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Margin {
    /// What the texts of one conversation have in common: their language, their matter.
    pub shared: f64,
    /// What errs in each text by itself, and averages out.
    pub own: f64,
}

impl Margin {
    /// A bound on a total, from the sum of the estimates and the sum of [`square`] over them.
    ///
    /// Errors of a conversation's texts have a part in common and one each: `total + √((shared·total)² + own²·squares)`.
    #[must_use]
    pub fn bound(&self, total: u64, squares: f64) -> u64 {
        if self.shared == 0.0 && self.own == 0.0 {
            return total;
        }
        let common = self.shared * total as f64;
        let spread = (common * common + self.own * self.own * squares).sqrt().ceil();
        #[allow(clippy::cast_sign_loss)] // A square root is not negative.
        let spread = spread as u64;
        total.saturating_add(spread)
    }

    /// The most that a total of one text may be so that its bound is within a budget.
    #[must_use]
    pub fn within(&self, budget: u64) -> u64 {
        if self.shared == 0.0 && self.own == 0.0 {
            return budget;
        }
        let (mut most, mut excluded) = (0, budget.saturating_add(1));
        while most + 1 < excluded {
            let middle = most + (excluded - most) / 2;
            let fits = self.bound(middle, square(middle)) <= budget;
            (most, excluded) = if fits { (middle, excluded) } else { (most, middle) };
        }
        most
    }
}

/// Reads numbers off the front of a file.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Error::Weights("ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn floats(&mut self, count: usize) -> Result<Vec<f32>, Error> {
        let floats = self.bytes(count * 4)?.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
        let floats: Vec<f32> = floats.collect();
        if floats.iter().all(|value| value.is_finite()) { Ok(floats) } else { Err(Error::Weights("holds no numbers")) }
    }

    fn line(&mut self) -> Result<String, Error> {
        let end = self.0.iter().position(|&byte| byte == b'\n').ok_or(Error::Weights("has no heading"))?;
        let line = self.bytes(end + 1)?;
        Ok(String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line)).into_owned())
    }
}

/// Columns of a table of rows.
fn columns(values: &[f32], count: usize) -> Vec<Vec<f32>> {
    (0..count).map(|column| values.iter().skip(column).step_by(count.max(1)).copied().collect()).collect()
}

impl Model {
    /// The weights that come with this crate.
    ///
    /// # Errors
    ///
    /// [`Error::Weights`] if they do not fit this version, which a test excludes.
    pub fn built_in() -> Result<Arc<Self>, Error> {
        static MODEL: OnceLock<Result<Arc<Model>, Error>> = OnceLock::new();
        MODEL.get_or_init(|| Self::from_bytes(BUILT_IN).map(Arc::new)).clone()
    }

    /// Reads weights: a heading in lines (what it is, about, families, how many features and hidden units), then
    /// little-endian numbers.
    ///
    /// # Errors
    ///
    /// [`Error::Weights`] if the bytes are no weights, or for other features than this version counts.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader(bytes.strip_prefix(MAGIC).ok_or(Error::Weights("is no file of weights"))?);
        let about = reader.line()?;
        let families: Vec<String> = reader.line()?.split(' ').map(str::to_owned).collect();
        if families
            .iter()
            .enumerate()
            .any(|(at, name)| name.is_empty() || families.iter().take(at).any(|other| other == name))
        {
            return Err(Error::Weights("has families without names of their own"));
        }
        let shape = reader.line()?;
        if shape != format!("{FEATURES} {HIDDEN}") {
            return Err(Error::Weights("is for other features than this version counts"));
        }
        let count = families.len();
        if !(1..=MOST_FAMILIES).contains(&count) {
            return Err(Error::Weights("has no families, or too many"));
        }
        let caps = reader.floats(INPUTS)?;
        let linear = columns(&reader.floats(FEATURES * count)?, count);
        let scales = reader.floats(INPUTS)?;
        let mut first = vec![[0; 2 * HIDDEN]; PAIRS];
        for input in 0..INPUTS {
            let weights = reader.bytes(HIDDEN)?;
            let pair = first.get_mut(input / 2).into_iter().flat_map(|pair| pair.as_chunks_mut::<2>().0);
            for ([even, odd], &weight) in pair.zip(weights) {
                *if input % 2 == 0 { even } else { odd } = weight.cast_signed().into();
            }
        }
        let factors = scales.iter().map(|scale| scale / UNIT).collect::<Vec<_>>();
        if caps.iter().zip(&factors).any(|(cap, factor)| !(0.0..=f32::from(i16::MAX)).contains(&(cap * factor))) {
            return Err(Error::Weights("has inputs outside the range of the network"));
        }
        let first_bias = reader.floats(HIDDEN)?;
        let second = columns(&reader.floats(HIDDEN * count)?, count);
        let second_bias = reader.floats(count)?;
        let margins = reader.floats(count * 2)?;
        let margins =
            margins.as_chunks().0.iter().map(|&[shared, own]| Margin { shared: shared.into(), own: own.into() });
        let margins = margins.collect();
        if !reader.0.is_empty() {
            return Err(Error::Weights("goes on after its end"));
        }
        Ok(Self { families, about, caps, factors, linear, first, first_bias, second, second_bias, margins })
    }

    /// By how much a family's estimates may be too low; the widest for an unknown family.
    #[must_use]
    pub fn margin(&self, family: usize) -> Margin {
        self.margins.get(family).copied().unwrap_or_else(|| {
            let widest = |of: fn(&Margin) -> f64| self.margins.iter().map(of).fold(0.0, f64::max);
            Margin { shared: widest(|margin| margin.shared), own: widest(|margin| margin.own) }
        })
    }

    /// The tokens of a text in a family, in fractions; 0 for a family that there is not.
    #[must_use]
    pub fn tokens(&self, features: &Features, family: usize) -> f64 {
        self.read(features).tokens(family)
    }

    /// What families have in common.
    #[must_use]
    pub fn read<'a>(&'a self, features: &'a Features) -> Read<'a> {
        // Without anything but ASCII all further counts are 0.
        let used = if features.is_ascii() { GENERAL } else { FEATURES };
        let mut read = Read { model: self, features, shares: [0.0; FEATURES], hidden: [0.0; HIDDEN], used };
        if features.characters == 0 {
            return read;
        }
        let share = 1.0 / features.characters as f32;
        let mut roots = [0.0; FEATURES];
        let counts = features.counts.get(..used).unwrap_or_default();
        network::scale(counts, share.sqrt(), share, &mut roots, &mut read.shares);
        let mut inputs = [0_i16; 2 * PAIRS];
        let used = roots.get(..used).unwrap_or_default();
        network::quantise(used, &self.caps, &self.factors, &mut inputs);
        let length = [natural_logarithm(features.characters.min(LONGEST)) * LENGTH_SCALE];
        if let (Some(cap), Some(factor), Some(input)) =
            (self.caps.get(FEATURES..), self.factors.get(FEATURES..), inputs.get_mut(FEATURES..))
        {
            network::quantise(&length, cap, factor, input);
        }
        let mut units = [0; HIDDEN];
        network::add_inputs(&mut units, inputs.as_chunks().0, &self.first);
        for ((hidden, unit), bias) in read.hidden.iter_mut().zip(units).zip(&self.first_bias) {
            *hidden = (unit as f32 * UNIT + bias).max(0.0);
        }
        read
    }
}

/// A text as the last layer sees it, for the estimate of one family or several.
#[derive(Debug)]
pub struct Read<'a> {
    model: &'a Model,
    features: &'a Features,
    shares: [f32; FEATURES],
    hidden: [f32; HIDDEN],
    used: usize,
}

impl Read<'_> {
    /// The tokens in a family, in fractions; 0 for a family that there is not.
    #[must_use]
    pub fn tokens(&self, family: usize) -> f64 {
        let (Some(linear), Some(second), Some(&bias)) =
            (self.model.linear.get(family), self.model.second.get(family), self.model.second_bias.get(family))
        else {
            return 0.0;
        };
        let rate = network::dot(self.shares.get(..self.used).unwrap_or_default(), linear).max(LEAST_RATE);
        let exponent = network::dot(&self.hidden, second) + bias;
        let tokens = self.features.characters as f64 * f64::from(rate) * exp(f64::from(exponent));
        tokens.min(self.features.bytes as f64 * MOST_PER_BYTE)
    }
}

/// ln(n), by a polynomial, for the same bits everywhere.
fn natural_logarithm(n: u64) -> f32 {
    let exponent = n.max(1).ilog2();
    let mantissa = n as f64 / (1_u64 << exponent) as f64;
    // ln(m) = 2·artanh((m - 1)/(m + 1)), whose argument is at most 1/3.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let t = s * s;
    let series = 1.0 + t * (1.0 / 3.0 + t * (1.0 / 5.0 + t * (1.0 / 7.0 + t * (1.0 / 9.0 + t / 11.0))));
    (f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * s * series) as f32
}

/// eˣ for |x| up to 8, by its series after halving the argument eight times, for the same bits everywhere.
fn exp(x: f64) -> f64 {
    let x = x.clamp(-8.0, 8.0) / 256.0;
    let mut power = 1.0 + x * (1.0 + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x / 120.0))));
    for _ in 0..8 {
        power *= power;
    }
    power
}
