//! How much of captures was read.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::parquet_file::Budget;

/// What is read at once from a file.
pub(super) const FILE_CHUNK: usize = 1 << 20;

/// How much of all files has been read. Clones show the same progress.
#[derive(Debug, Clone, Default)]
pub struct ReadProgress {
    read_bytes: Arc<AtomicU64>,
    total_bytes: u64,
    /// Of all header logs.
    pub(super) budget: Budget,
    spent: Arc<Spent>,
}

/// What bounds the time that captures take which are read together. What is read twice counts twice.
#[derive(Debug, Default)]
struct Spent {
    read_bytes: AtomicU64,
    /// Bytes that came of compressed ones.
    unpacked_bytes: AtomicU64,
    /// Packets of pcap and pcapng.
    packets: AtomicU64,
}

impl ReadProgress {
    /// The share of the files' bytes that has been read, 0 to 1.
    pub fn share(&self) -> f64 {
        self.read_bytes.load(Ordering::Relaxed) as f64 / self.total_bytes.max(1) as f64
    }

    /// What was read so far, bytes.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Counts the length of the file at `path`, which is opened later.
    pub(super) fn add(&mut self, path: &Path) -> io::Result<()> {
        self.total_bytes = self.total_bytes.saturating_add(fs::metadata(path)?.len());
        Ok(())
    }

    pub(super) fn open(&mut self, path: &Path) -> io::Result<Counted> {
        let file = File::open(path)?;
        self.total_bytes = self.total_bytes.saturating_add(file.metadata()?.len());
        Ok(Counted::new(file, self.of_capture()))
    }

    /// What is read of one more capture: nothing yet.
    pub(super) fn of_capture(&self) -> ReadBytes {
        ReadBytes { own: Arc::default(), all: Arc::clone(&self.read_bytes), spent: Arc::clone(&self.spent) }
    }
}

/// What was read of a capture, and of all. Clones count together.
#[derive(Debug, Clone)]
pub(super) struct ReadBytes {
    own: Arc<AtomicU64>,
    all: Arc<AtomicU64>,
    spent: Arc<Spent>,
}

impl ReadBytes {
    /// Counts what a file had.
    pub(super) fn add(&self, bytes: u64) {
        self.show(bytes);
        self.spent.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Shows that so much of the capture was read, which may be wrong.
    pub(super) fn show(&self, bytes: u64) {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What files of all captures had, also what was taken back.
    pub(super) fn ever(&self) -> u64 {
        self.spent.read_bytes.load(Ordering::Relaxed)
    }

    /// Counts so many bytes that came of a compressed capture; all that came of those.
    pub(super) fn unpack(&self, bytes: u64) -> u64 {
        self.spent.unpacked_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Counts a packet of a pcap or pcapng; all of those. One thread reads, so that no instruction needs to lock.
    pub(super) fn count_packet(&self) -> u64 {
        let packets = self.spent.packets.load(Ordering::Relaxed) + 1;
        self.spent.packets.store(packets, Ordering::Relaxed);
        packets
    }

    /// What was read of this capture is read once more.
    pub(super) fn take_back(&self) {
        self.all.fetch_sub(self.own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A file that counts the bytes read from it.
#[derive(Debug)]
pub(super) struct Counted {
    /// The first bytes, read already to find out the form: a pipe does not give them twice.
    first: io::Cursor<Vec<u8>>,
    pub(super) file: File,
    pub(super) bytes: ReadBytes,
}

impl Counted {
    pub(super) fn new(file: File, bytes: ReadBytes) -> Self {
        Self { first: io::Cursor::default(), file, bytes }
    }

    /// The first four bytes, or as many as there are. `read` returns them again.
    pub(super) fn peek(&mut self) -> io::Result<Vec<u8>> {
        let mut first = Vec::new();
        (&self.file).take(4).read_to_end(&mut first)?;
        self.bytes.add(first.len() as u64);
        self.first = io::Cursor::new(first.clone());
        Ok(first)
    }
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let known = self.first.read(into)?;
        if known > 0 {
            return Ok(known);
        }
        let read = self.file.read(into)?;
        self.bytes.add(read as u64);
        Ok(read)
    }
}
