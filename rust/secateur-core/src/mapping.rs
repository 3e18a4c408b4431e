//! Files as memory.
#![allow(unsafe_code)] // Mapping a file is the one thing here that cannot be done safely.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// The bytes of a file, read when they are needed.
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: nothing in this process writes to the file: `save` puts a new one in its place. That no other process changes it
    // in place or cuts it off is asked of the caller, in the documentation of `Vectors::load`; the system has no means to
    // make sure of it.
    unsafe { Mmap::map(file) }
}
