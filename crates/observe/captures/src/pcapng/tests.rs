use proptest::prelude::*;

use super::*;

/// A block of either order around `body`.
fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let u32 = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = u32(body.len() as u32 + 12);
    [&u32(kind)[..], &len, &body, &len].concat()
}

fn words(big: bool, values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| if big { value.to_be_bytes() } else { value.to_le_bytes() }).collect()
}

fn option(big: bool, code: u16, value: &[u8]) -> Vec<u8> {
    let u16 = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut bytes = [&u16(code)[..], &u16(value.len() as u16), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn section(big: bool) -> Vec<u8> {
    block(big, SECTION, &words(big, &[BYTE_ORDER, 1, u32::MAX, u32::MAX]))
}

/// An interface of Ethernet: link type and reserved are one word, which differs by order.
fn interface(big: bool, options: &[Vec<u8>]) -> Vec<u8> {
    let link = if big { 1 << 16 } else { 1 };
    block(big, INTERFACE, &[words(big, &[link, 96]), options.concat()].concat())
}

fn packet(big: bool, interface: u32, units: u64, original: u32, snippet: &[u8], options: &[Vec<u8>]) -> Vec<u8> {
    let fixed = words(big, &[interface, (units >> 32) as u32, units as u32, snippet.len() as u32, original]);
    let mut body = [&fixed, snippet].concat();
    body.resize(body.len().next_multiple_of(4), 0);
    block(big, ENHANCED_PACKET, &[body, options.concat()].concat())
}

#[test]
fn sections_of_either_order_with_clocks_of_their_own() {
    let mut bytes = Vec::new();
    for big in [false, true] {
        let offset = if big { 2_i64.to_be_bytes() } else { 2_i64.to_le_bytes() };
        bytes.extend(section(big));
        bytes.extend(interface(big, &[option(big, 2, b"eth0")]));
        bytes.extend(interface(big, &[option(big, 9, &[9]), option(big, 14, &offset)]));
        bytes.extend(interface(big, &[option(big, 9, &[0x80 | 10])]));
        bytes.extend(interface(big, &[option(big, 9, &[12])]));
        let flags = |value: u32| option(big, 2, &words(big, &[value]));
        bytes.extend(packet(big, 0, 5, 1514, b"abcde", &[flags(1)]));
        bytes.extend(block(big, 0xbad, b"passed over"));
        bytes.extend(packet(big, 1, 5, 1514, b"abcd", &[option(big, 1, b"a comment"), flags(2)]));
        bytes.extend(packet(big, 2, 3 << 9, 4, b"abcd", &[]));
        bytes.extend(packet(big, 3, 5_000, 4, b"abcd", &[]));
        bytes.extend(block(big, SIMPLE_PACKET, &[words(big, &[200]), vec![7; 96]].concat()));
        let counts = [
            option(big, 4, &if big { 10_u64.to_be_bytes() } else { 10_u64.to_le_bytes() }),
            option(big, 5, &if big { 3_u64.to_be_bytes() } else { 3_u64.to_le_bytes() }),
        ]
        .concat();
        bytes.extend(block(big, STATISTICS, &[words(big, &[0, 0, 0]), counts].concat()));
    }
    let mut reader = Reader::new(&bytes[..]).unwrap();
    for base in [0, 4] {
        let first = reader.next().unwrap().unwrap();
        assert_eq!((first.at_ns, first.interface, first.direction), (5_000, base, InterfaceDirection::Inbound));
        assert_eq!((first.frame_len, first.snippet, first.link), (1514, &b"abcde"[..], LinkType::Ethernet));
        let second = reader.next().unwrap().unwrap();
        assert_eq!(
            (second.at_ns, second.interface, second.direction),
            (2_000_000_005, base + 1, InterfaceDirection::Outbound)
        );
        assert_eq!(reader.next().unwrap().unwrap().at_ns, 1_500_000_000);
        assert_eq!(reader.next().unwrap().unwrap().at_ns, 5);
        let simple = reader.next().unwrap().unwrap();
        assert_eq!((simple.at_ns, simple.frame_len, simple.snippet.len(), simple.interface), (5, 200, 96, base));
    }
    assert!(reader.next().unwrap().is_none() && !reader.is_cut());
    let described = reader.interfaces();
    assert_eq!((described.len(), described[4].name.as_deref()), (8, Some("eth0")));
    assert_eq!((described[0].received_packets, described[0].dropped_packets), (Some(10), Some(3)));
}

#[test]
fn names_of_interfaces_take_no_more_than_1024_of_the_longest() {
    let mut bytes = section(false);
    (0..1_100).for_each(|_| bytes.extend(interface(false, &[option(false, 2, &[b'x'; 200]), option(false, 9, &[9])])));
    bytes.extend(packet(false, 1_099, 5, 9, b"abcd", &[]));
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let found = reader.next().unwrap().unwrap();
    assert_eq!((found.interface, found.at_ns), (1_099, 5));
    let named = reader.interfaces().iter().filter(|interface| interface.name.is_some()).count();
    assert_eq!((reader.interfaces().len(), named, reader.name_bytes), (1_100, 1_024, MOST_NAMES));
}

#[test]
fn the_obsolete_packet_tells_drops() {
    let mut bytes = [section(false), interface(false, &[])].concat();
    bytes.extend(block(false, OBSOLETE_PACKET, &[&words(false, &[7 << 16, 0, 5, 3, 90])[..], b"abc"].concat()));
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let found = reader.next().unwrap().unwrap();
    assert_eq!((found.at_ns, found.frame_len, found.snippet), (5_000, 90, &b"abc"[..]));
    assert_eq!(reader.dropped_packets(), 7);
}

/// A file may say any number.
#[test]
fn drops_add_up_to_no_more_than_a_number_holds() {
    let mut bytes = [section(false), interface(false, &[])].concat();
    bytes.extend(packet(false, 0, 5, 9, b"abcd", &[option(false, 4, &u64::MAX.to_le_bytes())]));
    bytes.extend(block(false, OBSOLETE_PACKET, &[&words(false, &[7 << 16, 0, 5, 3, 90])[..], b"abc"].concat()));
    let mut reader = Reader::new(&bytes[..]).unwrap();
    while reader.next().unwrap().is_some() {}
    assert_eq!(reader.dropped_packets(), u64::MAX);
}

#[test]
fn what_cannot_be_is_refused() {
    let start = [section(false), interface(false, &[])].concat();
    let after = |block: Vec<u8>| {
        let bytes = [start.clone(), block].concat();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        reader.next().map(|record| record.is_some())
    };
    assert!(matches!(after(packet(false, 1, 5, 9, b"abcd", &[])), Err(ReadError::Damaged { .. })));
    let mut long = packet(false, 0, 5, 9, b"abcd", &[]);
    long[20] = 200;
    assert!(matches!(after(long), Err(ReadError::Damaged { .. })));
    assert!(matches!(after(words(false, &[6, 8, 0])), Err(ReadError::Damaged { .. })));
    assert!(matches!(after(words(false, &[6, 1 << 30, 0])), Err(ReadError::Damaged { .. })));
    assert!(matches!(after(interface(false, &[option(false, 9, &[0xff])])), Err(ReadError::Damaged { .. })));
    assert!(matches!(after(words(false, &[0xbad, 1 << 30, 0])), Ok(false)));
    assert!(matches!(Reader::new(&b"PK\x03\x04............"[..]), Err(ReadError::NotACapture(_))));
}

proptest! {
    #[test]
    fn what_is_written_reads_back(packets in prop::collection::vec((0_i64..4_000_000_000_000_000_000, 0_u32..9_000, 0_u16..2,
        0_u16..46, prop::collection::vec(any::<u8>(), 0..100), 0_usize..3), 0..20)) {
        let named = |name: &str, link| Interface { name: Some(name.into()), link, snap_len: 96, ..Interface::default() };
        let interfaces = [named("eth0", LinkType::Ethernet), named("any", LinkType::LinuxCooked2)];
        let records: Vec<Record<'_>> = packets.iter().map(|(at_ns, more, interface, gso_segs, snippet, direction)| Record {
            at_ns: *at_ns, interface: *interface, link: interfaces[usize::from(*interface)].link,
            direction: [InterfaceDirection::Unknown, InterfaceDirection::Inbound, InterfaceDirection::Outbound][*direction],
            frame_len: snippet.len() as u32 + more, gso_segs: *gso_segs, gso_size: gso_segs * 30, snippet,
        }).collect();
        let mut writer = Writer::new(Vec::new(), "a test", &interfaces).unwrap();
        for record in &records {
            writer.write(record, "seen").unwrap();
        }
        let bytes = writer.into_inner();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        for record in &records {
            prop_assert_eq!(reader.next().unwrap(), Some(*record));
        }
        prop_assert!(reader.next().unwrap().is_none() && !reader.is_cut());
        prop_assert_eq!(reader.interfaces()[0].name.as_deref(), Some("eth0"));
    }

    #[test]
    fn damage_is_survived(at in 0_usize..400, set: u8, cut in 0_usize..400) {
        let mut bytes = [section(false), interface(false, &[option(false, 9, &[9])])].concat();
        bytes.extend(packet(false, 0, 5, 1514, b"abcde", &[option(false, 1, b"gso_segs=2 gso_size=3")]));
        bytes.extend(block(false, OBSOLETE_PACKET, &[&words(false, &[7 << 16, 0, 5, 3, 90])[..], b"abc"].concat()));
        bytes.extend(block(false, SIMPLE_PACKET, &[words(false, &[200]), vec![7; 96]].concat()));
        bytes.truncate(cut);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = set;
        }
        if let Ok(mut reader) = Reader::new(&bytes[..]) {
            while let Ok(Some(record)) = reader.next() {
                prop_assert!(record.snippet.len() <= record.frame_len as usize);
            }
        }
    }
}
