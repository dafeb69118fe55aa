//! The sender's interface, whose other end is this program, and what the sender's kernel says of its flow.
//!
//! A TUN device and not a veth: a packet that is written here has gone through TCP, and what TCP sends on it lies ready to be
//! read, when the call returns (`tun_get_user`, `tun_net_xmit`). So sender and receiver run in lockstep, in one thread.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;

/// `TUNSETIFF` (`linux/if_tun.h`): `_IOW('T', 202, int)`.
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;

/// A TUN device of the calling thread's network namespace. It ends with this.
#[derive(Debug)]
pub(crate) struct Tun(File);

impl Tun {
    /// A new one, named `name`.
    ///
    /// # Errors
    /// Without `CAP_NET_ADMIN`; where the kernel has no TUN.
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        // SAFETY: all fields are plain numbers, for which zeroes are valid.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        assert!(name.len() < request.ifr_name.len());
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request lives through the call, which reads and writes nothing else.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, &raw mut request) };
        if result == 0 { Ok(Self(file)) } else { Err(io::Error::last_os_error()) }
    }

    /// The next packet that the kernel sent, if there is one.
    pub(crate) fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match (&self.0).read(buffer) {
            Ok(bytes) => Ok(Some(&buffer[..bytes])),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has the kernel receive `packet`.
    pub(crate) fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.0).write_all(packet)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `TCP_INFO` of a socket.
pub(crate) fn tcp_info(socket: impl AsFd) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which `info` has; all its fields are numbers, so zeroes stand for what the
    // kernel does not write.
    unsafe {
        let fd = socket.as_fd().as_raw_fd();
        match libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut bytes) {
            0 => Ok(info.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
