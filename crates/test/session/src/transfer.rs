//! The part of a test in which data is sent, the same at both ends: the sender reports when it has finished, the receiver waits for
//! data in flight, then both ends read their counters.
//!
//! ```text
//! sender                              receiver
//!   │ ═══════ data ═══════════════════► │
//!   │ ◄───────────────────── Progress   │  each interval
//!   │  Finished {sent_packets}          │
//!   │ ────────────────────────────────► │  waits until nothing arrives
//!   │                        Drained    │  CollectReport
//!   │ ◄──────────────────────────────── │
//!   │  CollectReport                    │
//! ```

use longhaul_terms::StreamSent;
use longhaul_units::Nanos;

use super::kind::TestKind;
use super::limits::{DRAIN_LIMIT, OVERRUN, PEER_SILENCE, REPORT_TIMEOUT};
use super::line::Line;
use super::message::{Message, Progress, SessionError};
use super::output::Output;

/// Intervals that the peer may be ahead.
const INTERVALS_EARLIER: u64 = 16;

/// What a driver says of the data of a test that runs.
#[derive(Debug)]
pub enum DataEvent {
    /// This end has stopped sending, after `StartSending` or `StopSending`: the counts of each stream.
    Sent(Vec<StreamSent>),
    /// An interval is over: what this end received so far.
    Progress(Progress),
    /// The peer closed the connection of a TCP stream, after it had brought so many bytes: it sends no more over it.
    StreamEnded {
        /// The number of the stream within its direction.
        stream: u8,
        /// What arrived over it.
        bytes: u64,
    },
    /// After `PeerFinished`: packets still arrive.
    Arrivals,
    /// After `PeerFinished`: all packets have arrived.
    Drained,
}

#[derive(Debug)]
pub(super) struct Transfer {
    streams: usize,
    begin: Nanos,
    /// It is over by then, or fails.
    over_by: Nanos,
    /// How often each end says what it received; `None`: never.
    interval: Option<Nanos>,
    /// How often the peer did.
    told: u64,
    /// If nothing arrives for this time, all data has arrived.
    drain_quiet: Nanos,
    sending: Sending,
    receiving: Receiving,
    /// What the peer last said that it received.
    heard: Option<Progress>,
    /// The peer says nothing any more.
    cut: bool,
    /// The peer had this end stop sending, before this end did so by itself.
    stopped_by_peer: bool,
    collecting: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sending {
    No,
    /// Sends; must finish by this time.
    Until(Nanos),
    /// Was asked to stop; must report what it sent by this time.
    Stopping(Nanos),
    /// Has reported what it sent; the peer must have drained by this time.
    Finished(Nanos),
    Drained,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Receiving {
    No,
    /// The peer sends; must finish by this time.
    Until(Nanos),
    /// The peer has finished; waits until nothing arrives, or until this time.
    Draining {
        quiet: Nanos,
        limit: Nanos,
    },
    Drained,
}

impl Transfer {
    /// A transfer that begins now. A sender is stopped after `stop_after`; nobody is waited for after `over_by`.
    pub(super) fn new(
        now: Nanos,
        sends: bool,
        receives: bool,
        kind: &dyn TestKind,
        stop_after: Nanos,
        over_by: Nanos,
    ) -> Self {
        let end = now.saturating_add(stop_after);
        // The peer began up to a path's delay later, and its last message may be retransmitted.
        let peer_end = end.saturating_add(OVERRUN).saturating_add(PEER_SILENCE);
        Self {
            streams: kind.streams().into(),
            begin: now,
            over_by,
            interval: kind.interval_ns().map(Nanos),
            told: 0,
            drain_quiet: kind.drain_quiet(),
            sending: if sends { Sending::Until(end) } else { Sending::No },
            receiving: if receives { Receiving::Until(peer_end.min(over_by)) } else { Receiving::No },
            heard: None,
            cut: false,
            stopped_by_peer: false,
            collecting: false,
        }
    }

    /// Handles a message of this part; returns any other message.
    pub(super) fn handle_message(&mut self, now: Nanos, message: Message, line: &mut Line) -> Option<Message> {
        match (message, self.sending, self.receiving) {
            (Message::Alive, ..) => {}
            (Message::Progress(progress), sending, _) if sending != Sending::No => {
                self.heard = Some(progress);
                // A line each on a terminal: no more than there can have been intervals.
                if self.told < self.intervals(now) {
                    self.told += 1;
                    line.push(Output::Progress(progress));
                }
            }
            (Message::Stop, sending, _) => {
                self.stopped_by_peer |= matches!(sending, Sending::Until(_));
                self.stop(now, line);
            }
            (Message::Finished { streams }, _, Receiving::Until(_)) if streams.len() == self.streams => {
                let quiet = now.saturating_add(self.drain_quiet);
                let limit = now.saturating_add(DRAIN_LIMIT).min(self.over_by);
                self.receiving = Receiving::Draining { quiet, limit };
                line.push(Output::PeerFinished(streams));
            }
            (Message::Drained, Sending::Finished(_), _) => {
                self.sending = Sending::Drained;
                self.advance(line);
            }
            (message, ..) => return Some(message),
        }
        None
    }

    /// How many intervals the peer can have seen since the begin: its clock is another one, and it may have begun earlier.
    fn intervals(&self, now: Nanos) -> u64 {
        let Some(interval) = self.interval else { return 0 };
        let passed = now.saturating_sub(self.begin).0 / interval.0.max(1);
        passed.saturating_add(passed / 64).saturating_add(INTERVALS_EARLIER)
    }

    /// Stops sending early.
    pub(super) fn stop(&mut self, now: Nanos, line: &mut Line) {
        if let Sending::Until(_) = self.sending {
            self.sending = Sending::Stopping(now.saturating_add(OVERRUN));
            line.push(Output::StopSending);
        }
    }

    /// The peer is lost: this end stops, and reports what it has.
    pub(super) fn cut(&mut self, now: Nanos, line: &mut Line) {
        self.cut = true;
        self.stop(now, line);
        self.advance(line);
    }

    /// What the peer last said that it received.
    pub(super) fn heard(&self) -> Option<Progress> {
        self.heard
    }

    /// Whether the peer had this end stop sending, before this end did so by itself.
    pub(super) fn is_stopped_by_peer(&self) -> bool {
        self.stopped_by_peer
    }

    /// Handles what the driver says of the data.
    pub(super) fn handle_data(&mut self, now: Nanos, event: DataEvent, line: &mut Line) {
        match (event, self.sending, self.receiving) {
            (DataEvent::Sent(streams), Sending::Until(_) | Sending::Stopping(_), _) => {
                let end = now.saturating_add(DRAIN_LIMIT).saturating_add(PEER_SILENCE);
                self.sending = Sending::Finished(end.min(self.over_by));
                line.say(now, Message::Finished { streams });
                self.advance(line);
            }
            (DataEvent::Progress(progress), _, Receiving::Until(_)) => line.say(now, Message::Progress(progress)),
            (DataEvent::Arrivals, _, Receiving::Draining { limit, .. }) => {
                self.receiving = Receiving::Draining { quiet: now.saturating_add(self.drain_quiet), limit };
            }
            (DataEvent::Drained, _, Receiving::Draining { .. }) => {
                self.receiving = Receiving::Drained;
                line.say(now, Message::Drained);
                self.advance(line);
            }
            _ => {}
        }
    }

    /// How long it has run.
    pub(super) fn running_for(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.begin)
    }

    /// By when it is over.
    pub(super) fn over_by(&self) -> Nanos {
        self.over_by
    }

    /// Whether this end can submit its report.
    pub(super) fn is_over(&self) -> bool {
        self.collecting
    }

    fn advance(&mut self, line: &mut Line) {
        let sent = matches!(self.sending, Sending::No | Sending::Drained)
            || self.cut && matches!(self.sending, Sending::Finished(_));
        let received = self.cut || matches!(self.receiving, Receiving::No | Receiving::Drained);
        if sent && received && !self.collecting {
            self.collecting = true;
            line.push(Output::CollectReport);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Nanos, line: &mut Line) {
        if self.collecting {
            return;
        }
        match self.sending {
            Sending::Until(end) if now >= end => self.stop(now, line),
            Sending::Stopping(end) if self.cut && now >= end => {
                self.sending = Sending::Drained;
                self.advance(line);
            }
            Sending::Stopping(end) if now >= end => {
                line.fail(
                    now,
                    SessionError::new(
                        "overrun",
                        "the sender did not stop when asked",
                        "report this as a bug of longhaul",
                    ),
                );
            }
            Sending::Finished(end) if now >= end => {
                line.fail(now, SessionError::new("overrun", "the receiver did not finish", "try again"));
            }
            _ => {}
        }
        match self.receiving {
            Receiving::Until(end) if now >= end && !self.cut && !line.is_over() => {
                let text = "the sender did not stop at the end of the test";
                line.fail(now, SessionError::new("overrun", text, "try again"));
            }
            Receiving::Draining { quiet, limit } if now >= quiet.min(limit) => {
                self.handle_data(now, DataEvent::Drained, line)
            }
            _ => {}
        }
    }

    pub(super) fn poll_timeout(&self) -> Nanos {
        if self.collecting {
            return Nanos::MAX;
        }
        let sending = match self.sending {
            Sending::Until(end) | Sending::Stopping(end) | Sending::Finished(end) => end,
            Sending::No | Sending::Drained => Nanos::MAX,
        };
        let receiving = match self.receiving {
            Receiving::Until(end) if !self.cut => end,
            Receiving::Until(_) => Nanos::MAX,
            Receiving::Draining { quiet, limit } => quiet.min(limit),
            Receiving::No | Receiving::Drained => Nanos::MAX,
        };
        sending.min(receiving)
    }
}

/// The time by which both reports must have been exchanged.
pub(super) fn report_deadline(now: Nanos) -> Nanos {
    now.saturating_add(REPORT_TIMEOUT)
}
