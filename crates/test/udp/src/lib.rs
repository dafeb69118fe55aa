//! A UDP test: its parameters, the account of every packet, the locations of loss, the result.
//!
//! ```text
//!  packets ──► account::SequenceTracker ──► LossMap ─┐
//!  drop events, counters ──► locate::Evidence ───────┴─► UdpEndReport ×2 ──► UdpResult
//! ```
//!
//! No sockets, clocks or threads. No input makes this crate panic, loop without end or take unbounded memory.

pub mod account;
pub mod caveats;
pub mod locate;
mod parameters;
pub mod proof;
mod receive_settings;
mod report;
mod result;
mod watched;

pub use parameters::{MAX_PAYLOAD_BYTES, Pace, SLOT_BYTES, Timestamps, UdpParameters};
pub use receive_settings::ReceiveSettings;
pub use report::{Binding, UdpEndReport, UdpReceiverReport, UdpSenderReport};
pub use result::{MAX_LISTED_LOSSES, UdpAssembled, UdpBuffers, UdpLossReason, UdpResult, UdpStreamResult, attribution};
pub use watched::{UdpAccount, UdpAccounts, UdpSocketDrop, UdpWatchResult, WatchedUdpFlow, WatchedUdpSocket};
