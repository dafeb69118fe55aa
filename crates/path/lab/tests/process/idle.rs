//! An emulator with nothing to do sleeps, and one in real time rests before the kernel stops it.

use crate::common::{alone, lab_with, unprivileged};
use longhaul_kernel::schedule::{allowed_cpus, pin_to, realtime_share};
use longhaul_lab::LabSpec;

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
