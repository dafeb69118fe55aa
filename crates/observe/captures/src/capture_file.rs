//! A capture in whichever of the two formats it is: pcap or pcapng, told by its first bytes.

use std::io::Read;

use crate::input::Input;
use crate::pcap::{self, ReadError};
use crate::pcapng::{self, Interface};
use crate::record::Record;

/// Reads a pcap or pcapng file, record by record.
#[derive(Debug)]
pub enum CaptureReader<R> {
    /// pcap.
    Pcap(pcap::Reader<R>),
    /// pcapng.
    Pcapng(pcapng::Reader<R>),
}

impl<R: Read> CaptureReader<R> {
    /// A reader at the beginning of `stream`, which need not be buffered and is not compressed.
    ///
    /// # Errors
    /// Where it cannot be read or is neither.
    pub fn new(stream: R) -> Result<Self, ReadError> {
        let mut input = Input::new(stream);
        if input.at_least(4)?.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
            pcapng::Reader::over(input).map(Self::Pcapng)
        } else {
            pcap::Reader::over(input).map(Self::Pcap)
        }
    }

    /// The next packet's snippet; `None` at the end.
    ///
    /// # Errors
    /// Where the file cannot be read or is damaged.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        match self {
            Self::Pcap(reader) => reader.next(),
            Self::Pcapng(reader) => reader.next(),
        }
    }

    /// Whether the file ended within a record.
    pub fn is_cut(&self) -> bool {
        match self {
            Self::Pcap(reader) => reader.is_cut(),
            Self::Pcapng(reader) => reader.is_cut(),
        }
    }

    /// What the file says of its interfaces; nothing of a pcap file.
    pub fn interfaces(&self) -> &[Interface] {
        match self {
            Self::Pcap(_) => &[],
            Self::Pcapng(reader) => reader.interfaces(),
        }
    }

    /// Memory for what it says of its interfaces, bytes.
    pub(crate) fn interface_bytes(&self) -> u64 {
        match self {
            Self::Pcap(_) => 0,
            Self::Pcapng(reader) => reader.interface_bytes(),
        }
    }

    /// Packets that the capture lost by its own account, where the file has one.
    pub fn dropped_packets(&self) -> u64 {
        let Self::Pcapng(reader) = self else { return 0 };
        let counted = reader.interfaces().iter().map(|interface| {
            interface.dropped_packets.unwrap_or(0).saturating_add(interface.os_dropped_packets.unwrap_or(0))
        });
        counted.fold(0, u64::saturating_add).max(reader.dropped_packets())
    }
}
