//! Arguments and results that are numpy arrays, with the types that the generated stub shows for them.

use numpy::{PyArray1, PyArray2, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyTuple};
#[cfg(feature = "stubs")]
use pyo3::{inspect::PyStaticExpr, type_hint_identifier, type_hint_subscript, type_hint_union};
use secateur_core::Match;

use crate::error::VectorError;

/// `numpy.typing.NDArray` of one numpy scalar type.
#[cfg(feature = "stubs")]
macro_rules! array_of {
    ($scalar:expr) => {
        type_hint_subscript!(type_hint_identifier!("numpy.typing", "NDArray"), type_hint_identifier!("numpy", $scalar))
    };
}

/// A copy of real numbers of any dtype and layout, as float32 in row order.
///
/// Copied before the search begins; on an interpreter with threads at large, nobody may write to the array meanwhile.
pub(crate) struct Float32Array {
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Float32Array {
    /// The values of rows of one dimension, which is `dimension` if known; a single row may come flat then.
    pub(crate) fn into_rows(self, dimension: Option<usize>) -> PyResult<(Vec<f32>, usize)> {
        match *self.shape {
            [_, columns] if dimension.is_none_or(|expected| columns == expected) => Ok((self.values, columns)),
            [columns] if dimension == Some(columns) => Ok((self.values, columns)),
            _ => {
                let expected = dimension.map_or_else(|| "d".to_owned(), |dimension| dimension.to_string());
                Err(self.misshapen("vectors have", &format!("(n, {expected})")))
            }
        }
    }

    /// The values of one vector.
    pub(crate) fn into_query(self, dimension: usize) -> PyResult<Vec<f32>> {
        if *self.shape == [dimension] {
            Ok(self.values)
        } else {
            Err(self.misshapen("the query has", &format!("({dimension},)")))
        }
    }

    fn misshapen(&self, what: &str, expected: &str) -> PyErr {
        let lengths = self.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let comma = if self.shape.len() == 1 { "," } else { "" };
        VectorError::new_err(format!("{what} shape ({lengths}{comma}), expected {expected}"))
    }
}

impl<'py> FromPyObject<'_, 'py> for Float32Array {
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const INPUT_TYPE: PyStaticExpr = type_hint_identifier!("numpy.typing", "ArrayLike");

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let array = match object.cast::<PyArrayDyn<f32>>() {
            Ok(array) => array.to_owned(),
            Err(_) => converted(&object)?,
        };
        let array = if array.is_c_contiguous() && array.getattr("flags")?.getattr("aligned")?.is_truthy()? {
            array
        } else {
            // A reference to unaligned values, as views of bytes have them, would be undefined behaviour.
            let numpy = object.py().import("numpy")?;
            let order = [("dtype", "float32"), ("requirements", "CA")].into_py_dict(object.py())?;
            numpy.call_method("require", (array,), Some(&order))?.cast_into()?
        };
        let shape = array.shape().to_vec();
        let values = array.to_vec()?;
        Ok(Self { shape, values })
    }
}

fn converted<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    let py = object.py();
    let numpy = py.import("numpy")?;
    let array = numpy
        .call_method1("asarray", (object,))
        .map_err(|error| VectorError::new_err(format!("vectors cannot be read as an array: {}", error.value(py))))?;
    let dtype = array.getattr("dtype")?;
    if !matches!(dtype.getattr("kind")?.extract::<String>()?.as_str(), "f" | "i" | "u" | "b") {
        return Err(VectorError::new_err(format!("vectors have dtype {dtype}, expected real numbers")));
    }
    // A value beyond float32 becomes infinite, which the core refuses and names; numpy's warning would say it twice.
    let quiet = numpy.call_method("errstate", (), Some(&[("all", "ignore")].into_py_dict(py)?))?;
    quiet.call_method0("__enter__")?;
    let float32 = array.call_method1("astype", ("float32",));
    quiet.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    Ok(float32?.cast_into()?)
}

/// A whole number that is not negative; what does not fit a machine word counts as the largest that does.
#[derive(Clone, Copy)]
pub(crate) struct Count(pub(crate) usize);

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const INPUT_TYPE: PyStaticExpr = usize::INPUT_TYPE;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract() {
            Ok(number) => Ok(Self(number)),
            Err(error) if !error.is_instance_of::<PyOverflowError>(object.py()) => Err(error),
            Err(_) if object.gt(0)? => Ok(Self(usize::MAX)),
            Err(_) => {
                Err(VectorError::new_err(format!("{} is no number of rows or values: it must be 0 or more", *object)))
            }
        }
    }
}

/// Numbers of rows, copied.
pub(crate) struct RowNumbers(pub(crate) Vec<usize>);

impl<'py> FromPyObject<'_, 'py> for RowNumbers {
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const INPUT_TYPE: PyStaticExpr = type_hint_union!(
        type_hint_subscript!(
            type_hint_identifier!("collections.abc", "Sequence"),
            type_hint_identifier!("builtins", "int")
        ),
        array_of!("int64")
    );

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let numbers: Vec<i64> = match object.cast::<PyArray1<i64>>() {
            Ok(array) => array.call_method0("tolist")?.extract()?,
            Err(_) => object.extract().map_err(|error: PyErr| {
                let overflow = error.is_instance_of::<PyOverflowError>(object.py());
                if overflow { VectorError::new_err(format!("a row is out of range: {error}")) } else { error }
            })?,
        };
        let row = |number| {
            usize::try_from(number)
                .map_err(|_| VectorError::new_err(format!("row {number} is out of range, rows count from 0")))
        };
        numbers.into_iter().map(row).collect::<PyResult<_>>().map(Self)
    }
}

/// What a search found, as two arrays: positions (int64) and scores (float32).
pub(crate) struct Found(pub(crate) Vec<Match>);

impl<'py> IntoPyObject<'py> for Found {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const OUTPUT_TYPE: PyStaticExpr =
        type_hint_subscript!(type_hint_identifier!("builtins", "tuple"), array_of!("int64"), array_of!("float32"));

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        // A position is an index into memory, so that it fits int64.
        #[allow(clippy::cast_possible_wrap)]
        let positions = PyArray1::from_iter(py, self.0.iter().map(|found| found.position as i64));
        let scores = PyArray1::from_iter(py, self.0.iter().map(|found| found.score));
        (positions, scores).into_pyobject(py)
    }
}

/// Rows of vectors, as an array of shape (rows, columns).
pub(crate) struct Matrix {
    pub(crate) values: Vec<f32>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl<'py> IntoPyObject<'py> for Matrix {
    type Target = PyArray2<f32>;
    type Output = Bound<'py, PyArray2<f32>>;
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const OUTPUT_TYPE: PyStaticExpr = array_of!("float32");

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        PyArray1::from_vec(py, self.values).reshape([self.rows, self.columns])
    }
}
