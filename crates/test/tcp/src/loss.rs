//! Loss in bytes by place, as figure 6c of the NLR Rings paper has it.
//!
//! ```text
//!            sender                                         receiver
//!  data   TCP ─► snd_txloss ─► ·········· network ·········· ─► rcv_rxloss ─► tcp_pruning
//!  ACKs       ◄─ snd_rxloss ◄─ ····························· ◄─ rcv_txloss ◄─ TCP
//! ```
//!
//! Bytes are those of IP packets, headers included: an ACK of 52 bytes counts as 52, a full segment of 1500-byte Ethernet as 1500.
//! `snd_tcploss` is what the sender's TCP took for lost, and sent again. What of it no other place explains and the receiver did not
//! report as had already (RFC 2883) was lost in the `network`. ACKs that the network loses nobody sees: they are cumulative.

use std::collections::BTreeMap;

use longhaul_result::TcpLocation;
use serde::{Deserialize, Serialize};

/// What was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Segment {
    /// A segment of the direction's data.
    Data,
    /// An acknowledgement of it.
    Ack,
}

/// Drops at one end, of one direction's flows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpDrop {
    /// Whether of the direction in which the server sends.
    pub backward: bool,
    /// What was dropped.
    pub segment: Segment,
    /// Where.
    pub location: TcpLocation,
    /// The kernel's reason and function, or the counter.
    pub reason: String,
    /// Packets as the wire has them.
    pub packets: u64,
    /// Bytes of their IP packets. `null` where a counter does not tell: the mean size of such a packet is taken.
    pub bytes: Option<u64>,
}

/// Bytes of IP packets lost at each place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LossBytes {
    /// Data dropped at the sender on its way out.
    pub snd_txloss: u64,
    /// ACKs dropped at the sender on their way in.
    pub snd_rxloss: u64,
    /// Data that the sender's TCP took for lost and sent again: no place, but what TCP makes of all of them.
    pub snd_tcploss: u64,
    /// ACKs dropped at the receiver on their way out.
    pub rcv_txloss: u64,
    /// Data dropped at the receiver before its TCP.
    pub rcv_rxloss: u64,
    /// Data that the receiver's TCP dropped, as it had no memory for it.
    pub tcp_pruning: u64,
    /// Data lost between the hosts: what was sent again and nothing else explains.
    pub network: u64,
}

/// What was sent again, IP packets with their headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SentAgain {
    pub(super) bytes: u64,
    /// Of them those that the receiver had already.
    pub(super) spurious_bytes: u64,
}

impl LossBytes {
    /// Of one direction: the drops of both ends, and what was sent again. `data_bytes` and `ack_bytes` are taken for the size of
    /// packets of which only the number is known.
    pub(super) fn of<'a>(
        sender: impl Iterator<Item = &'a TcpDrop>,
        receiver: impl Iterator<Item = &'a TcpDrop>,
        again: SentAgain,
        (data_bytes, ack_bytes): (u64, u64),
    ) -> Self {
        let mut loss = Self { snd_tcploss: again.bytes, ..Self::default() };
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
                // The other end's to tell: both are one host's namespace.
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
        let known = [again.spurious_bytes, loss.snd_txloss, loss.rcv_rxloss, loss.tcp_pruning];
        loss.network = known.iter().fold(again.bytes, |rest, part| rest.saturating_sub(*part));
        loss
    }

    /// Each place with its bytes, by the names of a result, in the order in which data travels.
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

/// Sums up drops of the same kind.
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

/// The name of a drop's place, for the end that `sends` the data; `None` where the other end tells.
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
        let again = SentAgain { bytes: 15_000, spurious_bytes: 1_500 };
        let loss = LossBytes::of(sender.iter(), receiver.iter(), again, (1_500, 52));
        assert_eq!((loss.snd_txloss, loss.snd_rxloss, loss.rcv_txloss), (3_000, 520, 156));
        assert_eq!((loss.rcv_rxloss, loss.tcp_pruning, loss.snd_tcploss), (1_500, 3_000, 15_000));
        assert_eq!(loss.network, 15_000 - 1_500 - 3_000 - 1_500 - 3_000);
        let none = SentAgain::default();
        assert_eq!(LossBytes::of(sender.iter(), receiver.iter(), none, (u64::MAX, u64::MAX)).network, 0);
    }
}
