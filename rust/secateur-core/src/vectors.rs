//! Rows of float32 vectors, each with its norm and its codes of 8 and 4 bits, by which the search leaves most rows
//! unread.
//!
//! Invariants: every stored value is finite; a stored norm is that of its row summed in float64; codes and errors bound the
//! row. Rows stand in segments of [`SEGMENT`], so that growing never moves what is there. A
//! deleted row keeps its number and its place until [`Vectors::compact`].

use crate::error::Error;
use crate::rotation::Rotation;
use crate::segment::{CODED_DIMENSIONS, SEGMENT, Segment};
use crate::simd::InstructionSet;

/// From so many full segments on a rotation is learnt, a power of four.
const LEARN_FROM: usize = 4;
/// How many rows it is learnt from at most.
const LEARN_ROWS: usize = 2_048;
/// How many values: fewer rows where they are longer.
const LEARN_VALUES: usize = 384 * LEARN_ROWS;
/// The most values of a row: far more than any embedding has, and lengths in bytes cannot overflow.
pub(crate) const MOST_VALUES: usize = 1 << 20;
/// The most rows, so that a row number takes 32 bits.
const MOST_ROWS: usize = u32::MAX as usize;

/// Rows of equal dimension that can be searched by [`search`](crate::search).
#[derive(Debug, Clone)]
pub struct Vectors {
    dimension: usize,
    segments: Vec<Segment>,
    rows: usize,
    deleted: Deleted,
    rotation: Option<Rotation>,
    /// With which codes are made: the same with all.
    set: InstructionSet,
}

/// Which rows are gone, as a bit for each; empty as long as there is none.
#[derive(Debug, Clone, Default)]
struct Deleted {
    words: Vec<u64>,
    count: usize,
}

/// Bytes that rows and all that is known of them take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes allocated.
    pub owned: usize,
    /// Bytes read from a mapped file, which the operating system may drop and read again.
    pub mapped: usize,
}

impl Vectors {
    /// An empty store for vectors of `dimension` values.
    ///
    /// # Errors
    /// [`Error::ZeroDimension`], [`Error::LongRows`].
    pub fn new(dimension: usize) -> Result<Self, Error> {
        if dimension == 0 {
            return Err(Error::ZeroDimension);
        }
        if dimension > MOST_VALUES {
            return Err(Error::LongRows { dimension, most: MOST_VALUES });
        }
        let set = InstructionSet::best();
        Ok(Self { dimension, segments: Vec::new(), rows: 0, deleted: Deleted::default(), rotation: None, set })
    }

    /// From what has been stored; nothing if the deleted rows do not fit the others.
    pub(crate) fn from_parts(
        dimension: usize,
        segments: Vec<Segment>,
        rows: usize,
        words: Vec<u64>,
        rotation: Option<Rotation>,
    ) -> Option<Self> {
        let beyond = words.len() > rows.div_ceil(64)
            || (words.len() * 64 > rows && words.last().is_some_and(|word| word >> (rows % 64) != 0));
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        (!beyond).then(|| Self {
            dimension,
            segments,
            rows,
            deleted: Deleted { words, count },
            rotation,
            set: InstructionSet::best(),
        })
    }

    /// For tests that force an instruction set for the making of codes.
    #[must_use]
    pub fn with_instruction_set(self, set: InstructionSet) -> Self {
        Self { set, ..self }
    }

    /// Values per row.
    #[must_use]
    pub const fn dimension(&self) -> usize {
        self.dimension
    }

    /// How many rows have been appended: the number of the next one.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// How many rows are stored, without deleted ones.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows - self.deleted.count
    }

    /// Whether no row is stored.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the rows take, with all that is kept for the search.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let besides = self.rotation.as_ref().map_or(0, Rotation::memory) + size_of_val(&*self.deleted.words);
        let start = Memory { owned: besides, mapped: 0 };
        self.segments
            .iter()
            .map(Segment::memory)
            .fold(start, |sum, (owned, mapped)| Memory { owned: sum.owned + owned, mapped: sum.mapped + mapped })
    }

    /// Appends rows laid out one after the other. All are stored or, on an error, none.
    ///
    /// # Errors
    /// [`Error::NoWholeRows`], [`Error::NonFiniteRow`], [`Error::TooManyRows`].
    pub fn append(&mut self, rows: &[f32]) -> Result<(), Error> {
        if !rows.len().is_multiple_of(self.dimension) {
            return Err(Error::NoWholeRows { values: rows.len(), dimension: self.dimension });
        }
        let before = self.rows;
        let count = rows.len() / self.dimension;
        check_count(before.saturating_add(count))?;
        self.check_finite(rows)?;
        let mut rest = rows;
        while !rest.is_empty() {
            let expected = before + count - self.rows;
            rest = self.append_to_segment(rest, expected);
        }
        Ok(())
    }

    /// Appends rows to the last segment as far as it has room, and returns the others; `expected` are to come in all.
    fn append_to_segment<'a>(&mut self, rows: &'a [f32], expected: usize) -> &'a [f32] {
        let place = self.rows % SEGMENT;
        if place == 0 {
            self.segments.push(Segment::new(self.dimension, 0));
        }
        let (now, rest) = rows.split_at(rows.len().min((SEGMENT - place) * self.dimension));
        if let Some(segment) = self.segments.last_mut() {
            segment.append(self.set, now, expected);
            self.rows += now.len() / self.dimension;
        }
        if self.rows.is_multiple_of(SEGMENT) {
            self.rotate_last();
        }
        rest
    }

    /// Rotates the last segment, which is full. The rotation is learnt once there are [`LEARN_FROM`] segments, and tried
    /// again whenever they are four times as many.
    fn rotate_last(&mut self) {
        let full = self.segments.len();
        if self.rotation.is_none() && full >= LEARN_FROM && full.is_power_of_two() && full.ilog2().is_multiple_of(2) {
            self.rotation = Rotation::learn(self.set, &self.sample(), self.dimension);
        }
        if let Some(rotation) = &self.rotation {
            for segment in self.segments.iter_mut().filter(|segment| segment.rotated().is_none()) {
                segment.rotate(self.set, rotation, &(0..SEGMENT));
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn set_rotation(&mut self, rotation: Rotation) {
        self.rotation = Some(rotation);
        self.rotate_last();
    }

    /// Rows from all segments, one after the other, each of norm one.
    fn sample(&self) -> Vec<f32> {
        let count = (LEARN_VALUES / self.dimension).clamp(LEARN_ROWS / 4, LEARN_ROWS);
        let mut sample = Vec::with_capacity(count * self.dimension);
        for row in (0..self.rows).step_by((self.rows / count).max(1)).take(count) {
            let norm = self.norm(row);
            let factor = if norm > 0.0 { 1.0 / norm } else { 0.0 };
            sample.extend(self.row(row).unwrap_or_default().iter().map(|&value| (f64::from(value) * factor) as f32));
        }
        sample
    }

    fn check_finite(&self, rows: &[f32]) -> Result<(), Error> {
        first_not_finite(rows).map_or(Ok(()), |(place, value)| {
            Err(Error::NonFiniteRow { row: place / self.dimension, column: place % self.dimension, value })
        })
    }

    /// Replaces rows: the values of each of `numbers` stand in `values`, one after the other. All or, on an error, none.
    ///
    /// # Errors
    /// [`Error::Values`], [`Error::RowOutOfRange`], [`Error::DeletedRow`],
    /// [`Error::NonFiniteRow`].
    pub fn update(&mut self, numbers: &[usize], values: &[f32]) -> Result<(), Error> {
        if values.len() != numbers.len() * self.dimension {
            return Err(Error::Values { got: values.len(), rows: numbers.len(), dimension: self.dimension });
        }
        self.check_rows(numbers)?;
        self.check_finite(values)?;
        for (&number, row) in numbers.iter().zip(values.chunks_exact(self.dimension)) {
            if let Some(segment) = self.segments.get_mut(number / SEGMENT) {
                segment.set(self.set, number % SEGMENT, row);
                if let (Some(rotation), Some(_)) = (&self.rotation, segment.rotated()) {
                    segment.rotate(self.set, rotation, &(number % SEGMENT..number % SEGMENT + 1));
                }
            }
        }
        Ok(())
    }

    /// Deletes rows: they are found no more, the numbers of the others stay. All or, on an error, none.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`], [`Error::DeletedRow`].
    pub fn delete(&mut self, numbers: &[usize]) -> Result<(), Error> {
        self.check_rows(numbers)?;
        for &number in numbers {
            if self.deleted.words.len() <= number / 64 {
                self.deleted.words.resize(self.rows.div_ceil(64), 0);
            }
            if let Some(word) = self.deleted.words.get_mut(number / 64) {
                self.deleted.count += usize::from(*word >> (number % 64) & 1 == 0);
                *word |= 1 << (number % 64);
            }
        }
        Ok(())
    }

    /// Frees what deleted rows take. Rows are numbered anew, in their order: the old numbers are returned.
    pub fn compact(&mut self) -> Vec<usize> {
        let numbers: Vec<usize> = (0..self.rows).filter(|&row| !self.is_deleted(row)).collect();
        if self.deleted.count > 0 {
            let mut kept = Self {
                dimension: self.dimension,
                segments: Vec::new(),
                rows: 0,
                deleted: Deleted::default(),
                rotation: self.rotation.take(),
                set: self.set,
            };
            for (at, &number) in numbers.iter().enumerate() {
                kept.append_to_segment(self.row(number).unwrap_or_default(), numbers.len() - at);
            }
            *self = kept;
        }
        numbers
    }

    /// The values of a row, or nothing if there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> Option<&[f32]> {
        (row < self.rows).then(|| self.segments.get(row / SEGMENT).map(|segment| segment.values(row % SEGMENT)))?
    }

    /// Whether a row has been deleted.
    #[must_use]
    pub fn is_deleted(&self, row: usize) -> bool {
        self.deleted.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Whether rows are kept rotated too, because they crowd in few directions.
    #[must_use]
    pub const fn is_rotated(&self) -> bool {
        self.rotation.is_some()
    }

    /// Looks whether all the rows are there.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`], [`Error::DeletedRow`].
    pub fn check_rows(&self, numbers: &[usize]) -> Result<(), Error> {
        if let Some(&row) = numbers.iter().find(|&&row| row >= self.rows) {
            return Err(Error::RowOutOfRange { row, len: self.rows });
        }
        match numbers.iter().find(|&&row| self.is_deleted(row)) {
            Some(&row) => Err(Error::DeletedRow { row }),
            None => Ok(()),
        }
    }

    pub(crate) fn norm(&self, row: usize) -> f64 {
        self.segments.get(row / SEGMENT).map_or(0.0, |segment| segment.norm(row % SEGMENT))
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// One bit for each of the 64 rows from `64 * word` on: whether it is deleted.
    pub(crate) fn deleted_word(&self, word: usize) -> u64 {
        self.deleted.words.get(word).copied().unwrap_or_default()
    }

    pub(crate) fn deleted_words(&self) -> &[u64] {
        &self.deleted.words
    }

    pub(crate) const fn rotation(&self) -> Option<&Rotation> {
        self.rotation.as_ref()
    }

    pub(crate) const fn has_deleted(&self) -> bool {
        self.deleted.count > 0
    }

    pub(crate) fn has_codes(&self) -> bool {
        CODED_DIMENSIONS.contains(&self.dimension)
    }
}

/// Refuses more rows than a row number can tell apart.
pub(crate) const fn check_count(rows: usize) -> Result<(), Error> {
    if rows > MOST_ROWS { Err(Error::TooManyRows { rows, most: MOST_ROWS }) } else { Ok(()) }
}

/// Place and value of the first NaN or infinity.
pub(crate) fn first_not_finite(values: &[f32]) -> Option<(usize, f32)> {
    const EXPONENT: u32 = 0x7F80_0000;
    let bad = |value: f32| value.to_bits() & EXPONENT == EXPONENT;
    let mut first = 0;
    // Whole blocks without a branch inside: compilers turn them into vectors.
    for block in values.chunks(256) {
        if block.iter().fold(false, |any, &value| any | bad(value)) {
            let found = block.iter().enumerate().find(|&(_, &value)| bad(value));
            return found.map(|(place, &value)| (first + place, value));
        }
        first += block.len();
    }
    None
}
