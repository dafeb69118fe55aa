//! One capture to read, of any form: a spool, a header log, pcap or pcapng, the latter two compressed or not.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use longhaul_captures::header_log::HeaderLogReader;
use longhaul_captures::ledger::{Gap, Ledger, Place};
use longhaul_captures::spool::{BlockReader, Interface, Kind, Mark, Meta, RecordBuffer, Share, gaps_in};
use longhaul_captures::{CaptureReader, LinkType, Packet, Record, dissect};

use crate::captures::found::{files_in, is_pipe, is_spool};
use crate::output::Failure;

/// What is read at once from a file.
const FILE_CHUNK: usize = 1 << 20;

/// Packets of a header log, and their heads where it keeps them.
type Rows = (Vec<Packet>, Vec<parquet::data_type::ByteArray>);

/// A packet, as far as its file has it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item<'a> {
    /// As captured.
    Record(Record<'a>),
    /// Fields alone.
    Packet(&'a Packet),
}

impl Item<'_> {
    /// Its fields.
    pub(super) fn packet(&self) -> Packet {
        match self {
            Self::Record(record) => dissect(record),
            Self::Packet(packet) => **packet,
        }
    }

    /// When it passed.
    pub(super) fn at_ns(&self) -> i64 {
        match self {
            Self::Record(record) => record.at_ns,
            Self::Packet(packet) => packet.at_ns,
        }
    }
}

/// What is known of what was read; whole once all was.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    pub(crate) meta: Meta,
    pub(crate) ledger: Ledger,
    pub(crate) marks: Vec<Mark>,
    /// A file ends without having been closed.
    pub(crate) was_cut: bool,
    /// Packets that came after a later one.
    pub(crate) late_packets: u64,
    /// Parts of captures that several logging hosts have, which are not among what is read.
    pub(crate) missing_parts: usize,
}

impl Told {
    /// Code, message and remedy, where parts of a capture are elsewhere.
    pub(crate) fn missing_parts_caveat(&self) -> Option<(&'static str, String, &'static str)> {
        let message = match self.missing_parts {
            0 => return None,
            1 => "a capture went to several logging hosts, and one part of it is not read: its packets are missing"
                .into(),
            parts => format!(
                "a capture went to several logging hosts, and {parts} parts of it are not read: their packets are missing"
            ),
        };
        Some(("parts_missing", message, "name the folders of all its logging hosts"))
    }
}

/// How much of all files was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadSoFar {
    read_bytes: Arc<AtomicU64>,
    total_bytes: u64,
}

impl ReadSoFar {
    /// The share of the files that was read, 0…1.
    pub(crate) fn share(&self) -> f64 {
        self.read_bytes.load(Ordering::Relaxed) as f64 / self.total_bytes.max(1) as f64
    }

    fn open(&mut self, path: &Path) -> io::Result<Counted> {
        let file = File::open(path)?;
        self.total_bytes += file.metadata()?.len();
        Ok(Counted { first: io::Cursor::default(), file, read_bytes: self.read_bytes.clone() })
    }
}

/// A file that counts what is read of it.
struct Counted {
    /// What was read already to see what it is: a pipe does not give it twice.
    first: io::Cursor<Vec<u8>>,
    file: File,
    read_bytes: Arc<AtomicU64>,
}

impl Counted {
    /// The first bytes, which are then read once more.
    fn peek(&mut self, bytes: u64) -> io::Result<Vec<u8>> {
        let mut first = Vec::new();
        (&self.file).take(bytes).read_to_end(&mut first)?;
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
        self.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// One capture.
pub(super) struct Input {
    pub(super) path: PathBuf,
    /// When it lost packets; known from the beginning.
    pub(super) gaps: Vec<Gap>,
    source: Source,
    told: Told,
    /// What its interfaces' numbers are moved by.
    pub(super) first_interface: u16,
    /// It is another logging host's part of a capture before it, with the same interfaces.
    pub(super) is_further_part: bool,
}

enum Source {
    Spool { files: std::vec::IntoIter<Counted>, file: Option<BlockReader<BufReader<Counted>>>, buffer: RecordBuffer },
    Capture { reader: Box<CaptureReader<Box<dyn Read>>>, head: Vec<u8>, current: Option<Record<'static>>, read: u64 },
    HeaderLog { reader: Box<HeaderLogReader<File>>, rows: Rows, at: usize, file: Counted },
}

impl Input {
    /// Opens the capture at `path`, the folder of a spool or a file, and reads its first packet. Heads that a header log keeps
    /// are read where `with_heads` asks for them.
    pub(super) fn open(path: &Path, with_heads: bool, so_far: &mut ReadSoFar) -> Result<Self, Failure> {
        let failed = |error: io::Error| unread(path, &error);
        let is_folder = fs::metadata(path).map_err(failed)?.is_dir();
        let paths = if is_folder { files_in(path, is_spool)? } else { vec![path.to_owned()] };
        let files = paths.iter().map(|path| so_far.open(path)).collect::<io::Result<Vec<_>>>();
        let mut files = files.map_err(failed)?;
        let first = if is_folder { Vec::new() } else { files[0].peek(4).map_err(failed)? };
        let mut told = Told::default();
        let mut gaps = Vec::new();
        let source = if is_folder || first == longhaul_captures::spool::MAGIC {
            // A pipe is read once.
            for path in paths.iter().filter(|path| !is_pipe(path)) {
                let found = File::open(path).map_err(longhaul_captures::spool::SpoolError::from).and_then(gaps_in);
                gaps.extend(found.map_err(|error| unread(path, &error))?);
            }
            Source::Spool { files: files.into_iter(), file: None, buffer: RecordBuffer::default() }
        } else if first == b"PAR1" {
            if is_pipe(path) {
                return Err(unread(path, &"a header log is read from its end on, and a pipe has none")
                    .remedy("save it to a file"));
            }
            let file = files.remove(0);
            let mut reader = File::open(path)
                .map_err(failed)
                .and_then(|file| HeaderLogReader::new(file).map_err(|error| unread(path, &error)))?;
            if !with_heads {
                reader = reader.without_heads().without_ethernet();
            }
            let about = reader.about().unwrap_or_default();
            gaps.clone_from(&about.ledger.gaps);
            told = Told {
                meta: about.meta,
                ledger: about.ledger,
                marks: about.marks,
                was_cut: about.was_cut,
                late_packets: 0,
                missing_parts: 0,
            };
            Source::HeaderLog { reader: Box::new(reader), rows: Rows::default(), at: 0, file }
        } else {
            let file = files.remove(0);
            let stream: Box<dyn Read> = match first.as_slice() {
                [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(BufReader::with_capacity(FILE_CHUNK, file))),
                [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(file).map_err(failed)?),
                _ => Box::new(file),
            };
            let reader = CaptureReader::new(stream).map_err(|error| {
                unread(path, &error).remedy(
                    "name a spool, a header log, or a pcap or pcapng file, which may be compressed by gzip or zstd",
                )
            })?;
            Source::Capture { reader: Box::new(reader), head: Vec::new(), current: None, read: 0 }
        };
        let mut input = Self { path: path.to_owned(), gaps, source, told, first_interface: 0, is_further_part: false };
        input.fill()?;
        Ok(input)
    }

    /// Hands the packet whose turn it is and all behind it to `take`. No head is copied on the way.
    pub(super) fn for_each(&mut self, take: &mut impl FnMut(Item<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        while let Some(item) = self.current() {
            take(item)?;
            match &mut self.source {
                Source::Spool { buffer, .. } => {
                    buffer.advance();
                    while let Some(record) = buffer.current() {
                        take(Item::Record(record))?;
                        buffer.advance();
                    }
                    self.fill()?;
                }
                Source::Capture { reader, current, read, .. } => {
                    *current = None;
                    while let Some(record) = reader.next().map_err(|error| unread(&self.path, &error))? {
                        *read += 1;
                        take(Item::Record(record))?;
                    }
                }
                Source::HeaderLog { .. } => self.advance()?,
            }
        }
        Ok(())
    }

    /// The interfaces that are known so far.
    pub(super) fn interfaces(&self) -> Vec<Interface> {
        let Source::Capture { reader, current, .. } = &self.source else { return self.told.meta.interfaces.clone() };
        let known = reader.interfaces().iter().enumerate().map(|(nth, interface)| Interface {
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

    /// Which part of a capture it is that several logging hosts have.
    pub(super) fn share(&self) -> Option<&Share> {
        self.told.meta.share.as_ref()
    }

    /// What it tells of itself, so far as it was read.
    pub(super) fn told(&self) -> Told {
        let mut told = self.told.clone();
        match &self.source {
            Source::Spool { buffer, .. } => told.late_packets = buffer.late_packets(),
            Source::Capture { reader, read, .. } => {
                told.was_cut = reader.is_cut();
                told.meta.interfaces = self.interfaces();
                let packets = reader.dropped_packets();
                told.ledger = Ledger { seen_packets: read + packets, written_packets: *read, ..Ledger::default() };
                if packets > 0 {
                    // The file says how many, not when.
                    told.ledger.dropped_packets.insert(Place::KernelRing, packets);
                }
            }
            Source::HeaderLog { .. } => {}
        }
        told
    }

    /// The packet whose turn it is; `None` behind the last.
    pub(super) fn current(&self) -> Option<Item<'_>> {
        match &self.source {
            Source::Spool { buffer, .. } => buffer.current().map(Item::Record),
            Source::Capture { head, current, .. } => {
                let record: &Record<'_> = current.as_ref()?;
                Some(Item::Record(Record { head, ..*record }))
            }
            Source::HeaderLog { rows, at, reader, .. } => {
                let packet = rows.0.get(*at)?;
                let head = rows.1.get(*at).filter(|_| reader.has_heads());
                let Some(head) = head else { return Some(Item::Packet(packet)) };
                let link = self.told.meta.interfaces.get(usize::from(packet.interface)).map(|interface| interface.link);
                Some(Item::Record(Record {
                    at_ns: packet.at_ns,
                    interface: packet.interface,
                    direction: packet.direction,
                    link: link.unwrap_or_default(),
                    frame_len: packet.frame_len,
                    gso_segs: packet.gso_segs,
                    gso_size: packet.gso_size,
                    head: head.data(),
                }))
            }
        }
    }

    /// Goes on to the next packet.
    pub(super) fn advance(&mut self) -> Result<(), Failure> {
        match &mut self.source {
            Source::Spool { buffer, .. } => {
                buffer.advance();
                if buffer.current().is_some() {
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
        }
        self.fill()
    }

    /// Reads on until there is a packet, or no more.
    fn fill(&mut self) -> Result<(), Failure> {
        let damaged = |error: &dyn std::fmt::Display| unread(&self.path, error);
        match &mut self.source {
            Source::Spool { files, file, buffer } => {
                fill_from_spool(files, file, buffer, &mut self.told).map_err(|error| damaged(&error))
            }
            Source::Capture { reader, head, current, read } => {
                if let Some(record) = reader.next().map_err(|error| damaged(&error))? {
                    head.clear();
                    head.extend_from_slice(record.head);
                    *current = Some(Record { head: &[], ..record });
                    *read += 1;
                }
                Ok(())
            }
            Source::HeaderLog { reader, rows, at, file } => {
                *at = 0;
                let filled = if reader.has_heads() {
                    reader.next_batch_with_heads(&mut rows.0, &mut rows.1)
                } else {
                    reader.next_batch(&mut rows.0)
                };
                filled.map_err(|error| damaged(&error))?;
                // Parquet is not read from its beginning to its end: its rows tell how far it came.
                let len = file.file.metadata().map_or(0, |metadata| metadata.len());
                let share = rows.0.len() as f64 / reader.packets().max(1) as f64;
                file.read_bytes.fetch_add((len as f64 * share) as u64, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

pub(super) fn unread(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new("not_read", format!("{}: {why}", path.display()))
}

/// Reads blocks until packets are settled.
fn fill_from_spool(
    files: &mut std::vec::IntoIter<Counted>,
    file: &mut Option<BlockReader<BufReader<Counted>>>,
    buffer: &mut RecordBuffer,
    told: &mut Told,
) -> Result<(), longhaul_captures::spool::SpoolError> {
    loop {
        let Some(reader) = file else {
            match files.next() {
                Some(next) => {
                    *file = Some(BlockReader::new(BufReader::with_capacity(FILE_CHUNK, next)));
                    continue;
                }
                None => {
                    buffer.settle_all();
                    return Ok(());
                }
            }
        };
        let Some(block) = reader.next_block()? else {
            told.was_cut |= reader.was_cut();
            *file = None;
            continue;
        };
        match block.kind {
            Kind::Meta => {
                let meta: Meta = block.json()?;
                if told.meta.interfaces.is_empty() {
                    told.meta = meta;
                }
            }
            Kind::Packets => {
                let interface = told.meta.interfaces.get(usize::from(block.interface));
                let mut packets = block.packets(interface.map(|interface| interface.link).unwrap_or_default());
                while let Some(record) = packets.next()? {
                    buffer.push(&record);
                    told.ledger.written_packets += 1;
                }
                if buffer.is_full() {
                    buffer.settle(i64::MIN);
                }
            }
            Kind::Ledger => told.ledger.add(&block.json()?),
            Kind::Mark => told.marks.push(block.json()?),
            Kind::Tick => buffer.settle(block.first_ns),
            Kind::End | Kind::Pad => {}
        }
        if buffer.current().is_some() {
            return Ok(());
        }
    }
}
