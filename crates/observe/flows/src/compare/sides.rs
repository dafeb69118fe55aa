//! On which side of the path each address lies, A's or B's, and so which way each direction of flow goes.
//!
//! A packet goes from an address of one side to one of the other, so addresses that talk to each other, in any flows, are of one net
//! whose sides are known but for which is which. That is told for each net by the first of these that tells anything:
//!
//! 1. Packets in both directions: of B's stamp less A's, those from A to B have the delay added, and the others subtracted.
//! 2. Time to live: each router takes one away (RFC 791 §3.2, RFC 8200 §3), so it was greater where a packet passed first.
//! 3. Nets of which both directions are known: the direction that is nearer.
//! 4. The sign of the difference, if the clocks are near.

use std::collections::HashMap;
use std::net::IpAddr;

use super::identity::{Path, PathDirection};

/// Differences of stamps of one direction of flow that are looked at.
const MOST_DIFFERENCES: usize = 4_096;

/// An address; with its port where both ends have the same address.
type End = (IpAddr, u16);

fn ends(path: &Path) -> (End, End) {
    let port = |of: (IpAddr, u16)| if path.src.0 == path.dst.0 { of } else { (of.0, 0) };
    (port(path.src), port(path.dst))
}

/// A packet that passed both points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    /// An index into the list of paths.
    pub(super) path: u32,
    /// B's stamp less A's.
    pub(super) difference_ns: i64,
    /// Time to live at A less that at B.
    pub(super) hops: i16,
}

/// Which side each address is of.
#[derive(Debug, Clone, Default)]
pub(super) struct Sides {
    is_of_a: HashMap<End, bool>,
}

/// Addresses that are of one net, each with whether its side is that of the one it points to.
#[derive(Default)]
struct Nets {
    numbers: HashMap<End, usize>,
    parents: Vec<(usize, bool)>,
}

impl Nets {
    fn number(&mut self, end: End) -> usize {
        let next = self.parents.len();
        let number = *self.numbers.entry(end).or_insert(next);
        if number == next {
            self.parents.push((next, true));
        }
        number
    }

    /// The net's first address, and whether `number` is of its side.
    fn first(&mut self, number: usize) -> (usize, bool) {
        let (mut way, mut at) = (Vec::new(), number);
        while self.parents[at].0 != at {
            way.push(at);
            at = self.parents[at].0;
        }
        // All on the way point to the first from now on: clients of one server would be a chain that each walks along.
        let mut alike = true;
        for step in way.into_iter().rev() {
            alike = alike == self.parents[step].1;
            self.parents[step] = (at, alike);
        }
        (at, alike)
    }

    /// The two ends are of different sides. Where it is known otherwise, what was known first counts.
    fn apart(&mut self, one: End, other: End) {
        let (one, other) = (self.number(one), self.number(other));
        let ((first, alike), (second, as_well)) = (self.first(one), self.first(other));
        if first != second {
            self.parents[second] = (first, alike != as_well);
        }
    }
}

/// What a net's packets tell, by whether they come from the side of its first address.
#[derive(Default)]
struct Evidence {
    medians: [Vec<i64>; 2],
    hops: i64,
}

fn median(mut all: Vec<i64>) -> Option<i64> {
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

impl Sides {
    /// From packets that passed both points, on `paths`.
    pub(super) fn of(passed: &[Passed], paths: &[Path]) -> Self {
        let mut differences: Vec<(Vec<i64>, i64)> = vec![Default::default(); paths.len()];
        for one in passed {
            let (sampled, hops) = &mut differences[one.path as usize];
            if sampled.len() < MOST_DIFFERENCES {
                sampled.push(one.difference_ns);
            }
            *hops += i64::from(one.hops.signum());
        }
        let mut nets = Nets::default();
        paths.iter().map(ends).for_each(|(src, dst)| nets.apart(src, dst));
        let mut found: HashMap<usize, Evidence> = HashMap::new();
        for (path, (sampled, hops)) in paths.iter().zip(differences) {
            let number = nets.number(ends(path).0);
            let (net, from_first) = nets.first(number);
            let Some(middle) = median(sampled) else { continue };
            let evidence = found.entry(net).or_default();
            evidence.medians[usize::from(!from_first)].push(middle);
            evidence.hops += if from_first { hops } else { -hops };
        }
        let both = |evidence: &Evidence| {
            let [out, back] = evidence.medians.each_ref().map(|medians| median(medians.clone()));
            Some((out?, back?))
        };
        let known: Vec<(i64, i64)> = found.values().filter_map(both).collect();
        let forward = median(known.iter().map(|(out, back)| *out.max(back)).collect());
        let backward = median(known.iter().map(|(out, back)| *out.min(back)).collect());
        let is_of_a = |evidence: &Evidence| {
            if let Some((out, back)) = both(evidence) {
                return out > back;
            }
            if evidence.hops != 0 {
                return evidence.hops > 0;
            }
            let [out, back] = evidence.medians.each_ref().map(|medians| median(medians.clone()));
            let goes_forward = |own: i64| match (forward, backward) {
                (Some(forward), Some(backward)) => own.abs_diff(forward) <= own.abs_diff(backward),
                _ => own >= 0,
            };
            out.map_or_else(|| !back.is_some_and(goes_forward), goes_forward)
        };
        let firsts: HashMap<usize, bool> = found.iter().map(|(net, evidence)| (*net, is_of_a(evidence))).collect();
        let numbers: Vec<(End, usize)> = nets.numbers.iter().map(|(end, number)| (*end, *number)).collect();
        let of_end = |(end, number): (End, usize)| {
            let (net, alike) = nets.first(number);
            Some((end, *firsts.get(&net)? == alike))
        };
        Self { is_of_a: numbers.into_iter().filter_map(of_end).collect() }
    }

    /// Which way the packets of `path` go.
    pub(super) fn direction(&self, path: &Path) -> Option<PathDirection> {
        let (src, dst) = ends(path);
        let is_forward = self.is_of_a.get(&src).copied().or_else(|| self.is_of_a.get(&dst).map(|is_of_a| !is_of_a))?;
        Some(if is_forward { PathDirection::AToB } else { PathDirection::BToA })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(src: u8, dst: u8, port: u16) -> Path {
        let end = |host| (IpAddr::from([10, 0, 0, host]), port);
        Path { src: end(src), dst: end(dst), protocol: 17 }
    }

    fn directions(flows: &[(u8, u8, i64, i16)]) -> String {
        let paths: Vec<Path> = (0..).zip(flows).map(|(port, (src, dst, ..))| path(*src, *dst, port)).collect();
        let passed = (0..).zip(flows).map(|(path, (.., difference_ns, hops))| Passed {
            path,
            difference_ns: *difference_ns,
            hops: *hops,
        });
        let sides = Sides::of(&passed.collect::<Vec<_>>(), &paths);
        let letter = |path| match sides.direction(path) {
            Some(PathDirection::AToB) => '>',
            Some(PathDirection::BToA) => '<',
            None => '?',
        };
        paths.iter().map(letter).collect()
    }

    /// Clients of one server are a chain, along which each walks once and then points to its end.
    #[test]
    fn a_server_may_have_many_clients() {
        let end = |host: u32| (IpAddr::from(host.to_be_bytes()), 1);
        let mut nets = Nets::default();
        (1..1_000).for_each(|client| nets.apart(end(client), end(0x0b00_0001)));
        let (client, server) = (nets.number(end(1)), nets.number(end(0x0b00_0001)));
        let (first, alike) = nets.first(client);
        assert_eq!(nets.first(server), (first, !alike));
        assert!(nets.parents.iter().all(|(parent, _)| *parent == first), "a chain stays");
    }

    #[test]
    fn addresses_of_one_net_tell_each_others_side() {
        // B's clock is 20 ms ahead; the round trip is 5 ms.
        assert_eq!(directions(&[(1, 2, 25, 0), (2, 1, 15, 0)]), "><");
        assert_eq!(directions(&[(1, 2, 15, 0), (2, 1, 25, 0)]), "<>");
        // 3 is of the side of 1, as both talk to 2; 4 talks to 3.
        assert_eq!(directions(&[(1, 2, 25, 0), (3, 2, 25, 0), (4, 3, 15, 0), (2, 4, 14, 0)]), ">><<", "as known first");
        // Nets that never meet: by routers, by nearness, by the sign.
        assert_eq!(directions(&[(1, 2, 25, 1), (4, 3, 15, -1)]), "><");
        assert_eq!(directions(&[(1, 2, 25, 0), (2, 1, 15, 0), (5, 6, 16, 0), (7, 8, 24, 0)]), "><<>");
        assert_eq!(directions(&[(1, 2, 5, 0), (4, 3, -5, 0)]), "><");
        // One address at both ends.
        assert_eq!(directions(&[(1, 1, 5, 0)]), ">");
    }
}
