//! Being asked to stop (`SIGINT`, `SIGTERM`, `SIGHUP`) and being nudged (`SIGUSR1`), as descriptors to wait for.
//!
//! Handlers that write to an eventfd, not signalfd(2): that needs the signals blocked in every thread, and programs started
//! by longhaul would inherit the block. Source: signal-safety(7), eventfd(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use longhaul_units::Nanos;
use rustix::event::{EventfdFlags, eventfd};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::low_level::{emulate_default_handler, register};

use crate::clock::monotonic;

/// The signals that stop.
const STOP_SIGNALS: [(i32, StopSignal); 3] =
    [(SIGINT, StopSignal::Interrupt), (SIGTERM, StopSignal::Terminate), (SIGHUP, StopSignal::HangUp)];

/// Who asks to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// `SIGINT`: Ctrl-C.
    Interrupt,
    /// `SIGTERM`: kill, a service manager.
    Terminate,
    /// `SIGHUP`: the terminal went away.
    HangUp,
}

/// Who does not end this long after the first signal, and after a second one, is ended by a third.
const DEAF: Nanos = Nanos::from_secs(1);

/// One kind of wish: a descriptor that becomes readable with it, and how often it came.
struct Bell {
    fd: OnceLock<OwnedFd>,
    /// Whether the signals have their handlers.
    installed: Mutex<bool>,
    count: AtomicU32,
    /// The signal that came first; 0: none.
    first: AtomicI32,
    /// When, by `CLOCK_MONOTONIC`.
    first_ns: AtomicU64,
    /// Whether signals do again what they do without handlers.
    is_released: AtomicBool,
}

impl Bell {
    const fn new() -> Self {
        Self {
            fd: OnceLock::new(),
            installed: Mutex::new(false),
            count: AtomicU32::new(0),
            first: AtomicI32::new(0),
            first_ns: AtomicU64::new(0),
            is_released: AtomicBool::new(false),
        }
    }

    fn install(&'static self, signals: &[i32]) -> io::Result<BorrowedFd<'static>> {
        let mut installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        let fd = match self.fd.get() {
            Some(fd) => fd,
            None => {
                let fresh = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                self.fd.get_or_init(|| fresh)
            }
        };
        if !*installed {
            for &signal in signals {
                // SAFETY: `ring` is async-signal-safe: atomics, clock_gettime(2), a write(2) that leaves errno alone, and what
                // signal-hook says is.
                unsafe { register(signal, move || self.ring(signal)) }?;
            }
            *installed = true;
        }
        Ok(fd.as_fd())
    }

    /// Only what signal-safety(7) allows.
    fn ring(&self, signal: i32) {
        let now_ns = monotonic().0;
        if self.first.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.first_ns.store(now_ns, Ordering::Relaxed);
        }
        let before = self.count.fetch_add(1, Ordering::Release);
        let is_deaf = before >= 2 && now_ns.saturating_sub(self.first_ns.load(Ordering::Relaxed)) > DEAF.0;
        if self.is_released.load(Ordering::Relaxed) || is_deaf {
            // Ends the process as the signal does that nobody handles.
            let _ = emulate_default_handler(signal);
        }
        if let Some(fd) = self.fd.get() {
            let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
        }
    }
}

static STOP: Bell = Bell::new();
static NUDGE: Bell = Bell::new();

/// How many signals that stop have come; 0 where [`Stop`] is not installed.
pub(crate) fn stops() -> u32 {
    STOP.count.load(Ordering::Acquire)
}

/// Tells that the process is asked to stop. Programs that it starts get the default handling again (execve(2)).
#[derive(Debug, Clone, Copy)]
pub struct Stop(BorrowedFd<'static>);

impl Stop {
    /// From now on the three signals no longer end the process; but a third one does a second after the first, as then the program
    /// waits where it does not look for them. Calling it again gives the same.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn install() -> io::Result<Self> {
        let signals = STOP_SIGNALS.map(|(number, _)| number);
        Ok(Self(STOP.install(&signals)?))
    }

    /// From now on the three signals end the process again: what is left to do may wait for others, such as a pipe that nobody reads.
    pub fn release() {
        STOP.is_released.store(true, Ordering::Relaxed);
    }

    /// The first signal that came, `None` so far. Costs one atomic read.
    pub fn requested(&self) -> Option<StopSignal> {
        let first = STOP.first.load(Ordering::Acquire);
        STOP_SIGNALS.iter().find(|(number, _)| *number == first).map(|(_, signal)| *signal)
    }

    /// How many came: who asks twice means at once.
    pub fn count(&self) -> u32 {
        stops()
    }
}

impl AsFd for Stop {
    /// Readable, and stays so, once a signal came. Do not read from it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0
    }
}

/// From now on Ctrl-C and Ctrl-\\ (`SIGINT`, `SIGQUIT`) do nothing to this process: they are for the program that it has started, which is
/// in the terminal's foreground with it and has the default handling (execve(2)).
///
/// # Errors
/// Does not fail in practice.
pub fn leave_the_keyboard_to_programs() -> io::Result<()> {
    for signal in [SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// Tells that somebody sent `SIGUSR1`.
#[derive(Debug, Clone, Copy)]
pub struct Nudge(BorrowedFd<'static>);

impl Nudge {
    /// From now on `SIGUSR1` no longer ends the process.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn install() -> io::Result<Self> {
        Ok(Self(NUDGE.install(&[SIGUSR1])?))
    }

    /// Whether a signal came since the last call.
    pub fn take(&self) -> bool {
        rustix::io::read(self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Nudge {
    /// Readable until [`Nudge::take`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::raise;

    use super::*;
    use crate::wait::readable_until;

    #[test]
    fn signals_make_their_descriptor_readable() {
        let (stop, nudge) = (Stop::install().unwrap(), Nudge::install().unwrap());
        assert_eq!((stop.requested(), nudge.take()), (None, false));
        raise(SIGUSR1).unwrap();
        assert!(readable_until(nudge, None).unwrap());
        assert!(nudge.take() && !nudge.take());
        for signal in [SIGTERM, SIGINT] {
            raise(signal).unwrap();
        }
        assert!(readable_until(stop, None).unwrap());
        assert_eq!((stop.requested(), stop.count()), (Some(StopSignal::Terminate), 2));
    }
}
