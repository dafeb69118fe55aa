//! A capture's heads on their way to this host's disk: into blocks, one at a time for each interface, for the writing thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use longhaul_trace::ledger::{Gap, Ledger, Place};
use longhaul_trace::log_link::Payload;
use longhaul_trace::spool::{Mark, PacketBlock};

use crate::blocks::{BLOCK_BYTES, Pool, ToWriter};
use crate::counters::Counters;
use crate::files::SpoolFiles;
use crate::writing::{Writer, Written};

/// Memory of blocks that wait for the disk.
const WAITING_BYTES: usize = 32 << 20;
/// Room behind a full block: the longest datagram's heads.
const MARGIN_BYTES: usize = 64 << 10;

/// What is being written of one capture.
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

    /// Takes the heads of a datagram. Where all blocks wait for the disk they are dropped: the gap.
    pub(super) fn put(&mut self, heads: &Payload<'_>) -> Option<Gap> {
        let span = heads.span;
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
        let mut packets = heads.packets();
        // They were looked over when they came.
        while let Ok(Some(packet)) = packets.next_raw() {
            block.push_raw(&packet);
        }
        self.taken_bytes += (block.len() - before) as u64;
        None
    }

    /// A part of the account that the files are to have.
    pub(super) fn account(&self, part: Ledger) {
        let _ = self.to_writer.send(ToWriter::Ledger(part));
    }

    pub(super) fn mark(&self, mark: Mark) {
        let _ = self.to_writer.send(ToWriter::Mark(mark));
    }

    /// Hands on all that there is. No later head is older than `watermark_ns`.
    pub(super) fn flush(&mut self, watermark_ns: i64) {
        for block in &mut self.blocks {
            if let Some(block) = block.take_if(|block| !block.is_empty()) {
                let _ = self.to_writer.send(ToWriter::Block(block));
            }
        }
        let _ = self.to_writer.send(ToWriter::Tick(watermark_ns));
    }

    /// What came of it so far.
    pub(super) fn so_far(&self) -> Recorded {
        Recorded::of(&self.counters)
    }

    /// Bytes that were written, or wait to be.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes.max(self.so_far().written_bytes)
    }

    /// Writes what waits and closes the files, not as whole where the capture was `cut`.
    pub(super) fn close(self, cut: bool) -> (Written, Recorded) {
        if cut {
            let _ = self.to_writer.send(ToWriter::Cut);
        }
        drop(self.to_writer);
        // A thread of ours that panicked leaves nothing to tell but what the counters say.
        let written = self.writer.join().unwrap_or_default();
        (written, Recorded::of(&self.counters))
    }
}

/// What came of the heads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recorded {
    /// The file system has them.
    pub(super) written_packets: u64,
    /// They came and were not written.
    pub(super) dropped_packets: u64,
    /// Of the files.
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
