//! Binding of `secateur_core::{Estimator, Features, ScriptCounts}`.

use std::sync::Arc;

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use secateur_core::media::MediaRule;
use secateur_core::{
    Estimator as CoreEstimator, FEATURES, Features, Fingerprints, Mix, Model, Profile, ScriptCounts, boundaries,
};

use crate::error::to_python;
use crate::formats::Meter;
use crate::memory::Memory;
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

/// The counts from which tokens are estimated: a row for each text, of the features named by `feature_names`, then its
/// characters and its bytes in UTF-8.
#[pyfunction]
#[pyo3(signature = (texts, /))]
pub(crate) fn text_features<'py>(texts: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyArray2<u64>>> {
    let mut rows = Vec::with_capacity(texts.len() * (FEATURES + 2));
    for text in texts.iter() {
        let features = with_text(text.cast::<PyString>()?, Features::of)?;
        rows.extend(features.counts.iter().map(|&count| u64::from(count)));
        rows.extend([features.characters, features.bytes]);
    }
    PyArray1::from_vec(texts.py(), rows).reshape([texts.len(), FEATURES + 2])
}

/// The names of the counts that `text_features` gives.
#[pyfunction]
pub(crate) fn feature_names() -> Vec<String> {
    secateur_core::feature_names()
}

/// Estimates tokens by a profile; see `secateur.TokenEstimator`.
#[pyclass(frozen, module = "secateur._core")]
pub(crate) struct Estimator {
    pub(crate) core: CoreEstimator,
    pub(crate) memory: Arc<Memory>,
    families: Vec<String>,
    about: String,
}

#[pymethods]
impl Estimator {
    #[new]
    #[pyo3(signature = (profile, *, weights=None, mix=None, factor=1.0, fingerprints=None))]
    fn new(
        profile: &str,
        weights: Option<&[u8]>,
        mix: Option<(Vec<f64>, Vec<f64>, f64)>,
        factor: f64,
        fingerprints: Option<&[u8]>,
    ) -> PyResult<Self> {
        let model = match weights {
            Some(bytes) => Arc::new(Model::from_bytes(bytes).map_err(to_python)?),
            None => Model::built_in().map_err(to_python)?,
        };
        let family = model.families.iter().position(|name| name == profile);
        let profile = match (profile, family, mix) {
            ("script", ..) => Profile::Script,
            ("any", _, Some((weights, possible, trust))) => Profile::Mix(Mix { weights, possible, trust }),
            ("any", _, None) => Profile::Envelope,
            (_, Some(family), _) => Profile::Family(family),
            (name, None, _) => return Err(PyKeyError::new_err(name.to_owned())),
        };
        let (families, about) = (model.families.clone(), model.about.clone());
        let mut core = CoreEstimator::new(model, profile, factor);
        if let Some(bytes) = fingerprints {
            core = core.with_fingerprints(Arc::new(Fingerprints::from_bytes(bytes).map_err(to_python)?));
        }
        Ok(Self { core, memory: Arc::default(), families, about })
    }

    /// The tokens of a text.
    #[pyo3(signature = (text, /))]
    fn count(&self, text: &Bound<'_, PyString>) -> PyResult<u64> {
        with_text(text, |text| self.core.count(text))
    }

    /// The tokens of each text of a list.
    #[pyo3(signature = (texts, /))]
    fn count_many(&self, texts: &Bound<'_, PyList>) -> PyResult<Vec<u64>> {
        texts.iter().map(|text| with_text(text.cast::<PyString>()?, |text| self.core.count(text))).collect()
    }

    /// The tokens of a text if they are no more than a limit, else None; of a long text only a part is read then.
    #[pyo3(signature = (text, limit, /))]
    fn count_up_to(&self, text: &Bound<'_, PyString>, limit: u64) -> PyResult<Option<u64>> {
        with_text(text, |text| self.core.count_up_to(text, limit))
    }

    /// A bound on the tokens of a text.
    #[pyo3(signature = (text, /))]
    fn upper(&self, text: &Bound<'_, PyString>) -> PyResult<u64> {
        with_text(text, |text| self.core.upper(text))
    }

    /// A bound on the sum of several counts.
    #[pyo3(signature = (counts, /))]
    #[allow(clippy::needless_pass_by_value)] // Lists of numbers arrive as vectors of their own.
    fn upper_of_total(&self, counts: Vec<u64>) -> u64 {
        let squares = counts.iter().map(|&count| secateur_core::square(count)).sum();
        let total = counts.iter().fold(0, |total: u64, &count| total.saturating_add(count));
        self.core.margin().bound(total, squares)
    }

    /// The tokens of a text in each family, in fractions.
    #[pyo3(signature = (text, /))]
    fn by_family(&self, text: &Bound<'_, PyString>) -> PyResult<Vec<f64>> {
        with_text(text, |text| self.core.families(text))
    }

    /// The names of the families.
    #[getter]
    fn families(&self) -> Vec<String> {
        self.families.clone()
    }

    /// By how much estimates may be too low: (share of a total as a whole, share of each text by itself).
    #[getter]
    fn margin(&self) -> (f64, f64) {
        let margin = self.core.margin();
        (margin.shared, margin.own)
    }

    /// When the weights were fitted, and on what.
    #[getter]
    fn about(&self) -> &str {
        &self.about
    }
}

/// The tokens of a block that holds an image, a document, a sound or a film, by the rule of a model.
#[pyfunction]
pub(crate) fn media_tokens(block: &Bound<'_, PyDict>, model: &str) -> PyResult<u32> {
    let meter = Meter { media: MediaRule::of_model(model), ..Meter::default() };
    meter.media_tokens(block)
}
