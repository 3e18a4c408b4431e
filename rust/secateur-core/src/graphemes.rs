//! Where a text may be cut without tearing what a reader sees as one character.

use unicode_segmentation::UnicodeSegmentation;

/// The positions, in code points, at which extended grapheme clusters begin (UAX #29), and the end of the text.
#[must_use]
pub fn boundaries(text: &str) -> Vec<usize> {
    let mut at = 0;
    let mut boundaries = vec![0];
    for cluster in text.graphemes(true) {
        at += cluster.chars().count();
        boundaries.push(at);
    }
    boundaries
}
