//! The part of a test in which data flows, the same at both ends: who sends says when it is done, who receives waits for what is
//! still on its way, and then each end looks at its counters.
//!
//! ```text
//! sender                              receiver
//!   │ ═══════ data ═══════════════════► │
//!   │ ◄───────────────────── Progress   │  each interval
//!   │  Finished {sent_packets}          │
//!   │ ────────────────────────────────► │  waits until nothing arrives any more
//!   │                        Drained    │  CollectReport
//!   │ ◄──────────────────────────────── │
//!   │  CollectReport                    │
//! ```

use longhaul_terms::StreamSent;
use longhaul_units::Nanos;

use super::limits::{DRAIN_LIMIT, DRAIN_QUIET, OVERRUN, PEER_SILENCE, REPORT_TIMEOUT};
use super::line::Line;
use super::message::{Message, Progress, SessionError};
use super::output::Output;
use super::test_parameters::TestParameters;

#[derive(Debug)]
pub(super) struct Transfer {
    streams: usize,
    /// How long nothing may arrive before all that comes is there.
    drain_quiet: Nanos,
    sending: Sending,
    receiving: Receiving,
    collecting: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sending {
    No,
    /// Sends; must be done by then.
    Until(Nanos),
    /// Has been told to stop; must say what it sent by then.
    Stopping(Nanos),
    /// Has said what it sent; the peer must have drained by then.
    Finished(Nanos),
    Drained,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Receiving {
    No,
    /// The peer sends; must be done by then.
    Until(Nanos),
    /// The peer is done; until nothing arrives any more, or then.
    Draining {
        quiet: Nanos,
        limit: Nanos,
    },
    Drained,
}

impl Transfer {
    /// A transfer that begins now and in which a sender is stopped after `stop_after`.
    pub(super) fn new(now: Nanos, sends: bool, receives: bool, parameters: &TestParameters, stop_after: Nanos) -> Self {
        let end = now.saturating_add(stop_after);
        // The peer began up to a path's delay later, and its last word may have to be sent again.
        let peer_end = end.saturating_add(OVERRUN).saturating_add(PEER_SILENCE);
        Self {
            streams: parameters.streams().into(),
            drain_quiet: match parameters {
                TestParameters::Udp(_) => DRAIN_QUIET,
                // It says when it is over, and between two retransmissions there may be much time.
                TestParameters::Tcp(_) => DRAIN_LIMIT,
            },
            sending: if sends { Sending::Until(end) } else { Sending::No },
            receiving: if receives { Receiving::Until(peer_end) } else { Receiving::No },
            collecting: false,
        }
    }

    /// Takes a message of this part; gives it back where it is none.
    pub(super) fn handle_message(&mut self, now: Nanos, message: Message, line: &mut Line) -> Option<Message> {
        match (message, self.sending, self.receiving) {
            (Message::Alive, ..) => {}
            (Message::Progress(progress), sending, _) if sending != Sending::No => {
                line.push(Output::Progress(progress))
            }
            (Message::Stop, ..) => self.stop(now, line),
            (Message::Finished { streams }, _, Receiving::Until(_)) if streams.len() == self.streams => {
                let (quiet, limit) = (now.saturating_add(self.drain_quiet), now.saturating_add(DRAIN_LIMIT));
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

    /// Stops sending before its time.
    pub(super) fn stop(&mut self, now: Nanos, line: &mut Line) {
        if let Sending::Until(_) = self.sending {
            self.sending = Sending::Stopping(now.saturating_add(OVERRUN));
            line.push(Output::StopSending);
        }
    }

    pub(super) fn handle_sending_finished(&mut self, now: Nanos, streams: Vec<StreamSent>, line: &mut Line) {
        if let Sending::Until(_) | Sending::Stopping(_) = self.sending {
            self.sending = Sending::Finished(now.saturating_add(DRAIN_LIMIT).saturating_add(PEER_SILENCE));
            line.say(now, Message::Finished { streams });
        }
    }

    pub(super) fn handle_progress(&mut self, now: Nanos, progress: Progress, line: &mut Line) {
        if let Receiving::Until(_) = self.receiving {
            line.say(now, Message::Progress(progress));
        }
    }

    pub(super) fn handle_arrivals(&mut self, now: Nanos) {
        if let Receiving::Draining { quiet, .. } = &mut self.receiving {
            *quiet = now.saturating_add(self.drain_quiet);
        }
    }

    pub(super) fn handle_drained(&mut self, now: Nanos, line: &mut Line) {
        if let Receiving::Draining { .. } = self.receiving {
            self.receiving = Receiving::Drained;
            line.say(now, Message::Drained);
            self.advance(line);
        }
    }

    /// Whether the end may hand in its report.
    pub(super) fn is_over(&self) -> bool {
        self.collecting
    }

    fn advance(&mut self, line: &mut Line) {
        let sent = matches!(self.sending, Sending::No | Sending::Drained);
        let received = matches!(self.receiving, Receiving::No | Receiving::Drained);
        if sent && received && !self.collecting {
            self.collecting = true;
            line.push(Output::CollectReport);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Nanos, line: &mut Line) {
        match self.sending {
            Sending::Until(end) if now >= end => self.stop(now, line),
            Sending::Stopping(end) if now >= end => {
                line.fail(
                    now,
                    SessionError::new("overrun", "the sender did not stop when it was told to", "report this"),
                );
            }
            Sending::Finished(end) if now >= end => {
                line.fail(now, SessionError::new("overrun", "the receiver did not end its account", "try again"));
            }
            _ => {}
        }
        match self.receiving {
            Receiving::Until(end) if now >= end && !line.is_over() => {
                let text = "the sender went on beyond the time of the test";
                line.fail(now, SessionError::new("overrun", text, "try again"));
            }
            Receiving::Draining { quiet, limit } if now >= quiet.min(limit) => self.handle_drained(now, line),
            _ => {}
        }
    }

    pub(super) fn poll_timeout(&self) -> Nanos {
        let sending = match self.sending {
            Sending::Until(end) | Sending::Stopping(end) | Sending::Finished(end) => end,
            Sending::No | Sending::Drained => Nanos::MAX,
        };
        let receiving = match self.receiving {
            Receiving::Until(end) => end,
            Receiving::Draining { quiet, limit } => quiet.min(limit),
            Receiving::No | Receiving::Drained => Nanos::MAX,
        };
        sending.min(receiving)
    }
}

/// When the reports must have changed hands.
pub(super) fn report_deadline(now: Nanos) -> Nanos {
    now.saturating_add(REPORT_TIMEOUT)
}
