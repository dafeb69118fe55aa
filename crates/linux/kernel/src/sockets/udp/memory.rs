//! A socket's buffers: what was asked, what the kernel gave, what is in use, how many packets did not fit.

use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

use super::option::{read_words, set_int};

/// A socket buffer as asked and as given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferGrant {
    /// What was asked for; `None` where the kernel's default (`net.core.{r,w}mem_default`) was left.
    pub asked_bytes: Option<usize>,
    /// What the kernel says it gave. It doubles what is asked, as its own bookkeeping counts against it (socket(7)).
    pub given_bytes: usize,
    /// The limit `net.core.{r,w}mem_max` was passed, which takes `CAP_NET_ADMIN`.
    pub forced: bool,
}

impl BufferGrant {
    /// Whether the kernel gave all that was asked for (twice that, see [`BufferGrant::given_bytes`]).
    pub fn is_whole(&self) -> bool {
        self.asked_bytes.is_none_or(|asked| self.given_bytes >= asked.saturating_mul(2))
    }

    /// Asks for `bytes`: by `force`, past the system's limit, if that is allowed, else by `plain`.
    pub(crate) fn ask(socket: BorrowedFd<'_>, bytes: Option<usize>, force: c_int, plain: c_int) -> io::Result<Self> {
        let mut forced = false;
        if let Some(bytes) = bytes {
            // The kernel doubles it in an int.
            let value = c_int::try_from(bytes).unwrap_or(c_int::MAX).min(c_int::MAX / 2);
            forced = set_int(socket, libc::SOL_SOCKET, force, value).is_ok();
            if !forced {
                set_int(socket, libc::SOL_SOCKET, plain, value)?;
            }
        }
        let mut given = [0_u32];
        read_words(socket, libc::SOL_SOCKET, plain, &mut given)?;
        Ok(Self { asked_bytes: bytes, given_bytes: given[0] as usize, forced })
    }
}

/// A socket's memory at one moment (`SO_MEMINFO`, Linux 4.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketMemory {
    /// Memory of packets that wait to be read, their bookkeeping included. UDP gives it back late: up to a quarter of the
    /// buffer may show though nothing waits (`udp_rmem_release`).
    pub receive_used_bytes: u32,
    /// The receive buffer.
    pub receive_buffer_bytes: u32,
    /// Memory of packets that the link has not sent yet.
    pub send_used_bytes: u32,
    /// The send buffer.
    pub send_buffer_bytes: u32,
    /// Packets that this socket dropped since it was opened: buffer full, bad checksum, filtered. It counts at once, tail loss
    /// too. With `UDP_GRO` a super-packet counts once; without, each datagram. Wraps at 2³².
    pub drops: u32,
}

impl SocketMemory {
    /// # Errors
    /// Before Linux 4.12.
    pub(super) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut words = [0_u32; 16];
        let count = read_words(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut words)?;
        Self::parse(words.get(..count).unwrap_or(&words))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("SO_MEMINFO has {count} values")))
    }

    fn parse(words: &[u32]) -> Option<Self> {
        let word = |index: c_int| words.get(index as usize).copied();
        Some(Self {
            receive_used_bytes: word(libc::SK_MEMINFO_RMEM_ALLOC)?,
            receive_buffer_bytes: word(libc::SK_MEMINFO_RCVBUF)?,
            send_used_bytes: word(libc::SK_MEMINFO_WMEM_ALLOC)?,
            send_buffer_bytes: word(libc::SK_MEMINFO_SNDBUF)?,
            drops: word(libc::SK_MEMINFO_DROPS)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_values_are_named() {
        let words: Vec<u32> = (100..109).collect();
        let memory = SocketMemory::parse(&words).unwrap();
        assert_eq!((memory.receive_used_bytes, memory.receive_buffer_bytes), (100, 101));
        assert_eq!((memory.send_used_bytes, memory.send_buffer_bytes, memory.drops), (102, 103, 108));
        assert_eq!(SocketMemory::parse(&words[..8]), None);
    }

    #[test]
    fn a_grant_is_whole_when_doubled() {
        let grant = |asked_bytes, given_bytes| BufferGrant { asked_bytes, given_bytes, forced: false };
        assert!(grant(None, 212_992).is_whole());
        assert!(grant(Some(100_000), 200_000).is_whole());
        assert!(!grant(Some(1 << 20), 425_984).is_whole());
    }
}
