//! Waiting until an instant, or until something happens, whichever comes first.
//!
//! Instants are on `CLOCK_MONOTONIC`. The kernel wakes a thread up to its timer slack late
//! ([`crate::schedule::set_least_timer_slack`]). Source: clock_nanosleep(2), ppoll(2), epoll_pwait2(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use longhaul_units::Nanos;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{ClockId, clock_nanosleep_absolute};

use crate::clock::{monotonic, to_timespec};

/// Events that one [`Poller::wait`] takes at most; the others come with the next.
const EVENTS_MOST: usize = 16;

/// Sleeps until `deadline` on `CLOCK_MONOTONIC`; returns at once where it has passed. Signals do not cut it short.
pub fn sleep_until(deadline: Nanos) {
    // It fails with EINTR only: the deadline is a valid instant.
    while clock_nanosleep_absolute(ClockId::Monotonic, &to_timespec(deadline)).is_err() {}
}

/// Waits until `fd` is readable (or in error) or `deadline` has passed, `None` waiting without end. Returns whether it is
/// readable. A signal may end it early, with `false`.
///
/// # Errors
/// Where the kernel lacks memory.
pub fn readable_until(fd: impl AsFd, deadline: Option<Nanos>) -> io::Result<bool> {
    one_until(fd.as_fd(), PollFlags::IN, deadline)
}

/// As [`readable_until`], for room to write.
///
/// # Errors
/// Where the kernel lacks memory.
pub fn writable_until(fd: impl AsFd, deadline: Option<Nanos>) -> io::Result<bool> {
    one_until(fd.as_fd(), PollFlags::OUT, deadline)
}

fn one_until(fd: BorrowedFd<'_>, interest: PollFlags, deadline: Option<Nanos>) -> io::Result<bool> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, interest)], timeout(deadline).as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What remains until `deadline`.
fn timeout(deadline: Option<Nanos>) -> Option<Timespec> {
    deadline.map(|deadline| to_timespec(deadline.saturating_sub(monotonic())))
}

/// Waits for several descriptors at a time (epoll, level-triggered).
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// An empty one.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Watches `fd` for something to read, and names it `key`, until it is removed or its last duplicate is closed.
    ///
    /// # Errors
    /// Where it is watched already, or cannot be (a plain file).
    pub fn add(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(key), EventFlags::IN)?)
    }

    /// Watches `fd` no more.
    ///
    /// # Errors
    /// Where it is not watched.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until a descriptor is ready or `deadline` has passed, `None` waiting without end. Returns the keys of the descriptors
    /// that have data, ended or are in error: none after the deadline, or early after a signal. A `deadline` of zero looks without waiting.
    ///
    /// # Errors
    /// Does not fail in practice.
    pub fn wait(&self, deadline: Option<Nanos>) -> io::Result<impl ExactSizeIterator<Item = u64> + use<>> {
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS_MOST];
        let count = match epoll::wait(&self.epoll, &mut events[..], timeout(deadline).as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(events.into_iter().take(count).map(|event| event.data.u64()))
    }
}

impl AsFd for Poller {
    /// Readable when one of its descriptors is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn never_returns_early() {
        let (here, _there) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&here, 1).unwrap();
        for span in [Nanos(0), Nanos(1_500), Nanos::from_micros(700), Nanos::from_millis(2)] {
            let deadline = monotonic() + span;
            sleep_until(deadline);
            assert!(monotonic() >= deadline);
            let deadline = monotonic() + span;
            assert!(!readable_until(&here, Some(deadline)).unwrap());
            assert!(monotonic() >= deadline);
            let deadline = monotonic() + span;
            assert_eq!(poller.wait(Some(deadline)).unwrap().len(), 0);
            assert!(monotonic() >= deadline);
        }
    }

    #[test]
    fn says_which_descriptor_is_ready() {
        let (first, _first_far) = UnixStream::pair().unwrap();
        let (second, mut second_far) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&first, 1).unwrap();
        poller.add(&second, 2).unwrap();
        second_far.write_all(b"x").unwrap();
        assert_eq!(poller.wait(None).unwrap().collect::<Vec<_>>(), [2]);
        assert!(readable_until(&second, None).unwrap() && writable_until(&first, None).unwrap());
        poller.remove(&second).unwrap();
        assert_eq!(poller.wait(Some(monotonic())).unwrap().len(), 0);
    }
}
