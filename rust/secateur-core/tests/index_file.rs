//! An index that is saved and loaded is the same index; what is damaged is refused.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A panic is how a test fails.

use std::fs;
use std::path::PathBuf;

use secateur_core::{Error, Match, Search, Vectors, search};

/// Numbers that look random and are the same in every run.
fn numbers(seed: u64) -> impl Iterator<Item = f32> {
    let mut state = seed * 2 + 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    })
}

/// Rows near a few directions, so that a rotation pays.
fn crowded(count: usize, dimension: usize) -> Vectors {
    let directions: Vec<f32> = numbers(1).take(8 * dimension).collect();
    let mut factors = numbers(2);
    let mut vectors = Vectors::new(dimension).unwrap();
    for _ in 0..count {
        let mut row: Vec<f32> = factors.by_ref().take(dimension).map(|noise| noise * 0.1).collect();
        for direction in directions.chunks_exact(dimension) {
            let factor = factors.next().unwrap();
            row.iter_mut().zip(direction).for_each(|(value, part)| *value += factor * part);
        }
        vectors.append(&row).unwrap();
    }
    vectors
}

struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("secateur-{}-{name}", std::process::id())))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn found(vectors: &Vectors, query: &[f32]) -> Vec<Match> {
    search(vectors, &[query], &Search::new(20)).unwrap().remove(0)
}

#[test]
fn a_loaded_index_finds_the_same_and_can_be_changed() {
    for (count, dimension, rotated) in [(16_400, 256, true), (4_096, 70, false), (5_000, 3, false), (0, 384, false)] {
        let mut vectors = crowded(count, dimension);
        assert_eq!(vectors.is_rotated(), rotated);
        if count > 0 {
            vectors.delete(&[5, 77]).unwrap();
        }
        let file = TemporaryFile::new(&format!("same-{count}"));
        for _ in 0..2 {
            // The second time over itself.
            vectors.save(&file.0).unwrap();
        }
        for verify in [true, false] {
            let mut loaded = Vectors::load(&file.0, verify).unwrap();
            assert_eq!((loaded.len(), loaded.rows(), loaded.dimension()), (vectors.len(), count, dimension));
            assert_eq!(loaded.is_rotated(), rotated);
            assert_eq!(loaded.memory().owned, 0);
            let query: Vec<f32> = numbers(9).take(dimension).collect();
            assert_eq!(found(&loaded, &query), found(&vectors, &query));
            assert!((0..count).all(|row| loaded.row(row) == vectors.row(row)));
            let before = fs::read(&file.0).unwrap();
            loaded.append(&query).unwrap();
            if count > 0 {
                loaded.update(&[0], &query).unwrap();
                assert_eq!(
                    found(&loaded, &query)[..2].iter().map(|found| found.position).collect::<Vec<_>>(),
                    [0, count]
                );
            }
            assert_eq!(fs::read(&file.0).unwrap(), before, "the file stays as it is");
            loaded.save(&file.0).unwrap();
            assert_eq!(found(&Vectors::load(&file.0, true).unwrap(), &query), found(&loaded, &query));
            fs::write(&file.0, before).unwrap();
        }
    }
}

#[test]
fn damaged_files_are_refused() {
    let mut vectors = crowded(300, 70);
    vectors.delete(&[1]).unwrap();
    let file = TemporaryFile::new("damaged");
    vectors.save(&file.0).unwrap();
    let whole = fs::read(&file.0).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&file.0, bytes).unwrap();
        let message = Vectors::load(&file.0, true).unwrap_err().to_string();
        message.strip_prefix(&format!("{}: ", file.0.display())).unwrap().to_owned()
    };
    for at in (0..whole.len()).step_by(97).chain(0..128) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        refused(&bytes);
    }
    for length in [1, 8, 55, 64, 200, whole.len() - 1] {
        assert!(!refused(&whole[..length]).is_empty());
    }
    assert_eq!(refused(&[&whole[..], &[0; 64]].concat()), "is cut off or damaged");
    assert_eq!(refused(b"PK\x03\x04 another kind of file"), "is no index of secateur");
    let mut other = whole.clone();
    other[8] = 99;
    assert_eq!(refused(&other), "is of another version: build the index anew and save it");
    assert!(matches!(Vectors::load(&file.0.join("none"), true), Err(Error::File { .. })));
    assert!(matches!(vectors.save(&file.0.join("none")), Err(Error::File { .. })));
}
