//! A capture to write: a header log, pcap or pcapng, by the name of the file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use longhaul_captures::header_log::{About, HeaderLogWriter, WriterOptions};
use longhaul_captures::spool::Interface;
use longhaul_captures::{LinkType, Packet, dissect_into, pcap, pcapng};

use crate::captures::input::{Item, Told};
use crate::output::Failure;

/// What a file is to be, by its name's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Parquet,
    Pcap,
    Pcapng,
}

/// Compressed how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// Snap length of a pcap file, where the inputs know none.
const SNAP_BYTES: u32 = 262_144;

/// A stream that must be ended to be whole.
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
        .into_inner()?
        .sync_all()
    }
}

/// The form and packing that the name `path` asks for.
pub(crate) fn form_of(path: &Path) -> Result<Form, Failure> {
    by_name(path).map(|(form, _)| form)
}

fn by_name(path: &Path) -> Result<(Form, Packing), Failure> {
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
        _ => {
            let message = format!("{}: what shall it be? its name does not say", path.display());
            return Err(Failure::usage(message).remedy(
                "end it with .parquet (a header log), .pcap or .pcapng, the latter two with .gz or .zst behind",
            ));
        }
    };
    Ok((form, packing))
}

enum Writer {
    HeaderLog(Box<HeaderLogWriter<BufWriter<File>>>),
    Pcap { writer: pcap::Writer<Stream>, link: LinkType },
    Pcapng { writer: pcapng::Writer<Stream>, interfaces: usize },
}

/// A capture that is being written, beside its place until it is whole.
pub(crate) struct Output {
    path: PathBuf,
    beside: PathBuf,
    writer: Option<Writer>,
    /// The last one's fields.
    packet: Packet,
}

impl Output {
    /// Begins the file `path`, of packets of `interfaces`.
    pub(crate) fn create(path: &Path, interfaces: &[Interface], options: WriterOptions) -> Result<Self, Failure> {
        let (form, packing) = by_name(path)?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".part");
        let beside = PathBuf::from(beside);
        let failed = |error: io::Error| not_written(path, &error);
        let file = BufWriter::with_capacity(1 << 20, File::create(&beside).map_err(failed)?);
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
                HeaderLogWriter::new(file, options).map_err(|error| not_written(path, &error))?,
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
        Ok(Self { path: path.to_owned(), beside, writer: Some(writer), packet: Packet::default() })
    }

    /// Appends a packet.
    pub(crate) fn write(&mut self, item: Item<'_>) -> Result<(), Failure> {
        let path = &self.path;
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let record = match (writer, item) {
            (Writer::HeaderLog(writer), Item::Record(record)) => {
                dissect_into(&record, &mut self.packet);
                return writer.write(&self.packet, record.head).map_err(|error| not_written(path, &error));
            }
            (Writer::HeaderLog(writer), Item::Packet(packet)) => {
                return writer.write(packet, &[]).map_err(|error| not_written(path, &error));
            }
            (_, Item::Packet(_)) => {
                return Err(Failure::new(
                    "no_heads",
                    "the header log has fields, but no captured bytes to make a pcap of",
                )
                .remedy("convert the spool itself, or make the header log with --keep-heads"));
            }
            (Writer::Pcap { writer, link }, Item::Record(record)) => {
                if record.link != *link {
                    return Err(Failure::new(
                        "link_types",
                        "pcap has one link type a file, and these packets have several",
                    )
                    .remedy("write a .pcapng"));
                }
                writer.write(&record)
            }
            (Writer::Pcapng { writer, interfaces }, Item::Record(record)) => {
                if usize::from(record.interface) >= *interfaces {
                    return Err(Failure::new(
                        "late_interface",
                        "an interface appears in the middle of the input, which a stream cannot name at its beginning",
                    )
                    .remedy("convert to a header log"));
                }
                writer.write(&record, "")
            }
        };
        record.map_err(|error| not_written(path, &error))
    }

    /// Ends the file, and puts it in its place.
    pub(crate) fn finish(mut self, told: &Told) -> Result<u64, Failure> {
        let failed = |error: io::Error| not_written(&self.path, &error);
        match self.writer.take() {
            Some(Writer::HeaderLog(writer)) => {
                let about = About {
                    meta: told.meta.clone(),
                    ledger: told.ledger.clone(),
                    marks: told.marks.clone(),
                    was_cut: told.was_cut,
                    ..About::default()
                };
                let file = writer.finish(&about).map_err(|error| not_written(&self.path, &error))?;
                file.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)?;
            }
            Some(Writer::Pcap { writer, .. }) => writer.into_inner().finish().map_err(failed)?,
            Some(Writer::Pcapng { writer, .. }) => writer.into_inner().finish().map_err(failed)?,
            None => {}
        }
        fs::rename(&self.beside, &self.path).map_err(failed)?;
        Ok(fs::metadata(&self.path).map_err(failed)?.len())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // What was not finished is of no use; what was, is not there any more.
        let _ = fs::remove_file(&self.beside);
    }
}

fn not_written(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new("not_written", format!("{}: {error}", path.display())).remedy("name a file in a folder that has room")
}
