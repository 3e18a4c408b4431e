//! An index in a file: written whole, read as mapped memory.
//!
//! A header, then the segments as they stand in memory, each at a multiple of 64 bytes. Numbers are little-endian. The
//! header and every segment carry a CRC-32, so that a file that was cut off or damaged is refused.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `SECATVEC` |
//! | 4, 4 | version, CRC-32 of the rest of the header |
//! | 8, 8, 8 | length of the header with its padding, dimension, rows |
//! | 8, 8 | bytes of the rotation (0 without one), words of the deleted rows (0 without any) |
//! | 20 for each segment | CRC-32 of its bytes, whether it is rotated, what is known of the rotated rows (8), 0 |
//! | … | the rotation, the words |

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::Mmap;

use crate::error::Error;
use crate::rotation::Rotation;
use crate::segment::{SEGMENT, Segment};
use crate::simd::codes::LINE;
use crate::vectors::{MOST_VALUES, Vectors, check_count};

const MAGIC: &[u8; 8] = b"SECATVEC";
/// Rises with every change of what is stored, and of how codes are made.
const VERSION: u32 = 1;
/// How many files have been begun.
static SAVES: AtomicUsize = AtomicUsize::new(0);
const FIXED: usize = 56;
const OF_SEGMENT: usize = 20;

impl Vectors {
    /// Writes the index to a file. One that is there already is replaced in one step, once the new one is on disk; it keeps its
    /// permissions, and a link to it goes on to lead there.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        replace(self, path).map_err(|error| Error::file(path, &error.to_string()))
    }

    /// Maps an index into memory: rows are read from the file when they are needed. Changing them copies them first, the
    /// file stays as it is.
    ///
    /// With `verify` all of it is read once, to compare checksums; without, the header only.
    ///
    /// Nobody may change the file in place, or cut it off, as long as the index lives: that would change rows unnoticed, or
    /// end the process. [`Vectors::save`] does neither.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read, is no such file, of another version, cut off or damaged.
    pub fn load(path: &Path, verify: bool) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::file(path, &error.to_string()))?;
        let map = crate::mapping::map(&file).map_err(|error| Error::file(path, &error.to_string()))?;
        read(&Arc::new(map), verify).map_err(|problem| Error::file(path, problem))
    }
}

fn replace(vectors: &Vectors, path: &Path) -> io::Result<()> {
    let known = fs::canonicalize(path);
    let target = known.as_deref().unwrap_or(path);
    // A name that no other process or thread uses.
    let number = SAVES.fetch_add(1, Ordering::Relaxed);
    let beside = target.with_file_name(format!(".secateur-{}-{number}.tmp", std::process::id()));
    let written = write(vectors, &beside).and_then(|()| {
        if let Ok(before) = fs::metadata(target) {
            fs::set_permissions(&beside, before.permissions())?;
        }
        fs::rename(&beside, target)
    });
    if written.is_err() {
        // Of what is left over nothing more can be said than the first error does.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write(vectors: &Vectors, path: &Path) -> io::Result<()> {
    let (mut segments, mut stored) = (Vec::new(), Vec::new());
    for segment in vectors.segments() {
        let bytes = segment.stored();
        segments.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        let known = segment.rotated();
        segments.extend_from_slice(&u32::from(known.is_some()).to_le_bytes());
        for number in known.unwrap_or_default() {
            segments.extend_from_slice(&number.to_le_bytes());
        }
        segments.extend_from_slice(&[0; 4]);
        stored.push(bytes);
    }
    let rotation = vectors.rotation().map_or(&[][..], |rotation| &rotation.stored);
    let words = vectors.deleted_words();
    let length = (FIXED + segments.len() + rotation.len() + 8 * words.len()).next_multiple_of(LINE);
    let mut header = Vec::with_capacity(length);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    for number in [length, vectors.dimension(), vectors.rows(), rotation.len(), words.len()] {
        header.extend_from_slice(&(number as u64).to_le_bytes());
    }
    header.extend_from_slice(&segments);
    header.extend_from_slice(rotation);
    header.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    header.resize(length, 0);
    let checksum = crc32fast::hash(header.get(16..).unwrap_or_default());
    if let Some(slot) = header.get_mut(12..16) {
        slot.copy_from_slice(&checksum.to_le_bytes());
    }
    let mut file = BufWriter::new(File::create_new(path)?);
    file.write_all(&header)?;
    for bytes in stored {
        file.write_all(&bytes)?;
    }
    file.into_inner()?.sync_all()
}

fn read(map: &Arc<Mmap>, verify: bool) -> Result<Vectors, &'static str> {
    const CUT: &str = "is cut off or damaged";
    if map.get(..8) != Some(MAGIC) {
        return Err("is no index of secateur");
    }
    if cfg!(target_endian = "big") {
        return Err("has little-endian numbers, which this machine does not read");
    }
    let word = |at: usize| map.get(at..at + 4).and_then(|bytes| bytes.first_chunk().copied()).map(u32::from_le_bytes);
    let long = |at: usize| {
        let bytes = map.get(at..at + 8).and_then(|bytes| bytes.first_chunk().copied());
        bytes.and_then(|bytes| usize::try_from(u64::from_le_bytes(bytes)).ok())
    };
    if word(8) != Some(VERSION) {
        return Err("is of another version: build the index anew and save it");
    }
    let (Some(length), Some(dimension), Some(rows), Some(of_rotation), Some(words)) =
        (long(16), long(24), long(32), long(40), long(48))
    else {
        return Err(CUT);
    };
    let header = map.get(..length).ok_or(CUT)?;
    if word(12) != header.get(16..).map(crc32fast::hash)
        || !(1..=MOST_VALUES).contains(&dimension)
        || check_count(rows).is_err()
    {
        return Err(CUT);
    }
    let count = rows.div_ceil(SEGMENT);
    let rotation_start = FIXED + OF_SEGMENT * count;
    let words_start = rotation_start.checked_add(of_rotation).ok_or(CUT)?;
    let rotation = match header.get(rotation_start..words_start).ok_or(CUT)? {
        [] => None,
        stored => Some(Rotation::load(stored.to_vec(), dimension).ok_or(CUT)?),
    };
    let deleted = header.get(words_start..).and_then(|bytes| bytes.get(..words.checked_mul(8)?)).ok_or(CUT)?;
    let deleted = deleted.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect();
    let mut start = length;
    let mut segments = Vec::with_capacity(count);
    for at in 0..count {
        let about = FIXED + OF_SEGMENT * at;
        let (Some(checksum), Some(is_rotated), Some(longest), Some(error)) =
            (word(about), word(about + 4), word(about + 8), word(about + 12))
        else {
            return Err(CUT);
        };
        let rotated = (is_rotated == 1).then(|| [f32::from_bits(longest), f32::from_bits(error)]);
        let rows = SEGMENT.min(rows - at * SEGMENT);
        let end = start.checked_add(Segment::stored_len(dimension, rows).ok_or(CUT)?).ok_or(CUT)?;
        if verify && map.get(start..end).map(crc32fast::hash) != Some(checksum) {
            return Err(CUT);
        }
        if rotated.is_some() && rotation.is_none() {
            return Err(CUT);
        }
        segments.push(Segment::mapped(map, start, dimension, rows, rotated).ok_or(CUT)?);
        start = end;
    }
    if start != map.len() {
        return Err(CUT);
    }
    Vectors::from_parts(dimension, segments, rows, deleted, rotation).ok_or(CUT)
}
