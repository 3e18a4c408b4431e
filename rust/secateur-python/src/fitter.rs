//! Binding of `secateur_core::{History, Automaton, ladder}`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyList;
use secateur_core::{
    Automaton, Clearing, Element, Entry, History, Kind, Margin, NewPart, Plan, Settings, Shape, ladder,
    media::MediaRule,
};

use crate::formats::{Format, Meter, Reader, Rules};
use crate::tokens::Estimator;

/// Elements (index of a message, -1 for the note), shapes (message, place of the part in it, tokens to which it is
/// cut or -1 if it is cleared), tokens, the request point at which the note was put in its place, first element that
/// differs from the last request point, how many cuts there were, tokens without the bound.
type PlainPlan = (Vec<i64>, Vec<(usize, usize, i64)>, u64, usize, Option<usize>, usize, u64);

/// Tokens of a message, and of each of its parts and the note for it.
type Counted = (u32, Vec<(u32, u32)>);

type Structure = (&'static str, bool, Vec<String>, Vec<String>);

/// A history and the automaton that fits it; see `secateur.fit` for what the settings mean.
#[pyclass(frozen, module = "secateur._core")]
pub(crate) struct Fitter {
    state: Mutex<State>,
    format: Format,
    rules: Rules,
    settings: Settings,
    published: bool,
}

struct State {
    tool_of_call: HashMap<String, String>,
    history: History,
    automaton: Automaton,
}

#[pymethods]
impl Fitter {
    #[new]
    #[pyo3(signature = (
        format, budget, *, low_water, batch, keep_share, min_saving, min_cleared, keep_results, keep_last, note, note_without_goal,
        result_note, input_note, smallest_cut, pending, lead, divide, clear_inputs, tools, published, estimator=None, model="",
        frame=(4, 0, 0, 0)
    ))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // Keywords, named by the Python layer.
    fn new(
        format: &str,
        budget: u64,
        low_water: f64,
        batch: usize,
        keep_share: f64,
        min_saving: Option<u32>,
        min_cleared: u64,
        keep_results: usize,
        keep_last: usize,
        note: u32,
        note_without_goal: u32,
        result_note: u32,
        input_note: u32,
        smallest_cut: u32,
        pending: bool,
        lead: bool,
        divide: bool,
        clear_inputs: bool,
        tools: HashMap<String, String>,
        published: bool,
        estimator: Option<&Estimator>,
        model: &str,
        frame: (u32, u32, u32, u32),
    ) -> PyResult<Self> {
        let settings = Settings {
            low_water,
            batch,
            keep_share,
            min_saving,
            min_cleared,
            keep_results,
            keep_last,
            note,
            note_without_goal,
            smallest_cut,
            pending,
            lead,
            divide,
            margin: estimator.map_or_else(Margin::default, |estimator| estimator.core.margin()),
        };
        let (message, call, argument, result) = frame;
        let meter = Meter {
            estimator: estimator.map(|estimator| (estimator.core.clone(), Arc::clone(&estimator.memory))),
            media: MediaRule::of_model(model),
            message,
            call,
            argument,
            result,
        };
        let clearing = |rule: &str| match rule {
            "never" => Ok(Clearing::Never),
            "first" => Ok(Clearing::First),
            _ => Err(PyValueError::new_err(format!("no rule {rule:?}"))),
        };
        let tools = tools.into_iter().map(|(tool, rule)| Ok((tool, clearing(&rule)?))).collect::<PyResult<_>>()?;
        let rules = Rules { meter, tools, inputs: clear_inputs, result_note, input_note };
        let state = State {
            tool_of_call: HashMap::new(),
            history: History::new(),
            automaton: Automaton::new(settings.clone(), budget),
        };
        Ok(Self { state: Mutex::new(state), format: Format::named(format)?, rules, settings, published })
    }

    /// Append messages; all are appended or, on an error, none.
    ///
    /// Args:
    ///     messages: In the wire format named at the start.
    ///     pinned: Indices of messages never to be cleared or removed, within the whole history, rising.
    ///     counts: Tokens of each message, and of each of its parts and the note for it, where a counter counted them.
    #[pyo3(signature = (messages, pinned, counts=None))]
    #[allow(clippy::needless_pass_by_value)] // Lists of numbers arrive as vectors of their own.
    fn extend(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyList>,
        pinned: Vec<usize>,
        counts: Option<Vec<Counted>>,
    ) -> PyResult<()> {
        let (first, known) = {
            let mut state = self.lock(py);
            (state.history.len(), std::mem::take(&mut state.tool_of_call))
        };
        // Unlocked: reading may run Python code, which may come back here.
        let mut reader = Reader::new(self.format, &self.rules, known);
        let mut readings = Vec::with_capacity(messages.len());
        let read: PyResult<()> = messages.iter().enumerate().try_for_each(|(index, message)| {
            readings.push(reader.read(&message, first + index)?);
            Ok(())
        });
        let mut state = self.lock(py);
        state.tool_of_call.extend(reader.tool_of_call);
        let history = &mut state.history;
        read?;
        let mut counts = counts.into_iter().flatten();
        for (index, mut reading) in readings.into_iter().enumerate() {
            if let Some((tokens, parts)) = counts.next() {
                reading.tokens = tokens;
                let paired = reading.parts.into_iter().zip(parts);
                reading.parts = paired.map(|(part, (tokens, note))| NewPart { tokens, note, ..part }).collect();
            }
            history.push(Entry {
                kind: reading.kind,
                continues: reading.continues,
                pinned: reading.pinned || pinned.binary_search(&(first + index)).is_ok(),
                tokens: reading.tokens,
                calls: reading.calls,
                results: reading.results,
                parts: &reading.parts,
            });
        }
        Ok(())
    }

    /// Set the budget, in tokens, for request points from a message on.
    fn set_budget(&self, py: Python<'_>, start: usize, budget: u64) {
        self.lock(py).automaton.set_budget(start, budget);
    }

    /// The window to send now, as if a request were sent after the newest message.
    fn plan(&self, py: Python<'_>) -> PlainPlan {
        py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let State { history, automaton, .. } = &mut *state;
            let here = history.len();
            if self.published {
                return plain(history, &ladder(history, &self.settings, automaton.budget_at(here)));
            }
            automaton.advance(history);
            plain(history, &automaton.window(history))
        })
    }

    /// The request points of the cuts that the walk has made.
    fn cuts(&self, py: Python<'_>) -> Vec<usize> {
        self.lock(py).automaton.cuts().to_vec()
    }

    /// What must be sent, in tokens: the pinned messages, and the newest round or message.
    fn floor(&self, py: Python<'_>) -> (u64, u64) {
        self.lock(py).history.floor()
    }

    /// Tokens of each message, whole.
    fn tokens(&self, py: Python<'_>) -> Vec<u32> {
        let state = self.lock(py);
        (0..state.history.len()).filter_map(|message| state.history.tokens_of(message)).collect()
    }

    /// The parts of each message that can be cleared: (tokens, tokens of the note, whether it is a result).
    fn parts(&self, py: Python<'_>) -> Vec<Vec<(u32, u32, bool)>> {
        let state = self.lock(py);
        let mut parts = vec![Vec::new(); state.history.len()];
        for part in state.history.parts() {
            if let Some(of_message) = parts.get_mut(part.message) {
                of_message.push((part.tokens, part.note, part.result));
            }
        }
        parts
    }

    /// Calls without their result and results without their call: (message, id of the call, whether it is a result).
    fn faults(&self, py: Python<'_>, pending: bool) -> Vec<(usize, String, bool)> {
        let state = self.lock(py);
        let faults = state.history.faults(pending);
        faults.into_iter().map(|fault| (fault.message, fault.call, fault.is_result)).collect()
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.lock(py).history.len()
    }
}

impl Fitter {
    /// Waits without the interpreter, so that a thread which holds the lock can go on.
    fn lock<'a>(&'a self, py: Python<'a>) -> MutexGuard<'a, State> {
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

/// What messages are: (kind, whether it continues the output before it, calls, results).
#[pyfunction]
pub(crate) fn read_structure(format: &str, messages: &Bound<'_, PyList>) -> PyResult<Vec<Structure>> {
    let rules = Rules::default();
    let mut reader = Reader::new(Format::named(format)?, &rules, HashMap::new());
    let described = messages.iter().enumerate().map(|(index, message)| {
        let reading = reader.read(&message, index)?;
        let kind = match reading.kind {
            Kind::System => "system",
            Kind::Human => "human",
            Kind::Assistant => "assistant",
            Kind::Result => "result",
            Kind::Other => "other",
        };
        Ok((kind, reading.continues, reading.calls, reading.results))
    });
    described.collect()
}

fn plain(history: &History, plan: &Plan) -> PlainPlan {
    let elements = plan.elements.iter().map(|element| match element {
        // A message is an index into memory, so that it fits int64.
        #[allow(clippy::cast_possible_wrap)]
        Element::Message(message) => *message as i64,
        Element::Note => -1,
    });
    let shapes = plan.shapes.iter().filter_map(|&(index, shape)| {
        let part = history.parts().get(index)?;
        let tokens = match shape {
            Shape::Whole => return None,
            Shape::Cleared => -1,
            Shape::Cut(tokens) => i64::from(tokens),
        };
        Some((part.message, part.place, tokens))
    });
    (elements.collect(), shapes.collect(), plan.tokens, plan.note_point, plan.changed, plan.cuts, plan.estimate)
}
