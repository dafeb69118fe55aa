//! Round trips to each router of a path: which hop is probed when, and what the answers say.
//!
//! A probe may pass `hop` − 1 routers; the next one throws it away and says so (ICMP time exceeded, RFC 792, RFC 4443 §3.3). All probes have
//! one flow (addresses, ports, the checksum of ICMP), so that routers that share load by flow send them one way (Augustin et al., "Avoiding
//! traceroute anomalies with Paris traceroute", IMC 2006). Routers limit such answers: each gets one probe a round, a round lasts a second
//! or more, and silence is no loss.
//!
//! ```text
//!  a round   hop 1   hop 2   hop 3 = destination
//! ├─────────┼───────┼───────┼──────────────────────────┤ each hop at the same place of each round
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use longhaul_terms::{Amount, ParameterError, check_range};
use longhaul_units::{Nanos, Thinned};
use serde::{Deserialize, Serialize};

use crate::account::{Account, Answer, Arrival};
use crate::parameters::{MIN_PAYLOAD_BYTES, RttParameters};
use crate::probe_log::{EndStamps, ProbeKind, ProbeRow, StampedBy};

/// A round of hops lasts at least so long: routers limit ICMP messages, by default to one a second for each peer in Linux.
pub const LEAST_ROUND: Nanos = Nanos::from_secs(1);
/// Most hops: the TTL has 8 bits, and no path of the Internet is as long.
pub const MOST_HOPS: u8 = 64;
/// Round trips of an address that are kept.
const KEPT: usize = 8_192;
/// Addresses of a hop that are kept apart.
const ADDRESSES_MOST: usize = 8;
/// Route changes that are listed.
const CHANGES_MOST: usize = 1_000;
/// Silent hops behind the last that answered: beyond them nothing is expected.
const SILENT_BEYOND: u8 = 4;

/// What is asked of a measurement of hops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HopsParameters {
    /// Rounds, or how long rounds begin.
    pub amount: Amount,
    /// Length of a round, nanoseconds: each hop gets a probe in each.
    pub interval_ns: u64,
    /// Most hops.
    pub most_hops: u8,
    /// Payload of a probe, bytes.
    pub payload_bytes: u32,
    /// After this time no answer is awaited, nanoseconds.
    pub timeout_ns: u64,
}

impl HopsParameters {
    /// Checks the limits.
    ///
    /// # Errors
    /// The first parameter out of range, with what is allowed.
    pub fn validate(&self) -> Result<(), ParameterError> {
        check_range("interval_ns", Nanos(self.interval_ns), LEAST_ROUND..=Nanos::from_secs(3600), "1s to 1h")?;
        check_range("most_hops", self.most_hops, 1..=MOST_HOPS, format!("1 to {MOST_HOPS}"))?;
        let rest = RttParameters {
            amount: self.amount,
            interval_ns: self.interval_ns,
            payload_bytes: self.payload_bytes.max(MIN_PAYLOAD_BYTES),
            timeout_ns: self.timeout_ns,
            ..RttParameters::default()
        };
        rest.validate()
    }
}

/// Where an answer comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HopAnswerer {
    /// A router where the probe had passed as many as it may.
    Router,
    /// The destination.
    Destination,
    /// A router or host that lets the probe go no further: a filter, or no route.
    Barrier,
}

/// The destination of a probe's answer, with its way of telling the probe's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopAnswer {
    /// The probe's number.
    pub sequence: u64,
    /// Who answered.
    pub from: IpAddr,
    /// As what.
    pub place: HopAnswerer,
    /// When the program sent the probe, as the answer repeats it; `None` where it does not.
    pub echoed_ns: Option<u64>,
    /// When it arrived, Unix time in nanoseconds.
    pub received_ns: i64,
    /// Who took that time.
    pub received_by: StampedBy,
}

/// What a measurement of hops found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HopsResult {
    /// How probes were made.
    pub kind: ProbeKind,
    /// Rounds that began.
    pub rounds: u64,
    /// From the first probe to the last, nanoseconds.
    pub duration_ns: u64,
    /// The destination's hop, by its latest answer; `None` where it never answered.
    pub destination_hop: Option<u8>,
    /// The hops from the first on.
    pub hops: Vec<OfHop>,
    /// How often a hop answered from another address than before.
    pub route_changes: u64,
    /// The first thousand of them.
    pub changes: Vec<RouteChange>,
    /// Answers that do not tell to which probe they belong: they quote too little of it.
    pub unattributed: u64,
    /// Who took the time stamps.
    pub timestamps: EndStamps,
}

/// What one hop answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OfHop {
    /// Its number: 1 is the first router.
    pub hop: u8,
    /// Probes that it was asked by.
    pub sent: u64,
    /// Probes that were answered. The others are no losses: routers need not answer.
    pub answered: u64,
    /// Who answered, in the order of first answers; at most eight.
    pub addresses: Vec<HopAddress>,
}

/// What one address answered at one hop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HopAddress {
    /// The address.
    pub address: IpAddr,
    /// As what it answered last.
    pub place: HopAnswerer,
    /// Probes that it answered.
    pub answered: u64,
    /// Round trips. A router's time to make its answer is part of them.
    pub rtt: HopRtt,
    /// When the first probe was sent that it answered, Unix time in nanoseconds.
    pub first_ns: i64,
    /// When the last was.
    pub last_ns: i64,
}

/// Round trips to a hop, nanoseconds; quantiles are of at most 8,192 spread over the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HopRtt {
    /// The least.
    pub min_ns: i64,
    /// Half are at most this.
    pub p50_ns: i64,
    /// 99 % are at most this.
    pub p99_ns: i64,
    /// The greatest.
    pub max_ns: i64,
}

/// A hop that answered from another address than before: the route changed, or packets are shared out singly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouteChange {
    /// When the first probe was sent that the new address answered, Unix time in nanoseconds.
    pub at_ns: i64,
    /// Which hop.
    pub hop: u8,
    /// Who answered before.
    pub from: IpAddr,
    /// Who answers now.
    pub to: IpAddr,
}

/// The account of all probes of a measurement of hops.
#[derive(Debug)]
pub struct HopAccount {
    asked: HopsParameters,
    account: Account,
    /// The hop and the answer of probes that may still be answered.
    waiting: BTreeMap<u64, Waiting>,
    hops: Vec<Hop>,
    start: Nanos,
    round: u64,
    /// Rounds that this host slept through.
    skipped: u64,
    /// The next hop in the round.
    next: u8,
    /// The last hop to ask in a round. Where an answer has moved it before [`Self::next`], the round is over.
    reach: u8,
    /// Whether the destination was met in this round, and the last hop that was.
    met: Option<u8>,
    /// The latest round whose probes met the end of the path, and the first hop that did: hops beyond it may have been asked before that was known.
    end: Option<(u64, u8)>,
    farthest: u8,
    span: Option<(i64, i64)>,
    destination_hop: Option<u8>,
    route_changes: u64,
    changes: Vec<RouteChange>,
    unattributed: u64,
}

/// A probe that may still be answered.
#[derive(Debug)]
struct Waiting {
    hop: u8,
    round: u64,
    answer: Option<(IpAddr, HopAnswerer)>,
}

#[derive(Debug, Default)]
struct Hop {
    sent: u64,
    answered: u64,
    addresses: Vec<AtHop>,
    last: Option<IpAddr>,
}

#[derive(Debug)]
struct AtHop {
    address: IpAddr,
    place: HopAnswerer,
    answered: u64,
    least: i64,
    greatest: i64,
    kept: Thinned<i64>,
    first_ns: i64,
    last_ns: i64,
}

impl HopAccount {
    /// A measurement that begins at `start`, on a clock that does not step.
    pub fn new(asked: HopsParameters, start: Nanos) -> Self {
        let reach = asked.most_hops.clamp(1, MOST_HOPS);
        Self {
            account: Account::new(asked.timeout_ns, 0),
            asked,
            waiting: BTreeMap::new(),
            hops: Vec::new(),
            start,
            round: 0,
            skipped: 0,
            next: 1,
            reach,
            met: None,
            end: None,
            farthest: 0,
            span: None,
            destination_hop: None,
            route_changes: 0,
            changes: Vec::new(),
            unattributed: 0,
        }
    }

    /// The next hop to ask, and when; `None` at the end. Each hop has one place in all rounds, so that no router is asked sooner than a
    /// round after the last time.
    pub fn next(&self) -> Option<(Nanos, u8)> {
        let (round, hop) = if self.next > self.reach { (self.round + 1, 1) } else { (self.round, self.next) };
        let since = Nanos(self.asked.interval_ns.saturating_mul(round + self.skipped));
        let over = match self.asked.amount {
            Amount::DurationNs(ns) => since.0 >= ns,
            Amount::Packets(rounds) => round >= rounds,
            Amount::Bytes(_) => true,
        };
        let place = self.asked.interval_ns / u64::from(self.asked.most_hops.max(1)) * u64::from(hop - 1);
        (!over).then(|| (self.start.saturating_add(since).saturating_add(Nanos(place)), hop))
    }

    /// The probe to the hop that [`Self::next`] named is about to be sent at `program_ns`, at `now`. Returns its number.
    pub fn send(&mut self, now: Nanos, program_ns: i64) -> u64 {
        if self.next > self.reach {
            self.end_round(now);
        }
        let hop = self.next;
        let sequence = self.account.send(program_ns, self.asked.payload_bytes);
        self.waiting.insert(sequence, Waiting { hop, round: self.round, answer: None });
        self.span = Some((self.span.map_or(program_ns, |(first, _)| first), program_ns));
        self.next += 1;
        if self.next > self.reach {
            self.end_round(now);
        }
        sequence
    }

    fn end_round(&mut self, now: Nanos) {
        self.round += 1;
        let passed = now.saturating_sub(self.start).0 / self.asked.interval_ns.max(1);
        self.skipped = self.skipped.max(passed.saturating_sub(self.round));
        self.next = 1;
        self.reach = match self.met.take() {
            Some(hop) => hop,
            // A longer route shows itself hop by hop.
            None => self.farthest.saturating_add(SILENT_BEYOND).min(self.asked.most_hops),
        };
    }

    /// As [`Account::stamp`].
    pub fn stamp(&mut self, sequence: u64, kernel_ns: i64) {
        self.account.stamp(sequence, kernel_ns, StampedBy::Kernel);
    }

    /// The number of the latest probe whose low 16 bits are these; `None` before the first.
    pub fn latest(&self, low: u16) -> Option<u64> {
        let newest = self.account.next().checked_sub(1)?;
        newest.checked_sub(u64::from((newest as u16).wrapping_sub(low)))
    }

    /// An answer came that does not tell its probe.
    pub fn unattributed(&mut self) {
        self.unattributed += 1;
    }

    /// Takes an answer.
    pub fn answer(&mut self, answer: HopAnswer) {
        let HopAnswer { sequence, from, place, echoed_ns, received_ns, received_by } = answer;
        let taken = self.account.answer(Answer {
            sequence,
            echoed_ns,
            received_ns,
            received_by,
            responder: None,
            hops_left: None,
        });
        if taken != Arrival::First {
            return;
        }
        let Some(Waiting { hop, round, answer }) = self.waiting.get_mut(&sequence) else { return };
        *answer = Some((from, place));
        let (hop, round) = (*hop, *round);
        self.farthest = self.farthest.max(hop);
        if place != HopAnswerer::Router {
            let (_, end) = *self.end.insert(match self.end {
                Some((latest, end)) if latest == round => (latest, end.min(hop)),
                Some(end) if end.0 > round => end,
                _ => (round, hop),
            });
            self.met = Some(self.met.map_or(end, |met| met.min(end)));
            // No further in this round, but for what was asked before the answer was there.
            self.reach = self.reach.min(hop.max(self.next - 1));
        }
        if place == HopAnswerer::Destination {
            self.destination_hop = self.met;
        }
    }

    /// Sums up probes whose time is over at `now_ns`.
    pub fn retire(&mut self, now_ns: i64) {
        let mut rows = Vec::new();
        self.account.retire(now_ns, |row| rows.push(row));
        rows.iter().for_each(|row| self.take(row));
    }

    fn take(&mut self, row: &ProbeRow) {
        let Some(Waiting { hop: number, answer, .. }) = self.waiting.remove(&row.sequence) else { return };
        let place = usize::from(number) - 1;
        if self.hops.len() <= place {
            self.hops.resize_with(place + 1, Hop::default);
        }
        let hop = &mut self.hops[place];
        hop.sent += 1;
        let (Some((from, place)), Some(rtt)) = (answer, row.rtt_ns) else { return };
        hop.answered += 1;
        if let Some(before) = hop.last.replace(from).filter(|before| *before != from) {
            self.route_changes += 1;
            if self.changes.len() < CHANGES_MOST {
                self.changes.push(RouteChange { at_ns: row.sent_ns, hop: number, from: before, to: from });
            }
        }
        let known = hop.addresses.iter().position(|known| known.address == from);
        if known.is_none() && hop.addresses.len() < ADDRESSES_MOST {
            hop.addresses.push(AtHop::new(from, row.sent_ns));
        }
        let known = known.unwrap_or(hop.addresses.len() - 1);
        if let Some(at) = hop.addresses.get_mut(known).filter(|at| at.address == from) {
            at.take(place, row.sent_ns, rtt);
        }
    }

    /// Whether all probes are answered or over.
    pub fn all_answered(&self) -> bool {
        self.account.all_answered()
    }

    /// Rounds that began, and the last hop that is asked: for live lines.
    pub fn now(&self) -> (u64, u8) {
        (self.round + u64::from(self.next > 1), self.reach)
    }

    /// The figures.
    pub fn finish(mut self, kind: ProbeKind) -> HopsResult {
        let mut rows = Vec::new();
        self.account.finish(|row| rows.push(row));
        rows.iter().for_each(|row| self.take(row));
        let (first, last) = self.span.unwrap_or_default();
        // Silent hops behind the last that answered are none.
        let answered = self.hops.iter().rposition(|hop| hop.answered > 0).map_or(0, |last| last + 1);
        self.hops.truncate(self.destination_hop.map_or(answered, |hop| answered.min(usize::from(hop))));
        HopsResult {
            kind,
            rounds: self.round + u64::from(self.next > 1),
            duration_ns: u64::try_from(last.saturating_sub(first)).unwrap_or(0),
            destination_hop: self.destination_hop,
            hops: (1..).zip(self.hops).map(|(number, hop)| hop.finish(number)).collect(),
            route_changes: self.route_changes,
            changes: self.changes,
            unattributed: self.unattributed,
            timestamps: self.account.counts().client(),
        }
    }
}

impl Hop {
    fn finish(self, hop: u8) -> OfHop {
        let addresses = self.addresses.into_iter().map(AtHop::finish).collect();
        OfHop { hop, sent: self.sent, answered: self.answered, addresses }
    }
}

impl AtHop {
    fn new(address: IpAddr, first_ns: i64) -> Self {
        let (least, greatest, kept) = (i64::MAX, 0, Thinned::keeping(KEPT));
        Self { address, place: HopAnswerer::Router, answered: 0, least, greatest, kept, first_ns, last_ns: first_ns }
    }

    fn take(&mut self, place: HopAnswerer, sent_ns: i64, rtt_ns: i64) {
        (self.place, self.last_ns) = (place, sent_ns);
        self.answered += 1;
        self.least = self.least.min(rtt_ns);
        self.greatest = self.greatest.max(rtt_ns);
        self.kept.push(rtt_ns);
    }

    fn finish(self) -> HopAddress {
        let sorted = self.kept.sorted();
        let at = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        HopAddress {
            address: self.address,
            place: self.place,
            answered: self.answered,
            rtt: HopRtt { min_ns: self.least, p50_ns: at(0.5), p99_ns: at(0.99), max_ns: self.greatest },
            first_ns: self.first_ns,
            last_ns: self.last_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const START: Nanos = Nanos::from_secs(5);

    fn asked(rounds: u64) -> HopsParameters {
        let amount = Amount::Packets(rounds);
        HopsParameters {
            amount,
            interval_ns: 1_000_000_000,
            most_hops: 10,
            payload_bytes: 64,
            timeout_ns: 3_000_000_000,
        }
    }

    fn router(hop: u8) -> IpAddr {
        [10, 0, 0, hop].into()
    }

    /// A path on which hop `n` answers after `n` ms, the destination being the last. `answers`: who answers a probe of this round and hop.
    fn measured(
        rounds: u64,
        answers: impl Fn(u64, u8) -> Option<(IpAddr, HopAnswerer)>,
    ) -> (HopsResult, Vec<(u64, u8)>) {
        let mut account = HopAccount::new(asked(rounds), START);
        let mut sent = Vec::new();
        while let Some((due, hop)) = account.next() {
            let now = due.0 as i64;
            account.retire(now);
            let round = (due - START).0 / 1_000_000_000;
            let sequence = account.send(due, now);
            sent.push((due.0 / 1_000_000, hop));
            if let Some((from, place)) = answers(round, hop) {
                let received_ns = now + i64::from(hop) * MS;
                let received_by = StampedBy::Kernel;
                let low = sequence as u16;
                assert_eq!(account.latest(low), Some(sequence));
                account.answer(HopAnswer { sequence, from, place, echoed_ns: None, received_ns, received_by });
            }
        }
        (account.finish(ProbeKind::Icmp), sent)
    }

    /// Three routers and a destination, of which the second router is silent.
    fn plain(_: u64, hop: u8) -> Option<(IpAddr, HopAnswerer)> {
        match hop {
            2 => None,
            1 | 3 => Some((router(hop), HopAnswerer::Router)),
            _ => Some((router(4), HopAnswerer::Destination)),
        }
    }

    #[test]
    fn each_hop_has_its_routers_and_silence_is_no_loss() {
        let (found, sent) = measured(20, plain);
        assert_eq!((found.rounds, found.destination_hop, found.hops.len()), (20, Some(4), 4));
        let answered: Vec<u64> = found.hops.iter().map(|hop| hop.answered).collect();
        assert_eq!((answered, found.route_changes), (vec![20, 0, 20, 20], 0));
        let last = &found.hops[3].addresses[0];
        assert_eq!((last.address, last.place, last.rtt.p50_ns), (router(4), HopAnswerer::Destination, 4 * MS));
        // No hop is asked beyond the destination, nor sooner than a second after the last time.
        assert_eq!(sent.len(), 20 * 4);
        for hop in 1..=4 {
            let times: Vec<u64> = sent.iter().filter(|(_, at)| *at == hop).map(|(at, _)| *at).collect();
            assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 1_000), "{hop}: {times:?}");
        }
    }

    /// The two hops behind it are asked before its answer is there, and answer, too: the distance is not known yet. Those behind them are not asked, and
    /// in the next round it alone is.
    #[test]
    fn a_destination_is_where_it_answers_first() {
        for rounds in [1, 2] {
            let mut account = HopAccount::new(asked(rounds), START);
            let mut sent = Vec::new();
            let mut send = |account: &mut HopAccount| {
                let (due, hop) = account.next().unwrap();
                sent.push(((due - START).0 / 1_000_000, hop));
                (account.send(due, due.0 as i64), due.0 as i64 + 150 * MS)
            };
            let answer = |account: &mut HopAccount, (sequence, received_ns)| {
                let (from, place, received_by) = (router(1), HopAnswerer::Destination, StampedBy::Kernel);
                account.answer(HopAnswer { sequence, from, place, echoed_ns: None, received_ns, received_by });
            };
            let probes = [(); 3].map(|()| send(&mut account));
            probes.into_iter().for_each(|probe| answer(&mut account, probe));
            for _ in 1..rounds {
                let probe = send(&mut account);
                answer(&mut account, probe);
            }
            assert_eq!(account.next(), None);
            let found = account.finish(ProbeKind::Icmp);
            assert_eq!((found.rounds, found.destination_hop, found.hops.len()), (rounds, Some(1), 1));
            assert_eq!(sent, [(0, 1), (100, 2), (200, 3), (1_000, 1)][..2 + rounds as usize]);
        }
    }

    #[test]
    fn a_route_that_changes_and_gets_longer_is_told() {
        let changed = |round, hop| match (round, hop) {
            (10.., 3) => Some((router(33), HopAnswerer::Router)),
            (10.., 4) => Some((router(34), HopAnswerer::Router)),
            (10.., _) if hop > 4 => Some((router(4), HopAnswerer::Destination)),
            _ => plain(round, hop),
        };
        let (found, _) = measured(20, changed);
        assert_eq!((found.destination_hop, found.hops.len()), (Some(5), 5));
        let told: Vec<_> = found.changes.iter().map(|change| (change.hop, change.from, change.to)).collect();
        assert_eq!(told, [(3, router(3), router(33)), (4, router(4), router(34))]);
        assert_eq!(found.hops[2].addresses.iter().map(|at| at.answered).collect::<Vec<_>>(), [10, 10]);
    }

    #[test]
    fn a_barrier_ends_the_path_and_a_silent_destination_is_unknown() {
        let (found, _) = measured(5, |_, hop| (hop == 2).then(|| (router(2), HopAnswerer::Barrier)));
        assert_eq!((found.destination_hop, found.hops.len()), (None, 2));
        let (found, sent) = measured(5, |_, hop| (hop < 3).then(|| (router(hop), HopAnswerer::Router)));
        assert_eq!((found.destination_hop, found.hops.len()), (None, 2));
        // All ten at first, then four beyond the last that answers.
        assert_eq!(sent.len(), 10 + 4 * 6);
        let (silent, _) = measured(2, |_, _| None);
        assert_eq!((silent.destination_hop, silent.hops), (None, Vec::new()));
    }

    #[test]
    fn what_cannot_be_an_answer_is_ignored() {
        let mut account = HopAccount::new(asked(1), START);
        assert_eq!(account.latest(0), None);
        let now = START.0 as i64;
        let sequence = account.send(START, now);
        let answer = |sequence, received_ns| HopAnswer {
            sequence,
            from: router(1),
            place: HopAnswerer::Router,
            echoed_ns: None,
            received_ns,
            received_by: StampedBy::Program,
        };
        account.answer(answer(sequence + 1, now + MS));
        account.answer(answer(sequence, now + 4_000 * MS));
        assert!(!account.all_answered());
        assert_eq!(account.latest(7), None);
        account.answer(answer(sequence, now + MS));
        account.answer(answer(sequence, now + 2 * MS));
        assert_eq!(account.finish(ProbeKind::Icmp).hops[0].answered, 1);
    }
}
