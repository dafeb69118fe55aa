//! Nothing stays in the kernel: not after a drop, not after `kill -9`.

use std::process::Stdio;
use std::time::{Duration, Instant};

use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};
use longhaul_bpf::drops::{DropOptions, Drops, Flow};

use crate::hosts::watched_hosts;
use crate::{child_of_this_test, wait_for_line};

/// The maps with `entries` entries: each test asks for a ring of its own size, so that it finds its own.
fn rings(entries: u32) -> Vec<u32> {
    MapInfoIter::default().filter(|map| map.max_entries == entries).map(|map| map.id).collect()
}

/// The programs and links that were not there before.
fn ids() -> (Vec<u32>, Vec<u32>) {
    (ProgInfoIter::default().map(|program| program.id).collect(), LinkInfoIter::default().map(|link| link.id).collect())
}

/// Waits until the kernel has let go: it frees programs after a grace period.
fn gone(entries: u32, program: u32, link: u32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !rings(entries).is_empty() || ids().0.contains(&program) || ids().1.contains(&link) {
        assert!(Instant::now() < deadline, "ring {:?}, program {program}, link {link}: still there", rings(entries));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Program and link of the attachment whose ring has `entries` bytes. What a load tried first and let go of is there for a moment too: a ring
/// of the same size, and programs without a link. And a link that another process makes or ends at this moment ends the search.
fn program_and_link(entries: u32) -> (u32, u32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let rings = rings(entries);
        let options = libbpf_rs::query::ProgInfoQueryOptions::default().include_map_ids(true);
        let programs = ProgInfoIter::with_query_opts(options);
        let programs = programs.filter(|program| program.map_ids.iter().any(|map| rings.contains(map)));
        let programs: Vec<u32> = programs.map(|program| program.id).collect();
        if let Some(link) = LinkInfoIter::default().find(|link| programs.contains(&link.prog_id)) {
            return (link.prog_id, link.id);
        }
        assert!(Instant::now() < deadline, "programs {programs:?} of rings {rings:?} have no link");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn when_it_is_dropped() {
    let Some((hosts, _)) = watched_hosts() else { return };
    const RING: u32 = 1 << 14;
    let drops = Drops::attach(&[hosts.flow], &DropOptions { ring_bytes: RING, ..DropOptions::default() }).unwrap();
    let (program, link) = program_and_link(RING);
    drop(drops);
    gone(RING, program, link);
}

#[test]
fn when_its_process_is_killed() {
    let Some(_) = watched_hosts() else { return };
    let mut child = child_of_this_test("detach::holds_a_program")
        .env("LONGHAUL_TEST_RING", CHILDS_RING.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_line(&mut child, "attached");
    let (program, link) = program_and_link(CHILDS_RING);
    child.kill().unwrap();
    child.wait().unwrap();
    gone(CHILDS_RING, program, link);
}

const CHILDS_RING: u32 = 1 << 15;

#[test]
#[ignore = "the child of a test"]
fn holds_a_program() {
    if std::env::var_os("LONGHAUL_TEST_RING").is_none() {
        return;
    }
    let flow = Flow { port: 1, cookie: 1 };
    let _drops = Drops::attach(&[flow], &DropOptions { ring_bytes: CHILDS_RING, ..DropOptions::default() }).unwrap();
    println!("attached");
    std::thread::sleep(Duration::from_secs(60));
}
