use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::ledger::Ledger;
use crate::record::{InterfaceDirection, Record};

fn record(at_ns: i64, interface: u16, snippet: &[u8]) -> Record<'_> {
    Record {
        at_ns,
        interface,
        direction: InterfaceDirection::Inbound,
        frame_len: snippet.len() as u32 + 7,
        gso_segs: 1,
        snippet,
        ..Record::default()
    }
}

/// A file of a meta block, two blocks of packets, a mark, and an end.
fn file() -> Vec<u8> {
    let mut bytes = control_block(Kind::Meta, 5, &Meta { snap_bytes: 96, ..Meta::default() });
    for first in [100, 200] {
        let mut block = PacketBlock::with_capacity(4096);
        block.reset(3);
        for at in 0..10 {
            block.push(&record(first + at, 3, &[at as u8; 60]));
        }
        bytes.extend_from_slice(block.finish());
        bytes.extend_from_slice(&tick_block(first + 5));
        bytes.extend_from_slice(&pad_block(HEADER_BYTES + first as usize - 100));
    }
    bytes.extend(control_block(Kind::Mark, 7, &Mark { number: 1, at_ns: 7 }));
    bytes.extend(control_block(Kind::End, 300, &()));
    bytes
}

/// Stamps of all packets, and whether the file was cut.
fn read(bytes: &[u8]) -> (Vec<i64>, bool) {
    let mut reader = BlockReader::new(Cursor::new(bytes));
    let mut stamps = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        if block.kind == Kind::Packets {
            let mut packets = block.packets(LinkType::Ethernet);
            while let Some(packet) = packets.next().unwrap() {
                stamps.push(packet.at_ns);
            }
        }
    }
    (stamps, reader.was_cut())
}

#[test]
fn a_file_reads_back() {
    let (stamps, cut) = read(&file());
    assert_eq!(stamps, (100..110).chain(200..210).collect::<Vec<_>>());
    assert!(!cut);
}

/// A format has one form for each version: what an earlier build wrote is read, and would be written with the same bytes today.
#[test]
fn a_file_of_an_earlier_build_is_read_and_written_alike() {
    let stored = include_bytes!("../../../../../fuzz/corpus/spool/tcp_and_udp");
    let (stamps, cut) = read(stored);
    assert_eq!((stamps.len(), stamps[0], cut), (12, 1_795_254_040_817_804_939, false));
    assert!(stamps.is_sorted());
    let mut written = Vec::new();
    while let Some((block, length)) = Block::parse(&stored[written.len()..]) {
        let at_ns = block.first_ns;
        let again = match block.kind {
            Kind::Meta => control_block(Kind::Meta, at_ns, &block.json::<Meta>().unwrap()),
            Kind::Ledger => control_block(Kind::Ledger, at_ns, &block.json::<Ledger>().unwrap()),
            Kind::Mark => control_block(Kind::Mark, at_ns, &block.json::<Mark>().unwrap()),
            Kind::End => control_block(Kind::End, at_ns, &()),
            Kind::Tick => tick_block(at_ns),
            Kind::Pad => pad_block(length),
            Kind::Packets => {
                let mut again = PacketBlock::with_capacity(4096);
                again.reset(block.interface);
                let mut packets = block.packets(LinkType::Ethernet);
                while let Some(packet) = packets.next().unwrap() {
                    again.push(&packet);
                }
                again.finish().to_vec()
            }
        };
        assert_eq!(again.len(), length, "{:?}", block.kind);
        written.extend(again);
    }
    assert!(written == stored, "the bytes of a block have changed, and the version has not");
}

/// Wherever a writer was killed, what it had written whole is read, and that it was cut is told.
#[test]
fn a_torn_tail_is_cut_off() {
    let whole = file();
    let first = {
        let (block, length) = Block::parse(&whole).unwrap();
        assert_eq!(block.kind, Kind::Meta);
        length
    };
    for length in first..whole.len() {
        let (stamps, cut) = read(&whole[..length]);
        assert!(cut, "{length}");
        assert!([0, 10, 20].contains(&stamps.len()), "{length}: {}", stamps.len());
    }
}

#[test]
fn damage_is_noticed() {
    let whole = file();
    let (_, first) = Block::parse(&whole).unwrap();
    for at in first..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert!(read(&damaged).1, "{at}");
    }
    assert!(matches!(BlockReader::new(Cursor::new(b"not a spool")).next_block(), Err(SpoolError::NotASpool)));
}

#[test]
fn packets_come_out_in_order_of_time() {
    let mut buffer = RecordBuffer::default();
    for at in [5, 3, 9, 4, 12] {
        buffer.push(&record(at, 0, &[at as u8; 20]));
    }
    let mut out = Vec::new();
    let mut take = |buffer: &mut RecordBuffer| {
        while let Some(record) = buffer.current() {
            assert_eq!(record.snippet, [record.at_ns as u8; 20]);
            out.push(record.at_ns);
            buffer.advance();
        }
    };
    buffer.settle(9);
    take(&mut buffer);
    buffer.push(&record(10, 0, &[10; 20]));
    buffer.push(&record(4, 0, &[4; 20]));
    buffer.settle_all();
    take(&mut buffer);
    assert_eq!(out, [3, 4, 5, 4, 9, 10, 12]);
    assert_eq!(buffer.late_packets(), 1);
}

#[test]
fn memory_is_bounded_where_no_tick_comes() {
    let mut buffer = RecordBuffer::with_most(100);
    let mut out = 0;
    for at in 0..10_000 {
        buffer.push(&record(at, 0, &[1; 60]));
        if buffer.is_full() {
            buffer.settle(i64::MIN);
            while buffer.current().is_some() {
                buffer.advance();
                out += 1;
            }
        }
        assert!(buffer.waiting() <= 100 && buffer.snippet_bytes() <= 200 * 60);
    }
    assert!(out > 9_800);
}

/// Snippets as long as a block has room for.
#[test]
fn few_long_snippets_fill_it() {
    let (mut buffer, snippet) = (RecordBuffer::default(), vec![1; 16 << 20]);
    let pushed = (0..100).find(|at| {
        buffer.push(&record(*at, 0, &snippet));
        buffer.is_full()
    });
    assert_eq!(pushed, Some(7));
    assert!((128 << 20..=257 << 20).contains(&buffer.held_bytes()), "{}", buffer.held_bytes());
}

proptest! {
    #[test]
    fn packets_read_back(
        packets in prop::collection::vec(
            (any::<i64>(), 0..3_u8, any::<u32>(), any::<u16>(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..200)),
            1..50,
        ),
    ) {
        let records: Vec<Record<'_>> = packets.iter().map(|(at_ns, direction, frame_len, gso_segs, gso_size, snippet)| Record {
            at_ns: *at_ns,
            interface: 9,
            direction: [InterfaceDirection::Unknown, InterfaceDirection::Inbound, InterfaceDirection::Outbound][usize::from(*direction)],
            link: LinkType::Ethernet,
            frame_len: *frame_len,
            gso_segs: *gso_segs,
            gso_size: *gso_size,
            snippet,
        }).collect();
        let mut block = PacketBlock::with_capacity(100);
        block.reset(9);
        for record in &records {
            block.push(record);
        }
        let (block, _) = Block::parse(block.finish()).unwrap();
        let mut read = block.packets(LinkType::Ethernet);
        for record in &records {
            prop_assert_eq!(read.next().unwrap(), Some(*record));
        }
        prop_assert_eq!(read.next().unwrap(), None);
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), count in 0..40_u32) {
        let mut packets = Packets::of_body(&bytes, count, 0, 0, LinkType::Ethernet);
        for _ in 0..=count {
            if packets.next().is_err() {
                break;
            }
        }
    }
}
