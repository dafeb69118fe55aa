//! The log of probes in the result's folder: segments that are closed while the measurement runs.

use std::fs::File;

use longhaul_result::Caveat;
use longhaul_rtt::probe_log::{
    About, EndStamps, ProbeKind, ProbeRow, SCHEMA, SEGMENT_NS, SEGMENT_ROWS, SEGMENTS_MOST, segment_name, write_segment,
};
use longhaul_rtt::{Gap, GapReason, PathChange, RttParameters};
use parquet::errors::ParquetError;

use crate::caveats;
use crate::output::saved::Folder;
use crate::output::{Failure, say};

/// Rows that are kept while the disk takes none; then the oldest go.
const WAITING_MOST: usize = 4 * SEGMENT_ROWS;

/// Gaps and route changes that a segment tells of.
const GAPS_MOST: usize = 256;

/// Rows that wait for their segment to be closed.
pub(crate) struct SegmentLog {
    folder: Folder,
    about: About,
    rows: Vec<ProbeRow>,
    number: u32,
    /// Rows that had no place any more.
    dropped: u64,
    failure: Option<String>,
    /// When the last attempt to write failed, by the newest row.
    failed_at_ns: Option<i64>,
}

impl SegmentLog {
    /// A log in `folder`, which must have none yet.
    pub(crate) fn new(
        folder: Folder,
        host: &str,
        (kind, port): (ProbeKind, Option<u16>),
        asked: &RttParameters,
    ) -> Result<Self, Failure> {
        if folder.has(&segment_name(0)) {
            let failure = Failure::new("not_written", "-o: the folder has a log of probes already");
            return Err(failure.remedy("give another folder, or go on with this one by --resume"));
        }
        let about = About {
            schema: SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            host: host.into(),
            kind,
            interval_ns: asked.interval_ns,
            poisson: asked.poisson,
            payload_bytes: asked.payload_bytes,
            sizes: asked.sizes.clone(),
            timeout_ns: asked.timeout_ns,
            port,
            ..About::default()
        };
        Ok(Self::at(folder, about, 0))
    }

    /// A log that goes on with segment `number`.
    pub(crate) fn at(folder: Folder, about: About, number: u32) -> Self {
        let (rows, failure, failed_at_ns) = (Vec::new(), None, None);
        Self { folder, about, rows, number, dropped: 0, failure, failed_at_ns }
    }

    /// A gap between the rows so far and the next one: the segment that begins with that row tells of it. A stall, which a busy host has
    /// often and which spoils no row, begins no segment.
    pub(crate) fn gap(&mut self, gap: Gap) {
        if gap.why != GapReason::Stalled {
            self.close();
        }
        if self.about.gaps.len() < GAPS_MOST {
            self.about.gaps.push(gap);
        }
    }

    /// The route changed: the segment that is open tells of it.
    pub(crate) fn path_change(&mut self, change: PathChange) {
        if self.about.path_changes.len() < GAPS_MOST {
            self.about.path_changes.push(change);
        }
    }

    /// Who stamps, as far as is known.
    pub(crate) fn say(&mut self, client: EndStamps, server: Option<EndStamps>) {
        (self.about.client, self.about.server) = (client, server);
    }

    pub(crate) fn take(&mut self, rows: &[ProbeRow]) {
        for row in rows {
            self.rows.push(*row);
            let since = self.failed_at_ns.or_else(|| self.rows.first().map(|first| first.sent_ns));
            let lasts = since.map_or(0, |since| row.sent_ns.saturating_sub(since));
            // While the disk takes none, it is asked again each minute.
            let full = self.rows.len().is_multiple_of(SEGMENT_ROWS) && self.failed_at_ns.is_none();
            if full || lasts >= SEGMENT_NS {
                self.close();
            }
            if self.rows.len() >= WAITING_MOST {
                self.rows.drain(..SEGMENT_ROWS);
                self.dropped += SEGMENT_ROWS as u64;
            }
        }
    }

    /// Writes what waits.
    fn close(&mut self) {
        while !self.rows.is_empty() {
            let part = &self.rows[..self.rows.len().min(SEGMENT_ROWS)];
            let write = |file: File| {
                write_segment(file, &self.about, part).map_err(|error| ParquetError::General(root_of(&error)))
            };
            let written = if self.number < SEGMENTS_MOST {
                self.folder.write_now(&segment_name(self.number), write)
            } else {
                Err("no number is left for another segment".to_owned())
            };
            if let Err(error) = written {
                self.failed_at_ns = self.rows.last().map(|row| row.sent_ns);
                if self.failure.is_none() {
                    say(format!("the log of probes cannot be written, the measurement goes on: {error}"));
                }
                self.failure = Some(error);
                return;
            }
            self.number += 1;
            self.about.gaps.clear();
            self.about.path_changes.clear();
            self.rows.drain(..part.len());
        }
        self.failed_at_ns = None;
    }

    /// Writes the last segment. A caveat where rows are missing.
    pub(crate) fn finish(mut self) -> Option<Caveat> {
        self.close();
        let missing = self.dropped + self.rows.len() as u64;
        let why = self.failure.filter(|_| missing > 0)?;
        let message = format!("the log lacks {missing} probes: {why}");
        Some(Caveat::new(
            caveats::LOG_INCOMPLETE,
            message,
            "free disk space or give another folder, then measure again",
        ))
    }
}

/// What the system said: that a log cannot be read is no help to one who writes it.
fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_log_without_a_number_left_is_incomplete() {
        let folder = std::env::temp_dir().join(format!("longhaul-rtt-last-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let row = |at: i64| ProbeRow { sequence: at as u64, sent_ns: at * SEGMENT_NS, ..ProbeRow::default() };
        let mut log = SegmentLog::at(Folder::open(folder.clone()).unwrap(), About::default(), SEGMENTS_MOST - 1);
        log.take(&[row(0), row(1), row(2)]);
        let caveat = log.finish().unwrap();
        assert!(caveat.message.contains("lacks 1 probes: no number is left"), "{}", caveat.message);
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(names, ["probes-4294967294.parquet"]);
    }
}
