//! Packets out of captured files, whatever their format and compression, several of them in the order of time.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_trace::pcap::ReadError;
use longhaul_trace::{CaptureReader, Packet, dissect};

use crate::output::Failure;

/// What is read at once from a file.
const FILE_CHUNK: usize = 1 << 20;
/// What a folder's files end with if they are captures, before an ending of compression.
const ENDINGS: [&str; 4] = ["pcap", "pcapng", "cap", "ntar"];

/// Counts what is read, for the progress that is shown.
struct Counted<R> {
    inner: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// What packets are read from.
enum Source {
    /// pcap or pcapng.
    Capture(Box<CaptureReader<Box<dyn Read>>>),
}

struct Opened {
    path: PathBuf,
    source: Source,
    /// The packet that comes next, where several files are merged.
    next: Option<Packet>,
}

/// Captured files, read as one stream of packets.
pub(crate) struct Trace {
    files: Vec<Opened>,
    total_bytes: u64,
    read_bytes: Arc<AtomicU64>,
    only: Filter,
}

/// Which packets count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// One or both ends, each an address with or without a port.
    pub(crate) ends: Vec<End>,
    /// A port at either end; 0 is any.
    pub(crate) port: u16,
}

/// An end of a flow, as the user names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    address: std::net::IpAddr,
    port: Option<u16>,
}

impl std::str::FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.trim_matches(['[', ']']).parse() {
            return Ok(Self { address, port: None });
        }
        match text.parse::<std::net::SocketAddr>() {
            Ok(socket) => Ok(Self { address: socket.ip(), port: Some(socket.port()) }),
            Err(_) => Err("an end is ADDRESS or ADDRESS:PORT, as 10.0.0.1:5210 or [fd00::1]:5210".into()),
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) => std::net::SocketAddr::new(self.address, port).fmt(out),
            None => self.address.fmt(out),
        }
    }
}

impl Filter {
    pub(crate) fn takes_all(&self) -> bool {
        self.ends.is_empty() && self.port == 0
    }

    fn takes(&self, packet: &Packet) -> bool {
        use longhaul_trace::Transport;
        if self.takes_all() {
            return true;
        }
        let Some(ip) = &packet.ip else { return false };
        let ports = match &packet.transport {
            Transport::Tcp(tcp) => Some((tcp.src_port, tcp.dst_port)),
            Transport::Udp { src_port, dst_port, .. } => Some((*src_port, *dst_port)),
            Transport::Other => None,
        };
        let (src_port, dst_port) = match ports {
            Some((src, dst)) => (Some(src), Some(dst)),
            // A later fragment belongs to whoever has the first.
            None if ip.fragment_offset > 0 => (None, None),
            None => return false,
        };
        let is = |end: &End, address, port: Option<u16>| {
            end.address == address && (port.is_none() || end.port.is_none_or(|wanted| Some(wanted) == port))
        };
        let ends = match self.ends.as_slice() {
            [] => true,
            [one] => is(one, ip.src, src_port) || is(one, ip.dst, dst_port),
            [one, other, ..] => {
                is(one, ip.src, src_port) && is(other, ip.dst, dst_port)
                    || is(one, ip.dst, dst_port) && is(other, ip.src, src_port)
            }
        };
        let port = self.port == 0 || src_port.is_none() || src_port == Some(self.port) || dst_port == Some(self.port);
        ends && port
    }
}

impl Trace {
    /// Opens files, and those captures that lie in folders.
    pub(crate) fn open(paths: &[PathBuf], only: Filter) -> Result<Self, Failure> {
        let read_bytes = Arc::new(AtomicU64::new(0));
        let mut files = Vec::new();
        let mut total_bytes = 0;
        for path in paths {
            let all = if path.is_dir() { captures_in(path)? } else { vec![path.clone()] };
            for path in all {
                let file = File::open(&path).map_err(|error| unreadable(&path, &error))?;
                total_bytes += file.metadata().map_or(0, |metadata| metadata.len());
                let counted = Counted { inner: file, bytes: read_bytes.clone() };
                let stream = uncompressed(counted).map_err(|error| unreadable(&path, &error))?;
                let reader = CaptureReader::new(stream).map_err(|error| broken(&path, &error))?;
                files.push(Opened { path, source: Source::Capture(Box::new(reader)), next: None });
            }
        }
        Ok(Self { files, total_bytes, read_bytes, only })
    }

    /// How far reading came, while it goes on.
    pub(crate) fn progress(&self) -> Progress {
        Progress { read_bytes: self.read_bytes.clone(), total_bytes: self.total_bytes }
    }

    /// Files, as they were opened.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.files.iter().map(|file| file.path.display().to_string()).collect()
    }

    /// Hands every packet that counts to `each`, in the order of times across files; `each` says whether to go on.
    pub(crate) fn for_each(&mut self, mut each: impl FnMut(&Packet) -> bool) -> Result<(), Failure> {
        let all = self.only.takes_all();
        if let [file] = self.files.as_mut_slice() {
            let Source::Capture(reader) = &mut file.source;
            while let Some(record) = reader.next().map_err(|error| broken(&file.path, &error))? {
                let packet = dissect(&record);
                if (all || self.only.takes(&packet)) && !each(&packet) {
                    return Ok(());
                }
            }
            return Ok(());
        }
        for file in &mut self.files {
            file.advance()?;
        }
        loop {
            let earliest = self.files.iter_mut().filter(|file| file.next.is_some());
            let Some(file) = earliest.min_by_key(|file| file.next.map(|packet| packet.at_ns)) else { return Ok(()) };
            if let Some(packet) = file.next.take()
                && (all || self.only.takes(&packet))
                && !each(&packet)
            {
                return Ok(());
            }
            file.advance()?;
        }
    }

    /// Files that end within a packet.
    pub(crate) fn cut_files(&self) -> Vec<String> {
        let cut = self.files.iter().filter(|file| {
            let Source::Capture(reader) = &file.source;
            reader.is_cut()
        });
        cut.map(|file| file.path.display().to_string()).collect()
    }

    /// Packets that the captures lost by their own account.
    pub(crate) fn dropped_packets(&self) -> u64 {
        let dropped = self.files.iter().map(|file| {
            let Source::Capture(reader) = &file.source;
            reader.dropped_packets()
        });
        dropped.sum()
    }
}

/// How far reading came.
pub(crate) struct Progress {
    read_bytes: Arc<AtomicU64>,
    total_bytes: u64,
}

impl Progress {
    /// The share of the files that was read, 0…1.
    pub(crate) fn read(&self) -> f64 {
        self.read_bytes.load(Ordering::Relaxed) as f64 / self.total_bytes.max(1) as f64
    }
}

impl Opened {
    fn advance(&mut self) -> Result<(), Failure> {
        let Source::Capture(reader) = &mut self.source;
        let record = reader.next().map_err(|error| broken(&self.path, &error))?;
        self.next = record.map(|record| dissect(&record));
        Ok(())
    }
}

/// What `file` holds, unpacked if it is gzip or Zstandard.
fn uncompressed(file: Counted<File>) -> io::Result<Box<dyn Read>> {
    let mut buffered = BufReader::with_capacity(FILE_CHUNK, file);
    let start = io::BufRead::fill_buf(&mut buffered)?;
    Ok(match start {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(buffered)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::stream::read::Decoder::with_buffer(buffered)?),
        _ => Box::new(buffered),
    })
}

fn captures_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| unreadable(folder, &error))?;
    let mut found: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_capture(path)).collect();
    found.sort();
    if found.is_empty() {
        let message = format!("{}: there is no capture in this folder", folder.display());
        return Err(Failure::new("no_capture", message).remedy("name the files themselves"));
    }
    Ok(found)
}

fn is_capture(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    // Rolled files have a number behind their ending: trace.pcap1.
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    path.is_file() && ENDINGS.iter().any(|ending| name.ends_with(&format!(".{ending}")))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new("unreadable", format!("{}: {error}", path.display()))
}

fn broken(path: &Path, error: &ReadError) -> Failure {
    let failure = Failure::new("no_capture", format!("{}: {error}", path.display()));
    failure.remedy("longhaul reads pcap and pcapng, as they are or packed by gzip or zstd")
}
