//! Captures in files, read as one stream of packets in order of time, whatever the form of each.

mod file;
mod found;

use std::collections::{BTreeMap, BTreeSet};
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

pub use file::ReadProgress;
pub use found::is_pipe;

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
    progress: ReadProgress,
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
        for path in paths {
            for path in captures_at(path)? {
                let mut opened = Capture::open(&path, with_snippets, &mut progress)?;
                let of = |capture: &Capture| capture.share().map(|share| share.capture.clone());
                let id = of(&opened);
                match captures.iter().find(|known| id.is_some() && of(known) == id) {
                    Some(known) => (opened.first_interface, opened.is_further_part) = (known.first_interface, true),
                    None => {
                        opened.first_interface = first;
                        first = first.saturating_add(opened.interfaces().len().max(1) as u16);
                    }
                }
                captures.push(opened);
            }
        }
        Ok(Self { captures, progress })
    }

    /// How much has been read. A clone shows the progress while reading goes on.
    pub fn progress(&self) -> &ReadProgress {
        &self.progress
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

    /// The capture with the oldest current packet.
    fn oldest(&self) -> Option<usize> {
        let captures = self.captures.iter().enumerate();
        captures.filter_map(|(nth, capture)| Some((capture.current()?.at_ns(), nth))).min().map(|(_, nth)| nth)
    }

    /// The decoded fields of the next packet in order of time, with the interface number of its own file; `None` after the last.
    ///
    /// # Errors
    /// Where a capture cannot be read on.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, OpenError> {
        let Some(nth) = self.oldest() else { return Ok(None) };
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
            let Some(nth) = self.oldest() else { return Ok(()) };
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
