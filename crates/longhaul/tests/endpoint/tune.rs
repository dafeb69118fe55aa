//! `longhaul tune`: a plan for anybody, and settings that go back unless they are confirmed.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::common::{longhaul, object};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::{Process, Signal};
use longhaul_testing::program::{Program, copy_program};
use longhaul_testing::waiting::until;
use serde_json::json;

/// A folder that ends with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("longhaul-tuned-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const TARGET: [&str; 5] = ["tune", "--rate", "10G", "--rtt", "150ms"];

#[test]
fn a_plan_needs_no_root() {
    let mut command = Command::new("setpriv");
    if is_root_in_namespace() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", env!("CARGO_BIN_EXE_longhaul")]);
    } else {
        command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    }
    let output = command.args(TARGET).args(["--role", "receiver"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.starts_with("target    10Gbit over 150ms, this host as receiver: 179MiB in flight"), "{text}");
    assert!(text.contains("net.ipv4.tcp_rmem: ") && text.contains("375390208\n  why "), "{text}");
    assert!(text.contains("nothing is changed"), "{text}");
}

#[test]
fn a_diagnosis_says_what_to_fix_and_other_files_are_refused() {
    let folder = Folder::new("diagnosis");
    let file = folder.path("found.json");
    let plan = |result: serde_json::Value, more: &[&str]| {
        fs::write(&file, json!({ "schema": "longhaul.diagnose/1", "result": result }).to_string()).unwrap();
        longhaul(&[&["tune", &file, "--json"][..], more].concat())
    };
    let cause = |code: &str, host: Option<&str>| json!({ "code": code, "place": null, "host": host, "bound_bps": { "least": 200_000_000, "most": null } });
    let window = json!({ "target_bps": 1_000_000_000, "base_rtt_ns": 80_000_000, "causes": [cause("receive_window", Some("receiver"))] });
    let result = object(&plan(window.clone(), &["--role", "receiver"]).stdout)["result"].clone();
    assert_eq!((&result["in_flight_bytes"], &result["network_is_the_bound"]), (&json!(10_000_000), &json!(null)));
    let result = object(&plan(window, &["--role", "sender"]).stdout)["result"].clone();
    assert!(result["elsewhere"][0].as_str().unwrap().contains("at the receiver, not here"), "{result}");
    let shaper = json!({ "target_bps": 1_000_000_000, "base_rtt_ns": 80_000_000, "causes": [cause("shaper", None)] });
    let result = object(&plan(shaper, &[]).stdout)["result"].clone();
    assert!(result["network_is_the_bound"].as_str().unwrap().contains("shaper (at least 200"), "{result}");
    let says = |output: Output, code: i32, text: &str| {
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(text), "{output:?}");
    };
    says(
        plan(json!({ "target_bps": null, "base_rtt_ns": 1, "causes": [] }), &[]),
        2,
        "the diagnosis does not say the rate",
    );
    says(plan(json!({ "target_bps": 1, "base_rtt_ns": 1 }), &[]), 1, "no usable causes");
    says(longhaul(&["tune", "Cargo.toml"]), 1, "no JSON");
    says(longhaul(&["tune", "--rate", "1G"]), 2, "--rtt 150ms");
    let udp = crate::common::root().join("crates/longhaul/tests/udp-result.json");
    says(longhaul(&["tune", udp.to_str().unwrap()]), 1, "`longhaul.udp/1`");
}

/// bpftune would change buffers again: a process of that name is told.
#[test]
fn a_running_tuner_is_told() {
    let folder = Folder::new("tuner");
    let file = folder.path("bpftune");
    copy_program("/bin/sleep", &file);
    let _tuner = Program(Command::new(&file).arg("60").spawn().unwrap());
    let told = || {
        let output = longhaul(&[&TARGET[..], &["--json"]].concat());
        let caveats = object(&output.stdout)["caveats"].clone();
        let codes = caveats.as_array().unwrap().iter().filter(|caveat| caveat["code"] == "other_tuner");
        codes.map(|caveat| caveat["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    until("the name of the process", || told().iter().any(|message| message.starts_with("bpftune is running")));
}

/// Runs in `namespace`.
fn run(namespace: &NetNamespace, words: &[&str]) -> Output {
    namespace.enter(|| longhaul(words)).unwrap()
}

fn start(namespace: &NetNamespace, words: &[&str]) -> Program {
    let spawn = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    Program(namespace.enter(spawn).unwrap().unwrap())
}

fn wmem(namespace: &NetNamespace) -> String {
    namespace.enter(|| fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap()).unwrap()
}

#[test]
fn settings_go_back_unless_they_are_confirmed() {
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("run as root");
        return;
    }
    let folder = Folder::new("confirmed");
    // Seen from here: whoever puts settings back has another working folder.
    let up = "../".repeat(std::env::current_dir().unwrap().components().count());
    let state = format!("{up}{}", folder.path("state").trim_start_matches('/'));
    let namespace = NetNamespace::create().unwrap();
    let before = wmem(&namespace);
    let changes = || wmem(&namespace) != before;
    let apply = [&TARGET[..], &["--state", &state, "--apply", "--for"]].concat();
    let with = |time: &'static str| [&apply[..], &[time]].concat();
    let status = || run(&namespace, &["tune", "status", "--state", &state, "--json"]);
    let waits = || object(&status().stdout)["result"]["changed"]["confirmed"] == false;

    let late = run(&namespace, &with("300ms"));
    assert_eq!(late.status.code(), Some(1), "{late:?}");
    assert!(String::from_utf8_lossy(&late.stderr).contains("not confirmed: put back"), "{late:?}");
    assert!(!changes());

    let mut killed = start(&namespace, &with("60s"));
    until("the change", || waits() && changes());
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    until("the way back after kill -9", || !changes());
    until("the end of the state", || object(&status().stdout)["result"]["changed"].is_null());

    let mut kept = start(&namespace, &with("60s"));
    until("the change", || waits() && changes());
    assert!(run(&namespace, &["tune", "confirm", "--state", &state]).status.success());
    assert!(kept.0.wait().unwrap().success());
    assert!(changes());
    let persist = [&TARGET[..], &["--state", &state, "--apply", "--persist"]].concat();
    let refused = run(&namespace, &persist);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot be made to last"), "{refused:?}");
    let undone = run(&namespace, &["tune", "undo", "--state", &state]);
    assert!(String::from_utf8_lossy(&undone.stdout).contains("net.ipv4.tcp_wmem: put back to"), "{undone:?}");
    assert!(!changes());
    assert_eq!(run(&namespace, &["tune", "undo", "--state", &state]).status.code(), Some(1));
}

/// A small file system in a folder; ends with this.
struct SmallDisk<'a>(&'a str);

impl<'a> SmallDisk<'a> {
    fn at(folder: &'a str) -> Self {
        fs::create_dir(folder).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k,nr_inodes=32", "tmpfs", folder])
            .status()
            .unwrap();
        assert!(mounted.success());
        Self(folder)
    }

    fn fill(&self) {
        let mut file = fs::File::create(format!("{}/fill", self.0)).unwrap();
        let full = std::iter::repeat_with(|| file.write_all(&[1; 4096])).find_map(Result::err);
        assert_eq!(full.unwrap().kind(), io::ErrorKind::StorageFull);
        let full = (0..).find_map(|number| fs::File::create(format!("{}/{number}", self.0)).err());
        assert_eq!(full.unwrap().kind(), io::ErrorKind::StorageFull);
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy", self.0]).status();
    }
}

/// By the command itself, by who takes over where that is killed, and by hand.
#[test]
fn settings_go_back_though_the_disk_is_full() {
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("run as root");
        return;
    }
    let folder = Folder::new("full");
    for (name, time) in [("in-time", "2s"), ("killed", "60s"), ("by-hand", "60s")] {
        let path = folder.path(name);
        let disk = SmallDisk::at(&path);
        let state = format!("{path}/state");
        let namespace = NetNamespace::create().unwrap();
        let before = wmem(&namespace);
        let apply = [&TARGET[..], &["--state", &state, "--apply", "--for", time]].concat();
        let mut tuned = start(&namespace, &apply);
        let status = || object(&run(&namespace, &["tune", "status", "--state", &state, "--json"]).stdout);
        until("the change", || status()["result"]["changed"]["confirmed"] == false && wmem(&namespace) != before);
        disk.fill();
        match name {
            "killed" => tuned.0.kill().unwrap(),
            "by-hand" => {
                let undone = run(&namespace, &["tune", "undo", "--state", &state]);
                assert!(undone.status.success(), "{undone:?}");
            }
            _ => {}
        }
        until("the way back", || wmem(&namespace) == before);
        let _ = tuned.0.kill();
        tuned.0.wait().unwrap();
    }
}

/// Nothing was changed, so there is nothing to wait for until it is possible.
#[test]
fn a_state_that_cannot_be_kept_is_told_at_once() {
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("run as root");
        return;
    }
    let folder = Folder::new("no-room");
    let path = folder.path("disk");
    let disk = SmallDisk::at(&path);
    disk.fill();
    let namespace = NetNamespace::create().unwrap();
    let before = wmem(&namespace);
    let state = format!("{path}/state");
    let began = std::time::Instant::now();
    let refused = run(&namespace, &[&TARGET[..], &["--state", &state, "--apply", "--for", "60s"]].concat());
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(wmem(&namespace), before);
}

/// Who puts settings back cannot take the lock here, and sees without it that it has nothing to wait for.
#[test]
fn who_puts_settings_back_ends_when_none_is_left() {
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("run as root");
        return;
    }
    let folder = Folder::new("none-left");
    let state = folder.path("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(format!("{state}/.lock"), "").unwrap();
    fs::set_permissions(format!("{state}/.lock"), fs::Permissions::from_mode(0o666)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(["tune", "hold", "1", "0", "--state", &state]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut holder = Program(command.spawn().unwrap());
    // Settings were changed, and the command that did so has ended.
    holder.0.stdin.take().unwrap().write_all(b"s").unwrap();
    let mut ended = None;
    until("its end", || {
        ended = holder.0.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success(), "{ended:?}");
}

/// As by Ctrl-Z: the time of the command passes without it.
#[test]
fn a_stopped_command_keeps_no_setting_changed() {
    if !is_root_in_namespace() {
        longhaul_testing::skipped!("run as root");
        return;
    }
    let folder = Folder::new("stopped");
    let state = folder.path("state");
    let namespace = NetNamespace::create().unwrap();
    let before = wmem(&namespace);
    let mut stopped = start(&namespace, &[&TARGET[..], &["--state", &state, "--apply", "--for", "5s"]].concat());
    let changed = || object(&run(&namespace, &["tune", "status", "--state", &state, "--json"]).stdout);
    // While it changes them it has the lock.
    until("the changes", || changed()["result"]["changed"]["is_partial"] == false && wmem(&namespace) != before);
    let process = Process::open(stopped.0.id()).unwrap().unwrap();
    process.signal(Signal::STOP).unwrap();
    until("the way back", || wmem(&namespace) == before);
    process.signal(Signal::CONT).unwrap();
    assert_eq!(stopped.0.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}
