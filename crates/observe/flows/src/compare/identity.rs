//! By what a packet is known again at another point.
//!
//! A flow's addresses and ports, the sequence number and the payload's length, and what tells a retransmission from the first
//! sending: TSval and, where IP identifications pass unchanged, that. Of longhaul's probes cookie and number; of other datagrams IP's
//! identification, and the payload's first bytes where both captures have them. A super-packet stands for the wire packets that it
//! would be cut into, each with its own identity, so that it matches them at the other point.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

use longhaul_captures::packet::{Packet, Transport};
use longhaul_wire::probe::Probe;
use serde::{Deserialize, Serialize};

use super::bounds::Bounds;

/// A direction of a flow: addresses, ports, protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// From.
    pub src: (IpAddr, u16),
    /// To.
    pub dst: (IpAddr, u16),
    /// IP protocol.
    pub protocol: u8,
}

/// The direction between the points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PathDirection {
    /// Past A first.
    AToB,
    /// Past B first.
    BToA,
}

/// A wire packet, as it is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// With IP identification.
    pub strict: u64,
    /// Without.
    pub loose: u64,
    /// TCP's sequence number, or the probe's; of other datagrams IP's identification.
    pub sequence: u64,
    /// Payload bytes.
    pub payload_len: u32,
    /// A datagram without a number of its own: others of its flow may look the same.
    pub is_plain: bool,
}

/// What must be known of directions of flow to know their packets again.
#[derive(Debug, Clone)]
pub struct Recognition {
    pub(super) bounds: Bounds,
    /// From first to last packet of A and of B, each by its own clock; `None` without packets.
    pub(super) spans_ns: [Option<(i64, i64)>; 2],
    /// Payload bytes of a full segment of TCP: what super-packets are cut by where the capture does not say.
    pub(super) segment_bytes: HashMap<Path, u32>,
    /// How the datagrams of a path are recognised. A path that is missing here has IP's identification alone.
    pub(super) datagrams: HashMap<Path, Datagrams>,
}

/// How datagrams of one direction are known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Datagrams {
    /// They are longhaul's probes.
    Probes,
    /// Both captures have the payload's first bytes of each, and no super-packets.
    ByPayload,
}

/// Payload bytes of a full segment at least: Linux sends none of less than 48 bytes (`TCP_MIN_SND_MSS`), of which 12 may be time stamps.
/// A super-packet for which a file says less is not cut.
const SEGMENT_BYTES_LEAST: u32 = 36;
/// Payload bytes of a super-packet at most: `GSO_MAX_SIZE` of Linux, 8 × 65,535.
const SUPER_PACKET_BYTES_MOST: u32 = 8 * 65_535;
/// Datagrams that a super-packet stands for at most (`UDP_MAX_SEGMENTS` of Linux).
const DATAGRAMS_MOST: u32 = 128;

const HASHER: foldhash::quality::FixedState = foldhash::quality::FixedState::with_seed(0x6c6f_6e67);

/// The direction that a packet goes; `None` of what is neither TCP nor UDP.
#[inline]
pub fn path(packet: &Packet) -> Option<Path> {
    let ip = packet.ip.as_ref()?;
    let (src_port, dst_port, protocol) = match &packet.transport {
        Transport::Tcp(tcp) => (tcp.src_port, tcp.dst_port, 6),
        Transport::Udp { src_port, dst_port, .. } => (*src_port, *dst_port, 17),
        Transport::Other => return None,
    };
    Some(Path { src: (ip.src, src_port), dst: (ip.dst, dst_port), protocol })
}

/// Hands out the identity of each wire packet that `packet` stands for, in the order of the wire.
pub fn identities(packet: &Packet, path: &Path, known: &Recognition, mut each: impl FnMut(Identity)) {
    let Some(ip) = &packet.ip else { return };
    let flow = HASHER.hash_one(path);
    // One in 65,536 super-packets of a sender that counts begins with 0; where all have 0, it tells nothing and `by_identification` is false
    // or makes no difference.
    let id = ip.id;
    let made = |parts: [u64; 3], id: Option<u32>, sequence, payload_len, is_plain| {
        let mut hasher = HASHER.build_hasher();
        hasher.write_u64(flow);
        parts.iter().for_each(|part| hasher.write_u64(*part));
        let loose = hasher.finish();
        hasher.write_u64(id.map_or(1 << 32, u64::from));
        Identity { strict: hasher.finish(), loose, sequence, payload_len, is_plain }
    };
    match &packet.transport {
        Transport::Tcp(tcp) => {
            let size = match packet.gso_size {
                0 if packet.gso_segs > 1 => tcp.payload_len.div_ceil(packet.gso_segs.into()),
                0 => known.segment_bytes.get(path).copied().unwrap_or(0),
                size => size.into(),
            };
            let stamps = tcp.options.timestamps.map_or(u64::MAX, |(val, ecr)| u64::from(val) << 32 | u64::from(ecr));
            let can_be = size >= SEGMENT_BYTES_LEAST && tcp.payload_len <= SUPER_PACKET_BYTES_MOST;
            let size = if can_be { size } else { tcp.payload_len };
            let mut from = 0;
            let mut number = 0;
            loop {
                let len = (tcp.payload_len - from).min(size);
                let sequence = tcp.seq.wrapping_add(from);
                // Flags differ between the pieces of a super-packet; SYN and FIN of packets without payload tell enough.
                let flags = if tcp.payload_len == 0 { u64::from(tcp.flags & 7) } else { 0 };
                // A pure acknowledgment is known by what it acknowledges and its window.
                let ack = if tcp.payload_len == 0 { u64::from(tcp.ack) << 16 | u64::from(tcp.window) } else { 0 };
                let parts = [u64::from(sequence) << 32 | u64::from(len), stamps, ack << 8 | flags];
                let id = id.map(|id| id.wrapping_add(number) & if ip.src.is_ipv4() { 0xffff } else { u32::MAX });
                each(made(parts, id, sequence.into(), len, false));
                from += len;
                number += 1;
                if from >= tcp.payload_len {
                    return;
                }
            }
        }
        Transport::Udp { payload_len, probe, .. } => {
            let size = if packet.gso_size > 0 { u32::from(packet.gso_size) } else { *payload_len };
            let count = if size > 0 { payload_len.div_ceil(size).max(1) } else { 1 };
            let (size, count) = if count <= DATAGRAMS_MOST { (size, count) } else { (*payload_len, 1) };
            let by = known.datagrams.get(path);
            for number in 0..count {
                let len = (payload_len - number * size).min(size);
                let own = id.map(|id| id.wrapping_add(number) & 0xffff);
                match (by, probe) {
                    (Some(Datagrams::Probes), Some(probe)) => {
                        let sequence = probe.sequence.wrapping_add(number.into());
                        each(made([u64::from(probe.cookie.0), sequence, len.into()], None, sequence, len, false));
                    }
                    (Some(Datagrams::ByPayload), Some(Probe { cookie, sequence, sent_ns })) => {
                        let parts = [u64::from(len) << 32 | u64::from(cookie.0), *sequence, *sent_ns];
                        each(made(parts, own, own.map_or(0, u64::from), len, true));
                    }
                    _ => {
                        let sequence = own.map_or(0, u64::from);
                        each(made([len.into(), sequence, 0], own, sequence, len, true));
                    }
                }
            }
        }
        Transport::Other => {}
    }
}
