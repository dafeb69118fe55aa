//! Measurements of round trips, from what people have of them.

use std::io::Read;
use std::path::Path;

use longhaul_profile::{PROBES_MAX, Probe, Probes, read_ping};
use longhaul_rtt::probe_log::{ProbeKind, ProbeLogReader, ProbeRow};
use longhaul_units::{Nanos, read_text};

use crate::output::Failure;

/// The longest output of `ping` that is read: two million lines.
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// Ethernet, IPv4 and UDP or ICMP.
const HEADER_BYTES: u32 = 14 + 20 + 8;
/// A path's name has at most so many characters.
const NAME_MAX: usize = 60;

/// A measurement.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) probes: Probes,
    /// For a path made of it.
    pub(crate) name: String,
    /// Where it is from, in a line.
    pub(crate) source: String,
}

impl Measured {
    /// Reads what `path` holds: a log of `rtt` (a folder or a segment) or the output of `ping`; `-` is standard input. `interval`: between
    /// the probes of a `ping`.
    pub(crate) fn read(path: &Path, interval: Option<Nanos>) -> Result<Self, Failure> {
        if path.is_dir() || path.extension().is_some_and(|extension| extension == "parquet") {
            return Self::of_log(path);
        }
        let shown = path.display().to_string();
        let unreadable = |error: &dyn std::fmt::Display| Failure::new("unreadable", format!("{shown}: {error}"));
        let text = if path == Path::new("-") {
            let mut text = String::new();
            let read = std::io::stdin().lock().take(TEXT_BYTES_MAX + 1).read_to_string(&mut text);
            if read.map_err(|error| unreadable(&error))? as u64 > TEXT_BYTES_MAX {
                return Err(unreadable(&format!("longer than {TEXT_BYTES_MAX} bytes")));
            }
            text
        } else {
            read_text(path, TEXT_BYTES_MAX).map_err(|error| unreadable(&error))?
        };
        let probes = read_ping(&text, interval.map(|interval| interval.0))
            .map_err(|error| unreadable(&error).remedy("give the folder of longhaul rtt -o, or the output of ping"))?;
        let name = name_of(path);
        Ok(Self { probes, source: format!("{name}, output of ping"), name })
    }

    fn of_log(path: &Path) -> Result<Self, Failure> {
        let failed = |error: longhaul_rtt::probe_log::ProbeLogError| Failure::new("unreadable", error);
        let mut reader = ProbeLogReader::open(path).map_err(failed)?;
        let about = reader.about().clone();
        if !about.sizes.is_empty() {
            let failure = Failure::new("several_sizes", format!("{}: probes of several sizes", path.display()));
            return Err(failure.remedy("measure without --sizes: what the size adds would count as jitter"));
        }
        let mut probes = Probes { frame_bytes: HEADER_BYTES + about.payload_bytes, ..Probes::default() };
        for row in reader.by_ref() {
            match row {
                Ok(_) if probes.rows.len() == PROBES_MAX => {
                    return Err(Failure::new("too_long", format!("{}: more than {PROBES_MAX} probes", path.display()))
                        .remedy("give one segment, or move those that you want into a folder of their own"));
                }
                Ok(row) => probes.rows.push(probe(&row, about.quantum_ns)),
                Err(error) if probes.rows.is_empty() => return Err(failed(error)),
                // Nothing good is lost.
                Err(error) => probes.notes.push(format!("what came later, as the log is damaged there: {error}")),
            }
        }
        if about.kind == ProbeKind::Tcp {
            probes.notes.push("what the other end took to accept a connection: it is part of each round trip".into());
        }
        let kind = match about.kind {
            ProbeKind::Udp => "UDP",
            ProbeKind::Icmp => "ICMP",
            ProbeKind::Tcp => "TCP connect",
            ProbeKind::ClosedPort => "UDP to a closed port",
        };
        let source = format!("{}, longhaul rtt by {kind}", plain(&about.host));
        Ok(Self { probes, source, name: name_of(path) })
    }
}

fn probe(row: &ProbeRow, quantum_ns: i64) -> Probe {
    Probe {
        sent_ns: row.sent_ns,
        // An answer before its question is a clock that stepped: no round trip, and no loss.
        rtt_ns: row.rtt_ns.map(|rtt| rtt.max(0) as u64),
        resolution_ns: u32::try_from(quantum_ns).unwrap_or(1),
        forward_ns: row.forward_ns,
        backward_ns: row.backward_ns,
        copies: row.copies,
        reordered: row.late_by > 0,
    }
}

fn name_of(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).filter(|stem| stem != "-");
    stem.map_or_else(|| "measured".to_owned(), |stem| plain(&stem))
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}
