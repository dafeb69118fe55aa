//! An emulator with nothing to do sleeps, and one in real time rests before the kernel stops it.

use crate::common::{alone, lab_with, unprivileged};
use longhaul_kernel::schedule::{allowed_cpus, pin_to, realtime_share};
use longhaul_lab::LabSpec;
use longhaul_units::Nanos;

/// How often it is asked how it does.
const QUESTIONS: u64 = 500;

#[test]
fn a_question_wakes_the_emulator_once() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let cpus = allowed_cpus().unwrap()[..1].to_vec();
    // On one CPU, where the emulator gets to run before whoever woke it goes on.
    let lab = lab_with(LabSpec { cpus: cpus.clone(), ..LabSpec::default() }, "[[both]]\nrate = '1Gbit'\ndelay = '2ms'");
    pin_to(&cpus).unwrap();
    let before = lab.status().unwrap();
    (1..QUESTIONS).for_each(|_| drop(lab.status().unwrap()));
    let after = lab.status().unwrap();
    let passed = after.ports.iter().map(|port| port.received_frames).sum::<u64>();
    assert_eq!(passed, 0, "the path was not idle");
    let rounds = after.rounds - before.rounds;
    println!("{QUESTIONS} questions, {rounds} rounds");
    // As ports and the waker may become ready one after the other, a few more.
    assert!(rounds <= QUESTIONS * 5 / 4, "{QUESTIONS} questions, {rounds} rounds");
}

#[test]
fn in_real_time_it_rests_rather_than_be_stopped() {
    let _alone = alone();
    let share = realtime_share();
    if unprivileged() || share == 1.0 {
        return;
    }
    let path = "[[both]]\nrate = '1Gbit'\ndelay = '2ms'";
    let lab = lab_with(LabSpec { spin: true, realtime: Some(1), ..LabSpec::default() }, path);
    // The kernel looks at periods of a second.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let status = lab.status().unwrap();
    let (ran, rests) =
        (status.cpu_ns as f64 / status.uptime_ns as f64, status.sleeps as f64 * 1e9 / status.uptime_ns as f64);
    println!("ran {ran:.3} of the time, allowed {share}, {rests:.0} rests a second");
    assert!(ran < share, "ran {ran:.3} of the time");
    assert!(rests > 500.0, "{rests:.0} rests a second");
}

/// 300 packets, one each millisecond: it wakes up for several at a time, and those leave late by as much.
#[test]
fn with_a_wake_interval_it_wakes_seldom() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let passed = |wake_interval| {
        let lab = lab_with(LabSpec { wake_interval, ..LabSpec::default() }, "[[both]]\ndelay = '20ms'");
        let server = lab.host("server").unwrap().plan.ipv4;
        let before = lab.status().unwrap();
        let send = || {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            for _ in 0..300 {
                socket.send_to(b"x", (server, 9)).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        lab.host("client").unwrap().namespace.enter(send).unwrap();
        let after = lab.status().unwrap();
        println!("{wake_interval}: {} rounds, {:?}", after.rounds - before.rounds, after.lateness);
        (after.rounds - before.rounds, after.lateness.p50_ns)
    };
    let ((exact, _), (seldom, late_ns)) = (passed(Nanos::ZERO), passed(Nanos::from_millis(5)));
    assert!(seldom * 3 < exact, "{seldom} rounds, {exact} without it");
    assert!((1_000_000..8_000_000).contains(&late_ns), "{late_ns} ns");
}
