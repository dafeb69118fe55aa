//! Being asked to stop (`SIGINT`, `SIGTERM`, `SIGHUP`) and being nudged (`SIGUSR1`), as descriptors to wait for.
//!
//! Handlers that write to an eventfd, not signalfd(2): that needs the signals blocked in every thread, and programs started
//! by longhaul would inherit the block. Source: signal-safety(7), eventfd(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// The signals that stop, in the order of their counters.
const STOP_SIGNALS: [(i32, StopSignal); 3] =
    [(libc::SIGINT, StopSignal::Interrupt), (libc::SIGTERM, StopSignal::Terminate), (libc::SIGHUP, StopSignal::HangUp)];

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

/// One kind of wish: a descriptor that becomes readable with it, and how often it came.
struct Bell {
    /// −1 until installed.
    fd: AtomicI32,
    count: AtomicU32,
    /// The signal that came first.
    first: AtomicI32,
    owner: OnceLock<OwnedFd>,
}

impl Bell {
    const fn new() -> Self {
        Self { fd: AtomicI32::new(-1), count: AtomicU32::new(0), first: AtomicI32::new(0), owner: OnceLock::new() }
    }

    fn install(&'static self, signals: &[i32]) -> io::Result<&'static OwnedFd> {
        let fd = match self.owner.get() {
            Some(fd) => fd,
            None => {
                let fresh = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                self.owner.get_or_init(|| fresh)
            }
        };
        self.fd.store(fd.as_raw_fd(), Ordering::Release);
        for signal in signals {
            // SAFETY: sigaction is integers and a pointer, for which zero is a value.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handle as extern "C" fn(i32) as usize;
            action.sa_flags = libc::SA_RESTART;
            // SAFETY: `handle` is async-signal-safe: atomics and write(2). It keeps errno.
            if unsafe { libc::sigaction(*signal, &action, std::ptr::null_mut()) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(fd)
    }

    /// Only what signal-safety(7) allows.
    fn ring(&self, signal: i32) {
        let _ = self.first.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes out of a live array; a bad descriptor (−1) only fails.
        unsafe { libc::write(self.fd.load(Ordering::Acquire), one.as_ptr().cast(), one.len()) };
    }
}

static STOP: Bell = Bell::new();
static NUDGE: Bell = Bell::new();

extern "C" fn handle(signal: i32) {
    // SAFETY: errno is this thread's own; what the signal interrupted must find it unchanged.
    let errno = unsafe { *libc::__errno_location() };
    if signal == libc::SIGUSR1 {
        NUDGE.ring(signal)
    } else {
        STOP.ring(signal)
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Tells that the process is asked to stop. Programs that it starts get the default handling again (execve(2)).
#[derive(Debug, Clone, Copy)]
pub struct Stop(BorrowedFd<'static>);

impl Stop {
    /// From now on the three signals no longer end the process. Calling it again gives the same.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn install() -> io::Result<Self> {
        let signals = STOP_SIGNALS.map(|(number, _)| number);
        Ok(Self(STOP.install(&signals)?.as_fd()))
    }

    /// The first signal that came, `None` so far. Costs one atomic read.
    pub fn requested(&self) -> Option<StopSignal> {
        let first = STOP.first.load(Ordering::Acquire);
        STOP_SIGNALS.iter().find(|(number, _)| *number == first).map(|(_, signal)| *signal)
    }

    /// How many came: who asks twice means at once.
    pub fn count(&self) -> u32 {
        STOP.count.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    /// Readable, and stays so, once a signal came. Do not read from it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0
    }
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
        Ok(Self(NUDGE.install(&[libc::SIGUSR1])?.as_fd()))
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
    use super::*;
    use crate::wait::readable_until;

    #[test]
    fn signals_make_their_descriptor_readable() {
        let (stop, nudge) = (Stop::install().unwrap(), Nudge::install().unwrap());
        assert_eq!((stop.requested(), nudge.take()), (None, false));
        // SAFETY: our own thread, handlers are installed.
        unsafe { libc::raise(libc::SIGUSR1) };
        assert!(readable_until(nudge, None).unwrap());
        assert!(nudge.take() && !nudge.take());
        for signal in [libc::SIGTERM, libc::SIGINT] {
            // SAFETY: as above.
            unsafe { libc::raise(signal) };
        }
        assert!(readable_until(stop, None).unwrap());
        assert_eq!((stop.requested(), stop.count()), (Some(StopSignal::Terminate), 2));
    }
}
