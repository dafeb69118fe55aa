//! Months of a mesh with a known fault. This file was written and committed before the code that it judges, and is not to be tuned with it.
//!
//! What it makes, for each ordered pair of sites, once an hour:
//!
//! - **Loss of every day.** TeraGrid's histogram (NLR Rings, Fig. 2): 24 % of the paths lose about 0.01 %, 14 % about 0.1 %, the others
//!   nearly nothing, each path with a factor of its own.
//! - **Load by day and week**: the loss of a path follows the time of day at its busier end, and is half at the weekend. Some sites have an
//!   access link that loses up to 0.15 % at its busiest hour, in one direction.
//! - **Bursts**: one test in 300 loses up to a fifth of its packets at once; a site loses 0.5–10 % in one direction for 5–60 minutes, about
//!   every ten days; a path loses 0.1–2 % for one to four hours, about every 90 days.
//! - **Gaps**: one test in a hundred is missing; a site is away for 1–24 hours about every 20 days.
//! - **Runs**: packets are lost in runs, of 1–2 packets on average, the same in one mesh.
//! - **The fault**: from an hour between the 8th and the 13th day on, a receiver, a sender or one path loses a further 0.44 %, TeraGrid's figure.
//!   In half of the meshes hosts see their own drops.
//!
//! Packets a test: 100–5,000, the same in one mesh, uniform in the logarithm.

use longhaul_mesh_model::{Evidence, Sample, SiteId};
use longhaul_units::Nanos;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Sites of a generated mesh.
pub(crate) const SITES: u16 = 20;
/// What a fault loses in addition.
pub(crate) const FAULT_LOSS: f64 = 0.0044;
/// Days before the days that count.
pub(crate) const WARM_UP_DAYS: u32 = 7;
/// Days that count.
pub(crate) const MONTH_DAYS: u32 = 30;
const HOUR: Nanos = Nanos(3_600_000_000_000);
/// Thursday, 1 January 2026, 00:00 UTC.
pub(crate) const START: Nanos = Nanos(1_767_225_600_000_000_000);

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Receiver(SiteId),
    Sender(SiteId),
    Path(SiteId, SiteId),
}

/// Which fault to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    None,
    Receiver,
    Sender,
    Path,
}

/// A generated month.
pub(crate) struct Month {
    /// What is broken, and since when.
    pub(crate) fault: Option<(Fault, Nanos)>,
    /// Packets of each test.
    pub(crate) packets: u32,
    /// Whether hosts see their own drops.
    pub(crate) evidence: bool,
    /// In order of time.
    pub(crate) samples: Vec<Sample>,
}

struct Random(Xoshiro256PlusPlus);

impl Random {
    /// In [0, 1).
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    fn below(&mut self, most: u32) -> u32 {
        (self.unit() * f64::from(most)) as u32
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Standard normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }

    /// Poisson, by multiplication in pieces, which is exact for any mean.
    fn poisson(&mut self, mut mean: f64) -> u32 {
        let mut count = 0;
        while mean > 0.0 {
            let piece = mean.min(30.0);
            mean -= piece;
            let (limit, mut product) = ((-piece).exp(), self.unit());
            while product > limit {
                count += 1;
                product *= self.unit();
            }
        }
        count
    }

    /// How many of `packets` are lost where each is with `probability`, in runs of `run` on average.
    fn lost(&mut self, packets: u32, probability: f64, run: f64) -> u32 {
        let runs = self.poisson(f64::from(packets) * probability / run);
        let mut lost = 0;
        for _ in 0..runs {
            lost += 1;
            while lost < packets && self.chance(1.0 - 1.0 / run) {
                lost += 1;
            }
        }
        lost.min(packets)
    }
}

/// A time of more loss: hours since the start, and the share that is lost.
#[derive(Clone, Copy)]
struct Event {
    from: f64,
    to: f64,
    share: f64,
}

fn events(random: &mut Random, hours: f64, every: f64, length: (f64, f64), share: (f64, f64)) -> Vec<Event> {
    let mut found = Vec::new();
    let mut at = 0.0;
    loop {
        at -= every * (1.0 - random.unit()).ln();
        if at > hours {
            return found;
        }
        found.push(Event {
            from: at,
            to: at + random.between(length.0, length.1),
            share: random.between(share.0, share.1),
        });
    }
}

fn share_at(events: &[Event], hour: f64) -> f64 {
    events.iter().filter(|event| (event.from..event.to).contains(&hour)).map(|event| event.share).sum()
}

struct Site {
    /// When its day begins, hours after UTC's.
    zone: f64,
    /// What its access link loses at the busiest hour: out, in.
    access: [f64; 2],
    /// Times of more loss: out, in.
    bursts: [Vec<Event>; 2],
    away: Vec<Event>,
}

struct Path {
    base: f64,
    swing: f64,
    zone: f64,
    events: Vec<Event>,
    /// In which part of the hour it is tested.
    minute: f64,
}

impl Month {
    /// The month of `seed`.
    pub(crate) fn generate(seed: u64, kind: Kind) -> Self {
        let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(seed));
        let hours = (WARM_UP_DAYS + MONTH_DAYS) * 24;
        let packets = (100.0 * 50f64.powf(random.unit())).round() as u32;
        let run = random.between(1.0, 2.0);
        let evidence = random.chance(0.5);
        let sites: Vec<Site> = (0..SITES).map(|_| site(&mut random, f64::from(hours))).collect();
        let paths: Vec<Path> = (0..SITES * SITES).map(|index| path(&mut random, &sites, index, hours)).collect();
        let site = SiteId(random.below(u32::from(SITES)) as u16);
        let other = SiteId((site.0 + 1 + random.below(u32::from(SITES) - 1) as u16) % SITES);
        let onset = Nanos(START.0 + u64::from(8 * 24 + random.below(5 * 24)) * HOUR.0);
        let fault = match kind {
            Kind::None => None,
            Kind::Receiver => Some(Fault::Receiver(site)),
            Kind::Sender => Some(Fault::Sender(site)),
            Kind::Path => Some(Fault::Path(site, other)),
        };
        let fault = fault.map(|fault| (fault, onset));
        let mut month = Self { fault, packets, evidence, samples: Vec::new() };
        for hour in 0..hours {
            let first = month.samples.len();
            for from in 0..SITES {
                for to in (0..SITES).filter(|to| *to != from) {
                    let path = &paths[usize::from(from * SITES + to)];
                    let at = f64::from(hour) + path.minute;
                    let sample = month.test(&mut random, (&sites, path), (SiteId(from), SiteId(to)), at, run);
                    month.samples.extend(sample);
                }
            }
            month.samples[first..].sort_by_key(|sample| sample.at);
        }
        month
    }

    fn test(
        &self,
        random: &mut Random,
        (sites, path): (&[Site], &Path),
        (from, to): (SiteId, SiteId),
        hour: f64,
        run: f64,
    ) -> Option<Sample> {
        let ends = [(from, 0), (to, 1)].map(|(site, direction)| (&sites[usize::from(site.0)], direction));
        let away = ends.iter().any(|(site, _)| share_at(&site.away, hour) > 0.0);
        if random.chance(0.01) || away {
            return None;
        }
        let at = Nanos(START.0 + (hour * HOUR.0 as f64) as u64);
        // The first of the month was a Thursday.
        let weekend = ((hour / 24.0) as u32 + 3) % 7 >= 5;
        let week = if weekend { 0.5 } else { 1.0 };
        let of_day = |zone: f64| ((hour + zone) / 24.0 * std::f64::consts::TAU).sin();
        let mut share = path.base * week * (path.swing * of_day(path.zone)).exp() + share_at(&path.events, hour);
        for (site, direction) in ends {
            share += site.access[direction] * week * of_day(site.zone).max(0.0).powi(2);
            share += share_at(&site.bursts[direction], hour);
        }
        let mut lost = random.lost(self.packets, share, run);
        if random.chance(1.0 / 300.0) {
            lost += (f64::from(self.packets) * random.between(0.005, 0.2)) as u32;
        }
        let mut placed = Evidence::default();
        if let Some((fault, since)) = self.fault
            && at >= since
        {
            let hit = match fault {
                Fault::Receiver(site) => site == to,
                Fault::Sender(site) => site == from,
                Fault::Path(source, target) => (source, target) == (from, to),
            };
            if hit {
                let more = random.lost(self.packets, FAULT_LOSS, run);
                match fault {
                    Fault::Receiver(_) => placed.at_receiver = more,
                    Fault::Sender(_) => placed.at_sender = more,
                    Fault::Path(..) => {}
                }
                lost += more;
            }
        }
        let lost = lost.min(self.packets);
        placed.at_receiver = placed.at_receiver.min(lost);
        placed.at_sender = placed.at_sender.min(lost);
        Some(Sample { at, from, to, sent: self.packets, lost, placed: self.evidence.then_some(placed) })
    }
}

fn site(random: &mut Random, hours: f64) -> Site {
    let bursts = |random: &mut Random| events(random, hours, 240.0, (1.0 / 12.0, 1.0), (0.005, 0.1));
    let access = |random: &mut Random| if random.chance(0.05) { random.between(0.0005, 0.0015) } else { 0.0 };
    Site {
        zone: random.between(0.0, 24.0),
        access: [access(random), access(random)],
        bursts: [bursts(random), bursts(random)],
        away: events(random, hours, 480.0, (1.0, 24.0), (1.0, 1.0)),
    }
}

fn path(random: &mut Random, sites: &[Site], index: u16, hours: u32) -> Path {
    let class = random.unit();
    let base = match class {
        ..0.24 => random.log_normal(1e-4, 0.5),
        0.24..0.38 => random.log_normal(1e-3, 0.5).min(3e-3),
        0.38..0.5 => random.log_normal(1e-5, 0.5),
        _ => 1e-7,
    };
    let end = if random.chance(0.5) { index / SITES } else { index % SITES };
    Path {
        base,
        swing: random.between(0.0, 1.2),
        zone: sites[usize::from(end)].zone,
        events: events(random, f64::from(hours), 90.0 * 24.0, (1.0, 4.0), (0.001, 0.02)),
        minute: random.unit(),
    }
}

#[test]
fn the_generator_loses_what_it_says() {
    let month = Month::generate(1, Kind::Receiver);
    let Some((Fault::Receiver(bad), since)) = month.fault else { panic!("{:?}", month.fault) };
    let rate = |bad_receiver: bool| {
        let chosen = month.samples.iter().filter(|sample| sample.at >= since && (sample.to == bad) == bad_receiver);
        let mut rates: Vec<f64> = chosen.map(|sample| f64::from(sample.lost) / f64::from(sample.sent)).collect();
        // Without bursts.
        rates.sort_by(f64::total_cmp);
        rates.truncate(rates.len() * 98 / 100);
        rates.iter().sum::<f64>() / rates.len() as f64
    };
    let more = rate(true) - rate(false);
    assert!((0.003..0.006).contains(&more), "{more}");
    // 380 paths, 37 days of hours; tests that are missing and sites that are away take some.
    let all = 380 * 37 * 24;
    assert!((all * 90 / 100..all * 99 / 100).contains(&month.samples.len()), "{} of {all}", month.samples.len());
    assert!(month.samples.windows(2).all(|pair| pair[0].at <= pair[1].at));
    assert!(month.samples.iter().all(|sample| sample.lost <= sample.sent));
}
