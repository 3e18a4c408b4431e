//! What images, documents, sounds and films cost in tokens at each provider.
//!
//! Any input gives an answer: a size unknown has a stated stand-in that errs high. Integers alone, so every machine
//! gives the same figure. The rules are those of the guides as known on 2026-11-30; where a provider's own counts
//! differ from its guide, the counts win and the rule says so.

/// How closely the model is asked to look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    /// `detail: "low"`, or Gemini's `MEDIA_RESOLUTION_LOW`.
    Low,
    /// `detail: "high"`, or Gemini's medium and high.
    High,
    /// What is left to the provider, or not said.
    #[default]
    Auto,
    /// `detail: "original"`, or Gemini's ultra high.
    Original,
}

/// Bounds to which an image is scaled down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchLimit {
    /// Most patches.
    pub most: u32,
    /// Longest edge, in pixels.
    pub longest_edge: u32,
}

impl PatchLimit {
    const SMALL: Self = Self { most: 1_536, longest_edge: 2_048 };
    const MIDDLE: Self = Self { most: 2_500, longest_edge: u32::MAX };
    const LARGE: Self = Self { most: 10_000, longest_edge: 6_000 };
    const WHOLE: Self = Self { most: 30_000, longest_edge: 65_535 };
    const STANDARD: Self = Self { most: 1_568, longest_edge: 1_568 };
    const HIGH_RESOLUTION: Self = Self { most: 4_784, longest_edge: 2_576 };
}

/// How a family of models counts what is not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaRule {
    /// OpenAI, guide "Images and vision": fit into 2,048 by 2,048 pixels, then the shorter side to 768, then `base`
    /// and `tile` for each square of 512; `base` alone at low detail. Never enlarged, as the counts show.
    OpenAiTiles {
        /// Tokens of the image as a whole.
        base: u32,
        /// Tokens of each tile.
        tile: u32,
    },
    /// OpenAI, same guide: patches of 32 by 32 pixels, scaled down to a limit, times a factor. The guide's factors
    /// for gpt-5-mini and gpt-5-nano (1.62, 2.46) are not those counted (1.2, 1.5), nor is its edge of 2,048 pixels
    /// where 2,500 patches are the limit. Low detail is taken as high: it changed nothing where it was measured.
    OpenAiPatches {
        /// Tokens of a hundred patches.
        multiplier_percent: u32,
        /// Limit at high and low detail.
        high: PatchLimit,
        /// Limit where no detail is said.
        auto: PatchLimit,
        /// Limit at original detail.
        original: PatchLimit,
    },
    /// Anthropic, guide "Vision", "Resolution and token cost": patches of 28 by 28 pixels after scaling down to the
    /// largest size within the limit. (Width times height by 750, of older guides, approximates it.)
    Anthropic(PatchLimit),
    /// Google, guides "Understand and count tokens" and "Media resolution", up to Gemini 2.5: 258 tokens if both
    /// sides are at most 384 pixels, else 258 for each tile, of two thirds of the shorter side within 256 to 768
    /// pixels. One more for the whole image, not in the guide, is what Gemini 2.0 counts; 2.5 may count 258 in all.
    GeminiTiles,
    /// Google, guide "Media resolution", since Gemini 3: 280, 1,120 or 2,240 tokens, whatever the size.
    GeminiFixed,
    /// xAI, guide "Image understanding": 256 tokens for each tile of 448 pixels and for the whole, at most 1,792.
    XaiTiles,
}

/// The size assumed where none can be read: a full HD screen. Larger photographs are scaled down to much the same
/// cost by most rules, and few images in a conversation are costlier.
const ASSUMED_SIZE: (u32, u32) = (1_920, 1_080);
/// A letter page at 72 dots an inch.
const PAGE_SIZE: (u32, u32) = (612, 792);
/// No recorded image of a page cost more, in tokens.
const PAGE_IMAGE_MOST: u32 = 2_000;
/// A page densely set, in tokens of text.
const PAGE_TEXT: u32 = 800;
/// Bytes of a page, where pages cannot be counted: seven real manuals had 3,500 to 27,000, half of them below 7,400.
const PAGE_BYTES: u64 = 10_000;
/// Gemini's limit on a document, the widest of all.
const MOST_PAGES: u64 = 1_000;
/// Sound of unknown length: 32 kbit/s, as compressed speech.
const AUDIO_BYTES_PER_SECOND: u64 = 4_000;
/// The thinnest speech that codecs give: 0.8 kbit/s.
const LEAST_BYTES_PER_SECOND: u64 = 100;
/// Film of unknown length: 500 kbit/s, as a sparse screen recording.
const VIDEO_BYTES_PER_SECOND: u64 = 62_500;

impl MediaRule {
    /// The rule of a model by its name: `gpt-4o-2024-08-06`, `openai/gpt-5`, `us.anthropic.claude-sonnet-4-6`.
    ///
    /// A newer member of a known family has the rule of the newest known. Any other model is counted as the newest
    /// Claude: for a full HD screen, only gpt-4o-mini and gpt-4.1-nano count more.
    #[must_use]
    pub fn of_model(model: &str) -> Self {
        let name = model.to_ascii_lowercase();
        let after = |family: &str| name.find(family).and_then(|at| name.get(at + family.len()..));
        if let Some(rest) = after("claude") {
            let old = version(rest).is_some_and(|version| version < (4, 7));
            Self::Anthropic(if old { PatchLimit::STANDARD } else { PatchLimit::HIGH_RESOLUTION })
        } else if let Some(rest) = after("gemini") {
            if version(rest).is_some_and(|version| version < (3, 0)) { Self::GeminiTiles } else { Self::GeminiFixed }
        } else if after("grok").is_some() {
            Self::XaiTiles
        } else if after("computer-use-preview").is_some() {
            Self::OpenAiTiles { base: 65, tile: 129 }
        } else if let Some(rest) = after("gpt-") {
            Self::of_gpt(rest)
        } else {
            let last = name.rsplit(['/', '.', ':']).find(|part| part.starts_with('o') || part.starts_with("codex-"));
            match last {
                Some(last) if last.starts_with("o4-mini") || last.starts_with("codex-mini") => small_patches(172),
                Some(last) if last.starts_with("o1") || last.starts_with("o3") => {
                    Self::OpenAiTiles { base: 75, tile: 150 }
                }
                _ => Self::Anthropic(PatchLimit::HIGH_RESOLUTION),
            }
        }
    }

    fn of_gpt(rest: &str) -> Self {
        let (mini, nano) = (rest.contains("mini"), rest.contains("nano"));
        let patches =
            |auto, original| Self::OpenAiPatches { multiplier_percent: 120, high: PatchLimit::MIDDLE, auto, original };
        match version(rest) {
            Some((4, _)) if rest.starts_with("4o-mini") => Self::OpenAiTiles { base: 2_833, tile: 5_667 },
            Some((4, 1)) if mini => small_patches(162),
            Some((4, 1)) if nano => small_patches(246),
            Some((..=4, _)) => Self::OpenAiTiles { base: 85, tile: 170 },
            Some((5, ..=3)) if rest.contains("codex-mini") => small_patches(162),
            Some((5, 0)) if mini => small_patches(120),
            Some((5, 0)) if nano => small_patches(150),
            Some((5, ..=1)) => Self::OpenAiTiles { base: 70, tile: 140 },
            Some((5, ..=3)) => small_patches(120),
            Some((5, 4..=5)) if mini || nano => patches(PatchLimit::MIDDLE, PatchLimit::MIDDLE),
            Some((5, 4)) => patches(PatchLimit::MIDDLE, PatchLimit::LARGE),
            Some((5, 5)) => patches(PatchLimit::LARGE, PatchLimit::LARGE),
            _ => patches(PatchLimit::WHOLE, PatchLimit::WHOLE),
        }
    }

    /// Tokens of an image of so many pixels, width and height; of 1,920 by 1,080 where that is unknown.
    #[must_use]
    pub fn image_tokens(&self, size: Option<(u32, u32)>, detail: Detail) -> u32 {
        let (width, height) = size.unwrap_or(ASSUMED_SIZE);
        let size = (u64::from(width.max(1)), u64::from(height.max(1)));
        let tokens = match (self, detail) {
            (Self::OpenAiTiles { base, .. }, Detail::Low) => u64::from(*base),
            (Self::OpenAiTiles { base, tile }, _) => {
                let (width, height) = fit(size, 2_048);
                let shorter = width.min(height);
                let (width, height) = fit((width, height), nearest(768 * width.max(height), shorter).max(768));
                u64::from(*base) + u64::from(*tile) * width.div_ceil(512) * height.div_ceil(512)
            }
            (Self::OpenAiPatches { multiplier_percent, high, auto, original }, _) => {
                let limit = match detail {
                    Detail::Low | Detail::High => high,
                    Detail::Auto => auto,
                    Detail::Original => original,
                };
                (openai_patches(size, *limit) * u64::from(*multiplier_percent)).div_ceil(100)
            }
            (Self::Anthropic(limit), _) => anthropic_patches(size, *limit),
            (Self::GeminiTiles, Detail::Low) => 66,
            (Self::GeminiTiles, _) if size.0.max(size.1) <= 384 => 258,
            (Self::GeminiTiles, _) => {
                let (width, height) = fit(size, 3_072);
                let unit = (width.min(height) * 2 / 3).clamp(256, 768);
                258 * (width.div_ceil(unit) * height.div_ceil(unit) + 1)
            }
            (Self::GeminiFixed, Detail::Low) => 280,
            (Self::GeminiFixed, Detail::High | Detail::Auto) => 1_120,
            (Self::GeminiFixed, Detail::Original) => 2_240,
            (Self::XaiTiles, _) => (256 * (size.0.div_ceil(448) * size.1.div_ceil(448) + 1)).min(1_792),
        };
        saturate(tokens)
    }

    /// Tokens of a document in PDF, of so many pages and bytes.
    ///
    /// A page is 3,200 tokens at Anthropic (guide "PDF support": 1,500 to 3,000, and an image; a dense page was counted
    /// at 3,152); its image and 800 tokens of text at OpenAI (guide "File inputs") and xAI; its image at Gemini, of
    /// which version 3 counts 520 to 1,120 by the endpoint. An image counts 2,000 at most: the rule of gpt-4o-mini says
    /// 25,501, its counts say less. Unknown pages are one for each 10,000 bytes; at most 1,000 count.
    #[must_use]
    pub fn document_tokens(&self, pages: Option<u32>, bytes: u64) -> u32 {
        let image = self.image_tokens(Some(PAGE_SIZE), Detail::High).min(PAGE_IMAGE_MOST);
        let page = match self {
            Self::Anthropic(_) => 3_200,
            Self::GeminiTiles | Self::GeminiFixed => image,
            Self::OpenAiTiles { .. } | Self::OpenAiPatches { .. } | Self::XaiTiles => image + PAGE_TEXT,
        };
        let pages = pages.map_or(bytes.div_ceil(PAGE_BYTES), u64::from).clamp(1, MOST_PAGES);
        saturate(u64::from(page) * pages)
    }

    /// Tokens of a sound of so many milliseconds, or else of so many bytes at 32 kbit/s.
    ///
    /// OpenAI, guide "Managing costs" of the realtime interface: 10 a second. Google, guide "Understand and count
    /// tokens": 32 a second, which stands for all others.
    #[must_use]
    pub fn audio_tokens(&self, milliseconds: Option<u64>, bytes: u64) -> u32 {
        let rate = if matches!(self, Self::OpenAiTiles { .. } | Self::OpenAiPatches { .. }) { 10 } else { 32 };
        timed(milliseconds, bytes, AUDIO_BYTES_PER_SECOND, rate)
    }

    /// Tokens of a film of so many milliseconds, or else of so many bytes at 500 kbit/s.
    ///
    /// Google, guide "Video understanding": about 300 a second with sound and timestamps, which stands for all
    /// others; since Gemini 3 a frame is 70 tokens instead of 258, which leaves 112.
    #[must_use]
    pub fn video_tokens(&self, milliseconds: Option<u64>, bytes: u64) -> u32 {
        timed(milliseconds, bytes, VIDEO_BYTES_PER_SECOND, if *self == Self::GeminiFixed { 112 } else { 300 })
    }
}

const fn small_patches(multiplier_percent: u32) -> MediaRule {
    let limit = PatchLimit::SMALL;
    MediaRule::OpenAiPatches { multiplier_percent, high: limit, auto: limit, original: limit }
}

/// The first one or two numbers of a name, `-4-5-20250929` or `-4.5`; dates are longer than two digits.
fn version(name: &str) -> Option<(u32, u32)> {
    let mut words = name.split(|letter: char| !letter.is_ascii_digit()).skip_while(|word| word.is_empty());
    let number = |word: &str| if word.len() <= 2 { word.parse().ok() } else { None };
    let major = number(words.next()?)?;
    Some((major, words.next().and_then(number).unwrap_or(0)))
}

fn saturate(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

fn timed(milliseconds: Option<u64>, bytes: u64, bytes_per_second: u64, tokens_per_second: u64) -> u32 {
    // No sound or film is so thin; what a header says more is not believed.
    let most = if bytes == 0 { u64::MAX } else { bytes.saturating_mul(1_000) / LEAST_BYTES_PER_SECOND };
    let milliseconds = milliseconds.unwrap_or_else(|| bytes.saturating_mul(1_000) / bytes_per_second).min(most);
    saturate(milliseconds.saturating_mul(tokens_per_second).div_ceil(1_000))
}

/// The nearest whole quotient; halves go down, as a count of OpenAI for 2,050 by 513 pixels shows.
const fn nearest(dividend: u64, divisor: u64) -> u64 {
    (2 * dividend + divisor - 1) / (2 * divisor)
}

fn fit((width, height): (u64, u64), longest_edge: u64) -> (u64, u64) {
    let longest = width.max(height);
    if longest <= longest_edge {
        return (width, height);
    }
    let scaled = |side: u64| nearest(side * longest_edge, longest).max(1);
    (scaled(width), scaled(height))
}

/// The guide shrinks to the budget by area, then until one side is a whole number of patches; without roots of
/// fractions that is the same.
fn openai_patches(size: (u64, u64), limit: PatchLimit) -> u64 {
    let (width, height) = fit(size, u64::from(limit.longest_edge));
    let most = u64::from(limit.most);
    let patches = width.div_ceil(32) * height.div_ceil(32);
    if patches <= most {
        return patches;
    }
    let across = (most * width / height).isqrt().max(1);
    let down = (most * height / width).isqrt().max(1);
    let shrunk = if across * height <= down * width {
        across * (across * height).div_ceil(width)
    } else {
        down * (down * width).div_ceil(height)
    };
    shrunk.min(most)
}

fn anthropic_patches((width, height): (u64, u64), limit: PatchLimit) -> u64 {
    let (longer, shorter) = (width.max(height), width.min(height));
    let patches = |edge: u64| edge.div_ceil(28) * nearest(shorter * edge, longer).max(1).div_ceil(28);
    let (mut fits, mut most) = (1, longer.min(u64::from(limit.longest_edge)));
    while fits < most {
        let middle = (fits + most).div_ceil(2);
        if patches(middle) <= u64::from(limit.most) { fits = middle } else { most = middle - 1 }
    }
    patches(fits)
}
