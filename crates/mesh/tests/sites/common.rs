//! Sites as hosts of a lab.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_mesh::store::{Address, Archive};
use longhaul_testing::program::Program;

pub(crate) const MESH: &str = env!("CARGO_BIN_EXE_longhaul-mesh");
/// Some rounds of tests of a second, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(200);

/// Labs share two cores. What is timed runs alone.
static CORES: RwLock<()> = RwLock::new(());

/// How a lab has the cores.
enum Cores {
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

pub(crate) struct Lab {
    _cores: Cores,
    longhaul: PathBuf,
    name: String,
    pub(crate) folder: PathBuf,
}

impl Lab {
    /// A lab with this path, and a folder for its files; `None`, and said why, where there can be none.
    pub(crate) fn up(name: &str, path: &str) -> Option<Self> {
        Self::with(name, path, || Cores::Shared(CORES.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The same, while no other test runs.
    pub(crate) fn alone(name: &str, path: &str) -> Option<Self> {
        Self::with(name, path, || Cores::Alone(CORES.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn with(name: &str, path: &str, cores: impl FnOnce() -> Cores) -> Option<Self> {
        let longhaul = Path::new(MESH).with_file_name("longhaul");
        // `cargo test --workspace` builds it; `cargo test -p longhaul-mesh` does not.
        if !longhaul.is_file() {
            longhaul_testing::skipped!("longhaul is not built: use cargo test --workspace");
            return None;
        }
        let _cores = cores();
        let name = format!("mesh-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        fs::create_dir_all(&folder).unwrap();
        let lab = Self { _cores, longhaul, name, folder };
        fs::write(lab.folder.join("path.toml"), path).unwrap();
        let file = lab.folder.join("path.toml");
        let up =
            Command::new(&lab.longhaul).args(["lab", "up"]).arg(file).args(["--name", &lab.name]).output().unwrap();
        if up.status.success() {
            return Some(lab);
        }
        longhaul_testing::no_judge!("{}", String::from_utf8_lossy(&up.stderr).trim());
        None
    }

    /// Changes the running path.
    pub(crate) fn set(&self, change: &str) {
        let set = ["lab", "set", change, "--name", &self.name];
        let output = Command::new(&self.longhaul).args(set).output().unwrap();
        assert!(output.status.success(), "{change}: {output:?}");
    }

    /// A program on a host.
    pub(crate) fn program(&self, host: &str, program: &[&str]) -> Command {
        let mut command = Command::new(&self.longhaul);
        command.args(["lab", "exec", host, "--name", &self.name, "--"]).args(program).current_dir(&self.folder);
        command
    }

    /// `longhaul mesh` on a host.
    pub(crate) fn on(&self, host: &str, arguments: &[&str]) -> Command {
        self.program(host, &[&[MESH], arguments].concat())
    }

    pub(crate) fn run(&self, host: &str, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.on(host, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{arguments:?} on {host}: {said}");
        said
    }

    pub(crate) fn address(&self, host: &str) -> String {
        let output = self.program(host, &["ip", "-4", "-o", "addr", "show", "eth0"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let address = text.split_whitespace().skip_while(|word| *word != "inet").nth(1).unwrap();
        address.split('/').next().unwrap().to_owned()
    }

    pub(crate) fn start(&self, host: &str, arguments: &[&str]) -> Program {
        let log = self.folder.join(format!("{host}-{}.log", arguments[2].replace('/', "-")));
        let log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let errors = log.try_clone().unwrap();
        let child = self.on(host, arguments).stdin(Stdio::null()).stdout(log).stderr(errors).spawn().unwrap();
        Program(child)
    }

    pub(crate) fn logs(&self) -> String {
        let logs = fs::read_dir(&self.folder).unwrap().filter_map(Result::ok).map(|entry| entry.path());
        let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.map(|path| format!("== {}\n{}", path.display(), fs::read_to_string(&path).unwrap())).collect()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn archive(&self) -> Archive {
        let store = match fs::read_to_string(self.path("hub/store")) {
            Ok(address) => address.trim().parse().unwrap(),
            Err(_) => Address::from(&self.path("hub/archive")),
        };
        Archive::open(store).unwrap()
    }

    /// Lets the coordinator keep its results in a PostgreSQL database. It must not have begun.
    pub(crate) fn store_at(&self, address: &str) {
        fs::create_dir(self.path("hub")).unwrap();
        fs::write(self.path("hub/store"), format!("{address}\n")).unwrap();
        fs::set_permissions(self.path("hub/store"), Permissions::from_mode(0o600)).unwrap();
    }

    /// Waits until `done` says what came of it.
    pub(crate) fn wait<T>(&self, what: &str, mut done: impl FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(done) = done() {
                return done;
            }
            assert!(begin.elapsed() < PATIENCE, "{what}\n{}", self.logs());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Starts the coordinator on `hub`, in the folder `hub`.
    pub(crate) fn coordinator(&self, hub: &str) -> Program {
        self.coordinator_with(hub, &[])
    }

    /// The same with more options.
    pub(crate) fn coordinator_with(&self, hub: &str, options: &[&str]) -> Program {
        self.start(hub, &[&["run", "--folder", "hub", "--coordinator"], options].concat())
    }

    /// Makes a mesh of these sites and tests, starts its coordinator on `hub` and lets each site join, in a folder with its name.
    pub(crate) fn mesh(&self, hub: &str, hosts: &[&str], tests: &str) -> Program {
        self.mesh_with(hub, hosts, tests, &[])
    }

    /// The same with options of the coordinator.
    pub(crate) fn mesh_with(&self, hub: &str, hosts: &[&str], tests: &str, options: &[&str]) -> Program {
        let site =
            |host: &&str| format!("[[site]]\nname = '{host}'\naddress = '{}'\nrate = '1Gbit'\n", self.address(host));
        let sites: String = hosts.iter().map(site).collect();
        fs::write(self.path("mesh.toml"), format!("name = 'three'\n{sites}{tests}")).unwrap();
        self.run(hub, &["init", "--folder", "hub", "mesh.toml"]);
        let coordinator = self.coordinator_with(hub, options);
        hosts.iter().for_each(|host| self.join(host, host, &self.address(hub)));
        coordinator
    }

    /// Lets a site join; the coordinator has to listen first.
    pub(crate) fn join(&self, host: &str, site: &str, coordinator: &str) {
        let token = format!("hub/tokens/{site}");
        self.wait(&format!("{site} cannot join"), || {
            let join = ["join", "--folder", site, "--token", &token, coordinator];
            self.on(host, &join).output().unwrap().status.success().then_some(())
        });
    }

    /// Starts a site, in the folder with its name.
    pub(crate) fn site(&self, host: &str, allow: &[&str]) -> Program {
        let allow: Vec<&str> = allow.iter().flat_map(|allow| ["--allow", allow]).collect();
        self.start(host, &[&["run", "--folder", host, "--sync", "1s"][..], &allow].concat())
    }
}

impl Lab {
    /// The programs of tests that run for sites of this lab, such as `longhaul udp` and `serve`: they read their keys from a pipe.
    pub(crate) fn tests(&self) -> Vec<u32> {
        let is_of_test = |pid: &u32| {
            let folder = fs::read_link(format!("/proc/{pid}/cwd"));
            folder.is_ok_and(|folder| folder.starts_with(&self.folder)) && has_argument(*pid, "/dev/stdin")
        };
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).filter(is_of_test).collect()
    }

    /// Those of tests by UDP that one site began.
    pub(crate) fn begun_by(&self, host: &str) -> Vec<u32> {
        let output = self.program(host, &["readlink", "/proc/self/ns/net"]).output().unwrap();
        let namespace = Path::new(std::str::from_utf8(&output.stdout).unwrap().trim());
        assert!(output.status.success(), "{output:?}");
        let is_of_host = |pid: &u32| fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|own| own == namespace);
        self.tests().into_iter().filter(|pid| is_of_host(pid) && has_argument(*pid, "udp")).collect()
    }
}

fn has_argument(pid: u32, wanted: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|argument| argument == wanted.as_bytes())
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = Command::new(&self.longhaul).args(["lab", "down", "--name", &self.name]).output();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
