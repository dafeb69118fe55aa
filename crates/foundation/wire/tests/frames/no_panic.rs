//! Nothing here panics or runs on, whatever the bytes: noise, and super-packets with a few bytes changed or cut off.

use crate::common::spec;
use longhaul_wire::{
    PieceHeader, Segmenter, Shape, VnetHeader, describe, ethernet, flip_bit, ipv4, ipv6, tcp, udp, vlan,
};
use proptest::prelude::*;

/// Calls everything that reads `bytes`.
fn exercise(bytes: &[u8], vnet: VnetHeader, other: &[u8]) {
    describe(bytes);
    ethernet::Frame::new_checked(bytes).map(|view| view.network());
    ipv4::Packet::new_checked(bytes).map(|view| (view.header_len(), view.destination()));
    ipv6::Packet::new_checked(bytes).map(|view| (view.upper_layer(), view.jumbo_payload_len()));
    tcp::Segment::new_checked(bytes).map(|view| view.header_len());
    udp::Datagram::new_checked(bytes).map(|view| view.destination_port());
    let mut copy = bytes.to_vec();
    flip_bit(&mut copy, u64::MAX);
    vlan::restore_tag(&mut copy, vlan::Tag { tpid: 0x8100, tci: 1 }, vnet);

    let _ = Shape::parse(bytes, usize::MAX, &vnet);
    for (head, total) in [(bytes, bytes.len()), (bytes, bytes.len() + 70_000), (other, bytes.len())] {
        let Ok(segmenter) = Segmenter::new(head, total, vnet) else { continue };
        let shape = segmenter.shape();
        let mut piece = PieceHeader::new();
        let mut out = Vec::new();
        for first in [0, 1, shape.segments / 2, shape.segments - 1, shape.segments, u32::MAX] {
            shape.wire_len(first);
            for count in [1, 2, shape.segments, u32::MAX] {
                shape.run_wire_len(first, count);
                for head in [bytes, other] {
                    let _ = segmenter.run(head, first, count, &mut piece);
                }
            }
            for frame in [bytes, other] {
                let _ = segmenter.segment_whole(frame, first, &mut out);
            }
        }
    }
}

fn vnet() -> impl Strategy<Value = VnetHeader> {
    let gso = prop::sample::select(vec![0, 1, 3, 4, 5, 0x81, 0x84, 0x85, 0x7f]);
    let offsets = (prop::sample::select(vec![6, 8, 16, 0xffff]), prop_oneof![0..100_u16, any::<u16>()]);
    (0..4_u8, gso, any::<u16>(), 0..2000_u16, offsets).prop_map(|(flags, gso_type, header_len, gso_size, offsets)| {
        VnetHeader { flags, gso_type, header_len, gso_size, csum_start: offsets.1, csum_offset: offsets.0 }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..300), other: Vec<u8>, vnet in vnet()) {
        exercise(&bytes, vnet, &other);
    }

    #[test]
    fn damaged_super_packets(
        spec in spec(),
        damage in prop::collection::vec((0..150_usize, any::<u8>()), 0..4),
        length in prop_oneof![0..200_usize, Just(usize::MAX)],
        strange in prop::option::of(vnet()),
    ) {
        let (vnet, intact) = spec.build();
        let mut bytes = intact.clone();
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(length);
        exercise(&bytes, strange.unwrap_or(vnet), &intact);
        exercise(&intact, strange.unwrap_or(vnet), &bytes);
    }
}
