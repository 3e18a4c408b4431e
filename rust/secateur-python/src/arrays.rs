//! Arguments and results that are numpy arrays, with the types that the generated stub shows for them.

use std::ops::Range;

use numpy::{PyArray1, PyArray2, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PySlice, PyTuple};
#[cfg(feature = "stubs")]
use pyo3::{PyTypeInfo, inspect::PyStaticExpr, type_hint_identifier, type_hint_subscript, type_hint_union};
use secateur_core::Match;

use crate::error::VectorError;
use crate::vectors::HalfLife;

/// `numpy.typing.NDArray` of one numpy scalar type.
#[cfg(feature = "stubs")]
macro_rules! array_of {
    ($scalar:expr) => {
        type_hint_subscript!(type_hint_identifier!("numpy.typing", "NDArray"), type_hint_identifier!("numpy", $scalar))
    };
}

/// Real numbers of any dtype and layout as float32 in row order: the array itself where it has them so, else a copy.
///
/// Read without the interpreter held, like numpy does: whoever writes to it meanwhile searches for something in between.
pub(crate) struct Float32Array<'py> {
    array: PyReadonlyArrayDyn<'py, f32>,
}

impl Float32Array<'_> {
    fn values(&self) -> PyResult<&[f32]> {
        // Aligned and contiguous ever since it was extracted.
        self.array.as_slice().map_err(|error| VectorError::new_err(error.to_string()))
    }

    /// The values of rows of one dimension, which is `dimension` if known; a single row may come flat then.
    pub(crate) fn rows(&self, dimension: Option<usize>) -> PyResult<(&[f32], usize)> {
        match *self.array.shape() {
            [_, columns] if dimension.is_none_or(|expected| columns == expected) => Ok((self.values()?, columns)),
            [columns] if dimension == Some(columns) => Ok((self.values()?, columns)),
            _ => {
                let expected = dimension.map_or_else(|| "d".to_owned(), |dimension| dimension.to_string());
                Err(self.misshapen("vectors have", &format!("(n, {expected})")))
            }
        }
    }

    /// The values of one vector.
    pub(crate) fn query(&self, dimension: usize) -> PyResult<&[f32]> {
        if *self.array.shape() == [dimension] {
            self.values()
        } else {
            Err(self.misshapen("the query has", &format!("({dimension},)")))
        }
    }

    /// The values of several vectors; `what` says what they are.
    pub(crate) fn several(&self, what: &str, dimension: usize) -> PyResult<&[f32]> {
        match *self.array.shape() {
            [_, columns] if columns == dimension => self.values(),
            _ => Err(self.misshapen(what, &format!("(m, {dimension})"))),
        }
    }

    fn misshapen(&self, what: &str, expected: &str) -> PyErr {
        let shape = self.array.shape();
        let lengths = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let comma = if shape.len() == 1 { "," } else { "" };
        VectorError::new_err(format!("{what} shape ({lengths}{comma}), expected {expected}"))
    }
}

impl<'py> FromPyObject<'_, 'py> for Float32Array<'py> {
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const INPUT_TYPE: PyStaticExpr = type_hint_identifier!("numpy.typing", "ArrayLike");

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let array = match object.cast::<PyArrayDyn<f32>>() {
            Ok(array) => array.to_owned(),
            Err(_) => converted(&object, "vectors", "float32")?.cast_into()?,
        };
        let array = if array.is_c_contiguous() && array.is_aligned() {
            array
        } else {
            let numpy = object.py().import("numpy")?;
            let order = [("dtype", "float32"), ("requirements", "CA")].into_py_dict(object.py())?;
            numpy.call_method("require", (array,), Some(&order))?.cast_into()?
        };
        let array = array.try_readonly().map_err(|error| VectorError::new_err(format!("vectors: {error}")))?;
        Ok(Self { array })
    }
}

fn converted<'py>(object: &Bound<'py, PyAny>, what: &str, to: &str) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let numpy = py.import("numpy")?;
    let array = numpy.call_method1("asarray", (object,)).map_err(|error| {
        if error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyTypeError>(py) {
            VectorError::new_err(format!("{what} cannot be read as an array: {}", error.value(py)))
        } else {
            error
        }
    })?;
    let dtype = array.getattr("dtype")?;
    if !matches!(dtype.getattr("kind")?.extract::<String>()?.as_str(), "f" | "i" | "u" | "b") {
        return Err(VectorError::new_err(format!("{what} have dtype {dtype}, expected real numbers")));
    }
    // A value beyond float32 becomes infinite, which the core refuses and names; numpy's warning would say it twice.
    let quiet = numpy.call_method("errstate", (), Some(&[("all", "ignore")].into_py_dict(py)?))?;
    quiet.call_method0("__enter__")?;
    let converted = array.call_method1("astype", (to,));
    quiet.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    converted
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

/// The numbers of a sequence; its length is not trusted with memory.
fn whole_numbers(object: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    const MOST: usize = u32::MAX as usize;
    let len = object.len()?;
    if len > MOST {
        return Err(VectorError::new_err(format!("there are {len} row numbers, there may be at most {MOST}")));
    }
    let number = |number: PyResult<Bound<'_, PyAny>>| {
        number?.extract().map_err(|error: PyErr| {
            let overflow = error.is_instance_of::<PyOverflowError>(object.py());
            if overflow { VectorError::new_err(format!("a row is out of range: {error}")) } else { error }
        })
    };
    let mut numbers = Vec::new();
    for one in object.try_iter()? {
        numbers.push(number(one)?);
    }
    Ok(numbers)
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
            Ok(array) => array.to_vec().or_else(|_| array.call_method0("tolist")?.extract())?,
            Err(_) => whole_numbers(&object)?,
        };
        let row = |number| {
            usize::try_from(number)
                .map_err(|_| VectorError::new_err(format!("row {number} is out of range, rows count from 0")))
        };
        numbers.into_iter().map(row).collect::<PyResult<_>>().map(Self)
    }
}

/// Which rows may be found.
pub(crate) enum Mask {
    Slices(Vec<Slice>),
    /// A bit for each row, and how many were given.
    Bits(Vec<u64>, usize),
}

/// Start and stop of a slice, which are resolved once it is known how many rows there are.
pub(crate) struct Slice {
    start: Option<isize>,
    stop: Option<isize>,
}

impl Slice {
    /// The rows that it stands for among so many, by the rules of Python.
    pub(crate) fn of(&self, rows: usize) -> Range<usize> {
        let place = |bound: Option<isize>, missing: usize| match bound {
            None => missing,
            Some(bound) if bound < 0 => rows.saturating_sub(bound.unsigned_abs()),
            Some(bound) => rows.min(bound.unsigned_abs()),
        };
        let start = place(self.start, 0);
        start..place(self.stop, rows).max(start)
    }
}

impl<'py> FromPyObject<'_, 'py> for Slice {
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const INPUT_TYPE: PyStaticExpr = type_hint_identifier!("builtins", "slice");

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let slice = object.cast::<PySlice>()?;
        let bound = |name: &str| -> PyResult<Option<isize>> {
            let bound = slice.getattr(name)?;
            if bound.is_none() {
                return Ok(None);
            }
            // What does not fit lies beyond all rows.
            bound.extract().map(Some).or_else(|error: PyErr| {
                let overflow = error.is_instance_of::<PyOverflowError>(object.py());
                if overflow { Ok(Some(if bound.gt(0)? { isize::MAX } else { isize::MIN })) } else { Err(error) }
            })
        };
        match bound("step")? {
            None | Some(1) => Ok(Self { start: bound("start")?, stop: bound("stop")? }),
            Some(step) => Err(VectorError::new_err(format!("mask has a slice with step {step}, it must be 1"))),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Mask {
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const INPUT_TYPE: PyStaticExpr = type_hint_union!(
        type_hint_identifier!("builtins", "slice"),
        type_hint_subscript!(
            type_hint_identifier!("collections.abc", "Sequence"),
            type_hint_identifier!("builtins", "slice")
        ),
        array_of!("bool_")
    );

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PySlice>() {
            return Ok(Self::Slices(vec![object.extract()?]));
        }
        if let Ok(array) = object.cast::<PyArray1<bool>>() {
            // A view may have gaps.
            let flags = array.to_vec().or_else(|_| array.call_method0("tolist")?.extract())?;
            let word = |flags: &[bool]| flags.iter().rev().fold(0, |word, &flag| word << 1 | u64::from(flag));
            return Ok(Self::Bits(flags.chunks(64).map(word).collect(), flags.len()));
        }
        let slices = object.try_iter().and_then(|items| items.map(|item| item?.extract()).collect());
        slices.map(Self::Slices).map_err(|error: PyErr| {
            if error.is_instance_of::<VectorError>(object.py()) {
                return error;
            }
            let kind = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
            let about = |name| object.getattr(name).map_or_else(|_| "none".to_owned(), |value| value.to_string());
            VectorError::new_err(format!(
                "mask is a {kind} (dtype {}, shape {}), expected an array of bool of shape (n,), a slice or a list of \
                 slices",
                about("dtype"),
                about("shape"),
            ))
        })
    }
}

/// A weight for each row.
pub(crate) enum RowWeights {
    Values(Vec<f64>),
    HalfLife(Py<HalfLife>),
}

impl<'py> FromPyObject<'_, 'py> for RowWeights {
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const INPUT_TYPE: PyStaticExpr =
        type_hint_union!(<HalfLife as PyTypeInfo>::TYPE_HINT, type_hint_identifier!("numpy.typing", "ArrayLike"));

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(half_life) = object.cast::<HalfLife>() {
            return Ok(Self::HalfLife(half_life.to_owned().unbind()));
        }
        let array = converted(&object, "weights", "float64")?;
        match array.cast::<PyArray1<f64>>() {
            Ok(weights) => Ok(Self::Values(weights.to_vec()?)),
            Err(_) => {
                Err(VectorError::new_err(format!("weights have shape {}, expected (n,)", array.getattr("shape")?)))
            }
        }
    }
}

/// What one search found, as two arrays: positions (int64) and scores (float32).
pub(crate) struct Found(pub(crate) Vec<Match>);

impl<'py> IntoPyObject<'py> for Found {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const OUTPUT_TYPE: PyStaticExpr =
        type_hint_subscript!(type_hint_identifier!("builtins", "tuple"), array_of!("int64"), array_of!("float32"));

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let (positions, scores): (Vec<i64>, Vec<f32>) = self.0.iter().map(position_and_score).unzip();
        // Copied by numpy: an array that owns a vector of Rust's costs more than so few numbers.
        (PyArray1::from_slice(py, &positions), PyArray1::from_slice(py, &scores)).into_pyobject(py)
    }
}

fn position_and_score(found: &Match) -> (i64, f32) {
    // A position is an index into memory, so that it fits int64.
    (found.position.cast_signed() as i64, found.score)
}

/// What several searches found, as two arrays with a row for each: positions (int64) and scores (float32).
pub(crate) struct FoundOfEach(pub(crate) Vec<Vec<Match>>);

impl<'py> IntoPyObject<'py> for FoundOfEach {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const OUTPUT_TYPE: PyStaticExpr = Found::OUTPUT_TYPE;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let shape = [self.0.len(), self.0.first().map_or(0, Vec::len)];
        let (positions, scores): (Vec<i64>, Vec<f32>) = self.0.iter().flatten().map(position_and_score).unzip();
        let positions = PyArray1::from_vec(py, positions).reshape(shape)?;
        (positions, PyArray1::from_vec(py, scores).reshape(shape)?).into_pyobject(py)
    }
}

/// Row numbers, as an array.
pub(crate) struct Int64Array(pub(crate) Vec<usize>);

impl<'py> IntoPyObject<'py> for Int64Array {
    type Target = PyArray1<i64>;
    type Output = Bound<'py, PyArray1<i64>>;
    type Error = PyErr;

    #[cfg(feature = "stubs")]
    const OUTPUT_TYPE: PyStaticExpr = array_of!("int64");

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        // Numbers of rows in memory, which fit.
        Ok(PyArray1::from_iter(py, self.0.into_iter().map(|row| row.cast_signed() as i64)))
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
