//! Every control loads, is there for all, and goes.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter};
use libbpf_rs::{MapType, ProgramType};
use longhaul_bpf::BpfError;
use longhaul_bpf::congestion::{CongestionError, Control, kept, unload};
use longhaul_bpf::support::has_bpf_fs;
use longhaul_congestion::{Algorithm, Settings, Variant};

/// Loads; `None` where that cannot be here, and says why.
fn load(settings: &Settings) -> Option<Control> {
    match Control::load(settings) {
        Ok(control) => Some(control),
        Err(
            error @ (CongestionError::NoStructOps
            | CongestionError::Bpf(BpfError::NoBtf { .. } | BpfError::Denied { .. })),
        ) => {
            longhaul_testing::skipped!("{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn available() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

/// A name in the kernel that no other test has.
fn named(algorithm: Algorithm, variant: Variant, letter: char) -> Settings {
    let mut settings = Settings::new(algorithm, variant).unwrap();
    settings.rename(&format!("lb{}_{letter}{}", std::process::id(), algorithm as u8)).unwrap();
    settings
}

/// Every control in every variant.
fn everything(letters: [char; 2]) -> Vec<Settings> {
    let variants = [Variant::Paper, Variant::Linux].into_iter().zip(letters);
    let all = variants.flat_map(|(variant, letter)| Algorithm::ALL.map(|algorithm| (algorithm, variant, letter)));
    all.filter(|(algorithm, variant, _)| *variant == Variant::Paper || algorithm.has_linux_variant())
        .map(|(algorithm, variant, letter)| named(algorithm, variant, letter))
        .collect()
}

/// Programs, maps and links of congestion controls that are there, by number.
fn objects() -> BTreeSet<(&'static str, u32)> {
    let programs = ProgInfoIter::default().filter(|program| program.ty == ProgramType::StructOps);
    let maps = MapInfoIter::default().filter(|map| map.ty == MapType::StructOps);
    let links = LinkInfoIter::default().filter(|link| matches!(link.info, LinkTypeInfo::StructOps(_)));
    let programs = programs.map(|program| ("program", program.id));
    programs.chain(maps.map(|map| ("map", map.id))).chain(links.map(|link| ("link", link.id))).collect()
}

/// What there is now and was not before.
fn new_objects(before: &BTreeSet<(&'static str, u32)>) -> BTreeSet<(&'static str, u32)> {
    objects().difference(before).copied().collect()
}

/// Waits until none of `these` is there: the kernel frees them after a grace period.
fn gone(these: &BTreeSet<(&'static str, u32)>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !objects().is_disjoint(these) {
        let left: Vec<_> = objects().intersection(these).copied().collect();
        assert!(Instant::now() < deadline, "still there: {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One test at a time looks at all that there is.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn every_control_loads_and_goes_with_its_holder() {
    let _alone = alone();
    let before = objects();
    let mut held = Vec::new();
    for settings in everything(['p', 'l']) {
        let Some(control) = load(&settings) else { return };
        assert!(available().contains(&control.name().to_owned()), "{}", control.name());
        held.push(control);
    }
    assert_eq!(held.len(), 13 + 9);
    let new = new_objects(&before);
    let count = |kind| new.iter().filter(|(found, _)| *found == kind).count();
    assert!(count("map") >= 22 && count("link") >= 22 && count("program") >= 60, "{new:?}");
    let names: Vec<_> = held.iter().map(|control| control.name().to_owned()).collect();
    drop(held);
    assert!(names.iter().all(|name| !available().contains(name)));
    gone(&new);
}

#[test]
fn kept_ones_stay_until_they_are_unloaded() {
    if !has_bpf_fs() {
        return longhaul_testing::no_judge!("no BPF file system");
    }
    let _alone = alone();
    let before = objects();
    let wanted = everything(['q', 'm']);
    for settings in &wanted {
        let Some(control) = load(settings) else { return };
        control.keep().unwrap();
    }
    let new = new_objects(&before);
    let mine =
        |names: Vec<String>| names.into_iter().filter(|name| wanted.iter().any(|one| one.name() == name)).count();
    assert_eq!((mine(available()), mine(kept().unwrap())), (22, 22));
    assert!(matches!(Control::load(&wanted[0]), Err(CongestionError::AlreadyThere { .. })), "the name is taken");
    for settings in &wanted {
        unload(settings.name()).unwrap();
    }
    assert_eq!((mine(available()), mine(kept().unwrap())), (0, 0));
    assert!(matches!(unload(wanted[0].name()), Err(CongestionError::NotKept { .. })));
    assert!(matches!(unload("../tc"), Err(CongestionError::NotKept { .. })));
    gone(&new);
}
