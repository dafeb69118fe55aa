//! Protocols of the nineties: IPX, NetBEUI, AppleTalk.

use super::{Writer, length_framed, snap, stranger};
use crate::draw::Random;
use crate::kind::Framing;

const IPX_HEADER: usize = 30;
/// Of NetBIOS over LLC, IBM "LAN Technical Reference" (SC30-3383).
const NETBIOS_FUNCTIONAL: [u8; 6] = [3, 0, 0, 0, 0, 1];
/// "Inside AppleTalk", second edition, chapter 3.
const APPLETALK_BROADCAST: [u8; 6] = [9, 0, 7, 0xff, 0xff, 0xff];

/// Novell's "IPX Router Specification" (107-000029), sockets of the range that programs get by themselves.
pub(super) fn ipx(framing: Framing, broadcast: bool, bytes: usize, random: &mut Random) -> Vec<u8> {
    let (own, other) = (stranger(random), stranger(random));
    let destination = if broadcast { [0xff; 6] } else { other };
    let before = match framing {
        Framing::EthernetII | Framing::Raw | Framing::Any => 14,
        Framing::Llc => 17,
        Framing::Snap => 22,
    };
    let data = bytes.saturating_sub(before + IPX_HEADER);
    let network = random.next() as u32;
    let packet = Writer(vec![0xff, 0xff])
        .u16((IPX_HEADER + data) as u16)
        .u8(0)
        .u8(4)
        .u32(network)
        .put(&destination)
        .u16(0x4003)
        .u32(network)
        .put(&own)
        .u16(0x4005)
        .data(data)
        .0;
    match framing {
        Framing::EthernetII | Framing::Any => Writer::to(destination, own).u16(0x8137).put(&packet).0,
        Framing::Raw => length_framed(destination, own, &packet),
        Framing::Llc => length_framed(destination, own, &[&[0xe0, 0xe0, 0x03][..], &packet].concat()),
        Framing::Snap => length_framed(destination, own, &snap([0; 3], 0x8137, &packet)),
    }
}

/// `NAME_QUERY`: who has a name?
pub(super) fn netbeui(random: &mut Random) -> Vec<u8> {
    let name = |kind: &str, number: u32| format!("{kind}{number:05}").into_bytes();
    // Sixteen bytes: blanks, then what the name is for (0x20: a file server, 0x00: a work station).
    let padded = |mut name: Vec<u8>, purpose: u8| {
        name.resize(15, b' ');
        name.push(purpose);
        name
    };
    let frame = Writer(vec![0xf0, 0xf0, 0x03])
        .put(&[44, 0, 0xff, 0xef, 0x0a, 0])
        .put(&[0, 0, 0, 0])
        .u16(random.next() as u16)
        .put(&padded(name("SERVER", random.below(100_000)), 0x20))
        .put(&padded(name("STATION", random.below(100_000)), 0));
    length_framed(NETBIOS_FUNCTIONAL, stranger(random), &frame.0)
}

/// A lookup of file servers by NBP in a DDP datagram with the long header, without a checksum (0: none).
pub(super) fn appletalk(random: &mut Random) -> Vec<u8> {
    let [network, node, identifier] = random.bytes::<3>();
    let network = 0xff00 | u16::from(network);
    let node = node.clamp(1, 253);
    let text = |writer: Writer, text: &str| writer.u8(text.len() as u8).put(text.as_bytes());
    let mut lookup = Writer(vec![0x21, identifier]).u16(network).u8(node).u8(253).u8(0);
    for part in ["=", "AFPServer", "*"] {
        lookup = text(lookup, part);
    }
    let datagram = Writer(Vec::new())
        .u16((13 + lookup.len()) as u16)
        .u16(0)
        .u16(0)
        .u16(network)
        .put(&[0xff, node, 2, 253, 2])
        .put(&lookup.0);
    length_framed(APPLETALK_BROADCAST, stranger(random), &snap([8, 0, 7], 0x809b, &datagram.0))
}
