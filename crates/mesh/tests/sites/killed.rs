//! Ten sites, one of which receives badly, and a path that changes: `kill -9` of coordinator, sites and programs of tests at every stage. Each result
//! arrives once, by count, and so does each list of what was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_kernel::process::{Process, Signal};
use longhaul_mesh::store::{Kept, Measured, Measurement, Outbox, TestResult};
use longhaul_testing::postgres::Postgres;

use crate::common::Lab;
use crate::loss_lists::{delivered, runs};

const TESTS: &str = "\
[[test]]
name = 'probes'
kind = 'udp'
every = '60s'
pairs = 40
time = '1s'
rate = '2M'
length = 1000
[[test]]
name = 'delay'
kind = 'rtt'
time = '5s'
between = ['ithaca', 'chicago']
";
/// The first half of them on one side, 4 ms from the others.
const HOSTS: [&str; 10] =
    ["ithaca", "geneva", "boston", "denver", "seattle", "chicago", "tokyo", "sydney", "paris", "houston"];
const HUB: &str = "chicago";
/// It drops 3 % of the datagrams that arrive.
const RECEIVER: &str = "tokyo";
const DROP_SOME: &str = "add table inet bad; add chain inet bad in { type filter hook input priority 0; }; \
    add rule inet bad in meta l4proto udp numgen random mod 100 < 3 drop";

fn path() -> String {
    let side = |number: usize| if number < HOSTS.len() / 2 { "client" } else { "server" };
    let hosts = (0..HOSTS.len()).map(|number| format!("[[{}]]\nname = '{}'\n", side(number), HOSTS[number]));
    hosts.collect::<String>() + "[[both]]\nrate = '1Gbit'\ndelay = '2ms'\n"
}

/// What a stage waits for, before somebody is killed.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// A program of a test runs.
    Testing,
    /// A result lies in an outbox.
    Kept,
    /// A list of lost packets lies in an outbox.
    File,
    /// The coordinator has got a list: its confirmation may be on its way.
    FileTaken,
    /// The archive has got a result: its confirmation may be on its way.
    Taken,
    /// Any moment.
    Any(u64),
}

fn id(kept: &Kept) -> String {
    match kept {
        Kept::Udp(result) => result.id.clone(),
        Kept::Measurement(one) => one.id.clone(),
    }
}

/// What was seen on the disks.
struct Seen<'a> {
    lab: &'a Lab,
    /// Ids that an outbox had.
    ids: BTreeSet<String>,
}

impl Seen<'_> {
    /// Looks into all outboxes; how many results wait there.
    fn look(&mut self) -> usize {
        let mut waiting = 0;
        for host in HOSTS {
            let path = self.lab.path(host).join("outbox");
            if !path.exists() {
                continue;
            }
            let all = Outbox::open(&path).unwrap().all().unwrap();
            waiting += all.len();
            self.ids.extend(all.iter().map(id));
        }
        waiting
    }

    fn taken(&self) -> usize {
        let mut archive = self.lab.archive();
        archive.since(0).unwrap().len() + archive.measurements(0).unwrap().len()
    }

    /// Tests whose lists of lost packets wait in outboxes.
    fn waiting(&self) -> BTreeSet<String> {
        let mut ids = BTreeSet::new();
        let paths = HOSTS.iter().map(|host| self.lab.path(host).join("outbox")).filter(|path| path.exists());
        for mut outbox in paths.map(|path| Outbox::open(&path).unwrap()) {
            let mut last = 0;
            while let Some((number, file)) = outbox.file_after(last, None).unwrap() {
                last = number;
                ids.insert(file.id);
            }
        }
        ids
    }

    /// Until the stage is reached, or for 30 s.
    fn until(&mut self, stage: Stage) -> bool {
        let (begin, taken) = (Instant::now(), self.taken());
        let delivered = || delivered(&self.lab.path("hub/losses")).len();
        let lists = delivered();
        while begin.elapsed() < Duration::from_secs(30) {
            let waiting = self.look();
            let reached = match stage {
                Stage::Testing => !self.lab.tests().is_empty(),
                Stage::Kept => waiting > 0,
                Stage::File => !self.waiting().is_empty(),
                Stage::FileTaken => delivered() > lists,
                Stage::Taken => self.taken() > taken,
                Stage::Any(millis) => begin.elapsed() > Duration::from_millis(millis),
            };
            if reached {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

#[test]
fn kills_at_every_stage_lose_and_double_nothing() {
    let Some(lab) = Lab::up("killed", &path()) else { return };
    kill(&lab);
}

#[test]
fn kills_at_every_stage_lose_and_double_nothing_in_postgresql() {
    let Some(lab) = Lab::up("killed-postgresql", &path()) else { return };
    let server = Postgres::start();
    lab.store_at(&server.address());
    kill(&lab);
    assert!(!lab.path("hub/archive").exists());
}

fn kill(lab: &Lab) {
    let keep = ["--keep-losses", "10M"];
    let mut coordinator = lab.mesh_with(HUB, &HOSTS, TESTS, &keep);
    lab.set("forward.loss=random(2%)");
    let dropping = lab.program(RECEIVER, &["nft", DROP_SOME]).output().unwrap();
    assert!(dropping.status.success(), "{dropping:?}");
    let allow = ["time=1s", "busy=100%"];
    let mut sites = HOSTS.map(|host| lab.site(host, &allow));
    let mut seen = Seen { lab, ids: BTreeSet::new() };
    lab.wait("no result", || (seen.look() > 0 || seen.taken() > 0).then_some(()));
    let stages = [
        Stage::Kept,
        Stage::Taken,
        Stage::FileTaken,
        Stage::File,
        Stage::Testing,
        Stage::Testing,
        Stage::Any(900),
        Stage::File,
        Stage::Taken,
        Stage::Kept,
        Stage::FileTaken,
        Stage::Any(37),
    ];
    let mut reached = BTreeMap::new();
    // Each site is killed once at least.
    for (number, stage) in stages.into_iter().cycle().take(2 * HOSTS.len() + 2).enumerate() {
        if !seen.until(stage) {
            continue;
        }
        *reached.entry(format!("{stage:?}")).or_insert(0) += 1;
        if number == 3 {
            lab.wait("no round trip of the short path", || {
                lab.archive().measurements(0).unwrap().iter().any(|one| median(one).is_some()).then_some(())
            });
            lab.set("forward.delay=20ms");
        }
        if matches!(stage, Stage::Testing) {
            for process in lab.tests().into_iter().filter_map(|pid| Process::open(pid).unwrap()) {
                process.signal(Signal::KILL).unwrap();
            }
        }
        // The coordinator each second time, a site between.
        if number % 2 == 0 {
            coordinator.kill();
            seen.look();
            coordinator = lab.coordinator_with(HUB, &keep);
        } else {
            let site = number / 2 % HOSTS.len();
            sites[site].kill();
            seen.look();
            sites[site] = lab.site(HOSTS[site], &allow);
        }
    }
    println!("{reached:?}, {} results seen", seen.ids.len());
    // An outbox is looked into now and then, and empties within milliseconds.
    assert!(reached.len() >= 4 && seen.ids.len() >= 2, "{reached:?}: {:?}", seen.ids);
    lab.wait("a site takes no part", || takes_part(&lab.archive().since(0).unwrap()).then_some(()));
    // All that was ever on a disk arrives.
    let archived = |lab: &Lab| -> Vec<String> {
        let mut archive = lab.archive();
        let udp = archive.since(0).unwrap().into_iter().map(|one| one.id);
        udp.chain(archive.measurements(0).unwrap().into_iter().map(|one| one.id)).collect()
    };
    lab.wait("a result is missing", || {
        let all: BTreeSet<String> = archived(lab).into_iter().collect();
        seen.ids.is_subset(&all).then_some(())
    });
    // Once more, while nobody is killed: then each list has arrived, too.
    lab.wait("a list is missing", || (seen.look() == 0 && seen.waiting().is_empty()).then_some(()));
    drop((coordinator, sites));
    lab.wait("a program of a test outlived its site", || lab.tests().is_empty().then_some(()));
    let all = archived(lab);
    lists(lab, &mut seen);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "a result is there twice");
    let mut archive = lab.archive();
    let udp = archive.since(0).unwrap();
    let sums = archive.hours(0).unwrap().iter().fold((0, 0), |sum, hour| (sum.0 + hour.tests, sum.1 + hour.sent));
    assert_eq!(sums, (udp.len() as i64, udp.iter().map(|one| one.sent).sum()), "sums by hour are those of the results");
    faults(&udp, &archive.measurements(0).unwrap());
}

/// Whether each site has sent and received, and the bad one often enough.
fn takes_part(udp: &[TestResult]) -> bool {
    let tests = |host: &str| {
        let count = |of: fn(&TestResult) -> &String| udp.iter().filter(|one| of(one) == host).count();
        (count(|one| &one.sender), count(|one| &one.receiver))
    };
    HOSTS.iter().all(|host| tests(host).0 > 0 && tests(host).1 > 0) && tests(RECEIVER).1 >= 3
}

/// What was broken is in the results: packets that the bad receiver alone dropped, and the path that got longer.
fn faults(udp: &[TestResult], measured: &[Measurement]) {
    let dropped = |is_receiver: bool| {
        let there = udp.iter().filter(|one| (one.receiver == RECEIVER) == is_receiver);
        there.fold((0, 0), |sum, one| (sum.0 + one.sent, sum.1 + one.at_receiver.unwrap_or(0)))
    };
    let ((sent, bad), (others, good)) = (dropped(true), dropped(false));
    println!("{bad} of {sent} dropped by {RECEIVER}, {good} of {others} by the others");
    assert!(bad * 100 >= sent && good * 1000 <= others, "{bad} of {sent}, {good} of {others}");
    let (least, most) =
        measured.iter().filter_map(median).fold((i64::MAX, 0), |(least, most), trip| (least.min(trip), most.max(trip)));
    assert!(least < 12_000_000 && most > 22_000_000, "{least} to {most} ns");
}

/// The median round trip, ns, of a test that measured some.
fn median(of: &Measurement) -> Option<i64> {
    match &of.measured {
        Measured::Rtt(trips) => Some(trips.quantiles?.p50_ns),
        _ => None,
    }
}

/// Each test that lost packets has its list at the coordinator, once and whole, and no other test has one. What a site took in its last moment is on
/// its way.
fn lists(lab: &Lab, seen: &mut Seen) {
    let (taken, waiting) = (delivered(&lab.path("hub/losses")), seen.waiting());
    seen.look();
    let udp: BTreeMap<String, i64> =
        lab.archive().since(0).unwrap().into_iter().map(|one| (one.id, one.lost)).collect();
    let lossy: Vec<&String> = udp.iter().filter(|(_, lost)| **lost > 0).map(|(id, _)| id).collect();
    println!(
        "{} tests, {} of them lost packets; {} lists, {} wait",
        udp.len(),
        lossy.len(),
        taken.len(),
        waiting.len()
    );
    assert!(lossy.len() >= 2, "{udp:?}");
    for id in lossy {
        match taken.get(id) {
            Some(list) => assert_eq!(runs(list).iter().sum::<u64>(), udp[id].unsigned_abs(), "{id}"),
            None => assert!(waiting.contains(id), "{id} has no list\n{}", lab.logs()),
        }
    }
    for id in taken.keys() {
        assert!(udp.get(id).map_or_else(|| seen.ids.contains(id), |lost| *lost > 0), "{id} lost nothing");
    }
}
