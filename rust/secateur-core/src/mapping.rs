//! Files as memory.
#![allow(unsafe_code)] // Mapping a file is the one thing here that cannot be done safely.

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// The bytes of a file, read when they are needed.
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the memory is read only, and never through references that promise anything but plain numbers. Whoever
    // changes the file in place meanwhile changes those numbers, or ends the process if he cuts it off: `save` never
    // does either, it puts a new file in the place of the old one.
    unsafe { Mmap::map(file) }
}
