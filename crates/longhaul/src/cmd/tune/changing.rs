//! Changing what a plan says, and waiting for somebody to confirm it.
//!
//! While it waits, a process of its own waits for the end of this one: then it puts back what nobody confirmed, also after `kill -9`.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::process::Process;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::wait::{readable_until, sleep_until};
use longhaul_tune::{
    Outcome as Became, Plan, PutBack, Refused, Store, Terms, TuneError, apply as change, confirm, status,
    undo_unconfirmed,
};
use longhaul_units::Nanos;
use serde::Serialize;

use crate::cmd::tune::{StateArgs, failure, text};
use crate::output::{Failure, Outcome, exit_code, say};

/// How changed settings ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// There was nothing to change.
    Nothing,
    /// They are kept.
    Kept,
    /// Nobody confirmed them in time, and they were put back.
    NotConfirmed,
    /// A signal ended the command, and they were put back.
    Interrupted,
    /// Another process put them back meanwhile.
    Undone,
}

/// The result of changed settings.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Applied {
    /// Settings that were changed.
    pub(crate) changed: usize,
    /// Settings that were not changed, and why; the others are changed.
    pub(crate) refused: Vec<Refused>,
    /// How it ended.
    pub(crate) end: End,
    /// The file that remembers what was before.
    pub(crate) state: String,
    /// What was put back.
    pub(crate) put_back: Vec<PutBack>,
    /// The exit code.
    #[serde(skip)]
    pub(crate) exit: u8,
}

/// So long the command waits for the end of the holder, which waits itself for another command that changes settings, and for a disk.
const HOLDERS_END: Nanos = Nanos::from_secs(10);
/// How often the holder tries.
const RETRY: Nanos = Nanos::from_secs(1);
/// So long after its time a process that changed settings has not put them back, because it was stopped.
const STOPPED: Nanos = Nanos::from_secs(5);
/// How often it looks whether somebody confirmed from elsewhere.
const LOOK: Nanos = Nanos::from_millis(100);

/// Changes the settings of `plan`. With `time` it waits so long for a confirmation: Enter on a terminal, or `longhaul tune confirm`.
pub(crate) fn apply(plan: &Plan, store: &Store, time: Option<Nanos>, persist: bool) -> Result<Applied, Failure> {
    let state = store.file().display().to_string();
    let ended = |changed, refused, end, put_back, exit| Applied { changed, refused, end, state, put_back, exit };
    let changed = plan.possible().count();
    // What was changed before may still be made to last.
    if changed == 0 && !persist {
        say("nothing to change here");
        return Ok(ended(0, Vec::new(), End::Nothing, Vec::new(), 0));
    }
    // From here on signals do not end it between two settings.
    let stop = Stop::install().map_err(|error| Failure::new("signals", error))?;
    let terms = Terms { unless_confirmed: time.is_some(), persist };
    // Before the first change, so that there is no moment at which nobody would put it back.
    let mut holder = time.map(|time| Holder::start(store, time)).transpose()?;
    // A process that changes settings at this moment may take long.
    let waiting = store.clone().with_give_up(|| Stop::install().is_ok_and(|stop| stop.requested().is_some()));
    let mut saved = || holder.iter_mut().for_each(Holder::saved);
    let refused = change(&waiting, plan.possible(), terms, &mut saved).map_err(|error| failure(&error))?;
    let changed = changed - refused.len();
    for one in &refused {
        say(format_args!("{} = {} is not set: {}", one.place, one.value, one.why));
    }
    let Some(time) = time else {
        say(format_args!("{changed} settings changed; `longhaul tune undo` puts them back"));
        return Ok(ended(changed, refused, End::Kept, Vec::new(), 0));
    };
    let by_enter = io::stdin().is_terminal();
    let how = if by_enter { "press Enter, or run" } else { "run" };
    say(format_args!(
        "{changed} settings changed; they are put back in {time} unless you keep them: {how} `longhaul tune confirm`"
    ));
    let (end, exit) = wait(store, stop, monotonic().saturating_add(time), by_enter)?;
    let put_back = match end {
        End::NotConfirmed | End::Interrupted => undo_unconfirmed(store, std::process::id()),
        _ => Ok(None),
    };
    let put_back = put_back.map_err(|error| failure(&error))?.unwrap_or_default();
    let some_are_left = || matches!(status(store), Ok(Some(left)) if left.pid == 0);
    say(match end {
        End::Kept => "kept; `longhaul tune undo` puts them back",
        End::Undone if some_are_left() => "another process put them back, but for what `longhaul tune status` shows",
        End::Undone => "another process put them back",
        _ if put_back.iter().any(PutBack::is_not_as_before) => "not confirmed: put back, but for what follows",
        _ => "not confirmed: put back",
    });
    text::put_back(&put_back).lines().for_each(say);
    if let Some(holder) = holder
        && put_back.iter().any(|one| one.is_held)
    {
        say("what a test has changed is put back after the test, by a process that waits for it");
        holder.leave();
    }
    Ok(ended(changed, refused, end, put_back, exit))
}

/// Waits until they are confirmed, undone, or `deadline` has passed. Gives the exit code, too.
fn wait(store: &Store, stop: Stop, deadline: Nanos, by_enter: bool) -> Result<(End, u8), Failure> {
    let failed = |error: io::Error| Failure::new("wait", error);
    let own = std::process::id();
    let mut is_open = by_enter;
    loop {
        match status(store).map_err(|error| failure(&error))? {
            Some(status) if status.pid == own && !status.confirmed => {}
            Some(status) if status.pid == own => return Ok((End::Kept, 0)),
            _ => return Ok((End::Undone, 1)),
        }
        if let Some(signal) = stop.requested() {
            return Ok((End::Interrupted, exit_code(signal)));
        }
        let now = monotonic();
        if now >= deadline {
            return Ok((End::NotConfirmed, 1));
        }
        readable_until(stop, Some(deadline.min(now.saturating_add(LOOK)))).map_err(failed)?;
        if is_open && readable_until(io::stdin(), Some(now)).map_err(failed)? {
            // A terminal that went away reads as an end.
            is_open = io::stdin().lock().read_line(&mut String::new()).map_err(failed)? > 0;
            if is_open {
                confirm(store).map_err(|error| failure(&error))?;
            }
        }
    }
}

/// The process that waits for the end of this one.
struct Holder {
    child: Child,
    /// It reads a byte when there is something to put back and after each change, and the end, which comes with this process' own at the latest.
    line: Option<ChildStdin>,
    is_left: bool,
}

impl Holder {
    fn start(store: &Store, time: Nanos) -> Result<Self, Failure> {
        let start = || {
            let mut child = Command::new(std::env::current_exe()?)
                .args(["tune", "hold", &std::process::id().to_string(), &time.0.to_string(), "--state"])
                .arg(store.folder())
                .current_dir("/")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?;
            let mut ready = [0];
            child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.read_exact(&mut ready)?;
            let line = child.stdin.take();
            Ok(Self { child, line, is_left: false })
        };
        start().map_err(|error: io::Error| {
            Failure::new("no_holder", format!("cannot start the process that would put settings back: {error}"))
        })
    }

    /// What was before is kept now, and settings change from here on; and after each of them.
    fn saved(&mut self) {
        if let Some(line) = &mut self.line {
            // One that was killed cannot be told.
            let _ = line.write_all(b"s");
        }
    }

    /// Lets it do alone what is left.
    fn leave(mut self) {
        drop(self.line.take());
        self.is_left = true;
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.line.take());
        if self.is_left {
            return;
        }
        let deadline = monotonic().saturating_add(HOLDERS_END);
        let process = Process::open(self.child.id());
        if let Ok(Some(process)) = process
            && process.wait_until_gone(deadline).is_ok_and(|is_gone| !is_gone)
        {
            say(format_args!("process {} still tries to put settings back: see `longhaul tune status`", process.pid()));
        } else if !self.child.wait().is_ok_and(|status| status.success()) {
            say("the process that puts settings back failed: see `longhaul tune status`");
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct HoldArgs {
    /// Put back what this process changed
    #[arg(value_name = "PID")]
    pid: u32,
    /// At the latest so many nanoseconds after the last change, and 5 s
    #[arg(value_name = "NS")]
    time_ns: u64,
    #[command(flatten)]
    state: StateArgs,
}

/// The holder's life. It is in a session of its own, as the terminal's signals are not for it.
pub(crate) fn hold(args: HoldArgs) -> Outcome {
    let failed = |error: io::Error| Failure::new("hold", error);
    let _ = rustix::process::setsid();
    let _stop = Stop::install().map_err(failed)?;
    let store = args.state.store()?;
    io::stdout().write_all(b"\n").and_then(|()| io::stdout().flush()).map_err(failed)?;
    let (mut is_told, mut has_ended) = (false, false);
    // Until the other's end, or until it is late: it was stopped (as by Ctrl-Z), and would put them back when it goes on.
    let mut late = Nanos::MAX;
    loop {
        while !has_ended && monotonic() < late {
            if readable_until(io::stdin(), (late < Nanos::MAX).then_some(late)).map_err(failed)? {
                has_ended = io::stdin().lock().read(&mut [0; 64]).map_err(failed)? == 0;
                if !has_ended {
                    // It has changed another setting: its time begins after the last.
                    late = monotonic().saturating_add(Nanos(args.time_ns)).saturating_add(STOPPED);
                    is_told = true;
                }
            }
        }
        // However long a test, another command that changes settings, or a full disk is in the way: nobody else would put them back.
        match undo_unconfirmed(&store, args.pid) {
            Ok(Some(all)) if all.iter().any(|one| one.is_held) => {}
            Err(TuneError::Busy { .. } | TuneError::Store { .. }) => {
                let is_left = match status(&store) {
                    Ok(state) => state.is_some_and(|state| state.pid == args.pid && !state.confirmed),
                    Err(_) => is_told,
                };
                if !is_left {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            Ok(all) => {
                let failed = all.iter().flatten().any(|one| one.outcome == Became::Failed);
                return Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
            }
            Err(error) => return Err(failure(&error)),
        }
        late = monotonic().saturating_add(RETRY);
        if has_ended {
            sleep_until(late);
        }
    }
}
