//! One test as a state machine: what is agreed, what arrived, where the rest was lost.
//!
//! ```text
//!  bytes ──► secure::Channel ──► control::{Client,Server}Session ──► Output: open, send, stop, report …
//!                                                                       │
//!  packets ─► account::SequenceTracker ──► LossMap ─┐                   ▼
//!  drop events, counters ──► locate::Evidence ──────┴─► report::EndReport ×2 ──► result::UdpResult
//! ```
//!
//! What is not here, and never will be: sockets, clocks, threads, random sources, `unsafe`. Time and random bytes are arguments. No
//! input makes anything here panic, run on or take memory without bound.

pub mod account;
pub mod control;
pub mod locate;
pub mod report;
pub mod result;
pub mod results;
pub mod secure;
pub mod tcp;
