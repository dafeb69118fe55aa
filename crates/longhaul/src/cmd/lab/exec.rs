//! `longhaul lab exec` and `longhaul lab shell`: this process becomes a program on a host.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use longhaul_lab::control::Info;
use longhaul_lab::enter::{EnterError, enter};
use longhaul_lab::plan::HostPlan;

use super::{Which, control_failure};
use crate::output::{Failure, Outcome};

/// Becomes the program `command` on `host`.
pub(super) fn exec(lab: &Which, host: &str, command: &[String]) -> Outcome {
    let (info, plan) = go_to(lab, host)?;
    let [program, arguments @ ..] = command else { return Err(Failure::usage("no program to run")) };
    let mut command = Command::new(program);
    command.args(arguments);
    Err(become_program(command, &info, &plan))
}

/// Becomes the user's shell on `host`. Where somebody types at it, its prompt begins with host and lab.
pub(super) fn shell(lab: &Which, host: &str) -> Outcome {
    let (info, plan) = go_to(lab, host)?;
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    let mut command = Command::new(&shell);
    if std::io::stdin().is_terminal() {
        // Both names are letters, digits, `-` and `_`.
        let place = format!("({}@{}) ", plan.name, info.spec.name);
        if Path::new(&shell).file_name().is_some_and(|name| name == "bash") {
            let start = start_of_bash(&place);
            command.args(start.map_err(|error| Failure::new("exec", format!("cannot make a pipe: {error}")))?);
        } else {
            // POSIX shells take their prompt from the environment.
            let sign = if rustix::process::geteuid().is_root() { "# " } else { "$ " };
            command.env("PS1", place + &std::env::var("PS1").unwrap_or_else(|_| sign.into()));
        }
    }
    Err(become_program(command, &info, &plan))
}

/// Arguments by which bash reads the user's own file, which sets the prompt, and then puts `place` before that prompt.
fn start_of_bash(place: &str) -> std::io::Result<[OsString; 2]> {
    let (reader, mut writer) = std::io::pipe()?;
    // A duplicate stays open when this process becomes bash.
    let number = rustix::io::dup(&reader)?.into_raw_fd();
    writer.write_all(
        format!("[ ! -f ~/.bashrc ] || . ~/.bashrc\nPS1='{place}'\"$PS1\"\nexec {number}<&-\n").as_bytes(),
    )?;
    Ok(["--rcfile".into(), format!("/dev/fd/{number}").into()])
}

/// Moves this process to `host`.
fn go_to(lab: &Which, host: &str) -> Result<(Info, HostPlan), Failure> {
    let info = lab.client()?.info().map_err(control_failure)?;
    let plan = enter(&info, host).map_err(|error| match error {
        EnterError::NoHost { .. } => Failure::usage(error),
        _ => Failure::new("exec", error),
    })?;
    Ok((info, plan))
}

/// Returns only if there is no such program.
fn become_program(mut command: Command, info: &Info, plan: &HostPlan) -> Failure {
    let error = command.env("LONGHAUL_LAB", &info.spec.name).env("LONGHAUL_HOST", &plan.name).exec();
    let program = command.get_program().to_string_lossy();
    Failure::new("exec", format!("cannot run `{program}`: {error}")).remedy("is it installed, and in PATH?")
}
