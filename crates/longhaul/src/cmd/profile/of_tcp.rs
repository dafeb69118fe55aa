//! A `tcp` result as a measurement: the kernel's round trips over time, and its count of lost segments.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use longhaul_profile::{LossesSeen, PROBES_MAX, Probe, Probes};
use longhaul_tcp::fields;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

use crate::cmd::profile::measured::{Measured, SAMPLES, name_of};
use crate::output::Failure;

/// A full segment of a path of 1,500 bytes.
const SEGMENT_FRAME: u32 = 1_514;

/// What the sender's kernel knew of a stream.
#[derive(Default)]
struct Stream {
    rtts: Vec<(i64, u64)>,
    segments: u64,
    retransmitted: u64,
}

/// Reads the folder of `longhaul tcp -o`.
pub(super) fn read(folder: &Path) -> Result<Measured, Failure> {
    let file = folder.join(SAMPLES);
    let unreadable = |error: &dyn std::fmt::Display| Failure::new("unreadable", format!("{}: {error}", file.display()));
    let opened = File::open(&file).map_err(|error| unreadable(&error))?;
    let reader = SerializedFileReader::new(opened).map_err(|error| unreadable(&error))?;
    let mut streams: BTreeMap<(String, u64), Stream> = BTreeMap::new();
    let rows = reader.get_row_iter(None).map_err(|error| unreadable(&error))?;
    for row in rows.take(PROBES_MAX) {
        take(&row.map_err(|error| unreadable(&error))?, &mut streams);
    }
    let mut rows: Vec<Probe> = Vec::new();
    for stream in streams.values() {
        // A value that stays is the same sample seen again.
        let mut before = None;
        for &(at_ns, rtt_ns) in &stream.rtts {
            if before.replace(rtt_ns) != Some(rtt_ns) {
                let sent_ns = at_ns.saturating_sub_unsigned(rtt_ns);
                rows.push(Probe { sent_ns, rtt_ns: Some(rtt_ns), resolution_ns: 1_000, ..Probe::default() });
            }
        }
    }
    if rows.is_empty() {
        let failure = Failure::new("no_round_trips", format!("{}: no samples of a sender", file.display()));
        return Err(failure.remedy("give the folder of longhaul tcp -o"));
    }
    rows.sort_by_key(|row| row.sent_ns);
    let [segments, lost] = [|stream: &Stream| stream.segments, |stream: &Stream| stream.retransmitted]
        .map(|of| streams.values().map(of).fold(0, u64::saturating_add));
    let mut notes = vec![
        "how fast delay varies: the kernel smooths its round trips over some eight of them, so jitter is larger than written".to_owned(),
        "how much of the delay is a queue that the test filled itself: all of it is written as the path's".into(),
        "reordering and duplicates".into(),
    ];
    let runs = match lost {
        0 => vec![(segments, 0)],
        _ => {
            notes.push(
                "in which runs packets were lost: the kernel counts retransmitted segments, needless ones too".into(),
            );
            alone(segments, lost)
        }
    };
    let span = rows.last().map_or(0, |last| last.sent_ns.abs_diff(rows[0].sent_ns));
    let losses = Some(LossesSeen { runs, apart_ns: span / segments.max(1) });
    let name = name_of(folder);
    let probes = Probes { rows, losses, frame_bytes: SEGMENT_FRAME, notes, ..Probes::default() };
    Ok(Measured { probes, source: format!("{name}, longhaul tcp"), name })
}

/// `lost` of `segments`, each alone.
fn alone(segments: u64, lost: u64) -> Vec<(u64, u64)> {
    const MOST: u64 = 1 << 20;
    let runs = lost.min(MOST);
    let passed = segments.saturating_sub(lost) / runs.max(1);
    vec![(passed, 1); runs as usize]
}

fn take(row: &Row, streams: &mut BTreeMap<(String, u64), Stream>) {
    let (mut of_sender, mut key, mut at_ns, mut rtt_us) = (false, (String::new(), 0), 0, None);
    let (mut segments, mut retransmitted) = (None, None);
    for (name, value) in row.get_column_iter() {
        match name.as_str() {
            "end" => of_sender = matches!(value, Field::Str(end) if end == "sender"),
            "direction" => key.0 = if let Field::Str(direction) = value { direction.clone() } else { String::new() },
            "stream" => key.1 = number(value).unwrap_or_default(),
            "at_ns" => at_ns = number(value).and_then(|at| i64::try_from(at).ok()).unwrap_or_default(),
            name if name == fields::RTT.name => rtt_us = number(value),
            name if name == fields::DATA_SEGS_OUT.name => segments = number(value),
            name if name == fields::TOTAL_RETRANS.name => retransmitted = number(value),
            _ => {}
        }
    }
    if !of_sender {
        return;
    }
    let stream = streams.entry(key).or_default();
    stream.rtts.extend(rtt_us.filter(|rtt| *rtt > 0).map(|rtt| (at_ns, rtt.saturating_mul(1_000))));
    stream.segments = stream.segments.max(segments.unwrap_or_default());
    stream.retransmitted = stream.retransmitted.max(retransmitted.unwrap_or_default());
}

fn number(field: &Field) -> Option<u64> {
    match field {
        Field::UByte(value) => Some(u64::from(*value)),
        Field::UShort(value) => Some(u64::from(*value)),
        Field::UInt(value) => Some(u64::from(*value)),
        Field::ULong(value) => Some(*value),
        Field::Int(value) => u64::try_from(*value).ok(),
        Field::Long(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}
