//! The data part of a test at one end, as the driver sees it: what every kind of test implements, and what kinds share.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use longhaul_bpf::caveats::NO_DROP_EVENTS;
use longhaul_kernel::address::at_port;
use longhaul_kernel::udp::BufferGrant;
use longhaul_result::Caveat;
use longhaul_session::{Caps, DataPlan, DroppedData, EndReport, PacketsByLocation, Progress, SessionError};
use longhaul_tcp::proof::TcpStreamId;
use longhaul_terms::{Collect, SocketBuffer, StreamSent};
use longhaul_units::{BitRate, Nanos};

use crate::caveats;
use crate::event::Event;

/// What a kind of test needs to open its data part.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    /// What to send and receive.
    pub(crate) plan: DataPlan,
    /// At which end.
    pub(crate) place: ThisEnd,
    /// Where its threads send events.
    pub(crate) events: &'a Sender<Event>,
}

/// Of a time in which a client sent less than a server's cap, so much counts: it may send that later.
pub(crate) const RATE_MEMORY: Nanos = Nanos::from_secs(10);

/// The open data part of a test: its sockets, threads and evidence. Dropping it ends its threads.
pub(crate) trait Data {
    /// Whether it is open at once. If not, [`Event::DataOpened`] tells that [`Self::finish_opening`] is due.
    fn is_open(&self) -> bool {
        true
    }

    /// Completes the opening.
    ///
    /// # Errors
    /// Why it is not open.
    fn finish_opening(&mut self) -> Result<(), SessionError> {
        Ok(())
    }

    /// The ports that the client is to use.
    fn ports(&self) -> Vec<u16>;

    /// Caveats about the conditions at this end so far. Each is returned once.
    fn take_caveats(&mut self) -> Vec<Caveat>;

    /// Sends a datagram of the proof: the client to the server, the server to `to`. The session repeats a lost one.
    fn send_probe(&self, _stream: u8, _to: Option<SocketAddr>, _bytes: &[u8]) {}

    /// Where this host dropped datagrams of the proof, and how many; `None` if it is not known that it did.
    fn dropped_proof(&self) -> Option<String> {
        None
    }

    /// The session proved that `connection` belongs to stream `id`.
    fn admit(&mut self, _id: TcpStreamId, _connection: TcpStream) {}

    /// At a server: datagrams of a stream are the test's only where they come from the stream's address of `to`.
    fn proven(&self, _to: &[SocketAddr]) {}

    /// Begins to send; at a server of a test with datagrams to the addresses `to`.
    fn start_sending(&mut self, to: &[SocketAddr]);

    /// Tells the senders to end.
    fn stop_sending(&self);

    /// A stream is sent ([`Event::StreamSent`]). Returns all streams' counts when it was the last.
    fn stream_sent(&mut self, stream: u8) -> Option<Vec<StreamSent>>;

    /// What the other end sent in all, for each stream.
    fn peer_finished(&mut self, streams: Vec<StreamSent>);

    /// Whether all that the other end sent has arrived; `None` while that is not known.
    fn is_drained(&self) -> Option<bool>;

    /// When the last of it arrived.
    fn last_arrival(&self) -> Nanos;

    /// What was received so far.
    fn progress(&self) -> Progress;

    /// Bytes that this end has read of what the other end sent for this test, of whatever length and number.
    fn read_bytes(&self) -> u64;

    /// The state of this end's sending flows; `None` where it has none, or the kind of test has no such state.
    fn sender_now(&self) -> Option<SenderNow> {
        None
    }

    /// Packets of those that this end sends that its own kernel dropped so far; zeros where that is not known.
    fn dropped_of_sent(&self) -> PacketsByLocation {
        PacketsByLocation::default()
    }

    /// The connections of the test, which end in order where the session does.
    fn connections(&self) -> Vec<Arc<TcpStream>> {
        Vec::new()
    }

    /// Ends the test at this end and reports on it.
    fn report(self: Box<Self>) -> EndReport;
}

/// The state of the sending TCP flows of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderNow {
    /// Packets retransmitted since the start.
    pub retransmits: u64,
    /// Congestion windows of all flows together, bytes.
    pub cwnd_bytes: u64,
    /// Mean smoothed round-trip time of the flows.
    pub rtt_ns: u64,
    /// Packets with data that this end dropped since the start.
    pub dropped_data: DroppedData,
}

/// Which end of a test this is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ThisEnd {
    /// The client.
    Client {
        /// Where it reached the server.
        server: SocketAddr,
        /// Its own, where the user chose.
        source: Source,
    },
    /// The server.
    Server {
        /// Where the client reached it.
        own: SocketAddr,
        /// The client's.
        peer: IpAddr,
        /// What the test may use.
        caps: Caps,
        /// Where data arrives.
        data_port: DataPort,
    },
}

/// The ports at which a server receives data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataPort {
    /// The kernel chooses one for each test.
    #[default]
    Any,
    /// This one, for TCP and UDP.
    Fixed(u16),
    /// That of the control connection: the listener passes TCP connections on that begin as data does.
    Control(u16),
}

impl DataPort {
    /// Where to bind; 0 has the kernel choose.
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::Any => 0,
            Self::Fixed(port) | Self::Control(port) => port,
        }
    }
}

/// The address and ports that a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Source {
    /// For all connections and sockets, whatever its port; `None`: as the route says.
    pub address: Option<SocketAddr>,
    /// Port of the first stream's data, and the next ones for the others; `None`: the kernel chooses.
    pub data_port: Option<u16>,
}

impl Source {
    /// Where the `number`-th socket for data to `server` is bound; `None`: anywhere.
    pub(crate) fn of_data(self, number: u8, server: SocketAddr) -> Option<SocketAddr> {
        let any = if server.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0_u16; 8]) };
        let port = self.data_port.map(|port| port.saturating_add(number.into()));
        (self != Self::default()).then(|| at_port(self.address.unwrap_or(SocketAddr::new(any, 0)), port.unwrap_or(0)))
    }
}

impl ThisEnd {
    /// Whether this is the server.
    pub(crate) fn is_server(self) -> bool {
        matches!(self, Self::Server { .. })
    }

    /// Whose datagrams are of the test, where the socket takes those of anybody: a client's is connected.
    pub(crate) fn client(self) -> Option<IpAddr> {
        if let Self::Server { peer, .. } = self { Some(peer) } else { None }
    }

    /// Most payload bits per second of a direction; `None` for no cap, as at a client.
    pub(crate) fn rate_cap(self) -> Option<BitRate> {
        if let Self::Server { caps, .. } = self { caps.rate } else { None }
    }

    /// The longest report of this end. A client writes none: what it keeps for one is bounded as that of most servers.
    pub(crate) fn report_bytes(self) -> u64 {
        let caps = if let Self::Server { caps, .. } = self { caps } else { Caps::default() };
        caps.report.0
    }

    /// Whether a test may change settings of this host. At the client its user asked for them.
    pub(crate) fn may_change_host(self) -> bool {
        !matches!(self, Self::Server { caps: Caps { host_settings: false, .. }, .. })
    }

    /// Caveats that say which end they are about.
    pub(crate) fn name_end(self, caveats: Vec<Caveat>) -> Vec<Caveat> {
        let end = if self.is_server() { "server" } else { "client" };
        caveats.iter().map(|caveat| caveat.about(end)).collect()
    }
}

/// What the kernel gave of a socket buffer.
pub(crate) fn buffer(grant: BufferGrant) -> SocketBuffer {
    let asked_bytes = grant.asked_bytes.map(|bytes| bytes as u64);
    SocketBuffer { asked_bytes, given_bytes: grant.given_bytes as u64, by_default: false }
}

/// A caveat where the kernel gave less of a buffer than was asked for.
pub(crate) fn not_granted(which: &str, limit: &str, grant: BufferGrant) -> Option<Caveat> {
    (!grant.is_whole()).then(|| {
        // The kernel allocates twice what it is asked for, and reports that.
        let (asked, given) = (grant.asked_bytes.unwrap_or(0), grant.given_bytes / 2);
        let message = format!("{asked} bytes of {which} buffer were asked for, and the kernel gave {given}");
        Caveat::new(caveats::BUFFER_NOT_GRANTED, message, format!("raise sysctl {limit}, or run as root"))
    })
}

/// What it means that the kernel's drop events cannot be had: a caveat, or an error where the test asked for them by name.
///
/// # Errors
/// With [`Collect::Bpf`].
pub(crate) fn no_drop_events(collect: Collect, why: &impl std::fmt::Display) -> Result<Caveat, SessionError> {
    if collect == Collect::Bpf {
        let remedy = "use auto, or run both ends as root";
        return Err(SessionError::new(NO_DROP_EVENTS.as_str(), format!("collect: bpf: {why}"), remedy));
    }
    let message = format!("losses are located by counters alone: {why}");
    Ok(Caveat::new(NO_DROP_EVENTS, message, "run as root on Linux 5.17 or newer"))
}
