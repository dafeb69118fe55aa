//! Socket options, plain C values in and out.

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option that takes an `int`.
pub(crate) fn set_int(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_bytes(socket, level, name, &value.to_ne_bytes())
}

/// Gives the packets of `socket` to or from `address` this TOS byte (IPv4, also on a socket of both families) or traffic class (IPv6).
pub(crate) fn set_traffic_class(socket: BorrowedFd<'_>, address: IpAddr, byte: u8) -> io::Result<()> {
    let (level, name) = if address.to_canonical().is_ipv4() {
        (libc::SOL_IP, libc::IP_TOS)
    } else {
        (libc::SOL_IPV6, libc::IPV6_TCLASS)
    };
    set_int(socket, level, name, byte.into())
}

/// Sets an option to the C value that `bytes` are.
pub(crate) fn set_bytes(socket: BorrowedFd<'_>, level: c_int, name: c_int, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `bytes.len()` bytes out of `bytes`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            bytes.as_ptr().cast(),
            libc::socklen_t::try_from(bytes.len()).unwrap_or(0),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option made of `u32` into `words`; gives how many of them the kernel wrote.
pub(crate) fn read_words(socket: BorrowedFd<'_>, level: c_int, name: c_int, words: &mut [u32]) -> io::Result<usize> {
    let mut length = size_of_val(words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `words`.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, words.as_mut_ptr().cast(), &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(length as usize / size_of::<u32>()) }
}
