//! Errors that ICMP causes at a socket, and its error queue (`IP_RECVERR`, ip(7)).
//!
//! An ICMP message about a datagram that a socket sent leaves an error at the socket. The next call gets it, whatever that call wants, and does
//! nothing else. With `IP_RECVERR` the message lies in the error queue as well, takes some of the receive buffer there, and whoever takes it out
//! leaves the error of the next one at the socket. Who knows addresses and ports can forge such messages from anywhere.
//!
//! Source: ip(7), `net/core/skbuff.c` (`sock_dequeue_err_skb`), `icmp_err_convert` of `net/ipv4/icmp.c`, `icmpv6_err_convert` of
//! `net/ipv6/icmp.c`.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{RecvFlags, recv};

/// How often a call is tried again that an error of ICMP has ended: more messages may come meanwhile, but hardly one for each try.
pub(super) const TRIES_MOST: u32 = 10;
/// Messages that are taken out at once at most, so that it ends however many come.
const DRAINED_MOST: usize = 4096;

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

/// Takes messages out of the error queue of a socket. Its copies are of one socket.
#[derive(Debug, Clone, Default)]
pub(super) struct ErrorQueue {
    taken: Arc<AtomicU64>,
}

impl ErrorQueue {
    /// Takes out what the error queue of `socket` has. Whether it had anything.
    pub(super) fn drain(&self, socket: BorrowedFd<'_>) -> bool {
        let mut buffer = [0_u8; 1];
        let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
        let count = (0..DRAINED_MOST).take_while(|_| recv(socket, &mut buffer[..], flags).is_ok()).count();
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        count > 0
    }

    /// Messages that were taken out so far, in all threads.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether a send of `socket` that `error` has ended may go with the next try. Empties the queue, or the next try would meet the next message.
    /// `is_super`: what was sent is a super-packet. If it is too long the kernel has made it already, and each try would be a drop.
    pub(super) fn may_pass(&self, socket: BorrowedFd<'_>, error: &io::Error, is_super: bool) -> bool {
        let is_too_long = error.raw_os_error() == Some(libc::EMSGSIZE);
        may_be_of_icmp(error) && (self.drain(socket) || !(is_super && is_too_long))
    }
}
