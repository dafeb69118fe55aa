//! What a session wants done, and how it ends.

use std::net::SocketAddr;

use longhaul_result::Caveat;
use longhaul_tcp::proof::TcpCookie;
use longhaul_terms::StreamSent;
use longhaul_udp::{ReceiverReport, SenderReport};
use longhaul_units::Nanos;
use longhaul_wire::probe::{Cookie, HEADER_LEN};

use crate::message::{Message, Progress, SessionError};
use crate::report::EndReport;
use crate::test_parameters::TestParameters;

/// What a session wants done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Send this over the control channel.
    SendMessage(Message),
    /// Send this datagram on a stream: the client to the server's port of that stream, the server to `to`.
    SendProbe {
        /// The stream.
        stream: u8,
        /// Where to, at the server.
        to: Option<SocketAddr>,
        /// The datagram.
        bytes: [u8; HEADER_LEN],
    },
    /// Server: ask [`Admission`](crate::Admission), and answer with `handle_admission`, again where the answer changes.
    RequestAdmission {
        /// How long the test may take, from its admission to the end of its report.
        longest: Nanos,
    },
    /// UDP: open a socket for each stream. TCP: the server listens, the client connects for each stream and says
    /// [`TcpCookie::hello`]. Attach what sees drops, read counters, and be ready to receive; then
    /// `handle_data_opened` or `handle_data_failed`.
    OpenData(DataPlan),
    /// Begin to send in bulk as the plan says; at its end `handle_sending_finished`.
    StartSending {
        /// The client's proven address of each stream, at the server; empty at the client.
        to: Vec<SocketAddr>,
    },
    /// Stop sending now; then `handle_sending_finished`.
    StopSending,
    /// The receiving peer's live counters.
    Progress(Progress),
    /// The peer has sent all it will. Call `handle_arrivals` while packets still come, `handle_drained` when all are there.
    PeerFinished(Vec<StreamSent>),
    /// The data is over at this end: close the data sockets, detach, read counters, then `handle_report`.
    CollectReport,
    /// The session ended well. Close the connection when all messages are sent.
    Finished(Box<TestEnd>),
    /// The session ended without a result. Stop everything, close when all messages are sent.
    Failed(SessionError),
}

/// What the data part of a test needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPlan {
    /// What is granted.
    pub parameters: TestParameters,
    /// The session's cookie; each packet's is `cookie.of(backward, stream)`.
    pub cookie: Cookie,
    /// What the data connections of a TCP test begin with.
    pub tcp_cookie: TcpCookie,
    /// The server's UDP port of each stream, or the one TCP port; empty at the server, which chooses them.
    pub server_ports: Vec<u16>,
    /// Whether this end sends.
    pub sends: bool,
    /// Whether this end receives.
    pub receives: bool,
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TestEnd {
    /// What was granted and done.
    pub parameters: TestParameters,
    /// What this end knows.
    pub local: EndReport,
    /// What the other end knows; `None` at the server.
    pub remote: Option<EndReport>,
    /// What the server had to say about the conditions.
    pub caveats: Vec<Caveat>,
}

impl TestEnd {
    /// Client: the two reports of a direction, sender's and receiver's, for
    /// [`UdpResult::assemble`](longhaul_udp::UdpResult::assemble). `None` where that direction was not tested.
    pub fn direction(&self, backward: bool) -> Option<(&SenderReport, &ReceiverReport)> {
        let remote = self.remote.as_ref()?;
        let (sender, receiver) = if backward { (remote, &self.local) } else { (&self.local, remote) };
        Some((sender.udp.as_ref()?.sender.as_ref()?, receiver.udp.as_ref()?.receiver.as_ref()?))
    }
}
