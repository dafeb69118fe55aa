//! Super-packets: one event has the sequence number of each wire packet in it, read one by one.

use std::fs;

use longhaul_bpf::drops::DropOptions;
use longhaul_kernel::ethtool;
use longhaul_kernel::mounts::{fresh_sysfs, private_mounts};
use longhaul_result::Location;
use nix::sys::socket::{setsockopt, sockopt};

use crate::filters::run;
use crate::hosts::{Hosts, RECEIVER_IP, RECEIVER_LINK, Watch, watched_hosts};

/// The receiver drops the flow as it comes: super-packets are still whole there.
fn dropping_at_input(hosts: &Hosts) -> bool {
    run(&hosts.receiver, "nft add table inet t")
        && run(&hosts.receiver, "nft add chain inet t c { type filter hook input priority 0 ; }")
        && run(&hosts.receiver, &format!("nft add rule inet t c udp dport {} drop", hosts.flow.port))
}

#[test]
fn a_batch_of_the_sender_is_one_drop() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    if !dropping_at_input(&hosts) {
        return;
    }
    for (ip, segment) in [(RECEIVER_IP.into(), 1448), (RECEIVER_IP.into(), 18), (Hosts::receiver_ipv6(), 1400)] {
        watch.seen.clear();
        let sending = hosts.sending_to(ip);
        setsockopt(&sending, sockopt::UdpGsoSegment, &segment).unwrap();
        // With holes, so that "first + n" would be wrong; the last segment is shorter.
        let sequences: Vec<u64> = (0..44).map(|n| (1 << 40) + n * n).collect();
        let mut batch = hosts.batch(sequences.iter().copied(), segment as usize);
        batch.truncate(batch.len() - (segment as usize - 18));
        sending.send(&batch).unwrap();
        let seen = watch.until(44);
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!((seen[0].unit_packets, seen[0].super_packet), (44, true));
        watch.print("UDP_SEGMENT");
        assert!(watch.at(Location::ReceiverFilter).into_iter().eq(sequences));
    }
    assert_eq!(watch.drops.lost().unwrap().unread_packets, 0);
}

#[test]
fn the_kernels_largest_batch() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    if !dropping_at_input(&hosts) {
        return;
    }
    let sending = hosts.sending();
    setsockopt(&sending, sockopt::UdpGsoSegment, &500).unwrap();
    // UDP_MAX_SEGMENTS, or 64 before Linux 6.9.
    let most = [128, 64].into_iter().find(|most| sending.send(&hosts.batch(0..*most, 500)).is_ok()).unwrap();
    let seen = watch.until(most as usize);
    // An event lists MAX_SEQUENCES, and another one the rest.
    let events: Vec<_> = seen.iter().map(|seen| (seen.sequences.len(), seen.unit_packets, seen.continued)).collect();
    let expected = [(64, most as u32, false), (64, most as u32, true)];
    assert_eq!(events, expected[..most as usize / 64]);
    assert!(watch.at(Location::ReceiverFilter).into_iter().eq(0..most));
}

#[test]
fn without_paged_payload_a_batch_is_counted() {
    let Some((hosts, _)) = watched_hosts() else { return };
    if !dropping_at_input(&hosts) {
        return;
    }
    let Some(mut watch) = Watch::with(&hosts, &DropOptions { paged_payload: false, ..DropOptions::default() }) else {
        return;
    };
    let sending = hosts.sending();
    sending.send(&hosts.payload(7, 1000)).unwrap();
    setsockopt(&sending, sockopt::UdpGsoSegment, &1000).unwrap();
    sending.send(&hosts.batch(8..48, 1000)).unwrap();
    watch.until(1);
    let lost = watch.drops.lost().unwrap();
    println!("without paged payload: {lost:?}, {:?}", watch.seen);
    assert!(watch.at(Location::ReceiverFilter).contains(&7), "linear payload is read all the same");
    assert!(lost.unread_packets > 0 || watch.at(Location::ReceiverFilter).len() == 41);
}

#[test]
fn what_gro_built_has_gaps() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let held = hosts.receiver.enter(|| {
        ethtool::set_features(RECEIVER_LINK, &[("rx-gro", true), ("rx-udp-gro-forwarding", true)])
            .map_err(|error| error.to_string())?;
        private_mounts().and_then(|()| fresh_sysfs()).map_err(|error| error.to_string())?;
        for (file, value) in [("napi_defer_hard_irqs", "10"), ("gro_flush_timeout", "20000000")] {
            let path = format!("/sys/class/net/{RECEIVER_LINK}/{file}");
            fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok::<(), String>(())
    });
    if let Err(why) = held.unwrap() {
        return longhaul_testing::skipped!("{why}");
    }
    let socket = hosts.receiving(RECEIVER_IP);
    setsockopt(&socket, sockopt::UdpGroSegment, &true).unwrap();
    setsockopt(&socket, sockopt::RcvBuf, &4096).unwrap();
    let sending = hosts.sending();
    let sequences: Vec<u64> = (0..200).map(|n| n * 3 + n % 2).collect();
    for sequence in &sequences {
        sending.send(&hosts.payload(*sequence, 700)).unwrap();
    }
    watch.until(100);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let seen = watch.look().to_vec();
    watch.print("UDP_GRO");
    assert!(seen.iter().any(|seen| seen.super_packet && seen.unit_packets > 1), "GRO built nothing: {seen:?}");
    assert!(seen.iter().all(|seen| seen.sequences.len() == seen.unit_packets as usize));
    // What arrived and what was dropped is what was sent.
    socket.set_nonblocking(true).unwrap();
    let mut all = watch.at(Location::ReceiverSocketBuffer);
    let mut buffer = vec![0; 1 << 16];
    while let Ok(bytes) = socket.recv(&mut buffer) {
        for segment in buffer[..bytes].chunks(700) {
            assert!(all.insert(longhaul_wire::probe::Probe::parse(segment).unwrap().sequence));
        }
    }
    assert!(all.into_iter().eq(sequences));
}
