//! Reading Python strings in place.
//!
//! A `&str` of a non-ASCII string makes the interpreter keep a UTF-8 copy inside the string for as long as it lives
//! (measured: 1,000 two-byte characters grow from 2,074 to 5,075 bytes), and it cannot be had where there are lone
//! surrogates. The string's own units have neither fault and are read six times faster.

use pyo3::prelude::*;
use pyo3::types::PyString;
use secateur_core::Text;

/// From how many units on the interpreter is released: handing it over costs as much as reading about this many.
const RELEASE_FROM_UNITS: usize = 4096;

/// Runs `work` on the text, without the interpreter where the text is long.
#[cfg(not(feature = "abi3"))]
pub(crate) fn with_text<R: Send>(string: &Bound<'_, PyString>, work: impl FnOnce(Text<'_>) -> R + Send) -> PyResult<R> {
    use pyo3::types::string::PyStringData;

    // SAFETY: strings are immutable, and `string` keeps this one alive until `work` has returned.
    let text = match unsafe { string.data() }? {
        PyStringData::Ucs1(units) => Text::Latin1(units),
        PyStringData::Ucs2(units) => Text::Ucs2(units),
        PyStringData::Ucs4(units) => Text::Ucs4(units),
    };
    Ok(released(string.py(), text, work))
}

/// The same under the stable ABI, which does not show a string's units: ASCII in place, all else from a copy that
/// is dropped again.
#[cfg(feature = "abi3")]
pub(crate) fn with_text<R: Send>(string: &Bound<'_, PyString>, work: impl FnOnce(Text<'_>) -> R + Send) -> PyResult<R> {
    use pyo3::types::PyBytes;

    if string.call_method0("isascii")?.is_truthy()? {
        return Ok(released(string.py(), Text::from(string.to_str()?), work));
    }
    let copy = string.call_method1("encode", ("utf-8", "surrogatepass"))?.cast_into::<PyBytes>()?;
    Ok(released(string.py(), Text::Utf8(copy.as_bytes()), work))
}

fn released<R: Send>(py: Python<'_>, text: Text<'_>, work: impl FnOnce(Text<'_>) -> R + Send) -> R {
    if text.units() < RELEASE_FROM_UNITS { work(text) } else { py.detach(|| work(text)) }
}
