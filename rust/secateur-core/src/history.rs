//! The history as columns: what a message is, what it costs, what belongs together.
//!
//! Append-only. Invariants: units and turns begin at strictly rising messages, the first of each at message 0; the
//! parts are ordered by message.

use std::collections::{HashMap, HashSet};

/// What a message is to the fitting, whatever its wire format calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// System and developer messages.
    System,
    /// A message of the human.
    Human,
    /// Output of the model, with or without calls.
    Assistant,
    /// Results of calls, and nothing that stands without them.
    Result,
    /// Anything else; kept and removed like a message of the model, but no request was sent before it.
    Other,
}

/// What a rule of the policy says of clearing a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clearing {
    /// In its turn, oldest first.
    Ordinary,
    /// Before all ordinary ones.
    First,
    /// Not at all.
    Never,
}

/// A stretch of a message that can be replaced by a note: the content of a result, or the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The message that holds it.
    pub message: usize,
    /// Its place among the parts of its message.
    pub place: usize,
    /// What it costs, in tokens.
    pub tokens: u32,
    /// What the note in its place costs, in tokens.
    pub note: u32,
    /// What the policy says of it.
    pub clearing: Clearing,
    /// Whether it is text whose middle can be cut out: the content of a result, without images.
    pub text: bool,
    /// Whether it is a result (and not the arguments of a call).
    pub result: bool,
}

/// A part before it is appended: without its message and place.
#[derive(Debug, Clone, Copy)]
pub struct NewPart {
    /// See [`Part::tokens`].
    pub tokens: u32,
    /// See [`Part::note`].
    pub note: u32,
    /// See [`Part::clearing`].
    pub clearing: Clearing,
    /// See [`Part::text`].
    pub text: bool,
    /// See [`Part::result`].
    pub result: bool,
}

/// A message to append.
#[derive(Debug)]
pub struct Entry<'a> {
    /// What it is.
    pub kind: Kind,
    /// Whether it belongs to the same output of the model as the message before it.
    pub continues: bool,
    /// Never cleared, never removed.
    pub pinned: bool,
    /// What it costs whole, in tokens.
    pub tokens: u32,
    /// Ids of the calls that it makes; a call that is answered within the message is not named.
    pub calls: Vec<String>,
    /// Ids of the calls that it answers; empty for one that it does not name.
    pub results: Vec<String>,
    /// What of it can be cleared.
    pub parts: &'a [NewPart],
}

/// A structural fault of the history as it was given, which a provider would refuse.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The message at fault.
    pub message: usize,
    /// The id of the call.
    pub call: String,
    /// True for a result whose call does not stand directly before it, false for a call without its result.
    pub is_result: bool,
}

/// One message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) pinned: bool,
    pub(crate) tokens: u32,
    /// Whether a request was sent just before it.
    pub(crate) request: bool,
    /// How many parts stand before its own.
    pub(crate) first_part: usize,
}

/// The columns of a history.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub(crate) rows: Vec<Row>,
    pub(crate) parts: Vec<Part>,
    /// First messages of units: what is kept or removed together.
    pub(crate) units: Vec<usize>,
    /// First messages of turns: each human message, and message 0.
    pub(crate) turns: Vec<usize>,
    /// The first human message.
    pub(crate) goal: Option<usize>,
    /// Calls whose unit ended without their result.
    pub(crate) dangling: Vec<Dangling>,
    /// Where in `dangling` the calls of a message are, and which messages answered one after all.
    pub(crate) dangling_of: HashMap<usize, Vec<usize>>,
    pub(crate) late_answers: HashSet<usize>,
    /// Calls of the newest unit that wait for their result.
    open: Vec<(String, usize)>,
    /// Where in `dangling` the calls are that are still without a result.
    unanswered: HashMap<String, usize>,
    /// Results without a call before them: message and id.
    orphans: Vec<(usize, String)>,
}

/// A call whose unit ended without its result.
#[derive(Debug, Clone)]
pub(crate) struct Dangling {
    call: String,
    /// The message that makes it.
    pub(crate) message: usize,
    /// The message that answered it after all.
    pub(crate) answer: Option<usize>,
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many messages there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What the whole history costs, in tokens.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.tokens)).sum()
    }

    /// What one message costs whole.
    #[must_use]
    pub fn tokens_of(&self, message: usize) -> Option<u32> {
        self.rows.get(message).map(|row| row.tokens)
    }

    /// What a message is.
    #[must_use]
    pub fn kind(&self, message: usize) -> Option<Kind> {
        self.rows.get(message).map(|row| row.kind)
    }

    /// What must be sent, in tokens: the pinned messages, and the newest unit without what is pinned in it.
    #[must_use]
    pub fn floor(&self) -> (u64, u64) {
        let newest = self.units.last().copied().unwrap_or_default();
        let cost = |row: &Row| u64::from(row.tokens);
        let pinned = self.rows.iter().filter(|row| row.pinned).map(cost).sum();
        let rest = self.rows.iter().skip(newest).filter(|row| !row.pinned).map(cost).sum();
        (pinned, rest)
    }

    /// The parts that can be cleared, by message.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Appends a message.
    pub fn push(&mut self, entry: Entry<'_>) {
        let message = self.rows.len();
        let previous = self.rows.last().map(|row| row.kind);
        let joins = match entry.kind {
            Kind::Result => matches!(previous, Some(Kind::Assistant | Kind::Result)),
            Kind::Assistant => entry.continues && previous == Some(Kind::Assistant),
            Kind::System | Kind::Human | Kind::Other => false,
        };
        if !joins {
            self.units.push(message);
            for (call, message) in self.open.drain(..) {
                self.unanswered.insert(call.clone(), self.dangling.len());
                self.dangling_of.entry(message).or_default().push(self.dangling.len());
                self.dangling.push(Dangling { call, message, answer: None });
            }
        }
        if message == 0 || entry.kind == Kind::Human {
            self.turns.push(message);
        }
        let goal = entry.kind == Kind::Human && self.goal.is_none();
        if goal {
            self.goal = Some(message);
        }
        for call in entry.results {
            if call.is_empty() {
                // A result that names no call answers the first that is open, or is plain text.
                self.open.drain(..self.open.len().min(1));
            } else if let Some(found) = self.open.iter().position(|(id, _)| *id == call) {
                self.open.swap_remove(found);
            } else if let Some(late) = self.unanswered.remove(&call).and_then(|at| self.dangling.get_mut(at)) {
                late.answer = Some(message);
                self.late_answers.insert(message);
            } else {
                self.orphans.push((message, call));
            }
        }
        self.open.extend(entry.calls.into_iter().map(|call| (call, message)));
        let unit = self.units.last().copied().unwrap_or_default();
        let of_round = matches!(entry.kind, Kind::Assistant | Kind::Result);
        let with_unit = joins && self.rows.get(unit).is_some_and(|row| row.pinned);
        if joins && entry.pinned && !with_unit {
            // A round is pinned whole: half of it would be refused.
            self.rows.iter_mut().skip(unit).for_each(|row| row.pinned = true);
        }
        self.rows.push(Row {
            kind: entry.kind,
            pinned: entry.pinned || goal || entry.kind == Kind::System || (of_round && with_unit),
            tokens: entry.tokens,
            request: message > 0 && entry.kind == Kind::Assistant && !joins,
            first_part: self.parts.len(),
        });
        self.parts.extend(entry.parts.iter().enumerate().map(|(place, part)| Part {
            message,
            place,
            tokens: part.tokens,
            note: part.note,
            clearing: part.clearing,
            text: part.text,
            result: part.result,
        }));
    }

    /// What a provider would refuse in the history as it stands, by message.
    ///
    /// With `pending`, calls may still wait for their results.
    #[must_use]
    pub fn faults(&self, pending: bool) -> Vec<Fault> {
        let unanswered = |message: usize, call: &String| Fault { message, call: call.clone(), is_result: false };
        let orphan = |message: usize, call: &String| Fault { message, call: call.clone(), is_result: true };
        let mut faults: Vec<Fault> = self.orphans.iter().map(|(message, call)| orphan(*message, call)).collect();
        for call in &self.dangling {
            faults.extend(call.answer.map(|answer| orphan(answer, &call.call)));
            if call.answer.is_some() || !pending {
                faults.push(unanswered(call.message, &call.call));
            }
        }
        if !pending {
            faults.extend(self.open.iter().map(|(call, message)| unanswered(*message, call)));
        }
        faults.sort();
        faults
    }

    /// The first message of a unit, or the end of the history if there is no such unit.
    pub(crate) fn unit_start(&self, unit: usize) -> usize {
        self.units.get(unit).copied().unwrap_or(self.rows.len())
    }

    /// The end of a unit: the start of the next, or the end of the history.
    pub(crate) fn unit_end(&self, unit: usize) -> usize {
        self.unit_start(unit + 1)
    }

    /// The parts of a message.
    pub(crate) fn parts_of(&self, message: usize) -> std::ops::Range<usize> {
        let first = self.rows.get(message).map_or(self.parts.len(), |row| row.first_part);
        let end = self.rows.get(message + 1).map_or(self.parts.len(), |row| row.first_part);
        first..end
    }

    /// The human message that begins a turn, if one does.
    pub(crate) fn prompt(&self, turn_start: usize) -> std::ops::Range<usize> {
        turn_start..turn_start + usize::from(self.kind(turn_start) == Some(Kind::Human))
    }
}
