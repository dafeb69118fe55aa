//! What the UDP sockets of a network namespace send, receive and lose: programs that know nothing of longhaul.
//!
//! [`UdpFlows`] attaches programs to tracepoints of interfaces, sockets and drops. They count in the kernel, by port and peer; no event
//! goes to user space for a datagram. What there is to read: [`UdpFlow`], [`UdpUse`], [`UdpDropSum`].
//!
//! It costs each packet of the machine a look at its headers where it is sent, where it arrives and where it is dropped.

#[cfg_attr(not(bpf_programs), allow(dead_code))]
mod event;

#[cfg(not(bpf_programs))]
mod disabled;
#[cfg(bpf_programs)]
mod enabled;

#[cfg(not(bpf_programs))]
pub use disabled::UdpFlows;
#[cfg(bpf_programs)]
pub use enabled::UdpFlows;
pub use event::{UdpDropSum, UdpFlow, UdpUse};
