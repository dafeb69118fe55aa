//! The loop that drives a session: events in, outputs out.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};

use longhaul_kernel::clock::monotonic;
use longhaul_rtt::Observed;
use longhaul_session::{DataEvent, EndReport, Message, Output, PacketsByLocation, Progress, SessionError, TestEnd};
use longhaul_tcp::proof::TcpStreamId;
use longhaul_units::{BitRate, Nanos};

use crate::control::{Control, ControlEvent, interrupted};
use crate::data::{Data, Opening, RATE_MEMORY, SenderNow, ThisEnd};
use crate::event::Event;
use crate::kinds;
use crate::tcp::Ending;

/// How often to look for arrivals once the sender is done.
const DRAIN_LOOK: Nanos = Nanos::from_millis(20);
/// Either end's session.
pub(crate) trait Session {
    fn handle_message(&mut self, now: Nanos, message: Message);
    fn handle_data_opened(&mut self, now: Nanos, data: &mut dyn Data);
    fn handle_data_failed(&mut self, now: Nanos, error: SessionError);
    fn handle_data_probe(&mut self, now: Nanos, stream: u8, from: SocketAddr, bytes: &[u8]);
    /// This host dropped datagrams of the proof: where.
    fn handle_data_blocked(&mut self, now: Nanos, dropped: &str);
    /// A data connection and its first bytes. Returns the stream it belongs to; `None`: close it.
    fn handle_data_hello(&mut self, now: Nanos, from: SocketAddr, bytes: &[u8]) -> Option<TcpStreamId>;
    fn handle_data(&mut self, now: Nanos, event: DataEvent);
    /// Probes of a measurement of round trips, at the client.
    fn handle_observed(&mut self, _observed: Observed) {}
    /// At the server: the client goes on in another session.
    fn handle_taken_over(&mut self) {}
    fn handle_report(&mut self, now: Nanos, report: EndReport);
    fn handle_interrupt(&mut self, now: Nanos);
    fn handle_connection_lost(&mut self, now: Nanos, error: SessionError);
    fn handle_timeout(&mut self, now: Nanos);
    /// At the server: the client sends faster than it was granted.
    fn handle_rate_passed(&mut self, _now: Nanos) {}
    /// Asks for admission; `None`: repeats the request.
    fn handle_admission(&mut self, now: Nanos, longest: Option<Nanos>);
    fn poll_output(&mut self, now: Nanos) -> Option<Output>;
    fn poll_timeout(&self) -> Option<Nanos>;
}

/// What a receiver has received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// Whether the receiver is this end; else the other end.
    pub own: bool,
    /// Since the start of the test.
    pub progress: Progress,
    /// The state of this end's sending flows, where it is the sender and this is a TCP test.
    pub sender: Option<SenderNow>,
    /// Packets of what the receiver is sent that this end, as the sender, dropped since the start.
    pub dropped_of_sent: PacketsByLocation,
}

/// What there is to tell the user of a test before its end.
#[derive(Debug, Clone, Copy)]
pub enum Told<'a> {
    /// It waits for so many others at the server, as that one says. This comes each 10 s at most.
    Waiting {
        /// Tests before this one.
        ahead: u32,
    },
    /// An interval of a receiver is over.
    Live(&'a Live),
}

/// When the next progress report is due, on the clock that begins with the first packet.
#[derive(Debug)]
struct Interval {
    every: Nanos,
    /// Since the first packet.
    due: Nanos,
    /// When to look next.
    look: Nanos,
}

impl Interval {
    fn new(now: Nanos, every: Nanos) -> Self {
        Self { every, due: every, look: now + every }
    }

    /// Whether an interval is over, `elapsed` after the first packet; zero before it.
    fn is_over(&mut self, now: Nanos, elapsed: Nanos) -> bool {
        let over = elapsed >= self.due;
        if over {
            self.due = elapsed - Nanos(elapsed.0 % self.every.0.max(1)) + self.every;
        }
        // The first packet may come at any time.
        let wait = if elapsed == Nanos::ZERO { self.every.min(DRAIN_LOOK) } else { self.due.saturating_sub(elapsed) };
        self.look = now + wait;
        over
    }
}

/// How often a server looks whether more arrives than its cap allows.
const RATE_LOOK: Nanos = Nanos::from_millis(500);

/// A server's watch over what arrives, from the moment when the data part is open.
#[derive(Debug)]
struct RateWatch {
    cap: BitRate,
    streams: u8,
    /// When it looked, and what had arrived by then.
    looked: Option<(Nanos, u64)>,
    /// When to look next.
    look: Nanos,
    /// What may still come at once, bits.
    allowed: u128,
}

impl RateWatch {
    fn new(cap: BitRate, streams: u8) -> Self {
        let mut watch = Self { cap, streams, looked: None, look: Nanos::ZERO, allowed: 0 };
        watch.allowed = watch.bits_in(Nanos::from_secs(1));
        watch
    }

    /// Twice what the cap allows in `time`, and what TCP sends before it is paced: ten segments of 64 KiB at most (RFC 6928), to each stream.
    fn bits_in(&self, time: Nanos) -> u128 {
        2 * u128::from(self.cap.0) * u128::from(time.0) / 1_000_000_000 + u128::from(self.streams) * (8 << 20)
    }

    /// Whether the client sends faster than it was granted, now that `bytes` were read in all.
    fn is_beyond(&mut self, now: Nanos, bytes: u64) -> bool {
        self.look = now + RATE_LOOK;
        if bytes == 0 {
            // The time begins with the first byte, which may have come since.
            self.looked = Some((now, 0));
            return false;
        }
        let (looked, before) = self.looked.replace((now, bytes)).unwrap_or((now, 0));
        let since = now.saturating_sub(looked).min(RATE_MEMORY);
        let refilled = 2 * u128::from(self.cap.0) * u128::from(since.0) / 1_000_000_000;
        let came = u128::from(bytes.saturating_sub(before)) * 8;
        let allowed = (self.allowed + refilled).min(self.bits_in(RATE_MEMORY));
        self.allowed = allowed.saturating_sub(came);
        came > allowed
    }
}

/// Drives `session` to its end. Calls `tell` with what there is to tell before that.
///
/// # Errors
/// Why there is no result, with what to do.
pub(crate) fn drive(
    session: &mut impl Session,
    control: &mut Control,
    events: &Receiver<Event>,
    sender: &Sender<Event>,
    place: ThisEnd,
    mut tell: impl FnMut(Told<'_>),
) -> Result<TestEnd, SessionError> {
    let mut data: Option<Box<dyn Data>> = None;
    let mut interval: Option<Interval> = None;
    let mut draining: Option<Nanos> = None;
    let mut receiving = false;
    let mut rate: Option<RateWatch> = None;
    let mut ending = Ending::default();
    // The control connection broke when it was written to: nothing is sent any more.
    let mut lost = false;
    loop {
        let mut more = false;
        while let Some(output) = session.poll_output(monotonic()) {
            let now = monotonic();
            match output {
                Output::SendMessage(message) => {
                    if control.send(&message).is_err() {
                        let error = SessionError::new("protocol", "a message is too long", "");
                        session.handle_connection_lost(now, error);
                    } else if matches!(message, Message::Report { last: false, .. }) {
                        // Each piece of a long report has the patience of a message, and between two the other end is heard.
                        more = true;
                        break;
                    }
                }
                Output::SendProbe { stream, to, bytes } => {
                    if let Some(data) = &data {
                        data.send_probe(stream, to, &bytes);
                    }
                }
                Output::LookForDrops => {
                    if let Some(dropped) = data.as_ref().and_then(|data| data.dropped_proof()) {
                        session.handle_data_blocked(now, &dropped);
                    }
                }
                Output::RequestAdmission { longest } => session.handle_admission(now, Some(longest)),
                Output::OpenData(plan) => {
                    receiving = plan.receives;
                    rate = place.rate_cap().map(|cap| RateWatch::new(cap, plan.parameters.kind().streams()));
                    interval = plan.parameters.kind().interval_ns().map(|every| Interval::new(now, Nanos(every)));
                    match kinds::open(Opening { plan, place, events: sender }) {
                        Ok(opened) => {
                            let opened = data.insert(opened);
                            if opened.is_open() {
                                session.handle_data_opened(now, opened.as_mut());
                            }
                        }
                        Err(error) => session.handle_data_failed(now, error),
                    }
                }
                Output::Proven { to } => {
                    if let Some(data) = &data {
                        data.proven(&to);
                    }
                }
                Output::StartSending { to } => {
                    if let Some(data) = &mut data {
                        data.start_sending(&to);
                    }
                }
                Output::StopSending => {
                    if let Some(data) = &data {
                        data.stop_sending();
                    }
                }
                Output::Waiting { ahead } => tell(Told::Waiting { ahead }),
                Output::Progress(progress) => {
                    let sender = data.as_ref().and_then(|data| data.sender_now());
                    let dropped_of_sent = data.as_ref().map(|data| data.dropped_of_sent()).unwrap_or_default();
                    tell(Told::Live(&Live { own: false, progress, sender, dropped_of_sent }));
                }
                Output::PeerFinished(streams) => {
                    draining = Some(Nanos::ZERO);
                    if let Some(data) = &mut data {
                        data.peer_finished(streams);
                    }
                }
                Output::CollectReport => {
                    draining = None;
                    if let Some(data) = data.take() {
                        let connections = data.connections();
                        let report = data.report();
                        ending = Ending::new(connections);
                        session.handle_report(monotonic(), report);
                    }
                }
                Output::Finished(end) => {
                    let _ = control.transmit();
                    // A server's next test begins after this.
                    ending.wait(events);
                    return Ok(*end);
                }
                Output::Failed(error) => {
                    let _ = control.transmit();
                    return Err(error);
                }
            }
        }
        if transmit(control, &mut lost, session) {
            continue;
        }

        let now = monotonic();
        if let (Some(last), Some(data)) = (&mut draining, &data) {
            if data.is_drained() == Some(true) {
                draining = None;
                session.handle_data(now, DataEvent::Drained);
                continue;
            }
            let arrival = data.last_arrival();
            if arrival > *last {
                *last = arrival;
                session.handle_data(now, DataEvent::Arrivals);
            }
        }
        if let (true, Some(interval), Some(data)) = (receiving, &mut interval, &data)
            && now >= interval.look
        {
            let progress = data.progress();
            if interval.is_over(now, Nanos(progress.elapsed_ns)) {
                let dropped_of_sent = PacketsByLocation::default();
                tell(Told::Live(&Live { own: true, progress, sender: None, dropped_of_sent }));
                session.handle_data(now, DataEvent::Progress(progress));
                continue;
            }
        }
        if let (Some(rate), Some(data)) = (&mut rate, &data)
            && now >= rate.look
            && rate.is_beyond(now, data.read_bytes())
        {
            session.handle_rate_passed(now);
            continue;
        }
        let mut until = session.poll_timeout().unwrap_or(Nanos::MAX);
        if until <= now {
            // Before further events, or a peer that never stops sending would delay it for ever.
            session.handle_timeout(now);
        }
        if more {
            until = now;
        }
        if draining.is_some() {
            until = until.min(now + DRAIN_LOOK);
        }
        if let (true, Some(interval)) = (receiving, &interval) {
            until = until.min(interval.look);
        }
        if let (Some(rate), Some(_)) = (&rate, &data) {
            until = until.min(rate.look);
        }
        // No wait is longer than a minute, as times have a greatest value.
        let wait = until.saturating_sub(now).min(Nanos::from_secs(60));
        match events.recv_timeout(wait.into()) {
            Err(RecvTimeoutError::Timeout) => session.handle_timeout(monotonic()),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(SessionError::new("internal", "the test's threads have ended", "report this"));
            }
            Ok(Event::Control(ControlEvent::Abort)) => return Err(interrupted()),
            Ok(event) => handle(event, session, control, data.as_deref_mut()),
        }
    }
}

/// Writes what is queued, unless the connection was `lost`. Whether it is lost now.
fn transmit(control: &mut Control, lost: &mut bool, session: &mut impl Session) -> bool {
    if *lost {
        return false;
    }
    if let Err(error) = control.transmit() {
        *lost = true;
        session.handle_connection_lost(monotonic(), SessionError::new("control_lost", error.to_string(), ""));
    }
    *lost
}

fn handle(event: Event, session: &mut impl Session, control: &mut Control, data: Option<&mut (dyn Data + 'static)>) {
    let now = monotonic();
    match (event, data) {
        (Event::Control(ControlEvent::Bytes(bytes)), _) => {
            let handled = control.handle_bytes(&bytes);
            while let Some(message) = control.poll_message() {
                session.handle_message(now, message);
            }
            if let Err(error) = handled {
                session.handle_connection_lost(now, error.into());
            }
        }
        (Event::Control(ControlEvent::Lost(why)), _) => {
            let message = format!("the control connection was lost: {why}");
            let error = SessionError::new("control_lost", message, "is the other end still running?");
            session.handle_connection_lost(now, error);
        }
        (Event::Control(ControlEvent::Interrupt), _) => session.handle_interrupt(now),
        (Event::Probe { stream, from, bytes, waits }, _) => {
            drop(waits);
            session.handle_data_probe(now, stream, from, &bytes);
        }
        (Event::Observed(observed), _) => session.handle_observed(*observed),
        (Event::TakenOver, _) => session.handle_taken_over(),
        (Event::AskAgain, _) => session.handle_admission(now, None),
        (Event::DataOpened, Some(data)) => match data.finish_opening() {
            Ok(()) => session.handle_data_opened(now, data),
            Err(error) => session.handle_data_failed(now, error),
        },
        (Event::Connection { connection, from, hello, waits }, Some(data)) => {
            drop(waits);
            // A stranger's connection ends here.
            if let Some(id) = session.handle_data_hello(now, from, &hello) {
                data.admit(id, connection);
            }
        }
        (Event::StreamSent(stream), Some(data)) => {
            if let Some(streams) = data.stream_sent(stream) {
                session.handle_data(now, DataEvent::Sent(streams));
            }
        }
        (Event::StreamEnded { stream, bytes }, _) => session.handle_data(now, DataEvent::StreamEnded { stream, bytes }),
        // The data part is closed; the loop ends with an abort.
        (Event::DataOpened | Event::Connection { .. } | Event::StreamSent(_), None)
        | (Event::Control(ControlEvent::Abort), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_rate_and_a_second_of_it_are_allowed() {
        let new = || RateWatch::new(BitRate(8_000_000), 2);
        let seconds = Nanos::from_secs;
        // Twice 1 MB in the first second, and 1 MiB a stream.
        let first = 2_000_000 + (2 << 20);
        let mut watch = new();
        assert!(!watch.is_beyond(seconds(1_000), 0), "the time begins with the first byte");
        assert!(!watch.is_beyond(seconds(1_001), first + 2_000_000), "it may have begun just after the last look");
        let mut watch = new();
        assert!(!watch.is_beyond(seconds(2_000), first));
        assert!(!watch.is_beyond(seconds(2_001), first + 2_000_000));
        assert!(watch.is_beyond(seconds(2_002), first + 4_000_001));
        assert!(new().is_beyond(seconds(1), first + 1), "at once");
        // Who is silent for an hour may not send all of that at once.
        let mut silent = new();
        assert!(!silent.is_beyond(seconds(1), 1));
        assert!(!silent.is_beyond(seconds(3_600), 1 + 20_000_000 + (2 << 20)));
        assert!(silent.is_beyond(seconds(3_600), 2 + 20_000_000 + (2 << 20)));
    }

    #[test]
    fn intervals_begin_with_the_first_packet() {
        let ms = Nanos::from_millis;
        let mut interval = Interval::new(ms(0), ms(500));
        assert!(!interval.is_over(ms(500), Nanos::ZERO));
        assert_eq!(interval.look, ms(520));
        // The first packet came 100 ms ago.
        assert!(!interval.is_over(ms(520), ms(100)));
        assert_eq!(interval.look, ms(920));
        // A look that is late does not move the next one.
        assert!(interval.is_over(ms(950), ms(530)));
        assert_eq!(interval.look, ms(1_420));
        assert!(interval.is_over(ms(2_500), ms(2_080)));
        assert_eq!((interval.due, interval.look), (ms(2_500), ms(2_920)));
    }
}
