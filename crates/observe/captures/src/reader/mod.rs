//! Captures in files, read as one stream of packets in order of time, whatever the form of each.

mod file;
mod found;
mod progress;
mod spool_files;

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::io;
use std::path::{Path, PathBuf};

use crate::dissect::{dissect, dissect_into};
use crate::header_log::HeaderLogError;
use crate::ledger::{Gap, Ledger};
use crate::packet::Packet;
use crate::pcap::ReadError;
use crate::record::Record;
use crate::spool::{Interface, Mark, Meta, SpoolError};
use file::Capture;
use found::captures_at;

pub use found::{capture_files, is_pipe};
pub use progress::ReadProgress;

/// Memory for captures that are read at the same time, bytes. Our header logs take 10 to 40 MiB each, and any open file takes 1 MiB: so no more
/// files are open than a process may have.
const HELD_BYTES_MOST: u64 = 512 << 20;

/// Interfaces of a pcapng file, one among several captures, that are kept in any case, also where it describes them behind its first packet.
/// Of those before it as many are kept as still have numbers of their own.
const INTERFACES_SURE: usize = 64;

/// A capture cannot be opened, or not be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}", path = .path.display())]
pub struct OpenError {
    /// The file or folder.
    pub path: PathBuf,
    /// Why.
    pub reason: Reason,
}

impl OpenError {
    fn new(path: &Path, reason: impl Into<Reason>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }
}

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The spool is damaged, or a later version wrote it.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The header log is damaged, or is another kind of Parquet file.
    #[error(transparent)]
    HeaderLog(#[from] HeaderLogError),
    /// The pcap or pcapng file is damaged.
    #[error(transparent)]
    Damaged(#[from] ReadError),
    /// The file has none of the known forms.
    #[error(transparent)]
    NotACapture(ReadError),
    /// The header log comes through a pipe.
    #[error("a header log is read from its end, which a pipe does not allow")]
    HeaderLogFromPipe,
    /// Captures that overlap in time take too much memory together.
    #[error(
        "it overlaps in time with so many others that they take more than 512 MiB together: give fewer at once, or `longhaul convert` some into one"
    )]
    TooMuchAtOnce,
    /// The folder holds neither a spool nor capture files.
    #[error("there is no capture in this folder")]
    NoCaptureInFolder,
}

/// A packet, as its file has it.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// As captured.
    Record(Record<'a>),
    /// Decoded fields without the captured bytes: a header log without snippets.
    Packet(&'a Packet),
}

impl Item<'_> {
    /// Its decoded fields.
    fn packet(&self) -> Packet {
        match self {
            Self::Record(record) => dissect(record),
            Self::Packet(packet) => **packet,
        }
    }

    /// When it was captured, in nanoseconds since 1970.
    fn at_ns(&self) -> i64 {
        match self {
            Self::Record(record) => record.at_ns,
            Self::Packet(packet) => packet.at_ns,
        }
    }
}

/// What captures say of themselves; complete once they were read to the end.
#[derive(Debug, Clone, Default)]
pub struct CaptureAccount {
    /// What was captured, where and how.
    pub meta: Meta,
    /// Packets seen, written and dropped.
    pub ledger: Ledger,
    /// Moments that were marked during the capture.
    pub marks: Vec<Mark>,
    /// A file was not closed, or ends within a packet.
    pub was_cut: bool,
    /// Packets with an earlier time than the packet before.
    pub late_packets: u64,
    /// Parts of captures, recorded by other logging hosts, that are not among the inputs.
    pub missing_parts: usize,
}

/// Several captures, read as one stream.
pub struct Captures {
    captures: Vec<Capture>,
    /// Those that have packets left, by the time of the current one and then by their number. Only the first may have gone on since: thousands
    /// may wait beside a long one, and its packets do not look at them.
    order: BinaryHeap<Reverse<(i64, usize)>>,
    progress: ReadProgress,
    /// The sum of what they counted.
    held_bytes: u64,
    held_bytes_most: u64,
}

impl Captures {
    /// Opens the captures at `paths`, each a file or a folder. Interface numbers continue from one capture to the next.
    /// `with_snippets`: read the snippets that a header log keeps, so that its packets are [`Item::Record`]s.
    ///
    /// # Errors
    /// Where one cannot be opened, is no capture, or its first packet cannot be read.
    pub fn open(paths: &[PathBuf], with_snippets: bool) -> Result<Self, OpenError> {
        let mut progress = ReadProgress::default();
        let mut captures: Vec<Capture> = Vec::new();
        let mut first: u16 = 0;
        // Of captures that several logging hosts recorded, by their names.
        let mut first_of: BTreeMap<String, u16> = BTreeMap::new();
        let mut held_bytes: u64 = 0;
        for path in paths {
            for path in captures_at(path)? {
                let mut opened = Capture::open(&path, with_snippets, &mut progress)?;
                let name = opened.share().map(|share| share.capture.clone());
                let described = opened.interfaces().len().max(1);
                match name.as_ref().and_then(|name| first_of.get(name).copied()) {
                    Some(known) => (opened.first_interface, opened.is_further_part) = (known, true),
                    None => {
                        opened.first_interface = first;
                        first_of.extend(name.map(|name| (name, first)));
                        first = first.saturating_add(u16::try_from(described).unwrap_or(u16::MAX));
                    }
                }
                if !captures.is_empty() {
                    let numbers = usize::from(u16::MAX - opened.first_interface) + 1;
                    opened.interfaces_most = described.min(numbers).max(INTERFACES_SURE);
                    // Of those that follow one another only one is open.
                    opened.close(with_snippets);
                }
                opened.counted_bytes = opened.held_bytes();
                held_bytes = held_bytes.saturating_add(opened.counted_bytes);
                captures.push(opened);
            }
        }
        let waiting = captures.iter().enumerate();
        let order = waiting.filter_map(|(nth, capture)| Some(Reverse((capture.next_at_ns()?, nth)))).collect();
        Ok(Self { captures, order, progress, held_bytes, held_bytes_most: HELD_BYTES_MOST })
    }

    /// How much has been read. A clone shows the progress while reading goes on.
    pub fn progress(&self) -> &ReadProgress {
        &self.progress
    }

    /// The length of all files, bytes; `None` where one comes through a pipe.
    pub fn file_bytes(&self) -> Option<u64> {
        let has_pipe = self.captures.iter().any(|capture| is_pipe(&capture.path));
        (!has_pipe).then(|| self.progress.total_bytes())
    }

    /// When the captures dropped packets; known before any packet is read.
    pub fn gaps(&self) -> Vec<Gap> {
        self.captures.iter().flat_map(|capture| capture.gaps.iter().copied()).collect()
    }

    /// The captures that were found, in order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.captures.iter().map(|capture| capture.path.as_path())
    }

    /// Hands the decoded fields of every packet to `each`, in order of time.
    ///
    /// # Errors
    /// Where a capture cannot be read on.
    pub fn for_each_packet(&mut self, mut each: impl FnMut(&Packet)) -> Result<(), OpenError> {
        let mut packet = Packet::default();
        self.for_each(|item| {
            match item {
                Item::Record(record) => {
                    dissect_into(&record, &mut packet);
                    each(&packet);
                }
                Item::Packet(packet) => each(packet),
            }
            Ok::<(), OpenError>(())
        })
    }

    /// The capture with the oldest current packet, ready to be read.
    fn next_capture(&mut self) -> Result<Option<usize>, OpenError> {
        while let Some(mut oldest) = self.order.peek_mut() {
            let Reverse((at_ns, nth)) = *oldest;
            let capture = &mut self.captures[nth];
            capture.wake(&self.progress)?;
            // It may have gone on to a larger row group.
            let held = capture.held_bytes();
            let before = std::mem::replace(&mut capture.counted_bytes, held);
            self.held_bytes = self.held_bytes.saturating_sub(before).saturating_add(held);
            match capture.next_at_ns() {
                None => {
                    PeekMut::pop(oldest);
                }
                Some(next_ns) if next_ns != at_ns => *oldest = Reverse((next_ns, nth)),
                Some(_) if self.held_bytes > self.held_bytes_most => {
                    return Err(OpenError::new(&capture.path, Reason::TooMuchAtOnce));
                }
                Some(_) => return Ok(Some(nth)),
            }
        }
        Ok(None)
    }

    /// The decoded fields of the next packet in order of time, with the interface number of its own file; `None` after the last.
    ///
    /// # Errors
    /// Where a capture cannot be read on.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, OpenError> {
        let Some(nth) = self.next_capture()? else { return Ok(None) };
        let packet = self.captures[nth].current().map(|item| item.packet());
        self.captures[nth].advance()?;
        Ok(packet)
    }

    /// Captures that were not closed or end within a packet, as far as they were read.
    pub fn cut(&self) -> impl Iterator<Item = &Path> {
        self.captures.iter().filter(|capture| capture.account().was_cut).map(|capture| capture.path.as_path())
    }

    /// All interfaces known so far.
    pub fn interfaces(&self) -> Vec<Interface> {
        self.captures.iter().filter(|capture| !capture.is_further_part).flat_map(Capture::interfaces).collect()
    }

    /// Hands every packet to `take`, in order of time, with interface numbers counted over all captures.
    ///
    /// # Errors
    /// Where a capture cannot be read on, and what `take` returns.
    pub fn for_each<E: From<OpenError>>(&mut self, mut take: impl FnMut(Item<'_>) -> Result<(), E>) -> Result<(), E> {
        if let [one] = self.captures.as_mut_slice() {
            return one.for_each(&mut take);
        }
        loop {
            let Some(nth) = self.next_capture()? else { return Ok(()) };
            let capture = &mut self.captures[nth];
            let first = capture.first_interface;
            match capture.current() {
                Some(Item::Record(record)) => {
                    take(Item::Record(Record { interface: record.interface.saturating_add(first), ..record }))?;
                }
                Some(Item::Packet(packet)) => {
                    let packet = Packet { interface: packet.interface.saturating_add(first), ..*packet };
                    take(Item::Packet(&packet))?;
                }
                None => {}
            }
            capture.advance()?;
        }
    }

    fn missing_parts(&self) -> usize {
        let shares = self.captures.iter().filter_map(Capture::share);
        let mut parts_of: BTreeMap<&str, (u16, BTreeSet<u16>)> = BTreeMap::new();
        for share in shares {
            let (parts, read) = parts_of.entry(&share.capture).or_default();
            *parts = (*parts).max(share.parts);
            read.insert(share.part);
        }
        parts_of.values().map(|(parts, read)| usize::from(*parts).saturating_sub(read.len())).sum()
    }

    /// What all captures say of themselves, taken together.
    pub fn account(&self) -> CaptureAccount {
        let mut all = CaptureAccount::default();
        for (nth, capture) in self.captures.iter().enumerate() {
            let mut account = capture.account();
            let first = capture.first_interface;
            for gap in &mut account.ledger.gaps {
                *gap = Gap { interface: gap.interface.map(|interface| interface.saturating_add(first)), ..*gap };
            }
            all.ledger.add(&account.ledger);
            all.marks.extend(account.marks);
            all.was_cut |= account.was_cut;
            all.late_packets += account.late_packets;
            if nth == 0 {
                all.meta = account.meta;
            } else {
                if !capture.is_further_part {
                    all.meta.interfaces.extend(account.meta.interfaces);
                }
                all.meta.started_ns = all.meta.started_ns.min(account.meta.started_ns);
                all.meta.snap_bytes = all.meta.snap_bytes.max(account.meta.snap_bytes);
            }
        }
        all.missing_parts = self.missing_parts();
        if self.captures.len() > 1 && all.missing_parts == 0 {
            all.meta.share = None;
        }
        // Each part of a capture has all of its marks.
        all.marks.sort_by_key(|mark| (mark.at_ns, mark.number));
        all.marks.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header_log::{About, HeaderLogWriter, WriterOptions};
    use crate::ledger::DroppedAt;
    use crate::pcapng;
    use crate::spool::{Kind, PacketBlock, control_block, tick_block};

    /// Header logs of packets at these times.
    fn logs(name: &str, all: &[&[i64]]) -> (PathBuf, Vec<PathBuf>) {
        let folder = std::env::temp_dir().join(format!("longhaul-logs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let write = |(number, times): (usize, &&[i64])| {
            let mut writer = HeaderLogWriter::new(Vec::new(), WriterOptions::default()).unwrap();
            for at_ns in *times {
                writer.write(&Packet { at_ns: *at_ns, ..Packet::default() }, &[]).unwrap();
            }
            let path = folder.join(format!("{number}.parquet"));
            std::fs::write(&path, writer.finish(&About::default()).unwrap()).unwrap();
            path
        };
        let paths = all.iter().enumerate().map(write).collect();
        (folder, paths)
    }

    fn times(captures: &mut Captures) -> Result<Vec<i64>, OpenError> {
        let mut times = Vec::new();
        captures.for_each_packet(|packet| times.push(packet.at_ns)).map(|()| times)
    }

    #[test]
    fn logs_that_follow_one_another_are_open_one_at_a_time() {
        let (folder, paths) = logs("one-by-one", &[&[7, 8], &[1, 2, 3], &[], &[4, 5, 6]]);
        let mut captures = Captures::open(&paths, false).unwrap();
        let own = captures.captures[0].held_bytes();
        assert!(own > 0 && captures.captures[1..].iter().all(|capture| capture.held_bytes() == 0));
        // The first is open from the beginning, and one beside it.
        captures.held_bytes_most = own * 5 / 2;
        assert_eq!(times(&mut captures).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(captures.captures.iter().all(|capture| capture.held_bytes() == 0));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// No packet looks at captures that wait: there may be thousands.
    #[test]
    fn a_capture_that_waits_is_looked_at_when_its_turn_comes() {
        let (folder, paths) = logs("waiting", &[&[1, 3, 5], &[9], &[2]]);
        let mut captures = Captures::open(&paths[..2], false).unwrap();
        let mut earlier = Captures::open(&paths[2..], false).unwrap();
        captures.captures[1] = earlier.captures.remove(0);
        assert_eq!(times(&mut captures).unwrap(), [1, 3, 5, 2]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Each unpacks in 8 MiB.
    #[test]
    fn compressed_captures_that_follow_one_another_are_open_one_at_a_time() {
        let (folder, _) = logs("compressed", &[]);
        let paths: Vec<PathBuf> = [3, 1, 2].iter().map(|second| folder.join(format!("{second}.pcap.zst"))).collect();
        for (path, second) in paths.iter().zip([3_u32, 1, 2]) {
            let header =
                [&0xa1b2_c3d4_u32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &[0, 0, 1, 0, 1, 0, 0, 0]].concat();
            let packets = [0, 1].map(|micros| [second, micros, 0, 60].map(u32::to_le_bytes).concat()).concat();
            std::fs::write(path, zstd::encode_all([header, packets].concat().as_slice(), 1).unwrap()).unwrap();
        }
        let mut captures = Captures::open(&paths, false).unwrap();
        let held: Vec<u64> = captures.captures.iter().map(Capture::held_bytes).collect();
        assert!(held[0] > 8 << 20 && held[1..] == [0, 0], "{held:?}");
        assert_eq!(captures.interfaces().len(), 3);
        captures.held_bytes_most = held[0] * 5 / 2;
        let at = [1, 2, 3].map(|second| [second * 1_000_000_000, second * 1_000_000_000 + 1_000]).concat();
        assert_eq!(times(&mut captures).unwrap(), at);
        assert!(captures.captures.iter().all(|capture| capture.held_bytes() == 0));
        let account = captures.account();
        assert_eq!((account.ledger.written_packets, account.meta.interfaces.len()), (6, 3));
        assert_eq!(captures.progress().share(), 1.0);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A folder may have thousands of small ones.
    #[test]
    fn captures_that_are_read_together_have_one_bound_of_packets() {
        let (folder, logs) = logs("together", &[&[7, 8], &[1, 2, 3], &[4, 5, 6]]);
        let mut captures = Captures::open(&logs, false).unwrap();
        assert_eq!(times(&mut captures).unwrap().len(), 8);
        let most = (4_u64 << 20) + 4 * logs.iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
        let budget = &captures.progress.budget;
        assert!(budget.add_file(0, most - 8).is_ok(), "also what waited for its turn counts once");
        assert!(budget.add_file(0, 1 << 20).is_err());
        let refused = Capture::open(&logs[0], false, &mut captures.progress).map(drop).unwrap_err();
        assert!(refused.to_string().contains("with those of the logs before it"), "{refused}");
        // Packets of a stream count as they are read, the first of what waits for its turn twice.
        let paths = ["1.pcap", "2.pcap"].map(|name| folder.join(name));
        for (path, second) in paths.iter().zip([1_u32, 2]) {
            let header =
                [&0xa1b2_c3d4_u32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &[0, 0, 1, 0, 1, 0, 0, 0]].concat();
            let packets = [0, 1].map(|micros| [second, micros, 0, 60].map(u32::to_le_bytes).concat()).concat();
            std::fs::write(path, [header, packets].concat()).unwrap();
        }
        let read_after = |packets: u32| {
            let mut captures = Captures::open(&paths, false).unwrap();
            let before = captures.progress.of_capture();
            for _ in 0..packets {
                before.count_packet();
            }
            times(&mut captures).map(|times| times.len()).map_err(|error| error.to_string())
        };
        assert_eq!(read_after((4 << 20) - 5), Ok(4));
        assert!(read_after((4 << 20) - 4).unwrap_err().contains("2.pcap: more than 4 million packets"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A section of a pcapng file: so many interfaces with long names, and a packet of the last.
    fn section(at_ns: i64, interfaces: usize) -> Vec<u8> {
        let mut described = pcapng::Interface::default();
        described.name = Some("x".repeat(128));
        let mut writer = pcapng::Writer::new(Vec::new(), "a test", &vec![described; interfaces]).unwrap();
        let record =
            Record { at_ns, interface: (interfaces - 1) as u16, frame_len: 60, snippet: &[0; 60], ..Record::default() };
        writer.write(&record, "").unwrap();
        writer.into_inner()
    }

    /// Numbers tell 65,536 apart. Of the third file most are described behind its first packet.
    #[test]
    fn captures_keep_no_more_interfaces_than_have_numbers() {
        let (folder, _) = logs("interfaces", &[]);
        let files = [section(1, 1 << 16), section(2, 200), [section(3, 2), section(4, 200)].concat()];
        let paths: Vec<PathBuf> = (0..files.len()).map(|nth| folder.join(format!("{nth}.pcapng"))).collect();
        for (path, file) in paths.iter().zip(files) {
            std::fs::write(path, file).unwrap();
        }
        let mut captures = Captures::open(&paths, false).unwrap();
        let first: Vec<u16> = captures.captures.iter().map(|capture| capture.first_interface).collect();
        assert_eq!(first, [0, u16::MAX, u16::MAX]);
        let held: Vec<u64> = captures.captures.iter().map(Capture::held_bytes).collect();
        assert!(held[0] > 64 << 16 && held[1..] == [0, 0], "{held:?}");
        let known = captures.interfaces();
        assert_eq!((known.len(), known[1_023].name.len(), known[1_024].name.as_str()), (65_536 + 64 + 2, 128, "1024"));
        assert_eq!(times(&mut captures).unwrap(), [1, 2, 3, 4]);
        assert_eq!(captures.account().meta.interfaces.len(), 65_536 + 64 + 64);
        // One alone keeps all.
        let mut one = Captures::open(&paths[2..], false).unwrap();
        assert_eq!((times(&mut one).unwrap(), one.interfaces().len()), (vec![3, 4], 202));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// A spool of a file for each of `files`, with a packet at each of its times, and an account of one that was dropped.
    fn spool(folder: PathBuf, files: &[&[i64]]) -> PathBuf {
        std::fs::create_dir(&folder).unwrap();
        for (number, times) in (1..).zip(files) {
            let meta = Meta { file: number, interfaces: vec![Interface::default()], ..Meta::default() };
            let mut ledger = Ledger { seen_packets: times.len() as u64 + 1, ..Ledger::default() };
            let (from_ns, to_ns) = (times[0], times[0]);
            ledger.drop_packets(Gap { place: DroppedAt::Disk, interface: Some(0), from_ns, to_ns, packets: 1 }, 0);
            let mut block = PacketBlock::with_capacity(4096);
            for at_ns in *times {
                block.push(&Record { at_ns: *at_ns, frame_len: 60, gso_segs: 1, ..Record::default() });
            }
            let mut bytes = control_block(Kind::Meta, 0, &meta);
            bytes.extend(control_block(Kind::Ledger, 0, &ledger));
            bytes.extend_from_slice(block.finish());
            bytes.extend(tick_block(i64::MAX));
            bytes.extend(control_block(Kind::End, 0, &()));
            std::fs::write(folder.join(format!("{number:08}.spool")), bytes).unwrap();
        }
        folder
    }

    /// Thousands of files, and of spools, are read by a process that may have few open.
    #[test]
    fn files_of_spools_are_open_one_at_a_time() {
        let (folder, _) = logs("spools", &[]);
        let paths = [spool(folder.join("b"), &[&[5, 6], &[7]]), spool(folder.join("a"), &[&[1, 2], &[3], &[4]])];
        let mut captures = Captures::open(&paths, false).unwrap();
        assert!(captures.captures[0].held_bytes() >= 1 << 20 && captures.captures[1].held_bytes() == 0);
        assert_eq!(times(&mut captures).unwrap(), [1, 2, 3, 4, 5, 6, 7]);
        assert!(captures.captures.iter().all(|capture| capture.held_bytes() == 0));
        // Each block counts once, also of what was read twice.
        let account = captures.account();
        let Ledger { seen_packets, written_packets, gaps, .. } = &account.ledger;
        assert_eq!((*seen_packets, *written_packets, gaps.len(), account.was_cut), (12, 7, 5, false));
        assert_eq!((captures.interfaces().len(), captures.progress().share()), (2, 1.0));
        // A capture that goes on removes its oldest files: of one that is open, then also of one that waits for its turn, then all that this had.
        let mut captures = Captures::open(&paths, false).unwrap();
        std::fs::remove_file(paths[0].join("00000002.spool")).unwrap();
        assert_eq!(times(&mut captures).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert!(captures.account().was_cut);
        let mut captures = Captures::open(&paths, false).unwrap();
        std::fs::remove_file(paths[1].join("00000001.spool")).unwrap();
        assert_eq!(times(&mut captures).unwrap(), [3, 4, 5, 6]);
        assert_eq!(captures.cut().collect::<Vec<_>>(), [&paths[1]]);
        let mut captures = Captures::open(&paths, false).unwrap();
        for name in ["00000002.spool", "00000003.spool"] {
            std::fs::remove_file(paths[1].join(name)).unwrap();
        }
        assert_eq!(times(&mut captures).unwrap(), [5, 6]);
        assert_eq!(captures.cut().collect::<Vec<_>>(), [&paths[1]]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn logs_that_overlap_have_one_bound_of_memory() {
        let (folder, paths) = logs("overlapping", &[&[1, 9], &[2, 8], &[3, 7]]);
        let mut captures = Captures::open(&paths, false).unwrap();
        assert_eq!(times(&mut captures).unwrap(), [1, 2, 3, 7, 8, 9]);
        let mut captures = Captures::open(&paths, false).unwrap();
        captures.held_bytes_most = captures.captures[0].held_bytes() * 5 / 2;
        let refused = times(&mut captures).unwrap_err();
        assert!(matches!(refused.reason, Reason::TooMuchAtOnce), "{refused}");
        assert!(refused.to_string().contains("2.parquet") && refused.to_string().contains("convert"), "{refused}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_log_that_was_replaced_meanwhile_is_not_taken_for_the_same() {
        let (folder, paths) = logs("replaced", &[&[1, 2], &[3, 4], &[5]]);
        let mut captures = Captures::open(&paths, false).unwrap();
        std::fs::copy(&paths[2], &paths[1]).unwrap();
        assert!(times(&mut captures).unwrap_err().to_string().contains("changed while it was read"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
