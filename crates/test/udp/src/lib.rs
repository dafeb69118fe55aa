//! A UDP test: what it is asked to do, the account of every packet, where the rest was lost, the result.
//!
//! ```text
//!  packets ──► account::SequenceTracker ──► LossMap ─┐
//!  drop events, counters ──► locate::Evidence ───────┴─► UdpEndReport ×2 ──► UdpResult
//! ```
//!
//! What is not here: sockets, clocks, threads. No input makes anything here panic, run on or take memory without bound.

pub mod account;
mod caveats;
pub mod locate;
mod parameters;
pub mod proof;
mod report;
mod result;

pub use parameters::{MAX_PAYLOAD_BYTES, Pace, Timestamps, UdpParameters};
pub use report::{Binding, ReceiverReport, SenderReport, UdpEndReport};
pub use result::{Assembled, LossReason, MAX_LISTED_LOSSES, SocketBuffers, UdpResult};
