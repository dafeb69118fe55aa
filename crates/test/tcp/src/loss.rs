//! Lost bytes at each location, as in figure 6c of the NLR Rings paper.
//!
//! ```text
//!            sender                                         receiver
//!  data   TCP ─► snd_txloss ─► ·········· network ·········· ─► rcv_rxloss ─► tcp_pruning
//!  ACKs       ◄─ snd_rxloss ◄─ ····························· ◄─ rcv_txloss ◄─ TCP
//! ```
//!
//! Bytes are those of IP packets with headers: an ACK can be 52 bytes, a full segment of 1500-byte Ethernet is 1500. `snd_tcploss`
//! is the data that the sender's TCP considered lost and retransmitted. The part of it that no other location explains, and that
//! the receiver did not report as a duplicate (RFC 2883), was lost in the `network`. Nobody sees ACKs that the network loses,
//! because ACKs are cumulative.

use std::collections::BTreeMap;

use longhaul_result::TcpLocation;
use longhaul_terms::short_words;
use serde::{Deserialize, Serialize};

/// Bytes of a reason of the other end that are kept, as it stands in the result: as long as the name of a counter may be.
const MOST_REASON: usize = 256;

/// What was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Segment {
    /// A segment of the direction's data.
    Data,
    /// An acknowledgement of it.
    Ack,
}

/// Drops at one end of flows of one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpDrop {
    /// Whether the server sends in this direction.
    pub backward: bool,
    /// What was dropped.
    pub segment: Segment,
    /// Where it was dropped.
    pub location: TcpLocation,
    /// The kernel's drop reason and function, or the counter.
    #[serde(deserialize_with = "short_words::<_, MOST_REASON>")]
    pub reason: String,
    /// Packets, as on the wire.
    pub packets: u64,
    /// Bytes of the IP packets; `null` if only a counter is known. Then the mean packet size is used.
    pub bytes: Option<u64>,
}

/// Bytes of IP packets lost at each location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LossBytes {
    /// Outgoing data dropped at the sender.
    pub snd_txloss: u64,
    /// Incoming ACKs dropped at the sender.
    pub snd_rxloss: u64,
    /// Data that the sender's TCP considered lost and retransmitted: not a location, but all losses as TCP sees them.
    pub snd_tcploss: u64,
    /// Outgoing ACKs dropped at the receiver.
    pub rcv_txloss: u64,
    /// Data dropped at the receiver before its TCP.
    pub rcv_rxloss: u64,
    /// Data that the receiver's TCP dropped for lack of memory.
    pub tcp_pruning: u64,
    /// Data lost between the hosts: retransmitted data that nothing else explains.
    pub network: u64,
}

/// Retransmissions of one direction, bytes of IP packets with headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RetransmittedBytes {
    pub(super) bytes: u64,
    /// Of these, bytes that the receiver already had.
    pub(super) spurious_bytes: u64,
}

impl LossBytes {
    /// The losses of one direction, from the drops of both ends and the retransmissions. `data_bytes` and `ack_bytes` are the sizes
    /// of packets of which only the number is known.
    pub(super) fn of<'a>(
        sender: impl Iterator<Item = &'a TcpDrop>,
        receiver: impl Iterator<Item = &'a TcpDrop>,
        retransmitted: RetransmittedBytes,
        (data_bytes, ack_bytes): (u64, u64),
    ) -> Self {
        let mut loss = Self { snd_tcploss: retransmitted.bytes, ..Self::default() };
        let size = |drop: &TcpDrop| {
            let each = if drop.segment == Segment::Data { data_bytes } else { ack_bytes };
            drop.bytes.unwrap_or(drop.packets.saturating_mul(each))
        };
        let mut add = |place: fn(&mut Self) -> &mut u64, bytes: u64| {
            let place = place(&mut loss);
            *place = place.saturating_add(bytes);
        };
        for drop in sender {
            match (drop.segment, drop.location) {
                (Segment::Data, TcpLocation::Transmit) => add(|loss| &mut loss.snd_txloss, size(drop)),
                (Segment::Ack, TcpLocation::Receive | TcpLocation::Pruned) => {
                    add(|loss| &mut loss.snd_rxloss, size(drop))
                }
                // The other end reports these: both share a host's namespace.
                _ => {}
            }
        }
        for drop in receiver {
            match (drop.segment, drop.location) {
                (Segment::Data, TcpLocation::Receive) => add(|loss| &mut loss.rcv_rxloss, size(drop)),
                (Segment::Data, TcpLocation::Pruned) => add(|loss| &mut loss.tcp_pruning, size(drop)),
                (Segment::Ack, TcpLocation::Transmit) => add(|loss| &mut loss.rcv_txloss, size(drop)),
                _ => {}
            }
        }
        let known = [retransmitted.spurious_bytes, loss.snd_txloss, loss.rcv_rxloss, loss.tcp_pruning];
        loss.network = known.iter().fold(retransmitted.bytes, |rest, part| rest.saturating_sub(*part));
        loss
    }

    /// Each location with its bytes, by the names of a result, in the order in which data travels.
    pub fn places(&self) -> [(&'static str, u64); 7] {
        [
            ("snd_tcploss", self.snd_tcploss),
            ("snd_txloss", self.snd_txloss),
            ("network", self.network),
            ("rcv_rxloss", self.rcv_rxloss),
            ("tcp_pruning", self.tcp_pruning),
            ("rcv_txloss", self.rcv_txloss),
            ("snd_rxloss", self.snd_rxloss),
        ]
    }
}

/// Adds up drops of the same kind.
pub(super) fn by_reason<'a>(
    drops: impl Iterator<Item = (&'static str, &'a TcpDrop)>,
) -> BTreeMap<(&'static str, String), (u64, u64)> {
    let mut sums = BTreeMap::new();
    for (location, drop) in drops {
        let (packets, bytes): &mut (u64, u64) = sums.entry((location, drop.reason.clone())).or_default();
        *packets = packets.saturating_add(drop.packets);
        *bytes = bytes.saturating_add(drop.bytes.unwrap_or(0));
    }
    sums
}

/// The name of a drop's location, for the end that `sends` the data; `None` if the other end reports it.
pub(super) fn location(drop: &TcpDrop, sends: bool) -> Option<&'static str> {
    Some(match (sends, drop.segment, drop.location) {
        (true, Segment::Data, TcpLocation::Transmit) => "snd_txloss",
        (true, Segment::Ack, TcpLocation::Receive | TcpLocation::Pruned) => "snd_rxloss",
        (false, Segment::Data, TcpLocation::Receive) => "rcv_rxloss",
        (false, Segment::Data, TcpLocation::Pruned) => "tcp_pruning",
        (false, Segment::Ack, TcpLocation::Transmit) => "rcv_txloss",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drop(segment: Segment, location: TcpLocation, packets: u64, bytes: Option<u64>) -> TcpDrop {
        TcpDrop { backward: false, segment, location, reason: "x".into(), packets, bytes }
    }

    /// Thousands of them may come in a report, and each goes into the result.
    #[test]
    fn a_reason_of_the_other_end_is_short() {
        let sent = |reason: String| TcpDrop { reason, ..drop(Segment::Data, TcpLocation::Receive, 1, None) };
        let read = |drop: &TcpDrop| -> TcpDrop { serde_json::from_str(&serde_json::to_string(drop).unwrap()).unwrap() };
        let usual = sent("SKB_DROP_REASON_TCP_OFO_QUEUE_PRUNE @ tcp_prune_ofo_queue".into());
        assert_eq!(read(&usual), usual);
        assert_eq!(read(&sent("x".repeat(1 << 20))).reason.len(), MOST_REASON + '…'.len_utf8());
    }

    #[test]
    fn each_drop_goes_to_its_place_and_the_rest_to_the_network() {
        let sender = [
            drop(Segment::Data, TcpLocation::Transmit, 2, Some(3_000)),
            drop(Segment::Ack, TcpLocation::Receive, 10, None),
            drop(Segment::Data, TcpLocation::Receive, 99, None),
        ];
        let receiver = [
            drop(Segment::Data, TcpLocation::Receive, 1, Some(1_500)),
            drop(Segment::Data, TcpLocation::Pruned, 2, None),
            drop(Segment::Ack, TcpLocation::Transmit, 3, Some(156)),
            drop(Segment::Ack, TcpLocation::Receive, 99, None),
        ];
        let retransmitted = RetransmittedBytes { bytes: 15_000, spurious_bytes: 1_500 };
        let loss = LossBytes::of(sender.iter(), receiver.iter(), retransmitted, (1_500, 52));
        assert_eq!((loss.snd_txloss, loss.snd_rxloss, loss.rcv_txloss), (3_000, 520, 156));
        assert_eq!((loss.rcv_rxloss, loss.tcp_pruning, loss.snd_tcploss), (1_500, 3_000, 15_000));
        assert_eq!(loss.network, 15_000 - 1_500 - 3_000 - 1_500 - 3_000);
        let none = RetransmittedBytes::default();
        assert_eq!(LossBytes::of(sender.iter(), receiver.iter(), none, (u64::MAX, u64::MAX)).network, 0);
    }
}
