//! A user-mode Linux with the kernel's own modules: a process that boots in a second or two, its root this machine's files.
//!
//! Its first process is this very program, which runs the flows and powers off. What it writes goes to a folder that both see.

use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, io, process, thread};

use longhaul_kernel::schedule::allowed_cpus;
use longhaul_kernel::sysctl;
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};

use crate::flow;
use crate::peer::Script;
use crate::trace::Trace;

/// The kernel; Debian's package `user-mode-linux` has it, and its modules below [`MODULES`].
const KERNEL: &str = "linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";
/// A guest that took longer is killed. One takes some 5 s, on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(90);
/// Tells the guest's program what to do: the folder, and the congestion control.
const FOLDER: &str = "ORACLE_FOLDER";
const CONTROL: &str = "ORACLE_CONTROL";

/// A folder that ends with this.
struct Folder(PathBuf);

/// Its name begins so, then comes the number of the process it belongs to.
const FOLDER_PREFIX: &str = "longhaul-oracle-";

impl Folder {
    /// One for a guest; those that killed processes left go.
    fn create(control: &str) -> Self {
        for entry in fs::read_dir(env::temp_dir()).unwrap().flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX)?.split('-').next());
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let folder = env::temp_dir().join(format!("{FOLDER_PREFIX}{}-{control}", process::id()));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The guest's process, which ends with this.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Why there can be no guest, where there cannot.
pub(crate) fn missing() -> Option<String> {
    static MISSING: LazyLock<Option<String>> = LazyLock::new(|| match Command::new(KERNEL).arg("--version").output() {
        Ok(output) if output.status.success() => does_not_come_up(),
        Ok(output) => Some(format!("{KERNEL} --version: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Some(format!("cannot run {KERNEL} ({error}); install Debian's package user-mode-linux")),
    });
    MISSING.clone()
}

/// Whether a guest dies before its first process, as those before Linux 6.13 do where the CPU's registers are more than they know: of a
/// CPU with AMX (`put_fp_registers`, arch/um/os-Linux/skas/process.c).
fn does_not_come_up() -> Option<String> {
    let folder = Folder::create("nothing");
    let console = folder.0.join("console");
    let mut guest = start(&folder, allowed_cpus().unwrap()[0], &["init=/bin/true".into()]);
    let started = Instant::now();
    while guest.0.try_wait().unwrap().is_none() && started.elapsed() < TIME_LIMIT {
        if said(&console).contains("fatal_sigsegv") {
            return Some(format!("{KERNEL} dies on this CPU before its first process (AMX?)"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Starts a guest on `cpu` that does what `arguments` say. Its console is a file of this name in `folder`.
fn start(folder: &Folder, cpu: usize, arguments: &[String]) -> Guest {
    // Its programs and its kernel are processes that wake each other for every system call: 13 µs on one CPU, 60 µs on two.
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpu.to_string()]);
    // It ends with this program, however that comes, and in a PID namespace so do its processes, which outlive it otherwise.
    command.args(["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child=KILL"]);
    command.args([KERNEL, "mem=192M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw"]);
    command.args(["con=null", "con0=null,fd:1", "panic=-1"]);
    command.arg(format!("uml_dir={}", folder.0.display())).args(arguments);
    let log = File::create(folder.0.join("console")).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Guest(command.spawn().unwrap())
}

/// Has the guest's kernel run a flow with its module for `control` through each script.
///
/// # Panics
/// Where it does not come up or does not do so in time; with what it said.
pub(crate) fn traces(control: &str, scripts: &[Script], cpu: usize) -> Vec<Trace> {
    let folder = Folder::create(control);
    let console = folder.0.join("console");
    let init = format!("init={}", env::current_exe().unwrap().display());
    let mut arguments = vec![init, format!("{FOLDER}={}", folder.0.display()), format!("{CONTROL}={control}")];
    arguments.extend(["--", "--exact", "guest::runs_the_flows", "--ignored", "--nocapture"].map(String::from));
    let mut guest = start(&folder, cpu, &arguments);
    let started = Instant::now();
    while guest.0.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < TIME_LIMIT, "the guest was not done in time:\n{}", said(&console));
        thread::sleep(Duration::from_millis(20));
    }
    scripts
        .iter()
        .map(|script| {
            read(&folder.0, script).unwrap_or_else(|error| panic!("{}: {error}\n{}", script.name, said(&console)))
        })
        .collect()
}

fn said(console: &Path) -> String {
    String::from_utf8_lossy(&fs::read(console).unwrap()).into_owned()
}

fn read(folder: &Path, script: &Script) -> io::Result<Trace> {
    Trace::from_lines(&fs::read_to_string(folder.join(script.name))?)
}

/// What the guest's first process does.
#[test]
#[ignore = "the program that a guest runs"]
fn runs_the_flows() {
    let (Some(folder), Some(control)) = (env::var_os(FOLDER), env::var(CONTROL).ok()) else { return };
    assert_eq!(process::id(), 1, "this powers the machine off");
    let outcome = thread::spawn(move || {
        mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), None::<&str>).unwrap();
        for module in ["tun", &format!("tcp_{control}")] {
            load(module);
        }
        let tun = flow::interface();
        for script in crate::SCRIPTS {
            let trace = flow::run(&tun, &control, &script).unwrap_or_else(|error| panic!("{control}: {error}"));
            fs::write(Path::new(&folder).join(script.name), trace.to_lines()).unwrap();
        }
    });
    // A panic is on the console by now.
    drop(outcome.join());
    let Err(error) = reboot(RebootMode::RB_POWER_OFF);
    panic!("power off: {error}");
}

/// Loads a module and what it needs, which `modules.dep` has behind it. One that there is not may be built in.
fn load(module: &str) {
    let folder = Path::new(MODULES).join(sysctl::read("kernel.osrelease").unwrap().trim());
    let needs = fs::read_to_string(folder.join("modules.dep")).unwrap();
    let name = format!("/{module}.ko:");
    let Some(line) = needs.lines().find(|line| line.contains(&name)) else { return };
    for file in line.replace(':', "").split_whitespace().rev() {
        let image = File::open(folder.join(file)).unwrap();
        match finit_module(image, &CString::default(), ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => panic!("{file}: {error}"),
        }
    }
}
