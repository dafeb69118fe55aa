//! Changing a path that carries traffic: nothing is lost, and what was asked is what one gets.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::datagrams::{Sink, Source};
use crate::common::{SERVER_V4, alone, assert_faithful, hop, lab, ping, set, settled, unprivileged};
use longhaul_kernel::clock::thread_cpu_time;
use longhaul_testing::waiting::until;
use longhaul_units::Nanos;

/// How much later than told a round trip may be on a busy machine.
const LATE_MOST: Duration = Duration::from_millis(10);

/// Sends 10,000 datagrams/s in batches of 10 until told to stop, while `meanwhile` runs with a function that waits until so
/// many more were sent. Gives how many it sent.
fn streaming(mut source: Source, meanwhile: impl FnOnce(&dyn Fn(u64) -> u64)) -> u64 {
    let stop = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                source.send(10);
                sent.store(source.next(), Ordering::Release);
                thread::sleep(Duration::from_millis(1));
            }
            source.next()
        });
        // A panic in here would otherwise wait for the sender for ever.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            meanwhile(&|more| {
                let wanted = sent.load(Ordering::Acquire) + more;
                until("the stream to go on", || sent.load(Ordering::Acquire) >= wanted);
                sent.load(Ordering::Acquire)
            });
        }));
        stop.store(true, Ordering::Release);
        let sent = sender.join().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent
    })
}

#[test]
fn changes_lose_nothing_and_take_effect() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let mut lab = lab("[[both]]\nrate = '1Gbit'\ndelay = '5ms'");
    let sink = Sink::new(&lab, "server", SERVER_V4);
    let source = Source::new(&lab, "client", SERVER_V4, 800, 10);
    let sent = streaming(source, |goes_on| {
        let changes: [(&[&str], u64); 13] = [
            (&["delay=20ms"], 40),
            (&["rate=200Mbit"], 40),
            (&["forward.coalesce=2ms"], 40),
            (&["rate=2Gbit"], 40),
            (&["delay=2ms"], 4),
            (&["forward.delay=30ms", "backward.delay=1ms"], 31),
            (&["coalesce=none"], 31),
            (&["delay=10ms", "jitter=normal(300us,free)"], 17),
            (&["jitter=none"], 20),
            (&["rate=none"], 20),
            (&["rate=500Mbit", "layer=L2"], 20),
            (&["queue=20000p"], 20),
            (&["client.delay=3ms", "server.delay=2ms"], 30),
        ];
        for (change, round_trip_ms) in changes {
            goes_on(100);
            set(&mut lab, change);
            goes_on(100);
            let nominal = Duration::from_millis(round_trip_ms);
            let least = ping(&lab, "client", SERVER_V4);
            println!("{change:?}: {least:.1?}");
            assert!(least >= nominal && least < nominal + LATE_MOST, "{change:?}: {least:?}, nominal {nominal:?}");
        }
    });
    let status = settled(&lab);
    assert_faithful(&status);
    let heard = sink.finish();
    heard.assert_complete(sent);
    assert_eq!((heard.duplicates(), heard.damaged), (0, 0));
}

/// To take memory takes long; whoever asks for the change waits for that, and the packets do not.
#[test]
fn a_change_that_takes_memory_stalls_nothing() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let mut lab = lab("[[both]]\nrate = '1Gbit'\nqueue = '1MiB'\ndelay = '5ms'");
    let sink = Sink::new(&lab, "server", SERVER_V4);
    let source = Source::new(&lab, "client", SERVER_V4, 800, 10);
    let sent = streaming(source, |goes_on| {
        goes_on(1_000);
        let (before, began, cpu_before) = (lab.status().unwrap(), Instant::now(), thread_cpu_time());
        set(&mut lab, &["forward.queue=600MiB"]);
        let (after, took, taking) = (lab.status().unwrap(), began.elapsed(), thread_cpu_time() - cpu_before);
        goes_on(1_000);
        let grown = [0, 1].map(|side| after.memory[side].capacity_bytes - before.memory[side].capacity_bytes);
        assert!(grown[0] > 590 << 20 && grown[1] == 0, "{grown:?}");
        let emulating = Nanos(after.cpu_ns - before.cpu_ns);
        let late = [before.lateness.max_ns, after.lateness.max_ns].map(Nanos);
        println!("{took:.1?} for {grown:?} bytes: {taking} of a CPU here, {emulating} there; latest by {late:?}");
        assert!(emulating.0 * 4 < taking.0, "the emulating thread worked {emulating}, the asking one {taking}");
    });
    assert_faithful(&settled(&lab));
    sink.finish().assert_complete(sent);
}

#[test]
fn loss_ends_when_it_is_told_to() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let mut lab =
        lab("[[forward]]\nrate = '1Gbit'\ndelay = '5ms'\nloss = { random = '30%' }\n[[backward]]\ndelay = '5ms'");
    let sink = Sink::new(&lab, "server", SERVER_V4);
    let source = Source::new(&lab, "client", SERVER_V4, 800, 10);
    let mut ended = 0;
    let sent = streaming(source, |goes_on| {
        goes_on(2_000);
        set(&mut lab, &["loss=none"]);
        // What was sent before this may have been under way to the emulator.
        ended = goes_on(1);
        goes_on(2_000);
    });
    let status = settled(&lab);
    assert_faithful(&status);
    let missing = sink.finish().missing(sent);
    assert_eq!(missing.len() as u64, hop(&status, "forward.hop1").counters.dropped_loss.packets);
    assert!(missing.len() > 400, "{} lost of 2,000 at 30 %", missing.len());
    let late: Vec<_> = missing.iter().filter(|&&number| number >= ended).collect();
    assert!(late.is_empty(), "lost after the loss had ended at {ended}: {late:?}");
}
