//! What is lost in a socket's buffer, or on the way out, is told.

use std::process::Command;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::udp::{ReceiveSlots, ReceiverOptions, SendBatch, SenderOptions, UdpSendError, Unsent};
use longhaul_units::Nanos;

use crate::cable::unprivileged;
use crate::pair::{Pair, receive_numbered, roomy, send_numbered};

#[test]
fn a_small_buffer_drops_and_counts_each_datagram() {
    if unprivileged() {
        return;
    }
    const COUNT: u64 = 2_000;
    let options = ReceiverOptions { receive_buffer_bytes: Some(8_192), gro: false, ..ReceiverOptions::default() };
    let pair = Pair::v4(SenderOptions::default(), options);
    send_numbered(&pair.sender, 0, COUNT, 1_000, true);
    // The last is through the stack when the socket has seen as many as were sent.
    let mut slots = ReceiveSlots::new(64, 2_048, false);
    let mut numbers = receive_numbered(&pair.receiver, &mut slots, usize::MAX, Nanos::from_millis(300));
    let drops = pair.receiver.memory().unwrap().drops;
    assert!(drops > 0);
    assert_eq!(numbers.len() as u64 + u64::from(drops), COUNT);
    // What is received next says how many were dropped before it.
    send_numbered(&pair.sender, COUNT, 1, 1_000, true);
    assert_eq!(pair.receiver.receive_until(&mut slots, monotonic() + Nanos::from_secs(5)).unwrap(), 1);
    assert_eq!(slots.packets().next().unwrap().dropped_before, drops);
    numbers.sort_unstable();
    assert!(numbers.is_sorted_by(|a, b| a < b), "no datagram comes twice");
}

#[test]
fn with_gro_a_super_packet_is_one_drop() {
    if unprivileged() {
        return;
    }
    let options = ReceiverOptions { receive_buffer_bytes: Some(100_000), ..ReceiverOptions::default() };
    let pair = Pair::v4(SenderOptions::default(), options);
    let datagrams = pair.sender.segments_most(1_000) as u64;
    send_numbered(&pair.sender, 0, 50 * datagrams, 1_000, false);
    let mut slots = ReceiveSlots::new(8, 65_536, false);
    let numbers = receive_numbered(&pair.receiver, &mut slots, usize::MAX, Nanos::from_millis(300));
    let drops = u64::from(pair.receiver.memory().unwrap().drops);
    assert!(drops > 0);
    assert_eq!(numbers.len() as u64 + drops * datagrams, 50 * datagrams);
}

#[test]
fn a_full_send_buffer_is_no_loss() {
    if unprivileged() {
        return;
    }
    let sending = SenderOptions { send_buffer_bytes: Some(8_192), ..SenderOptions::default() };
    let pair = Pair::v4(sending, roomy());
    // A queue that lets nothing out for a while holds what was sent.
    if let Err(reason) = tc(&pair, "tbf rate 1mbit burst 5kb limit 10mb") {
        longhaul_testing::skipped!("{reason}");
        return;
    }
    let blocked = (0..1_000).find_map(|_| pair.sender.send(&[1; 1_000], false).err());
    assert!(matches!(blocked, Some(UdpSendError::WouldBlock)), "{blocked:?}");
    let memory = pair.sender.memory().unwrap();
    assert!(memory.send_used_bytes >= memory.send_buffer_bytes, "{memory:?}");
    // A sender that waits gets through, one datagram every 8 ms.
    pair.sender.send(&[1; 1_000], true).unwrap();
}

#[test]
fn a_full_queue_is_told_if_asked_for() {
    if unprivileged() {
        return;
    }
    for report_drops in [true, false] {
        let sending = SenderOptions { report_drops, send_buffer_bytes: Some(1 << 20), ..SenderOptions::default() };
        let pair = Pair::v4(sending, roomy());
        if let Err(reason) = tc(&pair, "tbf rate 1mbit burst 5kb limit 6kb") {
            longhaul_testing::skipped!("{reason}");
            return;
        }
        let errors: Vec<UdpSendError> = (0..100).filter_map(|_| pair.sender.send(&[1; 1_000], true).err()).collect();
        if report_drops {
            assert!(errors.len() > 50, "{errors:?}");
            assert!(errors.iter().all(|error| matches!(error, UdpSendError::NoBuffers)), "{errors:?}");
            assert!(errors.iter().all(|error| !error.may_retry()));
        } else {
            assert!(errors.is_empty(), "{errors:?}");
        }
    }
}

#[test]
fn a_packet_filter_on_output_is_told() {
    if unprivileged() {
        return;
    }
    let pair = Pair::v4(SenderOptions::default(), roomy());
    let rules = "table ip t { chain out { type filter hook output priority 0; udp dport 5210 drop; }; }";
    let nft = pair.cable.left.enter(|| Command::new("nft").arg(rules).output()).unwrap();
    let output = match nft {
        Ok(output) => output,
        Err(error) => return longhaul_testing::no_judge!("nft: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("not supported") {
        return longhaul_testing::skipped!("this kernel has no nf_tables: {}", said.trim());
    }
    assert!(output.status.success(), "{said}");
    let sent = pair.sender.send_segments(&[1; 3_000], 1_000, true);
    assert!(matches!(sent.unsent, Some(Unsent::Because(UdpSendError::Denied))), "{sent:?}");
    // In a batch the first is told, as nothing was sent before it.
    let mut batch = SendBatch::new(4, 100);
    let sent = pair.sender.send_singly(&mut batch, 0..4, true);
    assert!(sent.datagrams == 0 && matches!(sent.unsent, Some(Unsent::Because(UdpSendError::Denied))), "{sent:?}");
}

/// Puts a queueing discipline on the sender's link.
pub(crate) fn tc(pair: &Pair, qdisc: &str) -> Result<(), String> {
    let mut arguments = vec!["qdisc", "replace", "dev", "lhk-l", "root"];
    arguments.extend(qdisc.split(' '));
    let run = || Command::new("tc").args(&arguments).output();
    let output = pair.cable.left.enter(run).unwrap().map_err(|error| format!("tc: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("tc: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
