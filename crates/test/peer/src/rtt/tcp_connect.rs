//! Round trips as the time that TCP takes to connect, or to be refused: any host with or without an open port tells it.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use longhaul_kernel::address::at_port;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::tcp::{TcpOpenError, TcpOptions, connect_to};
use longhaul_kernel::udp::{ReceiverOptions, UdpReceiver};
use longhaul_rtt::probe_log::StampedBy;
use longhaul_rtt::{Answer, Observed, RttParameters};
use longhaul_session::SessionError;
use longhaul_units::Nanos;

use super::probing::{Probes, Probing, Shared};
use crate::control::{interrupted, random};
use crate::data::Source;

/// How often to look for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Probes `peer` by connecting to it, from the address of `source` and any port, until the amount is sent or a signal comes, and hands over what is seen. A second signal ends it at
/// once.
///
/// # Errors
/// The system has no thread left, or this host does not have that address.
pub fn probe_by_tcp(
    peer: SocketAddr,
    source: Source,
    parameters: &RttParameters,
    stop: Option<Stop>,
    observe: impl FnMut(Observed),
) -> Result<(), SessionError> {
    let (connected, answers) = channel();
    let timeout = Nanos(parameters.timeout_ns);
    let from = source.address.map(|own| at_port(own, 0));
    if let Some(own) = from {
        // Else each probe would fail, and count as lost.
        UdpReceiver::bind(own, &ReceiverOptions::default())
            .map_err(|error| SessionError::new("data_socket", error.to_string(), ""))?;
    }
    let probes =
        Arc::new(TcpProbes { peer, from, timeout, connected: Mutex::new(connected), answers: Mutex::new(answers) });
    let (sender, events) = channel();
    let seed = u64::from_ne_bytes(random()?);
    let probing = Probing::start(probes, parameters, seed, move |observed| _ = sender.send(observed))
        .map_err(|error| SessionError::new("data_socket", error.to_string(), ""))?;
    watch(probing, &events, stop, observe)
}

/// Hands over what `probing` sees until its end.
pub(super) fn watch(
    mut probing: Probing,
    events: &Receiver<Observed>,
    stop: Option<Stop>,
    mut observe: impl FnMut(Observed),
) -> Result<(), SessionError> {
    loop {
        match events.recv_timeout(LOOK) {
            Ok(observed) => {
                let ended = observed.ended.is_some();
                observe(observed);
                if ended {
                    probing.join();
                    return Ok(());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(SessionError::new("internal", "the threads of the measurement have ended", "report this"));
            }
        }
        match stop.map_or(0, |stop| stop.count()) {
            0 => {}
            1 => probing.stop(),
            _ => return Err(interrupted()),
        }
    }
}

struct TcpProbes {
    peer: SocketAddr,
    from: Option<SocketAddr>,
    timeout: Nanos,
    connected: Mutex<Sender<Answer>>,
    answers: Mutex<Receiver<Answer>>,
}

impl Probes for TcpProbes {
    fn send(&self, sequence: u64, program_ns: i64) {
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (peer, from, timeout) = (self.peer, self.from, self.timeout);
        // It ends by itself, at the latest after the time-out: few are there at a time.
        let _ = Builder::new().name("connect".into()).spawn(move || {
            let began = monotonic();
            let outcome = connect_to(peer, from, &TcpOptions::default(), began.saturating_add(timeout));
            let took = monotonic().saturating_sub(began);
            let came_back = match &outcome {
                Ok(_) => true,
                Err(TcpOpenError::Refused { .. }) => true,
                Err(TcpOpenError::Step { source, .. }) => source.kind() == ErrorKind::ConnectionReset,
                Err(_) => false,
            };
            if came_back {
                let received_ns = program_ns.saturating_add(i64::try_from(took.0).unwrap_or(i64::MAX));
                let received_by = StampedBy::Program;
                let _ = connected.send(Answer {
                    sequence,
                    echoed_ns: None,
                    received_ns,
                    received_by,
                    responder: None,
                    hops_left: None,
                });
            }
        });
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn receive(&self, account: &Shared, deadline: Nanos) -> bool {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = Duration::from_nanos(deadline.saturating_sub(monotonic()).0);
        if let Ok(answer) = answers.recv_timeout(wait) {
            account.with(|account| _ = account.answer(answer));
        }
        false
    }
}
