//! The process that holds a lab: how it is started, and what it does.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use longhaul_kernel::capability;
use longhaul_kernel::process::allow_many_files;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::user_namespace;
use longhaul_lab::control::{ControlError, Listener};
use longhaul_lab::{Lab, LabSpec};
use longhaul_path::spec::{PathSpec, no_files};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::output::{Failure, Outcome, print_json};

/// The order to the process that holds the lab.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) spec: LabSpec,
    pub(super) path: String,
    /// The lab ends when the other end of the process's standard input is closed, so also when who gave the order is killed.
    pub(super) tied: bool,
}

/// A lab's process.
pub(super) struct Holder {
    child: Child,
    /// A tied lab ends when this is dropped.
    _tie: Option<ChildStdin>,
}

impl Holder {
    /// Starts the process and waits until packets pass, or until it says why not.
    pub(super) fn start(order: &Order) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new("lab", format!("cannot start the lab's process: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .args(["lab", "hold"])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(failed)?;
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            let order = serde_json::to_string(order).map_err(|error| failed(error.into()))?;
            // A process that ended early says why on the other pipe.
            let _ = writeln!(input, "{order}");
        }
        let mut answer = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut answer).map_err(failed)?;
        }
        match serde_json::from_str::<Result<(), Refusal>>(&answer) {
            Ok(Ok(())) => Ok(Self { child, _tie: input.filter(|_| order.tied) }),
            Ok(Err(refusal)) => Err(refusal.failure()),
            Err(_) => {
                let status = child.wait().map_err(failed)?;
                Err(Failure::new("lab", format!("the lab's process ended before the lab was up: {status}")))
            }
        }
    }

    /// The lab, with what it has `answered`. One that does not answer is taken down again: who asked for it hears that there is none.
    pub(super) fn or_down<T>(self, answered: Result<T, Failure>) -> Result<(Self, T), Failure> {
        match answered {
            Ok(answer) => Ok((self, answer)),
            Err(failure) => {
                let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
                self.wait();
                Err(failure)
            }
        }
    }

    /// Waits until the process has ended.
    pub(super) fn wait(mut self) {
        drop(self._tie.take());
        let _ = self.child.wait();
    }
}

/// Why a lab did not come up, as it crosses the pipe.
#[derive(Debug, Serialize, Deserialize)]
struct Refusal {
    in_use: bool,
    message: String,
}

impl Refusal {
    fn failure(self) -> Failure {
        Failure::new(if self.in_use { "name_in_use" } else { "lab" }, self.message)
    }
}

/// The process that holds a lab.
pub(super) fn hold() -> Outcome {
    let failed = |error: std::io::Error| Failure::new("lab", error);
    // It must outlive the terminal and the process group that started it.
    let _ = rustix::process::setsid();
    longhaul_kernel::schedule::favour_session();
    // When the lab ends, the programs on its hosts are held until they have ended.
    let _ = allow_many_files();
    let mut order = String::new();
    std::io::stdin().read_line(&mut order).map_err(failed)?;
    let order: Order = serde_json::from_str(&order).map_err(|error| failed(error.into()))?;
    let tied = order.tied;
    match make(order) {
        Err(refusal) => {
            print_json(&Err::<(), _>(refusal));
            Ok(ExitCode::from(1))
        }
        Ok((listener, lab, user_namespace, stop)) => {
            let answered = writeln!(std::io::stdout(), r#"{{"Ok":null}}"#).is_ok();
            if !answered {
                // The process that asked for the lab has ended.
                return Ok(ExitCode::from(1));
            }
            let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(failed)?;
            if !tied {
                rustix::stdio::dup2_stdin(&null).map_err(|error| failed(error.into()))?;
            }
            rustix::stdio::dup2_stdout(&null).map_err(|error| failed(error.into()))?;
            rustix::stdio::dup2_stderr(&null).map_err(|error| failed(error.into()))?;
            let input = std::io::stdin();
            listener.serve(lab, user_namespace, stop, tied.then(|| input.as_fd())).map_err(failed)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn make(order: Order) -> Result<(Listener, Lab, bool, Stop), Refusal> {
    let refuse = |message: String| Refusal { in_use: false, message };
    let path = PathSpec::parse(&order.path, &no_files).map_err(|error| refuse(error.to_string()))?;
    let listener = Listener::claim(&order.spec.name)
        .map_err(|error| Refusal { in_use: matches!(error, ControlError::InUse(_)), message: error.to_string() })?;
    // Before there is a second thread.
    let user_namespace = !capability::is_root_in_namespace();
    if user_namespace {
        user_namespace::unshare_user_as_root().map_err(|error| refuse(error.to_string()))?;
    }
    let stop = Stop::install().map_err(|error| refuse(error.to_string()))?;
    let ended = refuse(format!("lab {} was taken down while it was coming up", order.spec.name));
    let give_up = || {
        print_json(&Err::<(), _>(ended));
        // Hosts and interfaces go with the process.
        std::process::exit(1);
    };
    let lab = listener.while_coming_up(stop, || Lab::up(order.spec, path), give_up);
    let lab = lab.map_err(|error| refuse(error.to_string()))?.map_err(|error| refuse(error.to_string()))?;
    Ok((listener, lab, user_namespace, stop))
}

#[cfg(test)]
mod tests {
    use rustix::process::test_kill_process;

    use super::*;

    /// A program in place of a lab's process.
    fn program() -> (Holder, Pid) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        (Holder { child, _tie: None }, pid)
    }

    #[test]
    fn a_lab_that_does_not_answer_is_taken_down() {
        let (lab, pid) = program();
        assert!(lab.or_down::<()>(Err(Failure::new("lab", "it does not answer"))).is_err());
        assert!(test_kill_process(pid).is_err(), "its process is there");

        let (lab, pid) = program();
        let Ok((mut lab, 7)) = lab.or_down(Ok(7)) else { panic!("it has answered") };
        assert!(test_kill_process(pid).is_ok());
        lab.child.kill().unwrap();
        lab.wait();
    }
}
