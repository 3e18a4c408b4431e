//! A window as a plan: which messages, in which shape, without any text.

use crate::history::{History, Kind};

/// What stands in the place of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The part itself.
    Whole,
    /// A note.
    Cleared,
    /// Its head and tail within this many tokens.
    Cut(u32),
}

/// One element of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// A message of the history.
    Message(usize),
    /// The note that stands for what was removed.
    Note,
}

/// What to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The elements in their order.
    pub elements: Vec<Element>,
    /// The parts of the messages kept that are not whole, by their position among the history's parts.
    pub shapes: Vec<(usize, Shape)>,
    /// What the window costs, in tokens.
    pub tokens: u64,
    /// Where in `elements` it first differs from the window at the request point before; `None` if it extends it.
    pub changed: Option<usize>,
    /// The request points of the cuts so far.
    pub cuts: Vec<usize>,
}

/// The elements for the messages kept, in their order, and the note in its place if it has one.
pub(crate) fn elements(messages: impl Iterator<Item = usize>, note: Option<usize>) -> Vec<Element> {
    let mut elements: Vec<Element> = messages.map(Element::Message).collect();
    if let Some(place) = note {
        elements.insert(place.min(elements.len()), Element::Note);
    }
    elements
}

/// How many of the messages kept stand before the note: up to the first human message or, where that is not kept, the
/// system messages at the start.
pub(crate) fn note_place(history: &History, messages: &[usize]) -> usize {
    let behind_goal = messages.iter().position(|&message| Some(message) == history.goal).map(|at| at + 1);
    let is_system = |message: &&usize| history.kind(**message) == Some(Kind::System);
    behind_goal.unwrap_or_else(|| messages.iter().take_while(is_system).count())
}
