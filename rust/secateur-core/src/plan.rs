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
    /// A bound on what the window costs, in tokens.
    pub tokens: u64,
    /// What it is estimated to cost, in tokens.
    pub estimate: u64,
    /// The request point at which the note was put into its place: it knows the history up to there.
    pub note_point: usize,
    /// Where in `elements` it first differs from the window at the request point before; `None` if it extends it.
    pub changed: Option<usize>,
    /// How many cuts there were so far, one here included.
    pub cuts: usize,
}

/// The elements for the messages kept, in their order, and the note in its place if it has one.
pub(crate) fn elements(messages: impl Iterator<Item = usize>, note: Option<usize>) -> Vec<Element> {
    let mut elements: Vec<Element> = messages.map(Element::Message).collect();
    if let Some(place) = note {
        elements.insert(place.min(elements.len()), Element::Note);
    }
    elements
}

/// How many of the messages kept stand before the note: all up to the first human message or, where a window must
/// begin with one and does not, the system messages.
pub(crate) fn note_place(history: &History, messages: &[usize], lead: bool) -> usize {
    if lead && leads(history, messages) {
        return messages.iter().take_while(|&&message| history.kind(message) == Some(Kind::System)).count();
    }
    messages.iter().position(|&message| Some(message) == history.goal).map_or(0, |at| at + 1)
}

/// Whether the messages kept begin with another than the human's, system messages aside.
pub(crate) fn leads(history: &History, messages: &[usize]) -> bool {
    let spoken = messages.iter().map(|&message| history.kind(message)).find(|&kind| kind != Some(Kind::System));
    spoken != Some(Some(Kind::Human))
}
