//! The engine of secateur: fitting a history into a budget, token estimation by model family, what media cost, exact
//! cosine search.
//!
//! Knows nothing of Python. Every function is deterministic: the same input gives the same bits on every
//! machine, so that what is chosen for a request can be computed again later.

#![deny(unsafe_code)] // Allowed in simd alone.

mod class_table;
mod error;
mod estimate;
mod estimator;
mod features;
mod fingerprint;
mod fit;
mod graphemes;
mod history;
mod ladder;
pub mod media;
pub mod payload;
mod plan;
mod pretoken;
mod script;
#[allow(unsafe_code)]
pub mod simd;
mod text;
mod tokens;
mod topk;
mod vectors;

pub use error::Error;
pub use estimate::{Margin, Model, Read};
pub use estimator::{Estimator, Mix, Profile, square};
pub use features::{FEATURES, Features, SAMPLED_FROM, class_of, feature_names};
pub use fingerprint::{COUNTERS, Counters, Fingerprints};
pub use fit::{Automaton, Settings};
pub use graphemes::boundaries;
pub use history::{Clearing, Entry, Fault, History, Kind, NewPart, Part};
pub use ladder::ladder;
pub use plan::{Element, Plan, Shape};
pub use pretoken::Rules;
pub use script::Script;
pub use text::Text;
pub use tokens::ScriptCounts;
pub use topk::{Match, top_k};
pub use vectors::Vectors;
