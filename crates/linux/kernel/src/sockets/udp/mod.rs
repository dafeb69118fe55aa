//! UDP sockets for tests: many datagrams a system call, out and in, with all that the kernel tells about them.
//!
//! Out: [`UdpSender`] with `UDP_SEGMENT` (one super-packet stands for up to 128 datagrams of one size) or `sendmmsg` (each
//! datagram a packet of its own). In: [`UdpReceiver`] with `recvmmsg`, where `UDP_GRO` hands over super-packets whole, stamps,
//! and the socket's count of drops. The caller owns the memory ([`SendBatch`], [`ReceiveSlots`]): no call allocates.
//!
//! ```text
//!   SendBatch   │ datagram 0 │ datagram 1 │ … │ n-1 │     equal sizes; the caller fills each, a probe header first
//!                 └─────── send_segments: one sendmsg ──────┘        super-packet on a virtual wire
//!                 └── send_singly: one sendmmsg, n datagrams ┘       n packets
//!   ReceiveSlots│ slot 0: super-packet of 45 datagrams │ slot 1: one datagram │ …
//! ```
//!
//! What is not here: what the datagrams mean, when to send them, and who may.
//!
//! Source: udp(7), ip(7), socket(7), `Documentation/networking/segmentation-offloads.rst`,
//! `Documentation/networking/timestamping.rst`, `net/ipv4/udp.c`.

mod batch;
mod echo;
mod error;
mod error_queue;
mod memory;
mod nic_clock;
pub(crate) mod option;
mod receiver;
mod sender;
mod shared;
mod slots;
mod socket;
mod syn;

pub use batch::SendBatch;
pub use echo::{Echo, EchoSocket};
pub use error::{UdpOpenError, UdpReceiveError, UdpSendError};
pub use memory::{BufferGrant, SocketMemory};
pub use nic_clock::{NicClock, NicClockReading};
pub use receiver::{ReceiverOptions, UdpReceiver};
pub use sender::{SenderOptions, Sent, UdpSender, Unsent};
pub use slots::{Datagram, IcmpMessage, ReceiveSlots, SuperPacket};
pub use syn::SynSocket;

/// Datagrams that one super-packet or one system call carries at most (`UDP_MAX_SEGMENTS` since Linux 6.9).
pub const DATAGRAMS_MOST: usize = 128;
/// The longest IPv4 packet less its headers.
const PAYLOAD_MOST_BYTES_V4: usize = 65_535 - 20 - 8;

/// Where received datagrams are stamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimestampMode {
    /// By the program, one stamp for all that one system call brought (`CLOCK_REALTIME`).
    App,
    /// By the kernel when it takes the packet from the driver (`CLOCK_REALTIME`). A super-packet has one stamp.
    #[default]
    Kernel,
    /// By the NIC, on its own clock, where it can ([`NicStamps`](crate::nic_stamps::NicStamps) has it do so); the kernel's stamp comes along.
    Nic,
}
