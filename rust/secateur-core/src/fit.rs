//! Fitting a history into a budget: an automaton that walks from request point to request point.
//!
//! Its state changes at cuts only, so that the window at one request point extends the window at the one before
//! unless there was a cut between. It depends on the history and the settings alone: run again from the start it
//! does the same, which is what makes a stateless call stable.

// Every index comes from the columns of the history, which the automaton follows message by message.
#![allow(clippy::indexing_slicing)]

use std::ops::Range;

use crate::estimate::Margin;
use crate::estimator::square;
use crate::history::{Clearing, History};
use crate::plan::{Element, Plan, Shape, elements, leads, note_place};

/// A turn is removed at once only if at least this share of the low-water mark is left; a larger one is shortened
/// round by round, so that a new prompt after a long turn does not wipe out all the work of that turn.
const TURN_LEAVES: f64 = 0.5;
/// How often a cut goes on until the bound is met: each time by less, so that few are needed.
const MOST_CUTS: usize = 8;

/// How to cut.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Share of the budget to which a cut goes down.
    pub low_water: f64,
    /// How many parts are cleared at a time.
    pub batch: usize,
    /// The newest results stay whole up to this share of the budget.
    pub keep_share: f64,
    /// Tokens that clearing a part must save; `None` for more than its note costs.
    pub min_saving: Option<u32>,
    /// Tokens that clearing must save at a cut, if there is as much to clear.
    pub min_cleared: u64,
    /// How many of the newest clearable results before the newest unit stay whole, whatever their size.
    pub keep_results: usize,
    /// How many of the newest messages are neither cleared nor removed.
    pub keep_last: usize,
    /// What the note that stands for what was removed costs, in tokens; 0 for no note.
    pub note: u32,
    /// What it costs where the first human message is not known yet, which it repeats.
    pub note_without_goal: u32,
    /// To how many tokens the text of a newest result may be cut where nothing else helps.
    pub smallest_cut: u32,
    /// Whether calls may wait for their results over several turns; they are kept until then.
    pub pending: bool,
    /// Whether a window must begin with a human message; where none is at its beginning the note takes the place.
    pub lead: bool,
    /// Whether the note is never given up, because it keeps two messages of one role apart.
    pub divide: bool,
    /// By how much the counts may be too low; budgets hold for the bound.
    pub margin: Margin,
}

/// The walk over a growing history.
#[derive(Debug, Clone)]
pub struct Automaton {
    settings: Settings,
    /// Budgets in tokens, each from a message on, rising; the first from message 0.
    budgets: Vec<(usize, u64)>,
    total: u64,
    /// The sum of the squares of [`Margin::bound`] over the messages of the window.
    squares: f64,
    /// What each message costs as it is sent now.
    costs: Vec<u32>,
    shapes: Vec<Shape>,
    /// For parts to be cleared first, and for ordinary ones: all before this are decided.
    next: [usize; 2],
    /// The unit with which the kept messages begin. Of what stands before, `pinned`, `prompt` and `islands` stay.
    first_unit: usize,
    pinned: Vec<usize>,
    /// The human message of the turn whose first rounds were removed.
    prompt: Range<usize>,
    /// Units with a call that waits for its result, or that was answered by a message still kept.
    islands: Vec<usize>,
    /// What the note costs that stands in the window; 0 if none does.
    note: u32,
    /// How many elements stand before the note; found at a cut and kept until the next.
    note_place: usize,
    /// The request point at which the note was put there.
    note_point: usize,
    cuts: Vec<usize>,
    /// The newest request point.
    point: usize,
    /// Where the window there first differs from the one at the request point before.
    changed: Option<usize>,
    /// The first message that the cut under way has cleared or cut.
    reshaped: Option<usize>,
}

impl Automaton {
    /// An automaton before the first message.
    #[must_use]
    pub fn new(settings: Settings, budget: u64) -> Self {
        Self {
            settings,
            budgets: vec![(0, budget)],
            total: 0,
            squares: 0.0,
            costs: Vec::new(),
            shapes: Vec::new(),
            next: [0; 2],
            first_unit: 0,
            pinned: Vec::new(),
            prompt: 0..0,
            islands: Vec::new(),
            note: 0,
            note_place: 0,
            note_point: 0,
            cuts: Vec::new(),
            point: 0,
            changed: None,
            reshaped: None,
        }
    }

    /// Sets the budget for request points from a message on; earlier cuts stay as they are.
    pub fn set_budget(&mut self, from: usize, budget: u64) {
        self.budgets.retain(|&(start, _)| start < from);
        self.budgets.push((from, budget));
    }

    /// The request points of the cuts so far.
    #[must_use]
    pub fn cuts(&self) -> &[usize] {
        &self.cuts
    }

    /// The budget at a request point.
    #[must_use]
    pub fn budget_at(&self, message: usize) -> u64 {
        let after = self.budgets.partition_point(|&(start, _)| start <= message);
        after.checked_sub(1).map_or(0, |at| self.budgets[at].1)
    }

    /// Walks over the messages that were appended since, cutting at their request points.
    pub fn advance(&mut self, history: &History) {
        for message in self.costs.len()..history.len() {
            let row = &history.rows[message];
            if row.request {
                self.settle(history);
            }
            self.total += u64::from(row.tokens);
            self.squares += square(row.tokens.into());
            self.costs.push(row.tokens);
            self.shapes.resize(history.parts_of(message).end, Shape::Whole);
        }
    }

    /// Makes the place after the newest message a request point: cuts if the window is over the budget.
    pub fn settle(&mut self, history: &History) {
        let here = self.costs.len();
        let before = std::mem::replace(&mut self.point, here);
        self.changed = None;
        let budget = self.budget_at(here);
        if self.bound() > budget && here > 0 {
            let mut sent = self.elements(history);
            sent.retain(|element| !matches!(element, Element::Message(message) if *message >= before));
            self.reshaped = None;
            let noted = self.note > 0;
            self.cut_to_bound(history, budget);
            self.note_place = note_place(history, &self.messages(history), self.settings.lead);
            self.note_point = here;
            self.changed = self.difference(history, if before == 0 { &[] } else { &sent });
            if self.settings.divide && before > 0 && noted != (self.note > 0) {
                // Where roles must alternate the note is joined to the message before it.
                let joined = self.note_place.saturating_sub(1);
                self.changed = Some(self.changed.map_or(joined, |first| first.min(joined)));
            }
            if self.changed.is_some() {
                self.cuts.push(here);
            }
        }
    }

    /// Where the window differs from one that was sent before the cut; `None` if it extends that.
    fn difference(&self, history: &History, sent: &[Element]) -> Option<usize> {
        let now = self.elements(history);
        let moved = sent.iter().zip(&now).position(|(a, b)| a != b);
        let moved = moved.or_else(|| (now.len() < sent.len()).then_some(now.len()));
        let reshaped =
            |element: &Element| matches!(element, Element::Message(message) if Some(*message) == self.reshaped);
        moved.into_iter().chain(sent.iter().position(reshaped)).min()
    }

    /// A bound on what the window costs.
    fn bound(&self) -> u64 {
        self.settings.margin.bound(self.total, self.squares)
    }

    /// Cuts until the bound is within the budget, or nothing more can be cut.
    fn cut_to_bound(&mut self, history: &History, budget: u64) {
        // What is left has fewer messages, whose errors average out less: the first cut may not be enough.
        for _ in 0..MOST_CUTS {
            let bound = self.bound();
            if bound <= budget {
                break;
            }
            let room = u128::from(self.total) * u128::from(budget) / u128::from(bound);
            self.cut(history, room as u64);
            self.squares = self.messages(history).iter().map(|&message| square(self.costs[message].into())).sum();
        }
    }

    fn cut(&mut self, history: &History, budget: u64) {
        let here = self.costs.len();
        let low = share(budget, self.settings.low_water);
        let newest = unit_of(history, here - 1);
        let keep = newest.min(unit_of(history, here.saturating_sub(self.settings.keep_last.max(1))));
        self.clear(history, budget, low, history.units[keep]);
        self.remove(history, low, keep);
        if self.total > budget {
            self.squeeze(history, budget, low, history.units[newest]);
        }
    }

    /// Puts the note in, with the goal if there is one by now, or takes it out.
    fn set_note(&mut self, history: &History, noted: bool) {
        let knows_goal = history.goal.is_some_and(|goal| goal < self.costs.len());
        let note = match (noted, knows_goal) {
            (true, true) => self.settings.note,
            (true, false) if self.settings.lead => self.settings.note_without_goal,
            // Without a goal it has no place, unless a window must begin with it.
            _ => 0,
        };
        self.total = self.total - u64::from(self.note) + u64::from(note);
        self.note = note;
    }

    /// Step 1: clears parts, oldest first, in batches, down to the low-water mark.
    fn clear(&mut self, history: &History, budget: u64, low: u64, keep_from: usize) {
        let protected = self.first_protected(history, budget, keep_from);
        let (mut cleared, mut saved) = (0, 0);
        for (queue, clearing) in [(0, Clearing::First), (1, Clearing::Ordinary)] {
            for index in self.next[queue]..protected {
                if history.parts[index].clearing == clearing && self.is_clearable(history, index) {
                    let enough = self.total <= low && saved >= self.settings.min_cleared;
                    if enough && cleared % self.settings.batch.max(1) == 0 {
                        return;
                    }
                    saved += u64::from(self.part_cost(history, index) - history.parts[index].note);
                    cleared += 1;
                    self.reshape(history, index, Shape::Cleared);
                }
                self.next[queue] = index + 1;
            }
        }
    }

    /// The first part of the newest ones that stay whole: those of the messages kept, then results as far as they fit
    /// into their share of the budget, at least one.
    fn first_protected(&self, history: &History, budget: u64, keep_from: usize) -> usize {
        let mut first = self.shapes.len();
        let mut left = share(budget, self.settings.keep_share);
        let (mut kept, mut slots) = (0, self.settings.keep_results);
        for index in (0..self.shapes.len()).rev() {
            let part = &history.parts[index];
            if part.message < history.units[self.first_unit] {
                break;
            }
            if !part.result && part.message < keep_from {
                continue;
            }
            let tokens = u64::from(self.part_cost(history, index));
            let given = part.message >= keep_from;
            let slot = !given && slots > 0 && self.is_clearable(history, index);
            if !given && self.shapes[index] == Shape::Cleared {
                continue;
            }
            if !given && !slot && kept > 0 && tokens > left {
                break;
            }
            slots -= usize::from(slot);
            kept += usize::from(part.result);
            left = left.saturating_sub(tokens);
            first = index;
        }
        first
    }

    fn is_clearable(&self, history: &History, index: usize) -> bool {
        let part = &history.parts[index];
        let tokens = self.part_cost(history, index);
        part.clearing != Clearing::Never
            && self.shapes[index] != Shape::Cleared
            && !history.rows[part.message].pinned
            && part.message >= history.units[self.first_unit]
            && tokens.saturating_sub(part.note) > self.settings.min_saving.map_or(part.note, |saving| saving.max(1) - 1)
    }

    fn part_cost(&self, history: &History, index: usize) -> u32 {
        let part = &history.parts[index];
        match self.shapes[index] {
            Shape::Whole => part.tokens,
            Shape::Cleared => part.note,
            Shape::Cut(tokens) => tokens,
        }
    }

    fn reshape(&mut self, history: &History, index: usize, shape: Shape) {
        let before = self.part_cost(history, index);
        self.shapes[index] = shape;
        let after = self.part_cost(history, index);
        let message = history.parts[index].message;
        self.costs[message] = self.costs[message] - before + after;
        self.total = self.total - u64::from(before) + u64::from(after);
        self.reshaped = Some(self.reshaped.map_or(message, |first| first.min(message)));
    }

    /// Steps 2 and 3: removes oldest turns, and oldest rounds of the turn that is left, down to the low-water mark.
    fn remove(&mut self, history: &History, low: u64, keep: usize) {
        while self.total > low && self.first_unit < keep {
            let start = history.units[self.first_unit];
            let turn = history.turns.partition_point(|&first| first <= start) - 1;
            let next = history.turns.get(turn + 1).copied().filter(|&first| first <= history.units[keep]);
            let (whole, end) = (next.is_some(), next.map_or(keep, |first| unit_of(history, first)));
            if whole && self.total - self.turn_cost(history, end) >= share(low, TURN_LEAVES) {
                self.remove_units(history, end, 0);
                self.remove_prompt(history);
                continue;
            }
            if history.prompt(history.turns[turn]).contains(&start) {
                // The prompt of the turn stays while its rounds go.
                self.pinned.extend(Some(start).filter(|&message| history.rows[message].pinned));
                self.prompt = start..start + 1;
                self.first_unit += 1;
            }
            self.remove_units(history, end, low);
            if self.first_unit == end && whole {
                self.remove_prompt(history);
            }
            if self.first_unit < end {
                break;
            }
        }
    }

    /// What removing the kept units before `end`, and the prompt of their turn, would save.
    fn turn_cost(&self, history: &History, end: usize) -> u64 {
        let kept = history.units[self.first_unit]..history.units[end];
        self.prompt.clone().chain(kept).map(|message| self.removable(history, message)).sum()
    }

    fn removable(&self, history: &History, message: usize) -> u64 {
        if history.rows[message].pinned { 0 } else { u64::from(self.costs[message]) }
    }

    /// Removes units up to `end`, until no more than `enough` tokens are left.
    fn remove_units(&mut self, history: &History, end: usize, enough: u64) {
        while self.first_unit < end && self.total > enough {
            let unit = self.first_unit;
            self.first_unit += 1;
            let messages = history.units[unit]..history.unit_end(unit);
            self.pinned.extend(messages.clone().filter(|&message| history.rows[message].pinned));
            if self.is_island(history, &messages) {
                self.islands.push(unit);
            } else {
                let removed = messages.clone().map(|message| self.removable(history, message)).sum::<u64>();
                self.total -= removed;
                if removed > 0 {
                    self.set_note(history, true);
                }
            }
            if messages.clone().any(|message| history.late_answers.contains(&message)) {
                self.sink_islands(history);
            }
        }
    }

    fn remove_prompt(&mut self, history: &History) {
        let prompt = std::mem::take(&mut self.prompt);
        self.total -= prompt.map(|message| self.removable(history, message)).sum::<u64>();
    }

    /// Whether a call in these messages must stay for the sake of its result.
    fn is_island(&self, history: &History, messages: &Range<usize>) -> bool {
        let (here, kept) = (self.costs.len(), history.unit_start(self.first_unit));
        let of_message = |message: usize| history.dangling_of.get(&message).into_iter().flatten();
        messages.clone().flat_map(of_message).map(|&at| &history.dangling[at]).any(|call| {
            let answer = call.answer.filter(|&answer| answer < here);
            answer.map_or(self.settings.pending, |answer| answer >= kept || self.on_island(history, answer))
        })
    }

    fn on_island(&self, history: &History, message: usize) -> bool {
        self.islands.iter().any(|&unit| (history.units[unit]..history.unit_end(unit)).contains(&message))
    }

    /// Removes the islands whose results have been removed.
    fn sink_islands(&mut self, history: &History) {
        // From the newest on: an older one may be answered on a newer one.
        for unit in std::mem::take(&mut self.islands).into_iter().rev() {
            let messages = history.units[unit]..history.unit_end(unit);
            if self.is_island(history, &messages) {
                self.islands.push(unit);
            } else {
                self.total -= messages.map(|message| self.removable(history, message)).sum::<u64>();
            }
        }
        self.islands.reverse();
    }

    /// The last resort: cuts the middle out of the newest results; if that is not enough, gives up the note, then the
    /// prompt of the turn.
    fn squeeze(&mut self, history: &History, budget: u64, low: u64, newest: usize) {
        let smallest = self.settings.smallest_cut;
        let results: Vec<usize> = (history.parts_of(newest).start..self.shapes.len())
            .filter(|&index| history.parts[index].text && !history.rows[history.parts[index].message].pinned)
            .filter(|&index| self.part_cost(history, index) > smallest)
            .collect();
        let mut sizes: Vec<u32> = results.iter().map(|&index| self.part_cost(history, index)).collect();
        sizes.sort_unstable();
        let whole: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
        let least = u64::from(smallest) * results.len() as u64;
        let needed = self.settings.divide || (self.settings.lead && leads(history, &self.messages(history)));
        if self.total - whole + least > budget && !needed {
            self.set_note(history, false);
        }
        if self.total - whole + least > budget && self.prompt.end <= newest {
            self.remove_prompt(history);
        }
        if self.total <= budget {
            return;
        }
        let rest = self.total - whole;
        let room = budget.saturating_sub(rest);
        let wanted = low.saturating_sub(rest).max(share(budget, self.settings.keep_share)).min(room);
        let level = level(&sizes, wanted).max(smallest);
        for index in results {
            if self.part_cost(history, index) > level {
                self.reshape(history, index, Shape::Cut(level));
            }
        }
    }

    /// The window for a request after the newest message. Whether there is one shows with the next message, so that
    /// the walk itself does not cut yet.
    #[must_use]
    pub fn window(&self, history: &History) -> Plan {
        if self.bound() <= self.budget_at(self.costs.len()) {
            return Plan { changed: None, ..self.plan(history) };
        }
        let mut here = self.clone();
        here.settle(history);
        here.plan(history)
    }

    /// The window as it is now.
    #[must_use]
    pub fn plan(&self, history: &History) -> Plan {
        let start = history.unit_start(self.first_unit);
        let early = self.early(history);
        let parts = early.iter().flat_map(|&message| history.parts_of(message));
        let shapes = parts
            .chain(history.parts_of(start).start..self.shapes.len())
            .map(|index| (index, self.shapes[index]))
            .filter(|&(_, shape)| shape != Shape::Whole)
            .collect();
        Plan {
            elements: self.elements(history),
            shapes,
            tokens: self.bound(),
            estimate: self.total,
            note_point: self.note_point,
            changed: self.changed,
            cuts: self.cuts.len(),
        }
    }

    fn elements(&self, history: &History) -> Vec<Element> {
        elements(self.messages(history).into_iter(), (self.note > 0).then_some(self.note_place))
    }

    fn messages(&self, history: &History) -> Vec<usize> {
        let mut messages = self.early(history);
        messages.extend(history.unit_start(self.first_unit)..self.costs.len());
        messages
    }

    /// The messages kept before the first unit, in their order.
    fn early(&self, history: &History) -> Vec<usize> {
        let islands = self.islands.iter().flat_map(|&unit| history.units[unit]..history.unit_end(unit));
        let mut early: Vec<usize> = self.pinned.iter().copied().chain(self.prompt.clone()).chain(islands).collect();
        early.sort_unstable();
        early.dedup();
        early
    }
}

/// A share of a number of tokens, rounded down.
pub(crate) fn share(tokens: u64, share: f64) -> u64 {
    // Budgets are far below 2^53, so that the product is exact to a token.
    #[allow(clippy::cast_sign_loss)]
    let part = (tokens as f64 * share) as u64;
    part
}

/// The highest level to which sizes (ascending) can be cut so that their sum stays within `room`.
fn level(sizes: &[u32], room: u64) -> u32 {
    let mut left = room;
    for (index, &size) in sizes.iter().enumerate() {
        let each = left / (sizes.len() - index) as u64;
        if u64::from(size) > each {
            return each as u32;
        }
        left -= u64::from(size);
    }
    u32::MAX
}

fn unit_of(history: &History, message: usize) -> usize {
    history.units.partition_point(|&start| start <= message).saturating_sub(1)
}
