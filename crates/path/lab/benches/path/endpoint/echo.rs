//! ICMP echo as ping(8) measures it: the clock before the send, the kernel's stamp of the reply. ping itself prints round
//! trips of 10 ms and more to a tenth of a millisecond only.

use std::io::IoSliceMut;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use longhaul_kernel::clock::{monotonic, realtime};
use longhaul_kernel::wait::sleep_until;
use longhaul_units::Nanos;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recvmsg, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::child::ready;

/// ICMP echo request (RFC 792): type, code, checksum, identifier, sequence number; the kernel fills in checksum and
/// identifier. The payload is as long as ping's.
const REQUEST_BYTES: usize = 8 + 56;
const PATIENCE: Duration = Duration::from_secs(2);

/// Round trips.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Echoes {
    /// Of each reply, until the kernel had it.
    pub(crate) to_kernel_ns: Vec<u64>,
    /// Of each reply, until the program had it.
    pub(crate) to_program_ns: Vec<u64>,
    pub(crate) lost: u64,
}

/// Sends `count` requests, one each `interval_us`, and waits for the reply of each.
pub(crate) fn measure(to: SocketAddrV4, count: u16, interval_us: u64) -> Result<Echoes> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::Icmp)?;
    // A ping socket takes what a UDP socket takes.
    let socket = UdpSocket::from(socket);
    socket.connect(SocketAddrV4::new(*to.ip(), 0))?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    ready()?;

    let mut echoes = Echoes::default();
    let mut next = monotonic();
    let mut control = nix::cmsg_space!(TimeSpec);
    for sequence in 0..count {
        next = next.max(monotonic()) + Nanos::from_micros(interval_us);
        sleep_until(next);
        let mut request = [0; REQUEST_BYTES];
        request[0] = 8;
        request[6..8].copy_from_slice(&sequence.to_be_bytes());
        let sent_ns = realtime().0;
        socket.send(&request)?;
        loop {
            let mut buffer = [0; 2 * REQUEST_BYTES];
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let message =
                match recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty()) {
                    Ok(message) => message,
                    Err(Errno::EINTR) => continue,
                    Err(Errno::EAGAIN) => {
                        echoes.lost += 1;
                        break;
                    }
                    Err(error) => return Err(error.into()),
                };
            let received_ns = realtime().0;
            let stamp = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::ScmTimestampns(time) => {
                    Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
                }
                _ => None,
            });
            // A reply that comes after its time is not this one's.
            if buffer[6..8] != sequence.to_be_bytes() {
                continue;
            }
            let stamp_ns = stamp.ok_or("a reply without receive stamp")?;
            echoes.to_kernel_ns.push(stamp_ns.saturating_sub(sent_ns));
            echoes.to_program_ns.push(received_ns.saturating_sub(sent_ns));
            break;
        }
    }
    Ok(echoes)
}
