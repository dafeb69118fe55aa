//! What can happen to a test at one end, whatever its kind.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use longhaul_rtt::Observed;
use longhaul_tcp::proof::TCP_HELLO_BYTES;
use longhaul_terms::MAX_STREAMS;
use longhaul_wire::probe::HEADER_LEN;

use crate::control::{ControlEvent, HasControl};

/// Datagrams of the proof of a stream that wait for the driver at most. Anyone may send them, so the bound is one of memory alone: the driver
/// takes them as fast as they come, and forged ones never use up the place of the client's.
const PROOF_WAITING_MOST: usize = 256;

/// Data connections that wait for the driver at most: all of a test, and as many of strangers. The driver may be writing a report.
const CONNECTIONS_WAITING_MOST: usize = 4 * MAX_STREAMS as usize;

/// What can happen to a test at one end.
#[derive(Debug)]
pub(crate) enum Event {
    /// Something happened to the control connection.
    Control(ControlEvent),
    /// The data part that was not open at once is open now, or failed: [`Data::finish_opening`](crate::data::Data::finish_opening).
    DataOpened,
    /// A datagram of the proof arrived on a stream. It waits until `waits` is dropped.
    Probe { stream: u8, from: SocketAddr, bytes: [u8; HEADER_LEN], waits: Arc<()> },
    /// A data connection arrived, with its first bytes. It waits until `waits` is dropped.
    Connection { connection: TcpStream, from: SocketAddr, hello: [u8; TCP_HELLO_BYTES], waits: Arc<()> },
    /// Probes of a measurement of round trips were answered, or lost.
    Observed(Box<Observed>),
    /// This stream is sent: [`Data::stream_sent`](crate::data::Data::stream_sent).
    StreamSent(u8),
    /// The other end closed the connection of a stream that it sent, after so many bytes had arrived.
    StreamEnded { stream: u8, bytes: u64 },
    /// Another client's test ended: ask for admission once more.
    AskAgain,
    /// The client goes on with its measurement in another session.
    TakenOver,
}

/// Hands the datagrams of the proof of one stream to the driver.
#[derive(Debug)]
pub(crate) struct ProofQueue {
    stream: u8,
    /// Whose are handed over; `None` where the socket is connected.
    peer: Option<IpAddr>,
    events: Sender<Event>,
    waiting: Arc<()>,
}

impl ProofQueue {
    /// Those of `stream` that come from `peer`; from anybody where the socket is connected.
    pub(crate) fn new(stream: u8, peer: Option<IpAddr>, events: &Sender<Event>) -> Self {
        let peer = peer.map(|peer| peer.to_canonical());
        Self { stream, peer, events: events.clone(), waiting: Arc::default() }
    }

    /// Hands over what may be of the proof, as long as few wait.
    pub(crate) fn hand_over(&self, from: Option<SocketAddr>, datagram: &[u8]) {
        let (Some(from), Ok(bytes)) = (from, datagram.try_into()) else { return };
        let stranger = self.peer.is_some_and(|peer| peer != from.ip().to_canonical());
        if !stranger && Arc::strong_count(&self.waiting) <= PROOF_WAITING_MOST {
            let waits = Arc::clone(&self.waiting);
            // The driver may have ended already.
            let _ = self.events.send(Event::Probe { stream: self.stream, from, bytes, waits });
        }
    }
}

/// Hands data connections to the driver.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionQueue {
    events: Sender<Event>,
    waiting: Arc<()>,
}

impl ConnectionQueue {
    pub(crate) fn new(events: &Sender<Event>) -> Self {
        Self { events: events.clone(), waiting: Arc::default() }
    }

    /// Hands over a connection that began with `hello`, as long as few wait; else it is closed. `false`: the driver has ended.
    pub(crate) fn hand_over(&self, connection: TcpStream, from: SocketAddr, hello: [u8; TCP_HELLO_BYTES]) -> bool {
        let waits = Arc::clone(&self.waiting);
        // The queue has one, and so has this connection.
        let is_full = Arc::strong_count(&waits) > CONNECTIONS_WAITING_MOST + 1;
        is_full || self.events.send(Event::Connection { connection, from, hello, waits }).is_ok()
    }
}

impl From<ControlEvent> for Event {
    fn from(event: ControlEvent) -> Self {
        Self::Control(event)
    }
}

impl HasControl for Event {
    fn into_control(self) -> Option<ControlEvent> {
        if let Self::Control(event) = self { Some(event) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn forged_datagrams_of_the_proof_wait_in_bounded_memory_and_use_up_nothing() {
        let (events, driver) = channel();
        let [peer, other] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let probes = ProofQueue::new(3, Some(peer), &events);
        let from = |ip: IpAddr| Some(SocketAddr::new(ip, 4000));
        for round in 0..3 {
            for _ in 0..1_000 {
                probes.hand_over(from(other), &[0; HEADER_LEN]);
                probes.hand_over(from(peer), &[0; HEADER_LEN - 1]);
            }
            (0..1_000).for_each(|_| probes.hand_over(from(peer), &[1; HEADER_LEN]));
            assert_eq!(driver.try_iter().count(), PROOF_WAITING_MOST, "round {round}");
        }
        probes.hand_over(from(peer), &[7; HEADER_LEN]);
        assert!(matches!(driver.try_recv(), Ok(Event::Probe { stream: 3, bytes: [7, ..], .. })));
    }

    /// Strangers connect while the driver writes a report.
    #[test]
    fn connections_wait_in_bounded_number() {
        let (events, waiting) = channel();
        let queue = ConnectionQueue::new(&events);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connection = || TcpStream::connect(address).unwrap();
        for _ in 0..CONNECTIONS_WAITING_MOST + 50 {
            let one = connection();
            drop(listener.accept().unwrap());
            assert!(queue.hand_over(one, address, [0; TCP_HELLO_BYTES]));
        }
        assert_eq!(waiting.try_iter().count(), CONNECTIONS_WAITING_MOST);
        assert!(queue.hand_over(connection(), address, [0; TCP_HELLO_BYTES]), "there is room again");
        assert_eq!(waiting.try_iter().count(), 1);
        drop(waiting);
        assert!(!queue.hand_over(connection(), address, [0; TCP_HELLO_BYTES]));
    }
}
