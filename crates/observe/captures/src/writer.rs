//! A capture written to a file: a header log, pcap or pcapng. The name of the file says which.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;

use crate::dissect::dissect_into;
use crate::header_log::{About, HeaderLogError, HeaderLogWriter, WriterOptions};
use crate::packet::Packet;
use crate::reader::{CaptureAccount, Item};
use crate::record::LinkType;
use crate::spool::Interface;
use crate::{pcap, pcapng};

/// The form of a capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A header log.
    Parquet,
    /// pcap, one link type a file.
    Pcap,
    /// pcapng.
    Pcapng,
}

/// Why a capture cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file's name does not end as that of a capture.
    #[error("{path}: the name of the output does not show its format", path = .0.display())]
    UnknownForm(PathBuf),
    /// The system refuses.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, #[source] io::Error),
    /// The Parquet library refuses.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    HeaderLog(PathBuf, #[source] HeaderLogError),
    /// The input has no captured bytes, which pcap and pcapng consist of.
    #[error("the header log has decoded fields, but no captured bytes to write into a pcap")]
    NoSnippets,
    /// pcap has one link type a file, and the packets have several.
    #[error("pcap has one link type a file, and these packets have several")]
    LinkTypes,
    /// A form has no room for the time of a packet.
    #[error("a packet's time is {0} ns since 1970, which does not fit into this format")]
    Time(i64),
    /// pcapng names its interfaces at the beginning, and the input names another one later.
    #[error("an interface appears in the middle of the input, which a pcapng stream cannot name at its beginning")]
    LateInterface,
}

/// The compression of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// Snap length in a pcap file's header.
const SNAP_BYTES: u32 = 262_144;

/// A stream that must be finished to be complete.
enum Stream {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Gzip(stream) => stream.write(bytes),
            Self::Zstd(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Gzip(stream) => stream.flush(),
            Self::Zstd(stream) => stream.flush(),
        }
    }
}

impl Stream {
    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream,
            Self::Gzip(stream) => stream.finish()?,
            Self::Zstd(stream) => stream.finish()?,
        }
        .into_inner()?;
        Ok(())
    }
}

impl Form {
    /// The form that the name of the file `path` asks for.
    ///
    /// # Errors
    /// [`WriteError::UnknownForm`].
    pub fn of(path: &Path) -> Result<Self, WriteError> {
        by_name(path).map(|(form, _)| form)
    }
}

fn by_name(path: &Path) -> Result<(Form, Packing), WriteError> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let (stem, packing) = if let Some(stem) = name.strip_suffix(".gz") {
        (stem, Packing::Gzip)
    } else if let Some(stem) = name.strip_suffix(".zst") {
        (stem, Packing::Zstd)
    } else {
        (name.as_str(), Packing::Plain)
    };
    let form = match stem.rsplit_once('.').map(|(_, end)| end) {
        Some("parquet") if packing == Packing::Plain => Form::Parquet,
        Some("pcap" | "cap") => Form::Pcap,
        Some("pcapng") => Form::Pcapng,
        _ => return Err(WriteError::UnknownForm(path.to_owned())),
    };
    Ok((form, packing))
}

enum Writer {
    HeaderLog(Box<HeaderLogWriter<BufWriter<File>>>),
    Pcap { writer: pcap::Writer<Stream>, link: LinkType },
    Pcapng { writer: pcapng::Writer<Stream>, interfaces: usize },
}

/// A capture that is being written.
pub struct CaptureWriter {
    path: PathBuf,
    writer: Writer,
    /// The fields of the last packet.
    packet: Packet,
}

impl CaptureWriter {
    /// Begins `file`, which is or shall be called `path`, for packets of `interfaces`. `options` are those of a header log.
    ///
    /// # Errors
    /// Where the name does not say the form, or the file cannot be written.
    pub fn begin(
        path: &Path,
        file: File,
        interfaces: &[Interface],
        options: WriterOptions,
    ) -> Result<Self, WriteError> {
        let (form, packing) = by_name(path)?;
        let failed = |error| WriteError::Io(path.to_owned(), error);
        let file = BufWriter::with_capacity(1 << 20, file);
        let stream = |file| {
            Ok(match packing {
                Packing::Plain => Stream::Plain(file),
                Packing::Gzip => Stream::Gzip(GzEncoder::new(file, flate2::Compression::fast())),
                Packing::Zstd => Stream::Zstd(zstd::Encoder::new(file, 1)?),
            })
        };
        let link = interfaces.first().map_or(LinkType::Ethernet, |interface| interface.link);
        let writer = match form {
            Form::Parquet => Writer::HeaderLog(Box::new(
                HeaderLogWriter::new(file, options).map_err(|error| WriteError::HeaderLog(path.to_owned(), error))?,
            )),
            Form::Pcap => {
                let writer =
                    stream(file).and_then(|stream| pcap::Writer::new(stream, link, SNAP_BYTES)).map_err(failed)?;
                Writer::Pcap { writer, link }
            }
            Form::Pcapng => {
                let described: Vec<pcapng::Interface> = interfaces
                    .iter()
                    .map(|interface| {
                        let mut described = pcapng::Interface::default();
                        described.link = interface.link;
                        described.name = Some(interface.name.clone());
                        described
                    })
                    .collect();
                let application = concat!("longhaul ", env!("CARGO_PKG_VERSION"));
                let writer = stream(file)
                    .and_then(|stream| pcapng::Writer::new(stream, application, &described))
                    .map_err(failed)?;
                Writer::Pcapng { writer, interfaces: interfaces.len() }
            }
        };
        Ok(Self { path: path.to_owned(), writer, packet: Packet::default() })
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Where the form cannot hold the packet, or the file cannot be written.
    pub fn write(&mut self, item: Item<'_>) -> Result<(), WriteError> {
        let path = &self.path;
        let written = match (&mut self.writer, item) {
            (Writer::HeaderLog(writer), Item::Record(record)) => {
                dissect_into(&record, &mut self.packet);
                return writer
                    .write(&self.packet, record.snippet)
                    .map_err(|error| WriteError::HeaderLog(path.clone(), error));
            }
            (Writer::HeaderLog(writer), Item::Packet(packet)) => {
                return writer.write(packet, &[]).map_err(|error| WriteError::HeaderLog(path.clone(), error));
            }
            (_, Item::Packet(_)) => {
                return Err(WriteError::NoSnippets);
            }
            (Writer::Pcap { writer, link }, Item::Record(record)) => {
                if record.link != *link {
                    return Err(WriteError::LinkTypes);
                }
                if !pcap::TIMES_NS.contains(&record.at_ns) {
                    return Err(WriteError::Time(record.at_ns));
                }
                writer.write(&record)
            }
            (Writer::Pcapng { writer, interfaces }, Item::Record(record)) => {
                if usize::from(record.interface) >= *interfaces {
                    return Err(WriteError::LateInterface);
                }
                if record.at_ns < 0 {
                    return Err(WriteError::Time(record.at_ns));
                }
                writer.write(&record, "")
            }
        };
        written.map_err(|error| WriteError::Io(path.clone(), error))
    }

    /// Completes the file. A header log also takes the `account`.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn finish(self, account: &CaptureAccount) -> Result<(), WriteError> {
        let failed = |error| WriteError::Io(self.path.clone(), error);
        match self.writer {
            Writer::HeaderLog(writer) => {
                let about = About {
                    meta: account.meta.clone(),
                    ledger: account.ledger.clone(),
                    marks: account.marks.clone(),
                    was_cut: account.was_cut,
                    ..About::default()
                };
                let file = writer.finish(&about).map_err(|error| WriteError::HeaderLog(self.path.clone(), error))?;
                file.into_inner().map(drop).map_err(|error| failed(error.into_error()))
            }
            Writer::Pcap { writer, .. } => writer.into_inner().finish().map_err(failed),
            Writer::Pcapng { writer, .. } => writer.into_inner().finish().map_err(failed),
        }
    }
}
