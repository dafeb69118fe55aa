//! Reading `TCP_INFO` of a socket. What the bytes mean is not known here: they are the same that sock_diag(7) gives of sockets that
//! one does not have (`INET_DIAG_INFO`).
//!
//! Source: tcp(7), `tcp_get_info` in `net/ipv4/tcp.c`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Reads `TCP_INFO` of `socket` into `into`; gives how many bytes the kernel wrote, as many as it knows and there is room for.
///
/// # Errors
/// What getsockopt(2) says.
pub fn read(socket: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(into.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the kernel writes at most `length` bytes into `into`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            into.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok((length as usize).min(into.len())) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn as_much_as_there_is_room_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut bytes = [0xff; 512];
        let all = read(&stream, &mut bytes).unwrap();
        // Linux 4.10 wrote 192; the first byte is the state, 1 of a connection.
        assert!((192..512).contains(&all), "{all}");
        assert_eq!((bytes[0], bytes[all]), (1, 0xff));
        assert_eq!(read(&stream, &mut bytes[..104]).unwrap(), 104);
        assert!(read(UdpSocket::bind("127.0.0.1:0").unwrap(), &mut bytes).is_err());
    }
}
