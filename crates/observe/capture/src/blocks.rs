//! Blocks that are empty, the last used first: one that is still in the cache is filled for less than one that is not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_trace::ledger::Ledger;
use longhaul_trace::spool::{Mark, PacketBlock};

/// A block is handed on when it is this long: what a write past the page cache costs beside its bytes is then little. What a kill loses
/// is bounded by time, not by this.
pub(crate) const BLOCK_BYTES: usize = 2 << 20;
/// How often one who waits looks whether the writer still lives.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the reading thread hands to the writing one.
#[derive(Debug)]
pub(crate) enum ToWriter {
    Block(PacketBlock),
    /// No later packet is older than this.
    Tick(i64),
    /// Since the one before, but for what the writer does itself.
    Ledger(Ledger),
    Mark(Mark),
    /// The capture ended elsewhere without its last word: the files must not say that they are whole.
    Cut,
}

/// A fixed number of blocks, lent to the reading thread and given back by the writing one.
#[derive(Debug)]
pub(crate) struct Pool {
    empty: Mutex<Vec<PacketBlock>>,
    /// How many there are in all.
    count: usize,
    given_back: Condvar,
    closed: AtomicBool,
}

impl Pool {
    /// `count` blocks with room for `bytes` each; memory is taken when it is first used.
    pub(crate) fn new(count: usize, bytes: usize) -> Self {
        let empty = (0..count).map(|_| PacketBlock::with_capacity(bytes)).collect();
        Self { empty: Mutex::new(empty), count, given_back: Condvar::new(), closed: AtomicBool::new(false) }
    }

    /// A block, if one is empty.
    pub(crate) fn take(&self) -> Option<PacketBlock> {
        self.lock().pop()
    }

    /// A block, once one is given back; `None` once the writer has ended.
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

    /// Whether more than half of all wait to be written: the disk does not keep up.
    pub(crate) fn is_scarce(&self) -> bool {
        self.lock().len() < self.count / 2
    }

    /// Gives a block back.
    pub(crate) fn put(&self, block: PacketBlock) {
        self.lock().push(block);
        self.given_back.notify_one();
    }

    /// No block comes back any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.given_back.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PacketBlock>> {
        self.empty.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
