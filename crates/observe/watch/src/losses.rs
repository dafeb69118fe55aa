//! Drops on this host and retransmissions of the followed connections, from kernel events.

use std::collections::BTreeMap;

use longhaul_bpf::symbols::Symbols;
use longhaul_bpf::tcp_loss::{MAX_CONNECTIONS, TcpLoss, tcp_place};
use longhaul_result::{Caveat, TcpLocation};
use longhaul_tcp::{Flow, Retransmitted, Segment, TcpDrop, WatchedConnection};

use crate::connection::Seen;

/// Counts drops and retransmissions of the first [`MAX_CONNECTIONS`] connections.
#[derive(Debug)]
pub(crate) struct Losses {
    events: Option<TcpLoss>,
    namespace_inode: u64,
    /// Connections with a number below this are followed.
    followed: u32,
}

impl Losses {
    /// Attaches the events. A failure becomes a caveat.
    pub(crate) fn attach(namespace_inode: u64, caveats: &mut Vec<Caveat>) -> Self {
        let events = TcpLoss::attach().map_err(|error| {
            let message = format!("drops on this host are not seen: {error}");
            caveats.push(Caveat::new(
                longhaul_bpf::caveats::NO_DROP_EVENTS,
                message,
                "run as root on Linux 5.17 or newer",
            ));
        });
        Self { events: events.ok(), namespace_inode, followed: 0 }
    }

    /// Follows another connection. Numbers must come in order.
    pub(crate) fn follow(&mut self, number: u32, seen: &Seen) {
        if let Some(events) = &self.events
            && number == self.followed
            && number < MAX_CONNECTIONS
            && events.follow(number, seen.local, seen.remote).is_ok()
        {
            self.followed += 1;
        }
    }

    /// Adds drops and retransmissions to `connections`.
    pub(crate) fn finish(&self, connections: &mut [WatchedConnection]) {
        let Some(events) = &self.events else { return };
        let symbols = Symbols::read().ok();
        let mut sums: BTreeMap<(u32, Segment, TcpLocation, String), (u64, u64)> = BTreeMap::new();
        for drop in events.drops().unwrap_or_default() {
            // A drop in another namespace belongs to the other end or to the network.
            let foreign = drop.namespace_inode.is_some_and(|inode| u64::from(inode) != self.namespace_inode);
            if foreign && !drop.namespace_of_task {
                continue;
            }
            let Some(connection) = connections.iter().find(|one| one.number == drop.connection) else { continue };
            let symbol = symbols.as_ref().and_then(|symbols| symbols.name(drop.location)).unwrap_or("");
            let reason = events.reason_names().name(drop.reason);
            let Some(location) = tcp_place(&reason, symbol, drop.from_here) else { continue };
            let sends = connection.flow == Flow::Sending;
            let segment = if drop.from_here == sends { Segment::Data } else { Segment::Ack };
            let why = if symbol.is_empty() { reason.to_string() } else { format!("{reason} @ {symbol}") };
            let (packets, bytes) = sums.entry((drop.connection, segment, location, why)).or_default();
            *packets += drop.packets;
            *bytes += drop.bytes;
        }
        for connection in connections.iter_mut().filter(|one| one.number < self.followed) {
            if let Ok(sum) = events.retransmitted(connection.number) {
                let (packets, payload_bytes, ip_bytes) = (sum.packets, sum.payload_bytes, sum.ip_bytes);
                connection.retransmitted = Some(Retransmitted { packets, payload_bytes, ip_bytes });
            }
            let own = sums.iter().filter(|((number, ..), _)| *number == connection.number);
            connection.drops = own
                .map(|((_, segment, location, reason), (packets, bytes))| TcpDrop {
                    backward: false,
                    segment: *segment,
                    location: *location,
                    reason: reason.clone(),
                    packets: *packets,
                    bytes: Some(*bytes),
                })
                .collect();
        }
    }
}
