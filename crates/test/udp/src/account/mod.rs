//! Exact accounting at the receiver: every packet of a stream is received, lost, duplicate or reordered, and counted once.
//!
//! [`SequenceTracker`] takes arrivals and keeps a [`SequenceSet`]. When the sender has reported how many packets it sent, the set
//! becomes a [`LossMap`], which includes losses at the end of the stream. [`reordering`] implements RFC 4737, [`loss_pattern`] RFC
//! 3357, [`jitter`] RFC 3550. [`Arrivals`] and [`Trains`] say how far apart packets arrived,
//! [`PacketRows`] when each did.
//!
//! This module does not say where a packet was lost ([`locate`](crate::locate)), and estimates nothing. A duplicate never hides a
//! loss.

mod arrivals;
mod chunk;
mod delay;
pub mod jitter;
pub mod loss_map;
pub mod loss_pattern;
mod packet_rows;
pub mod reordering;
mod run_list;
mod set;
mod spacing;
mod tracker;
mod traffic_class;
mod trains;

pub use arrivals::{ArrivalRecorder, Arrivals};
pub use delay::DelayOverLeast;
pub use jitter::Jitter;
pub use loss_map::LossMap;
pub use loss_pattern::{Distribution, LossPattern};
pub use packet_rows::{PacketRow, PacketRows, ROWS_BYTES_MOST};
pub use reordering::{REMEMBERED_GAPS, Reordered, ReorderingSummary};
pub use run_list::{MAX_SEQUENCES, Run, RunList, Runs, RunsError};
pub use set::{ENTRY_BYTES, SequenceSet};
pub use spacing::{Spacing, SpacingRecorder};
pub use tracker::{Counts, Receipt, SequenceTracker, StreamReceived};
pub use traffic_class::{ClassPackets, TrafficClasses};
pub use trains::{Capacity, Interval, NoCapacity, TrainRecorder, Trains};
