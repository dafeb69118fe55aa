//! Route changes that this host can see while it probes: its own route, and how many routers answers passed.
//!
//! A loss that falls together with such a change is one of a network that converges, not one of a queue that is full. A route that changes
//! far away and keeps the number of routers on the route back shows by the round trip alone.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// So many answers in a row have another TTL: routers that share load by packet change it with each.
const IN_A_ROW: u32 = 8;
/// Changes that wait to be taken.
pub(crate) const CHANGES_MOST: usize = 1_000;

/// A change of the route to the other host or back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathChange {
    /// When, Unix time in nanoseconds, by this host's clock.
    pub at_ns: i64,
    /// It may have been so much earlier, nanoseconds.
    pub within_ns: u64,
    /// What changed.
    #[serde(flatten)]
    pub route: ChangedRoute,
    /// Probes of runs of loss during which it changed; only in a result.
    #[serde(default)]
    pub lost: u64,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum ChangedRoute {
    /// This host's route to the other one.
    OwnRoute {
        /// The route before.
        from: OwnRoute,
        /// The route since.
        to: OwnRoute,
    },
    /// The route back has another number of routers.
    HopsBack {
        /// The TTL or hop limit that answers had left before.
        from_ttl: u8,
        /// The one since.
        to_ttl: u8,
    },
}

/// How packets leave this host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OwnRoute {
    /// The interface.
    pub interface: String,
    /// The router that they go to; `None` where the other host is on the interface's own network.
    pub gateway: Option<IpAddr>,
    /// The address that they are sent from.
    pub source: Option<IpAddr>,
}

impl std::fmt::Display for PathChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.route {
            ChangedRoute::OwnRoute { from, to } => write!(f, "this host's route: {from} → {to}"),
            ChangedRoute::HopsBack { from_ttl, to_ttl } => {
                write!(f, "answers came with TTL {from_ttl} → {to_ttl}: the route back changed")
            }
        }
    }
}

impl std::fmt::Display for OwnRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(gateway) = self.gateway {
            write!(f, "{gateway} by ")?;
        }
        f.write_str(&self.interface)?;
        self.source.map_or(Ok(()), |source| write!(f, " from {source}"))
    }
}

/// Finds changes of the TTL of answers.
#[derive(Debug, Default)]
pub(crate) struct HopsWatch {
    ttl: Option<u8>,
    /// Another one, when the first probe was sent that was answered with it, and how many were in a row.
    other: Option<(u8, i64, u32)>,
}

impl HopsWatch {
    /// An answer to the probe of `sent_ns` had `ttl` left.
    pub(crate) fn answer(&mut self, ttl: u8, sent_ns: i64) -> Option<PathChange> {
        let before = *self.ttl.get_or_insert(ttl);
        if ttl == before {
            self.other = None;
            return None;
        }
        let (at_ns, row) = match self.other {
            Some((other, at_ns, row)) if other == ttl => (at_ns, row + 1),
            _ => (sent_ns, 1),
        };
        self.other = Some((ttl, at_ns, row));
        if row < IN_A_ROW {
            return None;
        }
        (self.ttl, self.other) = (Some(ttl), None);
        let route = ChangedRoute::HopsBack { from_ttl: before, to_ttl: ttl };
        Some(PathChange { at_ns, within_ns: 0, route, lost: 0 })
    }
}

/// Runs of loss that are remembered for changes that are seen after them.
const RUNS_KEPT: usize = 64;

/// Brings changes and runs of loss together, whichever is known first.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    count: u64,
    all: Vec<PathChange>,
    /// From the last answered probe before a run of loss to the next one: when they were sent, and how many were lost.
    runs: std::collections::VecDeque<(i64, i64, u64)>,
}

impl Changes {
    pub(crate) fn change(&mut self, mut change: PathChange) {
        self.count += 1;
        if self.all.len() < CHANGES_MOST {
            let during = self.runs.iter().filter(|(from_ns, to_ns, _)| falls_into(&change, *from_ns, *to_ns));
            change.lost = during.map(|(.., lost)| lost).sum();
            self.all.push(change);
        }
    }

    pub(crate) fn run(&mut self, from_ns: i64, to_ns: i64, lost: u64) {
        self.all
            .iter_mut()
            .rev()
            .take(RUNS_KEPT)
            .filter(|change| falls_into(change, from_ns, to_ns))
            .for_each(|change| change.lost += lost);
        if self.runs.len() == RUNS_KEPT {
            self.runs.pop_front();
        }
        self.runs.push_back((from_ns, to_ns, lost));
    }

    pub(crate) fn finish(self) -> (u64, Vec<PathChange>) {
        (self.count, self.all)
    }
}

fn falls_into(change: &PathChange, from_ns: i64, to_ns: i64) -> bool {
    let earliest = change.at_ns.saturating_sub(i64::try_from(change.within_ns).unwrap_or(i64::MAX));
    earliest <= to_ns && change.at_ns >= from_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(ttls: impl IntoIterator<Item = u8>) -> Vec<(i64, u8)> {
        let mut watch = HopsWatch::default();
        let found = ttls.into_iter().enumerate().filter_map(|(at, ttl)| watch.answer(ttl, at as i64));
        found
            .map(|change| match change.route {
                ChangedRoute::HopsBack { to_ttl, .. } => (change.at_ns, to_ttl),
                ChangedRoute::OwnRoute { .. } => panic!("{change}"),
            })
            .collect()
    }

    #[test]
    fn a_ttl_that_stays_is_a_change_and_one_that_flaps_is_none() {
        let stays = [vec![60; 20], vec![59; 20], vec![61; 20]].concat();
        assert_eq!(changes(stays), [(20, 59), (40, 61)]);
        assert_eq!(changes((0..200).map(|at| 60 + at % 2)), []);
        assert_eq!(changes([vec![60; 5], vec![59; 7], vec![60; 5]].concat()), []);
    }

    #[test]
    fn losses_belong_to_a_change_that_falls_into_them_whichever_is_known_first() {
        let change = |at_ns, within_ns| PathChange {
            at_ns,
            within_ns,
            route: ChangedRoute::HopsBack { from_ttl: 60, to_ttl: 59 },
            lost: 0,
        };
        let mut changes = Changes::default();
        changes.run(100, 200, 9);
        changes.change(change(200, 0));
        changes.change(change(260, 50));
        changes.change(change(260, 70));
        changes.run(255, 300, 4);
        changes.run(400, 500, 3);
        let (count, all) = changes.finish();
        assert_eq!((count, all.iter().map(|change| change.lost).collect::<Vec<_>>()), (3, vec![9, 4, 13]));
    }

    #[test]
    fn a_change_is_kept_as_it_is_written() {
        let to = OwnRoute { interface: "eth1".into(), gateway: Some([10, 0, 0, 1].into()), source: None };
        let route = ChangedRoute::OwnRoute { from: OwnRoute::default(), to };
        let change = PathChange { at_ns: 5, within_ns: 7, route, lost: 2 };
        let text = serde_json::to_string(&change).unwrap();
        assert!(text.contains(r#""what":"own_route""#), "{text}");
        assert_eq!(serde_json::from_str::<PathChange>(&text).unwrap(), change);
    }
}
