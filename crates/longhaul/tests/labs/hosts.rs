//! Running programs on a lab's hosts, as root and as nobody in particular.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::common::{TestLab, longhaul};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_testing::program::copy_program;

/// nobody and nogroup, as Debian and everybody else numbers them.
const NOBODY: u32 = 65_534;

fn exec(lab: &str, host: &str, command: &[&str]) -> Output {
    let arguments: Vec<&str> =
        ["lab", "exec", host, "--name", lab, "--"].into_iter().chain(command.iter().copied()).collect();
    longhaul(&arguments)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn hosts_have_names_inside() {
    let Some(lab) = TestLab::up("names", "lan") else { return };
    for (host, other, address) in
        [("client", "server", "10.77.2.1"), ("server", "client", "10.77.1.1"), ("client", "client", "10.77.1.1")]
    {
        let ping = exec(&lab.name, host, &["ping", "-4", "-c", "1", "-W", "5", other]);
        assert!(ping.status.success() && text(&ping).contains(address), "{host} to {other}: {}", text(&ping));
    }
    let ping = exec(&lab.name, "client", &["ping", "-6", "-c", "1", "-W", "5", "server"]);
    assert!(ping.status.success() && text(&ping).contains("fd77::2:1"), "{}", text(&ping));
    // Only inside.
    assert!(!fs::read_to_string("/etc/hosts").unwrap_or_default().contains("10.77."));
    // The environment says where one is, /sys is the host's own, and the exit code is the program's.
    let inside =
        exec(&lab.name, "server", &["sh", "-c", "echo $LONGHAUL_HOST $LONGHAUL_LAB; ls /sys/class/net; exit 7"]);
    assert_eq!(inside.status.code(), Some(7));
    let said = text(&inside);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words, ["server", &lab.name, "eth0", "lo"], "{}", text(&inside));
}

#[test]
fn hosts_of_a_dumbbell_have_names_too() {
    let file = std::env::temp_dir().join(format!("longhaul-dumbbell-{}.toml", std::process::id()));
    fs::write(&file, "[[client]]\n[[client]]\nname = 'far'\ndelay = '10ms'\n[[both]]\nrate = '1Gbit'\ndelay = '1ms'\n")
        .unwrap();
    let lab = TestLab::up("dumbbell", file.to_str().unwrap());
    fs::remove_file(&file).unwrap();
    let Some(lab) = lab else { return };
    for (host, other) in [("client1", "server"), ("far", "client"), ("server", "far")] {
        let ping = exec(&lab.name, host, &["ping", "-c", "1", "-W", "5", other]);
        assert!(ping.status.success(), "{host} to {other}: {}", text(&ping));
    }
}

/// With a CPU of its own, the emulator leaves the hosts' stacks to the others.
#[test]
fn hosts_receive_on_other_cpus_than_the_emulator() {
    let cpus = longhaul_kernel::schedule::allowed_cpus().unwrap();
    if cpus.len() < 2 {
        longhaul_testing::skipped!("needs two CPUs");
        return;
    }
    let own = cpus[0];
    let Some(lab) = TestLab::up_with("steered", "lan", &["--cpu", &own.to_string()]) else { return };
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root to write to /sys");
        return;
    }
    let wanted = cpus.iter().filter(|cpu| **cpu != own && **cpu < 32).fold(0_u32, |mask, cpu| mask | 1 << cpu);
    for host in ["client", "server"] {
        let read = exec(&lab.name, host, &["cat", "/sys/class/net/eth0/queues/rx-0/rps_cpus"]);
        let mask = text(&read).trim().rsplit(',').next().map(str::to_owned).unwrap_or_default();
        assert_eq!(u32::from_str_radix(&mask, 16), Ok(wanted), "{host}: {}", text(&read));
        let allowed = exec(&lab.name, host, &["sh", "-c", "taskset -cp $$ | sed 's/.*: //'"]);
        assert!(!text(&allowed).trim().split(',').any(|cpu| cpu == own.to_string()), "{host}: {}", text(&allowed));
        let ping = exec(&lab.name, host, &["ping", "-c", "1", "-W", "5", "server"]);
        assert!(ping.status.success(), "{}", text(&ping));
    }
}

/// A copy of the binary that everybody may run, wherever the build folder is.
struct Everybodys(PathBuf);

impl Everybodys {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("longhaul-nobody-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        copy_program(env!("CARGO_BIN_EXE_longhaul"), folder.join("longhaul"));
        Self(folder)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.0.join("longhaul"));
        command.args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap()
    }
}

impl Drop for Everybodys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_root_a_lab_lives_in_a_user_namespace() {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to be nobody (the other tests run as whoever you are)");
        return;
    }
    let everybodys = Everybodys::new();
    let name = format!("nobody-{}", std::process::id());
    let up = everybodys.run(&["lab", "up", "lan", "--name", &name]);
    if !up.status.success() {
        let why = text(&up);
        // Where the system forbids it, that is said with how to allow it.
        assert!(why.contains("user namespace") && why.contains("sysctl"), "{why}");
        longhaul_testing::skipped!("{}", why.trim());
        return;
    }
    let run = |arguments: &[&str]| {
        let output = everybodys.run(arguments);
        (output.status.success(), text(&output))
    };
    let ping =
        run(&["lab", "exec", "client", "--name", &name, "--", "ping", "-c", "2", "-i", "0.05", "-W", "5", "server"]);
    let set = run(&["lab", "set", "--name", &name, "delay=3ms"]);
    let status = run(&["lab", "status", "--name", &name]);
    // A program on a host reaches the lab and its other hosts.
    let longhaul_there = everybodys.0.join("longhaul");
    let script = "$0 lab exec server sh -c 'echo on $LONGHAUL_HOST' && $0 lab list";
    let nested = run(&["lab", "exec", "client", "--name", &name, "sh", "-c", script, longhaul_there.to_str().unwrap()]);
    // Root's labs are others.
    let roots = text(&longhaul(&["lab", "list"]));
    let down = run(&["lab", "down", "--name", &name]);
    let list = run(&["lab", "list"]);
    assert!(ping.0, "{}", ping.1);
    assert!(nested.0 && nested.1.starts_with("on server\n") && nested.1.contains(&name), "{}", nested.1);
    assert!(set.0 && status.0 && status.1.contains("client1"), "{} {}", set.1, status.1);
    assert!(!roots.contains(&name), "{roots}");
    assert!(down.0 && !list.1.contains(&name), "{} {}", down.1, list.1);
}
