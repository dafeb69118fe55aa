//! Super-packets to cut, and a segmenter that is as plain as can be: it takes a frame apart into fields and builds every wire
//! packet anew, byte after byte, each checksum in full. It shares no code with the crate.

#![allow(dead_code, reason = "each test file uses a part")]

use longhaul_wire::VnetHeader;
use proptest::prelude::*;

/// What a super-packet is made from.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// Types of the VLAN tags.
    pub(crate) tags: Vec<u16>,
    pub(crate) v6: bool,
    /// Bytes between the fixed IP header and the next: options (IPv4), or a hop-by-hop header (IPv6); a multiple of 8.
    pub(crate) extension: usize,
    pub(crate) tcp: bool,
    /// Bytes of TCP options; a multiple of 4.
    pub(crate) options: usize,
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) identification: u16,
    pub(crate) payload: Vec<u8>,
    pub(crate) gso_size: u16,
    /// The checksum is left to be completed, as Linux does; else it is complete for the whole.
    pub(crate) needs_csum: bool,
    pub(crate) ecn: bool,
}

pub(crate) fn spec() -> impl Strategy<Value = Spec> {
    let headers = (
        prop::sample::select(vec![vec![], vec![0x8100], vec![0x88a8, 0x8100]]),
        any::<bool>(),
        prop::sample::select(vec![0, 8, 16]),
        any::<bool>(),
        (0..=10_usize).prop_map(|words| words * 4),
    );
    let fields = (any::<u8>(), any::<u32>(), any::<u16>(), any::<bool>(), any::<bool>());
    let payload = (1..=400_u16, 0..=20_u32, any::<u8>());
    (headers, fields, payload).prop_map(|(headers, fields, (gso_size, segments, seed))| {
        let (tags, v6, extension, tcp, options) = headers;
        let (flags, sequence, identification, needs_csum, ecn) = fields;
        let len = u32::from(gso_size) * segments + u32::from(seed) % u32::from(gso_size);
        let payload = (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed).collect();
        Spec {
            tags,
            v6,
            extension,
            tcp,
            options,
            flags,
            sequence,
            identification,
            payload,
            gso_size,
            needs_csum,
            ecn: ecn && tcp,
        }
    })
}

impl Spec {
    /// The super-packet as a packet socket hands it out.
    pub(crate) fn build(&self) -> (VnetHeader, Vec<u8>) {
        let mut l2 = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for (i, tag) in self.tags.iter().enumerate() {
            l2.extend([&tag.to_be_bytes()[..], &[0x20, i as u8 + 7]].concat());
        }
        l2.extend(if self.v6 { [0x86, 0xdd] } else { [8, 0] });

        let protocol = if self.tcp { 6 } else { 17 };
        let mut ip = if self.v6 {
            let mut ip = vec![0x60, 0x21, 0x23, 0x45, 0, 0, protocol, 63];
            ip.extend((0..32).map(|i| i * 7 + 1));
            if self.extension > 0 {
                ip[6] = 0;
                ip.extend([protocol, (self.extension / 8 - 1) as u8, 1, (self.extension - 4) as u8]);
                ip.resize(40 + self.extension, 0);
            }
            ip
        } else {
            let mut ip = vec![0x45 + (self.extension / 4) as u8, 2, 0, 0, 0, 0, 0x40, 0, 61, protocol, 0, 0];
            ip.extend([10, 0, 0, 1, 10, 200, 3, 2]);
            ip.resize(20 + self.extension, 1);
            ip[4..6].copy_from_slice(&self.identification.to_be_bytes());
            ip
        };
        let mut l4 = if self.tcp {
            let mut tcp = vec![0x14, 0x5a, 0xc3, 0x50];
            tcp.extend(self.sequence.to_be_bytes());
            tcp.extend([1, 2, 3, 4, ((20 + self.options) / 4 * 16) as u8, self.flags, 2, 1, 0, 0, 0, 0]);
            tcp.resize(20 + self.options, 1);
            tcp
        } else {
            vec![0x14, 0x5a, 0x30, 0x39, 0, 0, 0, 0]
        };
        set_lengths(&mut ip, &mut l4, self.payload.len(), protocol);
        let csum_offset = if self.tcp { 16 } else { 6 };
        let partial = fold(&pseudo(&ip, protocol, l4.len() + self.payload.len()));
        l4[csum_offset..csum_offset + 2].copy_from_slice(&partial.to_be_bytes());
        let csum_start = l2.len() + ip.len();
        let vnet = VnetHeader {
            flags: if self.needs_csum { 1 } else { 2 },
            gso_type: (if !self.tcp {
                5
            } else if self.v6 {
                4
            } else {
                1
            }) | if self.ecn { 0x80 } else { 0 },
            header_len: 1000,
            gso_size: self.gso_size,
            csum_start: if self.needs_csum { csum_start as u16 } else { 0 },
            csum_offset: if self.needs_csum { csum_offset as u16 } else { 0 },
        };
        let mut frame = [&l2[..], &ip, &l4, &self.payload].concat();
        if !self.needs_csum {
            finish(&mut frame, csum_start, csum_offset);
        }
        (vnet, frame)
    }
}

fn set_lengths(ip: &mut [u8], l4: &mut [u8], payload: usize, protocol: u8) {
    let upper = l4.len() + payload;
    if ip[0] >> 4 == 4 {
        let total = u16::try_from(ip.len() + upper).unwrap_or(0);
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        ip[10..12].fill(0);
        let checksum = !fold(ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        let behind = u16::try_from(ip.len() - 40 + upper).unwrap_or(0);
        ip[4..6].copy_from_slice(&behind.to_be_bytes());
    }
    if protocol == 17 {
        l4[4..6].copy_from_slice(&(upper as u16).to_be_bytes());
    }
}

/// The ones' complement sum, word by word.
pub(crate) fn fold(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) * 256 + u32::from(*pair.get(1).unwrap_or(&0));
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    sum as u16
}

/// The pseudo header, written out. `ip` is the IP header with what belongs to it.
pub(crate) fn pseudo(ip: &[u8], protocol: u8, length: usize) -> Vec<u8> {
    let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
    [addresses, &(length as u32).to_be_bytes(), &[0, 0, 0, protocol]].concat()
}

/// Completes a checksum whose field holds the pseudo header's sum.
pub(crate) fn finish(frame: &mut [u8], start: usize, offset: usize) {
    let checksum = match !fold(&frame[start..]) {
        0 => 0xffff,
        checksum => checksum,
    };
    frame[start + offset..start + offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// A frame in parts: link layer, IP with options or extensions (without a jumbo header), TCP or UDP header, payload.
pub(crate) struct Parts {
    pub(crate) l2: Vec<u8>,
    pub(crate) ip: Vec<u8>,
    pub(crate) l4: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) protocol: u8,
}

pub(crate) fn dissect(frame: &[u8]) -> Parts {
    let mut at = 12;
    while matches!(&frame[at..at + 2], [0x81, 0] | [0x88, 0xa8]) {
        at += 4;
    }
    let (l2, rest) = frame.split_at(at + 2);
    let (ip_len, protocol) = match rest[0] >> 4 {
        4 => (usize::from(rest[0] % 16) * 4, rest[9]),
        6 if rest[6] == 0 => (40 + (usize::from(rest[41]) + 1) * 8, rest[40]),
        6 => (40, rest[6]),
        version => panic!("IP version {version}"),
    };
    let (ip, rest) = rest.split_at(ip_len);
    let mut ip = ip.to_vec();
    if ip[0] >> 4 == 6 && ip.len() == 48 && ip[41..44] == [0, 0xc2, 4] {
        ip[6] = protocol;
        ip.truncate(40);
    }
    let (l4, payload) = rest.split_at(if protocol == 6 { usize::from(rest[12] / 16) * 4 } else { 8 });
    Parts { l2: l2.to_vec(), ip, l4: l4.to_vec(), payload: payload.to_vec(), protocol }
}

/// Every wire packet of a super-packet, complete.
pub(crate) fn naive(vnet: &VnetHeader, frame: &[u8]) -> Vec<Vec<u8>> {
    let parts = dissect(frame);
    let chunks: Vec<&[u8]> = match parts.payload.len() {
        0 => vec![&[]],
        _ => parts.payload.chunks(usize::from(vnet.gso_size)).collect(),
    };
    let mut packets = Vec::new();
    for (i, chunk) in chunks.iter().enumerate() {
        let (mut ip, mut l4) = (parts.ip.clone(), parts.l4.clone());
        if ip[0] >> 4 == 4 {
            let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(i as u16);
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
        }
        let csum_offset = if parts.protocol == 6 { 16 } else { 6 };
        if parts.protocol == 6 {
            let sequence = u32::from_be_bytes([l4[4], l4[5], l4[6], l4[7]]);
            let sequence = sequence.wrapping_add(i as u32 * u32::from(vnet.gso_size));
            l4[4..8].copy_from_slice(&sequence.to_be_bytes());
            if i + 1 < chunks.len() {
                l4[13] &= !0x09;
            }
            if i > 0 && vnet.gso_type >= 0x80 {
                l4[13] &= !0x80;
            }
        }
        set_lengths(&mut ip, &mut l4, chunk.len(), parts.protocol);
        let partial = fold(&pseudo(&ip, parts.protocol, l4.len() + chunk.len()));
        l4[csum_offset..csum_offset + 2].copy_from_slice(&partial.to_be_bytes());
        let mut packet = [&parts.l2[..], &ip, &l4, chunk].concat();
        finish(&mut packet, parts.l2.len() + ip.len(), csum_offset);
        packets.push(packet);
    }
    packets
}

/// What arrives on the wire when this is sent: cut by the plain segmenter, or its checksum completed. Checks on the way that
/// the checksum field is what the kernel needs to find.
pub(crate) fn deliver(vnet: &VnetHeader, frame: &[u8]) -> Vec<Vec<u8>> {
    if vnet.gso_type == 0 {
        let mut frame = frame.to_vec();
        if vnet.flags & 1 == 1 {
            finish(&mut frame, vnet.csum_start.into(), vnet.csum_offset.into());
        }
        return vec![frame];
    }
    let parts = dissect(frame);
    let (start, offset) = (usize::from(vnet.csum_start), usize::from(vnet.csum_offset));
    assert_eq!(vnet.flags, 1, "NEEDS_CSUM");
    assert_eq!(start, frame.len() - parts.payload.len() - parts.l4.len());
    assert_eq!(offset, if parts.protocol == 6 { 16 } else { 6 });
    let field = u16::from_be_bytes([frame[start + offset], frame[start + offset + 1]]);
    let wanted = fold(&pseudo(&parts.ip, parts.protocol, frame.len() - start));
    assert_eq!(field % 0xffff, wanted % 0xffff, "the pseudo header's sum");
    naive(vnet, frame)
}
