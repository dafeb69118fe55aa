//! Capturing packet heads: one thread that empties the kernel's rings, one that writes.
//!
//! The reading thread does nothing but pack heads into blocks (`reading.rs`); checksums, files and the disk's moods are the
//! writing thread's (`writing.rs`). Between them is a fixed number of blocks: where the disk does not keep up, packets stay in the
//! ring, and what the kernel then drops is entered into the ledger as dropped by the writer.
//!
//! Where heads go to logging hosts a third thread stands between the two, or in the place of the second (`forwarding.rs`): it repacks heads
//! into datagrams for its links (`link/`). The other end of a link is `logging/`, a listener: datagrams into the same blocks for the same
//! writing thread.

mod blocks;
mod counters;
mod files;
mod forwarding;
mod link;
mod logging;
mod reading;
mod rings;
mod running;
mod spec;
mod writing;

pub use counters::Counters;
pub use link::{DATAGRAM_BYTES_LEAST, DATAGRAM_BYTES_LONGEST, LinkEnd, LogTarget, LogTargets, room_for_heads};
pub use logging::{End, LogHost, LogOptions, Logged};
pub use running::{Captured, Running};
pub use spec::{CaptureError, CaptureSpec, SpoolSpec};
