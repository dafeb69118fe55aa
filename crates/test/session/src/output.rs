//! What a session wants the driver to do, and how it ends.

use std::net::SocketAddr;

use longhaul_tcp::proof::TcpCookie;
use longhaul_terms::StreamSent;
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, HEADER_LEN};

use crate::kind::{TestEnd, TestParameters};
use crate::message::{Message, Progress, SessionError};

/// An instruction for the driver. Follow instructions in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Send this over the control channel.
    SendMessage(Message),
    /// Send this datagram on a stream: the client to the server's port of that stream, the server to `to`.
    SendProbe {
        /// The stream.
        stream: u8,
        /// The destination, at the server.
        to: Option<SocketAddr>,
        /// The datagram.
        bytes: [u8; HEADER_LEN],
    },
    /// Server: ask [`Admission`](crate::Admission) and call `handle_admission`, now and whenever the answer changes.
    RequestAdmission {
        /// Longest time of the test, from its admission to the end of its report.
        longest: Nanos,
    },
    /// UDP: open a socket for each stream. TCP: the server listens; the client connects for each stream and sends
    /// [`TcpCookie::hello`]. Attach the drop observers, read counters, and be ready to receive. Then call `handle_data_opened` or
    /// `handle_data_failed`.
    OpenData(DataPlan),
    /// No datagram of the proof has passed for long. If this host dropped them, call `handle_data_blocked`.
    LookForDrops,
    /// Server: the client has proven these addresses, one for each stream. Take data from no other address.
    Proven {
        /// The client's address of each stream.
        to: Vec<SocketAddr>,
    },
    /// Start to send bulk data as the plan says, or to answer the client's where the kind of test has it so; at the end of sending comes [`DataEvent::Sent`](crate::DataEvent::Sent).
    StartSending {
        /// The client's proven address of each stream, at the server; empty at the client.
        to: Vec<SocketAddr>,
    },
    /// Stop sending now; then comes [`DataEvent::Sent`](crate::DataEvent::Sent).
    StopSending,
    /// Client: its test has to wait for so many others at the server.
    Waiting {
        /// Tests before this one, as the server says.
        ahead: u32,
    },
    /// Live counters of the peer, which receives.
    Progress(Progress),
    /// The peer has stopped sending. [`DataEvent`](crate::DataEvent) says that packets still arrive, or that all have arrived.
    PeerFinished(Vec<StreamSent>),
    /// This end needs no more data: close the data sockets, detach, read counters, then call `handle_report`.
    CollectReport,
    /// The session ended with a result. Close the connection when all messages are sent.
    Finished(Box<TestEnd>),
    /// The session ended without a result. Stop everything, and close the connection when all messages are sent.
    Failed(SessionError),
}

/// What the driver needs to know for the data of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPlan {
    /// The granted parameters.
    pub parameters: TestParameters,
    /// The session's cookie; each packet's is `cookie.of(backward, stream)`.
    pub cookie: Cookie,
    /// The first bytes of the data connections of a TCP test.
    pub tcp_cookie: TcpCookie,
    /// The server's UDP port of each stream, or its one TCP port; empty at the server, which chooses them.
    pub server_ports: Vec<u16>,
    /// Whether this end sends.
    pub sends: bool,
    /// Whether this end receives.
    pub receives: bool,
}
