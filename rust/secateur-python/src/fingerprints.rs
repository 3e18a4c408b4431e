//! Binding of `secateur_core::Fingerprints`.

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use secateur_core::{COUNTERS, Margin, Rules};

use crate::error::to_python;
use crate::text::with_text;

/// The fingerprints of a vocabulary, by which tokens are counted; see `secateur.fingerprints`.
///
/// Args:
///     data: What `to_bytes` wrote.
///
/// Raises:
///     WeightsError: If it did not, or another version did.
#[pyclass(frozen, module = "secateur._core")]
pub(crate) struct Fingerprints(secateur_core::Fingerprints);

#[pymethods]
impl Fingerprints {
    #[new]
    #[pyo3(signature = (data, /))]
    fn new(data: &[u8]) -> PyResult<Self> {
        secateur_core::Fingerprints::from_bytes(data).map(Self).map_err(to_python)
    }

    /// Take the fingerprints of a vocabulary; each pre-token that is a token, and each piece of others, counts 1.
    ///
    /// Args:
    ///     family: Its name.
    ///     about: Where it is from; one line.
    ///     rules: How it splits texts, as bits.
    ///     tokens: The tokens, as bytes.
    ///
    /// Raises:
    ///     WeightsError: If there are less than 256 tokens of two bytes or more, or more than a million.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value)] // pyo3 gives vectors.
    #[pyo3(signature = (family, about, rules, tokens))]
    fn of(py: Python<'_>, family: &str, about: &str, rules: u16, tokens: Vec<Vec<u8>>) -> PyResult<Self> {
        let made = py.detach(|| secateur_core::Fingerprints::of(family, about, Rules(rules & Rules::ALL), &tokens));
        made.map(Self).map_err(to_python)
    }

    /// The same with weights for what `counters` counts, and by how much estimates may be too low: (shared, own).
    ///
    /// Raises:
    ///     WeightsError: If weights are missing or not finite.
    #[allow(clippy::needless_pass_by_value)] // pyo3 gives vectors.
    fn with_weights(&self, weights: Vec<f32>, margin: (f64, f64)) -> PyResult<Self> {
        let margin = Margin { shared: margin.0, own: margin.1 };
        self.0.clone().with_weights(&weights, margin).map(Self).map_err(to_python)
    }

    /// Write the file that the constructor reads.
    fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// The name of the family.
    #[getter]
    fn family(&self) -> &str {
        &self.0.family
    }

    /// Where the vocabulary is from, and on what the weights were fitted.
    #[getter]
    fn about(&self) -> &str {
        &self.0.about
    }

    /// By how much estimates may be too low: of a total as a whole, and of each text by itself.
    #[getter]
    fn margin(&self) -> (f64, f64) {
        (self.0.margin.shared, self.0.margin.own)
    }

    /// The tokens of a text, in fractions.
    #[pyo3(signature = (text, /))]
    fn count(&self, text: &Bound<'_, PyString>) -> PyResult<f64> {
        with_text(text, |text| self.0.count(text))
    }

    /// The tokens of texts, in fractions, each by itself.
    #[pyo3(signature = (texts, /))]
    fn count_many(&self, texts: &Bound<'_, PyList>) -> PyResult<Vec<f64>> {
        texts.iter().map(|text| self.count(text.cast::<PyString>()?)).collect()
    }

    /// What is counted of texts, a row for each: pre-tokens that are tokens, what the weights of other kinds are for,
    /// and the bytes in UTF-8.
    #[pyo3(signature = (texts, /))]
    fn counters<'py>(&self, texts: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyArray2<u64>>> {
        let mut rows = Vec::with_capacity(texts.len() * (COUNTERS + 1));
        for text in texts.iter() {
            let counters = with_text(text.cast::<PyString>()?, |text| self.0.counters(text))?;
            rows.extend(counters.counts);
            rows.push(counters.bytes);
        }
        PyArray1::from_vec(texts.py(), rows).reshape([texts.len(), COUNTERS + 1])
    }

    fn __repr__(&self) -> String {
        format!("Fingerprints(family={:?}, about={:?})", self.0.family, self.0.about)
    }
}
