//! Attached, replaced, kept, detached, over: nothing of it stays that should not.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Xdp, XdpFlags};
use longhaul_bpf::filter::{Filter, FilterError, FilterOptions, KEPT, Mode, Reason};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_units::Nanos;

use crate::cable::{Cable, LINK, counted};
use crate::frames::*;
use crate::skeleton::HooksSkelBuilder;

fn exists(program: u32) -> bool {
    ProgInfoIter::default().any(|one| one.id == program) || LinkInfoIter::default().any(|one| one.prog_id == program)
}

/// Waits until the kernel has let go: it frees programs after a grace period.
fn gone(program: u32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while exists(program) {
        assert!(Instant::now() < deadline, "program {program} is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends the thread that watches it when dropped, also where the test fails: a scope would wait for that thread forever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn foreign() -> Vec<u8> {
    ipv4(OTHER_MAC, OTHER_IP, 17, 0, &udp(9, 20))
}

/// Held by a test that keeps a filter, as another counts what is kept.
static KEEPS: Mutex<()> = Mutex::new(());

/// The files that keep filters.
fn pins() -> Vec<PathBuf> {
    std::fs::read_dir(KEPT).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Keeps a filter, and gives its file; `None` where that cannot be, and says why.
fn keep(cable: &Cable, filter: &Filter) -> Option<PathBuf> {
    let others = pins();
    if let Err(error) = cable.inside(|| filter.keep()) {
        longhaul_testing::skipped!("{error}");
        return None;
    }
    pins().into_iter().find(|path| !others.contains(path))
}

/// Runs `ip` in the namespace of the calling thread.
fn ip(words: &str) {
    assert!(std::process::Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

#[test]
fn it_goes_with_its_owner_unless_kept() {
    let Some(cable) = Cable::lay() else { return };
    let _alone = KEEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let open = || cable.inside(|| Filter::open(cable.ifindex));
    assert!(matches!(open(), Err(FilterError::NotThere { .. })));
    let filter = cable.filter(&FilterOptions::default());
    let id = filter.program_id();
    assert_eq!(open().unwrap().program_id(), id, "anybody may open it");
    drop(filter);
    gone(id);

    let filter = cable.filter(&FilterOptions { enforce: true, ..FilterOptions::default() });
    if let Err(error) = cable.inside(|| filter.keep()) {
        return longhaul_testing::skipped!("{error}");
    }
    let id = filter.program_id();
    drop(filter);
    let again = open().unwrap();
    assert!(again.program_id() == id && cable.inside(|| again.is_kept()));
    cable.send(&foreign(), 3);
    assert_eq!(counted(&again, 3).dropped_packets, 3);
    cable.inside(|| again.detach()).unwrap();
    gone(id);
    assert!(matches!(open(), Err(FilterError::NotThere { .. })));
    assert_eq!(pins(), Vec::<PathBuf>::new());
}

/// The kernel detaches it, and the file that keeps it keeps the rest.
#[test]
fn one_whose_interface_is_gone_is_forgotten() {
    let Some(cable) = Cable::lay() else { return };
    let _alone = KEEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let filter = cable.filter(&FilterOptions::default());
    let Some(pin) = keep(&cable, &filter) else { return };
    let id = filter.program_id();
    drop(filter);
    Filter::forget_gone();
    assert!(pin.exists(), "its interface is there");
    cable.inside(|| ip(&format!("link delete {LINK}")));
    assert!(pin.exists());
    Filter::forget_gone();
    assert!(!pin.exists());
    gone(id);
}

/// Each command on filters removes the folder where it is empty, as it is before the file is there.
#[test]
fn it_is_kept_while_others_look_for_what_is_gone() {
    let Some(cable) = Cable::lay() else { return };
    let _alone = KEEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let filter = cable.filter(&FilterOptions::default());
    let Some(pin) = keep(&cable, &filter) else { return };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                Filter::forget_gone();
            }
        });
        for _ in 0..300 {
            std::fs::remove_file(&pin).unwrap();
            filter.keep().unwrap();
            assert!(pin.exists());
        }
    });
    cable.inside(|| filter.detach()).unwrap();
}

/// The file that keeps it was made in another network namespace, where the interface had another number.
#[test]
fn one_whose_interface_was_moved_leaves_nothing_either() {
    let Some(cable) = Cable::lay() else { return };
    let _alone = KEEPS.lock().unwrap_or_else(PoisonError::into_inner);
    let filter = cable.filter(&FilterOptions { enforce: true, ..FilterOptions::default() });
    if let Err(error) = cable.inside(|| filter.keep()) {
        return longhaul_testing::skipped!("{error}");
    }
    let id = filter.program_id();
    drop(filter);
    let other = NetNamespace::create().unwrap();
    // Its number is taken there.
    let taken = format!("link add taken index {} type veth peer name taken1 index 77", cable.ifindex);
    let to = format!("link set {LINK} netns /proc/{}/fd/{}", std::process::id(), other.as_fd().as_raw_fd());
    other.enter(|| ip(&taken)).unwrap();
    cable.inside(|| ip(&to));
    let ifindex = other.enter(|| Netlink::open().unwrap().index_of(LINK).unwrap()).unwrap();
    assert_ne!(ifindex, cable.ifindex);
    let moved = other.enter(|| Filter::open(ifindex)).unwrap().unwrap();
    assert!(moved.program_id() == id && other.enter(|| moved.is_kept()).unwrap());
    other.enter(|| moved.detach()).unwrap().unwrap();
    gone(id);
}

#[test]
fn a_detached_filter_of_another_process_is_off() {
    let Some(cable) = Cable::lay() else { return };
    let held = cable.filter(&FilterOptions { enforce: true, ..FilterOptions::default() });
    cable.inside(|| Filter::open(cable.ifindex).unwrap().detach()).unwrap();
    assert!(!cable.inside(|| held.is_attached()));
    cable.send(&foreign(), 1);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(held.counters().unwrap().total().all().packets, 0);
}

#[test]
fn one_takes_the_place_of_another_and_leaves_no_gap() {
    let Some(cable) = Cable::lay() else { return };
    let options = FilterOptions { enforce: true, ..FilterOptions::default() };
    let mut filter = cable.filter(&options);
    // Each frame is for somebody else: one that any of the filters does not see would reach the stack.
    let stop = AtomicBool::new(false);
    let (sent, seen) = std::thread::scope(|scope| {
        let ends = Ends(&stop);
        let sender = scope.spawn(|| {
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                // The cable is full now and then.
                sent += (0..16).filter(|_| cable.peer.send(&[0; 10], &[&foreign()]).is_ok()).count() as u64;
                std::thread::sleep(Duration::from_micros(100));
            }
            sent
        });
        let mut seen = 0;
        for _ in 0..20 {
            let old = std::mem::replace(&mut filter, cable.filter(&options));
            // Who was replaced still counts frames that are just passing it.
            std::thread::sleep(Duration::from_millis(20));
            seen += old.counters().unwrap().dropped_packets;
        }
        drop(ends);
        let sent = sender.join().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        (sent, seen + filter.counters().unwrap().dropped_packets)
    });
    assert!(sent > 1000, "{sent}");
    assert_eq!(seen, sent, "dropped by one filter or another");
}

#[test]
fn the_time_to_enforce_ends_by_itself() {
    let Some(cable) = Cable::lay() else { return };
    // Attaching takes a part of it, on a busy machine a second.
    let until = monotonic() + Nanos::from_secs(3);
    let options = FilterOptions { enforce: true, enforce_until: Some(until), ..FilterOptions::default() };
    let filter = cable.filter(&options);
    cable.send(&foreign(), 2);
    assert_eq!(counted(&filter, 2).dropped_packets, 2);
    assert!(filter.settings().unwrap().drops_at(monotonic()));
    // Some ticks later than that, by the kernel's coarse clock.
    std::thread::sleep(Duration::from_nanos(until.saturating_sub(monotonic()).0) + Duration::from_millis(100));
    cable.send(&foreign(), 2);
    let counters = counted(&filter, 4);
    assert_eq!((counters.dropped_packets, counters.reason(Reason::ForeignUnicast).packets), (2, 4), "it counts on");
    assert!(!filter.confirm(monotonic()).unwrap(), "too late");

    let until = monotonic() + Nanos::from_secs(3);
    let filter = cable.filter(&FilterOptions { enforce_until: Some(until), ..options });
    assert!(filter.confirm(monotonic()).unwrap());
    std::thread::sleep(Duration::from_nanos(until.saturating_sub(monotonic()).0) + Duration::from_millis(100));
    cable.send(&foreign(), 2);
    assert_eq!(counted(&filter, 2).dropped_packets, 2, "confirmed");
}

#[test]
fn other_programs_stay() {
    let Some(cable) = Cable::lay() else { return };
    let mut object = MaybeUninit::uninit();
    let skeleton = HooksSkelBuilder::default().open(&mut object).unwrap().load().unwrap();
    let other = Xdp::new(skeleton.progs.bare_pass.as_fd());
    cable.inside(|| other.attach(cable.ifindex as i32, XdpFlags::DRV_MODE)).unwrap();
    let error = cable.inside(|| Filter::attach(cable.ifindex, &FilterOptions::default())).unwrap_err();
    assert!(matches!(&error, FilterError::OtherProgram { name, .. } if name == "bare_pass"), "{error}");
    cable.inside(|| other.detach(cable.ifindex as i32, XdpFlags::DRV_MODE)).unwrap();
    cable.filter(&FilterOptions::default());
}

/// What of filters a host and this process have.
#[derive(Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    resident_kib: u64,
    /// Of the whole machine: others take part in these.
    percpu_kib: u64,
    available_kib: u64,
}

impl Held {
    fn now() -> Self {
        let entries = |folder: &str| std::fs::read_dir(folder).unwrap().count();
        let kib = |file: &str, name: &str| -> u64 {
            let text = std::fs::read_to_string(file).unwrap();
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok()).unwrap()
        };
        Self {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            resident_kib: kib("/proc/self/status", "VmRSS:"),
            percpu_kib: kib("/proc/meminfo", "Percpu:"),
            available_kib: kib("/proc/meminfo", "MemAvailable:"),
        }
    }
}

/// Times before memory is looked at: some 600 KiB come once, in one of the first.
const WARM_UP: usize = 20;
/// How often a filter comes and goes: 1,000 times with `LONGHAUL_FILTER_CYCLES=1000`.
const CYCLES: &str = "LONGHAUL_FILTER_CYCLES";
/// Set in the process that does nothing else.
const ALONE: &str = "LONGHAUL_FILTER_ALONE";

/// In a process of its own, so that what other tests open is not counted.
#[test]
fn coming_and_going_under_traffic_leaks_nothing() {
    if std::env::var_os(ALONE).is_some() {
        return come_and_go();
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "lifetime::coming_and_going_under_traffic_leaks_nothing", "--nocapture"]).env(ALONE, "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn come_and_go() {
    let Some(cable) = Cable::lay() else { return };
    let cycles = std::env::var(CYCLES).map_or(50, |text| text.parse().unwrap());
    let stop = AtomicBool::new(false);
    let (mut programs, mut maps, mut links) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (before, after) = std::thread::scope(|scope| {
        let ends = Ends(&stop);
        let traffic = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..32 {
                    let _ = cable.peer.send(&[0; 10], &[&foreign()]);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let mut cycle = |number: usize| {
            let mode = if number.is_multiple_of(2) { Mode::Native } else { Mode::Generic };
            let filter = cable.filter(&FilterOptions { enforce: true, mode: Some(mode), ..FilterOptions::default() });
            let id = filter.program_id();
            let query = ProgInfoQueryOptions::default().include_map_ids(true);
            maps.extend(ProgInfoIter::with_query_opts(query).find(|one| one.id == id).unwrap().map_ids);
            links.extend(LinkInfoIter::default().filter(|one| one.prog_id == id).map(|one| one.id));
            programs.insert(id);
            if number.is_multiple_of(3) { cable.inside(|| filter.detach()).unwrap() } else { drop(filter) }
        };
        // So that what is opened lazily is there.
        (0..WARM_UP).for_each(&mut cycle);
        let before = Held::now();
        (0..cycles).for_each(&mut cycle);
        let after = Held::now();
        drop(ends);
        traffic.join().unwrap();
        (before, after)
    });
    let all = cycles + WARM_UP;
    assert!(programs.len() == all && links.len() == all && maps.len() >= 10 * all);
    let left = || {
        (
            ProgInfoIter::default().filter(|one| programs.contains(&one.id)).count(),
            MapInfoIter::default().filter(|one| maps.contains(&one.id)).count(),
            LinkInfoIter::default().filter(|one| links.contains(&one.id)).count(),
        )
    };
    // The kernel frees them after a grace period.
    let deadline = Instant::now() + Duration::from_secs(20);
    while left() != (0, 0, 0) {
        assert!(Instant::now() < deadline, "programs, maps, links that are still there: {:?}", left());
        std::thread::sleep(Duration::from_millis(10));
    }
    let freed = Held::now();
    println!(
        "{cycles} times, {} maps: none is left, nor a program, nor a link\nbefore {before:?}\nafter  {after:?}\nfreed  {freed:?}",
        maps.len()
    );
    assert_eq!((after.descriptors, after.threads), (before.descriptors, before.threads));
    // A thousand times take 64 KiB more here.
    assert!(freed.resident_kib < before.resident_kib + 256, "{before:?} {freed:?}");
    // And nothing of the machine, where it is long enough to be told from what others take: each filter that stayed would have 7 KiB for
    // its counters on two CPUs, and 1 MiB in all.
    if cycles >= 1_000 {
        assert!(freed.percpu_kib < before.percpu_kib + 256, "{before:?} {freed:?}");
        assert!(freed.available_kib + (512 << 10) > before.available_kib, "{before:?} {freed:?}");
    }
}

#[test]
fn two_interfaces_have_one_each() {
    let (Some(one), Some(two)) = (Cable::lay(), Cable::lay()) else { return };
    let first = one.filter(&FilterOptions { enforce: true, ..FilterOptions::default() });
    let second = two.filter(&FilterOptions::default());
    one.send(&foreign(), 5);
    two.send(&foreign(), 3);
    assert_eq!(counted(&first, 5).dropped_packets, 5);
    assert_eq!(counted(&second, 3).dropped_packets, 0);
    drop(first);
    two.send(&foreign(), 1);
    counted(&second, 4);
}

#[test]
fn samples_show_what_is_rejected() {
    let Some(cable) = Cable::lay() else { return };
    let filter = cable.filter(&FilterOptions::default());
    filter.sample(2, monotonic() + Nanos::from_secs(60)).unwrap();
    let long = ipv4(OTHER_MAC, OTHER_IP, 17, 0, &udp(9, 1000));
    for _ in 0..2 {
        cable.send(&foreign(), 2);
        cable.send(&long, 2);
        cable.send(&ipv4(OUR_MAC, OUR_IP, 17, 0, &udp(9, 20)), 2);
    }
    counted(&filter, 12);
    let mut seen = Vec::new();
    filter.samples().unwrap().drain(|sample| seen.push(sample));
    // A CPU counts by itself which is one in two.
    assert!((4..=8).contains(&seen.len()), "{}", seen.len());
    for sample in seen {
        let sent = if sample.frame_bytes as usize == long.len() { &long } else { &foreign() };
        assert_eq!((sample.frame_bytes as usize, sample.reason), (sent.len(), Reason::ForeignUnicast));
        assert_eq!(sample.snippet, sent[..sent.len().min(256)]);
        assert!(sample.at_ns <= monotonic().0);
    }
}

/// A reader that was killed asks for no more of them.
#[test]
fn samples_end_by_themselves() {
    let Some(cable) = Cable::lay() else { return };
    let filter = cable.filter(&FilterOptions::default());
    let now = monotonic();
    for (until, sent) in [(now.saturating_sub(Nanos::from_secs(1)), 3), (now + Nanos::from_secs(60), 6)] {
        filter.sample(1, until).unwrap();
        cable.send(&foreign(), 3);
        counted(&filter, sent);
    }
    let (mut samples, mut seen) = (filter.samples().unwrap(), 0);
    let deadline = Instant::now() + Duration::from_secs(10);
    // A frame is sampled after it is counted.
    while seen < 3 {
        assert!(Instant::now() < deadline, "{seen} samples");
        samples.drain(|_| seen += 1);
    }
    assert_eq!(seen, 3, "of the second three");
}
