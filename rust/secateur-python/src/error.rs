//! Core errors become the Python classes of `secateur.errors`.

use pyo3::PyErr;
use pyo3::import_exception;
use secateur_core::Error;

import_exception!(secateur.errors, MessageError);
import_exception!(secateur.errors, VectorError);
import_exception!(secateur.errors, WeightsError);

/// The one place where an error crosses over; a new variant must be given its class here.
#[allow(clippy::needless_pass_by_value)] // Taken by value so that it fits `map_err`.
pub(crate) fn to_python(error: Error) -> PyErr {
    match error {
        Error::ZeroDimension
        | Error::LongRows { .. }
        | Error::Dimension { .. }
        | Error::NoWholeRows { .. }
        | Error::Values { .. }
        | Error::NonFiniteRow { .. }
        | Error::NonFiniteQuery { .. }
        | Error::RowOutOfRange { .. }
        | Error::TooManyRows { .. }
        | Error::DeletedRow { .. }
        | Error::RowCount { .. }
        | Error::Weight { .. }
        | Error::HalfLife { .. }
        | Error::File { .. } => VectorError::new_err(error.to_string()),
        Error::Weights(_) => WeightsError::new_err(error.to_string()),
    }
}
