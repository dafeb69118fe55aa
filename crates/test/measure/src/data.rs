//! The data part of a test of either kind, as the driver sees it.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Sender;

use longhaul_kernel::schedule::pin_to;
use longhaul_kernel::udp::BufferGrant;
use longhaul_result::Caveat;
use longhaul_session::{DataPlan, EndReport, Progress, SessionError, TestParameters};
use longhaul_terms::{SocketBuffer, StreamSent};
use longhaul_units::Nanos;

use crate::driver::{Event, SenderNow};
use crate::tcp::TcpData;
use crate::udp_data::UdpData;

/// The open data part of a test. Dropping it ends its threads.
pub(crate) enum Data {
    Udp(Box<UdpData>),
    Tcp(Box<TcpData>),
}

impl Data {
    /// Opens the sockets of `plan` and begins to receive. The client gives the server's address, the server its own.
    ///
    /// # Errors
    /// Where a socket is not to be had, or what else the plan asks for.
    pub(crate) fn open(plan: DataPlan, at: Place, events: &Sender<Event>) -> Result<Self, SessionError> {
        Ok(match plan.parameters.clone() {
            TestParameters::Udp(parameters) => Self::Udp(Box::new(UdpData::open(plan, parameters, at, events)?)),
            TestParameters::Tcp(parameters) => Self::Tcp(Box::new(TcpData::open(plan, parameters, at, events)?)),
        })
    }

    /// Whether it is open. A TCP client is when its connections are there, which an event tells.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Udp(_) => true,
            Self::Tcp(tcp) => tcp.is_open(),
        }
    }

    /// The part of a TCP test.
    pub(crate) fn tcp(&mut self) -> Option<&mut TcpData> {
        match self {
            Self::Udp(_) => None,
            Self::Tcp(tcp) => Some(tcp),
        }
    }

    /// The part of a UDP test.
    pub(crate) fn udp(&mut self) -> Option<&mut UdpData> {
        match self {
            Self::Udp(udp) => Some(udp),
            Self::Tcp(_) => None,
        }
    }

    /// The ports that the client is to use.
    pub(crate) fn ports(&self) -> Vec<u16> {
        match self {
            Self::Udp(udp) => udp.ports(),
            Self::Tcp(tcp) => tcp.ports(),
        }
    }

    /// What there is to say about the conditions at this end so far, once.
    pub(crate) fn take_caveats(&mut self) -> Vec<Caveat> {
        match self {
            Self::Udp(udp) => udp.take_caveats(),
            Self::Tcp(tcp) => tcp.take_caveats(),
        }
    }

    /// Begins to send, at a UDP server to the addresses `to`.
    pub(crate) fn start_sending(&mut self, to: &[SocketAddr]) {
        match self {
            Self::Udp(udp) => udp.start_sending(to),
            Self::Tcp(tcp) => tcp.start_sending(),
        }
    }

    /// Has the senders end.
    pub(crate) fn stop_sending(&self) {
        match self {
            Self::Udp(udp) => udp.stop_sending(),
            Self::Tcp(tcp) => tcp.stop_sending(),
        }
    }

    /// The other end has sent so much.
    pub(crate) fn peer_finished(&mut self, streams: Vec<StreamSent>) {
        match self {
            Self::Udp(udp) => udp.peer_finished(streams),
            Self::Tcp(tcp) => tcp.peer_finished(streams),
        }
    }

    /// Whether all that the other end sent is there; `None` while that is not known.
    pub(crate) fn is_drained(&self) -> Option<bool> {
        match self {
            Self::Udp(udp) => udp.is_drained(),
            Self::Tcp(tcp) => tcp.is_drained(),
        }
    }

    /// When the last of it arrived.
    pub(crate) fn last_arrival(&self) -> Nanos {
        match self {
            Self::Udp(udp) => udp.last_arrival(),
            Self::Tcp(tcp) => tcp.last_arrival(),
        }
    }

    /// What was received so far.
    pub(crate) fn progress(&self) -> Progress {
        match self {
            Self::Udp(udp) => udp.progress(),
            Self::Tcp(tcp) => tcp.progress(),
        }
    }

    /// Where this end's sending flows stand; `None` where it has none, and for UDP.
    pub(crate) fn sender_now(&self) -> Option<SenderNow> {
        match self {
            Self::Udp(_) => None,
            Self::Tcp(tcp) => tcp.sender_now(),
        }
    }

    /// Ends the test at this end and says what it knows.
    pub(crate) fn report(self) -> EndReport {
        match self {
            Self::Udp(udp) => udp.report(),
            Self::Tcp(tcp) => tcp.report(),
        }
    }
}

/// Which end of a test this is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// The client, and the server's address.
    Client(IpAddr),
    /// The server.
    Server {
        /// Its own address.
        own: IpAddr,
        /// The client's.
        peer: IpAddr,
    },
}

pub(crate) fn buffer(grant: BufferGrant) -> SocketBuffer {
    SocketBuffer { asked_bytes: grant.asked_bytes.map(|bytes| bytes as u64), given_bytes: grant.given_bytes as u64 }
}

/// A caveat where the kernel gave less of a buffer than was asked for.
pub(crate) fn not_granted(which: &str, limit: &str, grant: BufferGrant) -> Option<Caveat> {
    (!grant.is_whole()).then(|| {
        // The kernel doubles what it is asked for, and says what it gave doubled.
        let (asked, given) = (grant.asked_bytes.unwrap_or(0), grant.given_bytes / 2);
        let message = format!("of {asked} bytes of {which} buffer the kernel gave {given}");
        Caveat::new("buffer_not_granted", message, format!("raise sysctl {limit}, or run as root"))
    })
}

/// That the CPUs are there was looked at when the test was opened.
pub(crate) fn pin(cpus: &[usize]) {
    if !cpus.is_empty() {
        let _ = pin_to(cpus);
    }
}
