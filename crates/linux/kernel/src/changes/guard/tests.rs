//! Settings that are put back, whatever happens.

use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::*;

/// Legacy requests that a veth answers, in place of a NIC's stamping, which virtual devices lack: `ETHTOOL_GTSO`, `ETHTOOL_STSO`.
const GET: u32 = 0x1e;
const SET: u32 = 0x1f;

/// That of a link which is on.
fn offload_off(link: &str) -> Setting {
    let by_hand = format!("ethtool -K {link} tso on");
    Setting::of_driver(link, libc::SIOCETHTOOL, &[SET, 1], &[SET, 0], by_hand).unwrap()
}

/// Whether it is on, 0 or 1.
fn offload(link: &str) -> u32 {
    let mut words = [GET, 7];
    ask(link, libc::SIOCETHTOOL, &mut words).unwrap();
    words[1]
}

/// `ip` in the calling thread's network namespace.
fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

/// What the test `name` of this file says on standard error, in a process of its own.
fn said(name: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("changes::guard::tests::{name}");
    let output = command.args(["--exact", &name, "--ignored", "--nocapture"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_driver_is_told_what_it_was_told_before() {
    let Ok(namespace) = NetNamespace::create() else {
        println!("skipped: run as root");
        return;
    };
    let check = || {
        ip("link add name v0 type veth peer name v1");
        assert_eq!(offload("v0"), 1);
        let setting = offload_off("v0");
        let changed = Changed::apply(vec![setting], Vec::new()).unwrap();
        assert_eq!(offload("v0"), 0);
        drop(changed);
        assert_eq!(offload("v0"), 1);
        // Also where somebody killed the guard.
        let setting = offload_off("v0");
        let changed = Changed::apply(vec![setting], Vec::new()).unwrap();
        let guard = changed.guard.as_ref().unwrap().pid;
        rustix::process::kill_process(guard, rustix::process::Signal::KILL).unwrap();
        assert_eq!(offload("v0"), 0);
        drop(changed);
        assert_eq!(offload("v0"), 1);
        // And where it has another name by then, and another one has its name.
        let setting = offload_off("v0");
        let changed = Changed::apply(vec![setting], Vec::new()).unwrap();
        ip("link set v0 name w0");
        ip("link add name v0 type veth peer name v2");
        ask("v0", libc::SIOCETHTOOL, &mut [SET, 0]).unwrap();
        drop(changed);
        assert_eq!((offload("w0"), offload("v0")), (1, 0));
        // Beside a setting of another kind.
        let kept = memfd_create("setting", MemfdFlags::empty()).unwrap();
        let file = PathBuf::from(format!("/proc/self/fd/{}", kept.as_raw_fd()));
        fs::write(&file, "1").unwrap();
        let both = || (offload("w0"), fs::read_to_string(&file).unwrap());
        let settings = vec![Setting::open(file.clone(), "1", "2").unwrap(), offload_off("w0")];
        let changed = Changed::apply(settings, Vec::new()).unwrap();
        assert_eq!(both(), (0, "2".into()));
        drop(changed);
        assert_eq!(both(), (1, "1".into()));
    };
    namespace.enter(check).unwrap();
}

/// The guard says it on standard error, which is that of a process of its own here.
#[test]
fn what_cannot_be_put_back_is_said_and_the_rest_is_put_back() {
    let said = said("puts_back_what_it_can");
    let line = said.lines().find(|line| line.starts_with("longhaul: cannot put back /proc/self/fd/"));
    assert!(line.is_some_and(|line| line.ends_with(": write `1` to it")), "{said}");
    assert_eq!(said.matches("cannot put back").count(), 1, "{said}");
}

#[test]
#[ignore = "the test before this one runs it"]
fn puts_back_what_it_can() {
    let files = [0; 3].map(|_| memfd_create("setting", MemfdFlags::ALLOW_SEALING).unwrap());
    let paths = files.each_ref().map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    let read = || paths.each_ref().map(|path| fs::read_to_string(path).unwrap());
    let setting = |path: &PathBuf| Setting::open(path.clone(), "1", "2").unwrap();
    paths.iter().for_each(|path| fs::write(path, "1").unwrap());
    let changed = Changed::apply(paths.iter().map(setting).collect(), Vec::new()).unwrap();
    assert_eq!(read(), ["2", "2", "2"]);
    // From now on the kernel refuses to change it.
    fcntl_add_seals(&files[1], SealFlags::WRITE).unwrap();
    drop(changed);
    assert_eq!(read(), ["1", "2", "1"]);
    // One that could not be changed has nothing to put back: nothing is said of it.
    let (path, _) = Changed::apply(paths.iter().map(setting).collect(), Vec::new()).unwrap_err();
    assert_eq!((path.as_ref(), read()), (Some(&paths[1]), ["1", "2", "1"].map(String::from)));
    // Nor where somebody killed the guard meanwhile, and another one does its work.
    let mut settings: Vec<Setting> = paths.iter().map(setting).collect();
    let guard = Guard::start(&mut settings, &[]).unwrap();
    rustix::process::kill_process(guard.pid, rustix::process::Signal::KILL).unwrap();
    settings[0].change().unwrap();
    drop(Changed { guard: Some(guard), settings, changed: 1, claims: Vec::new() });
    assert_eq!(read(), ["1", "2", "1"]);
}

/// The driver is not told: its interface is in a namespace of which the guard knows nothing. Of one that is gone nothing is said.
#[test]
fn what_an_interface_keeps_that_was_moved_is_said() {
    if NetNamespace::create().is_err() {
        println!("skipped: run as root");
        return;
    }
    let said = said("moves_one_interface_and_removes_another");
    let line =
        "longhaul: cannot put back a setting of v0: run `ethtool -K v0 tso on` in the network namespace where it is";
    assert_eq!(said.lines().filter(|said| *said == line).count(), 1, "{said}");
    assert_eq!(said.matches("cannot put back").count(), 1, "{said}");
}

#[test]
#[ignore = "the test before this one runs it"]
fn moves_one_interface_and_removes_another() {
    let (here, there) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
    let check = || {
        ip("link add name v0 type veth peer name v1");
        ip("link add name w0 type veth peer name w1");
        let changed = Changed::apply(vec![offload_off("v0"), offload_off("w0")], Vec::new()).unwrap();
        assert_eq!((offload("v0"), offload("w0")), (0, 0));
        ip(&format!("link set v0 netns /proc/{}/fd/{}", std::process::id(), there.as_fd().as_raw_fd()));
        ip("link delete w0");
        drop(changed);
    };
    here.enter(check).unwrap();
    assert_eq!(there.enter(|| offload("v0")).unwrap(), 0);
}

#[test]
fn what_somebody_else_set_meanwhile_stays() {
    let path = std::env::temp_dir().join(format!("longhaul-guard-{}", std::process::id()));
    let read = || fs::read_to_string(&path).unwrap();
    let change = || {
        fs::write(&path, "1").unwrap();
        let changed = Changed::apply(vec![Setting::open(path.clone(), "1", "2").unwrap()], Vec::new()).unwrap();
        assert_eq!(read(), "2");
        changed
    };
    drop(change());
    assert_eq!(read(), "1");
    let changed = change();
    fs::write(&path, "3").unwrap();
    drop(changed);
    assert_eq!(read(), "3");
    // Also where the guard was killed, and another one does its work.
    let changed = change();
    rustix::process::kill_process(changed.guard.as_ref().unwrap().pid, rustix::process::Signal::KILL).unwrap();
    fs::write(&path, "3").unwrap();
    drop(changed);
    assert_eq!(read(), "3");
    fs::remove_file(&path).unwrap();
}

/// So a child holds it that another thread has forked and that has not called exec yet.
#[test]
fn a_claim_that_is_let_go_in_a_moment_is_taken() {
    let name = format!("test/{}", std::process::id());
    let held = Claim::take(&name).unwrap();
    let lets_go = thread::spawn(|| {
        thread::sleep(Duration::from_millis(30));
        drop(held);
    });
    // Longer than a busy machine keeps the other thread from its CPU.
    let _taken = Claim::take_within(&name, Nanos::from_secs(30)).unwrap();
    lets_go.join().unwrap();
    assert_eq!(Claim::take(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
}

/// Ports of one device in two namespaces have the same lines.
#[test]
fn an_interrupt_is_claimed_in_all_network_namespaces() {
    let Ok(other) = NetNamespace::create() else {
        println!("skipped: run as root");
        return;
    };
    let first = NetNamespace::of_process(1).and_then(|first| first.enter(|| ()));
    if let Err(why) = first {
        println!("skipped: {why}");
        return;
    }
    // No machine has so many.
    let line = u32::MAX - std::process::id();
    let held = Claim::of_interrupt(line).unwrap();
    let claim = || Claim::of_interrupt(line).map(drop).map_err(|error| error.kind());
    assert_eq!(other.enter(claim).unwrap(), Err(io::ErrorKind::AddrInUse));
    drop(held);
    assert_eq!(other.enter(claim).unwrap(), Ok(()));
}
