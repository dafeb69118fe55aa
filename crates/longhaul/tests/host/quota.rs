//! `longhaul diagnose` names a control group's quota that keeps the sending program from its CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_testing::no_judge;

use crate::common::{alone, object};
use crate::world::{PATIENCE, World, says_by};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// A tenth of a CPU: microseconds of each 100 ms.
const QUOTA_US: &str = "10000";
/// As `ip netns exec` does it: control groups cannot be seen from there.
const OTHER_SYS: &str = "umount -l /sys && mount -t sysfs sysfs /sys && ";

/// A control group whose programs have a tenth of a CPU.
struct Group(PathBuf);

impl Group {
    /// `None` where this machine lets nobody make one.
    fn new() -> Option<Self> {
        let name = format!("longhaul-quota-{}", std::process::id());
        let (one, two) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
        let (folder, file, quota) = if one.join("cpu.cfs_quota_us").exists() || one.join("cgroup.procs").exists() {
            (one.join(name), "cpu.cfs_quota_us", QUOTA_US.to_owned())
        } else {
            (two.join(name), "cpu.max", format!("{QUOTA_US} 100000"))
        };
        fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        fs::write(group.0.join(file), quota).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        // Its processes go a moment after they ended.
        while fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_quota_is_named_also_where_control_groups_are_not_mounted() {
    let _alone = alone();
    if !is_root_in_namespace() {
        no_judge!("needs CAP_SYS_ADMIN and CAP_NET_ADMIN (run as root)");
        return;
    }
    let Some(group) = Group::new() else {
        no_judge!("no control group with a quota of CPU time can be made");
        return;
    };
    let world = World::new("quota");
    for (other_sys, port) in [("", "7002"), (OTHER_SYS, "7003")] {
        let script = format!("echo $$ >{}/cgroup.procs && {other_sys}exec \"$0\" \"$@\"", group.0.display());
        let serve = world.words(&format!("serve --bind 10.96.0.1 -p {port} --key KEY"), 0);
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, LONGHAUL]).args(&serve);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut server = world.far.enter(|| command.spawn().unwrap()).unwrap();
        assert!(says_by(Instant::now() + PATIENCE, server.stderr.take().unwrap(), "listening"));
        let words = world.words(&format!("diagnose 10.96.0.1 -p {port} --key KEY -R --rate 5G -t 10s -J"), 0);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = world.near.enter(|| Command::new(LONGHAUL).args(&words).output().unwrap()).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        let whole = object(&output.stdout);
        let cause = &whole["result"]["causes"][0];
        assert_eq!((cause["code"].as_str(), cause["host"].as_str()), (Some("cpu"), Some("sender")), "{whole:#}");
        let (said, remedy) = (cause["evidence"][0]["text"].as_str(), cause["remedies"][0]["command"].as_str());
        assert!(said.unwrap().contains("quota of 0.10 CPUs"), "{cause:#}");
        assert!(remedy.unwrap().contains(group.0.to_str().unwrap()), "{cause:#}");
    }
}
