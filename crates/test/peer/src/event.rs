//! What can happen to a test at one end, whatever its kind.

use std::net::{SocketAddr, TcpStream};

use longhaul_rtt::Observed;
use longhaul_tcp::proof::TCP_HELLO_BYTES;

use crate::control::{ControlEvent, HasControl};

/// What can happen to a test at one end.
#[derive(Debug)]
pub(crate) enum Event {
    /// Something happened to the control connection.
    Control(ControlEvent),
    /// The data part that was not open at once is open now, or failed: [`Data::finish_opening`](crate::data::Data::finish_opening).
    DataOpened,
    /// A datagram of the proof arrived on a stream.
    Probe { stream: u8, from: SocketAddr, bytes: Vec<u8> },
    /// A data connection arrived, with its first bytes.
    Connection { connection: TcpStream, from: SocketAddr, hello: [u8; TCP_HELLO_BYTES] },
    /// Probes of a measurement of round trips were answered, or lost.
    Observed(Box<Observed>),
    /// This stream is sent: [`Data::stream_sent`](crate::data::Data::stream_sent).
    StreamSent(u8),
    /// Another client's test ended: ask for admission once more.
    AskAgain,
    /// The client goes on with its measurement in another session.
    TakenOver,
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
