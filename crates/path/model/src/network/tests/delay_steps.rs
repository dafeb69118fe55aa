//! A hop whose delay steps.

use super::*;

/// From 50 ms on the way takes 30 ms instead of 10, from 100 ms to 150 ms 1 ms: a shorter one lets no packet overtake, it waits for the one
/// before.
#[test]
fn delay_steps_keep_the_order() {
    let ms = Nanos::from_millis;
    let step = |at, delay, lasting: Option<u64>| DelayStep {
        at: ms(at),
        delay: ms(delay),
        lasting: lasting.map(ms),
        every: None,
    };
    let delay_steps = DelaySteps::At(vec![step(50, 30, None), step(100, 1, Some(50))]);
    let mut network = Network::new(&path(vec![HopSpec { delay_steps, ..delay(10) }]), Options::default());
    for ms in 0..200 {
        network.arrive(Nanos::from_millis(ms), CLIENT, Destination::Port(SERVER), single(100), ms);
    }
    let due: Vec<(u64, u64)> = drain(&mut network).iter().map(|r| (r.token, r.due.0 / 1_000_000)).collect();
    let want = |ms: u64| match ms {
        0..50 => ms + 10,
        50..100 | 150.. => ms + 30,
        _ => (ms + 1).max(99 + 30),
    };
    assert_eq!(due, (0..200).map(|ms| (ms, want(ms))).collect::<Vec<_>>());
}
