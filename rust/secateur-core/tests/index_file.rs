//! An index that is saved and loaded is the same index; what is damaged is refused.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // A panic is how a test fails.

mod common;

use std::fs;
use std::path::PathBuf;

use common::numbers;
use secateur_core::simd::InstructionSet;
use secateur_core::{Error, Match, Search, Vectors, search};

/// Rows near a few directions, so that a rotation pays.
fn crowded(count: usize, dimension: usize) -> Vectors {
    crowded_with(InstructionSet::best(), count, dimension)
}

fn crowded_with(set: InstructionSet, count: usize, dimension: usize) -> Vectors {
    let directions: Vec<f32> = numbers(1).take(8 * dimension).collect();
    let mut factors = numbers(2);
    let mut vectors = Vectors::new(dimension).unwrap().with_instruction_set(set);
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
            // The rotation alone is not read from the file.
            assert!(loaded.memory().owned < 300_000, "{:?}", loaded.memory());
            assert!(loaded.memory().mapped >= count * dimension * 4);
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

#[test]
fn every_instruction_set_writes_the_same_file() {
    for dimension in [64, 256, 300] {
        let file = TemporaryFile::new(&format!("sets-{dimension}"));
        let of = |set| {
            let vectors = crowded_with(set, 16_390, dimension);
            vectors.save(&file.0).unwrap();
            (vectors.is_rotated(), fs::read(&file.0).unwrap())
        };
        let expected = of(InstructionSet::Portable);
        assert_eq!(expected.0, dimension >= 256);
        for set in InstructionSet::ALL.into_iter().filter(|set| set.is_available()) {
            assert!(of(set) == expected, "{set:?}");
        }
    }
}

#[test]
fn threads_save_at_once_without_mixing_files() {
    let files: Vec<TemporaryFile> = (0..4).map(|at| TemporaryFile::new(&format!("at-once.{at}"))).collect();
    let of_count: Vec<Vectors> = (0..4).map(|at| crowded(500 + at, 64)).collect();
    for _ in 0..10 {
        std::thread::scope(|scope| {
            for (file, vectors) in files.iter().zip(&of_count).chain(files.iter().zip(&of_count)) {
                scope.spawn(|| vectors.save(&file.0).unwrap());
            }
        });
        for (file, vectors) in files.iter().zip(&of_count) {
            assert_eq!(Vectors::load(&file.0, true).unwrap().rows(), vectors.rows());
        }
    }
}
