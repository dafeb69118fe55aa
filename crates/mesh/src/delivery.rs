//! How many results of a site the coordinator keeps: as many as the mesh's schedule can produce for a pair, and some more.

use std::collections::HashMap;

use longhaul_mesh_model::file::{Kind, Mesh};
use longhaul_units::Nanos;

use crate::store::HOUR_NS;

/// Tests of a round that a partner admits: its own, and some that failed.
pub(crate) const TESTS_OF_ROUND: usize = 3;
/// More that count to an hour: those of a day, tested once an hour, of a site whose clock is ahead and that could not deliver.
const LATE: i64 = 24;
/// Results of an hour of a test that the mesh has no more, or that has no rounds.
const UNPLANNED: i64 = 16;

/// Results of one pair and direction in an hour that are kept at most of each of its two sites.
pub(crate) fn most_of_hour(mesh: &Mesh, test: &str) -> i64 {
    let Some(plan) = mesh.tests.iter().find(|plan| plan.name == test) else { return UNPLANNED };
    let period = match plan.kind {
        Kind::Rtt => plan.time,
        _ => plan.every.unwrap_or_default(),
    };
    if period == Nanos::ZERO {
        return UNPLANNED;
    }
    let rounds = HOUR_NS.unsigned_abs().div_ceil(period.0);
    LATE.saturating_add(i64::try_from(rounds.saturating_mul(TESTS_OF_ROUND as u64)).unwrap_or(i64::MAX))
}

/// What was seen of one delivery, by test, sender, receiver and hour: the store need not be asked about more.
#[derive(Default)]
pub(crate) struct Delivered(HashMap<([String; 3], i64), i64>);

impl Delivered {
    /// Counts a result; whether its pair has fewer in its hour than it may have.
    pub(crate) fn has_room(&mut self, mesh: &Mesh, names: [&str; 3], at_ns: i64) -> bool {
        let seen = self.0.entry((names.map(str::to_owned), at_ns.div_euclid(HOUR_NS))).or_default();
        *seen += 1;
        *seen <= most_of_hour(mesh, names[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITES: &str = "\
name = 'two'
[[site]]
name = 'a'
address = '127.0.0.1'
rate = '1Gbit'
[[site]]
name = 'b'
address = '127.0.0.1'
rate = '1Gbit'
";

    #[test]
    fn an_hour_has_room_for_what_the_schedule_makes() {
        let tests = "[[test]]\nname = 'often'\nkind = 'udp'\nevery = '10m'\nrate = '1M'\n\
             [[test]]\nname = 'seldom'\nkind = 'udp'\nevery = '6h'\nrate = '1M'\n\
             [[test]]\nname = 'delay'\nkind = 'rtt'\ntime = '5m'\n[[test]]\nname = 'why'\nkind = 'diagnose'\n";
        let mesh = Mesh::parse(&format!("{SITES}{tests}")).unwrap();
        let most = |test| most_of_hour(&mesh, test);
        assert_eq!([most("often"), most("seldom"), most("delay")], [24 + 3 * 6, 24 + 3, 24 + 3 * 12]);
        assert_eq!([most("why"), most("gone")], [16, 16]);
        let mut delivered = Delivered::default();
        let mut room = |receiver, at_ns| delivered.has_room(&mesh, ["seldom", "a", receiver], at_ns);
        assert_eq!((0..100).filter(|_| room("b", 5)).count(), 27);
        assert!(room("b", HOUR_NS) && room("c", 5));
    }
}
