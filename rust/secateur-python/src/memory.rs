//! Estimates of texts, remembered.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyString;

/// Entries of a generation: two are kept, of 24 bytes an entry.
const GENERATION: usize = 1 << 16;
/// Longer texts are sampled by features, which takes less time than their hash.
const LONGEST: usize = secateur_core::SAMPLED_FROM;

/// A text by the hash that the interpreter keeps in it, and its length.
///
/// The hash has a secret key of the process (SipHash), and 64 bits on the machines that wheels are made for: another text
/// of the same length has the same by a chance of 1 in 10^19. Comparing texts would mean keeping them, and with them
/// the memory of whole histories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    hash: isize,
    length: usize,
}

/// Passes on what is a hash already.
#[derive(Debug, Default)]
struct Passed(u64);

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
    fn write_isize(&mut self, hash: isize) {
        self.0 ^= hash.cast_unsigned() as u64;
    }
    fn write_usize(&mut self, length: usize) {
        self.0 ^= length as u64;
    }
}

type Generation = HashMap<Key, u64, BuildHasherDefault<Passed>>;

/// A bounded map from texts to their tokens: what was not asked for during a whole generation is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    generations: Mutex<(Generation, Generation)>,
}

impl Memory {
    /// The key of a text; nothing for one that is not worth remembering, or cannot be told apart.
    pub(crate) fn key(text: &Bound<'_, PyString>) -> PyResult<Option<Key>> {
        // A subclass may have a hash and a length of its own.
        if !text.is_exact_instance_of::<PyString>() {
            return Ok(None);
        }
        let length = text.len()?;
        Ok(if length < LONGEST { Some(Key { hash: text.hash()?, length }) } else { None })
    }

    /// What is remembered of a text.
    pub(crate) fn get(&self, key: Key) -> Option<u64> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&tokens) = generations.0.get(&key) {
            return Some(tokens);
        }
        let tokens = generations.1.get(&key).copied()?;
        insert(&mut generations, key, tokens);
        Some(tokens)
    }

    /// Remembers a text.
    pub(crate) fn put(&self, key: Key, tokens: u64) {
        insert(&mut self.generations.lock().unwrap_or_else(PoisonError::into_inner), key, tokens);
    }
}

fn insert((new, old): &mut (Generation, Generation), key: Key, tokens: u64) {
    if new.len() >= GENERATION {
        *old = std::mem::take(new);
    }
    new.insert(key, tokens);
}
