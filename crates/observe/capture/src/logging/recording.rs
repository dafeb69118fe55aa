//! Puts the snippets of a capture into blocks, one at a time per interface, for the writing thread.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use longhaul_captures::ledger::{DroppedAt, Gap, Ledger};
use longhaul_captures::log_link::Payload;
use longhaul_captures::spool::{Mark, PacketBlock};
use longhaul_kernel::direct_file::ALIGNMENT;

use crate::blocks::{BLOCK_BYTES, BLOCK_BYTES_LEAST, Pool, ToWriter};
use crate::counters::Counters;
use crate::files::SpoolFiles;
use crate::writing::{Writer, Written};

/// Blocks of a capture on few interfaces: 32 MiB for the disk to fall behind, and their margins.
const BLOCKS_USUAL: usize = (32 << 20) / BLOCK_BYTES;
/// Room beyond a full block, for the snippets of the longest datagram.
const MARGIN_BYTES: usize = 64 << 10;

/// How many blocks a capture on so many interfaces has, and at which length each is passed on. The other end says how many interfaces
/// there are: where it takes more blocks than usual these are shorter, and all of them take no more memory.
fn blocks_of(interfaces: usize) -> (usize, usize) {
    // One for each interface to fill, and two on their way.
    let count = BLOCKS_USUAL.max(interfaces + 2);
    let each = BLOCKS_USUAL * (BLOCK_BYTES + MARGIN_BYTES) / count;
    // Whole pages, as the disk takes them.
    let bytes = each.saturating_sub(MARGIN_BYTES) / ALIGNMENT * ALIGNMENT;
    (count, bytes.max(BLOCK_BYTES_LEAST))
}

/// The recording of one capture.
pub(super) struct Recording {
    blocks: Vec<Option<PacketBlock>>,
    /// A block is passed on at this length.
    block_bytes: usize,
    pool: Arc<Pool>,
    to_writer: SyncSender<ToWriter>,
    /// What the writer has not taken yet. In the channel each part would have its own memory, and the other end makes them long.
    account: Arc<Mutex<Ledger>>,
    writer: JoinHandle<Written>,
    counters: Arc<Counters>,
    taken_bytes: u64,
}

impl Recording {
    /// Starts the thread that writes into `spool`.
    pub(super) fn start(spool: SpoolFiles, interfaces: usize) -> io::Result<Self> {
        let (count, block_bytes) = blocks_of(interfaces);
        let (to_writer, from_reader) = sync_channel(count + 1024);
        let pool = Arc::new(Pool::new(count, block_bytes + MARGIN_BYTES));
        let counters = Arc::new(Counters::default());
        let account: Arc<Mutex<Ledger>> = Arc::default();
        let writer =
            Writer { from_reader, account: account.clone(), pool: pool.clone(), spool, counters: counters.clone() };
        let writer = Builder::new().name("log-write".into()).spawn(move || writer.run())?;
        let blocks = (0..interfaces).map(|_| None).collect();
        Ok(Self { blocks, block_bytes, pool, to_writer, account, writer, counters, taken_bytes: 0 })
    }

    /// Takes the snippets of a datagram. If all blocks wait for the disk, drops them and returns the gap.
    pub(super) fn put(&mut self, snippets: &Payload<'_>) -> Option<Gap> {
        let span = snippets.span;
        let own = self.blocks.get_mut(usize::from(span.interface)).filter(|_| span.count > 0)?;
        if let Some(full) = own.take_if(|block| block.len() >= self.block_bytes) {
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
            self.counters.dropped_at(DroppedAt::Writer, packets);
            return Some(Gap { place: DroppedAt::Writer, interface: Some(span.interface), from_ns, to_ns, packets });
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

    /// Adds a part of the account to the files, which get it by the next [`Self::flush`].
    pub(super) fn account(&self, part: &Ledger) {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).add(part);
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

    /// Bytes of the files that there are, and of what waits to be written.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.taken_bytes().saturating_sub(self.counters.removed_bytes.load(Ordering::Relaxed))
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

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::ops::Range;
    use std::path::Path;
    use std::thread;

    use longhaul_captures::Record;
    use longhaul_captures::ledger::MAX_GAPS;
    use longhaul_captures::log_link::INTERFACES_MOST;
    use longhaul_captures::spool::{BlockReader, Kind, Meta};
    use longhaul_units::Bytes;

    use super::*;
    use crate::files::DIRECT_LEAST;
    use crate::spec::SpoolSpec;

    /// 16 blocks of 2 MiB with their margins.
    const MOST_BYTES: usize = 33 << 20;

    #[test]
    fn more_interfaces_take_no_more_memory() {
        for interfaces in 1..=INTERFACES_MOST {
            let (count, bytes) = blocks_of(interfaces);
            let what = format!("{interfaces} interfaces: {count} blocks of {bytes} bytes");
            assert!(count >= interfaces + 2 && count * (bytes + MARGIN_BYTES) <= MOST_BYTES, "{what}");
            assert!(bytes >= DIRECT_LEAST && bytes.is_multiple_of(ALIGNMENT), "{what}");
        }
        assert_eq!([blocks_of(1), blocks_of(14)], [(16, 2 << 20); 2]);
        assert_eq!(blocks_of(64), (66, 448 << 10));
    }

    /// A part of an account: gaps number `numbers`, which do not touch.
    fn part(numbers: Range<i64>) -> Ledger {
        let gap = |number: i64| {
            let from_ns = 10 * number;
            Gap { place: DroppedAt::LogLink, interface: None, from_ns, to_ns: from_ns + 1, packets: 1 }
        };
        let gaps: Vec<_> = numbers.map(gap).collect();
        Ledger { dropped_packets: [(DroppedAt::LogLink, gaps.len() as u64)].into(), gaps, ..Ledger::default() }
    }

    fn spec(folder: &Path) -> SpoolSpec {
        SpoolSpec {
            folder: folder.to_owned(),
            opened: None,
            replace: false,
            roll_bytes: Bytes(1 << 30),
            roll_time: None,
            keep_bytes: None,
        }
    }

    /// The disk is behind, and the other end goes on to tell of losses.
    #[test]
    fn one_account_waits_for_the_disk() {
        let (to_writer, from_reader) = sync_channel(1);
        let recording = Recording {
            blocks: Vec::new(),
            block_bytes: BLOCK_BYTES,
            pool: Arc::new(Pool::new(0, 0)),
            to_writer,
            account: Arc::default(),
            writer: thread::spawn(Written::default),
            counters: Arc::default(),
            taken_bytes: 0,
        };
        (0..200).for_each(|number| recording.account(&part(1_000 * number..1_000 * (number + 1))));
        assert!(from_reader.try_recv().is_err());
        let account = recording.account.lock().unwrap();
        assert_eq!((account.gaps.len(), account.dropped()), (MAX_GAPS, 200_000));
    }

    /// It sends no packets, but tells of losses.
    #[test]
    fn files_of_accounts_alone_are_removed_too() {
        let folder = std::env::temp_dir().join(format!("longhaul-accounts-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let spec = SpoolSpec { roll_bytes: Bytes(64 << 10), keep_bytes: Some(Bytes(128 << 10)), ..spec(&folder) };
        let spool = SpoolFiles::create(&spec, &Meta { file: 1, ..Meta::default() }).unwrap();
        let mut recording = Recording::start(spool, 1).unwrap();
        for number in 0..20 {
            recording.account(&part(1_000 * number..1_000 * (number + 1)));
            recording.flush(number);
        }
        let (written, recorded) = recording.close(false);
        assert!(written.files_removed > 0 && recorded.written_bytes > 1 << 20, "{written:?}, {recorded:?}");
        let kept: u64 = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(kept < 512 << 10, "{kept} bytes");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Two of 64 interfaces have packets, some 2.4 MB each, which are passed on in blocks shorter than usual.
    #[test]
    fn shorter_blocks_hold_every_packet() {
        let folder = std::env::temp_dir().join(format!("longhaul-recording-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let spool = SpoolFiles::create(&spec(&folder), &Meta { file: 1, ..Meta::default() }).unwrap();
        let mut recording = Recording::start(spool, INTERFACES_MOST).unwrap();
        let (mut snippets, mut datagram) = (PacketBlock::with_capacity(1 << 16), Vec::new());
        for number in 0..40 {
            for interface in [0, 63] {
                snippets.reset(interface);
                snippets.push(&Record {
                    at_ns: number,
                    interface,
                    frame_len: 60_000,
                    gso_segs: 1,
                    snippet: &[7; 60_000],
                    ..Record::default()
                });
                Payload::write(0, 0, number, &snippets, std::iter::empty(), &mut datagram);
                assert!(recording.put(&Payload::parse(&datagram).unwrap()).is_none(), "the disk is too slow");
            }
        }
        recording.flush(40);
        let (written, recorded) = recording.close(false);
        assert_eq!((recorded.written_packets, recorded.dropped_packets), (80, 0));
        let mut reader = BlockReader::new(File::open(&written.files[0]).unwrap());
        let mut lengths = Vec::new();
        while let Some(block) = reader.next_block().unwrap() {
            if block.kind == Kind::Packets {
                lengths.push(block.body.len());
            }
        }
        let (_, bytes) = blocks_of(INTERFACES_MOST);
        assert!(lengths.len() >= 10 && lengths.iter().all(|length| *length <= bytes + MARGIN_BYTES), "{lengths:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
