//! The forwarding thread: packs snippets from blocks into datagrams for logging hosts, which take turns.
//!
//! It runs between the reading and the writing thread, or instead of the latter. Hosts take turns by datagram: the
//! traffic of a long fat network may be one flow, and a split by flow would give all of it to one host. TAPEE had two logging hosts; the paper
//! does not say how they shared the packets. A host that fails gets no more datagrams. If no host is left, snippets are dropped and counted, and
//! the capture continues.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use longhaul_captures::LinkType;
use longhaul_captures::ledger::{DroppedAt, Gap, Ledger};
use longhaul_captures::log_link::{Floor, LinkMessage};
use longhaul_captures::spool::{PacketBlock, Packets};
use longhaul_kernel::clock::{monotonic, thread_cpu_time};
use longhaul_units::Nanos;

use crate::blocks::{Pool, ToWriter};
use crate::counters::Counters;
use crate::link::{LinkEnd, LogLink};

/// How often messages from the logging hosts are read, at least.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often an empty datagram shows whether earlier ones are missing.
const EMPTY_EVERY: Nanos = Nanos::from_millis(150);
/// Drops less than this apart make one gap.
const JOINED_NS: i64 = 1_000_000_000;

pub(crate) struct Forwarder {
    pub(crate) from_reader: Receiver<ToWriter>,
    /// The writing thread, if the capture also writes local files.
    pub(crate) to_writer: Option<SyncSender<ToWriter>>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) links: Vec<LogLink>,
    pub(crate) started_ns: i64,
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // However it ends, nobody must wait for a block forever.
        if self.to_writer.is_none() {
            self.pool.close();
        }
    }
}

/// The outcome of the forwarding thread.
#[derive(Debug, Default)]
pub(crate) struct Forwarded {
    /// Packets for which no logging host was left.
    pub(crate) ledger: Ledger,
    pub(crate) links: Vec<LinkEnd>,
}

/// Snippets for the next datagram.
struct Packing {
    snippets: PacketBlock,
    /// Bytes that a datagram of the next link has for snippets.
    room_bytes: usize,
    next: usize,
    floor: Floor,
    emptied: Nanos,
}

impl Forwarder {
    /// Runs until the reading thread has ended and the logging hosts have closed their files.
    pub(crate) fn run(mut self) -> Forwarded {
        let mut packing = Packing {
            snippets: PacketBlock::with_capacity(1 << 16),
            room_bytes: self.links.first().map_or(0, LogLink::room_bytes),
            next: 0,
            floor: Floor::new(self.started_ns),
            emptied: monotonic(),
        };
        let mut own = Ledger::default();
        // From the reading thread: packets seen, and packets that arrived here or were dropped before.
        let (mut seen, mut taken) = (0_u64, 0_u64);
        loop {
            match self.from_reader.recv_timeout(LOOK_EVERY) {
                Ok(ToWriter::Block(block)) => {
                    taken += u64::from(block.packets());
                    self.forward(&block, &mut packing, &mut own);
                    self.pass_on(ToWriter::Block(block));
                }
                Ok(ToWriter::Ledger(part)) => {
                    seen += part.seen_packets;
                    taken += part.dropped();
                    self.tell_part(&part);
                    self.pass_on(ToWriter::Ledger(part));
                }
                Ok(ToWriter::Mark(mark)) => {
                    // Each host gets every mark, as each part may be read alone.
                    self.links
                        .iter_mut()
                        .filter(|link| link.is_up())
                        .for_each(|link| link.say(&LinkMessage::Mark { mark }));
                    self.pass_on(ToWriter::Mark(mark));
                }
                Ok(ToWriter::Tick(watermark_ns)) => {
                    self.deal(&mut packing, &mut own, false);
                    packing.floor.tick(watermark_ns);
                    self.send_empty(&mut packing);
                    self.pass_on(ToWriter::Tick(watermark_ns));
                }
                Ok(message @ ToWriter::Cut) => self.pass_on(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.hear();
        }
        self.deal(&mut packing, &mut own, false);
        // Packets that the kernel counted but no block contained: the logging hosts' account shows them too.
        if let Some(missing) = seen.checked_sub(taken).filter(|missing| *missing > 0) {
            self.tell(LinkMessage::Part { ledger: Ledger { seen_packets: missing, ..Ledger::default() } });
        }
        self.finish(packing, own)
    }

    fn finish(mut self, packing: Packing, own: Ledger) -> Forwarded {
        // The writing thread ends at the same time as the logging hosts.
        drop(self.to_writer.take());
        self.links.iter_mut().for_each(|link| link.finish(packing.floor.floor_ns()));
        let links = LogLink::close_all(std::mem::take(&mut self.links));
        Counters::add(&self.counters.cpu_ns, thread_cpu_time().0);
        // Without a writing thread, nobody else closes the pool.
        self.pool.close();
        Forwarded { ledger: own, links }
    }

    fn pass_on(&self, message: ToWriter) {
        match (&self.to_writer, message) {
            // A writer that ended has reported why.
            (Some(writer), message) => drop(writer.send(message)),
            (None, ToWriter::Block(mut block)) => {
                block.reset(0);
                self.pool.put(block);
            }
            (None, _) => {}
        }
    }

    fn forward(&mut self, block: &PacketBlock, packing: &mut Packing, own: &mut Ledger) {
        if packing.snippets.interface() != block.interface() {
            self.deal(packing, own, true);
            packing.snippets.reset(block.interface());
        }
        let first_ns = block.span_ns().0;
        let mut packets =
            Packets::of_body(block.body(), block.packets(), first_ns, block.interface(), LinkType::Ethernet);
        // Our own blocks are complete.
        while let Ok(Some(packet)) = packets.next_raw() {
            let full = packing.snippets.body().len() + packet.bytes_most() > packing.room_bytes;
            if full && !packing.snippets.is_empty() {
                self.deal(packing, own, true);
            }
            packing.snippets.push_raw(&packet);
        }
    }

    /// Sends the packed snippets over the link whose turn it is. `more_follow`: see [`LogLink::send`].
    fn deal(&mut self, packing: &mut Packing, own: &mut Ledger, more_follow: bool) {
        if packing.snippets.is_empty() {
            return;
        }
        let interface = packing.snippets.interface();
        let count = self.links.len();
        let turn = (0..count).map(|more| (packing.next + more) % count).find(|at| self.links[*at].is_up());
        match turn {
            Some(at) => {
                self.links[at].send(&packing.snippets, packing.floor.floor_ns(), more_follow);
                packing.next = (at + 1) % count;
                packing.room_bytes = self.links[packing.next].room_bytes();
            }
            None => {
                let packets = packing.snippets.packets().into();
                let (from_ns, to_ns) = packing.snippets.span_ns();
                self.counters.dropped_at(DroppedAt::LogLink, packets);
                let gap = Gap { place: DroppedAt::LogLink, interface: Some(interface), from_ns, to_ns, packets };
                own.seen_packets += packets;
                own.drop_packets(gap, JOINED_NS);
            }
        }
        packing.snippets.reset(interface);
    }

    /// Sends each host an empty datagram, which shows whether earlier ones are missing. It also sends datagrams that wait for a batch.
    fn send_empty(&mut self, packing: &mut Packing) {
        let now = monotonic();
        if now < packing.emptied.saturating_add(EMPTY_EVERY) {
            return;
        }
        packing.emptied = now;
        let floor_ns = packing.floor.floor_ns();
        for link in self.links.iter_mut().filter(|link| link.is_up()) {
            link.send(&packing.snippets, floor_ns, false);
        }
    }

    /// Reports packets that were dropped earlier to one logging host: the first that is up.
    fn tell_part(&mut self, part: &Ledger) {
        let dropped = part.dropped();
        if dropped > 0 {
            self.tell(LinkMessage::Part {
                ledger: Ledger { seen_packets: dropped, written_packets: 0, ..part.clone() },
            });
        }
    }

    fn tell(&mut self, message: LinkMessage) {
        if let Some(link) = self.links.iter_mut().find(|link| link.is_up()) {
            link.say(&message);
        }
    }

    fn hear(&mut self) {
        let now = monotonic();
        for link in &mut self.links {
            let before = link.dropped_packets();
            if link.poll(now)
                && let Some(error) = link.error()
            {
                self.counters.notice(format!("{}: {error}; the capture goes on without it", link.name()));
            }
            self.counters.dropped_at(DroppedAt::LogLink, link.dropped_packets().saturating_sub(before));
        }
    }
}
