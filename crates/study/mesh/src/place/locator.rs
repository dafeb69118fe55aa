//! From the tests of all paths to alarms, hour by hour.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_units::Nanos;

use super::alarm::{Alarm, Place, Suspect};
use super::history::{FAULT_LOSS, HOUR, History, Judged, LIKELIHOOD_MOST};
use crate::sample::{Evidence, Sample, SiteId};

/// Hours over which a site is judged.
const SITE_HOURS: u64 = 6;
/// The worst of them do not count: a burst of an hour lies in two.
const BURST_HOURS: usize = 2;
/// A site that was away in the other hours is judged by so many.
const SITE_HOURS_LEAST: usize = 2;
/// Loss above the usual of all tests of a site in one direction in the others: below half of the fault, as its worst hours do not count.
const SITE_LOSS_LEAST: f64 = 0.0014;
/// Partners that show it, of all: a median.
const PARTNERS_SHARE: f64 = 0.5;
/// A site that was always so is named after three days.
const STANDING_HOURS: u64 = 72;
/// What it loses at least.
const STANDING_LOSS: f64 = 0.002;
/// Hours over which a path is judged.
const PATH_HOURS: u64 = 24;
/// Hours in a row, the worst of them, that do not count: a path that loses for so long is not broken. A site may be away in the others.
const PATH_BURST_HOURS: usize = 4;
/// What the tests of the other hours must say together, natural logarithm.
const PATH_LIKELIHOOD: f64 = 3.0;
/// An alarm ends when this many hours say that the loss is over.
const QUIET_HOURS: u64 = 12;
/// How far back the begin of a loss is looked for.
const ONSET_HOURS: u64 = 48;
/// One of so many hours, the best ones and the worst ones, does not count in what an alarm loses.
const TRIMMED: usize = 10;
/// Partners with tests in an hour, else a site is not judged by it.
const PARTNERS_LEAST: usize = 3;
/// A group of paths with fewer tests in an hour than this share of its paths says nothing.
const TESTED_SHARE: f64 = 0.3;

/// What changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Somebody loses packets.
    Raised(Alarm),
    /// It is over.
    Over(Suspect, Nanos),
}

/// An alarm that is open.
#[derive(Debug, Clone)]
struct Open {
    alarm: Alarm,
    /// The hour from which on its losses count.
    first: u64,
    /// What was found when it was raised, one test bounded.
    found: f64,
}

/// Names who loses packets. Memory: 512 tests a path at most.
#[derive(Debug, Clone, Default)]
pub struct Locator {
    paths: BTreeMap<(SiteId, SiteId), History>,
    /// Paths that each shared link carries, forward and backward.
    links: Vec<[BTreeSet<(SiteId, SiteId)>; 2]>,
    open: BTreeMap<Suspect, Open>,
    /// The first hour that was not judged.
    next: Option<u64>,
}

impl Locator {
    /// A locator for a mesh whose shared links carry these paths, forward and backward.
    pub fn new(links: Vec<[BTreeSet<(SiteId, SiteId)>; 2]>) -> Self {
        Self { links, ..Self::default() }
    }

    /// Takes a test.
    pub fn push(&mut self, sample: Sample) {
        if sample.from == sample.to || sample.sent == 0 {
            return;
        }
        let path = (sample.from, sample.to);
        let explained = self.open.keys().any(|suspect| self.carries(*suspect, path));
        self.paths.entry(path).or_default().push(sample, explained);
    }

    /// Alarms that are open.
    pub fn open(&self) -> impl Iterator<Item = &Alarm> {
        self.open.values().map(|open| &open.alarm)
    }

    /// Judges all hours that are over at `now`.
    pub fn advance(&mut self, now: Nanos) -> Vec<Step> {
        let over = now.0 / HOUR.0;
        let mut steps = Vec::new();
        // After a long silence only the last hours can say anything new.
        let from = self.next.unwrap_or(over).max(over.saturating_sub(PATH_HOURS));
        for hour in from..over {
            self.judge(hour, &mut steps);
        }
        self.next = Some(over);
        steps
    }

    /// `hour` is the last one that is over.
    fn judge(&mut self, hour: u64, steps: &mut Vec<Step>) {
        self.close(hour, steps);
        let mut found: Vec<(f64, Suspect, Option<u64>)> = Vec::new();
        for suspect in self.groups() {
            if self.open.contains_key(&suspect) {
                continue;
            }
            let tests = self.tests_of(suspect, hour + 1 - SITE_HOURS.min(hour + 1));
            if let Some(loss) = group_loss(&tests, hour) {
                found.push((loss, suspect, Some(self.onset(suspect, hour))));
            } else if hour.is_multiple_of(SITE_HOURS)
                && let Some(loss) = self.standing(suspect, hour)
            {
                found.push((loss, suspect, None));
            }
        }
        // The one that explains most goes first; the others are judged again with it, in the next hour.
        found.sort_by(|one, other| other.0.total_cmp(&one.0));
        if let Some((loss, suspect, since)) = found.into_iter().next() {
            self.raise(suspect, loss, since, hour, steps);
        }
        let explained: Vec<Suspect> = self.open.keys().copied().collect();
        let free = |path: (SiteId, SiteId)| !explained.iter().any(|suspect| self.carries(*suspect, path));
        let broken: Vec<((SiteId, SiteId), f64)> = self
            .paths
            .iter()
            .filter(|(path, _)| free(**path))
            .filter_map(|(path, history)| Some((*path, path_loss(history, hour)?)))
            .collect();
        for ((from, to), loss) in broken {
            let suspect = Suspect::Path(from, to);
            let since = self.onset(suspect, hour);
            self.raise(suspect, loss, Some(since), hour, steps);
        }
        let now: Vec<(Suspect, f64)> =
            self.open.iter().filter_map(|(suspect, open)| Some((*suspect, self.loss(*suspect, open)?))).collect();
        for (suspect, loss) in now {
            if let Some(open) = self.open.get_mut(&suspect) {
                open.alarm.loss = loss;
            }
        }
    }

    /// What is lost above the usual since the alarm began, up to the last hour that shows it: the mean of all hours but the best and the worst, which
    /// an outage or a burst may have made.
    fn loss(&self, suspect: Suspect, open: &Open) -> Option<f64> {
        let is_new = open.alarm.since.is_some();
        let above = |test: &Judged| if is_new { test.above(test.lost) } else { test.lost };
        let by_hour = by_hour(&self.tests_of(suspect, open.first), |_| true, above);
        let last = by_hour.iter().rev().find(|(_, paths)| likelihood(paths) > 0.0).map(|(hour, _)| *hour)?;
        let mut rates: Vec<f64> = by_hour.range(..=last).map(|(_, paths)| share(paths)).collect();
        rates.sort_by(f64::total_cmp);
        let counted = &rates[rates.len() / TRIMMED..rates.len() - rates.len() / TRIMMED];
        Some(counted.iter().sum::<f64>() / counted.len() as f64)
    }

    /// Sites by direction, and links by direction.
    fn groups(&self) -> BTreeSet<Suspect> {
        let sites = self.paths.keys().flat_map(|(from, to)| [Suspect::Sender(*from), Suspect::Receiver(*to)]);
        let links =
            (0..self.links.len() as u16).flat_map(|link| [Suspect::LinkForward(link), Suspect::LinkBackward(link)]);
        sites.chain(links).collect()
    }

    fn carries(&self, suspect: Suspect, path: (SiteId, SiteId)) -> bool {
        let link = |link: u16, direction: usize| {
            self.links.get(usize::from(link)).is_some_and(|paths| paths[direction].contains(&path))
        };
        match suspect {
            Suspect::Receiver(site) => path.1 == site,
            Suspect::Sender(site) => path.0 == site,
            Suspect::Path(from, to) => path == (from, to),
            Suspect::LinkForward(number) => link(number, 0),
            Suspect::LinkBackward(number) => link(number, 1),
        }
    }

    fn paths_of(&self, suspect: Suspect) -> BTreeSet<(SiteId, SiteId)> {
        self.paths.keys().copied().filter(|path| self.carries(suspect, *path)).collect()
    }

    /// Tests from `first` on of each path that `suspect` carries and nobody else explains.
    fn tests_of(&self, suspect: Suspect, first: u64) -> Vec<Vec<Judged>> {
        let others: Vec<Suspect> = self.open.keys().copied().filter(|open| *open != suspect).collect();
        let own = |path: &(SiteId, SiteId)| {
            self.carries(suspect, *path) && !others.iter().any(|other| self.carries(*other, *path))
        };
        let paths = self.paths.iter().filter(|(path, _)| own(path));
        paths.map(|(_, history)| history.since(first).copied().collect()).collect()
    }

    /// What a site loses that never was better.
    fn standing(&self, suspect: Suspect, hour: u64) -> Option<f64> {
        let first = (hour + 1).checked_sub(STANDING_HOURS)?;
        let tests = self.tests_of(suspect, first);
        let by_path = tests.iter().filter(|tests| hours_of(tests) as u64 >= STANDING_HOURS / 4).map(|tests| {
            let sent: f64 = tests.iter().map(|test| test.sent).sum();
            tests.iter().map(|test| test.bounded).sum::<f64>() / sent
        });
        let mut rates: Vec<f64> = by_path.collect();
        rates.sort_by(f64::total_cmp);
        let lower_quarter = *rates.get(rates.len() / 4)?;
        (rates.len() >= PARTNERS_LEAST && lower_quarter >= STANDING_LOSS).then(|| rates[rates.len() / 2])
    }

    /// The hour in which the loss began: where the likelihood of all hours since is greatest.
    fn onset(&self, suspect: Suspect, hour: u64) -> u64 {
        let first = (hour + 1).saturating_sub(ONSET_HOURS);
        let by_hour = by_hour(&self.tests_of(suspect, first), |test| test.hour <= hour, |_| 0.0);
        let mut sum = 0.0;
        let mut best = (f64::NEG_INFINITY, hour);
        for (at, paths) in by_hour.into_iter().rev() {
            sum += likelihood(&paths);
            if sum > best.0 {
                best = (sum, at);
            }
        }
        best.1
    }

    fn raise(&mut self, suspect: Suspect, loss: f64, since: Option<u64>, hour: u64, steps: &mut Vec<Step>) {
        let first = since.unwrap_or((hour + 1).saturating_sub(STANDING_HOURS));
        let tests = self.tests_of(suspect, first);
        let likelihood: f64 = by_hour(&tests, |_| true, |_| 0.0).values().map(|paths| likelihood(paths)).sum();
        // Only what carries exactly the same tested paths cannot be told apart.
        let own = self.paths_of(suspect);
        let mut suspects = vec![suspect];
        let paths = own.iter().map(|(from, to)| Suspect::Path(*from, *to)).filter(|_| own.len() == 1);
        let alike = self.groups().into_iter().chain(paths);
        suspects.extend(alike.filter(|other| *other != suspect && self.paths_of(*other) == own));
        let mut alarm = Alarm {
            place: place(suspect, &tests),
            suspects,
            raised: Nanos((hour + 1) * HOUR.0),
            since: since.map(|hour| Nanos(hour * HOUR.0)),
            loss,
            log10_odds: (likelihood / std::f64::consts::LN_10).clamp(0.0, 99.0),
        };
        for path in own {
            if let Some(history) = self.paths.get_mut(&path) {
                history.mark(first);
            }
        }
        let open = Open { alarm: alarm.clone(), first, found: loss };
        if let Some(loss) = self.loss(suspect, &open) {
            alarm.loss = loss;
        }
        self.open.insert(suspect, Open { alarm: alarm.clone(), ..open });
        steps.push(Step::Raised(alarm));
    }

    /// Ends alarms whose loss is over.
    fn close(&mut self, hour: u64, steps: &mut Vec<Step>) {
        let first = (hour + 1).saturating_sub(QUIET_HOURS);
        let is_over = |suspect: &Suspect, Open { alarm, found, .. }: &Open| {
            let tests = self.tests_of(*suspect, first);
            // A site that was away has not recovered, however often one of its partners was there.
            let tested = self.paths_of(*suspect).len() as f64 * QUIET_HOURS as f64 * TESTED_SHARE;
            let hours: usize = tests.iter().map(|path| hours_of(path)).sum();
            let is_new = alarm.since.is_some();
            let above = |test: &Judged| if is_new { test.above(test.bounded) } else { test.bounded };
            let paths: Vec<Tested> =
                tests.iter().filter(|path| !path.is_empty()).map(|path| Tested::of(path, above)).collect();
            alarm.raised.0 / HOUR.0 + QUIET_HOURS <= hour
                && hours as f64 >= tested.max(1.0)
                && share(&paths) < found.min(FAULT_LOSS) / 4.0
        };
        let over: Vec<Suspect> =
            self.open.iter().filter(|(suspect, open)| is_over(suspect, open)).map(|(suspect, _)| *suspect).collect();
        for suspect in over {
            self.open.remove(&suspect);
            steps.push(Step::Over(suspect, Nanos((hour + 1) * HOUR.0)));
        }
    }
}

/// What tests of one path say together.
#[derive(Debug, Clone, Copy)]
struct Tested {
    /// Packets that were lost above the usual.
    above: f64,
    /// Packets that were sent.
    sent: f64,
    likelihood: f64,
}

impl Tested {
    /// `above`: packets of a test that were lost above the usual.
    fn of<'a>(tests: impl IntoIterator<Item = &'a Judged>, above: impl Fn(&Judged) -> f64) -> Self {
        let mut all = Self { above: 0.0, sent: 0.0, likelihood: 0.0 };
        for test in tests {
            all.above += above(test);
            all.sent += test.sent;
            all.likelihood += test.likelihood;
        }
        all
    }
}

/// Hours in which a path was tested.
fn hours_of(tests: &[Judged]) -> usize {
    tests.iter().map(|test| test.hour).collect::<BTreeSet<_>>().len()
}

/// The tests that count, by hour: each path once, however many tests it had.
fn by_hour(
    paths: &[Vec<Judged>],
    counts: impl Fn(&Judged) -> bool,
    above: impl Fn(&Judged) -> f64,
) -> BTreeMap<u64, Vec<Tested>> {
    let mut by_hour = BTreeMap::<u64, Vec<Tested>>::new();
    for path in paths {
        let mut own = BTreeMap::<u64, Vec<&Judged>>::new();
        for test in path.iter().filter(|test| counts(test)) {
            own.entry(test.hour).or_default().push(test);
        }
        for (hour, tests) in own {
            by_hour.entry(hour).or_default().push(Tested::of(tests, &above));
        }
    }
    by_hour
}

/// The share that paths lose above the usual. Each counts with its packets, but with no more than the middle one has: what a site says of its own
/// paths, in however many tests, must not outweigh what the other paths show.
fn share(paths: &[Tested]) -> f64 {
    let mut sent: Vec<f64> = paths.iter().map(|path| path.sent).collect();
    sent.sort_by(f64::total_cmp);
    let most = sent.get(sent.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    let weighed = paths.iter().map(|path| (path, (most / path.sent).min(1.0)));
    let (above, all) = weighed
        .fold((0.0, 0.0), |(above, all), (path, weight)| (above + path.above * weight, all + path.sent * weight));
    above / all
}

/// How much more likely a fault is than none by an hour of these paths, of which each says no more than one test can: natural logarithm.
fn likelihood(paths: &[Tested]) -> f64 {
    paths.iter().map(|path| path.likelihood.clamp(-LIKELIHOOD_MOST, LIKELIHOOD_MOST)).sum()
}

/// Loss above the usual over the paths of a group in the six hours that end with `hour`, if it is more than chance and bursts make.
fn group_loss(paths: &[Vec<Judged>], hour: u64) -> Option<f64> {
    let least = PARTNERS_LEAST.max((paths.len() as f64 * TESTED_SHARE).ceil() as usize);
    let by_hour = by_hour(paths, |test| test.hour <= hour && test.known, |test| test.above(test.bounded));
    let mut rates: Vec<f64> =
        by_hour.values().filter(|tested| tested.len() >= least).map(|tested| share(tested)).collect();
    rates.sort_by(|one, other| other.total_cmp(one));
    let counted = rates.get(BURST_HOURS..).filter(|rates| rates.len() >= SITE_HOURS_LEAST)?;
    let loss = counted.iter().sum::<f64>() / counted.len() as f64;
    let showing = paths.iter().filter(|tests| tests.iter().map(|test| test.likelihood).sum::<f64>() > 0.0).count();
    (loss >= SITE_LOSS_LEAST && showing as f64 >= paths.len() as f64 * PARTNERS_SHARE)
        .then(|| rates.iter().sum::<f64>() / rates.len() as f64)
}

/// The same for one path in the day that ends with `hour`.
fn path_loss(history: &History, hour: u64) -> Option<f64> {
    let first = (hour + 1).checked_sub(PATH_HOURS)?;
    let mut hours = [0.0; PATH_HOURS as usize];
    let (mut above, mut sent) = (0.0, 0.0);
    for test in history.since(first).filter(|test| test.hour <= hour && test.known) {
        hours[(test.hour - first) as usize] += test.likelihood;
        let packets = test.sent;
        above += test.bounded - test.usual * packets;
        sent += packets;
    }
    let worst = hours.windows(PATH_BURST_HOURS).map(|hours| hours.iter().sum::<f64>()).fold(0.0, f64::max);
    (hours.iter().sum::<f64>() - worst >= PATH_LIKELIHOOD).then(|| above / sent)
}

/// Where at a site, by what its host saw of its own drops: the tests of each path in turn, and no path outweighs the others (see [`share`]).
fn place(suspect: Suspect, paths: &[Vec<Judged>]) -> Place {
    let at_receiver = match suspect {
        Suspect::Receiver(_) => true,
        Suspect::Sender(_) => false,
        Suspect::Path(..) | Suspect::LinkForward(_) | Suspect::LinkBackward(_) => return Place::Network,
    };
    let tested = || paths.iter().filter(|path| !path.is_empty());
    // Lost packets, and those of them that the host dropped.
    let mut dropped = Vec::new();
    let mut seen = 0;
    for path in tested() {
        let with_evidence = || path.iter().filter_map(|test| Some((test.sample.lost, test.sample.placed?)));
        if with_evidence().count() * 2 < path.len() {
            continue;
        }
        seen += 1;
        let lost: f64 = with_evidence().map(|(lost, _)| f64::from(lost)).sum();
        let here = |evidence: Evidence| if at_receiver { evidence.at_receiver } else { evidence.at_sender };
        let by_host = with_evidence().map(|(lost, evidence)| f64::from(here(evidence).min(lost))).sum();
        if lost > 0.0 {
            dropped.push(Tested { above: by_host, sent: lost, likelihood: 0.0 });
        }
    }
    if seen * 2 < tested().count() || dropped.is_empty() {
        Place::HostOrAccessLink
    } else if share(&dropped) >= 0.5 {
        Place::Host
    } else {
        Place::AccessLink
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path without loss, which then loses a tenth in some hours.
    fn path(bad: impl Fn(u64) -> bool) -> History {
        let mut history = History::default();
        for hour in 0..224 {
            let lost = u32::from(bad(hour)) * 100;
            let at = Nanos(hour * HOUR.0);
            history.push(Sample { at, from: SiteId(0), to: SiteId(1), sent: 1000, lost, placed: None }, false);
        }
        history
    }

    /// Four sites, all pairs; the last one loses 2 % of what it receives from hour 200 on, up to hour 212, and half of it in one of them.
    #[test]
    fn an_alarm_tells_all_that_is_lost_since_it_began() {
        let mut locator = Locator::default();
        for hour in 0..220 {
            for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
                let lost = match hour {
                    205 if to == 3 => 500,
                    200..212 if to == 3 => 20,
                    _ => 0,
                };
                let at = Nanos(hour * HOUR.0);
                locator.push(Sample { at, from: SiteId(from), to: SiteId(to), sent: 1000, lost, placed: None });
            }
            locator.advance(Nanos((hour + 1) * HOUR.0));
        }
        let open: Vec<&Alarm> = locator.open().collect();
        assert_eq!((open.len(), &open[0].suspects), (1, &vec![Suspect::Receiver(SiteId(3))]));
        assert!((open[0].loss - 0.02).abs() < 0.0005, "{}", open[0].loss);
    }

    /// A fifth site says of what the last one sent to it that four thousand million packets an hour came, and none was lost.
    #[test]
    fn one_site_outweighs_not_all_others() {
        let mut locator = Locator::default();
        for hour in 0..220 {
            for to in 0..4 {
                let lost = u32::from(hour >= 200 && to < 3) * 20;
                let sent = if to == 3 { u32::MAX } else { 1000 };
                let at = Nanos(hour * HOUR.0);
                locator.push(Sample { at, from: SiteId(4), to: SiteId(to), sent, lost, placed: None });
            }
            locator.advance(Nanos((hour + 1) * HOUR.0));
        }
        let open: Vec<&Alarm> = locator.open().collect();
        assert_eq!((open.len(), &open[0].suspects), (1, &vec![Suspect::Sender(SiteId(4))]));
    }

    /// The same by many long tests an hour, beside a short one of each other site. Nor do they end the alarm when no other site was tested any more.
    #[test]
    fn one_site_hides_nothing_by_many_tests() {
        let mut locator = Locator::default();
        for hour in 0..240 {
            for to in 0..5 {
                let (sent, lost, tests) = match hour {
                    ..200 => (100, 0, 1),
                    _ if to == 4 => (5000, 0, 27),
                    220.. => continue,
                    _ => (100, 2, 1),
                };
                for _ in 0..tests {
                    let at = Nanos(hour * HOUR.0);
                    locator.push(Sample { at, from: SiteId(5), to: SiteId(to), sent, lost, placed: None });
                }
            }
            locator.advance(Nanos((hour + 1) * HOUR.0));
        }
        let open: Vec<&Alarm> = locator.open().collect();
        assert_eq!((open.len(), &open[0].suspects), (1, &vec![Suspect::Sender(SiteId(5))]));
        // 1.6 % with the path that says to lose nothing, 2 % of the others.
        assert!((0.015..0.021).contains(&open[0].loss), "{}", open[0].loss);
        assert_eq!(open[0].since, Some(Nanos(200 * HOUR.0)));
        // 27 tests an hour of one path say no more against it than one does.
        assert!(open[0].log10_odds > 0.0, "{}", open[0].log10_odds);
    }

    /// A share is that of all packets where paths have alike many, and one path alone has its own.
    #[test]
    fn paths_weigh_no_more_than_the_middle_one() {
        let path = |sent: f64, above: f64| Tested { above, sent, likelihood: 0.0 };
        let is = |paths: &[Tested], expected: f64| (share(paths) - expected).abs() < 1e-12;
        assert!(is(&[path(100.0, 1.0), path(100.0, 2.0), path(100.0, 6.0)], 9.0 / 300.0));
        assert!(is(&[path(5000.0, 100.0)], 0.02));
        // Of 5000 packets as many count as of the middle one; a path with few has few.
        assert!(is(&[path(5000.0, 0.0), path(100.0, 2.0), path(10.0, 1.0)], 3.0 / 210.0));
        assert!(share(&[]).is_nan());
    }

    /// A site says of its own path that four thousand million packets were lost, all of them elsewhere.
    #[test]
    fn one_site_changes_no_place() {
        let path = |lost: u32, at_receiver: Option<u32>| {
            let mut history = History::default();
            for hour in 0..30 {
                let placed = at_receiver.map(|at_receiver| Evidence { at_sender: 0, at_receiver });
                let at = Nanos(hour * HOUR.0);
                history.push(Sample { at, from: SiteId(0), to: SiteId(1), sent: u32::MAX, lost, placed }, false);
            }
            history.since(0).copied().collect::<Vec<Judged>>()
        };
        let receiver = Suspect::Receiver(SiteId(1));
        let in_host = || path(20, Some(20));
        assert_eq!(place(receiver, &[in_host(), in_host(), path(u32::MAX, Some(0)), vec![]]), Place::Host);
        let elsewhere = || path(20, Some(1));
        assert_eq!(place(receiver, &[elsewhere(), elsewhere(), path(u32::MAX, Some(u32::MAX))]), Place::AccessLink);
        assert_eq!(place(receiver, &[elsewhere(), elsewhere(), path(1, Some(u32::MAX))]), Place::AccessLink);
        assert_eq!(place(receiver, &[in_host(), path(20, None), path(20, None)]), Place::HostOrAccessLink);
        assert_eq!(place(Suspect::LinkForward(0), &[in_host()]), Place::Network);
    }

    #[test]
    fn a_path_that_loses_much_is_named_and_one_that_loses_for_four_hours_is_not() {
        assert!(path_loss(&path(|hour| hour >= 200), 223).is_some());
        assert!(path_loss(&path(|hour| (200..204).contains(&hour)), 223).is_none());
        // Nor is one whose bursts lie apart.
        assert!(path_loss(&path(|hour| hour >= 200 && hour % 6 == 0), 223).is_none());
    }
}
