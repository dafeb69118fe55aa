use std::net::{Ipv4Addr, Ipv6Addr};

use longhaul_wire::probe::{Cookie, Probe};
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use proptest::prelude::*;

use super::*;
use crate::packet::{Ip, Options, Packet, Tcp, Transport};
use crate::parquet_limits;
use crate::record::InterfaceDirection;

/// What `packets` become when they are written and read.
fn there_and_back(packets: &[Packet], about: &About) -> (Vec<Packet>, Option<About>) {
    let mut writer = HeaderLogWriter::new(Vec::new(), WriterOptions::default()).unwrap();
    for packet in packets {
        writer.write(packet, &[]).unwrap();
    }
    let bytes = writer.finish(about).unwrap();
    read(bytes::Bytes::from(bytes))
}

fn read(input: impl ChunkReader + 'static) -> (Vec<Packet>, Option<About>) {
    let mut reader = HeaderLogReader::new(input).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    loop {
        reader.next_batch(&mut batch).unwrap();
        if batch.is_empty() {
            break;
        }
        all.extend_from_slice(&batch);
    }
    assert_eq!(all.len() as u64, reader.packets());
    (all, reader.about())
}

fn any_ip() -> impl Strategy<Value = Ip> {
    let pair = prop_oneof![
        any::<(u32, u32)>().prop_map(|(a, b)| (Ipv4Addr::from(a).into(), Ipv4Addr::from(b).into())),
        any::<(u128, u128)>().prop_map(|(a, b)| (Ipv6Addr::from(a).into(), Ipv6Addr::from(b).into())),
    ];
    (pair, any::<(u8, u8, u8, Option<u32>, u32, u32, bool)>()).prop_map(|((src, dst), rest)| Ip {
        src,
        dst,
        protocol: rest.0,
        ttl: rest.1,
        traffic_class: rest.2,
        id: rest.3,
        len: rest.4,
        fragment_offset: rest.5,
        more_fragments: rest.6,
    })
}

fn any_transport() -> impl Strategy<Value = Transport> {
    let options = any::<(Option<u16>, Option<u8>, bool, Option<(u32, u32)>, [(u32, u32); 4], u8, bool)>();
    let tcp = (any::<(u16, u16, u32, u32, u16, u16, u32)>(), options).prop_map(|(header, options)| {
        let blocks = options.5 % 5;
        let mut sack = options.4;
        sack[usize::from(blocks)..].fill((0, 0));
        Transport::Tcp(Tcp {
            src_port: header.0,
            dst_port: header.1,
            seq: header.2,
            ack: header.3,
            flags: header.4,
            window: header.5,
            payload_len: header.6,
            options: Options {
                mss: options.0,
                window_scale: options.1,
                sack_permitted: options.2,
                timestamps: options.3,
                sack,
                sack_blocks: blocks,
                clipped: options.6,
            },
        })
    });
    let udp = any::<(u16, u16, u32, Option<(u32, u64, u64)>)>().prop_map(|(src_port, dst_port, payload_len, probe)| {
        let probe = probe.map(|(cookie, sequence, sent_ns)| Probe { cookie: Cookie(cookie), sequence, sent_ns });
        Transport::Udp { src_port, dst_port, payload_len, probe }
    });
    prop_oneof![Just(Transport::Other), tcp, udp]
}

prop_compose! {
    fn any_packet()(
        frame in any::<(i64, u16, u8, u32, u32, u16, u16)>(),
        link in any::<([u8; 6], [u8; 6], u16, [Option<u16>; 2])>(),
        ip in prop::option::of(any_ip()),
        transport in any_transport(),
    ) -> Packet {
        Packet {
            at_ns: crate::packet::within_times(frame.0),
            interface: frame.1,
            direction: [InterfaceDirection::Unknown, InterfaceDirection::Inbound, InterfaceDirection::Outbound][usize::from(frame.2 % 3)],
            frame_len: frame.3,
            frame_cap_len: frame.4,
            gso_segs: frame.5,
            gso_size: frame.6,
            eth_src: link.0,
            eth_dst: link.1,
            eth_type: link.2,
            vlan: link.3,
            ip,
            transport,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn packets_read_back(packets in prop::collection::vec(any_packet(), 0..300)) {
        let (read, _) = there_and_back(&packets, &About::default());
        prop_assert_eq!(read, packets);
    }
}

#[test]
fn what_a_log_says_of_itself_reads_back() {
    let mut about = About { was_cut: true, ..About::default() };
    about.ledger.seen_packets = 7;
    about.marks.push(Mark { number: 1, at_ns: 5 });
    let (_, read) = there_and_back(&[], &about);
    assert_eq!(read, Some(About { schema: SCHEMA.into(), sorted: true, ..about }));
}

/// A datagram at `at` nanoseconds; those after 140,000 have a VLAN tag.
fn datagram(at: u32) -> Packet {
    let ip = Ip {
        src: Ipv4Addr::from(0x0a00_0000 + at % 3).into(),
        dst: Ipv4Addr::LOCALHOST.into(),
        protocol: 17,
        ttl: 64,
        traffic_class: 0,
        id: Some(at),
        len: 100,
        fragment_offset: 0,
        more_fragments: false,
    };
    let late = at > 140_000;
    Packet {
        at_ns: i64::from(at),
        interface: 0,
        direction: InterfaceDirection::Outbound,
        frame_len: 114,
        frame_cap_len: 96,
        gso_segs: 1,
        gso_size: 0,
        eth_src: [2, 0, 0, 0, 0, 1],
        eth_dst: [2, 0, 0, 0, 0, 2],
        eth_type: 0x800,
        vlan: [late.then_some(7), None],
        ip: Some(ip),
        transport: Transport::Udp { src_port: 1, dst_port: 2, payload_len: 72, probe: None },
    }
}

/// More rows than a batch and a group hold, whose columns are null in one group and not in the next.
#[test]
fn groups_and_batches_join() {
    let packets: Vec<Packet> = (0..300_000).map(datagram).collect();
    let (read, about) = there_and_back(&packets, &About::default());
    assert!(read == packets);
    assert!(about.unwrap().sorted);
}

/// Texts hold the pages that they are in, and wait to be written: a thousand rows could hold a gigabyte.
#[test]
fn long_snippets_go_and_come_few_at_a_time() {
    let options = WriterOptions { snippets: true, ..WriterOptions::default() };
    let mut writer = HeaderLogWriter::new(Vec::new(), options).unwrap();
    for at in 0..80 {
        writer.write(&datagram(at), &vec![at as u8; 1 << 20]).unwrap();
    }
    let bytes = bytes::Bytes::from(writer.finish(&About::default()).unwrap());
    assert_eq!(SerializedFileReader::new(bytes.clone()).unwrap().metadata().num_row_groups(), 2);
    let mut reader = HeaderLogReader::new(bytes).unwrap();
    let (mut packets, mut snippets, mut batches) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        reader.next_batch_with_snippets(&mut packets, &mut snippets).unwrap();
        if packets.is_empty() {
            break;
        }
        assert!(snippets.len() == packets.len() && snippets.iter().all(|snippet| snippet.len() == 1 << 20));
        batches.push(packets.len());
    }
    assert_eq!(batches.iter().sum::<usize>(), 80);
    assert!(batches.iter().all(|rows| *rows <= 32), "{batches:?}");
}

/// What a reader skips row groups by: least, greatest and how many nulls, in the order of the logical type.
#[test]
fn statistics_are_those_of_the_values() {
    let packet = |at: u32| Packet {
        frame_len: at.wrapping_mul(0x9e37_79b9),
        // A third of them without.
        eth_src: if at.is_multiple_of(3) { [0; 6] } else { [2, 0, 0, 0, 0, (at % 200) as u8] },
        eth_dst: [0; 6],
        ..datagram(at)
    };
    let packets: Vec<Packet> = (0..10_000).map(packet).collect();
    let mut writer = HeaderLogWriter::new(Vec::new(), WriterOptions::default()).unwrap();
    packets.iter().for_each(|packet| writer.write(packet, &[]).unwrap());
    let bytes = bytes::Bytes::from(writer.finish(&About::default()).unwrap());
    let file = SerializedFileReader::new(bytes).unwrap();
    let group = file.metadata().row_group(0);
    let of = |name: &str| {
        let column = group.columns().iter().find(|column| column.column_path().string() == name).unwrap();
        assert_eq!(column.num_values(), 10_000, "{name}");
        column.statistics().unwrap()
    };
    let number = |bytes: Option<&[u8]>| u32::from_le_bytes(bytes.unwrap().try_into().unwrap());
    let lengths = of("frame_len");
    let mut sorted: Vec<u32> = packets.iter().map(|packet| packet.frame_len).collect();
    sorted.sort_unstable();
    assert_eq!((number(lengths.min_bytes_opt()), number(lengths.max_bytes_opt())), (sorted[0], sorted[9_999]));
    assert!(sorted[9_999] > u32::MAX / 2, "of no use without the sign bit");
    assert_eq!(lengths.null_count_opt(), Some(0));
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    let macs = of("eth_src");
    let range = (text(macs.min_bytes_opt()), text(macs.max_bytes_opt()));
    assert_eq!(range, ("02:00:00:00:00:00".into(), "02:00:00:00:00:c7".into()));
    assert_eq!(macs.null_count_opt(), Some(3_334));
    let addresses = of("ip_src");
    let range = (text(addresses.min_bytes_opt()), text(addresses.max_bytes_opt()));
    assert_eq!(range, ("10.0.0.0".into(), "10.0.0.2".into()));
    let tags = of("vlan_id");
    assert_eq!((tags.null_count_opt(), tags.min_bytes_opt()), (Some(10_000), None));
}

/// A page's header may ask for 2 GB of memory; a page of some bytes may unpack to as much.
#[test]
fn a_page_that_claims_too_much_is_refused() {
    let about = About { schema: SCHEMA.into(), ..About::default() };
    let mut writer = HeaderLogWriter::new(Vec::new(), WriterOptions::default()).unwrap();
    for number in 0..5_000_u32 {
        // Times that do not pack well, so that a page is long enough to be changed.
        let at_ns = i64::from(number) << 20 | ((i64::from(number) * 2_654_435_761) & 0xf_ffff);
        let packet = Packet { at_ns, ..datagram(number) };
        writer.write(&packet, &[]).unwrap();
    }
    let mut bytes = writer.finish(&about).unwrap();
    let good = bytes::Bytes::from(bytes.clone());
    let file = SerializedFileReader::new(good.clone()).unwrap();
    let (start, length) = file.metadata().row_group(0).column(0).byte_range();
    let (header_bytes, parquet_limits::Page { unpacked, packed, .. }) =
        parquet_limits::header_at(&good, start, start + length).unwrap();
    let varint = |mut value: u64| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    // Zigzag; the page is so much shorter as its header grows, and the file stays as it is behind it.
    let claim = varint(2 * 2_000_000_000);
    let grown = (claim.len() - varint(2 * unpacked).len()) as u64;
    let (start, end) = (start as usize, (start + header_bytes + packed) as usize);
    let rest_at = start + 2 + 1 + varint(2 * unpacked).len() + 1 + varint(2 * packed).len();
    let mut page = bytes[start..start + 3].to_vec();
    page.extend([claim, vec![0x15], varint(2 * (packed - grown))].concat());
    page.extend_from_slice(&bytes[rest_at..end - grown as usize]);
    assert_eq!(page.len(), end - start);
    bytes[start..end].copy_from_slice(&page);
    let mut reader = HeaderLogReader::new(bytes::Bytes::from(bytes)).unwrap();
    let refused = reader.next_batch(&mut Vec::new());
    assert!(matches!(refused, Err(HeaderLogError::LongPage(2_000_000_000))), "{refused:?}");
    assert_eq!(read(good).0.len(), 5_000);
}
