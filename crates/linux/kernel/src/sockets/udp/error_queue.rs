//! Errors that ICMP causes at a socket, and its error queue (`IP_RECVERR`, ip(7)).
//!
//! An ICMP message about a datagram that a socket sent leaves an error at the socket. The next call gets it, whatever that call wants, and does
//! nothing else. With `IP_RECVERR` the message lies in the error queue as well, takes some of the receive buffer there, and whoever takes it out
//! leaves the error of the next one at the socket. Who knows addresses and ports can forge such messages from anywhere.
//!
//! sendmmsg(2) does not say which error ended it behind its first datagram: one of ICMP, before the datagram was tried, or one of the way out,
//! which dropped it. Messages tell the two apart, whoever takes them out: two threads do, one that sends and one that receives.
//!
//! Source: ip(7), `net/core/skbuff.c` (`sock_dequeue_err_skb`), `icmp_err_convert` of `net/ipv4/icmp.c`, `icmpv6_err_convert` of
//! `net/ipv6/icmp.c`.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_units::Nanos;
use rustix::net::{RecvFlags, recv};

use crate::clock::monotonic;

/// How often a call is tried again that an error of ICMP may have ended, and no message says so.
pub(super) const TRIES_MOST: u32 = 10;
/// For how long it is tried again beyond that while messages say so: each try, a few microseconds long, would have to meet one more. So it ends
/// whatever comes, and a paced sender is hardly late.
const TOLD_FOR: Nanos = Nanos::from_millis(1);
/// Messages that are taken out at once at most, so that it ends however many come.
const DRAINED_MOST: usize = 4096;
/// For how long a message explains an error. The kernel leaves the error at the socket after it has put the message into the queue, and leaves
/// it there also where the queue has no room for the message. What the way out drops in this time may be sent twice
/// ([`UdpSender::send_singly`](super::UdpSender::send_singly)).
const EXPLAINS: Nanos = Nanos::from_millis(100);

/// Whether an ICMP message about an earlier datagram can have caused `error`. This host has most of these errors for reasons of its own, too:
/// those are met by each try.
pub(super) fn may_be_of_icmp(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EACCES
                | libc::ECONNREFUSED
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::EMSGSIZE
                | libc::ENETUNREACH
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EPROTO
        )
    )
}

/// The tries of one send.
#[derive(Debug, Default)]
pub(super) struct Tries {
    all: u32,
    /// Those in a row that no message explains.
    unexplained: u32,
    /// When the first one had ended, on `CLOCK_MONOTONIC`.
    began: Option<Nanos>,
}

impl Tries {
    /// Whether there may be one more, behind one that has ended `now` and whose error is `explained` by a message.
    fn one_more(&mut self, now: Nanos, explained: bool) -> bool {
        let began = *self.began.get_or_insert(now);
        self.all += 1;
        self.unexplained = if explained { 0 } else { self.unexplained + 1 };
        // Some in any case: this thread may not have run meanwhile.
        let in_time = self.all <= TRIES_MOST || now.saturating_sub(began) < TOLD_FOR;
        in_time && self.unexplained <= TRIES_MOST
    }
}

/// Takes messages out of the error queue of a socket. Its copies are of one socket.
#[derive(Debug, Clone, Default)]
pub(super) struct ErrorQueue {
    taken: Arc<Mutex<Taken>>,
}

/// What was taken out, in all threads.
#[derive(Debug, Default)]
struct Taken {
    messages: u64,
    last: Option<Nanos>,
}

impl ErrorQueue {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Each of its steps is whole.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out what the error queue of `socket` has. Whether it had anything. Behind this, what another thread has taken out is counted, too.
    pub(super) fn drain(&self, socket: BorrowedFd<'_>) -> bool {
        (0..DRAINED_MOST).take_while(|_| self.take(socket)).count() > 0
    }

    /// Takes one message out. Whether there was one. The lock is held until it is counted and no longer: two threads that empty the queue wait for
    /// one message of each other, not for thousands.
    fn take(&self, socket: BorrowedFd<'_>) -> bool {
        let mut taken = self.lock();
        let mut buffer = [0_u8; 1];
        let is_there = recv(socket, &mut buffer[..], RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT).is_ok();
        if is_there {
            taken.messages += 1;
            taken.last = Some(monotonic());
        }
        is_there
    }

    /// Messages that were taken out so far, in all threads.
    pub(super) fn taken(&self) -> u64 {
        self.lock().messages
    }

    /// Whether a message that was taken out may be of the error that a send has met just now. To be asked behind [`Self::drain`].
    pub(super) fn explains(&self) -> bool {
        self.lock().last.is_some_and(|last| monotonic().saturating_sub(last) < EXPLAINS)
    }

    /// Whether a send of `socket` that `error` has ended may go with the next try. Empties the queue, or the next try would meet the next message.
    /// `is_super`: what was sent is a super-packet. If it is too long the kernel has made it already, and each try would be a drop.
    pub(super) fn may_pass(
        &self,
        socket: BorrowedFd<'_>,
        error: &io::Error,
        is_super: bool,
        tries: &mut Tries,
    ) -> bool {
        let is_too_long = error.raw_os_error() == Some(libc::EMSGSIZE);
        may_be_of_icmp(error)
            && (self.drain(socket) || !(is_super && is_too_long))
            // The kernel puts a message of its own into the queue with each datagram that is too long.
            && tries.one_more(monotonic(), self.explains() && !is_too_long)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::{SenderOptions, UdpSender};
    use super::*;
    use crate::wait::readable_until;

    /// Else a sender takes a datagram for dropped whose turn had not come.
    #[test]
    fn a_message_that_the_other_thread_took_out_explains_an_error_as_well() {
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = UdpSender::connect(None, closed, &SenderOptions::default()).unwrap();
        let sender = ErrorQueue::default();
        let receiver = sender.clone();
        assert!(!sender.drain(socket.as_fd()) && !sender.explains());
        socket.send(b"nobody", true).unwrap();
        assert!(readable_until(&socket, Some(monotonic() + Nanos::from_secs(5))).unwrap());
        assert!(receiver.drain(socket.as_fd()));
        assert!(!sender.drain(socket.as_fd()) && sender.explains());
        assert_eq!(sender.taken(), 1);
        let too_long = io::Error::from_raw_os_error(libc::EMSGSIZE);
        let mut tries = Tries::default();
        assert!(!sender.may_pass(socket.as_fd(), &too_long, true, &mut tries), "a super-packet that is too long");
        assert!(sender.may_pass(socket.as_fd(), &too_long, false, &mut tries));
    }

    #[test]
    fn messages_allow_more_tries_and_none_goes_on_for_ever() {
        let count = |explained: bool, each_ns: u64| {
            let mut tries = Tries::default();
            (0..100_000_u64).take_while(|n| tries.one_more(Nanos(n * each_ns), explained)).count()
        };
        let most = TRIES_MOST as usize;
        assert_eq!((count(false, 1_000), count(true, 1_000)), (most, 1_000), "1 ms");
        assert_eq!(count(true, 10_000_000), most, "of a thread that hardly runs");
        let mut tries = Tries::default();
        assert!((0..1_000).all(|n| tries.one_more(Nanos(n), n % 10 == 0)), "one of ten is explained");
    }
}
