//! Two hosts on a cable, one of which serves tests.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::common::{longhaul, root};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_testing::program::Program;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");
/// Time for what others have to do: a guard, the kernel.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Where the server of tests listens: address and port.
pub(crate) const SERVER: &str = "10.96.0.1:7001";

/// Numbers without order (xorshift, Marsaglia 2003).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The hosts `near` and `far`, and a folder.
pub(crate) struct World {
    pub(crate) near: NetNamespace,
    pub(crate) far: NetNamespace,
    pub(crate) folder: PathBuf,
    /// Its process.
    pub(crate) server: Option<Program>,
}

impl World {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("out")).unwrap();
        let [near, far] = [0; 2].map(|_| NetNamespace::create().unwrap());
        let mut world = Self { near, far, folder, server: None };
        world.sh(
            "near",
            "ip link set lo up; ip link add name va type veth peer name vb; ip link set va up; ip link set vb up",
        );
        world.sh("far", "ip link set lo up");
        // The far end goes to where a descriptor of this process leads.
        let far = format!("/proc/{}/fd/{}", std::process::id(), world.far.as_fd().as_raw_fd());
        world.sh("near", &format!("ip link add name lf0 type veth peer name lf1 && ip link set lf1 netns {far}"));
        world.sh("near", "ip link set lf0 up; ip addr add 10.96.0.2/24 dev lf0; ip addr add 10.96.0.3/24 dev lf0");
        world.sh("far", "ip link set lf1 up; ip addr add 10.96.0.1/24 dev lf1");
        let key = world.path("key");
        assert!(longhaul(&["key", "new", &key]).status.success());
        // IPv6's duplicate address detection.
        world.until("the cable", || world.sh("near", "ip -6 addr show tentative").is_empty());
        let mut server = Program(world.spawn("far", &world.words("serve --bind 10.96.0.1 -p 7001 --key KEY", 0)));
        let soon = Instant::now() + PATIENCE;
        assert!(says_by(soon, server.0.stderr.take().unwrap(), "listening"), "the server does not listen");
        world.server = Some(server);
        world
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    fn host(&self, name: &str) -> &NetNamespace {
        if name == "near" { &self.near } else { &self.far }
    }

    pub(crate) fn sh(&self, host: &str, script: &str) -> String {
        let run = || Command::new("sh").args(["-ec", script]).output().unwrap();
        let output = self.host(host).enter(run).unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The words of a command. `OUT` is an empty folder, `KEY` a key, `SPOOL` a capture that may be there, `CORPUS` what fuzzing begins with,
    /// an `N` at the end of a word is `number`.
    pub(crate) fn words(&self, words: &str, number: usize) -> Vec<String> {
        let word = |word: &str| match (word, word.split_once('/'), word.strip_suffix('N')) {
            ("KEY", ..) => self.path("key"),
            ("SPOOL", ..) => self.path("spool"),
            ("OUT", ..) => self.path("out"),
            (_, Some(("OUT", name)), _) => self.path(&format!("out/{name}")),
            (_, Some(("CORPUS", name)), _) => root().join("fuzz/corpus").join(name).display().to_string(),
            (.., Some(name)) => format!("{name}{number}"),
            _ => word.to_owned(),
        };
        words.split(' ').map(word).collect()
    }

    pub(crate) fn spawn(&self, host: &str, words: &[String]) -> Child {
        let mut command = Command::new(LONGHAUL);
        command.args(words).env("TMPDIR", &self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if words.iter().any(|word| word == "--no-sack") {
            // Only hosts of a lab may change that, and these are made as those are.
            command.env("LONGHAUL_HOST", host);
        }
        self.host(host).enter(|| command.spawn().unwrap()).unwrap()
    }

    pub(crate) fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < deadline, "waited for {what}");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // It ends before its folder does.
        self.server = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What a program has said that has ended. Takes what is in its pipe and waits for no more: what it started may hold that open for ever.
pub(crate) fn said(mut from: impl Read + AsFd) -> String {
    fcntl(&from, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut said = Vec::new();
    let _ = from.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn what_was_said_is_there_while_others_hold_the_pipe() {
    let (from, mut into) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut into, b"why\n").unwrap();
    assert_eq!(said(from), "why\n");
    drop(into);
}

/// Whether a program says `words` before `due`.
pub(crate) fn says_by(due: Instant, mut from: ChildStderr, words: &'static str) -> bool {
    let (told, says) = mpsc::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(&mut from).lines();
        if lines.any(|line| line.is_ok_and(|line| line.contains(words))) {
            let _ = told.send(());
        }
        // What it says later must not fill the pipe.
        lines.for_each(drop);
    });
    says.recv_timeout(due.saturating_duration_since(Instant::now())).is_ok()
}
