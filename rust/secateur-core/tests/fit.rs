//! The automaton on random histories: what every window must satisfy, and that a walk can be taken again.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // A panic is how a test fails.

use proptest::prelude::*;
use secateur_core::{
    Automaton, Clearing, Element, Entry, History, Kind, Margin, NewPart, Plan, Settings, Shape, ladder,
};

/// A message before it gets its ids.
#[derive(Debug, Clone)]
enum Step {
    System(u32),
    Human(u32),
    Say(u32),
    /// Calls with the sizes of their results; the flag leaves the last one unanswered.
    Round(Vec<u32>, bool),
    /// An answer to the oldest call that has none, or to no call at all.
    Late(u32),
    Other(u32),
}

const OVERHEAD: u32 = 4;
const NOTE: u32 = 10;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0_u32..60).prop_map(Step::System),
        5 => (1_u32..80).prop_map(Step::Human),
        3 => (1_u32..60).prop_map(Step::Say),
        12 => (prop::collection::vec(prop_oneof![4 => 0_u32..60, 2 => 60_u32..900], 1..4), prop::bool::weighted(0.06))
            .prop_map(|(sizes, broken)| Step::Round(sizes, broken)),
        1 => (0_u32..40).prop_map(Step::Late),
        1 => (0_u32..40).prop_map(Step::Other),
    ]
}

/// What the tests know of a history beside its columns.
struct Case {
    history: History,
    /// Messages of a call and its result, and whether others stand between.
    pairs: Vec<(usize, usize, bool)>,
    kinds: Vec<Kind>,
    tokens: Vec<u32>,
    pinned: Vec<bool>,
}

fn build(steps: &[Step], pins: &[usize]) -> Case {
    let mut case = Case { history: History::new(), pairs: vec![], kinds: vec![], tokens: vec![], pinned: vec![] };
    let mut open: Vec<(String, usize)> = vec![];
    let mut number = 0;
    let mut goal = false;
    let mut push = |case: &mut Case, kind, calls: &[String], results: &[String], sizes: &[u32], text: u32| {
        let message = case.kinds.len();
        let result = kind == Kind::Result;
        let parts: Vec<NewPart> = sizes
            .iter()
            .map(|&tokens| NewPart { tokens, note: NOTE, clearing: Clearing::Ordinary, text: true, result })
            .collect();
        let parts = if result { parts } else { vec![] };
        let tokens = OVERHEAD + text + sizes.iter().sum::<u32>();
        let pinned = pins.contains(&message);
        case.history.push(Entry {
            kind,
            continues: false,
            pinned,
            tokens,
            calls: calls.to_vec(),
            results: results.to_vec(),
            parts: &parts,
        });
        case.kinds.push(kind);
        case.tokens.push(tokens);
        let first = kind == Kind::Human && !goal;
        goal |= first;
        case.pinned.push(pinned || first || kind == Kind::System);
    };
    for step in steps {
        match step {
            Step::System(text) => push(&mut case, Kind::System, &[], &[], &[], *text),
            Step::Human(text) => push(&mut case, Kind::Human, &[], &[], &[], *text),
            Step::Say(text) => push(&mut case, Kind::Assistant, &[], &[], &[], *text),
            Step::Other(text) => push(&mut case, Kind::Other, &[], &[], &[], *text),
            Step::Round(sizes, broken) => {
                let caller = case.kinds.len();
                let calls: Vec<String> = sizes
                    .iter()
                    .map(|_| {
                        number += 1;
                        format!("call {number}")
                    })
                    .collect();
                push(&mut case, Kind::Assistant, &calls, &[], &[], 5);
                for (at, (call, size)) in calls.iter().zip(sizes).enumerate() {
                    if *broken && at + 1 == sizes.len() {
                        open.push((call.clone(), caller));
                        break;
                    }
                    case.pairs.push((caller, case.kinds.len(), false));
                    push(&mut case, Kind::Result, &[], std::slice::from_ref(call), &[*size], 0);
                }
            }
            Step::Late(size) => {
                let answered = (!open.is_empty()).then(|| open.remove(0));
                let id = answered.as_ref().map_or_else(|| "nobody".to_owned(), |(id, _)| id.clone());
                if let Some((_, caller)) = answered {
                    case.pairs.push((caller, case.kinds.len(), true));
                }
                push(&mut case, Kind::Result, &[], &[id], &[*size], 0);
            }
        }
    }
    let mut start = 0;
    while start < case.kinds.len() {
        let joins = |&at: &usize| {
            case.kinds[at] == Kind::Result && matches!(case.kinds[at - 1], Kind::Result | Kind::Assistant)
        };
        let end = (start + 1..case.kinds.len()).take_while(joins).last().unwrap_or(start) + 1;
        if end > start + 1 && (start..end).any(|at| case.pinned[at]) {
            (start..end).for_each(|at| case.pinned[at] = true);
        }
        start = end;
    }
    case
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        0.2_f64..1.0,
        1_usize..6,
        0.0_f64..0.6,
        prop::option::of(0_u32..40),
        0_u64..300,
        0_usize..3,
        0_usize..6,
        any::<bool>(),
    )
        .prop_map(|(low_water, batch, keep_share, min_saving, min_cleared, keep_results, keep_last, pending)| {
            Settings {
                low_water,
                batch,
                keep_share,
                min_saving,
                min_cleared,
                keep_results,
                keep_last,
                note: 12,
                note_without_goal: 12,
                smallest_cut: 24,
                pending,
                lead: false,
                divide: false,
                margin: Margin::default(),
            }
        })
}

fn kept(plan: &Plan) -> Vec<usize> {
    plan.elements
        .iter()
        .filter_map(|element| match element {
            Element::Message(m) => Some(*m),
            Element::Note => None,
        })
        .collect()
}

/// What the window costs by adding it up again.
fn cost(case: &Case, plan: &Plan, note: u32) -> u64 {
    let mut total = 0_u64;
    for element in &plan.elements {
        total += match element {
            Element::Message(m) => u64::from(case.tokens[*m]),
            Element::Note => u64::from(note),
        };
    }
    for &(index, shape) in &plan.shapes {
        let part = &case.history.parts()[index];
        let now = match shape {
            Shape::Whole => part.tokens,
            Shape::Cleared => part.note,
            Shape::Cut(tokens) => tokens,
        };
        total = total - u64::from(part.tokens) + u64::from(now);
    }
    total
}

/// The least that can be sent: pinned messages and the newest unit with its results cut.
fn floor(case: &Case, smallest: u32) -> u64 {
    let len = case.kinds.len();
    let mut newest = len - 1;
    while newest > 0
        && case.kinds[newest] == Kind::Result
        && matches!(case.kinds[newest - 1], Kind::Result | Kind::Assistant)
    {
        newest -= 1;
    }
    (0..len)
        .filter(|&m| case.pinned[m] || m >= newest)
        .map(|m| {
            let part: u32 = case.history.parts().iter().filter(|part| part.message == m).map(|part| part.tokens).sum();
            let cut = if case.pinned[m] { part } else { part.min(smallest) };
            u64::from(case.tokens[m] - part + cut)
        })
        .sum()
}

fn check_window(case: &Case, plan: &Plan, settings: &Settings, budget: u64) -> Result<(), TestCaseError> {
    let len = case.kinds.len();
    prop_assert_eq!(plan.tokens, cost(case, plan, settings.note));
    let messages = kept(plan);
    prop_assert!(messages.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once: {:?}", messages);
    for message in (0..len).filter(|&message| case.pinned[message]) {
        prop_assert!(messages.contains(&message), "pinned {} is gone", message);
    }
    prop_assert!(len == 0 || messages.contains(&(len - 1)), "the newest message is gone");
    for &(caller, result, late) in &case.pairs {
        // A late answer is a fault that the history came with, unless calls may wait.
        if !case.pinned[caller] && !case.pinned[result] && (settings.pending || !late) {
            prop_assert_eq!(
                messages.contains(&caller),
                messages.contains(&result),
                "{} and {} are parted",
                caller,
                result
            );
        }
    }
    for &(index, shape) in &plan.shapes {
        let part = &case.history.parts()[index];
        prop_assert!(messages.contains(&part.message) && !case.pinned[part.message]);
        if let Shape::Cut(tokens) = shape {
            prop_assert!(tokens < part.tokens && tokens >= settings.smallest_cut);
        }
    }
    if case.history.tokens() <= budget {
        prop_assert_eq!(messages.len(), len);
    }
    Ok(())
}

fn at_end(case: &Case, settings: &Settings, budget: u64) -> (Plan, Automaton) {
    let mut automaton = Automaton::new(settings.clone(), budget);
    automaton.advance(&case.history);
    automaton.settle(&case.history);
    (automaton.plan(&case.history), automaton)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_window_is_whole_and_within_budget(
        steps in prop::collection::vec(step(), 1..60), settings in settings(), budget in 30_u64..3000,
        pins in prop::collection::vec(0_usize..120, 0..3),
    ) {
        let case = build(&steps, &pins);
        let (plan, _) = at_end(&case, &settings, budget);
        check_window(&case, &plan, &settings, budget)?;
        let no_islands = case.history.faults(false).is_empty();
        if plan.tokens > budget && settings.keep_last == 0 && no_islands {
            prop_assert!(floor(&case, settings.smallest_cut) > budget, "over the budget though the floor fits");
        }
    }

    #[test]
    fn a_step_by_step_walk_equals_a_walk_from_the_start(
        steps in prop::collection::vec(step(), 1..40), settings in settings(), budget in 30_u64..2000,
    ) {
        let mut growing = Automaton::new(settings.clone(), budget);
        let mut windows: Vec<(usize, Plan)> = vec![];
        let whole = build(&steps, &[]);
        for count in 1..=steps.len() {
            let case = build(&steps[..count], &[]);
            growing.advance(&case.history);
            let mut here = growing.clone();
            here.settle(&case.history);
            let plan = here.plan(&case.history);
            prop_assert_eq!(&plan, &at_end(&case, &settings, budget).0);
            windows.push((case.kinds.len(), plan));
        }
        // At request points that the whole history confirms, a window extends the one before or begins at a cut.
        let confirmed = |len: usize| len == whole.kinds.len() || whole.kinds[len] == Kind::Assistant;
        let points: Vec<&(usize, Plan)> = windows.iter().filter(|(len, _)| confirmed(*len)).collect();
        for pair in points.windows(2) {
            let ((_, before), (_, after)) = (pair[0], pair[1]);
            let sent = kept(before);
            let in_both = |&&(index, _): &&(usize, Shape)| sent.contains(&whole.history.parts()[index].message);
            let same = after.elements.starts_with(&before.elements)
                && after.shapes.iter().filter(in_both).eq(&before.shapes);
            prop_assert_eq!(same, after.changed.is_none(), "{:?} {:?}", before, after);
            if !same {
                prop_assert_eq!(after.cuts, before.cuts + 1);
                let shared = before.elements.iter().zip(&after.elements).take_while(|(a, b)| a == b).count();
                prop_assert!(after.changed.unwrap() <= shared, "{:?} {:?}", before, after);
            }
        }
    }

    #[test]
    fn a_budget_takes_effect_from_its_message_on(
        steps in prop::collection::vec(step(), 1..40), settings in settings(), at in 0_usize..60,
    ) {
        let case = build(&steps, &[]);
        let mut changed = Automaton::new(settings.clone(), 5000);
        changed.set_budget(at, 300);
        changed.advance(&case.history);
        let mut plain = Automaton::new(settings.clone(), 5000);
        plain.advance(&case.history);
        prop_assert!(changed.cuts().iter().filter(|&&cut| cut < at).eq(plain.cuts().iter().filter(|&&cut| cut < at)));
        prop_assert_eq!(changed.budget_at(at), 300);
        prop_assert_eq!(changed.budget_at(at + 7), 300);
        prop_assert!(at == 0 || changed.budget_at(at - 1) == 5000);
    }

    #[test]
    fn the_ladder_keeps_the_head_and_what_fits(
        steps in prop::collection::vec(step(), 1..60), settings in settings(), budget in 30_u64..3000,
    ) {
        let case = build(&steps, &[]);
        let plan = ladder(&case.history, &settings, budget);
        prop_assert_eq!(plan.tokens, cost(&case, &plan, settings.note));
        let messages = kept(&plan);
        prop_assert!((0..case.kinds.len()).filter(|&m| case.pinned[m]).all(|m| messages.contains(&m)));
        for &(caller, result, late) in &case.pairs {
            prop_assert!(late || messages.contains(&caller) == messages.contains(&result));
        }
        let head = |m: &usize| case.pinned[*m];
        let least: u64 = messages.iter().filter(|m| head(m)).map(|&m| u64::from(case.tokens[m])).sum();
        prop_assert!(plan.tokens <= budget || plan.tokens <= least + u64::from(settings.note));
    }
}

#[test]
fn small_budgets_cut_the_newest_result_and_give_up_the_note() {
    let settings = Settings {
        low_water: 0.5,
        batch: 4,
        keep_share: 0.25,
        min_saving: None,
        min_cleared: 0,
        keep_results: 0,
        keep_last: 0,
        note: 12,
        note_without_goal: 9,
        smallest_cut: 24,
        pending: false,
        lead: false,
        divide: false,
        margin: Margin::default(),
    };
    // Human 24, call 9, result 4 + 900.
    let one = build(&[Step::Human(20), Step::Round(vec![900], false)], &[]);
    let (plan, _) = at_end(&one, &settings, 200);
    assert_eq!((plan.shapes, plan.tokens), (vec![(0, Shape::Cut(63))], 100), "down to the low-water mark");
    assert_eq!(at_end(&one, &settings, 61).0.tokens, 61);
    assert!(at_end(&one, &settings, 60).0.tokens > 60);
    // An older round goes, and leaves the note, where there is room for it.
    let two = build(&[Step::Human(20), Step::Round(vec![50], false), Step::Round(vec![900], false)], &[]);
    let (plan, _) = at_end(&two, &settings, 73);
    assert_eq!((plan.tokens, plan.elements.contains(&Element::Note)), (73, true));
    let (plan, _) = at_end(&two, &settings, 72);
    assert_eq!((plan.tokens, plan.elements.contains(&Element::Note)), (61, false));
}

#[test]
fn a_round_is_pinned_whole() {
    let steps: Vec<Step> =
        std::iter::once(Step::Human(5)).chain((0..9).map(|_| Step::Round(vec![90], false))).collect();
    for pin in [3, 4] {
        let case = build(&steps, &[pin]);
        let settings = Settings {
            low_water: 0.6,
            batch: 4,
            keep_share: 0.0,
            min_saving: None,
            min_cleared: 0,
            keep_results: 0,
            keep_last: 0,
            note: 12,
            note_without_goal: 12,
            smallest_cut: 24,
            pending: false,
            lead: false,
            divide: false,
            margin: Margin::default(),
        };
        let messages = kept(&at_end(&case, &settings, 300).0);
        assert!(messages.contains(&3) && messages.contains(&4), "{messages:?}");
        let messages = kept(&ladder(&case.history, &settings, 300));
        assert!(messages.contains(&3) && messages.contains(&4), "{messages:?}");
    }
}
