//! Measurements of round trips, from what people have of them.

use std::io::Read;
use std::path::{Path, PathBuf};

use longhaul_profile::{Probe, Probes, probes_most, read_ping};
use longhaul_rtt::probe_log::{ProbeKind, ProbeLogReader, ProbeRow};
use longhaul_units::{Nanos, read_text, regular_file};

use crate::captures::holes::{open_probe_log, refuse_holes};
use crate::cmd::profile::measured::{Measured, SAMPLES, bytes_of, files_of, name_of, plain};
use crate::cmd::profile::{captures, of_tcp};
use crate::output::Failure;

/// The longest output of `ping` that is read: two million lines.
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// Ethernet, IPv4 and UDP or ICMP.
const HEADER_BYTES: u32 = 14 + 20 + 8;

impl Measured {
    /// Reads what `paths` hold. One: a log of `rtt` (a folder or a segment), the folder of `tcp -o`, a capture of TCP, or the output of
    /// `ping` (`-` is standard input), whose probes are `interval` apart where it does not say. Two: captures at the client's end of the
    /// path and at the server's, stamped by one clock if `same_clock`.
    pub(crate) fn read(paths: &[PathBuf], interval: Option<Nanos>, same_clock: bool) -> Result<Self, Failure> {
        let path = match paths {
            [path] => path.as_path(),
            [near, far] => return captures::of_both_ends(near, far, same_clock),
            _ => {
                let why = "give one measurement, or two captures: of the client's end and of the server's";
                return Err(Failure::usage(why));
            }
        };
        refuse_holes(&files_of(path))?;
        match Kind::of(path) {
            Kind::Log => Self::of_log(path),
            Kind::Tcp => of_tcp::read(path),
            Kind::Capture => captures::of_one_end(path),
            Kind::Text => Self::of_text(path, interval),
        }
    }

    fn of_text(path: &Path, interval: Option<Nanos>) -> Result<Self, Failure> {
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
        let probes = read_ping(&text, interval.map(|interval| interval.0)).map_err(|error| {
            unreadable(&error).remedy("give the folder of longhaul rtt -o or tcp -o, captures, or the output of ping")
        })?;
        let name = name_of(path);
        Ok(Self { probes, source: format!("{name}, output of ping"), name })
    }

    fn of_log(path: &Path) -> Result<Self, Failure> {
        let failed = |error: longhaul_rtt::probe_log::ProbeLogError| Failure::new("unreadable", error);
        let mut reader = open_probe_log(path, failed)?;
        let about = reader.about().clone();
        if !about.sizes.is_empty() {
            let failure = Failure::new("several_sizes", format!("{}: probes of several sizes", path.display()));
            return Err(failure.remedy("measure without --sizes: what the size adds would count as jitter"));
        }
        let mut probes = Probes { frame_bytes: about.payload_bytes.saturating_add(HEADER_BYTES), ..Probes::default() };
        let most = probes_most(bytes_of(path));
        let (mut gaps, mut changes) = (reader.take_gaps(), reader.take_path_changes());
        while let Some(row) = reader.next() {
            gaps.extend(reader.take_gaps());
            changes.extend(reader.take_path_changes());
            match row {
                Ok(_) if probes.rows.len() == most => {
                    probes.notes.push(format!("what came later: the first {most} probes are read"));
                    break;
                }
                Ok(row) => probes.rows.push(probe(&row, about.quantum_ns)),
                Err(error) if probes.rows.is_empty() => return Err(failed(error)),
                // Nothing good is lost.
                Err(error) => probes.notes.push(format!("what came later, as the log is damaged there: {error}")),
            }
        }
        changes.sort_by_key(|change| change.at_ns);
        probes.route_changes = changes;
        probes.leave_out(&gaps);
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

/// What a measurement is, by what it looks like.
enum Kind {
    Log,
    Tcp,
    Capture,
    Text,
}

impl Kind {
    fn of(path: &Path) -> Self {
        if path.is_dir() {
            // Whoever made the folder wrote its result last: a log without one is that of a run that was killed.
            return match (ProbeLogReader::open(path), path.join(SAMPLES).exists()) {
                (Ok(_), _) => Self::Log,
                (Err(_), true) => Self::Tcp,
                (Err(_), false) if holds_captures(path) => Self::Capture,
                (Err(_), false) => Self::Log,
            };
        }
        if path.extension().is_some_and(|extension| extension == "parquet") {
            return if ProbeLogReader::open(path).is_ok() { Self::Log } else { Self::Capture };
        }
        // Standard input and pipes cannot be looked at first.
        let mut begin = [0; 256];
        let read = regular_file::open(path).and_then(|mut file| file.read(&mut begin));
        let begin = &begin[..read.unwrap_or(0)];
        if begin.contains(&0) || std::str::from_utf8(begin).is_err_and(|error| error.error_len().is_some()) {
            Self::Capture
        } else {
            Self::Text
        }
    }
}

/// Whether a folder without a log has anything in it that may be a capture.
fn holds_captures(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
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
        after_gap: false,
    }
}
