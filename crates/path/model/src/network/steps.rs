//! Delay steps: the times at which a hop has another fixed delay, as after a change of the route.

use longhaul_units::Nanos;

use super::chance::Chance;
use crate::spec::{DelayStep, DelaySteps};

/// A random route is drawn anew after this many mean stays without a packet: no long pause costs a draw for each stay in it. What the route was
/// before then changes the chances by e⁻²⁰ at most.
const FORGOTTEN_STAYS: f64 = 20.0;

/// Which delay a hop has, as a function of time that traffic does not move.
#[derive(Debug, Clone)]
pub(super) struct Steps {
    law: StepLaw,
    /// The stay before, for trains of other hosts that overlap with what came last.
    before: Stay,
    now: Stay,
}

#[derive(Debug, Clone)]
enum StepLaw {
    At(Vec<DelayStep>),
    /// `route` is the present one of the hop's own delay (0) and `delays` (from 1).
    Random {
        every: Nanos,
        delays: Vec<Nanos>,
        route: usize,
        chance: Chance,
    },
}

/// A span of time with one delay; its end is no longer in it.
#[derive(Debug, Clone, Copy, Default)]
struct Stay {
    from: Nanos,
    until: Nanos,
    /// `None`: the hop's own.
    delay: Option<Nanos>,
}

impl Stay {
    fn has(&self, time: Nanos) -> bool {
        self.from <= time && time < self.until
    }
}

impl Steps {
    /// The steps that `spec` asks for; `None` where there are none.
    pub(super) fn new(spec: &DelaySteps, mut chance: Chance) -> Option<Self> {
        let mut now = Stay::default();
        let law = match spec {
            DelaySteps::At(steps) if steps.is_empty() => return None,
            DelaySteps::At(steps) => StepLaw::At(steps.clone()),
            DelaySteps::Random { every, delays } => {
                now.until = stay(&mut chance, *every);
                StepLaw::Random { every: *every, delays: delays.clone(), route: 0, chance }
            }
        };
        Some(Self { law, before: Stay::default(), now })
    }

    /// The delay of a packet whose delay begins at `time`; `None`: the hop's own. Times fall at most as far as trains overlap.
    pub(super) fn at(&mut self, time: Nanos) -> Option<Nanos> {
        if self.now.has(time) {
            return self.now.delay;
        }
        if self.before.has(time) {
            return self.before.delay;
        }
        match &mut self.law {
            StepLaw::At(steps) => {
                self.before = self.now;
                self.now = at_times(steps, time);
                self.now.delay
            }
            StepLaw::Random { .. } if time < self.now.from => self.before.delay,
            StepLaw::Random { every, delays, route, chance } => {
                while time >= self.now.until {
                    let pause = (time - self.now.until).0 as f64;
                    self.before = self.now;
                    let from = if pause > FORGOTTEN_STAYS * every.0 as f64 {
                        // Any route, that of before, too.
                        *route = (chance.unit() * (delays.len() + 1) as f64) as usize;
                        time
                    } else {
                        let other = (chance.unit() * delays.len() as f64) as usize;
                        *route = if other < *route { other } else { other + 1 };
                        self.now.until
                    };
                    let delay = route.checked_sub(1).and_then(|index| delays.get(index).copied());
                    self.now = Stay { from, until: from.saturating_add(stay(chance, *every)), delay };
                }
                self.now.delay
            }
        }
    }
}

/// An exponential time with that mean.
fn stay(chance: &mut Chance, mean: Nanos) -> Nanos {
    Nanos((-chance.unit().ln() * mean.0 as f64).min(u64::MAX as f64 / 4.0) as u64).max(Nanos(1))
}

/// From `time` until the next step begins or ends: the delay of that step of those which last that began last.
fn at_times(steps: &[DelayStep], time: Nanos) -> Stay {
    let mut until = Nanos::MAX;
    let mut last: Option<(Nanos, Nanos)> = None;
    for step in steps {
        if time < step.at {
            until = until.min(step.at);
            continue;
        }
        let begin = match step.every {
            Some(every) => {
                let begin = step.at + Nanos((time - step.at).0 / every.0.max(1) * every.0);
                until = until.min(begin.saturating_add(every));
                begin
            }
            None => step.at,
        };
        let end = step.lasting.map_or(Nanos::MAX, |lasting| begin.saturating_add(lasting));
        if time < end {
            until = until.min(end);
            if last.is_none_or(|(other, _)| other <= begin) {
                last = Some((begin, step.delay));
            }
        }
    }
    Stay { from: time, until, delay: last.map(|(_, delay)| delay) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(at: u64, delay: u64, lasting: Option<u64>, every: Option<u64>) -> DelayStep {
        let ms = Nanos::from_millis;
        DelayStep { at: ms(at), delay: ms(delay), lasting: lasting.map(ms), every: every.map(ms) }
    }

    /// The step that began last holds; those that end give way to the one below.
    #[test]
    fn steps_at_times() {
        let spec = DelaySteps::At(vec![step(100, 80, None, None), step(200, 20, Some(50), Some(100))]);
        let mut steps = Steps::new(&spec, Chance::new(1, 8)).unwrap();
        for (ms, want) in [
            (0, None),
            (99, None),
            (100, Some(80)),
            (200, Some(20)),
            (249, Some(20)),
            (250, Some(80)),
            (300, Some(20)),
            (299, Some(80)),
            (349, Some(20)),
            (350, Some(80)),
            (12_345, Some(20)),
            (12_360, Some(80)),
        ] {
            assert_eq!(steps.at(Nanos::from_millis(ms)), want.map(Nanos::from_millis), "{ms} ms");
        }
        assert!(Steps::new(&DelaySteps::default(), Chance::new(1, 8)).is_none());
    }

    /// Each of three routes for a third of the time, 1 s on average, never the same twice, wherever packets look; years cost nothing.
    #[test]
    fn random_routes() {
        let spec = DelaySteps::Random {
            every: Nanos::from_secs(1),
            delays: vec![Nanos::from_millis(80), Nanos::from_millis(90)],
        };
        let make = || Steps::new(&spec, Chance::new(1, 8)).unwrap();
        let (mut all, mut some) = (make(), make());
        let (mut share, mut changes, mut before) = ([0u32; 3], 0, None);
        for n in 0..2_000_000u64 {
            let time = Nanos::from_millis(n * 10);
            let delay = all.at(time);
            let route = [None, Some(Nanos::from_millis(80)), Some(Nanos::from_millis(90))];
            share[route.iter().position(|it| *it == delay).unwrap()] += 1;
            changes += u32::from(n > 0 && delay != before);
            before = delay;
            if n % 7 == 0 {
                assert_eq!(some.at(time), delay, "traffic moved the route at {time}");
            }
        }
        // 20,000 stays of 1 s; two changes within 10 ms look like one or none.
        assert!((19_300..20_500).contains(&changes), "{changes}");
        assert!(share.iter().all(|&n| (f64::from(n) / 2e6 - 1.0 / 3.0).abs() < 0.02), "{share:?}");
        all.at(Nanos::from_secs(4_000_000_000));
    }

    /// After a pause each route is as likely as another, that of before, too; it takes a draw for the route and one for its stay.
    #[test]
    fn a_pause_is_forgotten() {
        let spec = DelaySteps::Random { every: Nanos::from_secs(1), delays: vec![Nanos::from_millis(80)] };
        let mut steps = Steps::new(&spec, Chance::new(1, 8)).unwrap();
        let chance = |steps: &Steps| match &steps.law {
            StepLaw::Random { chance, .. } => chance.clone(),
            StepLaw::At(_) => unreachable!("routes are random"),
        };
        let (mut other, mut changes, mut before) = (0, 0, None);
        for n in 1..=100_000 {
            let mut draws = chance(&steps);
            let delay = steps.at(Nanos::from_secs(n * 100));
            let after = chance(&steps).bits();
            assert!((0..=2).any(|_| draws.bits() == after), "more than two draws in pause {n}");
            other += u32::from(delay.is_some());
            changes += u32::from(delay != before);
            before = delay;
        }
        for count in [other, changes] {
            // A standard error of √(0.25 / 100,000).
            assert!((f64::from(count) / 1e5 - 0.5).abs() < 4.0 * 0.0016, "{other} and {changes}");
        }
    }

    /// Routes that come 20 mean stays apart and less are those that traffic without a pause meets.
    #[test]
    fn a_short_pause_is_no_pause() {
        let spec = DelaySteps::Random { every: Nanos::from_secs(1), delays: vec![Nanos::from_millis(80)] };
        let make = || Steps::new(&spec, Chance::new(2, 8)).unwrap();
        let (mut all, mut some) = (make(), make());
        for n in 0..200_000 {
            let time = Nanos::from_millis(n * 100);
            let delay = all.at(time);
            if n % 190 == 0 {
                assert_eq!(some.at(time), delay, "a pause of 19 s moved the route at {time}");
            }
        }
    }
}
