//! Binding of `secateur_core::ScriptCounts`.

use pyo3::prelude::*;
use pyo3::types::PyString;
use secateur_core::{ScriptCounts, boundaries};

use crate::text::with_text;

/// Estimate the tokens of a text by the published script rule.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub(crate) fn script_tokens(text: &Bound<'_, PyString>) -> PyResult<usize> {
    with_text(text, |text| ScriptCounts::of(text).tokens())
}

/// The positions in a text at which it can be cut without tearing a grapheme cluster (UAX #29), its end included.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub(crate) fn grapheme_boundaries(text: &str) -> Vec<usize> {
    boundaries(text)
}
