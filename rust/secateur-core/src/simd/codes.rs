//! The passes of the search over codes of 8 and 4 bits: whole-number dot products, and the bounds they give.
//!
//! The products are the same with every instruction set because whole numbers are, the bounds because each float32
//! operation stands alone: what is a candidate on one machine is one on all.
#![allow(clippy::indexing_slicing)] // Within lengths that have been checked; loops without branches become vectors.

use super::InstructionSet;

/// A row of codes takes a multiple of so many bytes.
pub(crate) const LINE: usize = 64;
/// Rows whose products are summed together.
const GROUP: usize = 16;

/// How many codes a byte holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// One of 8 bits.
    Bytes,
    /// Two of 4 bits: of each line the low halves hold the first 64 values, the high halves the next 64.
    Nibbles,
}

impl Packing {
    /// Bytes of a row of `dimension` values.
    pub(crate) const fn stride(self, dimension: usize) -> usize {
        match self {
            Self::Bytes => dimension.next_multiple_of(LINE),
            Self::Nibbles => dimension.next_multiple_of(2 * LINE) / 2,
        }
    }
}

/// Codes of a query, from -127 to 127, with zeros up to a multiple of 128.
#[derive(Debug, Clone)]
pub(crate) struct QueryCodes {
    narrow: Vec<i8>,
    /// The same in 16 bits, for AVX2, which has no product of unsigned and signed bytes that cannot overflow.
    wide: Vec<i16>,
}

impl QueryCodes {
    pub(crate) fn new(set: InstructionSet, mut codes: Vec<i8>) -> Self {
        codes.resize(codes.len().next_multiple_of(2 * LINE), 0);
        let wide =
            if set == InstructionSet::Avx2 { codes.iter().map(|&code| i16::from(code)).collect() } else { Vec::new() };
        Self { narrow: codes, wide }
    }

    pub(crate) fn sum(&self) -> i32 {
        self.narrow.iter().map(|&code| i32::from(code)).sum()
    }
}

/// How dot products become upper bounds of scores:
/// `(2 * product - bias) * (scale * gain) + ((error * error_gain + tail * tail_gain) + slack)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) bias: i32,
    pub(crate) gain: f32,
    pub(crate) error_gain: f32,
    pub(crate) tail_gain: f32,
    pub(crate) slack: f32,
}

/// Rows of codes, and what their bounds depend on besides.
#[derive(Clone, Copy)]
pub(crate) struct Coded<'a> {
    pub(crate) rows: Rows<'a>,
    pub(crate) known: Known<'a>,
}

/// What bounds depend on besides the codes of a row.
#[derive(Clone, Copy)]
pub(crate) enum Known<'a> {
    /// The step between codes and their error; there is no tail.
    Plain { scales: &'a [f32], errors: &'a [f32] },
    /// In one number each: the upper half of the bits of the step, then error and tail, as [`PACKED_UNITS`].
    Packed(&'a [u32]),
}

/// A packed error or tail of 1.0. The largest of both, 255, is then more than any row has.
pub(crate) const PACKED_UNITS: f32 = 200.0;

impl<'a> Known<'a> {
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Plain { scales, .. } => scales.len(),
            Self::Packed(packed) => packed.len(),
        }
    }

    /// Scale, error and tail of a row.
    #[allow(clippy::inline_always)] // Only inside its caller is it compiled for that caller's instruction set.
    #[inline(always)]
    fn at(&self, row: usize) -> [f32; 3] {
        match self {
            Self::Plain { scales, errors } => [scales[row], errors[row], 0.0],
            Self::Packed(packed) => unpacked(packed[row]),
        }
    }

    pub(crate) fn part(&self, rows: std::ops::Range<usize>) -> Known<'a> {
        match *self {
            Self::Plain { scales, errors } => Known::Plain {
                scales: scales.get(rows.clone()).unwrap_or_default(),
                errors: errors.get(rows).unwrap_or_default(),
            },
            Self::Packed(packed) => Known::Packed(packed.get(rows).unwrap_or_default()),
        }
    }
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn unpacked(packed: u32) -> [f32; 3] {
    [f32::from_bits(packed & 0xFFFF_0000), (packed >> 8 & 0xFF) as f32, (packed & 0xFF) as f32]
}

/// Where rows of codes stand.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// One after the other.
    Together(&'a [u8]),
    /// Anywhere.
    Apart(&'a [&'a [u8]]),
}

impl Coded<'_> {
    /// Whether there are `count` rows of `stride` bytes.
    fn fits(&self, stride: usize, count: usize) -> bool {
        let rows = match self.rows {
            Rows::Together(codes) => count.checked_mul(stride) == Some(codes.len()),
            Rows::Apart(rows) => rows.len() == count && rows.iter().all(|row| row.len() == stride),
        };
        let known = match self.known {
            Known::Plain { scales, errors } => scales.len() == count && errors.len() == count,
            Known::Packed(packed) => packed.len() == count,
        };
        rows && known && stride.is_multiple_of(LINE)
    }
}

/// Upper bounds of the scores of rows of `stride` bytes for a query.
///
/// # Panics
/// If the lengths do not fit each other: the kernels rely on them.
pub(crate) fn upper_bounds(
    set: InstructionSet,
    packing: Packing,
    stride: usize,
    coded: Coded<'_>,
    (query, bound): (&QueryCodes, Bound),
    upper: &mut [f32],
) {
    let values = if packing == Packing::Bytes { stride } else { 2 * stride };
    assert!(coded.fits(stride, upper.len()) && query.narrow.len() >= values, "rows and query are of one length");
    match set {
        // SAFETY: the instruction set has just been detected; lengths have been checked.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 if set.is_available() => unsafe {
            if packing == Packing::Bytes {
                x86::upper_bounds_avx512::<false>(stride, coded, query, bound, upper);
            } else {
                x86::upper_bounds_avx512::<true>(stride, coded, query, bound, upper);
            }
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 if set.is_available() && query.wide.len() >= values => unsafe {
            x86::upper_bounds_avx2(packing, stride, coded, query, bound, upper);
        },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        InstructionSet::DotProduct if set.is_available() => unsafe {
            upper_bounds_dot_product(packing, stride, coded, query, bound, upper);
        },
        _ => upper_bounds_portable(packing, stride, coded, query, bound, upper),
    }
}

/// [`upper_bounds`] by codes of 8 bits for four queries at once, which read the rows together.
///
/// # Panics
/// If the lengths do not fit each other: the kernels rely on them.
pub(crate) fn upper_bounds_of_four(
    set: InstructionSet,
    stride: usize,
    coded: Coded<'_>,
    queries: [(&QueryCodes, Bound); 4],
    upper: [&mut [f32]; 4],
) {
    #[cfg(target_arch = "x86_64")]
    if set == InstructionSet::Avx512 && set.is_available() {
        let count = coded.known.len();
        assert!(coded.fits(stride, count) && upper.iter().all(|upper| upper.len() == count), "rows are of one length");
        assert!(queries.iter().all(|(query, _)| query.narrow.len() >= stride), "queries are as long as rows");
        // SAFETY: the instruction set has just been detected; lengths have been checked.
        unsafe { x86::upper_bounds_of_four_avx512(stride, coded, queries, upper) };
        return;
    }
    for (query, upper) in queries.into_iter().zip(upper) {
        upper_bounds(set, Packing::Bytes, stride, coded, query, upper);
    }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon,dotprod")]
fn upper_bounds_dot_product(
    packing: Packing,
    stride: usize,
    coded: Coded<'_>,
    query: &QueryCodes,
    bound: Bound,
    upper: &mut [f32],
) {
    upper_bounds_portable(packing, stride, coded, query, bound, upper);
}

// Inlined by force: only inside its caller is it compiled for that caller's instruction set.
#[allow(clippy::inline_always)]
#[inline(always)]
fn upper_bounds_portable(
    packing: Packing,
    stride: usize,
    coded: Coded<'_>,
    query: &QueryCodes,
    bound: Bound,
    upper: &mut [f32],
) {
    let (lines, _) = query.narrow.as_chunks::<LINE>();
    let (pairs, _) = lines.as_chunks::<2>();
    // Signed bytes times signed bytes is what compilers know an instruction for.
    let shift = 128 * lines.iter().take(stride / LINE).flatten().map(|&code| i32::from(code)).sum::<i32>();
    let product_of = |row: &[u8]| match packing {
        Packing::Bytes => {
            let dots = row.as_chunks::<LINE>().0.iter().zip(lines);
            shift + dots.map(|(line, query)| dot(line, query, |code| (code ^ 0x80).cast_signed())).sum::<i32>()
        }
        Packing::Nibbles => {
            let dots = row.as_chunks::<LINE>().0.iter().zip(pairs);
            dots.map(|(line, [low, high])| {
                dot(line, low, |code| (code & 0x0F).cast_signed()) + dot(line, high, |code| (code >> 4).cast_signed())
            })
            .sum()
        }
    };
    for (row, upper) in upper.iter_mut().enumerate() {
        let codes = match coded.rows {
            Rows::Together(codes) => &codes[row * stride..(row + 1) * stride],
            Rows::Apart(rows) => rows[row],
        };
        *upper = bounded(bound, product_of(codes), coded.known.at(row));
    }
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn dot(line: &[u8; LINE], query: &[i8; LINE], code: impl Fn(u8) -> i8) -> i32 {
    line.iter().zip(query).map(|(&byte, &query)| i32::from(code(byte)) * i32::from(query)).sum()
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn bounded(bound: Bound, product: i32, [scale, error, tail]: [f32; 3]) -> f32 {
    (2 * product - bound.bias) as f32 * (scale * bound.gain)
        + ((error * bound.error_gain + tail * bound.tail_gain) + bound.slack)
}

/// Appends the place of every bound that is not below a value, in ascending order.
pub(crate) fn reaching(set: InstructionSet, bounds: &[f32], least: f32, places: &mut Vec<u32>) {
    #[cfg(target_arch = "x86_64")]
    {
        if set == InstructionSet::Avx512 && set.is_available() {
            // SAFETY: the instruction set has just been detected.
            unsafe { x86::reaching_avx512(bounds, least, places) };
            return;
        }
        if set == InstructionSet::Avx2 && set.is_available() {
            // SAFETY: as above.
            unsafe { reaching_avx2(bounds, least, places) };
            return;
        }
    }
    let _ = set;
    reaching_portable(bounds, least, places);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn reaching_avx2(bounds: &[f32], least: f32, places: &mut Vec<u32>) {
    reaching_portable(bounds, least, places);
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn reaching_portable(bounds: &[f32], least: f32, places: &mut Vec<u32>) {
    for (group, bounds) in bounds.chunks(GROUP).enumerate() {
        // Without a branch inside, compilers turn it into vectors.
        #[allow(clippy::needless_bitwise_bool)]
        if bounds.iter().fold(false, |any, &bound| any | (bound >= least)) {
            let reach = bounds.iter().enumerate().filter(|&(_, &bound)| bound >= least);
            places.extend(reach.map(|(place, _)| (group * GROUP + place) as u32));
        }
    }
}

/// The highest of each of some groups, 16 bounds or fewer in each, which together are all.
pub(crate) fn maxima(set: InstructionSet, bounds: &[f32]) -> Vec<f32> {
    #[cfg(target_arch = "x86_64")]
    if matches!(set, InstructionSet::Avx2 | InstructionSet::Avx512) && set.is_available() {
        // SAFETY: the features have just been detected, those of AVX-512 include AVX2.
        return unsafe { maxima_avx2(bounds) };
    }
    let _ = set;
    maxima_portable(bounds)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn maxima_avx2(bounds: &[f32]) -> Vec<f32> {
    maxima_portable(bounds)
}

#[allow(clippy::inline_always)] // As above.
#[inline(always)]
fn maxima_portable(bounds: &[f32]) -> Vec<f32> {
    let mut maxima = Vec::with_capacity(bounds.len() / GROUP + GROUP);
    for block in bounds.chunks(GROUP * GROUP) {
        // A group is a lane of a block: within vectors nothing has to be shuffled.
        let (vectors, rest) = block.as_chunks::<GROUP>();
        let mut lanes = [f32::NEG_INFINITY; GROUP];
        for vector in vectors {
            for (lane, &bound) in lanes.iter_mut().zip(vector) {
                *lane = if bound > *lane { bound } else { *lane };
            }
        }
        for (lane, &bound) in lanes.iter_mut().zip(rest) {
            *lane = if bound > *lane { bound } else { *lane };
        }
        maxima.extend_from_slice(&lanes);
    }
    maxima
}

#[cfg(target_arch = "x86_64")]
#[allow(clippy::wildcard_imports)] // Intrinsics have their names from one place.
mod x86 {
    use std::arch::x86_64::*;

    use super::{Bound, Coded, GROUP, Known, LINE, Packing, QueryCodes, Rows, bounded, unpacked};

    /// Sums of sixteen vectors, in their order.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    #[inline]
    fn sums_of_sixteen(vectors: &[__m512i; 16]) -> __m512i {
        // Each step adds what it interleaves: within quarters first, then the quarters.
        let [a, b, c, d] = std::array::from_fn(|of| {
            let [v0, v1, v2, v3] = [0, 1, 2, 3].map(|place| vectors[4 * of + place]);
            let first = _mm512_add_epi32(_mm512_unpacklo_epi32(v0, v1), _mm512_unpackhi_epi32(v0, v1));
            let second = _mm512_add_epi32(_mm512_unpacklo_epi32(v2, v3), _mm512_unpackhi_epi32(v2, v3));
            _mm512_add_epi32(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second))
        });
        let halves = |x, y| {
            _mm512_add_epi32(_mm512_shuffle_i32x4::<0b01_00_01_00>(x, y), _mm512_shuffle_i32x4::<0b11_10_11_10>(x, y))
        };
        let (ab, cd) = (halves(a, b), halves(c, d));
        _mm512_add_epi32(_mm512_shuffle_i32x4::<0b10_00_10_00>(ab, cd), _mm512_shuffle_i32x4::<0b11_01_11_01>(ab, cd))
    }

    /// A pointer to each row of a group; behind the last row it is met again.
    #[allow(clippy::inline_always)] // Measured: a call for each group is 5 % of a pass.
    #[inline(always)]
    fn pointers(rows: Rows<'_>, stride: usize, first: usize, last: usize) -> [*const u8; GROUP] {
        let mut pointers = [std::ptr::null(); GROUP];
        for (place, pointer) in pointers.iter_mut().enumerate() {
            let row = (first + place).min(last);
            *pointer = match rows {
                Rows::Together(codes) => codes.as_ptr().wrapping_add(row * stride),
                Rows::Apart(rows) => rows[row].as_ptr(),
            };
        }
        pointers
    }

    /// # Safety
    ///
    /// The lengths fit, as [`super::upper_bounds`] checks.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn upper_bounds_avx512<const NIBBLES: bool>(
        stride: usize,
        coded: Coded<'_>,
        query: &QueryCodes,
        bound: Bound,
        upper: &mut [f32],
    ) {
        let low_half = _mm512_set1_epi8(0x0F);
        let (bias, gain) = (_mm512_set1_epi32(bound.bias), _mm512_set1_ps(bound.gain));
        let (error_gain, tail_gain) = (_mm512_set1_ps(bound.error_gain), _mm512_set1_ps(bound.tail_gain));
        let slack = _mm512_set1_ps(bound.slack);
        let last = upper.len().saturating_sub(1);
        for (group, upper) in upper.chunks_mut(GROUP).enumerate() {
            let pointers = pointers(coded.rows, stride, GROUP * group, last);
            let mut vectors = [_mm512_setzero_si512(); GROUP];
            for (sums, rows) in vectors.as_chunks_mut::<8>().0.iter_mut().zip(pointers.as_chunks::<8>().0) {
                for at in (0..stride).step_by(LINE) {
                    // SAFETY: a row is `stride` bytes, whole lines.
                    let load = |row: *const u8| unsafe { _mm512_loadu_si512(row.add(at).cast()) };
                    // SAFETY: the query has as many values, or twice as many.
                    let query = |value: usize| unsafe { _mm512_loadu_si512(query.narrow.as_ptr().add(value).cast()) };
                    if NIBBLES {
                        let (low, high) = (query(2 * at), query(2 * at + LINE));
                        for (sum, &row) in sums.iter_mut().zip(rows) {
                            let line = load(row);
                            *sum = _mm512_dpbusd_epi32(*sum, _mm512_and_si512(line, low_half), low);
                            let line = _mm512_and_si512(_mm512_srli_epi16::<4>(line), low_half);
                            *sum = _mm512_dpbusd_epi32(*sum, line, high);
                        }
                    } else {
                        let query = query(at);
                        for (sum, &row) in sums.iter_mut().zip(rows) {
                            *sum = _mm512_dpbusd_epi32(*sum, load(row), query);
                        }
                    }
                }
            }
            let products = sums_of_sixteen(&vectors);
            let doubled = _mm512_sub_epi32(_mm512_add_epi32(products, products), bias);
            let mask = (u32::MAX >> (32 - upper.len())) as __mmask16;
            // SAFETY: the mask names no more rows than there are.
            let [scales, errors, tails] = unsafe {
                match coded.known {
                    Known::Plain { scales, errors } => [
                        _mm512_maskz_loadu_ps(mask, scales.as_ptr().add(GROUP * group)),
                        _mm512_maskz_loadu_ps(mask, errors.as_ptr().add(GROUP * group)),
                        _mm512_setzero_ps(),
                    ],
                    Known::Packed(packed) => {
                        let packed = _mm512_maskz_loadu_epi32(mask, packed.as_ptr().add(GROUP * group).cast());
                        let byte = _mm512_set1_epi32(0xFF);
                        [
                            _mm512_castsi512_ps(_mm512_andnot_si512(_mm512_set1_epi32(0xFFFF), packed)),
                            _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32::<8>(packed), byte)),
                            _mm512_cvtepi32_ps(_mm512_and_si512(packed, byte)),
                        ]
                    }
                }
            };
            let scores = _mm512_mul_ps(_mm512_cvtepi32_ps(doubled), _mm512_mul_ps(scales, gain));
            let slacks = _mm512_add_ps(_mm512_mul_ps(errors, error_gain), _mm512_mul_ps(tails, tail_gain));
            let bounds = _mm512_add_ps(scores, _mm512_add_ps(slacks, slack));
            // SAFETY: as above.
            unsafe { _mm512_mask_storeu_ps(upper.as_mut_ptr(), mask, bounds) };
        }
    }

    /// # Safety
    ///
    /// The lengths fit, as [`super::upper_bounds_of_four`] checks.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn upper_bounds_of_four_avx512(
        stride: usize,
        coded: Coded<'_>,
        queries: [(&QueryCodes, Bound); 4],
        mut upper: [&mut [f32]; 4],
    ) {
        let last = coded.known.len().saturating_sub(1);
        for first in (0..coded.known.len()).step_by(GROUP) {
            let pointers = pointers(coded.rows, stride, first, last);
            let mut products = [[0_i32; GROUP]; 4];
            for (quarter, rows) in pointers.as_chunks::<4>().0.iter().enumerate() {
                let mut vectors = [_mm512_setzero_si512(); 16];
                for at in (0..stride).step_by(LINE) {
                    // SAFETY: a row is `stride` bytes, whole lines, and the queries have as many values.
                    let lines = rows.map(|row| unsafe { _mm512_loadu_si512(row.add(at).cast()) });
                    for (sums, (query, _)) in vectors.as_chunks_mut::<4>().0.iter_mut().zip(queries) {
                        // SAFETY: as above.
                        let query = unsafe { _mm512_loadu_si512(query.narrow.as_ptr().add(at).cast()) };
                        for (sum, line) in sums.iter_mut().zip(lines) {
                            *sum = _mm512_dpbusd_epi32(*sum, line, query);
                        }
                    }
                }
                let sums = sums_of_sixteen(&vectors);
                let of_queries = [
                    _mm512_extracti32x4_epi32::<0>(sums),
                    _mm512_extracti32x4_epi32::<1>(sums),
                    _mm512_extracti32x4_epi32::<2>(sums),
                    _mm512_extracti32x4_epi32::<3>(sums),
                ];
                for (products, of_query) in products.iter_mut().zip(of_queries) {
                    // SAFETY: four of the sixteen products of a query, from a multiple of four on.
                    unsafe { _mm_storeu_si128(products.as_mut_ptr().add(4 * quarter).cast(), of_query) };
                }
            }
            for ((upper, products), (_, bound)) in upper.iter_mut().zip(&products).zip(queries) {
                bound_group(bound, products, coded.known, first, &mut upper[first..]);
            }
        }
    }

    /// The bounds of the rows from `first` on, up to a group.
    #[allow(clippy::inline_always)] // Only inside its caller is it compiled for that caller's instruction set.
    #[inline(always)]
    fn bound_group(bound: Bound, products: &[i32; GROUP], known: Known<'_>, first: usize, upper: &mut [f32]) {
        let Some(upper) = upper.first_chunk_mut::<GROUP>() else {
            for ((place, upper), &product) in upper.iter_mut().enumerate().zip(products) {
                *upper = bounded(bound, product, known.at(first + place));
            }
            return;
        };
        match known {
            Known::Plain { scales, errors } => {
                if let (Some(scales), Some(errors)) =
                    (scales[first..].first_chunk::<GROUP>(), errors[first..].first_chunk::<GROUP>())
                {
                    for place in 0..GROUP {
                        upper[place] = bounded(bound, products[place], [scales[place], errors[place], 0.0]);
                    }
                }
            }
            Known::Packed(packed) => {
                if let Some(packed) = packed[first..].first_chunk::<GROUP>() {
                    for place in 0..GROUP {
                        upper[place] = bounded(bound, products[place], unpacked(packed[place]));
                    }
                }
            }
        }
    }

    /// Sums of four vectors, in their order.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn sums_of_four([a, b, c, d]: [__m256i; 4]) -> __m128i {
        let halves = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
        _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves))
    }

    /// # Safety
    ///
    /// The lengths fit, as [`super::upper_bounds`] checks.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn upper_bounds_avx2(
        packing: Packing,
        stride: usize,
        coded: Coded<'_>,
        query: &QueryCodes,
        bound: Bound,
        upper: &mut [f32],
    ) {
        let last = upper.len().saturating_sub(1);
        for first in (0..upper.len()).step_by(GROUP) {
            let pointers = pointers(coded.rows, stride, first, last);
            let mut products = [0_i32; GROUP];
            for (rows, products) in pointers.as_chunks::<4>().0.iter().zip(products.as_chunks_mut::<4>().0) {
                // SAFETY: a row is `stride` bytes, the query has as many values or twice as many; four products are
                // written where four are.
                unsafe {
                    let sums = match packing {
                        Packing::Bytes => byte_products(rows, stride, query),
                        Packing::Nibbles => nibble_products(rows, stride, query),
                    };
                    _mm_storeu_si128(products.as_mut_ptr().cast(), sums_of_four(sums));
                }
            }
            bound_group(bound, &products, coded.known, first, &mut upper[first..]);
        }
    }

    /// # Safety
    ///
    /// A row is `stride` bytes, a multiple of [`LINE`]; `query.wide` has as many values.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn byte_products(rows: &[*const u8; 4], stride: usize, query: &QueryCodes) -> [__m256i; 4] {
        let mut sums = [_mm256_setzero_si256(); 4];
        for at in (0..stride).step_by(16) {
            // SAFETY: 16 of a row's `stride` codes, which are a multiple of 64, and as many of the query.
            unsafe {
                let query = _mm256_loadu_si256(query.wide.as_ptr().add(at).cast());
                for (sum, row) in sums.iter_mut().zip(rows) {
                    let codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(row.add(at).cast()));
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(codes, query));
                }
            }
        }
        sums
    }

    /// # Safety
    ///
    /// A row is `stride` bytes, a multiple of [`LINE`]; `query.narrow` has twice as many values.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn nibble_products(rows: &[*const u8; 4], stride: usize, query: &QueryCodes) -> [__m256i; 4] {
        let (low_half, ones) = (_mm256_set1_epi8(0x0F), _mm256_set1_epi16(1));
        let mut sums = [_mm256_setzero_si256(); 4];
        for at in (0..stride).step_by(LINE / 2) {
            let value = 2 * at - at % LINE;
            // SAFETY: 32 of a row's `stride` bytes, which are a multiple of 64, and two values of the query for each.
            unsafe {
                let low = _mm256_loadu_si256(query.narrow.as_ptr().add(value).cast());
                let high = _mm256_loadu_si256(query.narrow.as_ptr().add(value + LINE).cast());
                for (sum, row) in sums.iter_mut().zip(rows) {
                    let codes = _mm256_loadu_si256(row.add(at).cast());
                    let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), low_half);
                    // At most 4 * 15 * 127, which 16 bits hold.
                    let pairs = _mm256_add_epi16(
                        _mm256_maddubs_epi16(_mm256_and_si256(codes, low_half), low),
                        _mm256_maddubs_epi16(upper, high),
                    );
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
                }
            }
        }
        sums
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn reaching_avx512(bounds: &[f32], least: f32, places: &mut Vec<u32>) {
        let limit = _mm512_set1_ps(least);
        let (blocks, rest) = bounds.as_chunks::<{ 4 * GROUP }>();
        for (block, bounds) in blocks.iter().enumerate() {
            // SAFETY: four groups.
            let masks = [0, 1, 2, 3].map(|group| unsafe {
                let bounds = _mm512_loadu_ps(bounds.as_ptr().add(GROUP * group));
                u64::from(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(bounds, limit)) << (GROUP * group)
            });
            let mut reach = (masks[0] | masks[1]) | (masks[2] | masks[3]);
            while reach != 0 {
                places.push((block * 4 * GROUP) as u32 + reach.trailing_zeros());
                reach &= reach - 1;
            }
        }
        let first = blocks.len() * 4 * GROUP;
        let reach = rest.iter().enumerate().filter(|&(_, &bound)| bound >= least);
        places.extend(reach.map(|(place, _)| (first + place) as u32));
    }
}
