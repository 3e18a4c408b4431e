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
        if let Some(weights) = self.search.weights {
            for (place, bound) in places.clone().zip(&mut *upper) {
                *bound = weights.upper(*bound, weights.at(self.search.row(place), rows));
            }
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
