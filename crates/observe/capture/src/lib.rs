//! Records packet headers: from the kernel's rings into files, or over a network to logging hosts.
//!
//! ```text
//!  rings ─► reading thread ─► blocks ─┬─► writing thread ─► files
//!                                     └─► forwarding thread ─► link ─ ─ UDP ─ ─► logging host ─► blocks ─► writing thread ─► files
//! ```
//!
//! For stdout the streaming thread takes the writing thread's place: it puts packets in order of time and writes pcapng.
//!
//! The reading thread only packs header snippets into blocks. The writing thread computes checksums and waits for the disk. A fixed
//! number of blocks passes between them. When the disk is too slow, packets stay in the ring, and the ledger counts what the kernel
//! then drops as dropped by the writer.
//!
//! With logging hosts, the forwarding thread stands before the writing thread or replaces it. It packs snippets into datagrams.
//!
//! The formats of files and datagrams are not here (`longhaul-captures`).

mod blocks;
mod counters;
mod files;
mod forwarding;
mod link;
mod logging;
mod reading;
mod result;
mod rings;
mod running;
mod spec;
mod streaming;
mod writing;

pub use counters::{Counters, Gone};
pub use link::{
    DATAGRAM_BYTES_LEAST, DATAGRAM_BYTES_LONGEST, LinkEnd, LogTarget, LogTargets, room_for_snippets, start,
};
pub use logging::{LogHost, LogOptions, Logged, LoggedEnd, Received};
pub use result::{Account, CaptureResult, LogResult, LoggedResult, LoggerError, LoggerResult};
pub use running::{Captured, Running};
pub use spec::{CaptureError, CaptureSpec, SpoolSpec};
