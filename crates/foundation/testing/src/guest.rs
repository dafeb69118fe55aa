//! A machine with one of Debian's kernels, booted by QEMU, which interprets its instructions (TCG): it takes no KVM and no root, and works on
//! any host. `scripts/kernels.sh` fetches the kernels.
//!
//! The guest has a root file system in memory: busybox, the programs that it is given with the libraries that they need, and the kernel's
//! modules that it is told to load. It runs commands one after another and says of each how it ended and what it printed.
//!
//! It lives in **virtual time**: an instruction takes a nanosecond, and time in which the guest only waits passes at once. What a guest measures
//! is the same on a fast and on a busy host, and the same each time. It has one CPU, and runs when nothing else on the host wants to
//! (`SCHED_IDLE`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, process};

use crate::archive::Archive;
use crate::program::Program;

/// The emulator; Debian's package `qemu-system-x86` has it.
const EMULATOR: &str = "qemu-system-x86_64";
/// The guest's small programs; Debian's package `busybox-static` has it.
const BUSYBOX: &str = "/bin/busybox";
/// Where the guest's first process finds what it shall run, one file each, in their order.
const COMMANDS: &str = "/commands";
/// The modules in the order in which they can be loaded.
const MODULES: &str = "/modules";
/// A guest that took longer is ended. On a machine with other work it waits for CPU time most of the time.
const TIME_LIMIT: Duration = Duration::from_secs(2_700);

/// What the guest does when it has booted. A command's output goes through a serial line of its own, after a line with its status and length.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /busybox
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/busybox HOME=/
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
for folder in /dev/shm /tmp /run; do mount -t tmpfs tmp $folder; done
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t tracefs trace /sys/kernel/tracing
ip link set lo up
echo 127.0.0.1 localhost >/etc/hosts
for module in /modules/*; do [ ! -e "$module" ] || insmod "$module"; done
stty -F /dev/ttyS1 raw
for command in /commands/*; do
    sh "$command" </dev/null >/tmp/output 2>&1
    { echo "$? $(wc -c </tmp/output)"; cat /tmp/output; } >/dev/ttyS1
done
reboot -f
"#;

/// A kernel that a guest can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Debian 12's, of 2022.
    Linux6_1,
    /// Debian 13's, of 2024.
    Linux6_12,
}

impl Kernel {
    /// Such as `6.12`: the name of its folder, and what its release begins with.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux6_1 => "6.1",
            Self::Linux6_12 => "6.12",
        }
    }

    /// The folder into which `scripts/kernels.sh` put it: in cargo's target folder, where this test is.
    fn folder(self) -> Result<PathBuf, String> {
        let program = env::current_exe().map_err(|error| error.to_string())?;
        let below = |ancestor: &Path| ancestor.join("kernels").join(self.name());
        let found = program.ancestors().map(below).find(|folder| folder.join("boot").is_dir());
        found.ok_or_else(|| format!("there is no kernel {}: run scripts/kernels.sh", self.name()))
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// 0: well; from 128 on by a signal.
    pub status: u32,
    /// What it printed, on both ways.
    pub output: String,
}

/// A machine that can be booted, as often as one likes.
#[derive(Debug)]
pub struct Guest {
    image: PathBuf,
    modules: PathBuf,
    archive: Archive,
    loaded: Vec<String>,
    /// The model of two NICs on one cable, if it has them.
    nics: Option<&'static str>,
}

impl Guest {
    /// One with nothing but busybox.
    ///
    /// # Errors
    /// Says what is missing on this machine, and how to get it.
    pub fn new(kernel: Kernel) -> Result<Self, String> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err("its programs are those of this machine, which is no x86-64".into());
        }
        Command::new(EMULATOR).arg("--version").output().map_err(|error| format!("{EMULATOR}: {error} (make deps)"))?;
        let folder = kernel.folder()?;
        let mut archive = Archive::default();
        for folder in ["/busybox", "/proc", "/sys", "/dev", "/tmp", "/run", "/etc", COMMANDS, MODULES] {
            archive.folder(Path::new(folder));
        }
        archive.file(Path::new("/init"), INIT.as_bytes());
        archive
            .file(Path::new(BUSYBOX), &fs::read(BUSYBOX).map_err(|error| format!("{BUSYBOX}: {error} (make deps)"))?);
        let image = files(&folder.join("boot")).into_iter().find(|file| file.to_string_lossy().contains("vmlinuz"));
        Ok(Self {
            image: image.ok_or_else(|| format!("{}: no vmlinuz", folder.display()))?,
            modules: folder,
            archive,
            loaded: Vec::new(),
            nics: None,
        })
    }

    /// With a file of the host.
    ///
    /// # Panics
    /// Where it cannot be read.
    #[must_use]
    pub fn with_file(mut self, host: impl AsRef<Path>, guest: impl AsRef<Path>) -> Self {
        let host = host.as_ref();
        let contents = fs::read(host).unwrap_or_else(|error| panic!("{}: {error}", host.display()));
        self.archive.file(guest.as_ref(), &contents);
        self
    }

    /// With a program of the host, in `/usr/bin` by its own name, and the libraries that it needs.
    ///
    /// # Panics
    /// Where it cannot be read.
    #[must_use]
    pub fn with_program(mut self, host: impl AsRef<Path>) -> Self {
        let host = host.as_ref();
        // One linked statically has none, which ldd says with an error.
        let libraries = Command::new("ldd").arg(host).output().unwrap_or_else(|error| panic!("ldd: {error}"));
        for word in String::from_utf8_lossy(&libraries.stdout).split_whitespace().filter(|word| word.starts_with('/')) {
            self = self.with_file(word, word);
        }
        let name = host.file_name().unwrap_or_else(|| panic!("{}: no name", host.display()));
        self.with_file(host, Path::new("/usr/bin").join(name))
    }

    /// With a module of the kernel, after those that it needs. One that the kernel has built in, or has not, is left out.
    ///
    /// # Panics
    /// Where it cannot be unpacked.
    #[must_use]
    pub fn with_module(mut self, name: &str) -> Self {
        let name = name.replace('-', "_");
        if self.loaded.contains(&name) {
            return self;
        }
        let is_it = |file: &PathBuf| {
            let own = file.file_name().map(|own| own.to_string_lossy().replace('-', "_"));
            own.is_some_and(|own| own.split_once(".ko").is_some_and(|(own, _)| own == name))
        };
        let Some(file) = files(&self.modules).into_iter().find(is_it) else { return self };
        let image = unpacked(&file);
        for needed in needs(&image) {
            self = self.with_module(&needed);
        }
        self.archive.file(&Path::new(MODULES).join(format!("{:03}-{name}", self.loaded.len())), &image);
        self.loaded.push(name);
        self
    }

    /// With a module in C that is not the kernel's: `NAME.c` in the folder `source`, built with the kernel's headers.
    ///
    /// # Errors
    /// There are no headers of this kernel, or nothing to build it with.
    ///
    /// # Panics
    /// Where it cannot be built.
    pub fn with_own_module(mut self, source: &Path, name: &str) -> Result<Self, String> {
        let headers = self.modules.join("headers");
        if !headers.is_dir() {
            return Err(format!("{}: not there: run scripts/kernels.sh", headers.display()));
        }
        let folder = Folder::create();
        fs::copy(source.join(name).with_extension("c"), folder.0.join(name).with_extension("c")).unwrap();
        fs::write(folder.0.join("Makefile"), format!("obj-m := {name}.o\n")).unwrap();
        let mut make = Command::new("make");
        make.arg("-C").arg(&headers).arg(format!("M={}", folder.0.display())).arg("modules");
        let built = make.output().map_err(|error| format!("make: {error} (make deps)"))?;
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let image = fs::read(folder.0.join(name).with_extension("ko")).unwrap();
        self.archive.file(&Path::new(MODULES).join(format!("{:03}-{name}", self.loaded.len())), &image);
        self.loaded.push(name.into());
        Ok(self)
    }

    /// With two NICs of this model (`virtio-net-pci`) on one cable, `eth0` and `eth1`; their driver is a module.
    #[must_use]
    pub fn with_nics(self, model: &'static str) -> Self {
        Self { nics: Some(model), ..self }
    }

    /// Boots it and has it run `commands` by a shell, one after another.
    ///
    /// # Panics
    /// Where it does not come up, or not to the end; with what its console says.
    pub fn run(&self, commands: &[&str]) -> Vec<Exit> {
        let mut archive = self.archive.clone();
        for (index, command) in commands.iter().enumerate() {
            archive.file(&Path::new(COMMANDS).join(format!("{index:04}")), command.as_bytes());
        }
        let folder = Folder::create();
        let [initial, console, results] = ["initial", "console", "results"].map(|name| folder.0.join(name));
        fs::write(&initial, archive.into_bytes()).unwrap();
        let mut machine = Program(self.emulator(&initial, &console, &results).spawn().unwrap());
        let started = Instant::now();
        let said = || String::from_utf8_lossy(&fs::read(&console).unwrap_or_default()).into_owned();
        while machine.0.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < TIME_LIMIT, "the guest was not done in time:\n{}", said());
            sleep(Duration::from_millis(10));
        }
        let results = fs::read(&results).unwrap();
        let exits = exits(&results);
        assert_eq!(exits.len(), commands.len(), "the guest ended early:\n{}\n{exits:?}", said());
        exits
    }

    fn emulator(&self, initial: &Path, console: &Path, results: &Path) -> Command {
        // It ends with this test, however that comes.
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "chrt",
            "--idle",
            "0",
            EMULATOR,
            "-accel",
            "tcg",
            "-m",
            "768",
            "-nodefaults",
            "-no-reboot",
            "-display",
            "none",
        ]);
        // Without AVX: interpreting it takes longer than it saves. Without CMPXCHG16B, with which the kernel allocates memory: QEMU 7.2 now and
        // then leaves the address in the flags, and the guest dies of a double fault.
        command.args(["-cpu", "qemu64,-cx16"]);
        command.args(["-icount", "shift=0,sleep=off", "-rtc", "clock=vm"]);
        for line in [console, results] {
            command.arg("-serial").arg(format!("file:{}", line.display()));
        }
        command.arg("-kernel").arg(&self.image).arg("-initrd").arg(initial);
        // The clock is the counter of the CPU: no other judges it by the host's time.
        command.args([
            "-append",
            "console=ttyS0 quiet panic=-1 tsc=reliable clocksource=tsc no_timer_check nokaslr mitigations=off",
        ]);
        for (model, number) in self.nics.iter().flat_map(|model| [(model, 0), (model, 1)]) {
            command.args(["-netdev", &format!("hubport,id=cable{number},hubid=0")]);
            // Without a ROM: nothing boots from it.
            command.args(["-device", &format!("{model},netdev=cable{number},romfile=")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

/// The files in a folder and those below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&path)),
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
    found
}

/// A module's image. Debian 13 compresses them.
fn unpacked(file: &Path) -> Vec<u8> {
    if file.extension().is_some_and(|extension| extension == "ko") {
        return fs::read(file).unwrap();
    }
    let output = Command::new("xz").args(["--decompress", "--stdout"]).arg(file).output();
    let output = output.unwrap_or_else(|error| panic!("xz: {error} (make deps)"));
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The modules that must be loaded before: `depends=one,two` in its section `.modinfo`.
fn needs(image: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = image.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let list: Vec<u8> = image[at + KEY.len()..].iter().copied().take_while(|byte| *byte != 0).collect();
    let list = String::from_utf8_lossy(&list);
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// What came through the serial line: for each command `STATUS BYTES` in a line, then so many bytes.
fn exits(mut results: &[u8]) -> Vec<Exit> {
    let mut exits = Vec::new();
    while let Some(end) = results.iter().position(|byte| *byte == b'\n') {
        let (head, rest) = (String::from_utf8_lossy(&results[..end]), &results[end + 1..]);
        let numbers =
            head.split_once(' ').and_then(|(status, len)| Some((status.parse().ok()?, len.parse::<usize>().ok()?)));
        let Some((status, len)) = numbers.filter(|(_, len)| *len <= rest.len()) else { break };
        exits.push(Exit { status, output: String::from_utf8_lossy(&rest[..len]).into_owned() });
        results = &rest[len..];
    }
    exits
}

/// A folder that ends with this.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("longhaul-guest-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_by_their_lengths() {
        let exit = |status, output: &str| Exit { status, output: output.into() };
        assert_eq!(exits(b"0 4\na\nb\n139 0\n1 3\nend"), [exit(0, "a\nb\n"), exit(139, ""), exit(1, "end")]);
        assert_eq!(exits(b"0 4\na\nb\n1 30\ncut short"), [exit(0, "a\nb\n")]);
        assert_eq!(exits(b""), []);
    }

    #[test]
    fn a_module_says_what_it_needs() {
        assert_eq!(needs(b"license=GPL\0depends=nf-one,two\0name=three\0"), ["nf-one", "two"]);
        assert_eq!(needs(b"license=GPL\0depends=\0"), [""; 0]);
    }
}
