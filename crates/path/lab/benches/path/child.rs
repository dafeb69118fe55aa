//! This program as a process on a host: starting one and taking its result, and what such a process says.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::schedule;
use longhaul_testing::program::Program;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::ENDPOINT;
use crate::endpoint::Role;
use crate::{Error, Result};

/// The first line of an endpoint, once it listens.
const READY: &str = "ready";

/// A process that is not ready after so long, or not done so long after its time, is stuck.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A process on a host. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    program: Program,
    lines: Receiver<String>,
    role: String,
}

impl Endpoint {
    /// Starts one on the host of `namespace`, on one of `cpus` (empty: any), and waits until it is ready.
    pub(crate) fn start(cpus: &[usize], namespace: &NetNamespace, role: &Role) -> Result<Self> {
        let role = serde_json::to_string(role)?;
        let program = std::env::current_exe()?;
        let mut child = namespace.enter(|| {
            if !cpus.is_empty() {
                schedule::pin_to(cpus).map_err(std::io::Error::other)?;
            }
            // Its standard input ends when this process does, and so does it.
            Command::new(program).args([ENDPOINT, &role]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        })??;
        let output = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut endpoint = Self { program: Program(child), lines, role };
        match endpoint.line(PATIENCE)? {
            line if line == READY => Ok(endpoint),
            line => Err(Error::from(format!("endpoint {} says `{line}` and not `{READY}`", endpoint.role))),
        }
    }

    /// What it found out, which takes it `within` at most.
    pub(crate) fn result<T: DeserializeOwned>(mut self, within: Duration) -> Result<T> {
        let line = self.line(within + PATIENCE)?;
        Ok(serde_json::from_str(&line).map_err(|error| format!("endpoint {}: {error} in `{line}`", self.role))?)
    }

    fn line(&mut self, within: Duration) -> Result<String> {
        self.lines.recv_timeout(within).map_err(|error| {
            let problem = match error {
                RecvTimeoutError::Timeout => format!("says nothing for {within:?}"),
                RecvTimeoutError::Disconnected => match self.program.0.wait() {
                    Ok(status) => format!("ended early, {status}"),
                    Err(error) => format!("ended early: {error}"),
                },
            };
            Error::from(format!("endpoint {} {problem}", self.role))
        })
    }
}

/// In the process itself: it shall not outlive the one that started it, which holds the other end of its standard input.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0; 1]);
        std::process::exit(1);
    });
}

/// To be called by it once packets may come.
pub(crate) fn ready() -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{READY}")?;
    Ok(output.flush()?)
}

/// What it found out.
pub(crate) fn answer(result: &impl Serialize) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(result)?)?;
    Ok(output.flush()?)
}
