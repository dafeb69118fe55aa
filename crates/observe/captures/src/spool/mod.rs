//! The spool: what a capture writes while it runs, cheap to write and whole up to where it was cut.
//!
//! A capture is a folder of files `00000001.spool`, `00000002.spool`, …; each is a run of blocks, the first of which is [`Meta`]:
//!
//! ```text
//!   0       4         5      6           8        12      16          24         32       36
//! | "LHSB" | version | kind | interface | length | count | first_ns | last_ns | crc32c | body … |
//!    4        1         1      2 (LE)      4        4       8          8         4        length
//!
//! a packet in a body:
//! | flags | time since the one before | frame_len | [gso_segs | gso_size] | snippet_len | snippet … |
//!    1       zigzag varint, ns           varint       varint     varint      varint
//!
//! flags: bits 0-1 direction (0 not known, 1 in, 2 out); bit 2: gso_segs and gso_size follow, else they are 1 and 0
//! ```
//!
//! The checksum is over the body and then the header before it, so that it can go on while a body is filled. A block whose checksum is wrong, or that is not whole, ends
//! the file: a writer that was killed left it. `count` packets are in it, the first at `first_ns`, none later than `last_ns`; in a [`Kind::Tick`] `first_ns`
//! is the watermark: no later packet is older.
//!
//! Pure: blocks to bytes and back. Who writes files, and when, is `longhaul-peer`.

mod decode;
mod encode;
mod merge;

pub use decode::{Block, BlockReader, Packets, RawPacket, SpoolError, gaps_in};
pub use encode::{PacketBlock, control_block, pad_block, tick_block};
pub use merge::RecordBuffer;

use serde::{Deserialize, Serialize};

use crate::record::LinkType;

/// What each block begins with.
pub const MAGIC: [u8; 4] = *b"LHSB";
/// The version of the format.
pub const VERSION: u8 = 1;
/// Offset of a block's checksum.
const CRC_AT: usize = 32;
/// Bytes before a block's body.
pub const HEADER_BYTES: usize = 36;
/// Longest body that a reader takes.
pub const MAX_BODY_BYTES: usize = 16 << 20;
/// Longest snippet; a snap length beyond this is refused.
pub const MAX_SNIPPET_BYTES: usize = 65_535;
/// How the files of a spool end.
pub const EXTENSION: &str = "spool";

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What the capture is: [`Meta`] as JSON; the first of each file.
    Meta,
    /// Packets of one interface.
    Packets,
    /// A [`crate::ledger::Ledger`] as JSON, of the time since the one before in the capture; `written_packets` is left 0, as the
    /// blocks tell.
    Ledger,
    /// A [`Mark`] as JSON.
    Mark,
    /// No later packet is older than `first_ns`.
    Tick,
    /// The file was closed: nothing is missing behind.
    End,
    /// Nothing: zeros, so that the next block begins where a disk can be written to directly.
    Pad,
}

impl Kind {
    const ALL: [Self; 7] = [Self::Meta, Self::Packets, Self::Ledger, Self::Mark, Self::Tick, Self::End, Self::Pad];

    fn number(self) -> u8 {
        Self::ALL.iter().position(|kind| *kind == self).map_or(0, |at| at as u8 + 1)
    }

    fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// What a capture is: told in each of its files, and in what is made of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Meta {
    /// The program and version that captured.
    pub captured_by: String,
    /// The host's name.
    pub host: String,
    /// When the capture began, nanoseconds since 1970.
    pub started_ns: i64,
    /// The number of this file in its capture, from 1.
    pub file: u32,
    /// Bytes of each frame that were asked for.
    pub snap_bytes: u32,
    /// Which packets, in the user's words; empty for all.
    pub filter: String,
    /// What was captured on; a packet's `interface` counts from 0.
    pub interfaces: Vec<Interface>,
    /// Of a capture that went to logging hosts: which part of it this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

/// One logging host's part of a capture: the snippets of some of its packets, whatever their flows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// What all parts of a capture have alike and no other capture has.
    pub capture: String,
    /// Which part, from 1.
    pub part: u16,
    /// The number of parts.
    pub parts: u16,
}

/// An interface of a capture.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// What its frames begin with.
    pub link: LinkType,
    /// The largest IP packet that it takes; what is longer is a super-packet.
    pub mtu_bytes: u32,
    /// The clock of its stamps and where they were taken: `kernel CLOCK_REALTIME`, `NIC ptp0`.
    pub clock: String,
}

/// Somebody marked a moment (SIGUSR1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mark {
    /// From 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub number: u64,
    /// Nanoseconds since 1970.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub at_ns: i64,
}

#[cfg(test)]
mod tests;
