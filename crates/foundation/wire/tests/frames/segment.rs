//! Every way to cut a super-packet into runs puts the same packets on the wire as cutting it plainly.

use crate::common::{Spec, deliver, naive, spec};
use longhaul_wire::{PieceHeader, SegmentError, Segmenter, VnetHeader, describe};
use proptest::prelude::*;

/// Sends the frame as runs, each as long as `lengths` says in turn, and returns what arrives.
fn by_runs(vnet: VnetHeader, frame: &[u8], lengths: &[u32]) -> Vec<Vec<u8>> {
    let segmenter = Segmenter::new(frame, frame.len(), vnet).unwrap();
    let segments = segmenter.shape().segments;
    let mut piece = PieceHeader::new();
    let mut arrived = Vec::new();
    let (mut first, mut lengths) = (0, lengths.iter().cycle());
    while first < segments {
        let count = (*lengths.next().unwrap()).clamp(1, segments - first);
        segmenter.run(frame, first, count, &mut piece).unwrap();
        let sent = [piece.header(), &frame[piece.payload.clone()]].concat();
        assert_eq!(sent.len(), piece.frame_len());
        assert_eq!(piece.vnet.gso_type == 0, count == 1, "a run of one is a plain frame");
        if count < segments {
            assert_eq!(usize::from(piece.vnet.header_len), piece.header().len());
            assert_eq!(piece.vnet.gso_type >= 0x80, count > 1 && vnet.gso_ecn() && first == 0);
        }
        let packets = deliver(&piece.vnet, &sent);
        assert_eq!(packets.len(), count as usize);
        arrived.extend(packets);
        first += count;
    }
    arrived
}

fn by_copies(vnet: VnetHeader, frame: &[u8]) -> Vec<Vec<u8>> {
    let segmenter = Segmenter::new(frame, frame.len(), vnet).unwrap();
    let mut out = vec![1, 2, 3];
    let copy = |index| {
        assert_eq!(segmenter.segment_whole(frame, index, &mut out), Ok(VnetHeader::default()));
        out.clone()
    };
    (0..segmenter.shape().segments).map(copy).collect()
}

/// A super-packet like those of a veth.
fn plain() -> Spec {
    Spec {
        tags: vec![],
        v6: false,
        extension: 0,
        tcp: true,
        options: 12,
        flags: 0x99,
        sequence: 0xffff_f000,
        identification: 0xfffe,
        payload: (0..5000).map(|i| (i % 251) as u8).collect(),
        gso_size: 1448,
        needs_csum: true,
        ecn: true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_split_puts_the_same_packets_on_the_wire(spec in spec(), lengths in prop::collection::vec(1..6_u32, 1..8)) {
        let (vnet, frame) = spec.build();
        let wanted = naive(&vnet, &frame);
        let shape = Segmenter::new(&frame, frame.len(), vnet).unwrap().shape();
        prop_assert_eq!(shape.segments as usize, wanted.len());
        for (index, packet) in (0..).zip(&wanted) {
            prop_assert_eq!(shape.wire_len(index) as usize, packet.len());
        }
        prop_assert_eq!(shape.run_wire_len(0, u32::MAX), wanted.iter().map(|packet| packet.len() as u64).sum::<u64>());
        prop_assert_eq!(&by_runs(vnet, &frame, &lengths), &wanted);
        prop_assert_eq!(&by_runs(vnet, &frame, &[u32::MAX]), &wanted);
        prop_assert_eq!(&by_copies(vnet, &frame), &wanted);
    }

    #[test]
    fn a_piece_can_be_cut_again(spec in spec(), first in 0..10_u32, lengths in prop::collection::vec(1..4_u32, 1..4)) {
        let (vnet, frame) = spec.build();
        let segmenter = Segmenter::new(&frame, frame.len(), vnet).unwrap();
        let segments = segmenter.shape().segments;
        prop_assume!(first < segments);
        let mut piece = PieceHeader::new();
        segmenter.run(&frame, first, segments - first, &mut piece).unwrap();
        let rest = [piece.header(), &frame[piece.payload.clone()]].concat();
        prop_assert_eq!(by_runs(piece.vnet, &rest, &lengths), naive(&vnet, &frame)[first as usize..].to_vec());
    }
}

#[test]
fn a_hole_in_the_middle() {
    let (vnet, frame) = plain().build();
    let segmenter = Segmenter::new(&frame, frame.len(), vnet).unwrap();
    let mut piece = PieceHeader::new();
    segmenter.run(&frame, 2, 2, &mut piece).unwrap();
    assert_eq!(piece.header().len(), 66);
    assert_eq!(piece.payload, 66 + 2 * 1448..66 + 5000);
    let vnet = VnetHeader { flags: 1, gso_type: 1, header_len: 66, gso_size: 1448, csum_start: 34, csum_offset: 16 };
    assert_eq!(piece.vnet, vnet, "no ECN bit, for CWR left with the first segment");
    // The identification wraps from 0xfffe to 0, the sequence number from 0xfffff000 by 2896 to 0xfffffb50.
    assert_eq!(piece.header()[18..20], [0, 0]);
    assert_eq!(piece.header()[38..42], [0xff, 0xff, 0xfb, 0x50]);
    assert_eq!(piece.header()[47], 0x19, "FIN, PSH and ACK, but not CWR");
}

#[test]
fn the_whole_goes_on_as_it_is() {
    let (vnet, frame) = plain().build();
    let segmenter = Segmenter::new(&frame[..66], frame.len(), vnet).unwrap();
    let mut piece = PieceHeader::new();
    segmenter.run(&frame[..66], 0, 4, &mut piece).unwrap();
    assert_eq!((piece.header(), piece.payload.clone()), (&[][..], 0..frame.len()));
    assert_eq!(piece.vnet, VnetHeader { header_len: 66, ..vnet });

    // A checksum that is complete, and may be any segment's, is left to be completed.
    let complete = VnetHeader { flags: 2, csum_start: 0, csum_offset: 0, ..vnet };
    Segmenter::new(&frame, frame.len(), complete).unwrap().run(&frame, 0, 4, &mut piece).unwrap();
    assert_eq!((piece.vnet, piece.payload.clone()), (VnetHeader { header_len: 66, ..vnet }, 66..frame.len()));

    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    let segmenter = Segmenter::new(&arp, arp.len(), VnetHeader::default()).unwrap();
    segmenter.run(&arp, 0, 1, &mut piece).unwrap();
    assert_eq!((piece.header(), piece.payload.clone(), piece.vnet), (&[][..], 0..60, VnetHeader::default()));
}

#[test]
fn accurate_ecn_keeps_its_counter_in_every_segment() {
    let (vnet, frame) = Spec { ecn: false, ..plain() }.build();
    for packet in by_runs(vnet, &frame, &[1]) {
        assert_eq!(packet[47] & 0x80, 0x80);
    }
}

#[test]
fn runs_that_there_are_not() {
    let (vnet, frame) = plain().build();
    let segmenter = Segmenter::new(&frame, frame.len(), vnet).unwrap();
    let mut piece = PieceHeader::new();
    for (first, count) in [(0, 0), (0, 5), (4, 1), (u32::MAX, 1), (1, u32::MAX)] {
        assert_eq!(segmenter.run(&frame, first, count, &mut piece), Err(SegmentError::Run { first, count }));
    }
    assert_eq!(segmenter.run(&frame[..65], 0, 1, &mut piece), Err(SegmentError::OtherFrame));
    assert_eq!(segmenter.segment_whole(&frame[1..], 0, &mut vec![]), Err(SegmentError::OtherFrame));
    let run = SegmentError::Run { first: 4, count: 1 };
    assert_eq!(segmenter.segment_whole(&frame, 4, &mut vec![]), Err(run));
}

/// 200 KB of payload: the IPv4 total length is 0 (Linux `iph_set_totlen`), and so is that of a run beyond 65535 bytes.
#[test]
fn big_tcp_over_ipv4() {
    let payload: Vec<u8> = (0..200_000_u32).map(|i| (i % 241) as u8).collect();
    for needs_csum in [true, false] {
        let (vnet, frame) = Spec { payload: payload.clone(), needs_csum, ..plain() }.build();
        assert_eq!(frame[16..18], [0, 0]);
        let wanted = naive(&vnet, &frame);
        for lengths in [vec![1], vec![7, 44], vec![45], vec![46], vec![100, 3], vec![u32::MAX]] {
            assert_eq!(by_runs(vnet, &frame, &lengths), wanted, "{lengths:?}");
        }
        assert_eq!(by_copies(vnet, &frame), wanted);
    }
}

/// With the jumbo header that Linux put in until 7.0, and without.
#[test]
fn big_tcp_over_ipv6() {
    let payload: Vec<u8> = (0..200_000_u32).map(|i| (i % 241) as u8).collect();
    let (vnet, without) = Spec { v6: true, payload, ..plain() }.build();
    let jumbo_len = (without.len() - 54 + 8) as u32;
    let mut with = without.clone();
    with[20] = 0;
    with.splice(54..54, [&[6, 0, 0xc2, 4], &jumbo_len.to_be_bytes()[..]].concat());
    for (vnet, frame) in [(vnet, &without), (vnet.shifted(8), &with)] {
        assert_eq!(frame[18..20], [0, 0]);
        let wanted = naive(&vnet, frame);
        let shape = Segmenter::new(frame, frame.len(), vnet).unwrap().shape();
        assert_eq!((shape.header_bytes, shape.wire_len(0) as usize), (86, wanted[0].len()));
        for lengths in [vec![1], vec![7, 44], vec![45], vec![46], vec![100, 3], vec![u32::MAX]] {
            assert_eq!(by_runs(vnet, frame, &lengths), wanted, "{lengths:?}");
        }
        assert_eq!(by_copies(vnet, frame), wanted);
    }
    // A run too long for 16 bits keeps the header, with the run's length: 46 × 1448, the TCP header and itself.
    let mut piece = PieceHeader::new();
    let segmenter = Segmenter::new(&with, with.len(), vnet.shifted(8)).unwrap();
    segmenter.run(&with, 10, 46, &mut piece).unwrap();
    assert_eq!(piece.header()[54..62], [&[6, 0, 0xc2, 4], &66_648_u32.to_be_bytes()[..]].concat());
    segmenter.run(&with, 10, 45, &mut piece).unwrap();
    assert_eq!((piece.header().len(), piece.header()[20]), (86, 6));
}

/// The address that the checksum covers stands in the routing header; Linux left its sum in the field.
#[test]
fn a_routing_header_keeps_its_checksum() {
    let (vnet, mut frame) = Spec { v6: true, extension: 8, ..plain() }.build();
    frame[20] = 43;
    frame[57] = 1;
    let field = usize::from(vnet.csum_start + vnet.csum_offset);
    let covered = u16::from_be_bytes([frame[field], frame[field + 1]]);
    let segmenter = Segmenter::new(&frame, frame.len(), vnet).unwrap();
    let mut piece = PieceHeader::new();
    segmenter.run(&frame, 0, 1, &mut piece).unwrap();
    let length_less = (5000 - 1448) as u16;
    let now = u16::from_be_bytes([piece.header()[field], piece.header()[field + 1]]);
    assert_eq!(now % 0xffff, covered.wrapping_sub(length_less).wrapping_sub(u16::from(covered < length_less)) % 0xffff);
    assert!(Segmenter::new(&frame, frame.len(), VnetHeader { flags: 0, ..vnet }).is_err());
}

#[test]
fn a_plain_frame_is_completed() {
    let spec = Spec { payload: vec![7; 100], ..plain() };
    let (vnet, frame) = spec.build();
    let single = VnetHeader { gso_type: 0, gso_size: 0, ..vnet };
    assert_eq!(by_copies(single, &frame), naive(&VnetHeader { gso_type: 1, ..vnet }, &frame));
    let outside = VnetHeader { csum_start: 200, ..single };
    let segmenter = Segmenter::new(&frame, frame.len(), outside).unwrap();
    assert_eq!(segmenter.segment_whole(&frame, 0, &mut vec![]), Err(SegmentError::Checksum));
}

/// The packet is the check value of CRC-32C with room for the checksum: what the checksum makes of it is known by its own rule,
/// that the field counts as 0.
#[test]
fn sctp_gets_its_own_checksum() {
    let mut frame = vec![0; 34 + 16];
    (frame[12], frame[14], frame[23]) = (8, 0x45, 132);
    frame[34 + 8..34 + 12].copy_from_slice(&[1, 2, 3, 4]);
    assert_eq!(describe(&frame), "sctp");
    let vnet = VnetHeader { flags: 1, csum_start: 34, csum_offset: 8, ..VnetHeader::default() };
    let completed = by_copies(vnet, &frame).remove(0);
    frame[42..46].copy_from_slice(&longhaul_wire::checksum::crc32c(&[0; 16]).to_le_bytes());
    assert_eq!(completed, frame);
}
