//! Receiving many datagrams with what the kernel knows of them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use longhaul_units::Nanos;
use rustix::net::{SendFlags, bind, connect, sendto};

use super::error_queue::{ErrorQueue, TRIES_MOST, may_be_of_icmp};
use super::option::set_int;
use super::socket::{local_address, open};
use super::{BufferGrant, ReceiveSlots, SocketMemory, TimestampMode, UdpOpenError, UdpReceiveError, UdpSendError};
use crate::clock::{monotonic, realtime};
use crate::wait::readable_until;

/// `BPF_A` of `<linux/bpf_common.h>`: a classic program returns its accumulator.
const BPF_RETURN_A: u32 = 0x10;

/// How a [`UdpReceiver`] is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverOptions {
    /// The receive buffer to ask for; `None` leaves the system's default.
    pub receive_buffer_bytes: Option<usize>,
    /// Take super-packets whole (`UDP_GRO`). Off: each datagram comes by itself.
    pub gro: bool,
    /// Where to stamp.
    pub timestamps: TimestampMode,
    /// Have each packet's TOS byte or traffic class told ([`SuperPacket::traffic_class`](super::SuperPacket::traffic_class)).
    pub traffic_class: bool,
    /// Let other sockets of this user have the same address and port (`SO_REUSEPORT`); [`UdpReceiver::share_by_byte`] says which one
    /// gets what.
    pub shared_port: bool,
}

impl Default for ReceiverOptions {
    /// Super-packets whole, kernel stamps, the system's buffer.
    fn default() -> Self {
        Self {
            receive_buffer_bytes: None,
            gro: true,
            timestamps: TimestampMode::default(),
            traffic_class: false,
            shared_port: false,
        }
    }
}

/// A bound UDP socket, for receiving. It can be connected later, and answer.
#[derive(Debug)]
pub struct UdpReceiver {
    pub(super) fd: OwnedFd,
    local: SocketAddr,
    receive_buffer: BufferGrant,
    pub(super) errors: ErrorQueue,
}

impl UdpReceiver {
    /// Opens a socket in the calling thread's network namespace, bound to `local`; port 0 has the kernel choose one.
    ///
    /// # Errors
    /// Any [`UdpOpenError`].
    pub fn bind(local: SocketAddr, options: &ReceiverOptions) -> Result<Self, UdpOpenError> {
        let fd = open(local)?;
        set_up(fd.as_fd(), local, options)?;
        let receive_buffer = grant(fd.as_fd(), options)?;
        if options.shared_port {
            set_int(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
                .map_err(UdpOpenError::step("setsockopt SO_REUSEPORT"))?;
        }
        bind(&fd, &local).map_err(|source| UdpOpenError::bind("UDP", local, source.into()))?;
        let local = local_address(&fd)?;
        Ok(Self { fd, local, receive_buffer, errors: ErrorQueue::default() })
    }

    /// Makes a receiver of a socket that is bound already.
    pub(super) fn of(fd: OwnedFd, options: &ReceiverOptions) -> Result<Self, UdpOpenError> {
        let local = local_address(&fd)?;
        set_up(fd.as_fd(), local, options)?;
        let receive_buffer = grant(fd.as_fd(), options)?;
        Ok(Self { fd, local, receive_buffer, errors: ErrorQueue::default() })
    }

    /// The same, whose error queue others take messages out of as well.
    pub(super) fn sharing(self, errors: &ErrorQueue) -> Self {
        Self { errors: errors.clone(), ..self }
    }

    /// Takes only what comes from `peer` from now on; what others sent before may still wait.
    ///
    /// # Errors
    /// [`UdpOpenError::NoRoute`], [`UdpOpenError::Denied`], [`UdpOpenError::Step`].
    pub fn connect(&mut self, peer: SocketAddr) -> Result<(), UdpOpenError> {
        self.take_from(peer)?;
        self.local = local_address(&self.fd)?;
        Ok(())
    }

    /// The same while another thread receives; the own address stays as it was told.
    ///
    /// # Errors
    /// As [`UdpReceiver::connect`].
    pub fn take_from(&self, peer: SocketAddr) -> Result<(), UdpOpenError> {
        connect(&self.fd, &peer).map_err(|source| UdpOpenError::connect(peer, source.into()))
    }

    /// The same for probes of `peer` alone: the kernel stamps what is sent and received, and tells ICMP messages about it
    /// ([`UdpReceiver::receive_sent`]).
    ///
    /// # Errors
    /// As [`UdpReceiver::connect`], [`UdpReceiver::stamp_sent`] and [`UdpReceiver::report_errors`].
    pub fn probing(mut self, peer: SocketAddr) -> Result<Self, UdpOpenError> {
        self.connect(peer)?;
        self.stamp_sent(false)?;
        self.report_errors()?;
        Ok(self)
    }

    /// Distributes datagrams to the sockets at this address and port (`SO_ATTACH_REUSEPORT_CBPF`, socket(7)). A datagram goes to the socket that
    /// was bound as the n-th, from 0, where n is the byte at `offset` of the payload, masked by `mask`. If there is no n-th one, it goes to any.
    ///
    /// # Errors
    /// [`UdpOpenError::Step`].
    pub fn share_by_byte(&self, offset: u32, mask: u8) -> Result<(), UdpOpenError> {
        let code = |code: u32| code as u16;
        let instruction = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
        let mut program = [
            instruction(code(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS), offset),
            instruction(code(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K), mask.into()),
            instruction(code(libc::BPF_RET | BPF_RETURN_A), 0),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel reads one sock_fprog, and through it `len` instructions, before the call returns; both live until then.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_REUSEPORT_CBPF,
                (&raw const filter).cast(),
                size_of_val(&filter) as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(UdpOpenError::step("setsockopt SO_ATTACH_REUSEPORT_CBPF")(io::Error::last_os_error()));
        }
        Ok(())
    }

    /// The own address and port.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Asks for a receive buffer of `bytes` where it is smaller.
    ///
    /// # Errors
    /// [`UdpOpenError::Step`].
    pub fn grow_receive_buffer(&mut self, bytes: usize) -> Result<(), UdpOpenError> {
        let wanted = BufferGrant { asked_bytes: Some(bytes), ..self.receive_buffer };
        if !wanted.is_whole() {
            let options = ReceiverOptions { receive_buffer_bytes: Some(bytes), ..ReceiverOptions::default() };
            self.receive_buffer = grant(self.fd.as_fd(), &options)?;
        }
        Ok(())
    }

    /// The receive buffer.
    pub fn receive_buffer(&self) -> BufferGrant {
        self.receive_buffer
    }

    /// From now on the kernel stamps what is received and what is sent on this socket (`SO_TIMESTAMPING`, `CLOCK_REALTIME`); stamps of
    /// packets that were sent come by [`UdpReceiver::receive_sent`]. With `by_nic` those of the NIC come along, on its own clock, where
    /// [`NicStamps`](crate::nic_stamps::NicStamps) has it stamp: of a packet that was sent each stamp comes with a copy of its own.
    ///
    /// # Errors
    /// [`UdpOpenError::Step`].
    pub fn stamp_sent(&self, by_nic: bool) -> Result<(), UdpOpenError> {
        let mut wanted =
            libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        if by_nic {
            wanted |= libc::SOF_TIMESTAMPING_TX_HARDWARE
                | libc::SOF_TIMESTAMPING_RX_HARDWARE
                | libc::SOF_TIMESTAMPING_RAW_HARDWARE
                | libc::SOF_TIMESTAMPING_OPT_TX_SWHW;
        }
        set_int(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, wanted as i32)
            .map_err(UdpOpenError::step("setsockopt SO_TIMESTAMPING"))
    }

    /// From now on ICMP messages about what is sent on this socket come by [`UdpReceiver::receive_sent`] (`IP_RECVERR`).
    ///
    /// # Errors
    /// [`UdpOpenError::Step`].
    pub fn report_errors(&self) -> Result<(), UdpOpenError> {
        let (level, name) = self.by_family((libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR));
        set_int(self.fd.as_fd(), level, name, 1).map_err(UdpOpenError::step("setsockopt IP_RECVERR"))
    }

    /// What is sent from now on may pass so many routers less one (TTL, hop limit), 1 to 255.
    ///
    /// # Errors
    /// [`UdpOpenError::Step`].
    pub fn set_hops(&self, hops: u8) -> Result<(), UdpOpenError> {
        let (level, name) = self.by_family((libc::SOL_IP, libc::IP_TTL), (libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS));
        set_int(self.fd.as_fd(), level, name, hops.max(1).into()).map_err(UdpOpenError::step("setsockopt IP_TTL"))
    }

    /// From now on what is received tells how many routers it could still have passed ([`SuperPacket::hops_left`](super::SuperPacket::hops_left);
    /// `IP_RECVTTL`, `IPV6_RECVHOPLIMIT`).
    ///
    /// # Errors
    /// [`UdpOpenError::Step`].
    pub fn tell_hops(&self) -> Result<(), UdpOpenError> {
        let (level, name) = self.by_family((libc::SOL_IP, libc::IP_RECVTTL), (libc::SOL_IPV6, libc::IPV6_RECVHOPLIMIT));
        set_int(self.fd.as_fd(), level, name, 1).map_err(UdpOpenError::step("setsockopt IP_RECVTTL"))
    }

    fn by_family<T>(&self, v4: T, v6: T) -> T {
        if self.local.is_ipv4() { v4 } else { v6 }
    }

    /// Takes packets out of the socket's error queue: copies of those that were sent, with all headers before the payload and the
    /// kernel's stamp ([`UdpReceiver::stamp_sent`]), and ICMP messages ([`SuperPacket::icmp`](super::SuperPacket::icmp)). Never waits.
    ///
    /// # Errors
    /// Any [`UdpReceiveError`].
    pub fn receive_sent(&self, slots: &mut ReceiveSlots) -> Result<usize, UdpReceiveError> {
        self.take(slots, libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE)
    }

    /// Waits until something is there to receive, or in the error queue; `false` at `deadline` on `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// Does not fail in practice on an open socket.
    pub fn wait_until(&self, deadline: Nanos) -> io::Result<bool> {
        readable_until(&self.fd, Some(deadline))
    }

    /// Takes the packets that wait, up to as many as `slots` has room for, and says how many; never waits. What ICMP says of datagrams that
    /// this socket sent keeps it from none of them.
    ///
    /// # Errors
    /// Any [`UdpReceiveError`]; an error behind the first packet shows with the next call.
    pub fn receive(&self, slots: &mut ReceiveSlots) -> Result<usize, UdpReceiveError> {
        self.take_past_errors(slots, || {})
    }

    /// Takes the packets that wait. `between` is done between two tries, where there is an error in the way.
    fn take_past_errors(&self, slots: &mut ReceiveSlots, between: impl Fn()) -> Result<usize, UdpReceiveError> {
        let mut tries = 0;
        loop {
            match self.take(slots, libc::MSG_DONTWAIT) {
                Err(_) if tries < TRIES_MOST => {
                    tries += 1;
                    between();
                }
                other => return other,
            }
        }
    }

    fn take(&self, slots: &mut ReceiveSlots, flags: i32) -> Result<usize, UdpReceiveError> {
        let messages = slots.prepare();
        loop {
            // SAFETY: `prepare` made every pointer lead into the slots' own boxes, which are borrowed mutably.
            let filled = unsafe {
                libc::recvmmsg(
                    self.fd.as_raw_fd(),
                    messages.as_mut_ptr(),
                    messages.len() as u32,
                    flags as _,
                    ptr::null_mut(),
                )
            };
            if filled >= 0 {
                slots.set_filled(filled as usize, realtime());
                return Ok(filled as usize);
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(0),
                io::ErrorKind::Interrupted => {}
                _ => return Err(UdpReceiveError::from_io(error)),
            }
        }
    }

    /// As [`UdpReceiver::receive`], and where nothing waits, until something does or `deadline` on `CLOCK_MONOTONIC` has
    /// passed. A signal may end it early, with 0. What the socket's error queue has is lost: ICMP errors
    /// ([`report_drops`](super::SenderOptions::report_drops)) count against the receive buffer, and while one is there the socket is never quiet.
    ///
    /// # Errors
    /// Any [`UdpReceiveError`].
    pub fn receive_until(&self, slots: &mut ReceiveSlots, deadline: Nanos) -> Result<usize, UdpReceiveError> {
        let drain = || self.errors.drain(self.fd.as_fd());
        match self.take_past_errors(slots, || _ = drain()) {
            Ok(0) => {}
            other => return other,
        }
        while readable_until(&self.fd, Some(deadline)).map_err(UdpReceiveError::Other)? {
            let taken = self.errors.taken();
            match self.take_past_errors(slots, || _ = drain()) {
                // What woke it waited at the error queue.
                Ok(0) if (drain() || self.errors.taken() > taken) && monotonic() < deadline => {}
                other => return other,
            }
        }
        Ok(0)
    }

    /// Sends `peer` one datagram; never waits. Where ICMP has said something of earlier datagrams it tries again; the error queue stays as it is.
    ///
    /// # Errors
    /// Any [`UdpSendError`].
    pub fn send_to(&self, datagram: &[u8], peer: SocketAddr) -> Result<(), UdpSendError> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut tries = 0;
        loop {
            match sendto(&self.fd, datagram, flags, &peer).map_err(io::Error::from) {
                Ok(_) => return Ok(()),
                Err(error) if tries < TRIES_MOST && may_be_of_icmp(&error) => tries += 1,
                Err(error) => return Err(UdpSendError::from_io(error)),
            }
        }
    }

    /// The socket's memory and drops now.
    ///
    /// # Errors
    /// Before Linux 4.12.
    pub fn memory(&self) -> io::Result<SocketMemory> {
        SocketMemory::of(self.fd.as_fd())
    }
}

impl AsFd for UdpReceiver {
    /// Readable when a packet waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn grant(socket: BorrowedFd<'_>, options: &ReceiverOptions) -> Result<BufferGrant, UdpOpenError> {
    BufferGrant::ask(socket, options.receive_buffer_bytes, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
        .map_err(UdpOpenError::step("setsockopt SO_RCVBUF"))
}

fn set_up(socket: BorrowedFd<'_>, local: SocketAddr, options: &ReceiverOptions) -> Result<(), UdpOpenError> {
    if options.gro {
        set_int(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
            .map_err(UdpOpenError::step("setsockopt UDP_GRO (Linux 5.0)"))?;
    }
    set_int(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).map_err(UdpOpenError::step("setsockopt SO_RXQ_OVFL"))?;
    if options.traffic_class {
        let (level, name) =
            if local.is_ipv4() { (libc::SOL_IP, libc::IP_RECVTOS) } else { (libc::SOL_IPV6, libc::IPV6_RECVTCLASS) };
        set_int(socket, level, name, 1).map_err(UdpOpenError::step("setsockopt IP_RECVTOS"))?;
    }
    match options.timestamps {
        TimestampMode::App => Ok(()),
        TimestampMode::Kernel => set_int(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
            .map_err(UdpOpenError::step("setsockopt SO_TIMESTAMPNS")),
        TimestampMode::Nic => {
            let wanted = libc::SOF_TIMESTAMPING_RX_HARDWARE
                | libc::SOF_TIMESTAMPING_RAW_HARDWARE
                | libc::SOF_TIMESTAMPING_RX_SOFTWARE
                | libc::SOF_TIMESTAMPING_SOFTWARE;
            set_int(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, wanted as i32)
                .map_err(UdpOpenError::step("setsockopt SO_TIMESTAMPING"))
        }
    }
}
