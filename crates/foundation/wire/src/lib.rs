//! Frames as bytes: header views, checksums, and *virtual segmentation*.
//!
//! On a virtual wire TCP and UDP travel as super-packets: up to 64 KB (512 KB with BIG TCP) under one set of headers, with a
//! [`VnetHeader`] that says how they would be cut on a real wire. An emulator decides the fate of each wire packet in one.
//! [`Shape`] says which wire packets a super-packet stands for; [`Segmenter`] makes the headers of any run of them.
//!
//! ```text
//!   vnet header │ headers │ payload ......................................│    the super-packet
//!               │         │ segment 0 │ segment 1 │ segment 2 │ 3 (short) │    gso_size bytes each
//!
//!   segment 1 is lost:  vnet' │ headers' │ segment 0          and   vnet" │ headers" │ segments 2..4
//! ```
//!
//! What is not here: sockets, clocks, `unsafe`. No function panics or loops without bound on any input.
//!
//! The layers, from below: [`checksum`]; one file a header ([`ethernet`], [`vlan`], [`ipv4`], [`ipv6`], [`udp`],
//! [`tcp`], [`vnet`]); [`segmentation`] with the private `layers`, which finds the headers of a frame through tunnels.
//! [`icmp`] answers a packet that is too long, [`fragment`] cuts it. [`corrupt`] and [`describe`](fn@describe) serve the emulator's impairments and its counters.

pub mod checksum;
pub mod corrupt;
pub mod describe;
pub mod ethernet;
pub mod fragment;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod probe;
pub mod segmentation;
pub mod tcp;
pub mod udp;
pub mod vlan;
pub mod vnet;

pub use corrupt::flip_bit;
pub use describe::describe;
pub use fragment::{Fragment, fragments, keep_fragment};
pub use segmentation::{PieceHeader, SegmentError, Segmenter, Shape, ShapeError};
pub use vnet::{Gso, VnetHeader};

/// The two bytes at `at` as a number in network order. `at + 2` must lie within `bytes`: views check their length first.
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The four bytes at `at` as a number in network order, as [`be16`].
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes `value` at `at` in network order, as [`be16`].
pub(crate) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes `value` at `at` in network order, as [`be16`].
pub(crate) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
