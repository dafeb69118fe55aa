//! Watches until the processes have ended, or a signal comes.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::{Process, Signal, ended_child, is_in_foreground};
use longhaul_kernel::process_sockets::adopt_orphans;
use longhaul_kernel::signals::{Stop, StopSignal};
use longhaul_kernel::wait::{readable_until, sleep_until};
use longhaul_units::Nanos;
use longhaul_watch::WatchError;

use crate::cmd::watch::live::{Live, Watching};
use crate::output::Failure;

/// After the processes have ended, their connections have this long to end.
const GRACE: Nanos = Nanos::from_secs(1);
/// How often to check whether the processes still run.
const LOOK_AGAIN: Nanos = Nanos::from_millis(100);

/// How long to watch, and how often to look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// The whole time; `None`: until a signal, or until the processes have ended.
    pub(crate) whole: Option<Nanos>,
    /// Between two samples of all connections.
    pub(crate) sample: Nanos,
    /// Between two reports.
    pub(crate) interval: Nanos,
}

/// The network namespace of a process that `option` names.
pub(crate) fn namespace_of(option: &str, pid: u32) -> Result<NetNamespace, Failure> {
    NetNamespace::of_process(pid).map_err(|error| {
        Failure::new("no_process", format!("{option} {pid}: {error}"))
            .remedy("name a running process, and run longhaul as its user or as root")
    })
}

/// Samples until the end. Returns how the command ended.
pub(crate) fn follow(
    times: &Times,
    watch: &mut impl Watching,
    mut child: Option<u32>,
    stop: Stop,
    live: &mut Live,
) -> io::Result<Option<ExitStatus>> {
    let start = monotonic();
    let interval = times.interval;
    let end = times.whole.map_or(Nanos::MAX, |time| start.saturating_add(time));
    let (mut tick, mut table, mut look) = (start, start.saturating_add(interval), start);
    let mut ended = None;
    let mut leave = Nanos::MAX;
    let mut passed_on = false;
    loop {
        let now = monotonic();
        if now >= tick {
            watch.sample();
            while tick <= now {
                tick += times.sample;
            }
        }
        if live.is_shown() && now >= table {
            watch.report(live, now.saturating_sub(start));
            while table <= now {
                table += interval;
            }
        }
        // Others are those that the command left behind.
        while let Some((pid, status)) = ended_child()? {
            if child == Some(pid) {
                (ended, child) = (Some(status), None);
                leave = now.saturating_add(GRACE);
            }
        }
        if let Some(running) = child {
            if let Some(signal) = stop.requested().filter(|_| !passed_on) {
                pass_on(running, signal)?;
                passed_on = true;
            }
        } else if stop.requested().is_some() {
            return Ok(ended);
        }
        if now >= look {
            look = now.saturating_add(LOOK_AGAIN);
            if leave == Nanos::MAX && watch.is_over() {
                leave = now.saturating_add(GRACE);
            }
        }
        let all_ended = leave < Nanos::MAX && watch.open() == 0;
        if now >= end || now >= leave || all_ended || stop.count() > 1 {
            return Ok(ended);
        }
        let next = tick.min(end).min(leave);
        // After a signal, the descriptor stays readable.
        match stop.requested() {
            None => _ = readable_until(stop, Some(next))?,
            Some(_) => sleep_until(next),
        }
    }
}

/// Passes a signal on to the command. Call it once: many programs take a second signal as the wish to end without cleaning up. A terminal sends
/// Ctrl-C to its foreground group, so that a command in that group has it already.
fn pass_on(child: u32, signal: StopSignal) -> io::Result<()> {
    let signal = match signal {
        StopSignal::Interrupt if is_in_foreground(child) => return Ok(()),
        StopSignal::Interrupt => Signal::INT,
        StopSignal::Terminate => Signal::TERM,
        StopSignal::HangUp => Signal::HUP,
    };
    Process::open(child)?.map_or(Ok(()), |process| process.signal(signal))
}

/// Starts the command; the number of its process.
pub(crate) fn start(command: &[String], json: bool) -> Result<u32, Failure> {
    let (program, arguments) = command.split_first().ok_or_else(|| Failure::usage("COMMAND is empty"))?;
    adopt_orphans().map_err(|error| Failure::new("watch", error))?;
    let mut command = Command::new(program);
    command.args(arguments);
    if json {
        let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(|error| Failure::new("watch", error))?;
        command.stdout(Stdio::from(stderr));
    }
    command.spawn().map(|child| child.id()).map_err(|error| {
        let exit = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        Failure::new("not_run", format!("{program}: {error}")).remedy("name an executable program").exit(exit)
    })
}

/// The exit code, as a shell computes it.
pub(crate) fn code_of(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

pub(crate) fn not_watched(error: WatchError) -> Failure {
    match error {
        WatchError::Namespace(error) => Failure::new("no_namespace", error),
        WatchError::SockDiag(_) => Failure::new("no_sock_diag", error),
        WatchError::Cgroup { .. } => Failure::new("no_cgroup", format!("--cgroup {error}")),
        WatchError::Process { .. } => {
            Failure::new("no_process", error).remedy("name a running process, and run longhaul as its user or as root")
        }
    }
}
