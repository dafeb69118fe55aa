//! Blocks of packets on their way between threads, and the pool of empty ones. The pool lends the block used last: it is still in the
//! CPU cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_captures::ledger::Ledger;
use longhaul_captures::spool::{Mark, PacketBlock};

/// A block is passed on at this length. The fixed cost of a write past the page cache is then small. How much a kill loses is bounded by
/// time, not by this.
pub(crate) const BLOCK_BYTES: usize = 2 << 20;
/// The shortest length at which one is passed on, where files are short or interfaces many.
pub(crate) const BLOCK_BYTES_LEAST: usize = 64 << 10;
/// How often a waiting thread checks that the writer still runs.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What passes from the reading thread to the writing thread.
#[derive(Debug)]
pub(crate) enum ToWriter {
    Block(PacketBlock),
    /// No packet that follows is older than this; nanoseconds since 1970.
    Tick(i64),
    /// The account since the last one, without what the writer does.
    Ledger(Ledger),
    Mark(Mark),
    /// The capture broke off on the capturing host: the files must not be marked as complete.
    Cut,
}

/// A fixed number of blocks. The reading thread takes them, the writing thread gives them back.
#[derive(Debug)]
pub(crate) struct Pool {
    empty: Mutex<Vec<PacketBlock>>,
    /// All blocks, empty or not.
    count: usize,
    given_back: Condvar,
    closed: AtomicBool,
}

impl Pool {
    /// `count` blocks with room for `bytes` each. Memory is allocated on first use.
    pub(crate) fn new(count: usize, bytes: usize) -> Self {
        let empty = (0..count).map(|_| PacketBlock::with_capacity(bytes)).collect();
        Self { empty: Mutex::new(empty), count, given_back: Condvar::new(), closed: AtomicBool::new(false) }
    }

    /// An empty block, if there is one.
    pub(crate) fn take(&self) -> Option<PacketBlock> {
        self.lock().pop()
    }

    /// Waits for an empty block; `None` once the writer has ended.
    pub(crate) fn wait(&self) -> Option<PacketBlock> {
        let mut empty = self.lock();
        loop {
            if let Some(block) = empty.pop() {
                return Some(block);
            }
            if self.closed.load(Ordering::Acquire) {
                return None;
            }
            let waited = self.given_back.wait_timeout(empty, LOOK_EVERY);
            empty = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether more than half of the blocks wait for the disk.
    pub(crate) fn is_scarce(&self) -> bool {
        self.lock().len() < self.count / 2
    }

    /// Gives a block back.
    pub(crate) fn put(&self, block: PacketBlock) {
        self.lock().push(block);
        self.given_back.notify_one();
    }

    /// Says that no more blocks come back.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.given_back.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PacketBlock>> {
        self.empty.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
