//! The output of several `ping`s.

use longhaul_profile::{PingError, Probes, read_ping};
use proptest::prelude::*;

const IPUTILS: &str = "\
PING far (192.0.2.1) 56(84) bytes of data.
64 bytes from far (192.0.2.1): icmp_seq=1 ttl=64 time=0.045 ms
64 bytes from far (192.0.2.1): icmp_seq=2 ttl=64 time=9.87 ms
64 bytes from far (192.0.2.1): icmp_seq=2 ttl=64 time=10.1 ms (DUP!)
64 bytes from far (192.0.2.1): icmp_seq=5 ttl=64 time=120 ms
64 bytes from far (192.0.2.1): icmp_seq=4 ttl=64 time=20.5 ms
From 192.0.2.9 icmp_seq=6 Destination Host Unreachable

--- far ping statistics ---
7 packets transmitted, 4 received, +1 duplicates, 42% packet loss, time 1200ms
rtt min/avg/max/mdev = 0.045/37.6/120.0/48.1 ms
";

fn rtts(probes: &Probes) -> Vec<Option<u64>> {
    probes.rows.iter().map(|row| row.rtt_ns).collect()
}

#[test]
fn iputils() {
    let probes = read_ping(IPUTILS, None).unwrap();
    assert_eq!(rtts(&probes), [Some(45_000), Some(9_870_000), None, Some(20_500_000), Some(120_000_000), None, None]);
    let steps: Vec<u32> = probes.rows.iter().map(|row| row.resolution_ns).collect();
    assert_eq!(steps, [1_000, 10_000, 0, 100_000, 1_000_000, 0, 0]);
    assert_eq!(probes.interval_ns(), 200_000_000);
    assert_eq!(probes.rows[1].copies, 1);
    assert!(probes.rows[3].reordered && !probes.rows[4].reordered);
    assert_eq!((probes.frame_bytes, probes.lost()), (98, 3));
    assert!(probes.notes.is_empty(), "{:?}", probes.notes);
}

#[test]
fn busybox_and_bsd() {
    let busybox = "PING 192.0.2.1 (192.0.2.1): 100 data bytes\n\
        64 bytes from 192.0.2.1: seq=0 ttl=64 time=20.123 ms\n\
        64 bytes from 192.0.2.1: seq=2 ttl=64 time=20.5 ms\n";
    let probes = read_ping(busybox, Some(10_000_000)).unwrap();
    assert_eq!(rtts(&probes), [Some(20_123_000), None, Some(20_500_000)]);
    assert_eq!((probes.frame_bytes, probes.rows[2].sent_ns), (142, 20_000_000));
    // No summary, as it was cut: said.
    assert_eq!(probes.notes.len(), 1);

    let mac = "PING far (192.0.2.1): 56 data bytes\n\
        64 bytes from 192.0.2.1: icmp_seq=0 ttl=57 time=13.370 ms\n\
        Request timeout for icmp_seq 1\n\
        64 bytes from 192.0.2.1: icmp_seq=2 ttl=57 time=14.042 ms\n\
        --- far ping statistics ---\n\
        3 packets transmitted, 2 packets received, 33.3% packet loss\n";
    let probes = read_ping(mac, None).unwrap();
    assert_eq!(rtts(&probes), [Some(13_370_000), None, Some(14_042_000)]);
    assert!(probes.notes[0].contains("1 s is taken"), "{:?}", probes.notes);
}

/// `-D` tells when answers came, and numbers wrap after 65535.
#[test]
fn stamps_and_wrapped_numbers() {
    let mut text = String::new();
    for n in 65_530..65_546_u64 {
        let at = 1_700_000_000.0 + n as f64 * 0.25;
        text += &format!("[{at:.6}] 64 bytes from 192.0.2.1: icmp_seq={} ttl=64 time=20.0 ms\n", n % 65_536);
    }
    let probes = read_ping(&text, None).unwrap();
    assert_eq!(probes.rows.len(), 16);
    assert_eq!(probes.lost(), 0);
    assert_eq!(probes.interval_ns(), 250_000_000);
    assert_eq!(probes.rows[0].sent_ns, 1_700_016_382_480_000_000);
}

#[test]
fn what_makes_no_sense_is_named() {
    assert_eq!(read_ping("hello\n", None), Err(PingError::NoAnswers));
    assert_eq!(read_ping("", None), Err(PingError::NoAnswers));
    let text = "64 bytes from a: icmp_seq=1 ttl=64 time=1.00 ms\n\
        64 bytes from a: icmp_seq=99999999999 ttl=64 time=1.00 ms\n\
        64 bytes from a: icmp_seq=2 ttl=64 time=fast\n\
        64 bytes from a: icmp_seq=3 ttl=64 time=1.0";
    let probes = read_ping(text, Some(1)).unwrap();
    assert_eq!(rtts(&probes), [Some(1_000_000), None, Some(1_000_000)]);
    assert!(probes.notes[0].starts_with("line 2 is not read: sequence number 99999999999"), "{:?}", probes.notes);
    assert!(probes.notes[1].starts_with("line 3 is not read"), "{:?}", probes.notes);
}

proptest! {
    /// Cut anywhere, whole lines are read.
    #[test]
    fn cut_in_the_middle(end in 0..IPUTILS.len()) {
        let whole = read_ping(IPUTILS, Some(1_000)).unwrap();
        if let Ok(cut) = read_ping(&IPUTILS[..end], Some(1_000)) {
            prop_assert!(cut.rows.len() <= whole.rows.len());
            let last = IPUTILS[..end].rfind('\n').unwrap_or(0);
            if let Ok(lines) = read_ping(&IPUTILS[..last], Some(1_000)) {
                let answered = |probes: &Probes| probes.rows.iter().filter(|row| row.rtt_ns.is_some()).count();
                prop_assert!(answered(&cut) >= answered(&lines));
            }
        }
    }

    #[test]
    fn no_text_panics(
        words in proptest::collection::vec(
            prop_oneof![
                Just("64 bytes from a: ".to_owned()), Just("icmp_seq=".into()), Just("time=".into()), Just("\n".into()),
                Just("PING a ".into()), Just(" packets transmitted, time ".into()), Just("ms\n".into()), Just("[".into()),
                Just("]".into()), any::<u64>().prop_map(|n| n.to_string()), any::<f64>().prop_map(|x| x.to_string()), ".{0,4}",
            ],
            0..60,
        )
    ) {
        let text = words.concat();
        if let Ok(probes) = read_ping(&text, None) {
            prop_assert!(probes.rows.len() <= longhaul_profile::probes_most(text.len() as u64));
        }
    }
}

/// Some lines that say to be far apart are no reason for millions of losses between them.
#[test]
fn losses_are_bounded_by_what_there_is() {
    let answer = |sequence: u64| format!("64 bytes from 192.0.2.1: icmp_seq={sequence} ttl=64 time=20.0 ms\n");
    let apart: String = (0..20).map(|line| answer(1 + line * (1 << 20))).collect();
    let probes = read_ping(&apart, None).unwrap();
    assert!(probes.rows.len() <= 1 << 20, "{}", probes.rows.len());
    assert!(probes.notes.iter().any(|note| note.contains("out of place")), "{:?}", probes.notes);
    // A day of one a second, of which nothing arrived.
    let outage = answer(1) + &answer(86_401);
    assert_eq!(read_ping(&outage, None).unwrap().rows.len(), 86_401);
    let endless = answer(u64::MAX) + &answer(1) + &answer(u64::MAX - 1);
    assert_eq!(read_ping(&endless, None).unwrap().rows.len(), 1);
    let stamps = "[9223372036.0] 64 bytes from a: icmp_seq=1 ttl=64 time=20.0 ms\n\
        [-9223372036.0] 64 bytes from a: icmp_seq=2 ttl=64 time=20.0 ms\n";
    assert_eq!(read_ping(stamps, None).unwrap().rows.len(), 2);
}
