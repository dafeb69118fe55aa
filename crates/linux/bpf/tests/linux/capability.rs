//! What works here, what is said where it does not, and what is refused.

use std::process::Command;

use longhaul_bpf::BpfError;
use longhaul_bpf::drops::{DropOptions, Drops, Flow, MAX_FLOWS};
use longhaul_bpf::symbols::Symbols;
use longhaul_kernel::capability::is_root_in_namespace;

use crate::child_of_this_test;
use crate::hosts::{RECEIVER_IP, Watch, watched_hosts};
use crate::sockets::receive_all;

/// Loads and attaches the program, as a test would.
fn probe() -> Result<Drops, BpfError> {
    Drops::attach(&[Flow { port: 0, cookie: 0 }], &DropOptions { ring_bytes: 1 << 16, ..DropOptions::default() })
}

#[test]
fn what_works_here() {
    match probe() {
        Ok(_) => assert!(!Symbols::read().unwrap().is_empty()),
        Err(error @ (BpfError::Load { .. } | BpfError::Step { .. })) => panic!("{error}"),
        Err(error) => longhaul_testing::skipped!("{error}"),
    }
}

#[test]
fn root_of_a_user_namespace_is_told_what_is_missing() {
    let child = child_of_this_test("capability::probes_in_a_user_namespace");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(child.get_program())
        .args(child.get_args())
        .env("LONGHAUL_TEST_USER", "1")
        .output();
    match output {
        Ok(output) if output.stdout.is_empty() => {
            longhaul_testing::skipped!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => longhaul_testing::no_judge!("unshare: {error}"),
    }
}

#[test]
#[ignore = "the child of a test"]
fn probes_in_a_user_namespace() {
    if std::env::var_os("LONGHAUL_TEST_USER").is_none() {
        return;
    }
    match probe() {
        Err(BpfError::Denied { missing }) => assert!(missing.contains("user namespace"), "{missing}"),
        Err(BpfError::NoBtf { .. } | BpfError::NoDropReason) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_is_refused() {
    if !is_root_in_namespace() {
        return longhaul_testing::no_judge!("run as root");
    }
    let attach = |flows: &[Flow], ring_bytes| {
        Drops::attach(flows, &DropOptions { ring_bytes, ..DropOptions::default() }).map(drop)
    };
    let flow = Flow { port: 1, cookie: 2 };
    let many: Vec<_> = (0..=MAX_FLOWS as u32).map(|cookie| Flow { port: 1, cookie }).collect();
    assert!(matches!(attach(&[], 1 << 16), Err(BpfError::Flows { given: 0, .. })));
    assert!(matches!(attach(&many, 1 << 16), Err(BpfError::Flows { .. })));
    for bytes in [0, 100, 2048, 5000, (1 << 20) + 1] {
        assert!(matches!(attach(&[flow], bytes), Err(BpfError::RingSize { .. })), "{bytes}");
    }
    assert!(matches!(attach(&many[..MAX_FLOWS], 4096), Ok(()) | Err(BpfError::Denied { .. } | BpfError::NoBtf { .. })));
}

#[test]
fn a_full_ring_is_told() {
    let Some((hosts, _)) = watched_hosts() else { return };
    let Some(mut watch) = Watch::with(&hosts, &DropOptions { ring_bytes: 4096, ..DropOptions::default() }) else {
        return;
    };
    let sending = hosts.sending();
    for sequence in 0..200 {
        let _ = sending.send(&hosts.payload(sequence, 100)).or_else(|_| sending.send(&hosts.payload(sequence, 100)));
    }
    let told = watch.look().len() as u64;
    let (lost, unrecorded) = (watch.drops.lost().unwrap(), watch.drops.unrecorded().unwrap());
    println!("{told} told, {unrecorded:?}, {lost:?}");
    // Each of the others is counted where it was dropped.
    let [one] = &unrecorded[..] else { panic!("{unrecorded:?}") };
    assert!(told > 20 && one.packets > 0 && told + one.packets == 200, "{told} {one:?}");
    assert_eq!((lost.packets, one.units, one.cookie), (0, one.packets, hosts.flow.cookie));
    assert_eq!(watch.drops.reason_names().name(one.reason), watch.seen[0].reason);
}

#[test]
fn foreign_packets_are_not_told_of() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let (other_port, other_cookie) = (hosts.flow.port + 10_000, hosts.flow.cookie ^ 0x100);
    let sending = hosts.sending();
    // Another cookie to the same port, the same cookie to another port, too short, and one that is ours.
    let foreign =
        longhaul_wire::probe::Probe { cookie: longhaul_wire::probe::Cookie(other_cookie), sequence: 1, sent_ns: 0 };
    let mut payload = [0; 40];
    foreign.emit(&mut payload).unwrap();
    for bytes in [&payload[..], &hosts.payload(2, 40)[..9], &[]] {
        let _ = sending.send(bytes).or_else(|_| sending.send(bytes));
    }
    let elsewhere = hosts.sending();
    elsewhere.connect((RECEIVER_IP, other_port)).unwrap();
    elsewhere.send(&hosts.payload(3, 40)).unwrap();
    let _ = sending.send(&hosts.payload(4, 40)).or_else(|_| sending.send(&hosts.payload(4, 40)));
    let seen = watch.until(1).to_vec();
    assert_eq!(seen.iter().flat_map(|seen| seen.sequences.clone()).collect::<Vec<_>>(), [4], "{seen:?}");
    assert_eq!(watch.drops.lost().unwrap().unread_packets, 0);
    assert!(receive_all(&hosts.receiving(RECEIVER_IP)).is_empty());
}
