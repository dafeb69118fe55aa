//! The writing thread: writes blocks into files.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_captures::ledger::{DroppedAt, Gap, Ledger};
use longhaul_captures::spool::{Kind, Mark, PacketBlock, control_block, tick_block};
use longhaul_kernel::clock::{monotonic, realtime, thread_cpu_time};
use longhaul_units::Nanos;

use crate::blocks::{Pool, ToWriter};
use crate::counters::Counters;
use crate::files::{SpoolFiles, is_full};

/// How often files are flushed to the disk. The reading thread ([`crate::reading`]) holds a packet for at most 0.2 s before.
const SYNC_EVERY: Nanos = Nanos::from_millis(600);
/// How often a full disk is tried again.
const RETRY_EVERY: Nanos = Nanos::from_millis(250);
/// Dropped blocks less than this apart make one gap.
const JOINED_NS: i64 = 1_000_000_000;

/// The outcome of the writing thread.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// What it dropped itself.
    pub(crate) ledger: Ledger,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) files_removed: u64,
    pub(crate) disk_error: Option<String>,
}

pub(crate) struct Writer {
    pub(crate) from_reader: Receiver<ToWriter>,
    /// The account of a log link. A capture's comes as [`ToWriter::Ledger`].
    pub(crate) account: Arc<Mutex<Ledger>>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) spool: SpoolFiles,
    pub(crate) counters: Arc<Counters>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // However it ends, nobody must wait for a block forever.
        self.pool.close();
    }
}

/// The state of the disk, and the account that is not yet written.
#[derive(Debug, Default)]
struct Disk {
    /// As [`Writer::account`].
    account: Arc<Mutex<Ledger>>,
    /// When to try again, if the last write failed.
    full: Option<Nanos>,
    /// The account that no file has yet.
    waiting: Ledger,
    marks: Vec<Mark>,
    error: Option<String>,
    own: Ledger,
    /// The capture broke off: the file must not be marked as complete.
    cut: bool,
}

impl Writer {
    /// Runs until the reading thread has ended.
    pub(crate) fn run(mut self) -> Written {
        let mut disk = Disk { account: self.account.clone(), ..Disk::default() };
        let mut synced = monotonic();
        while let Ok(message) = self.from_reader.recv() {
            match message {
                ToWriter::Block(mut block) => {
                    self.write_block(&mut block, &mut disk);
                    block.reset(0);
                    self.pool.put(block);
                }
                ToWriter::Ledger(part) => disk.waiting.add(&part),
                ToWriter::Mark(mark) => disk.marks.push(mark),
                ToWriter::Cut => disk.cut = true,
                ToWriter::Tick(watermark_ns) => {
                    let written = disk.tick(&mut self.spool, watermark_ns);
                    self.counters.note(written, &mut disk);
                }
            }
            self.counters.note_bytes(&self.spool);
            if monotonic().saturating_sub(synced) >= SYNC_EVERY {
                if let Err(error) = self.spool.sync() {
                    disk.error = Some(error.to_string());
                }
                synced = monotonic();
            }
        }
        self.finish(disk)
    }

    fn write_block(&mut self, block: &mut PacketBlock, disk: &mut Disk) {
        let packets = u64::from(block.packets());
        let (first_ns, last_ns) = block.span_ns();
        let interface = block.interface();
        let bytes = block.finish();
        let mut outcome = Err(None);
        if disk.is_worth_trying() {
            // A file contains the account of its own packets.
            outcome = disk.roll(&mut self.spool, bytes.len()).map_err(Some);
            // For a while the page cache is faster than the disk, and it has more room than our blocks.
            let scarce = self.pool.is_scarce();
            let append = if scarce { SpoolFiles::append } else { SpoolFiles::append_directly };
            outcome = outcome.and_then(|()| append(&mut self.spool, bytes).map_err(Some));
        }
        match outcome {
            Ok(()) => {
                disk.full = None;
                self.counters.disk_full.store(false, Ordering::Relaxed);
                Counters::add(&self.counters.written_packets, packets);
            }
            Err(error) => {
                let gap = Gap {
                    place: DroppedAt::Disk,
                    interface: Some(interface),
                    from_ns: first_ns.min(last_ns),
                    to_ns: last_ns,
                    packets,
                };
                disk.waiting.drop_packets(gap, JOINED_NS);
                disk.own.drop_packets(gap, JOINED_NS);
                self.counters.dropped_at(DroppedAt::Disk, packets);
                if let Some(error) = error {
                    self.counters.note(Err(error), disk);
                }
            }
        }
    }

    fn finish(mut self, mut disk: Disk) -> Written {
        let mut written = Written::default();
        let words = disk.words();
        let mut ending = self.spool.append(&words);
        if ending.is_err() && self.spool.free_reserve() {
            ending = self.spool.append(&words);
        }
        let close = |()| if disk.cut { self.spool.sync() } else { self.spool.close() };
        if let Err(error) = ending.and_then(close) {
            disk.error = Some(format!("{error}; the last part of the ledger is not in the file"));
        }
        self.spool.free_reserve();
        self.counters.note_bytes(&self.spool);
        (written.files, written.files_removed) = self.spool.files();
        written.ledger.add(&disk.own);
        written.disk_error = disk.error;
        Counters::add(&self.counters.cpu_ns, thread_cpu_time().0);
        written
    }
}

impl Counters {
    /// Records how much the files have.
    fn note_bytes(&self, spool: &SpoolFiles) {
        self.written_bytes.store(spool.written_bytes(), Ordering::Relaxed);
        self.removed_bytes.store(spool.removed_bytes(), Ordering::Relaxed);
    }

    /// Records the outcome of a write without packets, or of a failed write.
    fn note(&self, outcome: io::Result<()>, disk: &mut Disk) {
        match outcome {
            Ok(()) => {}
            Err(error) => {
                if disk.full.is_none() {
                    let kind = if is_full(&error) { "the disk is full" } else { "the disk cannot be written" };
                    disk.error = Some(format!("{kind}: {error}"));
                }
                disk.full = Some(monotonic() + RETRY_EVERY);
                self.disk_full.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Disk {
    fn is_worth_trying(&self) -> bool {
        self.full.is_none_or(|again| monotonic() >= again)
    }

    /// The waiting account and marks as blocks; empty if nothing waits.
    fn words(&mut self) -> Vec<u8> {
        let part = self.account.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.waiting.add(&part);
        let at_ns = realtime().0 as i64;
        let mut blocks = Vec::new();
        if !self.waiting.is_empty() {
            blocks.extend(control_block(Kind::Ledger, at_ns, &self.waiting));
        }
        for mark in &self.marks {
            blocks.extend(control_block(Kind::Mark, mark.at_ns, mark));
        }
        blocks
    }

    /// Writes that no packet that follows is older than `watermark_ns`, and what waits.
    fn tick(&mut self, spool: &mut SpoolFiles, watermark_ns: i64) -> io::Result<()> {
        if !self.is_worth_trying() {
            return Ok(());
        }
        let words = self.words();
        let mut blocks = tick_block(watermark_ns);
        blocks.extend(&words);
        self.write(spool, &blocks)?;
        // Without packets the account fills files, too. A capture of which nothing is to be said begins none.
        if words.is_empty() { Ok(()) } else { spool.roll_if_full() }
    }

    fn roll(&mut self, spool: &mut SpoolFiles, coming_bytes: usize) -> io::Result<()> {
        if !spool.roll_is_due(coming_bytes) {
            return Ok(());
        }
        let words = self.words();
        self.write(spool, &words)?;
        spool.roll()
    }

    fn write(&mut self, spool: &mut SpoolFiles, blocks: &[u8]) -> io::Result<()> {
        if !self.is_worth_trying() {
            return Ok(());
        }
        spool.append(blocks)?;
        self.waiting = Ledger::default();
        self.marks.clear();
        Ok(())
    }
}
