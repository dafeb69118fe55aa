//! The packets of captures that the user asked for, in order of time, and the caveats about these captures.

use crate::caveats;
use std::ops::Range;
use std::path::{Path, PathBuf};

use longhaul_captures::reader::{Captures, ReadProgress, capture_files, is_pipe};
use longhaul_captures::spool::Interface;
use longhaul_captures::{Packet, Transport};
use longhaul_flows::{FlowOptions, Gaps};
use longhaul_kernel::memory::available;

use longhaul_result::{Caveat, CaveatCode};

use crate::captures::holes::refuse_holes;
use crate::captures::moment::Moment;
use crate::captures::{missing_parts, unsupported_links};
use crate::output::Failure;

/// Captures, read as one stream of packets.
pub(crate) struct Trace {
    captures: Captures,
    only: Filter,
    /// Whether a packet counted.
    matched: bool,
    memory_most: u64,
}

/// Which packets count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// One or both ends, each an address with or without a port.
    pub(crate) ends: Vec<End>,
    /// A port at either end; 0 is any.
    pub(crate) port: u16,
    /// The first time that counts.
    pub(crate) from: Option<Moment>,
    /// The first time that does not count any more.
    pub(crate) to: Option<Moment>,
    /// Both, since 1970, once the first packet is known.
    pub(crate) span: Option<Range<i64>>,
}

/// An endpoint of a flow, as given by the user.
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
            Err(_) => Err("give ADDRESS or ADDRESS:PORT, such as 10.0.0.1:5210 or [fd00::1]:5210".into()),
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

/// The path to read: `-` is standard input.
fn standard_input(path: &Path) -> PathBuf {
    if path.as_os_str() == "-" { "/dev/stdin".into() } else { path.to_owned() }
}

/// Opens captures, and refuses files that consist mostly of holes. `with_snippets`: also reads the snippets that header logs keep.
pub(crate) fn open_captures(paths: &[PathBuf], with_snippets: bool) -> Result<Captures, Failure> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| standard_input(path)).collect();
    for path in &paths {
        refuse_holes(&capture_files(path)?)?;
    }
    Ok(Captures::open(&paths, with_snippets)?)
}

impl Filter {
    pub(crate) fn takes_all(&self) -> bool {
        self.ends.is_empty() && self.port == 0 && self.from.is_none() && self.to.is_none()
    }

    /// The flags that were given.
    fn flags(&self) -> String {
        let given = [
            ("--flow", !self.ends.is_empty()),
            ("--port", self.port != 0),
            ("--from", self.from.is_some()),
            ("--to", self.to.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect::<Vec<_>>().join(" and ")
    }

    fn takes(&mut self, packet: &Packet) -> bool {
        if self.takes_all() {
            return true;
        }
        let (from, to) = (self.from, self.to);
        let span = self.span.get_or_insert_with(|| {
            let ns = |moment: Moment| moment.ns(packet.at_ns);
            from.map_or(i64::MIN, ns)..to.map_or(i64::MAX, ns)
        });
        if !span.contains(&packet.at_ns) {
            return false;
        }
        if self.ends.is_empty() && self.port == 0 {
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

/// How long captures are.
pub(crate) struct Length {
    file_bytes: Option<u64>,
    read: ReadProgress,
}

impl Length {
    /// Bytes of all files. What comes through a pipe is as long as what was read of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.file_bytes.unwrap_or_else(|| self.read.read_bytes())
    }
}

impl Trace {
    /// Opens files, and those captures that lie in folders.
    pub(crate) fn open(paths: &[PathBuf], only: Filter) -> Result<Self, Failure> {
        let captures = open_captures(paths, false)?;
        Ok(Self { captures, only, matched: false, memory_most: available().bytes.0 / 2 })
    }

    /// Refuses pipes among `paths`, as `why` reads them more than once.
    pub(crate) fn can_be_read_again(paths: &[PathBuf], why: &str) -> Result<(), Failure> {
        match paths.iter().find(|path| is_pipe(&standard_input(path))) {
            Some(path) => Err(Failure::new(
                "not_read",
                format!("{}: a pipe can be read once, and {why} reads more often", path.display()),
            )
            .remedy("save the capture to a file")),
            None => Ok(()),
        }
    }

    /// How much has been read, while reading goes on.
    pub(crate) fn progress(&self) -> ReadProgress {
        self.captures.progress().clone()
    }

    /// How its flows are kept: in memory that its files' length bounds, and what this machine has.
    pub(crate) fn flow_options(&self) -> FlowOptions {
        FlowOptions::for_bytes(self.length().bytes()).in_memory(self.memory_most)
    }

    /// How long its captures are, also while they are read.
    pub(crate) fn length(&self) -> Length {
        Length { file_bytes: self.captures.file_bytes(), read: self.progress() }
    }

    /// Half of the memory that this process could take when the captures were opened, bytes.
    pub(crate) fn memory_most(&self) -> u64 {
        self.memory_most
    }

    /// The length of its files, bytes; 0 where one is a pipe.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.captures.file_bytes().unwrap_or(0)
    }

    /// Whether a part of it comes through a pipe, so that its length is not known.
    pub(crate) fn is_piped(&self) -> bool {
        self.captures.file_bytes().is_none()
    }

    /// When the captures dropped packets, by their own accounts.
    pub(crate) fn gaps(&self) -> Gaps {
        Gaps::of(&self.captures.gaps())
    }

    /// The captures' paths, as they were opened.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.captures.paths().map(|path| path.display().to_string()).collect()
    }

    /// The time that counts, since 1970, where a part was asked for; once a packet was read.
    pub(crate) fn span(&self) -> Option<Range<i64>> {
        self.only.span.clone()
    }

    /// Hands every packet that counts to `each`.
    pub(crate) fn for_each(&mut self, mut each: impl FnMut(&Packet)) -> Result<(), Failure> {
        if self.only.takes_all() {
            return Ok(self.captures.for_each_packet(each)?);
        }
        let (only, matched) = (&mut self.only, &mut self.matched);
        Ok(self.captures.for_each_packet(|packet| {
            if only.takes(packet) {
                *matched = true;
                each(packet);
            }
        })?)
    }

    /// The next packet that counts, in order of time; `None` behind the last.
    pub(crate) fn next(&mut self) -> Result<Option<Packet>, Failure> {
        while let Some(packet) = self.captures.next_packet()? {
            if self.only.takes(&packet) {
                self.matched = true;
                return Ok(Some(packet));
            }
        }
        Ok(None)
    }

    /// Refuses a filter that no packet matched.
    fn had_packets(&self) -> Result<(), Failure> {
        let seen = self.captures.account().ledger.seen_packets;
        if self.matched || self.only.takes_all() || seen == 0 {
            return Ok(());
        }
        let message = format!("{}: none of {seen} packets matches {}", self.paths().join(", "), self.only.flags());
        Err(Failure::new("no_match", message).remedy("longhaul analyze FILE lists the flows and when they began"))
    }

    /// After reading: refuses captures without any packet of a known link type, and a filter that no packet matched.
    pub(crate) fn was_readable(&self) -> Result<(), Failure> {
        let account = self.captures.account();
        let is_other = |interface: &Interface| interface.link.unsupported().is_some();
        match unsupported_links(&account) {
            Some(caveat) if account.ledger.seen_packets > 0 && account.meta.interfaces.iter().all(is_other) => {
                let message = format!("{}: {}", self.paths().join(", "), caveat.message);
                Err(Failure::new("unknown_link_type", message).remedy(caveat.remedy))
            }
            _ => self.had_packets(),
        }
    }

    /// Caveats about the captures, once they were read; `so` says what follows from packets that were not captured.
    pub(crate) fn caveats(&self, so: &str) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        let mut warn = |code: CaveatCode, message: String, remedy: &str| {
            caveats.push(Caveat::new(code, message, remedy));
        };
        for path in self.captures.cut() {
            warn(
                caveats::CAPTURE_CUT,
                format!("{} ends within a packet, or in zeros: the complete packets were read", path.display()),
                "",
            );
        }
        let account = self.captures.account();
        let (dropped, gaps) = (account.ledger.dropped(), &account.ledger.gaps);
        if dropped > 0 {
            let paths = self.paths().join(", ");
            let mut message = format!("{paths}: the capture dropped {dropped} packets: {so}");
            if let (Some(first), Some(last)) = (gaps.first(), gaps.last()) {
                let at =
                    |ns: i64| jiff::Timestamp::from_nanosecond(ns.into()).map_or(ns.to_string(), |at| at.to_string());
                message += &format!(", in {} gaps from {} to {}", gaps.len(), at(first.from_ns), at(last.to_ns));
            }
            warn(caveats::CAPTURE_DROPPED, message, "capture snippets only, with a larger buffer");
        }
        if account.late_packets > 0 {
            warn(
                caveats::CAPTURE_NOT_SORTED,
                format!("{} packets have an earlier time than the one before", account.late_packets),
                "",
            );
        }
        caveats.extend(missing_parts(&account));
        caveats.extend(unsupported_links(&account));
        caveats
    }
}
