//! Programs on the hosts of a fault's lab. None outlives this process.
//!
//! Each is started by `longhaul lab within`, which moves to a view of the file system that fits its network, and ends the program and all
//! that it started as soon as nobody holds the other end of its standard input: when a [`Program`] is dropped, or this process is killed.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::schedule::pin_to;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::sleep_until;
use longhaul_units::Nanos;

/// What a program may say at most; the rest is read and forgotten.
const SAID_BYTES_MOST: u64 = 64 << 20;
/// How often it is looked whether a program has ended.
const LOOK: Nanos = Nanos::from_millis(20);

/// Starts programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The program that has `lab within`: longhaul itself.
    pub longhaul: PathBuf,
    /// CPUs that they run on; empty: any.
    pub cpus: Vec<usize>,
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    /// Its life: closed in the end.
    line: Option<ChildStdin>,
}

/// What came of a program.
#[derive(Debug)]
pub struct Ended {
    /// How it ended; `None`: it was ended, as its time was over or as somebody asked.
    pub status: Option<ExitStatus>,
    /// What it printed.
    pub output: String,
    /// What it said beside that.
    pub errors: String,
}

impl Ended {
    /// What it printed.
    ///
    /// # Errors
    /// In a line: it failed, or was ended.
    pub fn success(self) -> Result<String, String> {
        match self.status {
            Some(status) if status.success() => Ok(self.output),
            Some(status) => {
                let said = self.errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
                Err(format!("{status}: {}", said.chars().filter(|c| !c.is_control()).take(300).collect::<String>()))
            }
            None => Err("it did not end in time".into()),
        }
    }
}

impl Programs {
    /// Starts `words` in `network`.
    ///
    /// # Errors
    /// As fork(2) has them, or the namespace cannot be entered.
    pub(crate) fn start<S: AsRef<OsStr>>(
        &self,
        network: &NetNamespace,
        words: &[S],
        output: fn() -> Stdio,
    ) -> io::Result<Program> {
        let mut command = Command::new(&self.longhaul);
        command.args(["lab", "within", "--"]).args(words);
        command.stdin(Stdio::piped()).stdout(output()).stderr(output());
        let spawn = || {
            if !self.cpus.is_empty() {
                // They may have been taken away since; then it runs where this process may.
                let _ = pin_to(&self.cpus);
            }
            command.spawn()
        };
        let mut child = network.enter(spawn).map_err(io::Error::other)??;
        let line = child.stdin.take();
        Ok(Program { child, line })
    }

    /// Runs `words` in `network` until they end, `time` has passed, or somebody asks this process to stop.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        network: &NetNamespace,
        words: &[S],
        time: Nanos,
        stop: Option<Stop>,
    ) -> io::Result<Ended> {
        self.start(network, words, Stdio::piped)?.ended(time, stop)
    }
}

impl Program {
    /// Waits until it ends, `time` has passed, or somebody asks this process to stop. What it prints is in pipes.
    ///
    /// # Errors
    /// Does not fail in practice.
    pub(crate) fn ended(mut self, time: Nanos, stop: Option<Stop>) -> io::Result<Ended> {
        let (output, errors) = (self.child.stdout.take(), self.child.stderr.take());
        let deadline = monotonic() + time;
        thread::scope(|scope| {
            let output = scope.spawn(|| read(output));
            let errors = scope.spawn(|| read(errors));
            let status = loop {
                if let Some(status) = self.child.try_wait()? {
                    break Some(status);
                }
                if monotonic() >= deadline || stop.is_some_and(|stop| stop.requested().is_some()) {
                    self.end();
                    break None;
                }
                sleep_until(monotonic() + LOOK);
            };
            let said = |thread: thread::ScopedJoinHandle<'_, String>| thread.join().unwrap_or_default();
            Ok(Ended { status, output: said(output), errors: said(errors) })
        })
    }

    /// The process that started it; the program is a child of that one.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it and all that it started.
    fn end(&mut self) {
        drop(self.line.take());
        let _ = self.child.wait();
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

fn read(from: Option<impl Read>) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut said = Vec::new();
    let _ = from.by_ref().take(SAID_BYTES_MOST).read_to_end(&mut said);
    let _ = io::copy(&mut from, &mut io::sink());
    String::from_utf8_lossy(&said).into_owned()
}
