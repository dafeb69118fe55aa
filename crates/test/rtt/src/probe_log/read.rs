//! Segments to rows.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use longhaul_captures::packet::within_times;
use longhaul_captures::parquet_file::{Budget, ParquetFile, next_values};
use longhaul_captures::parquet_limits::{Refused, guarded};
use longhaul_units::regular_file;
use parquet::basic::Type;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::file::reader::ChunkReader;

use crate::clocks::Gap;
use crate::path_change::PathChange;

use super::{
    ABOUT_KEY, About, COLUMNS, PROBES_MOST, ProbeLogError, ProbeRow, SCHEMA, SEGMENTS_MOST, segment_name,
    segment_number,
};

/// Rows that a log of more than four million may have for each byte of its segments. Rows of probes that all were lost take a quarter of a byte and
/// more, as the times between them vary.
const ROWS_OF_A_BYTE: u64 = 16;
/// Gaps that wait for someone to ask for them.
const GAPS_KEPT: usize = 10_000;
/// Longest text about a measurement, bytes.
const ABOUT_BYTES_MOST: usize = 1 << 16;

/// The rows of a log of probes, in order. It holds one segment open and one batch of rows. After an error there are no more rows. What rows a log may
/// have follows from the length of all its segments.
///
/// A log that lost segments (a full disk) has a jump in its numbers. Files that are no segments are passed over.
#[derive(Debug)]
pub struct ProbeLogReader {
    about: About,
    waiting: VecDeque<PathBuf>,
    segment: Option<Segment<File>>,
    budget: Budget,
    rows: VecDeque<ProbeRow>,
    last: Option<u64>,
    gaps: Vec<Gap>,
    path_changes: Vec<PathChange>,
}

impl ProbeLogReader {
    /// Opens one segment, or the folder that holds all of them.
    ///
    /// # Errors
    /// It cannot be opened, or is no log of probes.
    pub fn open(path: &Path) -> Result<Self, ProbeLogError> {
        let mut waiting = VecDeque::from(segments(path)?);
        let first = waiting.pop_front().ok_or_else(|| ProbeLogError::Empty(path.display().to_string()))?;
        let budget = Budget::of_rows(ROWS_OF_A_BYTE);
        let segment = open(&first, &budget)?;
        let about = segment.about.clone();
        let (gaps, path_changes) = (about.gaps.clone(), about.path_changes.clone());
        let segment = Some(segment);
        Ok(Self { about, waiting, segment, budget, rows: VecDeque::new(), last: None, gaps, path_changes })
    }

    /// The gaps that segments name which were opened since the last call: the text about a segment is bounded, and so are they.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// The route changes in the segments that were opened since the last call.
    pub fn take_path_changes(&mut self) -> Vec<PathChange> {
        std::mem::take(&mut self.path_changes)
    }

    /// What the log says of its measurement.
    pub fn about(&self) -> &About {
        &self.about
    }

    fn next_row(&mut self) -> Result<Option<ProbeRow>, ProbeLogError> {
        loop {
            if let Some(row) = self.rows.pop_front() {
                let last = self.last.unwrap_or_default();
                // Those of a resumed log are counted on from its last.
                if row.sequence >= PROBES_MOST {
                    return Err(ProbeLogError::Order(last, row.sequence));
                }
                if let Some(last) = self.last.filter(|last| row.sequence <= *last) {
                    return Err(ProbeLogError::Order(last, row.sequence));
                }
                self.last = Some(row.sequence);
                return Ok(Some(row));
            }
            let Some(segment) = &mut self.segment else { return Ok(None) };
            segment.next_batch(&mut self.rows)?;
            if self.rows.is_empty() {
                self.segment = self.waiting.pop_front().map(|path| self.follow(&path)).transpose()?;
                // Whoever does not ask for gaps needs but the latest.
                if let Some(next) = &self.segment {
                    self.gaps.truncate(GAPS_KEPT);
                    self.gaps.extend(&next.about.gaps);
                    self.path_changes.truncate(GAPS_KEPT);
                    self.path_changes.extend(next.about.path_changes.iter().cloned());
                }
            }
        }
    }

    /// Opens a further segment, which must be of the same measurement.
    fn follow(&self, path: &Path) -> Result<Segment<File>, ProbeLogError> {
        let next = open(path, &self.budget)?;
        // Who stamps may differ: the first stamps of a measurement may not be there yet.
        let same = |about: &About| (about.host.clone(), about.kind, about.interval_ns, about.payload_bytes);
        if same(&next.about) == same(&self.about) {
            Ok(next)
        } else {
            Err(ProbeLogError::Foreign(path.display().to_string()))
        }
    }
}

impl Iterator for ProbeLogReader {
    type Item = Result<ProbeRow, ProbeLogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_row();
        if next.is_err() {
            self.segment = None;
            self.waiting.clear();
            self.rows.clear();
        }
        next.transpose()
    }
}

/// The segments of the log at `path`, in order: the file itself, or those of the folder.
///
/// # Errors
/// It cannot be looked at.
pub fn segments(path: &Path) -> Result<Vec<PathBuf>, ProbeLogError> {
    let failed = |error| ProbeLogError::File(path.display().to_string(), error);
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut segments = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(number) = entry.file_name().to_str().and_then(segment_number) {
            segments.push((number, entry.path()));
        }
    }
    segments.sort_unstable();
    Ok(segments.into_iter().map(|(_, path)| path).collect())
}

/// The number that the next segment of this folder has.
///
/// # Errors
/// The folder cannot be read, or no number is left.
pub fn next_segment(folder: &Path) -> Result<u32, ProbeLogError> {
    let failed = |error| ProbeLogError::File(folder.display().to_string(), error);
    let mut last = None;
    for entry in fs::read_dir(folder).map_err(failed)? {
        last = last.max(entry.map_err(failed)?.file_name().to_str().and_then(segment_number));
    }
    match last {
        None => Ok(0),
        Some(last) if last < SEGMENTS_MOST - 1 => Ok(last + 1),
        // Another one would take its place.
        Some(last) => Err(ProbeLogError::Full(folder.display().to_string(), segment_name(last))),
    }
}

fn open(path: &Path, budget: &Budget) -> Result<Segment<File>, ProbeLogError> {
    let file = regular_file::open(path).map_err(|error| ProbeLogError::File(path.display().to_string(), error))?;
    Segment::new(file, budget)
}

/// The rows of a segment whose bytes are in memory, at most `most` of them: for tests with arbitrary bytes.
///
/// # Errors
/// As [`ProbeLogReader`].
pub fn rows_of(bytes: Bytes, most: usize) -> Result<Vec<ProbeRow>, ProbeLogError> {
    let mut segment = Segment::new(bytes, &Budget::default())?;
    let (mut rows, mut batch) = (Vec::new(), VecDeque::new());
    while rows.len() < most {
        segment.next_batch(&mut batch)?;
        if batch.is_empty() {
            break;
        }
        rows.extend(batch.drain(..));
    }
    Ok(rows)
}

/// One file.
struct Segment<R: ChunkReader + 'static> {
    file: ParquetFile<R>,
    about: About,
    places: [usize; COLUMNS.len()],
    group: usize,
    rows_left: usize,
    readers: Vec<ColumnReader>,
}

impl<R: ChunkReader + 'static> std::fmt::Debug for Segment<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment").field("group", &self.group).finish_non_exhaustive()
    }
}

impl<R: ChunkReader + 'static> Segment<R> {
    fn new(input: R, budget: &Budget) -> Result<Self, ProbeLogError> {
        let file = ParquetFile::open(input)?.within(budget)?;
        let metadata = file.metadata();
        let about = metadata.file_metadata().key_value_metadata().and_then(|pairs| {
            let text = pairs.iter().find(|pair| pair.key == ABOUT_KEY)?.value.as_deref()?;
            (text.len() <= ABOUT_BYTES_MOST).then(|| serde_json::from_str::<About>(text).ok()).flatten()
        });
        let about = about.filter(|about| about.schema == SCHEMA).ok_or(ProbeLogError::About)?;
        let schema = metadata.file_metadata().schema_descr_ptr();
        let mut places = [0; COLUMNS.len()];
        for ((name, always, kind), place) in COLUMNS.into_iter().zip(&mut places) {
            let physical = if kind.starts_with("int64") { Type::INT64 } else { Type::INT32 };
            let found = schema.columns().iter().position(|column| {
                column.name() == name
                    && column.max_def_level() == i16::from(!always)
                    && column.max_rep_level() == 0
                    && column.physical_type() == physical
            });
            *place = found.ok_or(ProbeLogError::Column(name))?;
        }
        Ok(Self { file, about, places, group: 0, rows_left: 0, readers: Vec::new() })
    }

    /// Adds the next rows; none at the end.
    fn next_batch(&mut self, rows: &mut VecDeque<ProbeRow>) -> Result<(), ProbeLogError> {
        guarded(|| self.load(rows))
    }

    fn load(&mut self, rows: &mut VecDeque<ProbeRow>) -> Result<(), ProbeLogError> {
        while self.rows_left == 0 {
            let Some(group) = self.file.group(self.group, |place| self.places.contains(&place))? else { return Ok(()) };
            self.rows_left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            self.readers = self.places.iter().map(|place| group.get_column_reader(*place)).collect::<Result<_, _>>()?;
            self.group += 1;
        }
        let count = self.rows_left.min(self.file.batch_rows());
        self.rows_left -= count;
        let mut columns = self.readers.iter_mut().zip(COLUMNS);
        let mut next = || match columns.next() {
            Some((ColumnReader::Int64ColumnReader(reader), (name, always, _))) => {
                fill::<Int64Type>(reader, count, name, always)
            }
            Some((ColumnReader::Int32ColumnReader(reader), (name, always, _))) => {
                let values = fill::<Int32Type>(reader, count, name, always)?;
                Ok(values.into_iter().map(|value| value.map(i64::from)).collect())
            }
            _ => Err(ProbeLogError::Refused(Refused::Damaged)),
        };
        let (sequence, payload, sent) = (next()?, next()?, next()?);
        let (rtt, forward) = (next()?, next()?);
        let (copies, late_by) = (next()?, next()?);
        rows.extend((0..count).map(|row| ProbeRow {
            sequence: sequence[row].unwrap_or_default() as u64,
            payload_bytes: payload[row].unwrap_or_default() as u32,
            sent_ns: within_times(sent[row].unwrap_or_default()),
            rtt_ns: rtt[row].map(within_times),
            forward_ns: forward[row].map(within_times),
            backward_ns: rtt[row].zip(forward[row]).map(|(rtt, forward)| within_times(rtt.saturating_sub(forward))),
            copies: copies[row].unwrap_or_default() as u32,
            late_by: late_by[row].unwrap_or_default() as u32,
        }));
        Ok(())
    }
}

/// Exactly `count` values of a column, `None` where a row has none.
fn fill<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    name: &'static str,
    always: bool,
) -> Result<Vec<Option<T::T>>, ProbeLogError> {
    let values = next_values(reader, count, always)?;
    if values.len() == count { Ok(values) } else { Err(ProbeLogError::Length(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe_log::write_segment;

    /// A segment of a kilobyte may have four million rows, and a folder thousands of those.
    #[test]
    fn segments_have_no_more_rows_together_than_their_bytes_allow() {
        let folder = std::env::temp_dir().join(format!("longhaul-rtt-rows-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let about = About { schema: SCHEMA.into(), ..About::default() };
        for number in 0..3 {
            let rows = [0, 1].map(|at| ProbeRow { sequence: u64::from(number) * 2 + at, ..ProbeRow::default() });
            write_segment(File::create(folder.join(segment_name(number))).unwrap(), &about, &rows).unwrap();
        }
        let bytes = |number| fs::metadata(folder.join(segment_name(number))).unwrap().len();
        let most = (4_u64 << 20) + ROWS_OF_A_BYTE * (bytes(0) + bytes(1));
        // As if the first segment had `more` rows.
        let read = |more: u64| {
            let reader = ProbeLogReader::open(&folder).unwrap();
            let _ = reader.budget.add_file(0, more);
            reader.map(|row| row.map(|row| row.sequence)).collect::<Vec<_>>()
        };
        let sequences: Vec<u64> = read(most - 4).into_iter().map(Result::unwrap).collect();
        assert_eq!(sequences, [0, 1, 2, 3, 4, 5]);
        let read = read(most - 3);
        let [Ok(0), Ok(1), Err(ProbeLogError::Refused(Refused::Rows(rows)))] = read[..] else { panic!("{read:?}") };
        assert_eq!(rows, most + 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
