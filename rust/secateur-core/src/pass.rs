//! Passes over the codes of rows: upper bounds of all scores of a portion.

use std::ops::Range;

use crate::query::Query;
use crate::rotation::RotatedQuery;
use crate::segment::{SEGMENT, Segment};
use crate::simd::InstructionSet;
use crate::simd::codes::{Bound, Coded, Known, LINE, Packing, QueryCodes, Rows, upper_bounds, upper_bounds_of_four};
use crate::topk::{Candidate, Search, Within};
use crate::vectors::Vectors;

/// How the rows are read first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Every row is scored exactly.
    Exact,
    /// Over codes of 8 bits.
    Bytes,
    /// Over codes of 4 bits.
    Nibbles,
    /// Over codes of 4 bits of the first values of rotated rows, where there are some.
    Rotated,
}

// These limits are measured on real and random rows of 384 values (benches/NOTES.md); they decide the speed only.

/// Below it codes of 8 bits are read faster than what codes of 4 bits leave over is bounded again.
const NIBBLES_FROM: usize = 3_000;
/// Below it rotating the query costs more than is saved.
const ROTATED_FROM: usize = 50_000;
/// So many rows are seen before it is tried.
const ROTATED_AFTER: usize = 2 * SEGMENT;
/// Codes of 4 bits do not pay if they leave a greater share of the rows.
const NIBBLES_LEAVE: f32 = 0.2;
/// Nor do those of rotated rows. They are tried early, when rows need not reach high: later they leave less.
const ROTATED_LEAVES: f32 = 0.5;
/// Rows that are bounded for several queries before the next ones are read, so that they stay in the second cache.
const BLOCK: usize = 512;

/// The passes of a search, one after the other for portions of the rows.
///
/// The coarsest codes are tried first; if they leave over too many rows, closer ones follow, until twice as many rows have
/// been seen: the more have been seen, the more a row must reach.
pub(crate) struct Passage<'a> {
    vectors: &'a Vectors,
    search: &'a Search<'a>,
    pass: Pass,
    /// From how many places on the coarse passes are tried.
    coarse: [(Pass, usize); 2],
    seen: usize,
    /// Whether rows were bounded coarsely.
    was_coarse: [bool; 2],
    /// The queries, if a pass needs them so.
    rotated: Vec<RotatedQuery>,
}

impl<'a> Passage<'a> {
    pub(crate) fn new(
        vectors: &'a Vectors,
        search: &'a Search<'a>,
        queries: &[Query],
        places: usize,
        k: usize,
    ) -> Self {
        const NEVER: usize = usize::MAX;
        // A query of norm zero has no codes.
        let coded = vectors.has_codes() && queries.iter().all(|query| query.norm > 0.0);
        let pass = match search.pass {
            _ if !coded => Pass::Exact,
            Some(pass) => pass,
            // As many would be scored anyway.
            None if places <= k + 16 => Pass::Exact,
            None if places < NIBBLES_FROM || queries.len() >= 4 => Pass::Bytes,
            None => Pass::Nibbles,
        };
        let free = search.pass.is_none() && pass == Pass::Nibbles;
        let rotates = vectors.rotation().is_some() && !matches!(search.within, Within::Rows(_));
        let coarse = [
            (Pass::Rotated, if free && rotates && places >= ROTATED_FROM { ROTATED_AFTER } else { NEVER }),
            (Pass::Nibbles, if free { 0 } else { NEVER }),
        ];
        let rotated = match vectors.rotation() {
            Some(rotation) if pass == Pass::Rotated || coarse[0].1 != NEVER => {
                queries.iter().map(|query| rotation.query(search.instruction_set, query)).collect()
            }
            _ => Vec::new(),
        };
        Self { vectors, search, pass, coarse, seen: 0, was_coarse: [false; 2], rotated }
    }

    /// Whether bounds come from codes of 8 bits, so that none are closer.
    pub(crate) fn is_close(&self) -> bool {
        self.pass == Pass::Bytes
    }

    /// Hears how many rows of a portion were left over, and chooses the pass for the next one.
    pub(crate) fn turn(&mut self, left_over: usize, of: usize) {
        self.seen += of;
        if self.search.pass.is_some() || self.pass == Pass::Exact {
            return;
        }
        let most = if self.pass == Pass::Rotated { ROTATED_LEAVES } else { NIBBLES_LEAVE };
        if left_over as f32 > of as f32 * most {
            for (pass, from) in &mut self.coarse {
                if *pass == self.pass {
                    *from = 2 * self.seen;
                }
            }
        }
        let coarse = self.coarse.iter().find(|&&(_, from)| from <= self.seen);
        self.pass = coarse.map_or(Pass::Bytes, |&(pass, _)| pass);
    }

    /// Writes for each query the upper bounds of a portion, minus infinity for rows that are not to be found. Says whether
    /// it has: if not, every row is to be scored.
    pub(crate) fn bound(&mut self, queries: &[Query], places: Range<usize>, uppers: &mut [Vec<f32>]) -> bool {
        let packing = match self.pass {
            Pass::Exact => return false,
            Pass::Bytes => Packing::Bytes,
            Pass::Nibbles | Pass::Rotated => Packing::Nibbles,
        };
        self.was_coarse[0] |= self.pass == Pass::Rotated;
        self.was_coarse[1] |= self.pass != Pass::Bytes;
        for upper in &mut *uppers {
            upper.resize(places.len(), 0.0);
        }
        let (set, dimension) = (self.search.instruction_set, self.vectors.dimension());
        let plain: Vec<_> = queries.iter().map(|query| of(query, packing)).collect();
        if let Within::Rows(numbers) = self.search.within {
            let numbers = numbers.get(places.clone()).unwrap_or_default();
            let gathered = Gathered::new(self.vectors, packing, numbers.iter().copied());
            bound(set, packing, packing.stride(dimension), gathered.coded(), &plain, uppers, 0);
        } else {
            let mut start = places.start;
            while let (Some(segment), true) = (self.vectors.segments().get(start / SEGMENT), start < places.end) {
                let end = places.end.min(start - start % SEGMENT + SEGMENT);
                let rows = start % SEGMENT..start % SEGMENT + (end - start);
                let at = start - places.start;
                if let (Some(rotated), Pass::Rotated) = (segment.rotated(), self.pass) {
                    let queries: Vec<_> = self.rotated.iter().map(|query| query.against(rotated)).collect();
                    let (codes, known) = segment.rotated_codes(rows);
                    let coded = Coded { rows: Rows::Together(codes), known: Known::Packed(known) };
                    bound(set, packing, LINE, coded, &queries, uppers, at);
                } else {
                    let coded = segment.coded(packing, rows);
                    bound(set, packing, packing.stride(dimension), coded, &plain, uppers, at);
                }
                start = end;
            }
        }
        for upper in uppers {
            self.adjust(places.clone(), upper);
        }
        true
    }

    /// Weights the bounds and takes out the rows that are not to be found.
    fn adjust(&self, places: Range<usize>, upper: &mut [f32]) {
        let rows = self.vectors.rows();
        match (self.search.weights, self.search.within) {
            (Some(weights), Within::Rows(numbers)) => {
                let numbers = numbers.get(places.clone()).unwrap_or_default();
                for (&row, bound) in numbers.iter().zip(&mut *upper) {
                    *bound = weights.upper(*bound, weights.at(row, rows));
                }
            }
            (Some(weights), _) => weights.raise(upper, places.start, rows),
            (None, _) => {}
        }
        let mask = match self.search.within {
            Within::Mask(words) => Some(words),
            Within::Rows(_) => return,
            _ if self.vectors.has_deleted() => None,
            _ => return,
        };
        for word in places.start / 64..places.end.div_ceil(64) {
            let allowed = mask.map_or(u64::MAX, |words| words.get(word).copied().unwrap_or_default());
            let mut hidden = !allowed | self.vectors.deleted_word(word);
            while hidden != 0 {
                let row = word * 64 + hidden.trailing_zeros() as usize;
                hidden &= hidden - 1;
                if let Some(bound) = row.checked_sub(places.start).and_then(|place| upper.get_mut(place)) {
                    *bound = f32::NEG_INFINITY;
                }
            }
        }
    }

    /// Bounds candidates by closer and closer codes, and drops those below a threshold.
    pub(crate) fn refine(&self, query: &Query, candidates: &mut Vec<Candidate>, threshold: f32) {
        for (packing, needed) in [Packing::Nibbles, Packing::Bytes].into_iter().zip(self.was_coarse) {
            if needed {
                self.refine_by(packing, query, candidates, threshold);
            }
        }
    }

    /// Bounds candidates by codes of 8 bits, and drops those below a threshold.
    pub(crate) fn refine_closely(&self, query: &Query, candidates: &mut Vec<Candidate>, threshold: f32) {
        self.refine_by(Packing::Bytes, query, candidates, threshold);
    }

    fn refine_by(&self, packing: Packing, query: &Query, candidates: &mut Vec<Candidate>, threshold: f32) {
        let row = |candidate: &Candidate| self.search.row(candidate.1 as usize);
        let gathered = Gathered::new(self.vectors, packing, candidates.iter().map(row));
        let mut upper = vec![0.0; candidates.len()];
        let stride = packing.stride(self.vectors.dimension());
        upper_bounds(self.search.instruction_set, packing, stride, gathered.coded(), of(query, packing), &mut upper);
        for (candidate, bound) in candidates.iter_mut().zip(upper) {
            candidate.0 = match self.search.weights {
                Some(weights) => weights.upper(bound, weights.at(row(candidate), self.vectors.rows())),
                None => bound,
            };
        }
        candidates.retain(|&(bound, _)| bound >= threshold);
    }
}

/// Writes upper bounds of some rows for each of several queries, from a place on.
fn bound(
    set: InstructionSet,
    packing: Packing,
    stride: usize,
    coded: Coded<'_>,
    queries: &[(&QueryCodes, Bound)],
    uppers: &mut [Vec<f32>],
    at: usize,
) {
    let count = coded.known.len();
    if let ([query], [upper]) = (queries, &mut *uppers) {
        let upper = upper.get_mut(at..at + count).unwrap_or_default();
        return upper_bounds(set, packing, stride, coded, *query, upper);
    }
    for start in (0..count).step_by(BLOCK) {
        let rows = start..count.min(start + BLOCK);
        let places = at + rows.start..at + rows.end;
        let block = part(coded, stride, rows);
        for (queries, uppers) in queries.chunks(4).zip(uppers.chunks_mut(4)) {
            if let (&[q0, q1, q2, q3], [u0, u1, u2, u3], Packing::Bytes) = (queries, &mut *uppers, packing) {
                let uppers = [u0, u1, u2, u3].map(|upper| upper.get_mut(places.clone()).unwrap_or_default());
                upper_bounds_of_four(set, stride, block, [q0, q1, q2, q3], uppers);
            } else {
                for (&query, upper) in queries.iter().zip(uppers) {
                    let upper = upper.get_mut(places.clone()).unwrap_or_default();
                    upper_bounds(set, packing, stride, block, query, upper);
                }
            }
        }
    }
}

fn of(query: &Query, packing: Packing) -> (&QueryCodes, Bound) {
    match packing {
        Packing::Bytes => (&query.codes, query.of_bytes),
        Packing::Nibbles => (&query.codes, query.of_nibbles),
    }
}

fn part(coded: Coded<'_>, stride: usize, places: Range<usize>) -> Coded<'_> {
    let rows = match coded.rows {
        Rows::Together(codes) => {
            Rows::Together(codes.get(places.start * stride..places.end * stride).unwrap_or_default())
        }
        Rows::Apart(rows) => Rows::Apart(rows.get(places.clone()).unwrap_or_default()),
    };
    Coded { rows, known: coded.known.part(places) }
}

impl Segment {
    fn coded(&self, packing: Packing, rows: Range<usize>) -> Coded<'_> {
        Coded {
            rows: Rows::Together(self.codes(packing, rows.clone())),
            known: Known::Plain { scales: self.scales(rows.clone()), errors: self.errors(packing, rows) },
        }
    }
}

/// Rows that do not stand one after the other.
struct Gathered<'a> {
    codes: Vec<&'a [u8]>,
    scales: Vec<f32>,
    errors: Vec<f32>,
}

impl<'a> Gathered<'a> {
    fn new(vectors: &'a Vectors, packing: Packing, rows: impl ExactSizeIterator<Item = usize>) -> Self {
        let count = rows.len();
        let (mut codes, mut scales, mut errors) =
            (Vec::with_capacity(count), Vec::with_capacity(count), Vec::with_capacity(count));
        for row in rows {
            let one = row % SEGMENT..row % SEGMENT + 1;
            if let Some(segment) = vectors.segments().get(row / SEGMENT) {
                codes.push(segment.codes(packing, one.clone()));
                scales.extend_from_slice(segment.scales(one.clone()));
                errors.extend_from_slice(segment.errors(packing, one));
            }
        }
        Self { codes, scales, errors }
    }

    fn coded(&self) -> Coded<'_> {
        Coded { rows: Rows::Apart(&self.codes), known: Known::Plain { scales: &self.scales, errors: &self.errors } }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rotation::numbers;
    use crate::simd::dot;

    /// No bound of any row lies below its score, with any pass and instruction set; and the same bounds with each set.
    pub(crate) fn assert_bounded(vectors: &Vectors, query: &[f32]) {
        let dimension = vectors.dimension();
        for pass in [Pass::Bytes, Pass::Nibbles, Pass::Rotated] {
            let mut expected: Option<Vec<f32>> = None;
            for instruction_set in InstructionSet::ALL.into_iter().filter(|set| set.is_available()) {
                let search = Search { pass: Some(pass), instruction_set, ..Search::new(1) };
                let queries = [Query::new(instruction_set, query, dimension).unwrap()];
                let mut passage = Passage::new(vectors, &search, &queries, vectors.rows(), 1);
                let mut uppers = [Vec::new()];
                assert!(passage.bound(&queries, 0..vectors.rows(), &mut uppers));
                let [upper] = uppers;
                for (row, &bound) in upper.iter().enumerate() {
                    let score = dot(query, vectors.row(row).unwrap()) / (queries[0].norm * vectors.norm(row));
                    // A row of norm zero scores zero.
                    let score = if score.is_nan() { 0.0 } else { score as f32 };
                    assert!(bound >= score, "{pass:?}, {instruction_set:?}, row {row}: {bound} < {score}");
                }
                let same = expected.as_ref().is_none_or(|expected| *expected == upper);
                assert!(same, "{pass:?}, {instruction_set:?}: other bounds");
                expected = Some(upper);
            }
        }
    }

    /// What the codes of a row leave over: the direction in which a bound is tight.
    fn residual(vectors: &Vectors, packing: Packing, row: usize) -> Vec<f32> {
        let segment = &vectors.segments()[row / SEGMENT];
        let one = row % SEGMENT..row % SEGMENT + 1;
        let codes = segment.codes(packing, one.clone());
        let step = f64::from(segment.scales(one)[0]) * vectors.norm(row);
        let values = vectors.row(row).unwrap().iter().enumerate();
        let left = values.map(|(at, &value)| {
            let stands_for = match packing {
                Packing::Bytes => f64::from(codes[at]) - 127.5,
                Packing::Nibbles => {
                    let byte = codes[at / 128 * 64 + at % 64];
                    let code = if at % 128 < 64 { byte & 0x0F } else { byte >> 4 };
                    (f64::from(code) - 7.5) * f64::from(crate::simd::quantise::NIBBLE_STEP)
                }
            };
            f64::from(value) - step * stands_for
        });
        left.map(|value| value as f32).collect()
    }

    #[test]
    fn no_bound_lies_below_a_score_even_where_it_is_tight() {
        for dimension in [64, 65, 127, 200, 384, 1_000] {
            let mut numbers = numbers(dimension as u64);
            let mut vectors = Vectors::new(dimension).unwrap();
            for at in 0..60 {
                let plain: Vec<f32> = numbers.by_ref().take(dimension).collect();
                let row: Vec<f32> = match at % 6 {
                    // Two levels that both lie between codes, and one large value besides.
                    0 => plain
                        .iter()
                        .map(|value| if *value < 0.0 { 0.055 } else { -0.053 })
                        .chain([1.0])
                        .skip(1)
                        .collect(),
                    1 => plain.iter().map(|value| value.powi(9)).collect(),
                    2 => plain.iter().map(|value| value * 1e-12).collect(),
                    3 => plain.iter().map(|value| value * 1e30).collect(),
                    4 => (0..dimension).map(|place| if place == at { 5.0 } else { 0.0 }).collect(),
                    _ => plain,
                };
                vectors.append(&row).unwrap();
            }
            let of_codes =
                |row: &usize| [Packing::Bytes, Packing::Nibbles].map(|packing| residual(&vectors, packing, *row));
            let queries: Vec<Vec<f32>> = (0..60).collect::<Vec<_>>().iter().flat_map(of_codes).collect();
            for query in queries.iter().filter(|query| query.iter().any(|&value| value != 0.0)) {
                assert_bounded(&vectors, query);
            }
            // Rows that are what the codes of a query leave over.
            for query in queries.iter().skip(1).step_by(7) {
                let known = Query::new(InstructionSet::Portable, query, dimension).unwrap();
                if known.norm == 0.0 {
                    continue;
                }
                let step = f64::from(known.of_bytes.gain) * 2.0 * known.norm;
                let left = query.iter().map(|&value| {
                    let value = f64::from(value);
                    (value - (value / step).round_ties_even() * step) as f32
                });
                vectors.update(&[7], &left.collect::<Vec<_>>()).unwrap();
                assert_bounded(&vectors, query);
            }
        }
    }
}
