//! The cost of accounting: time for each packet, and memory. `cargo test --release -p longhaul-udp --test cost -- --nocapture`
//! prints it.
//!
//! Unoptimised code is not timed: then the tests run at a tenth of the size with the same density. Memory scales with the number of
//! sequences (8 KiB for each 65,536 where one in ten is lost).

use std::sync::Mutex;

use longhaul_udp::account::SequenceTracker;
use longhaul_units::Nanos;

/// One test at a time: the tests share a process, and its memory is measured.
static ALONE: Mutex<()> = Mutex::new(());

const OPTIMISED: bool = !cfg!(debug_assertions);

fn packets() -> u64 {
    if OPTIMISED { 100_000_000 } else { 10_000_000 }
}

/// Resident memory of this process, bytes (proc(5), `statm`).
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// CPU time of this thread, nanoseconds (proc(5), `schedstat`): other threads of the machine do not count.
fn cpu_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// Runs `work` over `packets`. Prints and returns CPU time for each packet, and the growth of memory while the result is still
/// held.
fn measure<T>(name: &str, packets: u64, work: impl FnOnce() -> T) -> (f64, usize, T) {
    let before = resident_bytes();
    let began = cpu_ns();
    let result = work();
    let each_ns = (cpu_ns() - began) as f64 / packets as f64;
    let bytes = resident_bytes().saturating_sub(before);
    println!("{name}: {packets} packets, {each_ns:.2} ns each, {:.1} MB more memory", bytes as f64 / 1e6);
    (each_ns, bytes, result)
}

/// A cheap random number (xorshift64*), so that its cost does not matter.
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

#[test]
fn a_hundred_million_packets_with_one_in_ten_lost() {
    let _alone = ALONE.lock();
    let count = packets();
    let (_, bytes, tracker) = measure("one in ten lost", count, || {
        let mut tracker = SequenceTracker::new(1 << 32, true);
        let mut state = 1;
        for sequence in 0..count {
            if random(&mut state) >> 32 >= (1 << 32) / 10 {
                tracker.receive(sequence, Nanos(sequence * 100 + 7), Nanos(sequence * 100));
            }
        }
        tracker
    });
    // 12.5 MB and 0.4 MB of gaps; the bound is 64 MB for 100 million.
    for bytes in [bytes, tracker.heap_bytes()] {
        assert!((bytes as u64 - 1_000_000) * (100_000_000 / count) < 20_000_000, "{bytes} bytes");
    }
    let (_, bytes, received) = measure("its loss map", count, || tracker.finish(count));
    let lost = received.losses.lost_packets();
    assert!(lost.abs_diff(count / 10) < count / 100);
    assert_eq!(received.counts.received_packets + lost, count);
    let runs = received.losses.runs().count();
    // Its bytes and what the growing list held before.
    assert!(bytes < 6 * runs, "{bytes} bytes more");
    let (_, _, text) = measure("its report as text", count, || serde_json::to_string(&received).unwrap());
    println!("{runs} runs, {:.1} MB of text", text.len() as f64 / 1e6);
    assert!(text.len() < 4 * runs, "{} bytes", text.len());
}

#[test]
fn packets_in_order_cost_a_few_nanoseconds() {
    let _alone = ALONE.lock();
    let count = packets();
    let mut best_ns = f64::MAX;
    for (name, stamped_each) in [("in order", false), ("in order, with jitter", true)] {
        let (each_ns, bytes, tracker) = measure(name, count, || {
            let mut tracker = SequenceTracker::new(1 << 32, stamped_each);
            for sequence in 0..count {
                tracker.receive(std::hint::black_box(sequence), Nanos(sequence * 100 + 7), Nanos(sequence * 100));
            }
            tracker
        });
        best_ns = best_ns.min(each_ns);
        assert!(bytes < 1_000_000, "{bytes} bytes for nothing lost");
        assert_eq!(tracker.counts().received_packets, count);
    }
    // 9 to 15 ns are measured, 5 of which are for the times between arrivals. At 10 Gb/s a full-size packet comes every 1,200 ns.
    // On a machine whose cores share caches and clock with others it takes longer.
    assert!(!OPTIMISED || best_ns < 30.0, "{best_ns} ns");

    let (_, _, tracker) = measure("in batches of 45", count, || {
        let mut tracker = SequenceTracker::new(1 << 32, false);
        for first in (0..count).step_by(45) {
            tracker.receive_run(std::hint::black_box(first), 45, Nanos(first));
        }
        tracker
    });
    assert!(tracker.counts().received_packets >= count);
}

/// A thousand million packets, a few lost: memory holds the exceptions only.
#[test]
fn a_thousand_million_packets() {
    let _alone = ALONE.lock();
    let count = packets() * 10;
    let (_, bytes, received) = measure("one in 4500 lost, in batches of 45", count, || {
        let mut tracker = SequenceTracker::new(1 << 32, false);
        for first in (0..count).step_by(45) {
            let lost = u32::from(first % 4_500 == 0);
            tracker.receive_run(first + u64::from(lost), 45 - lost, Nanos(first));
        }
        tracker.finish(count)
    });
    assert!(received.losses.lost_packets() >= count / 4_500);
    assert!(bytes < 8_000_000, "{bytes} bytes");
}
