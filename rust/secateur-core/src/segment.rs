//! Rows, their norms and their codes, in one piece of memory: an array for each.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;

use crate::aligned::AlignedBytes;
use crate::rotation::{DIMENSIONS, Rotation};
use crate::simd::codes::{LINE, Packing};
use crate::simd::quantise::{Quantised, largest, quantise};
use crate::simd::{InstructionSet, dot};

/// Rows of a segment; the last one may have fewer.
pub(crate) const SEGMENT: usize = 4096;
/// Below it a row is shorter than what its codes would save; above it a product of codes, doubled, could leave 32 bits: at the
/// largest dimension it is below 2 * 255 * 127 * 16,384, half of 2^31.
pub(crate) const CODED_DIMENSIONS: Range<usize> = 64..16_385;

/// What is stored of each row, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Array {
    /// Codes of 4 bits of the rotated row.
    Rotated,
    /// What is known of them, see [`crate::simd::codes::Known::Packed`].
    Packed,
    /// Codes of 4 bits.
    Nibbles,
    /// Distance between the row and those codes over its norm, not less.
    NibbleErrors,
    /// Step between codes of 8 bits over the norm.
    Scales,
    /// Distance between the row and its codes of 8 bits over its norm, not less.
    ByteErrors,
    /// Codes of 8 bits.
    Bytes,
    /// Norms in float64.
    Norms,
    /// The row.
    Values,
}

const ARRAYS: [Array; 9] = [
    Array::Rotated,
    Array::Packed,
    Array::Nibbles,
    Array::NibbleErrors,
    Array::Scales,
    Array::ByteErrors,
    Array::Bytes,
    Array::Norms,
    Array::Values,
];

/// Up to [`SEGMENT`] rows.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    memory: AlignedBytes,
    layout: Layout,
    rows: usize,
    /// Once its rows have been rotated: the greatest length of the codes of one, and the greatest error of its codes of 8
    /// bits.
    rotated: Option<[f32; 2]>,
}

/// Where the arrays of so many rows end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    dimension: usize,
    capacity: usize,
    ends: [usize; ARRAYS.len()],
}

impl Layout {
    fn new(dimension: usize, capacity: usize) -> Self {
        let mut end = 0;
        let ends = ARRAYS.map(|array| {
            end += (capacity * array.width(dimension)).next_multiple_of(LINE);
            end
        });
        Self { dimension, capacity, ends }
    }

    /// Bytes of all arrays.
    const fn len(&self) -> usize {
        let [.., end] = self.ends;
        end
    }

    /// The bytes of some rows in an array.
    fn range(&self, array: Array, rows: &Range<usize>) -> Range<usize> {
        let start = (array as usize).checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let width = array.width(self.dimension);
        start + rows.start * width..start + rows.end * width
    }
}

impl Array {
    /// Bytes of a row; none if nothing is stored.
    fn width(self, dimension: usize) -> usize {
        let coded = CODED_DIMENSIONS.contains(&dimension);
        match self {
            Self::Values => size_of::<f32>() * dimension,
            Self::Norms => size_of::<f64>(),
            Self::Rotated if DIMENSIONS.contains(&dimension) => LINE,
            Self::Packed if DIMENSIONS.contains(&dimension) => size_of::<u32>(),
            Self::Bytes if coded => Packing::Bytes.stride(dimension),
            Self::Nibbles if coded => Packing::Nibbles.stride(dimension),
            Self::Scales | Self::ByteErrors | Self::NibbleErrors if coded => size_of::<f32>(),
            _ => 0,
        }
    }
}

impl Segment {
    /// An empty segment with room for some rows.
    pub(crate) fn new(dimension: usize, capacity: usize) -> Self {
        let layout = Layout::new(dimension, capacity);
        Self { memory: AlignedBytes::new(layout.len()), layout, rows: 0, rotated: None }
    }

    /// Rows as [`Segment::stored`] has laid them out, within a file from a place on.
    pub(crate) fn mapped(
        map: &Arc<Mmap>,
        start: usize,
        dimension: usize,
        rows: usize,
        rotated: Option<[f32; 2]>,
    ) -> Option<Self> {
        let layout = Layout::new(dimension, rows);
        let memory = AlignedBytes::mapped(map, start..start.checked_add(layout.len())?)?;
        Some(Self { memory, layout, rows, rotated })
    }

    /// Bytes of so many rows, laid out without any to spare; nothing if they are more than can be counted.
    pub(crate) fn stored_len(dimension: usize, rows: usize) -> Option<usize> {
        // A row takes less than 16 bytes for each value and a few lines.
        dimension.checked_mul(16)?.checked_add(64 * LINE)?.checked_mul(rows.max(1))?;
        Some(Layout::new(dimension, rows).len())
    }

    /// The rows laid out without any to spare.
    pub(crate) fn stored(&self) -> std::borrow::Cow<'_, [u8]> {
        if self.layout.capacity == self.rows {
            self.memory.bytes().into()
        } else {
            self.with_capacity(self.rows).memory.bytes().to_vec().into()
        }
    }

    fn with_capacity(&self, capacity: usize) -> Self {
        let mut other = Self::new(self.layout.dimension, capacity);
        let (from, to) = (self.memory.bytes(), other.memory.bytes_mut());
        for array in ARRAYS {
            let (from_range, to_range) =
                (self.layout.range(array, &(0..self.rows)), other.layout.range(array, &(0..self.rows)));
            if let (Some(to), Some(from)) = (to.get_mut(to_range), from.get(from_range)) {
                to.copy_from_slice(from);
            }
        }
        Self { rows: self.rows, rotated: self.rotated, ..other }
    }

    /// Bytes of memory of its own, and bytes of a mapped file.
    pub(crate) fn memory(&self) -> (usize, usize) {
        if self.memory.is_mapped() { (0, self.memory.len()) } else { (self.memory.len(), 0) }
    }

    pub(crate) const fn rotated(&self) -> Option<[f32; 2]> {
        self.rotated
    }

    fn read<T: Pod>(&self, array: Array, rows: Range<usize>) -> &[T] {
        debug_assert!(rows.end <= self.layout.capacity, "rows of another array would be read");
        // Arrays start at lines, so that they are aligned for any number.
        bytemuck::cast_slice(self.memory.bytes().get(self.layout.range(array, &rows)).unwrap_or_default())
    }

    /// Some rows of all arrays, to be changed.
    fn arrays_mut(&mut self, rows: &Range<usize>) -> [&mut [u8]; ARRAYS.len()] {
        let layout = self.layout;
        let mut rest = self.memory.bytes_mut();
        let mut done = 0;
        ARRAYS.map(|array| {
            let range = layout.range(array, rows);
            let (now, later) = std::mem::take(&mut rest).split_at_mut(range.end - done);
            let array = now.get_mut(range.start - done..).unwrap_or_default();
            (rest, done) = (later, range.end);
            array
        })
    }

    pub(crate) fn values(&self, row: usize) -> &[f32] {
        self.read(Array::Values, row..row + 1)
    }

    pub(crate) fn norm(&self, row: usize) -> f64 {
        self.read(Array::Norms, row..row + 1).first().copied().unwrap_or_default()
    }

    pub(crate) fn codes(&self, packing: Packing, rows: Range<usize>) -> &[u8] {
        self.read(if packing == Packing::Bytes { Array::Bytes } else { Array::Nibbles }, rows)
    }

    pub(crate) fn scales(&self, rows: Range<usize>) -> &[f32] {
        self.read(Array::Scales, rows)
    }

    pub(crate) fn errors(&self, packing: Packing, rows: Range<usize>) -> &[f32] {
        self.read(if packing == Packing::Bytes { Array::ByteErrors } else { Array::NibbleErrors }, rows)
    }

    /// Codes of rotated rows, and what is known of them.
    pub(crate) fn rotated_codes(&self, rows: Range<usize>) -> (&[u8], &[u32]) {
        (self.read(Array::Rotated, rows.clone()), self.read(Array::Packed, rows))
    }

    /// Appends rows, of which there may be `expected` in all.
    pub(crate) fn append(&mut self, set: InstructionSet, rows: &[f32], expected: usize) {
        let dimension = self.layout.dimension;
        let count = rows.len() / dimension;
        if self.rows + count > self.layout.capacity {
            let capacity = (self.rows + expected).max(2 * self.layout.capacity).max(self.rows + count);
            *self = self.with_capacity(capacity.min(SEGMENT));
        }
        let first = self.rows;
        self.rows += count;
        for (row, values) in (first..).zip(rows.chunks_exact(dimension)) {
            self.set(set, row, values);
        }
    }

    /// Stores a row in the place of another, with all that is known of it.
    pub(crate) fn set(&mut self, set: InstructionSet, row: usize, new: &[f32]) {
        let norm = dot(new, new).sqrt();
        let [_, _, nibbles, nibble_error, scale, byte_error, bytes, norms, values] = self.arrays_mut(&(row..row + 1));
        values.copy_from_slice(bytemuck::cast_slice(new));
        norms.copy_from_slice(&norm.to_ne_bytes());
        if CODED_DIMENSIONS.contains(&new.len()) {
            let known = quantised(set, new, norm, bytes, nibbles);
            scale.copy_from_slice(&known.step.to_ne_bytes());
            byte_error.copy_from_slice(&known.byte_error.to_ne_bytes());
            nibble_error.copy_from_slice(&known.nibble_error.to_ne_bytes());
        }
    }

    /// Rotates some rows; the segment counts as rotated then.
    pub(crate) fn rotate(&mut self, set: InstructionSet, rotation: &Rotation, rows: &Range<usize>) {
        let [codes, packed, _, _, scales, byte_errors, bytes, _, _] = self.arrays_mut(rows);
        let byte_errors: &[f32] = bytemuck::cast_slice(byte_errors);
        let error = byte_errors.iter().copied().fold(0.0, f32::max);
        let length = rotation.rotate(set, bytes, bytemuck::cast_slice(scales), codes, bytemuck::cast_slice_mut(packed));
        let [longest, greatest] = self.rotated.unwrap_or_default();
        self.rotated = Some([longest.max(length), greatest.max(error)]);
    }
}

/// Writes the codes of a row and returns step and errors over its norm.
///
/// The errors are rounded up: float32 sums of `d` squares in 16 lanes are off by less than `(d / 16 + 4) * 2^-24` of
/// themselves, one part in 10,000 for the largest dimension; each value by less than `2^-23` of itself, together one part
/// in a million of the norm.
fn quantised(set: InstructionSet, row: &[f32], norm: f64, bytes: &mut [u8], nibbles: &mut [u8]) -> Quantised {
    let most = largest(row);
    if most == 0.0 {
        return Quantised { step: 0.0, byte_error: 0.0, nibble_error: 0.0 };
    }
    let (known, norm) = if (1e-9..=1e9).contains(&most) {
        (quantise(set, row, most, bytes, nibbles), norm)
    } else {
        // Scaled by its own largest value, so that squares neither vanish nor overflow. What float32 loses by that is
        // 2^-23 of each value, or far less of the largest.
        let factor = 1.0 / f64::from(most);
        let scaled: Vec<f32> = row.iter().map(|&value| (f64::from(value) * factor) as f32).collect();
        (quantise(set, &scaled, 1.0, bytes, nibbles), norm * factor)
    };
    let error = |sum: f32| (f64::from(sum).sqrt() / norm * 1.0001 + 1e-6) as f32;
    Quantised {
        step: (f64::from(known.step) / norm) as f32,
        byte_error: error(known.byte_error),
        nibble_error: error(known.nibble_error),
    }
}
