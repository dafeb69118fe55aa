//! Programs on the hosts of a fault's lab. None outlives this process.
//!
//! Each is started by `longhaul lab within`, which moves to a view of the file system that fits its network, and ends the program and all
//! that it started as soon as nobody holds the other end of its standard input: when a [`Program`] is dropped, or this process is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::schedule::pin_to;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::Poller;
use longhaul_units::Nanos;

/// What a program may say at most; the rest is read and forgotten.
const SAID_BYTES_MOST: usize = 64 << 20;
/// How often it is looked whether a program has ended.
const LOOK: Nanos = Nanos::from_millis(20);
/// How long a program that another one left may keep that one's output open. Most write nothing there, such as a server in the
/// background: it ends with the lab.
const LEFT: Nanos = Nanos::from_secs(1);

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
    /// How long it ran, from when it was waited for.
    pub took: Nanos,
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
        let began = monotonic();
        let mut said = Said::of(&mut self.child)?;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if monotonic() >= began + time || stop.is_some_and(|stop| stop.requested().is_some()) {
                self.end();
                break None;
            }
            said.read(monotonic() + LOOK)?;
        };
        let took = monotonic() - began;
        let deadline = monotonic() + LEFT;
        while said.is_open() && monotonic() < deadline {
            said.read(deadline)?;
        }
        let [output, errors] = said.bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Ended { status, output, errors, took })
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

/// What a program prints, and what it says beside that.
struct Said {
    poller: Poller,
    /// `None` once it has ended, or where there is none.
    pipes: [Option<File>; 2],
    bytes: [Vec<u8>; 2],
}

impl Said {
    fn of(child: &mut Child) -> io::Result<Self> {
        let pipes = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let said = Self {
            poller: Poller::new()?,
            pipes: pipes.map(|pipe| pipe.map(File::from)),
            bytes: [Vec::new(), Vec::new()],
        };
        for (key, pipe) in (0..).zip(&said.pipes) {
            if let Some(pipe) = pipe {
                said.poller.add(pipe, key)?;
            }
        }
        Ok(said)
    }

    fn is_open(&self) -> bool {
        self.pipes.iter().any(Option::is_some)
    }

    /// Waits for something to read, or until `deadline`, and reads it.
    fn read(&mut self, deadline: Nanos) -> io::Result<()> {
        for key in self.poller.wait(Some(deadline))? {
            let Some((pipe, bytes)) = self.pipes.iter_mut().zip(&mut self.bytes).nth(key as usize) else { continue };
            let Some(file) = pipe else { continue };
            let mut piece = [0; 16 << 10];
            match file.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => {
                    self.poller.remove(&*file)?;
                    *pipe = None;
                }
                Ok(length) => bytes.extend_from_slice(&piece[..length.min(SAID_BYTES_MOST - bytes.len())]),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use longhaul_kernel::process::{Process, Signal};

    use super::*;

    /// As a server does that goes into the background.
    #[test]
    fn what_a_program_leaves_behind_is_not_waited_for() {
        let mut sh = Command::new("sh");
        sh.args(["-c", "sleep 20 & echo $!; echo done >&2"]).stdin(Stdio::piped());
        let mut child = sh.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let line = child.stdin.take();
        let begin = monotonic();
        let ended = Program { child, line }.ended(Nanos::from_secs(30), None).unwrap();
        let waited = monotonic() - begin;
        // It has the pipes still.
        let left = Process::open(ended.output.trim().parse().unwrap()).unwrap();
        left.expect("it runs").signal(Signal::KILL).unwrap();
        assert!(ended.status.is_some_and(|status| status.success()));
        assert_eq!(ended.errors, "done\n");
        assert!(ended.took <= waited && waited < Nanos::from_secs(10), "{ended:?}, {waited}");
    }

    #[test]
    fn all_that_a_program_prints_is_read() {
        let mut sh = Command::new("sh");
        sh.args(["-c", "head -c 300000 /dev/zero >&2; head -c 200000 /dev/zero"]).stdin(Stdio::null());
        let child = sh.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = Program { child, line: None }.ended(Nanos::from_secs(30), None).unwrap();
        assert_eq!((ended.output.len(), ended.errors.len()), (200_000, 300_000));
    }
}
