//! The difference of two snapshots, though counters wrap, start over, come and go.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Kind, Scope, Value};

/// A number that is not the same as before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// What it is about.
    pub scope: Scope,
    /// Its name in the kernel's (or the driver's) words: `Udp.RcvbufErrors`, `rx_dropped`.
    pub name: String,
    /// How much it rose; negative only for levels, such as a queue's length.
    pub by: i64,
    /// Why the figure is less certain than others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
}

/// Why a [`Change`] may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// It is lower than before and was close below 2³²: taken to have wrapped there.
    Wrapped,
    /// It is lower than before: taken to have started over, from 0 (a driver that was reset, a qdisc that was replaced).
    Restarted,
    /// It was not there before: taken to have started from 0, as an interface or a queue that is new does.
    Appeared,
    /// It is not there any more, with what it counted last: `by` is 0.
    Vanished,
}

/// What is different in `later`, in order of scope and name.
pub(super) fn between(
    earlier: &BTreeMap<(Scope, String), Value>,
    later: &BTreeMap<(Scope, String), Value>,
) -> Vec<Change> {
    let mut changes: Vec<Change> = later
        .iter()
        .filter_map(|(key, now)| {
            let (by, doubt) = match earlier.get(key) {
                Some(before) => rise(*before, *now),
                // The stack leaves out what it has not counted yet (ICMP types).
                None if key.0 == Scope::Namespace => (clamped(now.bits), None),
                None => (clamped(now.bits), Some(Doubt::Appeared)),
            };
            (by != 0 || matches!(doubt, Some(Doubt::Restarted))).then(|| change(key, by, doubt))
        })
        .collect();
    let gone = earlier.iter().filter(|(key, before)| before.bits != 0 && !later.contains_key(*key));
    changes.extend(gone.map(|(key, _)| change(key, 0, Some(Doubt::Vanished))));
    changes.sort_by(|a, b| (&a.scope, &a.name).cmp(&(&b.scope, &b.name)));
    changes
}

fn change((scope, name): &(Scope, String), by: i64, doubt: Option<Doubt>) -> Change {
    Change { scope: scope.clone(), name: name.clone(), by, doubt }
}

fn rise(before: Value, now: Value) -> (i64, Option<Doubt>) {
    /// A fall counts as a wrap only where the rise that it means is below this: half the range.
    const HALF: u64 = 1 << 31;
    match now.kind {
        Kind::Level => (now.bits.wrapping_sub(before.bits) as i64, None),
        _ if now.bits >= before.bits => (clamped(now.bits - before.bits), None),
        // It is known to wrap: no doubt about it, but that it may have done so more than once.
        Kind::Counter32 => (i64::from((now.bits as u32).wrapping_sub(before.bits as u32)), None),
        Kind::Counter => {
            let wrapped = (now.bits + (1 << 32)).saturating_sub(before.bits);
            if before.bits < 1 << 32 && wrapped < HALF {
                (clamped(wrapped), Some(Doubt::Wrapped))
            } else {
                (clamped(now.bits), Some(Doubt::Restarted))
            }
        }
    }
}

fn clamped(bits: u64) -> i64 {
    i64::try_from(bits).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(kind: Kind, bits: u64) -> BTreeMap<(Scope, String), Value> {
        let scope = Scope::Interface { interface: "eth0".into() };
        BTreeMap::from([((scope, "x".to_owned()), Value { kind, bits })])
    }

    fn only(kind: Kind, before: u64, now: u64) -> Option<(i64, Option<Doubt>)> {
        between(&one(kind, before), &one(kind, now)).pop().map(|change| (change.by, change.doubt))
    }

    #[test]
    fn only_what_changed_is_said() {
        assert_eq!(only(Kind::Counter, 5, 5), None);
        assert_eq!(only(Kind::Counter, 5, 8), Some((3, None)));
        assert_eq!(only(Kind::Level, 8, 5), Some((-3, None)));
    }

    #[test]
    fn a_fall_is_a_wrap_or_a_restart() {
        let full = u64::from(u32::MAX);
        assert_eq!(only(Kind::Counter32, full - 1, 3), Some((5, None)));
        assert_eq!(only(Kind::Counter, full - 1, 3), Some((5, Some(Doubt::Wrapped))));
        assert_eq!(only(Kind::Counter, 1000, 3), Some((3, Some(Doubt::Restarted))));
        assert_eq!(only(Kind::Counter, 1 << 40, 3), Some((3, Some(Doubt::Restarted))));
        assert_eq!(only(Kind::Counter, 7, 0), Some((0, Some(Doubt::Restarted))));
    }

    #[test]
    fn counters_come_and_go() {
        let none = BTreeMap::new();
        let appeared = between(&none, &one(Kind::Counter, 4));
        assert_eq!((appeared[0].by, appeared[0].doubt), (4, Some(Doubt::Appeared)));
        let vanished = between(&one(Kind::Counter, 4), &none);
        assert_eq!((vanished[0].by, vanished[0].doubt), (0, Some(Doubt::Vanished)));
        assert_eq!(between(&one(Kind::Counter, 0), &none), []);
    }

    proptest! {
        #[test]
        fn no_pair_of_values_panics(before: u64, now: u64) {
            for kind in [Kind::Counter, Kind::Counter32, Kind::Level] {
                let rise = only(kind, before, now);
                prop_assert!(kind == Kind::Level || rise.is_none_or(|(by, _)| by >= 0));
            }
        }
    }
}
