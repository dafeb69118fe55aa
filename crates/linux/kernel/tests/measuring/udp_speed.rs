//! How fast it is: `cargo test --release -p longhaul-kernel --test measuring -- --ignored --nocapture speed`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::schedule::pin_to;
use longhaul_kernel::udp::{ReceiveSlots, ReceiverOptions, SendBatch, SenderOptions, TimestampMode};
use longhaul_units::Nanos;

use crate::cable::unprivileged;
use crate::pair::Pair;

const SPAN: Nanos = Nanos::from_secs(3);

#[test]
#[ignore = "a measurement"]
fn speed() {
    if unprivileged() {
        return;
    }
    for (bytes, singly, gro) in [(1448, false, true), (18, false, true), (1448, true, false), (18, true, false)] {
        for timestamps in [TimestampMode::App, TimestampMode::Kernel] {
            measure(bytes, singly, gro, timestamps);
        }
    }
}

fn measure(bytes: usize, singly: bool, gro: bool, timestamps: TimestampMode) {
    let receiving =
        ReceiverOptions { receive_buffer_bytes: Some(32 << 20), gro, timestamps, ..ReceiverOptions::default() };
    let sending = SenderOptions { send_buffer_bytes: Some(4 << 20), ..SenderOptions::default() };
    let pair = Pair::v4(sending, receiving);
    let done = AtomicBool::new(false);
    let (sent, refused, received, last_sequence, elapsed) = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            pin_to(&[1]).unwrap();
            let mut slots = if gro { ReceiveSlots::new(8, 65_536, false) } else { ReceiveSlots::new(64, 2_048, false) };
            let (mut received, mut last) = (0_u64, 0);
            loop {
                let deadline = monotonic() + Nanos::from_millis(50);
                if pair.receiver.receive_until(&mut slots, deadline).unwrap() == 0 && done.load(Ordering::Relaxed) {
                    return (received, last);
                }
                for packet in slots.packets() {
                    for datagram in packet.segments() {
                        received += 1;
                        last = u64::from_be_bytes(datagram[..8].try_into().unwrap());
                    }
                }
            }
        });
        let sender = scope.spawn(|| {
            pin_to(&[0]).unwrap();
            let count = if singly { 32 } else { pair.sender.segments_most(bytes) };
            let mut batch = SendBatch::new(count, bytes);
            let (mut next, mut refused, start) = (0_u64, 0_u64, monotonic());
            while monotonic().saturating_sub(start) < SPAN {
                for datagram in batch.datagrams_mut() {
                    datagram[..8].copy_from_slice(&next.to_be_bytes());
                    next += 1;
                }
                let sent = if singly {
                    pair.sender.send_singly(&mut batch, 0..count, true)
                } else {
                    pair.sender.send_segments(batch.bytes(0..count), bytes, true)
                };
                refused += (count - sent.datagrams) as u64;
            }
            let elapsed = monotonic().saturating_sub(start);
            done.store(true, Ordering::Relaxed);
            (next, refused, elapsed)
        });
        let (sent, refused, elapsed) = sender.join().unwrap();
        let (received, last) = receiver.join().unwrap();
        (sent, refused, received, last, elapsed)
    });
    let seconds = elapsed.as_secs_f64();
    let rate = received as f64 / seconds;
    println!(
        "{bytes} B {} {timestamps:?}: {:.2} M packets/s, {:.2} Gb/s of payload, sent {sent}, refused {refused}, lost {} \
         (socket {}), last {last_sequence}",
        if singly { "singly" } else { "in super-packets" },
        rate / 1e6,
        rate * bytes as f64 * 8.0 / 1e9,
        sent - received,
        pair.receiver.memory().unwrap().drops,
    );
}
