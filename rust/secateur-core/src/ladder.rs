//! The published ladder, to the letter: recomputed from the whole history at each request, without memory.
//!
//! 1. Clear the oldest results, a batch at a time, but for the newest that fit into a share of the budget.
//! 2. Else keep the pinned messages, a note, and the newest whole turns that fit.
//! 3. Else keep the pinned messages, a note, and the newest whole rounds that fit, be it none.

// Every index comes from the columns of the history.
#![allow(clippy::indexing_slicing)]

use crate::estimator::square;
use crate::fit::{Settings, share};
use crate::history::{Clearing, History, Kind};
use crate::plan::{Plan, Shape, elements, note_place};

/// The window that the ladder gives for the whole history.
#[must_use]
pub fn ladder(history: &History, settings: &Settings, budget: u64) -> Plan {
    let budget = settings.margin.within(budget);
    let mut shapes = vec![Shape::Whole; history.parts.len()];
    let mut costs: Vec<u32> = history.rows.iter().map(|row| row.tokens).collect();
    let mut total = history.tokens();
    if total > budget {
        let candidates = candidates(history, settings, budget);
        for batch in candidates.chunks(settings.batch.max(1)) {
            if total <= budget {
                break;
            }
            for &index in batch {
                let part = &history.parts[index];
                shapes[index] = Shape::Cleared;
                costs[part.message] -= part.tokens - part.note;
                total -= u64::from(part.tokens - part.note);
            }
        }
    }
    let bound = |tokens: u64| (settings.margin.bound(tokens, square(tokens)), tokens);
    if total <= budget {
        return plan(history, 0, false, &shapes, bound(total));
    }
    let pinned = |message: &usize| history.rows[*message].pinned;
    let head: u64 = (0..costs.len()).filter(pinned).map(|message| u64::from(costs[message])).sum();
    let room = budget.saturating_sub(head + u64::from(settings.note));
    // What all messages from one on cost, without the pinned ones.
    let mut behind = vec![0_u64; costs.len() + 1];
    for message in (0..costs.len()).rev() {
        behind[message] = behind[message + 1] + if pinned(&message) { 0 } else { u64::from(costs[message]) };
    }
    let cost_from = |start: usize| behind[start];
    let goal = history.goal;
    let fitting = |starts: &mut dyn Iterator<Item = usize>| {
        starts.take_while(|&start| Some(start) > goal && cost_from(start) <= room).last()
    };
    let humans = (0..costs.len()).rev().filter(|&message| history.rows[message].kind == Kind::Human);
    let start = fitting(&mut humans.into_iter()).or_else(|| fitting(&mut history.units.iter().rev().copied()));
    let noted = settings.note > 0 && goal.is_some();
    let start = start.unwrap_or(costs.len());
    let note = if noted { u64::from(settings.note) } else { 0 };
    plan(history, start, noted, &shapes, bound(head + note + cost_from(start)))
}

/// The parts to clear, oldest first: results clearly larger than their note, but for the newest that stay.
fn candidates(history: &History, settings: &Settings, budget: u64) -> Vec<usize> {
    let results = || (0..history.parts.len()).filter(|&index| history.parts[index].result);
    let mut left = share(budget, settings.keep_share);
    let mut kept = history.parts.len();
    for (count, index) in results().rev().enumerate() {
        let tokens = u64::from(weight(history, index).0);
        if count > 0 && tokens > left {
            break;
        }
        left = left.saturating_sub(tokens);
        kept = index;
    }
    results()
        .take_while(|&index| index < kept)
        .filter(|&index| {
            let (tokens, note) = weight(history, index);
            let part = &history.parts[index];
            let saving = settings.min_saving.map_or(note, |saving| saving.max(1) - 1);
            part.clearing != Clearing::Never
                && !history.rows[part.message].pinned
                && tokens.saturating_sub(note) > saving
        })
        .collect()
}

/// What a result and its note cost: with their message where it holds nothing else, as the ladder counts.
fn weight(history: &History, index: usize) -> (u32, u32) {
    let part = &history.parts[index];
    if history.parts_of(part.message).len() == 1 {
        let around = history.rows[part.message].tokens - part.tokens;
        return (part.tokens + around, part.note + around);
    }
    (part.tokens, part.note)
}

fn plan(history: &History, start: usize, noted: bool, shapes: &[Shape], (tokens, estimate): (u64, u64)) -> Plan {
    let kept = |message: &usize| *message >= start || history.rows[*message].pinned;
    let changed = shapes
        .iter()
        .copied()
        .enumerate()
        .filter(|&(index, shape)| shape != Shape::Whole && kept(&history.parts[index].message));
    let messages: Vec<usize> = (0..history.len()).filter(kept).collect();
    let note = noted.then(|| note_place(history, &messages, false));
    Plan {
        elements: elements(messages.into_iter(), note),
        shapes: changed.collect(),
        tokens,
        estimate,
        note_point: history.len(),
        changed: None,
        cuts: 0,
    }
}
