//! Counters change by just what happened.

use std::net::SocketAddr;

use longhaul_kernel::counters::{Change, Scope, Snapshot};
use longhaul_kernel::ethtool::set_features;
use longhaul_kernel::mounts::{fresh_sysfs, private_mounts};
use longhaul_kernel::udp::{ReceiveSlots, ReceiverOptions, SenderOptions, UdpSendError, UdpSender};
use longhaul_units::Nanos;

use crate::cable::{RIGHT_IP, unprivileged};
use crate::pair::{Pair, receive_numbered, roomy, send_numbered};
use crate::udp_loss::tc;

fn change_of(changes: &[Change], name: &str) -> i64 {
    let found: Vec<&Change> = changes.iter().filter(|c| c.scope == Scope::Namespace && c.name == name).collect();
    found.first().map_or(0, |change| change.by)
}

#[test]
fn socket_drops_and_closed_ports_are_counted_exactly() {
    if unprivileged() {
        return;
    }
    const COUNT: u64 = 1_000;
    let options = ReceiverOptions { receive_buffer_bytes: Some(8_192), gro: false, ..ReceiverOptions::default() };
    let pair = Pair::v4(SenderOptions::default(), options);
    let closed = SocketAddr::new(RIGHT_IP.into(), 9);
    let astray =
        pair.cable.left.enter(|| UdpSender::connect(None, closed, &SenderOptions::default())).unwrap().unwrap();
    let take = || pair.cable.right.enter(Snapshot::take).unwrap();

    let before = take();
    send_numbered(&pair.sender, 0, COUNT, 500, true);
    astray.send(b"nobody", true).unwrap();
    let mut slots = ReceiveSlots::new(64, 2_048, false);
    let received = receive_numbered(&pair.receiver, &mut slots, usize::MAX, Nanos::from_millis(300)).len() as i64;
    let after = take();
    let changes = after.since(&before);

    let drops = i64::from(pair.receiver.memory().unwrap().drops);
    assert!(drops > 0);
    assert_eq!(received + drops, COUNT as i64);
    assert_eq!(change_of(&changes, "Udp.RcvbufErrors"), drops, "{changes:?}");
    assert_eq!(change_of(&changes, "Udp.InErrors"), drops);
    assert_eq!(change_of(&changes, "Udp.InDatagrams"), received);
    assert_eq!(change_of(&changes, "Udp.NoPorts"), 1);
    assert!(changes.iter().all(|change| change.by != 0 && change.doubt.is_none()), "{changes:?}");
    let link = Scope::Interface { interface: "lhk-r".into() };
    let packets = changes.iter().find(|change| change.scope == link && change.name == "rx_packets").unwrap();
    assert_eq!(packets.by, COUNT as i64 + 1);
    let driver = Scope::Driver { interface: "lhk-r".into(), driver: "veth".into() };
    assert!(after.value(&driver, "rx_queue_0_drops").is_some(), "{:?}", after.unread);
    assert_eq!(take().since(&take()).iter().filter(|change| change.scope == Scope::Namespace).count(), 0);
}

#[test]
fn drops_at_a_queue_are_the_qdiscs() {
    if unprivileged() {
        return;
    }
    let pair = Pair::v4(SenderOptions { report_drops: true, ..SenderOptions::default() }, roomy());
    if let Err(reason) = tc(&pair, "tbf rate 1mbit burst 5kb limit 6kb") {
        longhaul_testing::skipped!("{reason}");
        return;
    }
    let take = || pair.cable.left.enter(Snapshot::take).unwrap();
    let before = take();
    let refused = (0..100).filter(|_| pair.sender.send(&[1; 1_000], true).is_err()).count() as i64;
    let changes = take().since(&before);
    let qdisc = |change: &&Change| matches!(&change.scope, Scope::Qdisc { kind, parent, .. } if kind == "tbf" && parent == "root");
    let drops = changes.iter().filter(qdisc).find(|change| change.name == "drops").unwrap();
    assert!(refused > 0);
    assert_eq!(drops.by, refused, "{changes:?}");
    assert_eq!(change_of(&changes, "Udp.SndbufErrors"), refused);
    assert!(
        changes.iter().all(|change| !matches!(&change.scope, Scope::Interface { interface } if interface != "lhk-l"))
    );
}

/// The one place where a veth's full ring shows. See `crates/linux/kernel/tests/linux/full_port.rs` for how it fills.
#[test]
fn a_full_veth_ring_is_the_near_ends_tx_dropped() {
    if unprivileged() {
        return;
    }
    // What waits in the ring counts against the sender's buffer.
    let pair = Pair::v4(SenderOptions { send_buffer_bytes: Some(4 << 20), ..SenderOptions::default() }, roomy());
    let tso =
        ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation"];
    pair.cable.left.enter(|| set_features("lhk-l", &tso.map(|name| (name, false)))).unwrap().unwrap();
    let held = pair.cable.right.enter(|| {
        set_features("lhk-r", &[("rx-gro", true)]).map_err(|error| error.to_string())?;
        private_mounts().and_then(|()| fresh_sysfs()).map_err(|error| error.to_string())?;
        for (file, value) in [("napi_defer_hard_irqs", "1000"), ("gro_flush_timeout", "10000000000")] {
            let path = format!("/sys/class/net/lhk-r/{file}");
            std::fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok::<(), String>(())
    });
    if let Err(why) = held.unwrap() {
        longhaul_testing::skipped!("{why}");
        return;
    }
    let near = || pair.cable.left.enter(Snapshot::take).unwrap();
    let far = || pair.cable.right.enter(Snapshot::take).unwrap();
    let before = (near(), far());
    let errors: Vec<UdpSendError> = (0..600).filter_map(|_| pair.sender.send(&[1; 100], true).err()).collect();
    assert!(!errors.is_empty(), "the ring never filled");
    assert!(errors.iter().all(|error| matches!(error, UdpSendError::NoBuffers)), "{errors:?}");
    let (near, far) = (near().since(&before.0), far().since(&before.1));
    let link = Scope::Interface { interface: "lhk-l".into() };
    let dropped = near.iter().find(|change| change.scope == link && change.name == "tx_dropped").unwrap();
    assert_eq!(dropped.by, errors.len() as i64);
    assert!(!far.iter().any(|change| change.name.contains("drop")), "{far:?}");
}

#[test]
fn a_snapshot_without_rights_reads_what_it_may() {
    let began = longhaul_kernel::clock::monotonic();
    let snapshot = Snapshot::take();
    assert!(snapshot.value(&Scope::Namespace, "Udp.InDatagrams").is_some());
    assert!(snapshot.value(&Scope::Interface { interface: "lo".into() }, "rx_packets").is_some());
    assert!(snapshot.values().any(|(scope, name, _)| matches!(scope, Scope::MachineCpu { .. }) && name == "dropped"));
    assert!(snapshot.ended_at.saturating_sub(began) < Nanos::from_secs(1));
    let names: Vec<&str> = snapshot.unread.iter().map(|unread| unread.what.as_str()).collect();
    println!("{} counters, unread: {names:?}", snapshot.values().count());
    let json = serde_json::to_value(snapshot.since(&Snapshot::default())).unwrap();
    assert!(json[0]["scope"]["of"] == "namespace" && json[0]["by"].is_i64(), "{}", json[0]);
}
