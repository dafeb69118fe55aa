//! A mesh over a month in virtual time: skewed and drifting clocks, lost messages, sites that crash and return, a coordinator that is away for a
//! week. No host is ever in two throughput tests, no shared link carries more than it may, and every pair has its turn.

mod world;

use longhaul_units::Nanos;

use self::world::{Outcome, World};

const DAY: Nanos = Nanos::from_secs(24 * 3600);

fn check(sites: u16, every: Nanos, days: u64, seed: u64) -> Outcome {
    let mut world = World::new(sites, every, seed);
    world.coordinator_away(Nanos(DAY.0 * 10), Nanos(DAY.0 * 17));
    let outcome = world.run(Nanos(DAY.0 * days));
    println!("{sites} sites, {days} days: {outcome:?}");
    assert_eq!(outcome.collisions, 0, "a host was in two tests at once");
    assert_eq!(outcome.overloads, 0, "a shared link carried more than it may");
    assert!(outcome.crashes > u64::from(sites), "sites come and go: {outcome:?}");
    assert!(outcome.by_safe_share > 0 && outcome.by_lease > outcome.by_safe_share, "{outcome:?}");
    outcome
}

/// In each round 90 % of the tests that both hosts were there for, and no pair less than half of its rounds.
fn check_turns(outcome: &Outcome) {
    assert!(outcome.done_share >= 0.9, "{outcome:?}");
    assert!(outcome.least_share >= 0.5, "a pair starves: {outcome:?}");
    assert!(outcome.least_share_away >= 0.4, "a pair starves while the coordinator is away: {outcome:?}");
}

#[test]
fn forty_sites_for_thirty_days() {
    for seed in 0..2 {
        check_turns(&check(40, Nanos::from_secs(110 * 60), 30, seed));
    }
}

/// The mesh of the plan: 249,500 tests a round.
#[test]
#[ignore = "minutes: run it after changes of admission or schedule"]
fn five_hundred_sites_for_thirty_days() {
    check_turns(&check(500, Nanos::from_secs(14 * 3600), 30, 0));
}
