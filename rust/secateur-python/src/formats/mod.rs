//! Reading the messages of every wire format into what the core knows of a message.
//!
//! One pass over plain dicts, without copies of their texts. Each text is counted by itself and rounded up, so that
//! the cost of a message is the sum of the costs of its texts, and clearing one changes nothing else.

mod anthropic;
mod bedrock;
mod detect;
mod gemini;
mod meter;
mod openai_chat;
mod responses;

pub(crate) use detect::detect_format;
pub(crate) use meter::Meter;

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use secateur_core::{Clearing, Kind, NewPart};

use crate::error::MessageError;

/// The wire formats that are told apart; the simple one is read like OpenAI's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    OpenAiChat,
    Responses,
    Anthropic,
    Gemini,
    Bedrock,
}

impl Format {
    /// The format of a name; an unknown name is a mistake of the Python layer.
    pub(crate) fn named(name: &str) -> PyResult<Self> {
        match name {
            "simple" | "openai_chat" => Ok(Self::OpenAiChat),
            "openai_responses" => Ok(Self::Responses),
            "anthropic" => Ok(Self::Anthropic),
            "gemini" => Ok(Self::Gemini),
            "bedrock" => Ok(Self::Bedrock),
            _ => Err(pyo3::exceptions::PyValueError::new_err(format!("no format {name:?}"))),
        }
    }
}

/// How messages are counted, and how results and arguments may be cleared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) meter: Meter,
    /// By name of the tool.
    pub(crate) tools: HashMap<String, Clearing>,
    /// Whether the arguments of calls are cleared too.
    pub(crate) inputs: bool,
    /// What the note for a result costs, in tokens.
    pub(crate) result_note: u32,
    /// What the note for arguments costs, in tokens.
    pub(crate) input_note: u32,
}

/// What one message says.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) kind: Kind,
    pub(crate) continues: bool,
    pub(crate) pinned: bool,
    pub(crate) tokens: u32,
    pub(crate) calls: Vec<String>,
    pub(crate) results: Vec<String>,
    pub(crate) parts: Vec<NewPart>,
}

impl Reading {
    /// Adds tokens; more than there can be are as many as there can be.
    fn add(&mut self, tokens: u32) {
        self.tokens = self.tokens.saturating_add(tokens);
    }
}

/// Reads message after message; remembers which tool a call names.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    format: Format,
    rules: &'a Rules,
    /// The tool that each call names; kept where rules ask for it.
    pub(crate) tool_of_call: HashMap<String, String>,
}

/// What a value costs, and whether it is nothing but text.
#[derive(Debug, Clone, Copy)]
struct Cost {
    tokens: u32,
    text: bool,
    /// What stands around a note in its place, beside the note itself.
    around_note: u32,
}

impl Cost {
    const fn of(tokens: u32, text: bool) -> Self {
        Self { tokens, text, around_note: 0 }
    }
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(format: Format, rules: &'a Rules, tool_of_call: HashMap<String, String>) -> Self {
        Self { format, rules, tool_of_call }
    }

    /// Reads a message, which may be any mapping.
    pub(crate) fn read(&mut self, message: &Bound<'_, PyAny>, index: usize) -> PyResult<Reading> {
        let copy;
        let message = if let Ok(dict) = message.cast::<PyDict>() {
            dict
        } else {
            copy = as_dict(message, index)?;
            &copy
        };
        let mut reading = Reading {
            kind: Kind::Other,
            continues: false,
            pinned: false,
            tokens: self.rules.meter.message,
            calls: Vec::new(),
            results: Vec::new(),
            parts: Vec::new(),
        };
        match self.format {
            Format::OpenAiChat => self.openai_chat(message, &mut reading),
            Format::Responses => self.responses(message, &mut reading),
            Format::Anthropic => self.anthropic(message, &mut reading),
            Format::Gemini => self.gemini(message, &mut reading),
            Format::Bedrock => self.bedrock(message, &mut reading),
        }
        .map_err(|problem| problem.at(index))?;
        Ok(reading)
    }

    /// Adds a call and the cost of its name and arguments.
    fn add_call(
        &mut self,
        reading: &mut Reading,
        id: Option<String>,
        name: Option<&Bound<'_, PyAny>>,
        arguments: Option<&Bound<'_, PyAny>>,
    ) -> Result<(), Problem> {
        let tool = if self.rules.tools.is_empty() { None } else { name.map(string).transpose()? };
        let meter = &self.rules.meter;
        reading.add(meter.call);
        reading.add(name.map(|name| meter.text(name)).transpose()?.unwrap_or_default());
        if let Some(arguments) = arguments {
            let tokens = meter.cost(arguments)?.tokens;
            reading.add(tokens);
            reading.add(meter.arguments(arguments));
            if self.rules.inputs {
                let clearing = tool.as_ref().map_or(Clearing::Ordinary, |tool| self.rule(tool));
                let note = self.rules.input_note;
                reading.parts.push(NewPart { tokens, note, clearing, text: false, result: false });
            }
        }
        if let Some(id) = id {
            if let Some(tool) = tool {
                self.tool_of_call.insert(id.clone(), tool);
            }
            reading.calls.push(id);
        }
        Ok(())
    }

    /// Adds a result and the cost of its content, which can be cleared.
    fn add_result(&mut self, reading: &mut Reading, id: Option<String>, tool: Option<String>, content: Cost) {
        let tool = tool.or_else(|| self.tool_of_call.get(id.as_ref()?).cloned());
        reading.add(self.rules.meter.result);
        reading.add(content.tokens);
        reading.parts.push(NewPart {
            tokens: content.tokens,
            note: self.rules.result_note + content.around_note,
            clearing: tool.map_or(Clearing::Ordinary, |tool| self.rule(&tool)),
            text: content.text,
            result: true,
        });
        reading.results.extend(id);
    }

    fn rule(&self, tool: &str) -> Clearing {
        self.rules.tools.get(tool).copied().unwrap_or(Clearing::Ordinary)
    }
}

/// Why a message cannot be read.
#[derive(Debug)]
enum Problem {
    /// In words, after "message N".
    Said(String),
    /// An error of the interpreter.
    Raised(PyErr),
}

impl Problem {
    fn at(self, index: usize) -> PyErr {
        match self {
            Self::Said(problem) => MessageError::new_err((index, problem)),
            Self::Raised(error) => error,
        }
    }
}

impl From<PyErr> for Problem {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

fn as_dict<'py>(message: &Bound<'py, PyAny>, index: usize) -> PyResult<Bound<'py, PyDict>> {
    let is_mapping = message.cast::<pyo3::types::PyMapping>().is_ok();
    if is_mapping {
        let dict = PyDict::new(message.py());
        dict.call_method1("update", (message,))?;
        return Ok(dict);
    }
    let hint = if message.hasattr("model_dump")? { "; pass its model_dump()" } else { "" };
    let problem = format!("is a {}, expected a mapping{hint}", message.get_type().name()?);
    Err(MessageError::new_err((index, problem)))
}

/// The value of a key, or nothing if it is absent or None.
fn get<'py>(dict: &Bound<'py, PyDict>, key: &Bound<'py, PyString>) -> Result<Option<Bound<'py, PyAny>>, Problem> {
    Ok(dict.get_item(key)?.filter(|value| !value.is_none()))
}

/// A key under either of two names.
fn either<'py>(
    dict: &Bound<'py, PyDict>,
    key: &Bound<'py, PyString>,
    other: &Bound<'py, PyString>,
) -> Result<Option<Bound<'py, PyAny>>, Problem> {
    Ok(match get(dict, key)? {
        Some(value) => Some(value),
        None => get(dict, other)?,
    })
}

fn dict<'a, 'py>(value: &'a Bound<'py, PyAny>, what: &str) -> Result<&'a Bound<'py, PyDict>, Problem> {
    value.cast::<PyDict>().map_err(|_| {
        let hint = if value.hasattr("model_dump").unwrap_or(false) { "; pass its model_dump()" } else { "" };
        Problem::Said(format!("has {what} of type {}, expected a mapping{hint}", type_name(value)))
    })
}

/// The elements of a list or tuple; nothing of None.
fn list<'py>(value: Option<&Bound<'py, PyAny>>, what: &str) -> Result<Vec<Bound<'py, PyAny>>, Problem> {
    let Some(value) = value else { return Ok(Vec::new()) };
    if let Ok(list) = value.cast::<PyList>() {
        return Ok(list.iter().collect());
    }
    match value.cast::<PyTuple>() {
        Ok(tuple) => Ok(tuple.iter().collect()),
        Err(_) => Err(Problem::Said(format!("has {what} of type {}, expected a list", type_name(value)))),
    }
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// A string for comparison; lone surrogates are replaced, other values written out.
fn string(value: &Bound<'_, PyAny>) -> Result<String, Problem> {
    match value.cast::<PyString>() {
        Ok(text) => Ok(text.to_string_lossy().into_owned()),
        Err(_) => Ok(value.str()?.to_string_lossy().into_owned()),
    }
}

/// The role, which must be there; without a copy where it is ASCII, as all known ones are.
fn with_role<R>(message: &Bound<'_, PyDict>, read: impl FnOnce(&str) -> R) -> Result<R, Problem> {
    let role = message.get_item(pyo3::intern!(message.py(), "role"))?;
    if let Some(Ok(text)) = role.as_ref().map(|role| role.cast::<PyString>())
        && !text.is_empty()?
    {
        return Ok(read(text.to_str().unwrap_or_default()));
    }
    let shown = role.map_or_else(|| Ok("None".to_owned()), |role| role.repr().map(|repr| repr.to_string()))?;
    Err(Problem::Said(format!("has role {shown}, expected a non-empty string")))
}
