//! What was lost at this end, and what was sent again.

use longhaul_session::control::{Collect, DataPlan, SessionError, TcpParameters};
use longhaul_session::locate::{Location, LocationMethod, Total};
use longhaul_session::result::Warning;
use longhaul_session::tcp::{Segment, Side, TcpDrop, TcpEndReport};

use super::flow::Flow;
use crate::counters::Before;

/// Watches this end's losses until it is finished.
#[derive(Debug, Default)]
pub(super) struct Losses {
    before: Option<Before>,
}

/// Counters of what TCP itself dropped for want of memory, in `TcpExt`; what they count are packets.
const PRUNED: [&str; 6] =
    ["RcvPruned", "TCPRcvQDrop", "TCPOFODrop", "TCPZeroWindowDrop", "TCPBacklogDrop", "PFMemallocDrop"];

impl Losses {
    /// Begins before the first connection.
    ///
    /// # Errors
    /// Where the plan says `bpf` and there is none to be had.
    pub(super) fn watch(parameters: &TcpParameters, _warnings: &mut [Warning]) -> Result<Self, SessionError> {
        let before = (parameters.collect != Collect::Off).then(Before::take);
        Ok(Self { before })
    }

    /// Another connection.
    pub(super) fn follow(&mut self, _flow: &Flow) {}

    /// Adds what was seen to the report.
    pub(super) fn finish(self, plan: &DataPlan, server: bool, report: &mut TcpEndReport, warnings: &mut Vec<Warning>) {
        let Some(before) = self.before else { return };
        let received = before.changes(true);
        let sent = before.changes(false);
        if let [first, rest @ ..] = &received.unread[..] {
            let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            let message = format!("counters could not be read: {first}{more}");
            warnings.push(Warning::new(
                "counters_unread",
                message,
                "run as root; what they count may lie in `network`",
            ));
        }
        report.method = LocationMethod::Counters;
        report.complete = received.complete;
        report.counters.extend(received.all);
        let mut add = |backward: bool, segment: Segment, side: Side, total: &Total| {
            let reason = total.reason.clone();
            report.drops.push(TcpDrop { backward, segment, side, reason, packets: total.packets, bytes: None });
        };
        // What goes out is data where this end sends, what comes in is data where it receives; an end that does both cannot tell
        // data from acknowledgements by counters, and the larger of them is taken.
        let (forth, back) = (server, !server);
        for total in &sent.totals {
            match (plan.sends, plan.receives) {
                (true, _) => add(forth, Segment::Data, Side::Transmit, total),
                (false, _) => add(back, Segment::Ack, Side::Transmit, total),
            }
        }
        let in_front_of_tcp = |total: &&Total| {
            matches!(total.location, Location::ReceiverRing | Location::ReceiverBacklog | Location::ReceiverFilter)
        };
        for total in received.totals.iter().filter(in_front_of_tcp) {
            match plan.receives {
                true => add(back, Segment::Data, Side::Receive, total),
                false => add(forth, Segment::Ack, Side::Receive, total),
            }
        }
        if plan.receives {
            let pruned = report.counters.iter().filter_map(|(name, by)| {
                let known = PRUNED.iter().any(|known| name.ends_with(&format!("TcpExt.{known}")));
                Some((name.clone(), u64::try_from(*by).ok().filter(|by| known && *by > 0)?))
            });
            let pruned: Vec<_> = pruned.collect();
            report.drops.extend(pruned.into_iter().map(|(reason, packets)| TcpDrop {
                backward: back,
                segment: Segment::Data,
                side: Side::Pruned,
                reason,
                packets,
                bytes: None,
            }));
        }
    }
}
