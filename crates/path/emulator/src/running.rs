//! An emulator in a thread of its own.

use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use longhaul_kernel::memory::available;
use longhaul_kernel::namespace::{NamespaceError, NetNamespace};
use longhaul_kernel::schedule::{self, CpuDmaLatency, ScheduleError};
use longhaul_path::spec::PathSpec;

use crate::engine::{Attachment, Command, Engine, EngineError, EngineOptions};
use crate::payload::Block;
use crate::status::Status;
use crate::waker::{Waker, waker};

/// A thread that does not answer for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where and how the emulating thread runs.
#[derive(Debug, Clone, Default)]
pub struct Schedule {
    /// CPUs it may run on; empty: any.
    pub cpus: Vec<usize>,
    /// `SCHED_FIFO` priority, 1 to 99; `None`: an ordinary thread.
    pub realtime: Option<u8>,
}

/// Why an emulator did not start, or does not answer.
#[derive(Debug, thiserror::Error)]
pub enum RunningError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Its CPUs or its priority.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// Its namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// There is no thread to be had.
    #[error("cannot start the emulating thread: {0}")]
    Thread(std::io::Error),
    /// It ended by itself.
    #[error("the emulating thread has ended or is stuck")]
    Ended,
}

/// A running emulator. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    commands: Sender<Command>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts to emulate `path` between `attachments`, which are interfaces of `namespace` (`None`: the caller's), and
    /// returns once packets pass.
    ///
    /// # Errors
    /// Any [`RunningError`] but `Ended`.
    pub fn start(
        path: PathSpec,
        attachments: Vec<Attachment>,
        options: EngineOptions,
        schedule: Schedule,
        namespace: Option<&NetNamespace>,
    ) -> Result<Self, RunningError> {
        let (commands, orders) = channel();
        let (ready, started) = channel();
        let (waker, source) = waker().map_err(RunningError::Thread)?;
        // The thread keeps its own hold on the namespace: the caller's may end before it.
        let namespace = namespace.map(NetNamespace::try_clone).transpose().map_err(RunningError::Thread)?;
        let thread = Builder::new()
            .name("emulator".into())
            .spawn(move || {
                let made =
                    prepare(&schedule, namespace.as_ref()).and_then(|()| Ok(Engine::new(path, &attachments, options)?));
                // Held while the thread runs: a CPU in deep sleep wakes up tens of microseconds late. Not every
                // machine has it, and not everyone may.
                let _awake = CpuDmaLatency::hold(0);
                match made {
                    Err(error) => drop(ready.send(Err(error))),
                    Ok(mut engine) => {
                        if schedule.realtime.is_some() {
                            engine.limit_to(schedule::realtime_share());
                        }
                        if ready.send(Ok(())).is_ok() {
                            // An end by error shows as `Ended` to whoever asks next.
                            let _ = engine.run(&orders, &source);
                        }
                    }
                }
            })
            .map_err(RunningError::Thread)?;
        started.recv().map_err(|_| RunningError::Ended)??;
        Ok(Self { commands, waker, thread: Some(thread) })
    }

    /// How it does.
    ///
    /// # Errors
    /// [`RunningError::Ended`].
    pub fn status(&self) -> Result<Status, RunningError> {
        self.ask(Command::Status).map(|status| *status)
    }

    /// Makes it emulate `path` from now on; nothing in flight is lost. Memory that `path` needs besides is taken in the
    /// calling thread, while packets pass as before.
    ///
    /// # Errors
    /// As [`EngineError`] says for a change, and [`RunningError::Ended`].
    pub fn update(&self, path: PathSpec) -> Result<(), RunningError> {
        let path = Box::new(path);
        // Read here: the emulator's thread has packets to send.
        let free = available();
        let lacks = self.ask(|reply| Command::Lacks(path.clone(), free, reply))??;
        let take = |bytes: usize| (bytes > 0).then(|| Block::new(bytes)).transpose().map_err(EngineError::from);
        let memory = [take(lacks[0])?, take(lacks[1])?];
        self.ask(|reply| Command::Update(path, memory, reply))
    }

    /// Stops it. Packets in flight are lost.
    ///
    /// # Errors
    /// [`RunningError::Ended`].
    pub fn stop(mut self) -> Result<Status, RunningError> {
        let status = self.ask(Command::Stop).map(|status| *status);
        self.join();
        status
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, RunningError> {
        let (reply, answer) = channel();
        self.commands.send(command(reply)).map_err(|_| RunningError::Ended)?;
        self.waker.wake();
        answer.recv_timeout(PATIENCE).map_err(|_| RunningError::Ended)
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let (reply, _) = channel();
            if self.commands.send(Command::Stop(reply)).is_ok() {
                self.waker.wake();
            }
            self.join();
        }
    }
}

fn prepare(schedule: &Schedule, namespace: Option<&NetNamespace>) -> Result<(), RunningError> {
    if let Some(namespace) = namespace {
        namespace.enter_for_good()?;
    }
    if !schedule.cpus.is_empty() {
        schedule::pin_to(&schedule.cpus)?;
    }
    match schedule.realtime {
        Some(priority) => schedule::set_fifo(priority)?,
        None => {
            // Where it may not, lateness shows it.
            schedule::be_prompt();
        }
    }
    // A thread of the real-time class has none anyway.
    schedule::set_least_timer_slack()?;
    Ok(())
}
