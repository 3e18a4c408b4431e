//! Exact top-K by cosine.
//!
//! The score of a row is its cosine to the query, summed in float64, weighted if asked for, and rounded once to float32;
//! 0.0 where either has norm zero. The order is total: score descending, then position ascending.
//!
//! A pass over codes gives an upper bound of every score. The rows with the highest bounds are scored exactly; a row
//! whose bound lies below the k-th best exact score cannot be among the best, not even as a tie, and is never read. What
//! is left is bounded more closely, then scored exactly. Which pass is taken, and in what portions, changes nothing of
//! the result.

use std::cell::Cell;
use std::ops::Range;

use crate::error::Error;
use crate::pass::{Pass, Passage};
use crate::query::Query;
use crate::segment::SEGMENT;
use crate::simd::codes::{maxima, reaching};
use crate::simd::{InstructionSet, dot_and_square_of_four, dot_of_four};
use crate::vectors::{Vectors, check_count, first_not_finite};
use crate::weights::{OfRows, Weights};

/// One row found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Match {
    /// The row, or its place among the candidates where candidates were given.
    pub position: usize,
    /// Cosine to the query, in [-1, 1], or the weighted score.
    pub score: f32,
}

/// Which rows are searched; deleted ones never are.
#[derive(Debug, Clone, Copy, Default)]
pub enum Within<'a> {
    /// All.
    #[default]
    All,
    /// Those in any of some ranges.
    Ranges(&'a [Range<usize>]),
    /// Those whose bit is set: row `i` is bit `i % 64` of word `i / 64`. As many words as the rows need.
    Mask(&'a [u64]),
    /// These, in the order given and as often as they are named; [`Match::position`] is the place among them.
    Rows(&'a [usize]),
}

/// What is asked of [`search`], besides the queries.
#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    /// How many rows at most.
    pub k: usize,
    /// Which rows.
    pub within: Within<'a>,
    /// What their cosines are weighted with.
    pub weights: Option<Weights<'a>>,
    /// Among how many threads the rows are split; fewer if there are few rows.
    pub threads: usize,
    /// How many rows a thread has at least.
    pub rows_per_thread: usize,
    /// For tests that force one: the pass that is made.
    pub pass: Option<Pass>,
    /// For tests that force one.
    pub instruction_set: InstructionSet,
}

impl Search<'_> {
    /// The `k` best of all rows.
    #[must_use]
    pub fn new(k: usize) -> Self {
        Self {
            k,
            within: Within::All,
            weights: None,
            threads: 1,
            rows_per_thread: ROWS_PER_THREAD,
            pass: None,
            instruction_set: InstructionSet::best(),
        }
    }

    /// The row at a place: the place itself, unless rows were given.
    pub(crate) fn row(&self, place: usize) -> usize {
        match self.within {
            Within::Rows(numbers) => numbers.get(place).copied().unwrap_or_default(),
            _ => place,
        }
    }
}

/// Rows of a portion of weighted rows: few, so that strong decay ends the search early.
const WEIGHTED_PORTION: usize = 1024;
/// Where the first portions end. What they find is the measure for all others, and shows which pass pays.
const FIRST_PORTIONS: [usize; 3] = [1024, 2 * SEGMENT, 3 * SEGMENT];
/// Rows of the others: their bounds stay in the second cache.
const PORTION: usize = 32 * SEGMENT;
/// The same for several queries.
const PORTION_OF_MANY: usize = 2 * SEGMENT;
/// Queries that walk over the rows together.
const TOGETHER: usize = 16;
/// A thread is worth its start, some 30 µs, from so many rows on.
const ROWS_PER_THREAD: usize = 25_000;

/// The `k` best rows for each query, best first; all of them if there are fewer.
///
/// # Errors
/// [`Error::Dimension`], [`Error::NonFiniteQuery`], [`Error::RowOutOfRange`], [`Error::DeletedRow`],
/// [`Error::RowCount`], [`Error::Weight`].
pub fn search(vectors: &Vectors, queries: &[&[f32]], search: &Search<'_>) -> Result<Vec<Vec<Match>>, Error> {
    if let Within::Rows(numbers @ [first, ..]) = search.within
        && numbers.iter().enumerate().all(|(at, &number)| first.checked_add(at) == Some(number))
    {
        // One after the other they stand together, as all rows do.
        vectors.check_rows(numbers)?;
        let range = *first..*first + numbers.len();
        let within = Within::Ranges(std::slice::from_ref(&range));
        let mut found = self::search(vectors, queries, &Search { within, ..*search })?;
        for found in found.iter_mut().flatten() {
            found.position -= first;
        }
        return Ok(found);
    }
    let prepare = |query: &&[f32]| Query::new(search.instruction_set, query, vectors.dimension());
    let queries = queries.iter().map(prepare).collect::<Result<Vec<_>, Error>>()?;
    if let Some(weights) = search.weights {
        weights.check(vectors.rows())?;
    }
    let plan = Plan::new(vectors, search, if queries.len() == 1 { PORTION } else { PORTION_OF_MANY })?;
    let mut found = Vec::with_capacity(queries.len());
    for queries in queries.chunks(TOGETHER) {
        found.extend(plan.run(queries));
    }
    Ok(found)
}

/// The `k` best rows of a matrix, laid out one after the other, that is searched once: nothing is stored.
///
/// # Errors
/// [`Error::ZeroDimension`], [`Error::NoWholeRows`], [`Error::TooManyRows`], [`Error::Dimension`] of the query,
/// [`Error::NonFiniteRow`], [`Error::NonFiniteQuery`].
pub fn search_matrix(matrix: &[f32], dimension: usize, query: &[f32], k: usize) -> Result<Vec<Match>, Error> {
    if dimension == 0 {
        return Err(Error::ZeroDimension);
    }
    if !matrix.len().is_multiple_of(dimension) {
        return Err(Error::NoWholeRows { values: matrix.len(), dimension });
    }
    check_count(matrix.len() / dimension)?;
    let set = InstructionSet::best();
    let query = Query::new(set, query, dimension)?;
    let k = k.min(matrix.len() / dimension);
    let mut keys = Vec::new();
    for (four, values) in matrix.chunks(4 * dimension).enumerate() {
        let rows = values.len() / dimension;
        // In place of a row that is not there the last one is read again.
        let row = |at: usize| values.chunks_exact(dimension).nth(at.min(rows - 1)).unwrap_or_default();
        let (dots, squares) = dot_and_square_of_four(set, &query.wide, [row(0), row(1), row(2), row(3)]);
        for ((at, dot), square) in dots.into_iter().enumerate().zip(squares).take(rows) {
            // No finite float32 has a square that float64 cannot hold.
            if !square.is_finite()
                && let Some((column, value)) = first_not_finite(row(at))
            {
                return Err(Error::NonFiniteRow { row: 4 * four + at, column, value });
            }
            let norms = query.norm * square.sqrt();
            keys.push(key_of(if norms == 0.0 { 0.0 } else { dot / norms } as f32, 4 * four + at));
        }
        if keys.len() > 2 * k + SEGMENT {
            keep_highest(&mut keys, k);
        }
    }
    Ok(matches_of(&mut keys, k))
}

thread_local! {
    /// Memory for the bounds of a portion, for each query: asking for it anew is most of the time of a small search.
    static SCRATCH: Cell<Vec<Vec<f32>>> = const { Cell::new(Vec::new()) };
}

/// What a search has to look at, and how.
struct Plan<'a> {
    vectors: &'a Vectors,
    search: &'a Search<'a>,
    k: usize,
    portions: Vec<Portion>,
    places: usize,
    threads: usize,
}

/// Some places, one after the other, and an upper bound of their scores where it is known beforehand.
struct Portion {
    places: Range<usize>,
    upper: f32,
    /// Which thread looks at it.
    thread: usize,
}

impl<'a> Plan<'a> {
    fn new(vectors: &'a Vectors, search: &'a Search<'a>, portion: usize) -> Result<Self, Error> {
        let rows = vectors.rows();
        let ranges: Vec<Range<usize>> = match search.within {
            Within::All => std::iter::once(0..rows).collect(),
            Within::Ranges(ranges) => {
                if let Some(range) = ranges.iter().find(|range| range.end > rows || range.start > range.end) {
                    return Err(Error::RowOutOfRange { row: range.end.max(range.start), len: rows });
                }
                joined(ranges)
            }
            Within::Mask(words) => {
                if words.len() != rows.div_ceil(64) {
                    return Err(Error::RowCount { what: "mask", got: words.len() * 64, expected: rows });
                }
                let set = words.iter().enumerate().filter(|&(_, &word)| word != 0);
                joined(&set.map(|(at, _)| at * 64..(at * 64 + 64).min(rows)).collect::<Vec<_>>())
            }
            Within::Rows(numbers) => {
                check_count(numbers.len())?;
                vectors.check_rows(numbers)?;
                std::iter::once(0..numbers.len()).collect()
            }
        };
        let places: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        let threads = search.threads.min(places / search.rows_per_thread.max(1)).max(1);
        // Every thread has as many places, one after the other, and first portions of its own.
        let share = places.div_ceil(threads).max(1);
        let mut before = 0;
        let listed = matches!(search.within, Within::Rows(_));
        let mut portions: Vec<Portion> = Vec::new();
        for range in ranges {
            let mut start = range.start;
            while start < range.end {
                let of_share = before % share;
                let length = match search.weights {
                    Some(_) => WEIGHTED_PORTION - start % WEIGHTED_PORTION,
                    None => {
                        FIRST_PORTIONS.into_iter().find(|&end| of_share < end).map_or(portion, |end| end - of_share)
                    }
                };
                let end = range.end.min(start + length.min(share - of_share));
                let upper = match search.weights {
                    Some(weights @ Weights { of_rows: OfRows::Values(_), .. }) if !listed => {
                        weights.upper_of_all(start..end, rows)
                    }
                    _ => f32::INFINITY,
                };
                portions.push(Portion { places: start..end, upper, thread: before / share });
                before += end - start;
                start = end;
            }
        }
        match search.weights {
            Some(Weights { of_rows: OfRows::Values(_), .. }) => {
                // The best first, the newest of equals, so that the search can end early.
                portions.sort_by(|a, b| b.upper.total_cmp(&a.upper).then(b.places.start.cmp(&a.places.start)));
            }
            Some(Weights { of_rows: OfRows::HalfLife(_), .. }) => portions.reverse(),
            None => {}
        }
        if search.weights.is_some() {
            // In turns: each thread meets the best of them early.
            for (at, portion) in portions.iter_mut().enumerate() {
                portion.thread = at % threads;
            }
        }
        Ok(Self { vectors, search, k: search.k.min(places), portions, places, threads })
    }

    fn run(&self, queries: &[Query]) -> Vec<Vec<Match>> {
        if self.k == 0 {
            return vec![Vec::new(); queries.len()];
        }
        let mut found = if self.threads == 1 {
            self.walk(queries, 0)
        } else {
            std::thread::scope(|scope| {
                let spawn = |thread| {
                    let walk = move || self.walk(queries, thread);
                    (thread, std::thread::Builder::new().spawn_scoped(scope, walk))
                };
                let others: Vec<_> = (1..self.threads).map(spawn).collect();
                let mut found = self.walk(queries, 0);
                for (thread, other) in others {
                    let other = match other {
                        // A panic there is one here.
                        Ok(other) => other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                        // The system has no thread left.
                        Err(_) => self.walk(queries, thread),
                    };
                    for (found, more) in found.iter_mut().zip(other) {
                        found.extend(more);
                    }
                }
                found
            })
        };
        found.iter_mut().map(|keys| matches_of(keys, self.k)).collect()
    }

    /// An upper bound of the scores of a portion. By half-life it is computed here: most portions are never looked at.
    fn upper(&self, portion: &Portion) -> f32 {
        match self.search.weights {
            Some(weights @ Weights { of_rows: OfRows::HalfLife(_), .. })
                if !matches!(self.search.within, Within::Rows(_)) =>
            {
                weights.upper_of_all(portion.places.clone(), self.vectors.rows())
            }
            _ => portion.upper,
        }
    }

    /// The keys of the best, and maybe others, of the portions of a thread.
    fn walk(&self, queries: &[Query], thread: usize) -> Vec<Vec<u64>> {
        let mut uppers = SCRATCH.take();
        let found = self.walk_with(queries, thread, &mut uppers);
        SCRATCH.set(uppers);
        found
    }

    fn walk_with(&self, queries: &[Query], thread: usize, uppers: &mut Vec<Vec<f32>>) -> Vec<Vec<u64>> {
        let mut passage = Passage::new(self.vectors, self.search, queries, self.places, self.k);
        uppers.resize_with(queries.len(), Vec::new);
        let mut best: Vec<Best<'_>> = queries.iter().map(|query| Best::new(self, query)).collect();
        for portion in self.portions.iter().filter(|portion| portion.thread == thread) {
            let upper = self.upper(portion);
            if best.iter().all(|best| upper < best.threshold) {
                break;
            }
            if passage.bound(queries, portion.places.clone(), uppers) {
                let absorbed = best.iter_mut().zip(&mut *uppers);
                let left: usize =
                    absorbed.map(|(best, upper)| best.absorb(&passage, portion.places.start, upper)).sum();
                passage.turn(left, portion.places.len() * queries.len());
            } else {
                for best in &mut best {
                    best.score_all(portion.places.clone());
                }
            }
        }
        best.into_iter().map(|best| best.finish(&passage)).collect()
    }
}

/// Sorted ranges that neither overlap nor touch.
fn joined(ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut sorted: Vec<Range<usize>> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// A number that orders like (score ascending, position descending).
fn key_of(score: f32, place: usize) -> u64 {
    // Adding zero turns -0.0 into 0.0, so that equal scores are equal in the total order too.
    let bits = (score + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(!(place as u32))
}

fn match_of(key: u64) -> Match {
    let ordered = (key >> 32) as u32;
    let bits = if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered };
    Match { position: !(key as u32) as usize, score: f32::from_bits(bits) }
}

/// Leaves the `k` highest keys, in no order.
fn keep_highest(keys: &mut Vec<u64>, k: usize) {
    if k == 0 {
        keys.clear();
    } else if keys.len() > k {
        keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
        keys.truncate(k);
    }
}

fn matches_of(keys: &mut Vec<u64>, k: usize) -> Vec<Match> {
    keep_highest(keys, k);
    keys.sort_unstable_by(|a, b| b.cmp(a));
    keys.iter().copied().map(match_of).collect()
}

/// A place and the upper bound of its score.
pub(crate) type Candidate = (f32, u32);

/// Leaves the `n` candidates with the highest bounds, in no order, and moves the others away.
fn part_highest(candidates: &mut Vec<Candidate>, n: usize, others: &mut Vec<Candidate>) {
    if candidates.len() > n {
        candidates.select_nth_unstable_by(n, |a, b| b.0.total_cmp(&a.0));
        others.extend(candidates.drain(n..));
    }
}

/// The best rows for one query so far.
struct Best<'a> {
    plan: &'a Plan<'a>,
    query: &'a Query,
    /// The k-th best exact score, or minus infinity as long as there are fewer.
    threshold: f32,
    /// Keys of the exact scores that are among the best k.
    found: Vec<u64>,
    /// Rows whose bound reaches the threshold that held when they were seen.
    candidates: Vec<Candidate>,
}

impl<'a> Best<'a> {
    fn new(plan: &'a Plan<'a>, query: &'a Query) -> Self {
        Self { plan, query, threshold: f32::NEG_INFINITY, found: Vec::new(), candidates: Vec::new() }
    }

    /// Takes in the upper bounds of a portion, minus infinity for rows that are not to be found, and says how many rows it
    /// has left over.
    fn absorb(&mut self, passage: &Passage<'_>, start: usize, upper: &mut [f32]) -> usize {
        let (set, k) = (self.plan.search.instruction_set, self.plan.k);
        // How many of the highest bounds are looked at first, to raise the threshold for the others.
        let first = if passage.is_close() { scored_at_once(k) } else { 2 * k + k / 2 + 16 };
        let mut places = Vec::with_capacity(4 * first.min(256));
        reaching(set, upper, least_of_highest(set, upper, first).max(self.threshold), &mut places);
        let mut highest: Vec<Candidate> = places.drain(..).map(|place| (bound_at(upper, place), place)).collect();
        // Those that are not looked at now are met again below.
        part_highest(&mut highest, first, &mut Vec::new());
        for (_, place) in &mut highest {
            if let Some(bound) = upper.get_mut(*place as usize) {
                *bound = f32::NEG_INFINITY;
            }
            *place += start as u32;
        }
        if !passage.is_close() {
            passage.refine_closely(self.query, &mut highest, self.threshold);
            part_highest(&mut highest, scored_at_once(k), &mut self.candidates);
        }
        self.score(&highest);
        self.raise_threshold();
        if self.threshold == f32::NEG_INFINITY {
            // There have been less than k rows, and all have been scored.
            return 0;
        }
        reaching(set, upper, self.threshold, &mut places);
        self.candidates.extend(places.iter().map(|&place| (bound_at(upper, place), start as u32 + place)));
        places.len()
    }

    fn raise_threshold(&mut self) {
        let k = self.plan.k;
        if self.found.len() >= k {
            keep_highest(&mut self.found, k);
            let lowest = self.found.iter().copied().min();
            self.threshold = lowest.map_or(f32::NEG_INFINITY, |key| match_of(key).score);
        }
    }

    /// Scores rows exactly.
    fn score(&mut self, candidates: &[Candidate]) {
        for four in candidates.chunks(4) {
            self.score_four(four.iter().map(|&(_, place)| place as usize), four.len());
        }
    }

    /// Scores all rows of a portion exactly.
    fn score_all(&mut self, places: Range<usize>) {
        let plan = self.plan;
        let found = |place: &usize| match plan.search.within {
            Within::Rows(_) => true,
            Within::Mask(words) => {
                let word = words.get(place / 64).copied().unwrap_or_default();
                word >> (place % 64) & 1 == 1 && !plan.vectors.is_deleted(*place)
            }
            _ => !plan.vectors.is_deleted(*place),
        };
        let mut places = places.filter(found).peekable();
        while places.peek().is_some() {
            self.score_four(&mut places, 4);
            if self.found.len() > 2 * plan.k + SEGMENT {
                self.raise_threshold();
            }
        }
        self.raise_threshold();
    }

    /// Scores the next of some places exactly, four at most.
    fn score_four(&mut self, places: impl Iterator<Item = usize>, most: usize) {
        let (plan, query) = (self.plan, self.query);
        let mut places = places.take(most);
        let Some(first) = places.next() else { return };
        let mut four = [first; 4];
        let mut count = 1;
        for (slot, place) in four.iter_mut().skip(1).zip(places) {
            *slot = place;
            count += 1;
        }
        // In place of a row that is not there the first one is read again.
        let rows = four.map(|place| plan.search.row(place));
        let values = rows.map(|row| plan.vectors.row(row).unwrap_or_default());
        let dots = dot_of_four(plan.search.instruction_set, &query.wide, values);
        for ((&place, row), dot) in four.iter().zip(rows).zip(dots).take(count) {
            let norms = query.norm * plan.vectors.norm(row);
            let cosine = if norms == 0.0 { 0.0 } else { dot / norms };
            let score = match plan.search.weights {
                Some(weights) => weights.score(cosine, weights.at(row, plan.vectors.rows())),
                None => cosine,
            };
            self.found.push(key_of(score as f32, place));
        }
    }

    /// Scores what can still be among the best, and returns the keys of the best.
    fn finish(mut self, passage: &Passage<'_>) -> Vec<u64> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.retain(|&(bound, _)| bound >= self.threshold);
        passage.refine(self.query, &mut candidates, self.threshold);
        for some in candidates.chunks(32) {
            let left: Vec<Candidate> = some.iter().copied().filter(|&(bound, _)| bound >= self.threshold).collect();
            self.score(&left);
            self.raise_threshold();
        }
        self.found
    }
}

/// How many of the highest bounds are scored to raise the threshold: somewhat more than k, whole fours.
const fn scored_at_once(k: usize) -> usize {
    (k + k / 8).div_ceil(4) * 4
}

/// A value that at least `n` bounds reach, though hardly more than that; the least finite one if they are few.
fn least_of_highest(set: InstructionSet, bounds: &[f32], n: usize) -> f32 {
    // As many groups as reach it have a bound each that does.
    let mut maxima = maxima(set, bounds);
    if maxima.len() < n {
        return f32::MIN;
    }
    let (_, &mut nth, _) = maxima.select_nth_unstable_by(n - 1, |a, b| b.total_cmp(a));
    nth.max(f32::MIN)
}

fn bound_at(bounds: &[f32], place: u32) -> f32 {
    bounds.get(place as usize).copied().unwrap_or(f32::NEG_INFINITY)
}
