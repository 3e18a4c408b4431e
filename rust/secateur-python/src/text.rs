//! Reading Python strings in place.
//!
//! A `&str` of a non-ASCII string makes the interpreter keep a UTF-8 copy inside the string for as long as it lives
//! (measured: 1,000 two-byte characters grow from 2,074 to 5,075 bytes), and it cannot be had where there are lone
//! surrogates. The string's own units have neither fault and are read many times faster; those of an ASCII
//! string, which the interpreter knows as such, need not be read at all.

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
        PyStringData::Ucs1(units) if is_ascii(string, units) => Text::Ascii(units),
        PyStringData::Ucs1(units) => Text::Latin1(units),
        PyStringData::Ucs2(units) => Text::Ucs2(units),
        PyStringData::Ucs4(units) => Text::Ucs4(units),
    };
    Ok(released(string.py(), text, work))
}

/// Whether the units stand right behind the header of ASCII strings: all other strings have a longer one, or their
/// units elsewhere (PEP 393). The flag that says so is in a bit field, which pyo3 does not read from Python 3.14 on.
#[cfg(not(feature = "abi3"))]
fn is_ascii(string: &Bound<'_, PyString>, units: &[u8]) -> bool {
    units.as_ptr().addr() == string.as_ptr().addr() + size_of::<pyo3::ffi::PyASCIIObject>()
}

/// The same under the stable ABI, which does not show a string's units: ASCII in place, all else from a copy that
/// is dropped again.
#[cfg(feature = "abi3")]
pub(crate) fn with_text<R: Send>(string: &Bound<'_, PyString>, work: impl FnOnce(Text<'_>) -> R + Send) -> PyResult<R> {
    use pyo3::types::PyBytes;

    if string.call_method0("isascii")?.is_truthy()? {
        return Ok(released(string.py(), Text::Ascii(string.to_str()?.as_bytes()), work));
    }
    let copy = string.call_method1("encode", ("utf-8", "surrogatepass"))?.cast_into::<PyBytes>()?;
    Ok(released(string.py(), Text::Utf8(copy.as_bytes()), work))
}

fn released<R: Send>(py: Python<'_>, text: Text<'_>, work: impl FnOnce(Text<'_>) -> R + Send) -> R {
    let short = matches!(text, Text::Ascii(_)) || text.units() < RELEASE_FROM_UNITS;
    if short { work(text) } else { py.detach(|| work(text)) }
}
