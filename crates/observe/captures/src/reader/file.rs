//! One capture, in any form: a spool, a header log, or pcap or pcapng, which may be compressed.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use longhaul_units::regular_file;

use super::found::{files_in, is_pipe, is_spool};
use super::progress::{Counted, FILE_CHUNK, ReadBytes, ReadProgress};
use super::spool_files::SpoolFiles;
use super::{CaptureAccount, Item, OpenError, Reason};
use crate::capture_file::CaptureReader;
use crate::header_log::HeaderLogReader;
use crate::ledger::{DroppedAt, Gap, Ledger};
use crate::packet::Packet;
use crate::record::{LinkType, Record};
use crate::spool::{Interface, MAGIC, Share, SpoolError, gaps_in};

/// What compressed files that are read together may hold in any case, and so many times the length of all files beyond that. No capture of real packets
/// is that much longer: a few bytes could keep a command busy for hours.
const UNPACKED_BYTES_SURE: u64 = 256 << 20;
const UNPACKED_TIMES_MOST: u64 = 1_000;
/// Packets that files which are read together may stand for in any case, and so many as they have bytes beyond that. A captured packet takes ten bytes
/// and more however well it is compressed, as its time differs from the one before; a made-up one takes a twentieth of a byte.
const PACKETS_SURE: u64 = 4 << 20;
/// Window of a zstd stream, which is memory of each open file: 8 MiB, that of `zstd -19`.
const WINDOW_LOG_MAX: u32 = 23;
/// Memory of an open file: one chunk, and the most that unpacking takes.
const PLAIN_BYTES: u64 = FILE_CHUNK as u64;
const GZIP_BYTES: u64 = 2 * FILE_CHUNK as u64;
const ZSTD_BYTES: u64 = (1 << WINDOW_LOG_MAX) + 2 * FILE_CHUNK as u64;

/// Packets of a header log, and their snippets where it keeps them.
type Rows = (Vec<Packet>, Vec<parquet::data_type::ByteArray>);

/// What a compressed file holds, as long as that is believable.
struct Unpacked<R> {
    stream: R,
    /// Of the file.
    packed: ReadBytes,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(into).map_err(explained)?;
        let unpacked = self.packed.unpack(read as u64);
        if unpacked > UNPACKED_BYTES_SURE && unpacked > self.packed.ever().saturating_mul(UNPACKED_TIMES_MOST) {
            let why = "more than 256 MiB come of what was read up to here, and 1,000 times its length, which is not what captures are like; \
                       if they are captures, unpack the compressed ones first (zstd -d, gunzip)";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        Ok(read)
    }
}

/// Whether files can have `packets` after `bytes` of them were read.
fn believable(packets: u64, bytes: &ReadBytes) -> Result<(), Reason> {
    if packets <= PACKETS_SURE || packets <= bytes.ever() {
        return Ok(());
    }
    let why = "more than 4 million packets come of what was read up to here, and more than it has bytes, which is not what captures are like; \
               if they are captures, unpack the compressed ones first (zstd -d, gunzip)";
    Err(io::Error::new(io::ErrorKind::FileTooLarge, why).into())
}

/// zstd says only that a frame takes too much memory.
fn explained(error: io::Error) -> io::Error {
    if !error.to_string().contains("too much memory") {
        return error;
    }
    io::Error::new(
        error.kind(),
        "its zstd window is larger than 8 MiB (zstd --long, --ultra); unpack it first (zstd -d --long=31)",
    )
}

/// One capture that is being read.
pub(super) struct Capture {
    pub(super) path: PathBuf,
    /// When it dropped packets; known as soon as it is open.
    pub(super) gaps: Vec<Gap>,
    source: Source,
    account: CaptureAccount,
    /// What is added to its interface numbers.
    pub(super) first_interface: u16,
    /// Of its interfaces so many are kept, the first ones.
    pub(super) interfaces_most: usize,
    /// Another logging host's part of an earlier capture, with the same interfaces.
    pub(super) is_further_part: bool,
    /// [`Self::held_bytes`] as they count in the sum of all captures.
    pub(super) counted_bytes: u64,
}

enum Source {
    Spool(Box<SpoolFiles>),
    Capture {
        reader: Box<CaptureReader<Box<dyn Read>>>,
        snippet: Vec<u8>,
        current: Option<Record<'static>>,
        read: u64,
        bytes: ReadBytes,
        held_bytes: u64,
    },
    HeaderLog {
        reader: Box<HeaderLogReader<File>>,
        rows: Rows,
        at: usize,
        progress: LogProgress,
    },
    /// A capture whose first packet was read, and whose turn has not come: it takes neither memory nor a descriptor.
    Closed {
        first_ns: i64,
        with_snippets: bool,
        /// Of a header log.
        progress: Option<LogProgress>,
    },
    /// A file that was read to its end.
    Ended,
}

/// Parquet is not read from beginning to end: the rows show the progress.
struct LogProgress {
    length: u64,
    bytes: ReadBytes,
}

impl LogProgress {
    /// So many rows of `all` were read.
    fn add(&self, rows: usize, all: u64) {
        // The log says itself how many it has.
        self.bytes.show((self.length as f64 * rows as f64 / all.max(1) as f64) as u64);
    }
}

impl Capture {
    /// Opens the capture at `path`, which is a spool's folder or a file, and reads its first packet. `with_snippets`: read the
    /// snippets that a header log keeps.
    pub(super) fn open(path: &Path, with_snippets: bool, progress: &mut ReadProgress) -> Result<Self, OpenError> {
        let failed = |error: io::Error| OpenError::new(path, error);
        let mut account = CaptureAccount::default();
        let mut gaps = Vec::new();
        let source = if fs::metadata(path).map_err(failed)?.is_dir() {
            let files = files_in(path, is_spool)?;
            for file in &files {
                progress.add(file).map_err(failed)?;
                gaps.extend(gaps_of(file)?);
            }
            Source::Spool(Box::new(SpoolFiles::at(files, progress.of_capture())))
        } else {
            let mut file = progress.open(path).map_err(failed)?;
            let first = file.peek().map_err(failed)?;
            if first == b"PAR1" {
                if is_pipe(path) {
                    return Err(OpenError::new(path, Reason::HeaderLogFromPipe));
                }
                let reader = open_log(path, with_snippets)?.within(&progress.budget);
                let reader = reader.map_err(|error| OpenError::new(path, error))?;
                let about = reader.about().unwrap_or_default();
                gaps.clone_from(&about.ledger.gaps);
                account = CaptureAccount {
                    meta: about.meta,
                    ledger: about.ledger,
                    marks: about.marks,
                    was_cut: about.was_cut,
                    late_packets: 0,
                    missing_parts: 0,
                };
                file.bytes.take_back();
                let length = file.file.metadata().map_or(0, |metadata| metadata.len());
                let progress = LogProgress { length, bytes: file.bytes };
                Source::HeaderLog { reader: Box::new(reader), rows: Rows::default(), at: 0, progress }
            } else {
                // A pipe is read once.
                if first == MAGIC && !is_pipe(path) {
                    gaps = gaps_of(path)?;
                }
                open_stream(path, file, &first)?
            }
        };
        let mut capture = Self {
            path: path.to_owned(),
            gaps,
            source,
            account,
            first_interface: 0,
            interfaces_most: usize::MAX,
            is_further_part: false,
            counted_bytes: 0,
        };
        capture.fill()?;
        Ok(capture)
    }

    /// Lets go of what reading takes until [`Self::wake`], where the file can be opened again.
    pub(super) fn close(&mut self, with_snippets: bool) {
        let Some(first_ns) = self.next_at_ns() else { return };
        if is_pipe(&self.path) {
            return;
        }
        self.account.meta.interfaces = self.interfaces();
        // What was read is read once more.
        self.source = match std::mem::replace(&mut self.source, Source::Ended) {
            Source::HeaderLog { at: 0, progress, .. } => {
                progress.bytes.take_back();
                Source::Closed { first_ns, with_snippets, progress: Some(progress) }
            }
            Source::Capture { read: 1, bytes, .. } => {
                bytes.take_back();
                Source::Closed { first_ns, with_snippets, progress: None }
            }
            Source::Spool(files) => {
                files.take_back();
                self.account =
                    CaptureAccount { meta: std::mem::take(&mut self.account.meta), ..CaptureAccount::default() };
                Source::Closed { first_ns, with_snippets, progress: None }
            }
            other => other,
        };
    }

    /// Opens it again, if it was closed. `read` counts what is read of all files. A spool that is being written may have lost its oldest
    /// files, so that it begins later than it did, or is empty.
    ///
    /// # Errors
    /// As [`Self::open`], and where it does not begin as it did in any other way.
    pub(super) fn wake(&mut self, read: &ReadProgress) -> Result<(), OpenError> {
        let Source::Closed { first_ns, with_snippets, .. } = self.source else { return Ok(()) };
        self.source = match std::mem::replace(&mut self.source, Source::Ended) {
            Source::Closed { progress: Some(progress), .. } => {
                let reader = Box::new(open_log(&self.path, with_snippets)?.again_within(&read.budget));
                Source::HeaderLog { reader, rows: Rows::default(), at: 0, progress }
            }
            _ if self.path.is_dir() => {
                Source::Spool(Box::new(SpoolFiles::at(files_in(&self.path, is_spool)?, read.of_capture())))
            }
            _ => {
                let failed = |error| OpenError::new(&self.path, error);
                let opened = regular_file::open(&self.path).map_err(failed)?;
                let mut file = Counted::new(opened, read.of_capture());
                let first = file.peek().map_err(failed)?;
                open_stream(&self.path, file, &first)?
            }
        };
        self.fill()?;
        match self.next_at_ns() {
            Some(at_ns) if at_ns == first_ns => Ok(()),
            next if self.path.is_dir() && next.is_none_or(|at_ns| at_ns > first_ns) => {
                self.account.was_cut = true;
                Ok(())
            }
            _ => Err(OpenError::new(&self.path, io::Error::other("it was changed while it was read"))),
        }
    }

    /// Memory that reading its current packets takes, as far as the file decides on it, bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        match &self.source {
            Source::HeaderLog { reader, .. } => reader.held_bytes(),
            Source::Capture { held_bytes, reader, .. } => held_bytes.saturating_add(reader.interface_bytes()),
            Source::Spool(files) => files.held_bytes(),
            Source::Closed { .. } | Source::Ended => 0,
        }
    }

    /// When its current packet was captured, in nanoseconds since 1970; `None` after the last.
    pub(super) fn next_at_ns(&self) -> Option<i64> {
        match &self.source {
            Source::Closed { first_ns, .. } => Some(*first_ns),
            _ => self.current().map(|item| item.at_ns()),
        }
    }

    /// Hands the current packet and all that follow to `take`, without copying their snippets.
    pub(super) fn for_each<E: From<OpenError>>(
        &mut self,
        take: &mut impl FnMut(Item<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(item) = self.current() {
            take(item)?;
            match &mut self.source {
                Source::Spool(files) => {
                    files.advance();
                    while let Some(record) = files.current() {
                        take(Item::Record(record))?;
                        files.advance();
                    }
                    self.fill()?;
                }
                Source::Capture { reader, current, read, bytes, .. } => {
                    *current = None;
                    while let Some(record) = reader.next().map_err(|error| OpenError::new(&self.path, error))? {
                        *read += 1;
                        believable(bytes.count_packet(), bytes).map_err(|error| OpenError::new(&self.path, error))?;
                        take(Item::Record(record))?;
                    }
                }
                Source::HeaderLog { .. } | Source::Closed { .. } | Source::Ended => self.advance()?,
            }
        }
        Ok(())
    }

    /// The interfaces that are known so far.
    pub(super) fn interfaces(&self) -> Vec<Interface> {
        let Source::Capture { reader, current, .. } = &self.source else { return self.account.meta.interfaces.clone() };
        let described = reader.interfaces().iter().take(self.interfaces_most);
        let known = described.enumerate().map(|(nth, interface)| Interface {
            name: interface.name.clone().unwrap_or_else(|| format!("{nth}")),
            link: interface.link,
            mtu_bytes: 0,
            clock: "of the file".into(),
        });
        let mut known: Vec<Interface> = known.collect();
        if known.is_empty() {
            let link = match reader.as_ref() {
                CaptureReader::Pcap(reader) => reader.link(),
                CaptureReader::Pcapng(_) => current.map_or(LinkType::Ethernet, |record| record.link),
            };
            known.push(Interface { name: "0".into(), link, mtu_bytes: 0, clock: "of the file".into() });
        }
        known
    }

    /// Which part it is of a capture that several logging hosts recorded.
    pub(super) fn share(&self) -> Option<&Share> {
        self.account.meta.share.as_ref()
    }

    /// What is known of it from the part that has been read.
    pub(super) fn account(&self) -> CaptureAccount {
        let mut account = self.account.clone();
        match &self.source {
            Source::Spool(files) => account.late_packets = files.late_packets(),
            Source::Capture { reader, read, .. } => {
                account.was_cut = reader.is_cut();
                account.meta.interfaces = self.interfaces();
                let packets = reader.dropped_packets();
                account.ledger =
                    Ledger { seen_packets: read.saturating_add(packets), written_packets: *read, ..Ledger::default() };
                if packets > 0 {
                    // The file says how many, not when.
                    account.ledger.dropped_packets.insert(DroppedAt::KernelRing, packets);
                }
            }
            Source::HeaderLog { .. } | Source::Closed { .. } | Source::Ended => {}
        }
        account
    }

    /// The current packet; `None` after the last, and of a capture that is closed.
    pub(super) fn current(&self) -> Option<Item<'_>> {
        match &self.source {
            Source::Spool(files) => files.current().map(Item::Record),
            Source::Capture { snippet, current, .. } => {
                let record: &Record<'_> = current.as_ref()?;
                Some(Item::Record(Record { snippet, ..*record }))
            }
            Source::HeaderLog { rows, at, reader, .. } => {
                let packet = rows.0.get(*at)?;
                let snippet = rows.1.get(*at).filter(|_| reader.has_snippets());
                let Some(snippet) = snippet else { return Some(Item::Packet(packet)) };
                let link =
                    self.account.meta.interfaces.get(usize::from(packet.interface)).map(|interface| interface.link);
                Some(Item::Record(Record {
                    at_ns: packet.at_ns,
                    interface: packet.interface,
                    direction: packet.direction,
                    link: link.unwrap_or_default(),
                    frame_len: packet.frame_len,
                    gso_segs: packet.gso_segs,
                    gso_size: packet.gso_size,
                    snippet: snippet.data(),
                }))
            }
            Source::Closed { .. } | Source::Ended => None,
        }
    }

    /// Goes on to the next packet.
    pub(super) fn advance(&mut self) -> Result<(), OpenError> {
        match &mut self.source {
            Source::Spool(files) => {
                files.advance();
                if files.current().is_some() {
                    return Ok(());
                }
            }
            Source::Capture { current, .. } => *current = None,
            Source::HeaderLog { at, rows, .. } => {
                *at += 1;
                if *at < rows.0.len() {
                    return Ok(());
                }
            }
            Source::Closed { .. } | Source::Ended => {}
        }
        self.fill()
    }

    /// Reads until there is a packet, or the capture ends.
    fn fill(&mut self) -> Result<(), OpenError> {
        let path = &self.path;
        match &mut self.source {
            Source::Spool(files) => {
                files.fill(&mut self.account).map_err(|error| OpenError::new(path, error))?;
                if files.current().is_none() {
                    let account = self.account();
                    (self.account, self.source) = (account, Source::Ended);
                }
                Ok(())
            }
            Source::Capture { reader, snippet, current, read, bytes, .. } => {
                if let Some(record) = reader.next().map_err(|error| OpenError::new(path, error))? {
                    snippet.clear();
                    snippet.extend_from_slice(record.snippet);
                    *current = Some(Record { snippet: &[], ..record });
                    *read += 1;
                    return believable(bytes.count_packet(), bytes).map_err(|error| OpenError::new(path, error));
                }
                let account = self.account();
                (self.account, self.source) = (account, Source::Ended);
                Ok(())
            }
            Source::HeaderLog { reader, rows, at, progress } => {
                *at = 0;
                let filled = if reader.has_snippets() {
                    reader.next_batch_with_snippets(&mut rows.0, &mut rows.1)
                } else {
                    reader.next_batch(&mut rows.0)
                };
                filled.map_err(|error| OpenError::new(path, error))?;
                progress.add(rows.0.len(), reader.packets());
                if rows.0.is_empty() {
                    self.source = Source::Ended;
                }
                Ok(())
            }
            Source::Closed { .. } | Source::Ended => Ok(()),
        }
    }
}

/// A spool of one file, a pcap or a pcapng, which begins with `first`.
fn open_stream(path: &Path, file: Counted, first: &[u8]) -> Result<Source, OpenError> {
    if first == MAGIC {
        return Ok(Source::Spool(Box::new(SpoolFiles::of(file))));
    }
    let (bytes, packed) = (file.bytes.clone(), file.bytes.clone());
    let (stream, held_bytes): (Box<dyn Read>, u64) = match first {
        [0x1f, 0x8b, ..] => {
            let stream = MultiGzDecoder::new(BufReader::with_capacity(FILE_CHUNK, file));
            (Box::new(Unpacked { stream, packed }), GZIP_BYTES)
        }
        [0x28, 0xb5, 0x2f, 0xfd] => {
            let failed = |error| OpenError::new(path, error);
            let mut stream = zstd::Decoder::new(file).map_err(failed)?;
            stream.window_log_max(WINDOW_LOG_MAX).map_err(failed)?;
            (Box::new(Unpacked { stream, packed }), ZSTD_BYTES)
        }
        _ => (Box::new(file), PLAIN_BYTES),
    };
    let reader = CaptureReader::new(stream).map_err(|error| OpenError::new(path, Reason::NotACapture(error)))?;
    Ok(Source::Capture { reader: Box::new(reader), snippet: Vec::new(), current: None, read: 0, bytes, held_bytes })
}

fn open_log(path: &Path, with_snippets: bool) -> Result<HeaderLogReader<File>, OpenError> {
    let file = regular_file::open(path).map_err(|error| OpenError::new(path, error))?;
    let reader = HeaderLogReader::new(file).map_err(|error| OpenError::new(path, error))?;
    Ok(if with_snippets { reader } else { reader.without_snippets().without_ethernet() })
}

/// When the spool whose file is at `path` dropped packets, by that file.
fn gaps_of(path: &Path) -> Result<Vec<Gap>, OpenError> {
    let gaps = regular_file::open(path).map_err(SpoolError::from).and_then(gaps_in);
    gaps.map_err(|error| OpenError::new(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four bytes of zstd can stand for 8,192 packets without a header.
    #[test]
    fn a_compressed_file_is_not_read_for_hours() {
        let mut piece = vec![0; 1 << 24];
        let mut unpacked = |files: u32, bytes: u64, pieces: u32| {
            let progress = ReadProgress::default();
            (0..files).try_for_each(|_| {
                let packed = progress.of_capture();
                packed.add(bytes);
                let mut stream = Unpacked { stream: io::repeat(0), packed };
                (0..pieces).try_for_each(|_| stream.read(&mut piece).map(drop)).map_err(|error| error.kind())
            })
        };
        assert_eq!(unpacked(1, 200_000, 20), Err(io::ErrorKind::FileTooLarge));
        assert_eq!(unpacked(1, 400_000, 20), Ok(()), "it may be that long");
        assert_eq!(unpacked(1, 1_000, 12), Ok(()));
        assert_eq!(unpacked(2, 1_000, 12), Err(io::ErrorKind::FileTooLarge), "a folder has many");
    }

    /// A packet that opens a flow takes some 2.5 us: a file of 1 MB must not stand for 17 million of them.
    #[test]
    fn a_compressed_file_has_no_more_packets_than_bytes() {
        let bytes = ReadProgress::default().of_capture();
        bytes.add(5_000_000);
        let may_have = |packets| believable(packets, &bytes).map_err(|error| error.to_string());
        assert_eq!(may_have(5_000_000), Ok(()));
        assert!(may_have(5_000_001).unwrap_err().contains("unpack the compressed ones first"));
        assert_eq!(believable(PACKETS_SURE, &ReadProgress::default().of_capture()).map_err(|_| ()), Ok(()));
    }

    /// Whether its packets are taken together or one by one.
    #[test]
    fn a_made_up_file_of_too_many_packets_is_read_no_further() {
        let path = std::env::temp_dir().join(format!("longhaul-packets-{}.pcap.zst", std::process::id()));
        let header = [&0xa1b2_c3d4_u32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &[0, 0, 1, 0, 1, 0, 0, 0]].concat();
        let packets = [1_u32, 0, 0, 60].map(u32::to_le_bytes).concat().repeat(1 << 16);
        let mut packed = zstd::Encoder::new(Vec::new(), 1).unwrap();
        io::Write::write_all(&mut packed, &header).unwrap();
        for _ in 0..=PACKETS_SURE >> 16 {
            io::Write::write_all(&mut packed, &packets).unwrap();
        }
        fs::write(&path, packed.finish().unwrap()).unwrap();
        let open = || Capture::open(&path, false, &mut ReadProgress::default()).unwrap();
        let mut taken = 0;
        let together: Result<(), OpenError> = open().for_each(&mut |_: Item<'_>| {
            taken += 1;
            Ok(())
        });
        let mut capture = open();
        let one_by_one = (0..PACKETS_SURE).find_map(|_| capture.advance().err());
        fs::remove_file(&path).unwrap();
        assert!(together.unwrap_err().to_string().contains("more than 4 million packets"));
        assert_eq!(taken, PACKETS_SURE);
        assert!(one_by_one.unwrap().to_string().contains("more than 4 million packets"));
    }

    /// A frame says how much memory reading it takes.
    #[test]
    fn a_zstd_window_beyond_8_mib_is_refused() {
        let path = std::env::temp_dir().join(format!("longhaul-window-{}.pcap.zst", std::process::id()));
        let open = |window: u32| {
            let mut packed = zstd::Encoder::new(Vec::new(), 1).unwrap();
            packed.window_log(window).unwrap();
            let header = [&0xa1b2_c3d4_u32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &[0, 0, 1, 0, 1, 0, 0, 0]];
            io::Write::write_all(&mut packed, &header.concat()).unwrap();
            // Longer than the encoder looks ahead: it does not know the length and shrink the window to it.
            io::Write::write_all(&mut packed, &vec![0; 16 << 20]).unwrap();
            fs::write(&path, packed.finish().unwrap()).unwrap();
            Capture::open(&path, false, &mut ReadProgress::default()).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(open(WINDOW_LOG_MAX), Ok(()));
        let refused = open(WINDOW_LOG_MAX + 4).unwrap_err();
        assert!(refused.contains("larger than 8 MiB") && refused.contains("unpack it first"), "{refused}");
        fs::remove_file(&path).unwrap();
    }
}
