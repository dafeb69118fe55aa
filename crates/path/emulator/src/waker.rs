//! Waking the emulating thread: an eventfd that is readable when a command waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

#[derive(Debug)]
struct Shared {
    fd: OwnedFd,
    /// What a thread that does not sleep looks at, as it costs no system call.
    rung: AtomicBool,
}

/// The side that waits.
#[derive(Debug)]
pub struct WakeSource(Arc<Shared>);

/// The side that wakes.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Shared>);

/// A waker and what it wakes.
///
/// # Errors
/// Where the process has no descriptor left.
pub fn waker() -> io::Result<(Waker, WakeSource)> {
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let shared = Arc::new(Shared { fd, rung: AtomicBool::new(false) });
    Ok((Waker(Arc::clone(&shared)), WakeSource(shared)))
}

impl Waker {
    /// Wakes.
    pub fn wake(&self) {
        // In this order: whoever is woken by the descriptor must find the ring, or it would be woken by it for nothing until
        // this thread has a CPU again.
        self.0.rung.store(true, Ordering::Release);
        // It can only fail with 2⁶⁴ wakes outstanding.
        let _ = write(&self.0.fd, &1u64.to_ne_bytes());
    }
}

impl WakeSource {
    /// Whether it was woken since last asked.
    pub fn take(&self) -> bool {
        self.0.rung.swap(false, Ordering::Acquire)
    }

    /// Makes the descriptor, which was readable, wait for the next wake. [`WakeSource::take`] is to be asked after this.
    pub fn clear(&self) {
        let _ = read(&self.0.fd, &mut [0; 8]);
    }
}

impl AsFd for WakeSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}
