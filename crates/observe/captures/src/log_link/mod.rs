//! The log link: how snippets go from where they are captured to logging hosts, and how both ends account for every one.
//!
//! TAPEE (§3) has several clipped snippets repacked into one packet, and two logging hosts, of which it does not say how they share the packets.
//! Here the sending end packs snippets as they stand in a spool's block into datagrams and deals those out to its links in turn, as one flow
//! may be all the traffic that there is, and flows could not spread it. Each link counts by itself:
//!
//! ```text
//! a datagram's payload (numbers LE):
//!   0              8          16          24         32          34      36           38        40
//! | snippets_before | floor_ns | latest_ns | first_ns | interface | count | body_bytes | history | 0 | history … | body … | padding … |
//!    8              8          8           8          2           2       2            1         1
//! ```
//!
//! `snippets_before` counts the snippets in all earlier datagrams of the link, `count` those in this one. A receiver computes from them
//! how many snippets the missing datagrams before this one held. `history` describes up to eight earlier datagrams, the latest first:
//! `interface | count | first_ns - latest_ns | span` as varints, so that a gap has the times of the lost snippets. If more datagrams are lost in
//! a row, the bounds of the gap are `floor_ns` of the last received datagram (no snippet in a later one is older) and `latest_ns` of the next
//! (no snippet in an earlier one is later). The body is a spool's ([`crate::spool`]), its first packet at `first_ns`.
//!
//! [`LinkMessage`] has the messages of the control connection. Not here: sockets, clocks, encryption
//! (`longhaul_channel::DatagramKeys` numbers and seals the payloads).

mod message;
mod payload;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use message::{LinkMessage, LinkProgress, Open};
pub use payload::{HISTORY_MOST, PAYLOAD_HEADER_BYTES_MOST, Payload, Span};
pub use receiver::{Arrival, LinkCounts, LinkReceiver};
pub use sender::{Floor, LinkSender};

/// Datagrams with this sequence number and beyond carry no snippets: they only show that datagrams of their length come through.
pub const FIRST_PROBE: u64 = 1 << 63;
/// Interfaces that one capture has at most on a link.
pub const INTERFACES_MOST: usize = 64;
