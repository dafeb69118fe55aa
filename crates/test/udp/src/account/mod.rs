//! Exact receiver accounting: every packet of a stream is received, lost, duplicated or reordered, and none of them twice.
//!
//! [`SequenceTracker`] takes arrivals and keeps a [`SequenceSet`]; at the end, when the sender has said how many it sent, the set
//! becomes a [`LossMap`], tail loss included. RFC 4737 is in [`reordering`], RFC 3357 in [`loss_pattern`], RFC 3550 in [`jitter`].
//!
//! What is not here: where a packet was lost ([`locate`](crate::locate)), and any guess. A duplicate never hides a loss.

mod chunk;
pub mod jitter;
pub mod loss_map;
pub mod loss_pattern;
pub mod reordering;
mod set;
mod spacing;
mod tracker;

pub use jitter::Jitter;
pub use loss_map::{LossMap, RunsError};
pub use loss_pattern::{Distribution, LossPattern, noticeable_rate};
pub use reordering::{REMEMBERED_GAPS, Reordered, ReorderingSummary};
pub use set::{MAX_SEQUENCES, Run, Runs, SequenceSet};
pub use spacing::{Spacing, SpacingRecorder};
pub use tracker::{Counts, Receipt, SequenceTracker, StreamReceived};
