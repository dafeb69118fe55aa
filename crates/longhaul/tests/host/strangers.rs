//! Other users of the host: what they hold and what they ask for.

use std::io::{BufRead, BufReader, Lines};
use std::process::{ChildStdout, Command, Output, Stdio};

use crate::common::captures::Folder;
use crate::common::{TestLab, longhaul, object, side_by_side};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_testing::program::{Program, copy_program};
use serde_json::json;

fn cannot_be_others() -> bool {
    let skip = !is_root_in_namespace();
    if skip {
        longhaul_testing::no_judge!("needs root, to be other users");
    }
    skip
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program in Perl that runs as `uid` and has said `ready`; gone with the value.
struct Stranger {
    _process: Program,
    /// What it says.
    lines: Lines<BufReader<ChildStdout>>,
}

impl Stranger {
    fn starts(uid: u32, program: &str) -> Self {
        let uid = uid.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "perl", "-e", program]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stranger = Self { _process: Program(child), lines };
        assert_eq!(stranger.line(), "ready");
        stranger
    }

    fn line(&mut self) -> String {
        self.lines.next().map_or_else(String::new, Result::unwrap)
    }
}

/// What holds the abstract name `name`, with a queue of `backlog` connections that nobody accepts: with 0 the first who connects fills it.
fn hold(name: &str, backlog: u32) -> String {
    format!(
        r#"use Socket; $| = 1; socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die; listen($s, {backlog}) or die
         if bind($s, pack_sockaddr_un("\0longhaul/{name}")) or die; print "ready\n"; <STDIN>"#
    )
}

/// Anybody can listen at a name that looks like root's lab, and never answer. The lab has its name all the same.
#[test]
fn a_name_that_another_user_holds_stops_nothing() {
    let _side = side_by_side();
    if cannot_be_others() {
        return;
    }
    let name = format!("held-{}", std::process::id());
    for backlog in [8, 0] {
        let stranger = Stranger::starts(1234, &hold(&format!("lab/0/{name}"), backlog));
        let lab = TestLab { name: format!("beside-{}", std::process::id()) };
        assert!(longhaul(&["lab", "up", "lan", "--name", &lab.name]).status.success());
        for _ in 0..3 {
            let list = longhaul(&["lab", "list"]);
            let text = String::from_utf8_lossy(&list.stdout).into_owned();
            assert!(list.status.success() && text.contains(&lab.name) && !text.contains(&name), "{list:?}");
        }
        let status = longhaul(&["lab", "status", "--name", &name]);
        assert_eq!(status.status.code(), Some(1), "{status:?}");
        assert!(said(&status).contains("no lab"), "{status:?}");
        let held = TestLab { name: name.clone() };
        let up = || longhaul(&["lab", "up", "lan", "--name", &held.name]);
        let is_held = || {
            let second = up();
            assert!(!second.status.success() && said(&second).contains("is up already"), "{second:?}");
            let list = longhaul(&["lab", "list"]);
            assert_eq!(String::from_utf8_lossy(&list.stdout).matches(&name).count(), 1, "{list:?}");
        };
        let first = up();
        assert!(first.status.success(), "{first:?}");
        let on_host = longhaul(&["lab", "exec", "--name", &held.name, "client", "--", "true"]);
        assert!(on_host.status.success(), "{on_host:?}");
        is_held();
        // The name itself is free now.
        drop(stranger);
        is_held();
        // Not `--all`: others test with labs of root's, too.
        let down = longhaul(&["lab", "down", "--name", &held.name]);
        assert!(down.status.success(), "{down:?}");
    }
}

/// In namespaces of networks and processes, where no other test has a lab. A name that another user holds is no lab, and stays his.
#[test]
fn down_of_all_ends_all_of_ones_own() {
    let _side = side_by_side();
    if cannot_be_others() {
        return;
    }
    // Perl makes the socket as another user, and is root for what it runs.
    let held = r#"use Socket; $> = 1234; socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die;
        bind($s, pack_sockaddr_un("\0longhaul/lab/0/held")) && listen($s, 0) or die; $> = 0; exit(system(@ARGV) >> 8)"#;
    let script = r#"for name in one two; do "$0" lab up lan --name $name >/dev/null; done
        "$0" lab down --all -J; grep -c @longhaul/lab/0/held /proc/net/unix; "$0" lab list -J"#;
    let unshared = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let output = Command::new("unshare")
        .args(unshared)
        // A shell waits for processes that lost their parents.
        .args(["sh", "-c", "perl -e \"$@\"; exit $?", "sh", held, "sh", "-ec", script, env!("CARGO_BIN_EXE_longhaul")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines: Vec<&[u8]> = output.stdout.trim_ascii_end().split(|byte| *byte == b'\n').collect();
    let [ended, b"1", left] = lines[..] else { panic!("{output:?}") };
    let ended = &object(ended)["result"];
    let labs = ended["labs"].as_array().unwrap().iter();
    assert_eq!(labs.map(|lab| lab["lab"]["name"].as_str().unwrap()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!((&ended["interrupted"], &ended["cleared"]), (&json!([]), &json!([])));
    assert_eq!(object(left)["result"]["labs"], json!([]));
}

/// The right to change a setting goes by such a name, too.
#[test]
fn a_right_that_another_user_took_keeps_no_setting_from_being_put_back() {
    let _side = side_by_side();
    if cannot_be_others() {
        return;
    }
    let folder = Folder::new("rights");
    let state = folder.file("state");
    let namespace = NetNamespace::create().unwrap();
    let wmem = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap();
    let takes = || Stranger::starts(1234, &hold("sysctl/net.ipv4.tcp_wmem", 0));
    let test = || {
        let before = wmem();
        let plan = ["tune", "--rate", "10G", "--rtt", "150ms", "--state", &state, "--apply"];
        for takes_first in [true, false] {
            let first = takes_first.then(takes);
            let applied = longhaul(&plan);
            assert!(applied.status.success() && wmem() != before, "{applied:?}");
            let _later = (!takes_first).then(takes);
            let undone = longhaul(&["tune", "undo", "--state", &state]);
            assert!(undone.status.success(), "{undone:?}");
            assert_eq!(wmem(), before);
            drop(first);
        }
        let _stranger = takes();
        let tried = longhaul(&[&plan[..], &["--for", "100ms"]].concat());
        assert!(said(&tried).contains("not confirmed: put back\n"), "{tried:?}");
        assert_eq!(wmem(), before);
    };
    namespace.enter(test).unwrap();
}

/// In the user namespace of a lab made without root every other user has the number of `nobody`, and so has the user `nobody` outside.
#[test]
fn a_lab_of_nobody_obeys_nobody_else() {
    let _side = side_by_side();
    if cannot_be_others() {
        return;
    }
    let name = format!("nobodys-{}", std::process::id());
    let folder = std::env::temp_dir().join(format!("longhaul-nobody-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let binary = folder.join("longhaul");
    copy_program(env!("CARGO_BIN_EXE_longhaul"), &binary);
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&binary).args(arguments);
        command.output().unwrap()
    };
    let up = nobody(&["lab", "up", "lan", "--name", &name]);
    let ask = format!(
        r#"use Socket; $| = 1; $SIG{{PIPE}} = 'IGNORE'; socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die;
         connect($s, pack_sockaddr_un("\0longhaul/lab/65534/{name}")) or die; syswrite($s, "\"Info\"\n"); print "ready\n";
         print length(<$s> // ""), "\n""#
    );
    let mut answered = String::new();
    if up.status.success() {
        answered = Stranger::starts(1234, &ask).line();
    }
    let own = nobody(&["lab", "list"]);
    let down = nobody(&["lab", "down", "--name", &name]);
    std::fs::remove_dir_all(&folder).unwrap();
    if !up.status.success() {
        assert!(said(&up).contains("user namespace"), "{up:?}");
        longhaul_testing::skipped!("{}", said(&up).trim());
        return;
    }
    assert_eq!(answered, "0", "the lab answered a stranger");
    assert!(String::from_utf8_lossy(&own.stdout).contains(&name), "{own:?}");
    assert!(down.status.success(), "{down:?}");
}

/// Who has no number cannot be told from others who have none.
#[test]
fn a_user_without_a_number_makes_no_lab() {
    let _side = side_by_side();
    if cannot_be_others() {
        return;
    }
    let name = format!("unmapped-{}", std::process::id());
    let unmapped = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--keep-caps", env!("CARGO_BIN_EXE_longhaul")]).args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let up = unmapped(&["lab", "up", "lan", "--name", &name]);
    unmapped(&["lab", "down", "--name", &name]);
    assert!(!up.status.success() && said(&up).contains("has no number"), "{up:?}");
}

/// A BPF file system that is mounted as mount(8) does it lets everybody write: root makes, pins and removes nothing where a link leads.
#[test]
fn a_link_in_the_bpf_file_system_leads_nowhere() {
    let _side = side_by_side();
    if cannot_be_others() {
        return;
    }
    let planted = std::env::temp_dir().join(format!("longhaul-planted-{}", std::process::id()));
    std::fs::create_dir_all(&planted).unwrap();
    let (longhaul, planted_path) = (env!("CARGO_BIN_EXE_longhaul"), planted.display());
    let name = format!("lh_plant{}", std::process::id() % 10_000);
    let script = format!(
        "mount -t bpf none /sys/fs/bpf && ip link set lo up || exit 9
         setpriv --reuid 1234 --regid 1234 --clear-groups ln -s {planted_path} /sys/fs/bpf/longhaul
         {longhaul} cc load vegas --as {name}; echo $?; {longhaul} filter attach lo --pin --force; echo $?; ls -A {planted_path}
         rm /sys/fs/bpf/longhaul; {longhaul} cc load vegas --as {name} > /dev/null && {longhaul} cc unload {name}"
    );
    let unshared = ["-n", "-m", "--propagation", "private", "sh", "-c", &script];
    let output = Command::new("unshare").args(unshared).output().unwrap();
    std::fs::remove_dir_all(&planted).unwrap();
    if said(&output).contains("this needs") || said(&output).contains("without BPF") {
        longhaul_testing::skipped!("{}", said(&output).trim());
        return;
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("1\n1\n{name} unloaded\n"), "{output:?}");
    assert_eq!(said(&output).matches("/sys/fs/bpf/longhaul was put there by another user").count(), 2, "{output:?}");
}
