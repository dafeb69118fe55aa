use proptest::prelude::*;

use super::*;

/// A file of either order and unit: packets as (seconds, fraction, original length, bytes).
fn file(order: Order, magic: u32, link: u32, packets: &[(u32, u32, u32, &[u8])]) -> Vec<u8> {
    let u32 = |value: u32| if order == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() };
    let u16 = |value: u16| if order == Order::Little { value.to_le_bytes() } else { value.to_be_bytes() };
    let mut bytes = [&u32(magic)[..], &u16(2), &u16(4), &[0; 8], &u32(96), &u32(link)].concat();
    for (seconds, fraction, original, snippet) in packets {
        for value in [*seconds, *fraction, snippet.len() as u32, *original] {
            bytes.extend_from_slice(&u32(value));
        }
        bytes.extend_from_slice(snippet);
    }
    bytes
}

/// A stream that hands out three bytes at a time.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let some = into.len().min(3);
        self.0.read(&mut into[..some])
    }
}

#[test]
fn both_orders_and_both_units() {
    for order in [Order::Little, Order::Big] {
        for (magic, at_ns) in [(MICROSECONDS, 7_000_009_000), (NANOSECONDS, 7_000_000_009)] {
            let bytes = file(order, magic, 1, &[(7, 9, 1514, b"abc"), (8, 0, 2, b"de")]);
            let mut reader = Reader::new(Trickle(&bytes)).unwrap();
            assert_eq!(reader.link(), LinkType::Ethernet);
            let first = reader.next().unwrap().unwrap();
            assert_eq!((first.at_ns, first.frame_len, first.snippet), (at_ns, 1514, &b"abc"[..]));
            assert_eq!(reader.next().unwrap().unwrap().snippet, b"de");
            assert!(reader.next().unwrap().is_none() && !reader.is_cut());
        }
    }
}

/// Before version 2.3 the original length came first; of 2.3 there are files of either order.
#[test]
fn older_versions_have_their_lengths_in_the_other_order() {
    let newest = file(Order::Little, MICROSECONDS, 1, &[(7, 9, 1514, b"abc"), (8, 0, 2, b"de")]);
    let read = |bytes: &[u8]| -> Vec<(u32, Vec<u8>)> {
        let mut reader = Reader::new(bytes).unwrap();
        std::iter::from_fn(|| reader.next().unwrap().map(|record| (record.frame_len, record.snippet.to_vec())))
            .collect()
    };
    let expected = read(&newest);
    let mut swapped = newest.clone();
    for at in [32, 32 + 19] {
        let (first, second) = swapped[at..at + 8].split_at_mut(4);
        first.swap_with_slice(second);
    }
    for (minor, bytes) in [(0, &swapped), (2, &swapped), (3, &swapped), (3, &newest), (4, &newest), (9, &newest)] {
        let mut bytes = bytes.clone();
        bytes[6] = minor;
        assert_eq!(read(&bytes), expected, "2.{minor}");
    }
    let mut ancient = newest;
    ancient[4] = 1;
    assert!(matches!(Reader::new(&ancient[..]), Err(ReadError::Damaged { at: 4, .. })));
}

#[test]
fn a_time_that_has_no_room_is_refused() {
    let record = |at_ns| Record { at_ns, ..Record::default() };
    let mut writer = Writer::new(Vec::new(), LinkType::Ethernet, 96).unwrap();
    for (at_ns, fits) in [(*TIMES_NS.start(), true), (*TIMES_NS.end(), true), (-1, false), (TIMES_NS.end() + 1, false)]
    {
        assert_eq!(writer.write(&record(at_ns)).is_ok(), fits, "{at_ns}");
    }
    assert_eq!(writer.into_inner().len(), 24 + 2 * 16);
}

#[test]
fn a_cut_file_gives_what_is_whole() {
    let bytes = file(Order::Little, NANOSECONDS, 1, &[(7, 9, 3, b"abc"), (8, 0, 2, b"de")]);
    for (len, packets, cut) in [(24, 0, false), (25, 0, true), (43, 1, false), (50, 1, true), (60, 1, true)] {
        let mut reader = Reader::new(&bytes[..len]).unwrap();
        let mut count = 0;
        while reader.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!((count, reader.is_cut()), (packets, cut), "{len} bytes");
    }
}

/// A hole of a terabyte would be packets for hours.
#[test]
fn a_file_ends_in_zeros() {
    let bytes = file(Order::Little, NANOSECONDS, 1, &[(0, 1, 0, b""), (8, 0, 2, b"de")]);
    let mut reader = Reader::new(bytes.as_slice().chain(io::repeat(0))).unwrap();
    assert_eq!(reader.next().unwrap().map(|record| (record.at_ns, record.frame_len)), Some((1, 0)));
    assert!(reader.next().unwrap().is_some() && !reader.is_cut());
    assert!(reader.next().unwrap().is_none() && reader.next().unwrap().is_none() && reader.is_cut());
}

#[test]
fn what_is_no_capture_is_refused() {
    assert!(matches!(Reader::new(&b"GIF89a"[..]), Err(ReadError::NotACapture(bytes)) if bytes == b"GIF8"));
    assert!(matches!(Reader::new(&b""[..]), Err(ReadError::NotACapture(bytes)) if bytes.is_empty()));
    let mut bytes = file(Order::Little, NANOSECONDS, 1, &[(7, 9, 3, b"abc")]);
    bytes[32..36].fill(0xff);
    assert!(matches!(Reader::new(&bytes[..]).unwrap().next(), Err(ReadError::Damaged { at: 24, .. })));
}

/// The upper bits of the link type tell that four bytes of FCS end each frame.
#[test]
fn an_fcs_is_left_off() {
    let bytes = file(Order::Little, MICROSECONDS, 1 | 1 << 26 | 2 << 28, &[(0, 0, 8, b"abcdFCS!")]);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let record = reader.next().unwrap().unwrap();
    assert_eq!((record.frame_len, record.snippet), (4, &b"abcd"[..]));
}

proptest! {
    #[test]
    fn what_is_written_reads_back(packets in prop::collection::vec((TIMES_NS, 0_u32..9_000,
        prop::collection::vec(any::<u8>(), 0..100)), 0..20), link in 0_u16..300) {
        let link = LinkType::from_number(link);
        let records: Vec<Record<'_>> = packets.iter().map(|(at_ns, more, snippet)| Record {
            at_ns: *at_ns, interface: 0, direction: InterfaceDirection::Unknown, link, frame_len: snippet.len() as u32 + more,
            gso_segs: 0, gso_size: 0, snippet,
        }).collect();
        let mut writer = Writer::new(Vec::new(), link, 96).unwrap();
        for record in &records {
            writer.write(record).unwrap();
        }
        let bytes = writer.into_inner();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        for record in &records {
            prop_assert_eq!(reader.next().unwrap(), Some(*record));
        }
        prop_assert!(reader.next().unwrap().is_none());
    }

    #[test]
    fn damage_is_survived(at in 0_usize..80, set: u8, cut in 0_usize..80) {
        let mut bytes = file(Order::Big, MICROSECONDS, 1, &[(7, 9, 3, b"abc"), (8, 0, 2, b"de")]);
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
