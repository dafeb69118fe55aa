//! The client: one test, from the connection to the result of both ends.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc;

use longhaul_channel::{Channel, Key, Role};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_result::Caveat;
use longhaul_result::caveats::SENDER_STOPPED;
use longhaul_rtt::{Observed, RttParameters};
use longhaul_session::EndReport;
use longhaul_session::{
    Caps, ClientConfig, ClientSession, DataEvent, MeasurementId, Message, Output, SessionError, TestEnd, TestParameters,
};
use longhaul_tcp::proof::TcpStreamId;
use longhaul_units::Nanos;

use crate::control::{Control, Remedy, Signals, any_of_family, connect, random};
use crate::data::{Data, ThisEnd};
use crate::driver::{Session, drive};
use crate::event::Event;
use crate::kinds;

pub use crate::data::{SenderNow, Source};
pub use crate::driver::{Live, Told};

/// Threads that probe wait for the last answers, at most as long as a probe's longest time-out.
const PROBES_END: Nanos = Nanos::from_secs(5);
/// What to do where no server answers at any of `addresses`.
pub fn serve(addresses: &[SocketAddr]) -> String {
    if addresses.iter().all(|address| address.ip().is_loopback()) {
        return "start `longhaul serve`".into();
    }
    format!(
        "start `longhaul serve --bind {} --key FILE` there (it listens on loopback without --bind), and open its port in the firewalls",
        any_of_family(addresses)
    )
}

/// The same for round trips.
pub fn serve_or_echo(addresses: &[SocketAddr]) -> String {
    serve(addresses) + "; without a server use --icmp, or --tcp PORT"
}

/// The code of a session's end because this host lost the address that it was held from.
pub const ADDRESS_CHANGED: &str = "address_changed";

/// Whom to test with.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// The key that both share; `None`: without encryption.
    pub key: Option<Key>,
    /// The address and ports to use on this host.
    pub source: Source,
}

impl Target {
    /// The server at `address`, from any address and port.
    pub fn at(address: SocketAddr, key: Option<Key>) -> Self {
        Self { address, key, source: Source::default() }
    }
}

/// The addresses of `host`, which is a name or an address, in the order in which to try them (RFC 6724); at least one.
///
/// # Errors
/// Where the name is unknown, or has no address of `family`.
pub fn resolve(host: &str, port: u16, family: Option<Family>) -> Result<Vec<SocketAddr>, SessionError> {
    let unknown =
        |why: String| SessionError::new("host_unknown", format!("{host}: {why}"), "check the name, or give an address");
    let addresses = (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    let is_wanted = |address: &SocketAddr| family.is_none_or(|family| (family == Family::V4) == address.is_ipv4());
    let mut wanted: Vec<SocketAddr> = addresses.into_iter().filter(is_wanted).collect();
    wanted.dedup();
    if wanted.is_empty() { Err(unknown("no address of that family".into())) } else { Ok(wanted) }
}

/// The first of `addresses` where a server accepts a connection. They are tried side by side, each a quarter of a second after the one
/// before (RFC 8305). A single one is not tried.
///
/// # Errors
/// None does, with what each said, and `remedy`; a signal of `stop`.
pub fn reachable(
    addresses: &[SocketAddr],
    source: Source,
    stop: Option<Stop>,
    remedy: Remedy,
) -> Result<SocketAddr, SessionError> {
    if let [only] = addresses {
        return Ok(*only);
    }
    let stream = connect(addresses, source.address, stop, remedy)?;
    stream.peer_addr().map_err(|error| SessionError::new("unreachable", error.to_string(), remedy(addresses)))
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Runs a test in which both ends report. Each interval calls `live` with the data that each receiver has received so far. Otherwise as [`measure`].
///
/// # Errors
/// As [`measure`], and where the server is lost while the test runs.
pub fn run(
    target: &Target,
    parameters: impl Into<TestParameters>,
    stop: Option<Stop>,
    mut live: impl FnMut(&Live),
) -> Result<TestEnd, SessionError> {
    let tell = |told: Told<'_>| {
        if let Told::Live(now) = told {
            live(now);
        }
    };
    measure(target, parameters, stop, tell)?.whole()
}

/// Runs a test. If the server is lost during the test, the returned end says so and has this end's figures. Calls `tell` while it waits for its turn,
/// and each interval with the data that each receiver has received so far. The first signal of `stop` ends the test early, with the figures so far; the
/// second one ends it at once.
///
/// # Errors
/// Why there is no result, with what to do.
pub fn measure(
    target: &Target,
    parameters: impl Into<TestParameters>,
    stop: Option<Stop>,
    tell: impl FnMut(Told<'_>),
) -> Result<TestEnd, SessionError> {
    run_with(target, parameters.into(), None, stop, serve, tell, |_| {})
}

/// Measures round trips with longhaul's server. Calls `observe` with what became of probes. Signals, and a server that is lost, as in [`measure`].
///
/// # Errors
/// Why there is no result, with what to do.
pub fn probe(
    target: &Target,
    parameters: RttParameters,
    stop: Option<Stop>,
    mut observe: impl FnMut(Observed),
) -> Result<TestEnd, SessionError> {
    run_with(target, parameters.into(), None, stop, serve_or_echo, |_| {}, &mut observe)
}

/// The same in a session of `measurement`, which has several: where the server still holds the one before, as this host has left it without
/// a word, it ends that one.
///
/// # Errors
/// As [`probe`].
pub fn probe_on(
    target: &Target,
    measurement: MeasurementId,
    parameters: RttParameters,
    stop: Option<Stop>,
    mut observe: impl FnMut(Observed),
) -> Result<TestEnd, SessionError> {
    run_with(target, parameters.into(), Some(measurement), stop, serve_or_echo, |_| {}, &mut observe)
}

/// The name of a new measurement.
///
/// # Errors
/// The kernel gives no random numbers.
pub fn new_measurement() -> Result<MeasurementId, SessionError> {
    Ok(MeasurementId([u64::from_ne_bytes(random()?), u64::from_ne_bytes(random()?)]))
}

fn run_with(
    target: &Target,
    mut parameters: TestParameters,
    measurement: Option<MeasurementId>,
    stop: Option<Stop>,
    remedy: Remedy,
    tell: impl FnMut(Told<'_>),
    mut observe: impl FnMut(Observed),
) -> Result<TestEnd, SessionError> {
    let stream = connect(&[target.address], target.source.address, stop, remedy)?;
    kinds::complete(&mut parameters, &stream);
    parameters
        .kind()
        .validate()
        .map_err(|error| SessionError::new("not_valid", error.to_string(), format!("change `{}`", error.field)))?;
    let channel = match &target.key {
        Some(key) => Channel::keyed(Role::Client, key, random()?),
        None => Channel::plain(Role::Client),
    };
    let (sender, receiver) = mpsc::channel();
    let io = |error: std::io::Error| SessionError::new("control", error.to_string(), "");
    let _signals = stop.map(|stop| Signals::watch(stop, sender.clone())).transpose().map_err(io)?;
    let mut control = Control::new(stream, channel, &sender).map_err(io)?;
    control.obey(stop);
    control.establish(&receiver)?;
    let (nonce, report_bytes) = (u64::from_ne_bytes(random()?), Caps::default().report.0);
    let config = ClientConfig { parameters, nonce, measurement, report_bytes };
    let session = ClientSession::new(monotonic(), config);
    let mut session = Client { session, observe: &mut observe, probes_run: false };
    let place = ThisEnd::Client { server: target.address, source: target.source };
    let driven = drive(&mut session, &mut control, &receiver, &sender, place, tell);
    drop(control);
    if session.probes_run && stop.is_none_or(|stop| stop.count() < 2) {
        hand_over_rest(&receiver, &mut observe);
    }
    driven.map(with_doubt)
}

/// The end of a test, with the doubt that belongs to it where a sender stopped early. What the server gives as its reason stands beside it.
fn with_doubt(mut end: TestEnd) -> TestEnd {
    let is_told = end.remote.as_ref().is_some_and(says_that_it_stopped);
    // Of a server that is lost the result says so.
    let is_whole = end.cut.is_none();
    let (why, remedy) = if end.stopped_by_server || end.ended_by_server && is_whole && !is_told {
        let remedy = "do not trust what this server reports, unless another caveat says why";
        ("the server ended the test before its time".to_owned(), remedy)
    } else if let Some(allowed) = end.fell_short.filter(|_| is_whole && !is_told && !says_why_it_stopped(&end.local)) {
        let why = format!("not all that was asked for was sent; this server allows {allowed} for a test");
        (why, "ask for less, or raise the server's cap on the time of a test")
    } else {
        return end;
    };
    end.caveats.push(Caveat::new(SENDER_STOPPED, format!("the sender stopped early: {why}"), remedy));
    end
}

/// Whether this end reports why it sent no more: the result has its caveat, or that of the stream that failed.
fn says_why_it_stopped(own: &EndReport) -> bool {
    let mut streams = own.tcp.iter().flat_map(|tcp| &tcp.streams);
    says_that_it_stopped(own) || streams.any(|stream| stream.sends && stream.failure.is_some())
}

/// Whether an end reports by itself that its sender stopped early. A report without a word says nothing.
fn says_that_it_stopped(end: &EndReport) -> bool {
    end.caveats.iter().any(|caveat| caveat.is(SENDER_STOPPED) && caveat.message.contains(char::is_alphanumeric))
}

/// Hands over what probes came to whose session broke off: their threads wait for the last answers.
fn hand_over_rest(events: &mpsc::Receiver<Event>, observe: &mut impl FnMut(Observed)) {
    let until = monotonic() + PROBES_END;
    while let Ok(event) = events.recv_timeout(until.saturating_sub(monotonic()).into()) {
        if let Event::Observed(observed) = event {
            let ended = observed.ended.is_some();
            observe(*observed);
            if ended {
                return;
            }
        }
    }
}

struct Client<'a> {
    session: ClientSession,
    observe: &'a mut dyn FnMut(Observed),
    /// Probes are sent, or their answers awaited.
    probes_run: bool,
}

impl Session for Client<'_> {
    fn handle_message(&mut self, now: Nanos, message: Message) {
        self.session.handle_message(now, message);
    }
    fn handle_data_opened(&mut self, now: Nanos, _: &mut dyn Data) {
        self.session.handle_data_opened(now);
    }
    fn handle_data_failed(&mut self, now: Nanos, error: SessionError) {
        self.session.handle_data_failed(now, error);
    }
    fn handle_data_probe(&mut self, now: Nanos, stream: u8, _: SocketAddr, bytes: &[u8]) {
        self.session.handle_data_probe(now, stream, bytes);
    }
    fn handle_data_blocked(&mut self, now: Nanos, dropped: &str) {
        self.session.handle_data_blocked(now, dropped);
    }
    fn handle_data_hello(&mut self, _: Nanos, _: SocketAddr, _: &[u8]) -> Option<TcpStreamId> {
        None
    }
    fn handle_data(&mut self, now: Nanos, event: DataEvent) {
        self.session.handle_data(now, event);
    }
    fn handle_observed(&mut self, observed: Observed) {
        self.probes_run = observed.ended.is_none();
        if observed.address_gone {
            let error =
                SessionError::new(ADDRESS_CHANGED, "this host no longer has the address that it probed from", "");
            self.session.handle_connection_lost(monotonic(), error);
        }
        (self.observe)(observed);
    }
    fn handle_report(&mut self, now: Nanos, report: EndReport) {
        self.session.handle_report(now, report);
    }
    fn handle_interrupt(&mut self, now: Nanos) {
        self.session.handle_interrupt(now);
    }
    fn handle_connection_lost(&mut self, now: Nanos, error: SessionError) {
        self.session.handle_connection_lost(now, error);
    }
    fn handle_timeout(&mut self, now: Nanos) {
        self.session.handle_timeout(now);
    }
    fn handle_admission(&mut self, _: Nanos, _: Option<Nanos>) {}
    fn poll_output(&mut self, _: Nanos) -> Option<Output> {
        self.session.poll_output()
    }
    fn poll_timeout(&self) -> Option<Nanos> {
        self.session.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_session::Cut;
    use longhaul_tcp::{TcpEndReport, TcpStreamReport};

    use super::*;

    fn doubts(end: TestEnd) -> Vec<String> {
        let caveats = with_doubt(end).caveats;
        assert!(caveats.iter().all(|caveat| caveat.is(SENDER_STOPPED)), "{caveats:?}");
        caveats.into_iter().map(|caveat| caveat.message).collect()
    }

    fn said(message: &str) -> EndReport {
        let caveats = vec![Caveat::new(SENDER_STOPPED, message, "")];
        EndReport { caveats, ..EndReport::default() }
    }

    fn failed(sends: bool, why: &str) -> EndReport {
        let stream = TcpStreamReport { sends, failure: Some(why.into()), ..TcpStreamReport::default() };
        let tcp = TcpEndReport { streams: vec![stream], ..TcpEndReport::default() };
        EndReport { tcp: Some(tcp), ..EndReport::default() }
    }

    #[test]
    fn a_test_that_the_server_ended_has_a_doubt() {
        let ended = |ended_by_server, server| TestEnd { ended_by_server, remote: Some(server), ..TestEnd::default() };
        assert!(doubts(ended(false, EndReport::default())).is_empty());
        let early = ["the sender stopped early: the server ended the test before its time"];
        // Failed streams may be of no test, or of another direction, and a reason without a word is none.
        for server in [EndReport::default(), failed(true, "broken pipe"), failed(false, ""), said(" \u{200b}")] {
            assert_eq!(doubts(ended(true, server.clone())), early);
            assert_eq!(doubts(TestEnd { stopped_by_server: true, ..ended(false, server) }), early);
        }
        // The result has what it says by itself, which fails as well.
        let no_route = said("the sender stopped early: no route");
        assert!(doubts(ended(true, no_route.clone())).is_empty());
        assert_eq!(doubts(TestEnd { stopped_by_server: true, ..ended(true, no_route) }), early);
        // Of a server that was lost it has that.
        let error = SessionError::new("shutdown", "the server is shutting down", "");
        let cut = Some(Cut { error, heard: None });
        assert!(doubts(TestEnd { cut, ended_by_server: true, ..TestEnd::default() }).is_empty());
    }

    #[test]
    fn an_amount_that_was_not_sent_has_a_doubt() {
        let short = |local| TestEnd { fell_short: Some(Nanos::from_secs(2)), local, ..TestEnd::default() };
        let told = doubts(short(EndReport::default()));
        assert!(told.len() == 1 && told[0].ends_with("this server allows 2s for a test"), "{told:?}");
        // A stream over which this end receives is no reason why it sent less.
        assert_eq!(doubts(short(failed(false, "reset"))).len(), 1);
        for local in [failed(true, "reset"), said("the sender stopped early: no route")] {
            assert!(doubts(short(local)).is_empty());
        }
    }
}
