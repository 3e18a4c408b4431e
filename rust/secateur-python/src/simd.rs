//! What the machine can do.

use pyo3::pyfunction;
use secateur_core::simd;

/// Whether products of unsigned with signed bytes saturate in the usual kernels of this machine.
#[pyfunction]
pub(crate) fn byte_products_saturate() -> bool {
    simd::byte_products_saturate()
}
