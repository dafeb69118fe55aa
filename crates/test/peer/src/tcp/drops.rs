//! What this end dropped, and what it retransmitted: by the kernel's events where it has them, else by counters.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use longhaul_bpf::symbols::Symbols;
use longhaul_bpf::tcp_loss::{TcpDropSum, TcpLoss, tcp_place};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_result::{Caveat, Location, LocationMethod, TcpLocation};
use longhaul_session::{DataPlan, DroppedData, SessionError};
use longhaul_tcp::proof::TcpStreamId;
use longhaul_tcp::{Retransmitted, Segment, TcpDrop, TcpEndReport, TcpParameters};
use longhaul_terms::Collect;
use longhaul_udp::locate::Total;

use super::flow::Flow;
use crate::counters::{Before, Changed, without_event};
use crate::data::no_drop_events;

/// Watches this end's drops until it is finished.
#[derive(Debug, Default)]
pub(super) struct Drops {
    before: Option<Before>,
    events: Option<TcpLoss>,
    /// The connections that are followed, by their number there.
    followed: Vec<TcpStreamId>,
    namespace: Option<u64>,
    /// The kernel's functions.
    symbols: OnceCell<Option<Symbols>>,
}

/// Counters of what TCP itself dropped for lack of memory, in `TcpExt`. They count packets.
const PRUNED: [&str; 6] =
    ["RcvPruned", "TCPRcvQDrop", "TCPOFODrop", "TCPZeroWindowDrop", "TCPBacklogDrop", "PFMemallocDrop"];

impl Drops {
    /// Begins before the first connection.
    ///
    /// # Errors
    /// Where the plan says `bpf` and there are no events.
    pub(super) fn watch(parameters: &TcpParameters, caveats: &mut Vec<Caveat>) -> Result<Self, SessionError> {
        let before = (parameters.collect != Collect::Off).then(Before::take);
        let events = match parameters.collect {
            Collect::Auto | Collect::Bpf => match TcpLoss::attach() {
                Ok(events) => Some(events),
                Err(error) => {
                    caveats.push(no_drop_events(parameters.collect, &error)?);
                    None
                }
            },
            Collect::Counters | Collect::Off => None,
        };
        let namespace = NetNamespace::current().and_then(|own| own.inode()).ok();
        Ok(Self { before, events, followed: Vec::new(), namespace, symbols: OnceCell::new() })
    }

    /// Another connection.
    pub(super) fn follow(&mut self, flow: &Flow) {
        let Some(events) = &self.events else { return };
        let addresses = flow.socket().local_addr().and_then(|local| Ok((local, flow.socket().peer_addr()?)));
        let number = self.followed.len() as u32;
        // A connection that is not followed would seem to have no drops: then no events count at all.
        match addresses.and_then(|(local, remote)| events.follow(number, local, remote)) {
            Ok(()) => self.followed.push(flow.id),
            Err(_) => self.events = None,
        }
    }

    /// Packets with data that this end dropped so far: of those that it `sent`, or of those that were sent to it.
    pub(super) fn so_far(&self, server: bool, sent: bool) -> DroppedData {
        let mut sum = DroppedData::default();
        let drops = self.events.as_ref().and_then(|events| events.drops().ok()).unwrap_or_default();
        for drop in drops.iter().filter(|drop| drop.from_here == sent && !self.is_foreign(drop)) {
            let known = self.followed.get(drop.connection as usize);
            if known.is_none_or(|id| (id.backward == server) != sent) {
                continue;
            }
            match self.place(drop).map(|(location, _)| location) {
                Some(TcpLocation::Transmit) => sum.snd_txloss += drop.packets,
                Some(TcpLocation::Receive) => sum.rcv_rxloss += drop.packets,
                Some(TcpLocation::Pruned) => sum.tcp_pruning += drop.packets,
                None => {}
            }
        }
        sum
    }

    /// Where a packet was dropped, and why in words; `None` where the drop is no loss.
    fn place(&self, drop: &TcpDropSum) -> Option<(TcpLocation, String)> {
        // Read once, and only where something was dropped.
        let symbols = self.symbols.get_or_init(|| Symbols::read().ok());
        let symbol = symbols.as_ref().and_then(|symbols| symbols.name(drop.location)).unwrap_or("");
        let reason = self.events.as_ref()?.reason_names().name(drop.reason);
        let location = tcp_place(&reason, symbol, drop.from_here)?;
        Some((location, if symbol.is_empty() { reason.to_string() } else { format!("{reason} @ {symbol}") }))
    }

    /// Adds what was seen to the report.
    pub(super) fn finish(self, plan: &DataPlan, server: bool, report: &mut TcpEndReport, caveats: &mut Vec<Caveat>) {
        let Some(before) = &self.before else { return };
        let received = before.received();
        caveats.extend(received.unread_caveat());
        report.counters.extend(received.all.clone());
        match &self.events {
            Some(events) => self.by_events(events, plan, server, report, &received),
            None => self.by_counters(before, plan, server, report, &received),
        }
    }

    fn by_events(
        &self,
        events: &TcpLoss,
        plan: &DataPlan,
        server: bool,
        report: &mut TcpEndReport,
        counters: &Changed,
    ) {
        report.method = LocationMethod::Bpf;
        let drops = events.drops();
        report.complete = drops.is_ok() && events.missed_drops().is_ok_and(|missed| missed == 0);
        let mut sums: BTreeMap<(bool, Segment, TcpLocation, String), (u64, u64)> = BTreeMap::new();
        for drop in drops.unwrap_or_default().iter().filter(|drop| !self.is_foreign(drop)) {
            let Some(id) = self.followed.get(drop.connection as usize) else { continue };
            let Some((location, why)) = self.place(drop) else { continue };
            let sends = id.backward == server;
            let segment = if drop.from_here == sends { Segment::Data } else { Segment::Ack };
            let (packets, bytes) = sums.entry((id.backward, segment, location, why)).or_default();
            *packets += drop.packets;
            *bytes += drop.bytes;
        }
        report.drops.extend(sums.into_iter().map(|((backward, segment, location, reason), (packets, bytes))| {
            TcpDrop { backward, segment, location, reason, packets, bytes: Some(bytes) }
        }));
        // What never became a packet in memory, in a NIC's full ring, has no event; a virtual interface's ring has both.
        let placed: u64 =
            report.drops.iter().filter(|drop| drop.location == TcpLocation::Receive).map(|drop| drop.packets).sum();
        for total in counters.totals.iter().filter(|total| without_event(total.location, &total.reason)) {
            let packets = total.packets.saturating_sub(placed);
            if packets > 0 {
                report.drops.push(receive_side(plan, server, &Total { packets, ..total.clone() }));
            }
        }
        for (number, id) in (0..).zip(&self.followed) {
            let retransmitted = events.retransmitted(number).ok().filter(|_| id.backward == server);
            if let (Some(all), Some(stream)) =
                (retransmitted, report.streams.iter_mut().find(|stream| stream.id() == *id))
            {
                let (packets, payload_bytes, ip_bytes) = (all.packets, all.payload_bytes, all.ip_bytes);
                stream.retransmitted = Some(Retransmitted { packets, payload_bytes, ip_bytes });
            }
        }
    }

    /// Whether it happened in another namespace: the other end reports that, or it is an emulator, which is the network.
    fn is_foreign(&self, drop: &TcpDropSum) -> bool {
        !drop.namespace_of_task
            && drop.namespace_inode.zip(self.namespace).is_some_and(|(inode, own)| u64::from(inode) != own)
    }

    fn by_counters(
        &self,
        before: &Before,
        plan: &DataPlan,
        server: bool,
        report: &mut TcpEndReport,
        received: &Changed,
    ) {
        report.method = LocationMethod::Counters;
        report.complete = received.complete;
        let (forth, back) = (server, !server);
        // Which packets without a neighbour can be the test's is not known.
        for total in &before.sent(None).totals {
            let (backward, segment) = if plan.sends { (forth, Segment::Data) } else { (back, Segment::Ack) };
            let (reason, packets) = (total.reason.clone(), total.packets);
            report.drops.push(TcpDrop {
                backward,
                segment,
                location: TcpLocation::Transmit,
                reason,
                packets,
                bytes: None,
            });
        }
        let in_front_of_tcp = |total: &&Total| {
            matches!(total.location, Location::ReceiverRing | Location::ReceiverBacklog | Location::ReceiverFilter)
        };
        report
            .drops
            .extend(received.totals.iter().filter(in_front_of_tcp).map(|total| receive_side(plan, server, total)));
        if plan.receives {
            let pruned = report.counters.iter().filter_map(|(name, by)| {
                let known = PRUNED.iter().any(|known| name.ends_with(&format!("TcpExt.{known}")));
                let packets = u64::try_from(*by).ok().filter(|by| known && *by > 0)?;
                let (segment, location, reason) = (Segment::Data, TcpLocation::Pruned, name.clone());
                Some(TcpDrop { backward: back, segment, location, reason, packets, bytes: None })
            });
            let pruned: Vec<_> = pruned.collect();
            report.drops.extend(pruned);
        }
    }
}

/// A counter of packets that came in and did not reach TCP. It does not distinguish data and acknowledgments: they count as data where
/// this end receives any.
fn receive_side(plan: &DataPlan, server: bool, total: &Total) -> TcpDrop {
    let (backward, segment) = if plan.receives { (!server, Segment::Data) } else { (server, Segment::Ack) };
    let (reason, packets) = (total.reason.clone(), total.packets);
    TcpDrop { backward, segment, location: TcpLocation::Receive, reason, packets, bytes: None }
}
