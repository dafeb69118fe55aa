//! An emulator with nothing to do sleeps.

mod common;

use common::{lab_with, unprivileged};
use longhaul_kernel::schedule::{allowed_cpus, pin_to};
use longhaul_lab::LabSpec;

/// How often it is asked how it does.
const QUESTIONS: u64 = 500;

#[test]
fn a_question_wakes_the_emulator_once() {
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
