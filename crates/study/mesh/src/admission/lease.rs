//! Shared links: who may load them how much, and until when.
//!
//! The coordinator leases a part of a link's share for the time of a test. A lease ends by itself, so that a site that went away keeps nothing.
//! While the coordinator is away each site has a safe share of its own, which needs no agreement. Some sites may believe that it is away while
//! others do not: so a link's share is cut in two, one part for leases, one for all safe shares together, and both together never exceed it.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_units::{BitRate, Nanos};

use super::{DRIFT, MARGIN, RequestId};
use crate::sample::SiteId;

/// A lease of a part of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The rate (L1) that is leased.
    pub rate: BitRate,
    /// How long it is valid from the moment in which it was asked for, by the asker's steady clock.
    pub lasts: Nanos,
}

/// The leases of one direction of one link, at the coordinator.
#[derive(Debug, Clone)]
pub struct Leases {
    most: u64,
    /// Its rate, its end, and when its site had one before.
    given: BTreeMap<(u16, u64), (u64, Nanos, Option<Nanos>)>,
    /// When a site last got a lease.
    served: BTreeMap<u16, Nanos>,
    /// When a site was last told that there is no room.
    waiting: BTreeMap<u16, Nanos>,
    /// Sites that kept their place when they last gave a lease back.
    kept_place: BTreeSet<u16>,
}

/// A site that was told that there is no room asks again within this time, or waits no more.
const ASKS_AGAIN: Nanos = Nanos::from_secs(15);

impl Leases {
    /// For a link with `leased` to lease ([`SharedLink::leased`](crate::file::SharedLink::leased)). `now`: a coordinator that has just started has
    /// forgotten its leases, so it leases nothing until the longest of them is over.
    pub fn new(leased: BitRate, now: Nanos, longest: Nanos) -> Self {
        let most = leased.0;
        let forgotten = ((u16::MAX, u64::MAX), (most, now.saturating_add(kept(longest)), None));
        let (served, waiting, kept_place) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { most, given: [forgotten].into(), served, waiting, kept_place }
    }

    /// Asks for `rate` for a test that is over `lasts` after the request was sent. `None`: there is no room now, or this site has a lease
    /// already: it is in one test at a time, and must not take the link from others; or another site waits that was served longer ago.
    pub fn ask(&mut self, now: Nanos, request: RequestId, rate: BitRate, lasts: Nanos) -> Option<Lease> {
        self.given.retain(|_, (_, until, _)| *until > now);
        let key = (request.initiator.0, request.number);
        if !self.given.contains_key(&key) {
            if self.given.keys().any(|(site, _)| *site == request.initiator.0) {
                return None;
            }
            if rate.0 > self.most {
                return None;
            }
            let site = key.0;
            let served = |site: &u16| self.served.get(site);
            self.waiting.retain(|_, asked| asked.saturating_add(ASKS_AGAIN) > now);
            let is_behind = self.waiting.keys().any(|other| *other != site && served(other) < served(&site));
            let taken: u64 = self.given.values().map(|(rate, ..)| rate).sum();
            if is_behind || taken.saturating_add(rate.0) > self.most {
                self.waiting.insert(site, now);
                return None;
            }
            self.waiting.remove(&site);
            let before = self.served.insert(site, now);
            self.given.insert(key, (rate.0, now.saturating_add(kept(lasts)), before));
        }
        Some(Lease { rate, lasts })
    }

    /// Another link on the way has no room: the site has not been served. It waits here as it does there.
    pub fn take_back(&mut self, request: RequestId, waits_since: Option<Nanos>) {
        let site = request.initiator.0;
        if let Some((.., before)) = self.given.remove(&(site, request.number)) {
            self.was_not_served(site, before);
        }
        if let Some(since) = waits_since {
            self.waiting.insert(site, since);
        }
    }

    /// A lease of the site was of no use. It was last served `before` that, if ever.
    fn was_not_served(&mut self, site: u16, before: Option<Nanos>) {
        match before {
            Some(before) => self.served.insert(site, before),
            None => self.served.remove(&site),
        };
    }

    /// When the site of `request` was last told that there is no room, if it was.
    pub fn waits_since(&self, request: RequestId) -> Option<Nanos> {
        self.waiting.get(&request.initiator.0).copied()
    }

    /// The test is over, or, where the lease is `unused`, did not begin: then the site keeps its place before others, but not twice in a row. Who says
    /// so each time must not keep others waiting.
    pub fn give_back(&mut self, request: RequestId, unused: bool) {
        let site = request.initiator.0;
        let Some((.., before)) = self.given.remove(&(site, request.number)) else { return };
        if !unused {
            self.kept_place.remove(&site);
        } else if self.kept_place.insert(site) {
            self.was_not_served(site, before);
        }
    }

    /// The number of the request for which a site has a lease here at `now`.
    pub fn number_of(&self, now: Nanos, site: SiteId) -> Option<u64> {
        let given = self.given.iter().find(|((of, _), (_, until, _))| *of == site.0 && *until > now);
        given.map(|((_, number), _)| *number)
    }

    /// What is leased at `now`.
    pub fn leased(&self, now: Nanos) -> BitRate {
        BitRate(self.given.values().filter(|(_, until, _)| *until > now).map(|(rate, ..)| rate).sum())
    }
}

/// The coordinator's clock may be fast, the asker's slow.
fn kept(lasts: Nanos) -> Nanos {
    Nanos((lasts.saturating_add(MARGIN).0 as f64 * (1.0 + 2.0 * DRIFT)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000_000;

    /// Each of another site.
    fn request(number: u64) -> RequestId {
        RequestId { initiator: SiteId(number as u16), number }
    }

    /// Of 70 Mb/s two parts of 30 fit, a third does not until one ends by itself.
    #[test]
    fn leases_fill_their_part_and_end_by_themselves() {
        let secs = Nanos::from_secs;
        let mut leases = Leases::new(BitRate(70 * MBIT), secs(0), secs(60));
        let mut ask = |at: u64, number| leases.ask(secs(at), request(number), BitRate(30 * MBIT), secs(60)).is_some();
        assert!(!ask(1, 1), "what was leased before the restart may still be used");
        assert!(ask(63, 1) && ask(63, 2) && !ask(63, 3));
        assert!(ask(64, 1), "the same request again is the same lease");
        assert!(!ask(124, 3) && ask(126, 3));
        assert_eq!(leases.leased(secs(126)), BitRate(30 * MBIT));
        leases.give_back(request(3), false);
        assert_eq!(leases.leased(secs(126)), BitRate(0));
    }

    /// A site whose lease is over does not take the link again before those who wait.
    #[test]
    fn who_waits_comes_before_who_was_served() {
        let secs = Nanos::from_secs;
        let mut leases = Leases::new(BitRate(70 * MBIT), secs(0), secs(0));
        let mut ask = |at: u64, site: u16, number| {
            let request = RequestId { initiator: SiteId(site), number };
            leases.ask(secs(at), request, BitRate(60 * MBIT), secs(20)).is_some()
        };
        assert!(ask(10, 1, 1) && !ask(30, 2, 1), "there is room for one");
        assert!(!ask(41, 1, 2) && ask(42, 2, 2), "the second waits, and was never served");
        assert!(!ask(62, 1, 3) && !ask(74, 2, 3) && ask(75, 1, 4), "now it is the first one's turn");
        assert!(ask(120, 1, 5), "who asks no more waits no more");
    }

    /// Whose partner was busy comes before a site that was served earlier than it asked, but not each time.
    #[test]
    fn a_lease_of_no_use_costs_no_place_once() {
        let secs = Nanos::from_secs;
        let link = || Leases::new(BitRate(70 * MBIT), secs(0), secs(0));
        let of = |site: u16, number| RequestId { initiator: SiteId(site), number };
        let ask =
            |link: &mut Leases, at: u64, request| link.ask(secs(at), request, BitRate(60 * MBIT), secs(20)).is_some();
        for unused in [false, true] {
            let mut link = link();
            assert!(ask(&mut link, 10, of(2, 1)));
            link.give_back(of(2, 1), false);
            assert!(ask(&mut link, 11, of(1, 1)));
            link.give_back(of(1, 1), unused);
            assert_eq!(link.leased(secs(11)), BitRate(0));
            assert!(ask(&mut link, 12, of(3, 1)) && !ask(&mut link, 13, of(1, 2)) && !ask(&mut link, 14, of(2, 2)));
            link.give_back(of(3, 1), false);
            assert_eq!(ask(&mut link, 15, of(2, 2)), !unused, "site 1 is first if it was not served");
        }
        // Site 1 is never done with a lease.
        let mut link = link();
        assert!(ask(&mut link, 10, of(2, 1)));
        link.give_back(of(2, 1), false);
        for number in 1..=2 {
            assert!(ask(&mut link, 9 + 2 * number, of(1, number)) && !ask(&mut link, 10 + 2 * number, of(2, 2)));
            link.give_back(of(1, number), true);
        }
        assert!(!ask(&mut link, 15, of(1, 3)) && ask(&mut link, 16, of(2, 2)), "now it is the turn of site 2");
    }

    /// A stolen key of one site asks under many numbers.
    #[test]
    fn a_site_has_one_lease() {
        let secs = Nanos::from_secs;
        let mut leases = Leases::new(BitRate(70 * MBIT), secs(0), secs(0));
        let mut ask = |at: u64, site: u16, number| {
            let request = RequestId { initiator: SiteId(site), number };
            leases.ask(secs(at), request, BitRate(10 * MBIT), secs(60)).is_some()
        };
        assert!(ask(10, 1, 1) && !ask(10, 1, 2) && ask(10, 1, 1));
        assert!(ask(10, 2, 1), "others have theirs");
        assert!(ask(80, 1, 2), "once the first is over");
        let number = |at: u64, site| leases.number_of(secs(at), SiteId(site));
        assert_eq!([number(80, 1), number(80, 2), number(200, 1)], [Some(2), None, None]);
    }

    /// A test that crosses two links and finds room on the first alone was not served there: it keeps its place before others.
    #[test]
    fn a_lease_that_is_taken_back_was_never_given() {
        let secs = Nanos::from_secs;
        let link = || Leases::new(BitRate(70 * MBIT), secs(0), secs(0));
        let (mut one, mut other) = (link(), link());
        let ask = |link: &mut Leases, at: u64, site: u16, number| {
            let request = RequestId { initiator: SiteId(site), number };
            link.ask(secs(at), request, BitRate(60 * MBIT), secs(20)).is_some()
        };
        assert!(ask(&mut other, 10, 3, 1) && ask(&mut one, 10, 2, 1));
        // Site 1 wants both; there is room on the first once site 2 has ended.
        let request = RequestId { initiator: SiteId(1), number: 1 };
        assert!(ask(&mut one, 33, 1, 1) && !ask(&mut other, 31, 1, 1));
        one.take_back(request, other.waits_since(request));
        assert_eq!(one.leased(secs(33)), BitRate(0));
        // It waits on the first, too, and comes there before the site that was served.
        assert!(!ask(&mut one, 34, 2, 2) && ask(&mut one, 35, 1, 2));
    }
}
