//! Puts the snippets of a capture into blocks, one at a time per interface, for the writing thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use longhaul_captures::ledger::{Gap, Ledger, Place};
use longhaul_captures::log_link::Payload;
use longhaul_captures::spool::{Mark, PacketBlock};

use crate::blocks::{BLOCK_BYTES, Pool, ToWriter};
use crate::counters::Counters;
use crate::files::SpoolFiles;
use crate::writing::{Writer, Written};

/// Memory of the blocks that wait for the disk.
const WAITING_BYTES: usize = 32 << 20;
/// Room beyond a full block, for the snippets of the longest datagram.
const MARGIN_BYTES: usize = 64 << 10;

/// The recording of one capture.
pub(super) struct Recording {
    blocks: Vec<Option<PacketBlock>>,
    pool: Arc<Pool>,
    to_writer: SyncSender<ToWriter>,
    writer: JoinHandle<Written>,
    counters: Arc<Counters>,
    taken_bytes: u64,
}

impl Recording {
    /// Starts the thread that writes into `spool`.
    pub(super) fn start(spool: SpoolFiles, interfaces: usize) -> io::Result<Self> {
        let count = (WAITING_BYTES / BLOCK_BYTES).max(interfaces + 2);
        let (to_writer, from_reader) = sync_channel(count + 1024);
        let pool = Arc::new(Pool::new(count, BLOCK_BYTES + MARGIN_BYTES));
        let counters = Arc::new(Counters::default());
        let writer = Writer { from_reader, pool: pool.clone(), spool, counters: counters.clone() };
        let writer = Builder::new().name("log-write".into()).spawn(move || writer.run())?;
        let blocks = (0..interfaces).map(|_| None).collect();
        Ok(Self { blocks, pool, to_writer, writer, counters, taken_bytes: 0 })
    }

    /// Takes the snippets of a datagram. If all blocks wait for the disk, drops them and returns the gap.
    pub(super) fn put(&mut self, snippets: &Payload<'_>) -> Option<Gap> {
        let span = snippets.span;
        let own = self.blocks.get_mut(usize::from(span.interface)).filter(|_| span.count > 0)?;
        if let Some(full) = own.take_if(|block| block.len() >= BLOCK_BYTES) {
            let _ = self.to_writer.send(ToWriter::Block(full));
        }
        if own.is_none() {
            *own = self.pool.take().map(|mut block| {
                block.reset(span.interface);
                block
            });
        }
        let Some(block) = own else {
            let (from_ns, to_ns, packets) = (span.first_ns, span.last_ns, span.count.into());
            self.counters.dropped_at(Place::Writer, packets);
            return Some(Gap { place: Place::Writer, interface: Some(span.interface), from_ns, to_ns, packets });
        };
        let before = block.len();
        let mut packets = snippets.packets();
        // They were checked on arrival.
        while let Ok(Some(packet)) = packets.next_raw() {
            block.push_raw(&packet);
        }
        self.taken_bytes += (block.len() - before) as u64;
        None
    }

    /// Adds a part of the account to the files.
    pub(super) fn account(&self, part: Ledger) {
        let _ = self.to_writer.send(ToWriter::Ledger(part));
    }

    pub(super) fn mark(&self, mark: Mark) {
        let _ = self.to_writer.send(ToWriter::Mark(mark));
    }

    /// Passes on all packets. No packet that follows is older than `watermark_ns`.
    pub(super) fn flush(&mut self, watermark_ns: i64) {
        for block in &mut self.blocks {
            if let Some(block) = block.take_if(|block| !block.is_empty()) {
                let _ = self.to_writer.send(ToWriter::Block(block));
            }
        }
        let _ = self.to_writer.send(ToWriter::Tick(watermark_ns));
    }

    /// The outcome so far.
    pub(super) fn so_far(&self) -> Recorded {
        Recorded::of(&self.counters)
    }

    /// Bytes that are written or wait to be.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.max(self.so_far().written_bytes)
    }

    /// Writes what waits and closes the files. If the capture was `cut`, the files are not marked as complete.
    pub(super) fn close(self, cut: bool) -> (Written, Recorded) {
        if cut {
            let _ = self.to_writer.send(ToWriter::Cut);
        }
        drop(self.to_writer);
        // Of a thread that panicked, only the counters are left.
        let written = self.writer.join().unwrap_or_default();
        (written, Recorded::of(&self.counters))
    }
}

/// What became of the packets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorded {
    /// In the file system.
    pub(super) written_packets: u64,
    /// Received and not written.
    pub(super) dropped_packets: u64,
    /// Bytes of the files.
    pub(super) written_bytes: u64,
}

impl Recorded {
    fn of(counters: &Counters) -> Self {
        Self {
            written_packets: counters.written_packets.load(Ordering::Relaxed),
            dropped_packets: counters.dropped_packets(),
            written_bytes: counters.written_bytes.load(Ordering::Relaxed),
        }
    }
}
