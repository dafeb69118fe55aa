//! Round trips of probes: the log that has a row for each.
//!
//! No sockets, clocks or threads. No input makes this crate panic, loop without end or take unbounded memory.

pub mod probe_log;
