//! The binding: converts arguments, releases the interpreter, maps errors. Everything else is in `secateur-core`.

#![allow(clippy::doc_markdown)] // Doc comments here become Python docstrings.

mod arrays;
mod error;
mod fingerprints;
mod fitter;
mod formats;
mod memory;
mod simd;
mod text;
mod tokens;
mod vectors;

/// The compiled part of secateur. Import its names from `secateur`.
#[pyo3::pymodule]
mod _core {
    #[pymodule_export]
    use crate::fingerprints::Fingerprints;
    #[pymodule_export]
    use crate::fitter::{Fitter, read_structure};
    #[pymodule_export]
    use crate::formats::detect_format;
    #[pymodule_export]
    use crate::simd::byte_products_saturate;
    #[pymodule_export]
    use crate::tokens::{Estimator, feature_names, grapheme_boundaries, media_tokens, script_tokens, text_features};
    #[pymodule_export]
    use crate::vectors::{HalfLife, VectorIndex, top_k};

    /// How this module was compiled: benchmarks refuse anything but "release".
    #[pymodule_export]
    const BUILD_PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };
}
