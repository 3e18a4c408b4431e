//! The engine of secateur: fitting a history into a budget, token estimation by model family, what media cost, exact
//! cosine search.
//!
//! Knows nothing of Python. Every function is deterministic: the same input gives the same bits on every
//! machine, so that what is chosen for a request can be computed again later.

#![deny(unsafe_code)] // Allowed in simd and mapping alone.

mod aligned;
mod class_table;
mod error;
mod estimate;
mod estimator;
mod features;
mod fingerprint;
mod fit;
mod graphemes;
mod history;
mod index_file;
mod ladder;
mod mapping;
pub mod media;
mod pass;
pub mod payload;
mod plan;
mod pretoken;
mod query;
mod rotation;
mod script;
mod segment;
#[allow(unsafe_code)]
pub mod simd;
mod text;
mod tokens;
mod topk;
mod vectors;
mod weights;

pub use error::Error;
pub use estimate::{Margin, Model, Read};
pub use estimator::{Estimator, Mix, Profile, square};
pub use features::{FEATURES, Features, SAMPLED_FROM, class_of, feature_names};
pub use fingerprint::{COUNTERS, Counters, Fingerprints};
pub use fit::{Automaton, Settings};
pub use graphemes::boundaries;
pub use history::{Clearing, Entry, Fault, History, Kind, NewPart, Part};
pub use ladder::ladder;
pub use pass::Pass;
pub use plan::{Element, Plan, Shape};
pub use pretoken::Rules;
pub use script::Script;
pub use text::Text;
pub use tokens::ScriptCounts;
pub use topk::{Match, Search, Within, search, search_matrix};
pub use vectors::{Memory, Vectors};
pub use weights::{HalfLife, OfRows, Weights};
