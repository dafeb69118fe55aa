//! The forwarding thread: out of blocks, into datagrams for logging hosts, which take turns.
//!
//! It stands between the reading and the writing thread, or in the place of the latter. Datagrams are dealt out in turn, as TAPEE dealt
//! out frames: the traffic of a long fat network may be one flow, and dealing by flow would give all of it to one host. A logging host
//! that goes away is left out from then on; where none is left heads are dropped, counted, and the capture goes on.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use longhaul_kernel::clock::{monotonic, thread_cpu_time};
use longhaul_trace::LinkType;
use longhaul_trace::ledger::{Gap, Ledger, Place};
use longhaul_trace::log_link::{Floor, LinkMessage};
use longhaul_trace::spool::{PacketBlock, Packets};
use longhaul_units::Nanos;

use crate::link::{LinkEnd, LogLink};
use crate::blocks::{Pool, ToWriter};
use crate::counters::Counters;

/// How often links are heard at least.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// An empty datagram says this often that nothing is missing, or shows that something is.
const EMPTY_EVERY: Nanos = Nanos::from_millis(150);
/// Drops that follow each other are one gap.
const JOINED_NS: i64 = 1_000_000_000;

pub(crate) struct Forwarder {
    pub(crate) from_reader: Receiver<ToWriter>,
    /// The writing thread, where the capture also goes to files of its own.
    pub(crate) to_writer: Option<SyncSender<ToWriter>>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) links: Vec<LogLink>,
    pub(crate) started_ns: i64,
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // However it ends: who waits for a block must not wait for ever.
        if self.to_writer.is_none() {
            self.pool.close();
        }
    }
}

/// What the forwarding thread leaves.
#[derive(Debug, Default)]
pub(crate) struct Forwarded {
    /// Of what no logging host was there for.
    pub(crate) ledger: Ledger,
    pub(crate) links: Vec<LinkEnd>,
}

/// Heads on their way into a datagram.
struct Packing {
    heads: PacketBlock,
    /// What a datagram for the next link has room for.
    room_bytes: usize,
    next: usize,
    floor: Floor,
    emptied: Nanos,
}

impl Forwarder {
    /// Runs until the reading thread has ended and the logging hosts have closed their files.
    pub(crate) fn run(mut self) -> Forwarded {
        let mut packing = Packing {
            heads: PacketBlock::with_capacity(1 << 16),
            room_bytes: self.links.first().map_or(0, LogLink::room_bytes),
            next: 0,
            floor: Floor::new(self.started_ns),
            emptied: monotonic(),
        };
        let mut own = Ledger::default();
        // Of what the reading thread knows: seen, and dropped before it came here.
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
                    // Each has the whole account of marks, as each may be read alone.
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
        // Of what the kernel says it saw and no block brought: the logging hosts' account is to show it as well.
        if let Some(missing) = seen.checked_sub(taken).filter(|missing| *missing > 0) {
            self.tell(LinkMessage::Part { ledger: Ledger { seen_packets: missing, ..Ledger::default() } });
        }
        self.finish(packing, own)
    }

    fn finish(mut self, packing: Packing, own: Ledger) -> Forwarded {
        // The writing thread ends while the logging hosts do.
        drop(self.to_writer.take());
        self.links.iter_mut().for_each(|link| link.finish(packing.floor.floor_ns()));
        let links = std::mem::take(&mut self.links).into_iter().map(LogLink::close).collect();
        Counters::add(&self.counters.cpu_ns, thread_cpu_time().0);
        // Without a writing thread blocks would be missed.
        self.pool.close();
        Forwarded { ledger: own, links }
    }

    fn pass_on(&self, message: ToWriter) {
        match (&self.to_writer, message) {
            // A writer that is gone has said why.
            (Some(writer), message) => drop(writer.send(message)),
            (None, ToWriter::Block(mut block)) => {
                block.reset(0);
                self.pool.put(block);
            }
            (None, _) => {}
        }
    }

    fn forward(&mut self, block: &PacketBlock, packing: &mut Packing, own: &mut Ledger) {
        if packing.heads.interface() != block.interface() {
            self.deal(packing, own, true);
            packing.heads.reset(block.interface());
        }
        let first_ns = block.span_ns().0;
        let mut packets =
            Packets::of_body(block.body(), block.packets(), first_ns, block.interface(), LinkType::Ethernet);
        // A block of ours is whole.
        while let Ok(Some(packet)) = packets.next_raw() {
            let full = packing.heads.body().len() + packet.bytes_most() > packing.room_bytes;
            if full && !packing.heads.is_empty() {
                self.deal(packing, own, true);
            }
            packing.heads.push_raw(&packet);
        }
    }

    /// Sends what is packed to the link whose turn it is. `more_follow`: see [`LogLink::send`].
    fn deal(&mut self, packing: &mut Packing, own: &mut Ledger, more_follow: bool) {
        if packing.heads.is_empty() {
            return;
        }
        let interface = packing.heads.interface();
        let count = self.links.len();
        let turn = (0..count).map(|more| (packing.next + more) % count).find(|at| self.links[*at].is_up());
        match turn {
            Some(at) => {
                self.links[at].send(&packing.heads, packing.floor.floor_ns(), more_follow);
                packing.next = (at + 1) % count;
                packing.room_bytes = self.links[packing.next].room_bytes();
            }
            None => {
                let packets = packing.heads.packets().into();
                let (from_ns, to_ns) = packing.heads.span_ns();
                self.counters.dropped_at(Place::LogLink, packets);
                let gap = Gap { place: Place::LogLink, interface: Some(interface), from_ns, to_ns, packets };
                own.seen_packets += packets;
                own.drop_packets(gap, JOINED_NS);
            }
        }
        packing.heads.reset(interface);
    }

    /// Says that so far nothing is missing, or shows that something is; what waited to go together goes with it.
    fn send_empty(&mut self, packing: &mut Packing) {
        let now = monotonic();
        if now < packing.emptied.saturating_add(EMPTY_EVERY) {
            return;
        }
        packing.emptied = now;
        let floor_ns = packing.floor.floor_ns();
        for link in self.links.iter_mut().filter(|link| link.is_up()) {
            link.send(&packing.heads, floor_ns, false);
        }
    }

    /// What was dropped before it came here is in one logging host's account: the first that is there.
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
            self.counters.dropped_at(Place::LogLink, link.dropped_packets().saturating_sub(before));
        }
    }
}
