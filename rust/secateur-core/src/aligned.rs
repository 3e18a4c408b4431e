//! Memory that starts at a cache line: of the heap, in huge pages, or a part of a mapped file until it is changed.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use memmap2::{Mmap, MmapMut};

use crate::simd::codes::LINE;

/// What huge pages start at.
const HUGE: usize = 2 << 20;
/// Smaller memory than this is not asked for in huge pages.
const HUGE_FROM: usize = 2 * HUGE;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// Bytes, zeros at first. They start at a multiple of [`LINE`], so that a vector register is filled by one line of the cache.
#[derive(Debug)]
pub(crate) struct AlignedBytes {
    source: Source,
    len: usize,
}

#[derive(Debug)]
enum Source {
    Heap(Vec<Line>),
    /// Anonymous memory, and where in it a huge page starts.
    Huge(MmapMut, usize),
    File(Arc<Mmap>, Range<usize>),
}

impl AlignedBytes {
    pub(crate) fn new(len: usize) -> Self {
        // Reading many rows walks over many pages: in huge ones it takes half of the time (benches/NOTES.md).
        let huge = (len >= HUGE_FROM).then(|| huge_pages(len)).flatten();
        let source = huge.unwrap_or_else(|| Source::Heap(vec![Line::zeroed(); len.div_ceil(LINE)]));
        Self { source, len }
    }

    /// A part of a file; nothing if it is not all there, or does not start at a line.
    pub(crate) fn mapped(map: &Arc<Mmap>, bytes: Range<usize>) -> Option<Self> {
        let len = bytes.len();
        let starts_at_line = map.get(bytes.clone())?.as_ptr().addr().is_multiple_of(LINE);
        starts_at_line.then(|| Self { source: Source::File(Arc::clone(map), bytes), len })
    }

    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.source, Source::File(..))
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Heap(lines) => bytemuck::cast_slice(lines).get(..self.len).unwrap_or_default(),
            Source::Huge(map, start) => map.get(*start..start + self.len).unwrap_or_default(),
            Source::File(map, bytes) => map.get(bytes.clone()).unwrap_or_default(),
        }
    }

    /// The bytes to be changed: those of a file are copied first.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.is_mapped() {
            *self = self.clone();
        }
        match &mut self.source {
            Source::Heap(lines) => bytemuck::cast_slice_mut(lines).get_mut(..self.len).unwrap_or_default(),
            Source::Huge(map, start) => map.get_mut(*start..*start + self.len).unwrap_or_default(),
            Source::File(..) => &mut [],
        }
    }
}

impl Clone for AlignedBytes {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.len);
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

/// Memory that the system is asked to lay in huge pages; nothing if it has none left to map.
fn huge_pages(len: usize) -> Option<Source> {
    let map = MmapMut::map_anon(len + HUGE).ok()?;
    #[cfg(target_os = "linux")]
    // Refused where huge pages are switched off, which only makes it slower.
    let _ = map.advise(memmap2::Advice::HugePage);
    let start = map.as_ptr().align_offset(HUGE);
    Some(Source::Huge(map, start))
}
