//! The world of the test: true time, hosts with clocks of their own, messages that take time and get lost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;

use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::admission::{Agenda, Answer, Due, Gate, Leases, MARGIN, PATIENCE, RequestId};
use longhaul_mesh_model::file::Mesh;
use longhaul_mesh_model::schedule::{Round, Schedule};
use longhaul_units::{BitRate, Nanos};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SECOND: u64 = 1_000_000_000;
/// Clocks run wrong by up to this: five times what NTP corrects.
const DRIFT_PPM: f64 = 500.0;
/// Sites crash about this often, and are away for up to two hours.
const CRASH_EVERY_S: f64 = 10.0 * 24.0 * 3600.0;
const TEST: Nanos = Nanos::from_secs(35);
/// 65 Mb/s of payload on the wire. Two of them fill what is leased of the link of forty sites.
const RATE: BitRate = BitRate(69_472_000);

#[derive(Debug, Default, Clone)]
pub(crate) struct Outcome {
    pub(crate) collisions: u64,
    pub(crate) overloads: u64,
    pub(crate) crashes: u64,
    pub(crate) tests: u64,
    pub(crate) refused: u64,
    pub(crate) by_lease: u64,
    pub(crate) by_safe_share: u64,
    /// Tests that ended, of those of all rounds.
    pub(crate) done_share: f64,
    /// The same of the pair that got least.
    pub(crate) least_share: f64,
    /// And in the week without a coordinator.
    pub(crate) least_share_away: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Round { site: u16, number: u64, life: u32 },
    Wake { site: u16, life: u32 },
    LeaseAsked { site: u16, life: u32, number: u64 },
    LeaseAnswer { site: u16, life: u32, number: u64, granted: bool },
    Asked { from: u16, to: u16, life: u32, number: u64 },
    Answer { to: u16, life: u32, number: u64, granted: bool, retry_after: Nanos },
    Ends { site: u16, life: u32, number: u64 },
    Released { at: u16, from: u16, number: u64 },
    LeaseBack { from: u16, number: u64, link: usize },
    Crash { site: u16 },
    Return { site: u16 },
}

/// What a host is about to do or does.
struct Attempt {
    request: RequestId,
    due: Due,
    partner: u16,
    /// Link and direction, and what the test takes of it.
    link: Option<(usize, u64)>,
    testing: bool,
}

struct Host {
    rate: f64,
    offset: f64,
    /// Error of what it takes for the coordinator's time: at the last contact, and when that was.
    synced: (f64, u64),
    /// Counts its starts; what was meant for an earlier life is lost.
    life: u32,
    up: bool,
    gate: Gate,
    agenda: Agenda,
    attempt: Option<Attempt>,
    wake: Option<u64>,
    numbers: u64,
    /// Tests that really run here: an end of others counts, too.
    active: u32,
}

pub(crate) struct World {
    mesh: Mesh,
    round: Round,
    /// What each site begins in a round.
    plan: Vec<Vec<(Nanos, (SiteId, SiteId))>>,
    hosts: Vec<Host>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    now: u64,
    random: Xoshiro256PlusPlus,
    away: (u64, u64),
    leases: Vec<Leases>,
    loads: Vec<u64>,
    outcome: Outcome,
    done: BTreeMap<(SiteId, SiteId), (u32, u32)>,
}

impl World {
    pub(crate) fn new(sites: u16, every: Nanos, seed: u64) -> Self {
        let mut text = "name = \"world\"\n".to_owned();
        for site in 0..sites {
            // Eight sites share a link to the others. One is behind NAT.
            let tag = if site < 8 { "island" } else { "land" };
            let _ = write!(text, "[[site]]\nname = \"s{site}\"\nrate = \"10Gbit\"\ntags = [\"{tag}\"]\n");
            text.push_str(if site == 9 { "nat = true\n" } else { "address = \"192.0.2.1\"\n" });
        }
        let _ = write!(
            text,
            "[[link]]\nname = \"cable\"\nbetween = [\"@island\", \"@land\"]\nrate = \"{}Mbit\"\nshare = \"50%\"\n\
             [[test]]\nname = \"probes\"\nkind = \"udp\"\nrate = \"65M\"\nlength = 1250\nevery = \"{every}\"\ntime = \"{TEST}\"\n",
            u32::from(sites) * 10
        );
        let mesh = Mesh::parse(&text).unwrap();
        let schedule = Schedule::make(&mesh).unwrap();
        let round = schedule.rounds[0].clone();
        let plan = (0..sites).map(|site| round.of_site(&mesh, 0, SiteId(site))).collect();
        let leased = mesh.links[0].leased();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let host = |random: &mut Xoshiro256PlusPlus| Host {
            rate: 1.0 + (unit(random) * 2.0 - 1.0) * DRIFT_PPM * 1e-6,
            // Clocks of a host that nobody set: up to an hour apart.
            offset: unit(random) * 7200.0 * SECOND as f64,
            synced: (0.0, 0),
            life: 0,
            up: true,
            gate: Gate::new(Nanos::ZERO, TEST),
            agenda: Agenda::default(),
            attempt: None,
            wake: None,
            numbers: 0,
            active: 0,
        };
        let hosts = (0..sites).map(|_| host(&mut random)).collect();
        let mut world = Self {
            mesh,
            round,
            plan,
            hosts,
            events: BinaryHeap::new(),
            count: 0,
            now: 0,
            random,
            away: (u64::MAX, u64::MAX),
            leases: (0..2).map(|_| Leases::new(leased, Nanos::ZERO, Nanos::ZERO)).collect(),
            loads: vec![0; 2],
            outcome: Outcome::default(),
            done: BTreeMap::new(),
        };
        for site in 0..sites {
            world.start(site);
            let first = world.exponential(CRASH_EVERY_S);
            world.after(first, Event::Crash { site });
        }
        world
    }

    pub(crate) fn coordinator_away(&mut self, from: Nanos, to: Nanos) {
        self.away = (from.0, to.0);
    }

    pub(crate) fn run(&mut self, until: Nanos) -> Outcome {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > until.0 {
                break;
            }
            self.now = at;
            self.handle(event);
        }
        let every = self.round.every.0;
        let rounds = (until.0 / every) as f64;
        // Whole rounds of the week.
        let rounds_away = ((self.away.1 - self.away.0) / every) as f64;
        let all = &self.mesh.tests[0].pairs;
        let of = |pair: &(SiteId, SiteId)| self.done.get(pair).copied().unwrap_or_default();
        let done: u64 = all.iter().map(|pair| u64::from(of(pair).0)).sum();
        self.outcome.done_share = done as f64 / (rounds * all.len() as f64);
        self.outcome.least_share = all.iter().map(|pair| f64::from(of(pair).0) / rounds).fold(1.0, f64::min);
        self.outcome.least_share_away = all.iter().map(|pair| f64::from(of(pair).1) / rounds_away).fold(1.0, f64::min);
        self.outcome.clone()
    }

    fn exponential(&mut self, mean_s: f64) -> u64 {
        (-(1.0 - unit(&mut self.random)).ln() * mean_s * SECOND as f64) as u64
    }

    fn after(&mut self, wait: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((self.now + wait, self.count, event)));
    }

    /// A message: some get lost, the others take up to 0.3 s; a few are late by seconds.
    fn send(&mut self, event: Event) {
        let fate = unit(&mut self.random);
        if fate < 0.002 {
            return;
        }
        let most = if fate < 0.004 { 12.0 } else { 0.3 };
        let wait = (unit(&mut self.random) * most * SECOND as f64) as u64;
        self.after(wait, event);
    }

    /// The steady clock of a host.
    fn clock(&self, site: u16) -> Nanos {
        let host = &self.hosts[usize::from(site)];
        Nanos((host.offset + self.now as f64 * host.rate) as u64)
    }

    /// True time from now until a host's clock has gone on by `wait`.
    fn truly(&self, site: u16, wait: u64) -> u64 {
        (wait as f64 / self.hosts[usize::from(site)].rate).ceil() as u64
    }

    fn reaches_coordinator(&self) -> bool {
        !(self.away.0..self.away.1).contains(&self.now)
    }

    /// What a host takes for the coordinator's time.
    fn mesh_time(&mut self, site: u16) -> f64 {
        if self.reaches_coordinator() {
            let error = (unit(&mut self.random) - 0.5) * 0.5 * SECOND as f64;
            self.hosts[usize::from(site)].synced = (error, self.now);
        }
        let host = &self.hosts[usize::from(site)];
        self.now as f64 + host.synced.0 + (self.now - host.synced.1) as f64 * (host.rate - 1.0)
    }

    fn start(&mut self, site: u16) {
        let now = self.clock(site);
        let host = &mut self.hosts[usize::from(site)];
        host.up = true;
        host.gate = Gate::new(now, TEST);
        host.agenda = Agenda::default();
        let life = host.life;
        let time = self.mesh_time(site).max(0.0) as u64;
        self.after(0, Event::Round { site, number: time / self.round.every.0, life });
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Round { site, number, life } if self.lives(site, life) => self.begin_round(site, number, life),
            Event::Wake { site, life }
                if self.lives(site, life) && self.hosts[usize::from(site)].wake == Some(self.now) =>
            {
                self.hosts[usize::from(site)].wake = None;
                self.go_on(site);
            }
            Event::LeaseAsked { site, life, number } => self.lease_asked(site, life, number),
            Event::LeaseAnswer { site, life, number, granted } if self.lives(site, life) => {
                self.lease_answer(site, number, granted);
            }
            Event::Asked { from, to, life, number } if self.hosts[usize::from(to)].up => {
                let now = self.clock(to);
                let request = RequestId { initiator: SiteId(from), number };
                let answer = self.hosts[usize::from(to)].gate.asked(now, request, TEST);
                let (granted, retry_after) = match answer {
                    Answer::Granted => (true, Nanos::ZERO),
                    Answer::Busy { retry_after } => (false, retry_after),
                };
                self.send(Event::Answer { to: from, life, number, granted, retry_after });
            }
            Event::Answer { to, life, number, granted, retry_after } if self.lives(to, life) => {
                self.answered(to, number, granted, retry_after);
            }
            Event::Ends { site, life, number } if self.lives(site, life) => self.ended(site, number),
            Event::Released { at, from, number } if self.hosts[usize::from(at)].up => {
                let now = self.clock(at);
                self.hosts[usize::from(at)].gate.release(now, RequestId { initiator: SiteId(from), number });
                self.go_on(at);
            }
            Event::LeaseBack { from, number, link } if self.reaches_coordinator() => {
                self.leases[link].give_back(RequestId { initiator: SiteId(from), number }, false);
            }
            Event::Crash { site } => self.crash(site),
            Event::Return { site } => self.start(site),
            _ => {}
        }
    }

    fn lives(&self, site: u16, life: u32) -> bool {
        let host = &self.hosts[usize::from(site)];
        host.up && host.life == life
    }

    fn begin_round(&mut self, site: u16, number: u64, life: u32) {
        let time = self.mesh_time(site).max(0.0) as u64;
        let every = self.round.every.0;
        let now = self.clock(site).0;
        let begin = number * every;
        let own = |at: u64| Nanos((now + at).saturating_sub(time));
        let host = &mut self.hosts[usize::from(site)];
        for (offset, pair) in &self.plan[usize::from(site)] {
            host.agenda.add(own(begin + offset.0), *pair, own(begin + every));
        }
        let wait = (begin + every).saturating_sub(time).max(SECOND);
        let wait = self.truly(site, wait);
        self.after(wait, Event::Round { site, number: number + 1, life });
        self.go_on(site);
    }

    /// Begins what is due, or waits for it.
    fn go_on(&mut self, site: u16) {
        let now = self.clock(site);
        let life = self.hosts[usize::from(site)].life;
        let host = &mut self.hosts[usize::from(site)];
        if host.attempt.is_none()
            && host.gate.is_idle(now)
            && let Some(due) = host.agenda.next(now)
        {
            let pair = due.pair;
            host.numbers += 1;
            let number = u64::from(life) << 32 | host.numbers;
            let request = RequestId { initiator: SiteId(site), number };
            assert!(host.gate.begin(now, request, TEST));
            let partner = if pair.0.0 == site { pair.1.0 } else { pair.0.0 };
            let direction = self.mesh.links[0].direction(pair.0, pair.1);
            let link = direction.map(|direction| (direction, 0));
            host.attempt = Some(Attempt { request, due, partner, link, testing: false });
            self.ask(site);
            return;
        }
        let host = &self.hosts[usize::from(site)];
        if host.attempt.is_some() {
            return;
        }
        // The gate opens by itself, too, after a start and after a held test.
        let due = host.agenda.poll_timeout().unwrap_or(Nanos(now.0 + 60 * SECOND));
        let due = due.max(host.gate.poll_timeout().unwrap_or(Nanos::ZERO)).0.max(now.0 + SECOND / 10);
        let wait = self.truly(site, due - now.0);
        self.hosts[usize::from(site)].wake = Some(self.now + wait);
        self.after(wait, Event::Wake { site, life });
    }

    fn ask(&mut self, site: u16) {
        let life = self.hosts[usize::from(site)].life;
        let attempt = self.hosts[usize::from(site)].attempt.as_mut().unwrap();
        let rate = RATE;
        match attempt.link {
            Some(_) if self.away.0 <= self.now && self.now < self.away.1 => {
                // The connection fails at once.
                let safe = self.mesh.links[0].safe_share().min(rate);
                attempt.link = attempt.link.map(|(direction, _)| (direction, safe.0));
                self.ask_partner(site);
            }
            Some(_) => {
                attempt.link = attempt.link.map(|(direction, _)| (direction, rate.0));
                let number = attempt.request.number;
                self.send(Event::LeaseAsked { site, life, number });
                self.patience(site);
            }
            None => self.ask_partner(site),
        }
    }

    fn ask_partner(&mut self, site: u16) {
        let life = self.hosts[usize::from(site)].life;
        let attempt = self.hosts[usize::from(site)].attempt.as_ref().unwrap();
        let (to, number) = (attempt.partner, attempt.request.number);
        self.send(Event::Asked { from: site, to, life, number });
        self.patience(site);
    }

    /// Without an answer the attempt ends.
    fn patience(&mut self, site: u16) {
        let host = &self.hosts[usize::from(site)];
        let number = host.attempt.as_ref().unwrap().request.number;
        let (life, wait) = (host.life, self.truly(site, PATIENCE.0 + SECOND / 10));
        let retry_after = Nanos::from_secs(1);
        self.after(wait, Event::Answer { to: site, life, number, granted: false, retry_after });
    }

    fn lease_asked(&mut self, site: u16, life: u32, number: u64) {
        if !self.reaches_coordinator() || !self.lives(site, life) {
            return;
        }
        let Some(attempt) = self.attempt(site, number) else { return };
        let (Some((direction, rate)), request) = (attempt.link, attempt.request) else { return };
        let now = Nanos(self.now);
        let lasts = Nanos(TEST.0 + 2 * PATIENCE.0 + MARGIN.0);
        let granted = self.leases[direction].ask(now, request, BitRate(rate), lasts).is_some();
        self.send(Event::LeaseAnswer { site, life, number, granted });
    }

    /// The attempt with that number, unless it is over: an answer belongs to its question.
    fn attempt(&self, site: u16, number: u64) -> Option<&Attempt> {
        self.hosts[usize::from(site)].attempt.as_ref().filter(|attempt| attempt.request.number == number)
    }

    fn lease_answer(&mut self, site: u16, number: u64, granted: bool) {
        let Some(attempt) = self.attempt(site, number) else { return };
        if attempt.testing {
            return;
        }
        if granted {
            self.ask_partner(site);
        } else {
            self.answered(site, number, false, Nanos::from_secs(10));
        }
    }

    fn answered(&mut self, site: u16, number: u64, granted: bool, retry_after: Nanos) {
        let now = self.clock(site);
        let random = unit(&mut self.random);
        let host = &mut self.hosts[usize::from(site)];
        let Some(attempt) =
            host.attempt.as_mut().filter(|attempt| attempt.request.number == number && !attempt.testing)
        else {
            return;
        };
        if granted && host.gate.granted(now, attempt.request) {
            attempt.testing = true;
            let (partner, link) = (attempt.partner, attempt.link);
            let life = host.life;
            self.outcome.tests += 1;
            for end in [site, partner] {
                let host = &mut self.hosts[usize::from(end)];
                host.active += 1;
                self.outcome.collisions += u64::from(host.active > 1);
            }
            if let Some((direction, rate)) = link {
                self.loads[direction] += rate;
                self.outcome.overloads += u64::from(self.loads[direction] > self.mesh.links[0].allowed().0);
                if rate == RATE.0 { self.outcome.by_lease += 1 } else { self.outcome.by_safe_share += 1 }
            }
            let wait = self.truly(site, TEST.0);
            self.after(wait, Event::Ends { site, life, number });
            return;
        }
        self.outcome.refused += 1;
        let attempt = host.attempt.take().unwrap();
        host.gate.release(now, attempt.request);
        host.agenda.postpone(now, attempt.due, retry_after, random);
        self.send(Event::Released { at: attempt.partner, from: site, number });
        self.back(site, &attempt);
        self.go_on(site);
    }

    fn back(&mut self, site: u16, attempt: &Attempt) {
        if let Some((link, rate)) = attempt.link
            && rate == RATE.0
        {
            self.send(Event::LeaseBack { from: site, number: attempt.request.number, link });
        }
    }

    fn stop_traffic(&mut self, site: u16, attempt: &Attempt) {
        for end in [site, attempt.partner] {
            self.hosts[usize::from(end)].active -= 1;
        }
        if let Some((direction, rate)) = attempt.link {
            self.loads[direction] -= rate;
        }
    }

    fn ended(&mut self, site: u16, number: u64) {
        let attempt = self.hosts[usize::from(site)].attempt.take().unwrap();
        assert_eq!(attempt.request.number, number);
        self.stop_traffic(site, &attempt);
        let now = self.clock(site);
        self.hosts[usize::from(site)].gate.release(now, attempt.request);
        // Its result is there only if the partner still is.
        if self.hosts[usize::from(attempt.partner)].up {
            let is_away = !self.reaches_coordinator();
            let done = self.done.entry(attempt.due.pair).or_default();
            *done = (done.0 + 1, done.1 + u32::from(is_away));
        }
        self.send(Event::Released { at: attempt.partner, from: site, number });
        self.back(site, &attempt);
        self.go_on(site);
    }

    fn crash(&mut self, site: u16) {
        self.outcome.crashes += 1;
        let host = &mut self.hosts[usize::from(site)];
        host.up = false;
        host.life += 1;
        host.wake = None;
        // Its own traffic ends; what a partner sends to it goes on until the partner's test is over.
        if let Some(attempt) = host.attempt.take()
            && attempt.testing
        {
            self.stop_traffic(site, &attempt);
        }
        // Often only the program crashes, and is there again in seconds.
        let longest = if unit(&mut self.random) < 0.5 { 10.0 } else { 7200.0 };
        let wait = (unit(&mut self.random) * longest * SECOND as f64) as u64;
        self.after(wait, Event::Return { site });
        let next = wait + self.exponential(CRASH_EVERY_S);
        self.after(next + 1, Event::Crash { site });
    }
}

fn unit(random: &mut Xoshiro256PlusPlus) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
