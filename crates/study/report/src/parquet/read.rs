//! Tables that longhaul wrote, read back. A file may be anybody's: what `longhaul_captures::parquet_file` bounds by its length are rows, memory and time.
//! Values that cannot be, and columns that are missing, make it damaged.

use std::borrow::Cow;
use std::collections::HashMap;

use longhaul_captures::parquet_file::{ParquetFile, next_values};
use longhaul_captures::parquet_limits::{Refused, guarded};
use longhaul_flows::Millisecond;
use longhaul_result::Location;
use longhaul_tcp::{CongestionSince, FIELDS, MAX_SAMPLES, Sample, Series, TcpInfo};
use longhaul_udp::locate::Loss;
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnDescriptor;

use crate::parquet::FlowSamples;

/// Rows of a table of losses: in one of any length, and one more for each of its bytes. In ours a row takes more than one, as numbers rise.
const LOSSES_SURE: u64 = 1 << 19;
/// What its pages may unpack to: in any, and for each row. In ours a row takes some 25 bytes.
const LOSSES_BYTES_SURE: u64 = 16 << 20;
const LOSS_BYTES_MOST: u64 = 64;
/// Rows of a table that are decoded together, at least: its texts are words, and fewer rows are for long ones.
const BATCH_ROWS_LEAST: usize = 1024;
/// Samples of both ends of a test.
const SAMPLES_MOST: usize = 2 * MAX_SAMPLES;
/// Flows of a test, or connections of a watch, that have samples: a page sums each up over time.
const FLOWS_MOST: usize = 16_384;
/// Congestion controls of a flow: a sample has the number of one in a byte.
const CONTROLS_MOST: usize = 256;
/// Letters of the longest name of a congestion control: the kernel's have 15.
const CONTROL_BYTES_MOST: usize = 64;

/// Calls `each` with every loss of a file of [`super::write_losses`], but for its reason.
///
/// # Errors
/// The file is damaged, or takes too much memory or time.
pub fn read_losses(input: impl ChunkReader + 'static, mut each: impl FnMut(Loss)) -> Result<(), Refused> {
    let columns = ["stream", "first_sequence", "packets", "unit_packets", "location"];
    rows(input, open_losses, &columns, |columns, row| {
        let [stream, first_sequence, packets, unit_packets, location] = columns else { return None };
        let location = location.text(row)?;
        each(Loss {
            stream: stream.number(row)?.try_into().ok()?,
            first_sequence: first_sequence.number(row)?,
            packets: packets.number(row)?,
            unit_packets: unit_packets.number(row)?.try_into().ok()?,
            location: Location::ALL.into_iter().find(|known| known.name() == location)?,
            reason: Cow::Borrowed(""),
        });
        Some(())
    })
}

/// Opens a file of losses, whose rows and pages are no more than those of one of its length.
fn open_losses<R: ChunkReader + 'static>(input: R) -> Result<ParquetFile<R>, Refused> {
    let most = LOSSES_SURE.saturating_add(input.len());
    let file = ParquetFile::open(input)?;
    let rows = file.rows();
    if rows > most {
        return Err(Refused::Rows(rows));
    }
    Ok(file.unpacking_at_most(rows.saturating_mul(LOSS_BYTES_MOST).saturating_add(LOSSES_BYTES_SURE)))
}

/// Calls `each` with every row of a file of [`super::SeriesFile`]: the flow, whether it is its direction from the client, when the millisecond began,
/// nanoseconds since 1970, and what is drawn of it.
///
/// # Errors
/// The file is damaged, or takes too much memory or time.
pub fn read_series(
    input: impl ChunkReader + 'static,
    mut each: impl FnMut(u64, bool, i64, Millisecond),
) -> Result<(), Refused> {
    let required = ["flow", "forward", "at_ns", "payload_bytes", "sequence", "in_gap"];
    let optional = ["in_flight_bytes", "acknowledged", "rtt_ns"];
    rows(input, ParquetFile::open, &[&required[..], &optional].concat(), |columns, row| {
        let (always, others) = columns.split_at_checked(required.len())?;
        let [flow, forward, at_ns, payload_bytes, sequence, in_gap] = always else { return None };
        let [in_flight_bytes, acknowledged, rtt_ns] = others else { return None };
        let drawn = Millisecond {
            payload_bytes: payload_bytes.number(row)?,
            in_flight_bytes: in_flight_bytes.number(row),
            sequence: sequence.number(row)?,
            acknowledged: acknowledged.number(row),
            rtt_ns: rtt_ns.number(row).map(u64::cast_signed),
            in_gap: in_gap.number(row)? > 0,
            ..Millisecond::default()
        };
        each(flow.number(row)?, forward.number(row)? > 0, at_ns.number(row)?.cast_signed(), drawn);
        Some(())
    })
}

/// Calls `each` with every row of a file of [`super::DelayFile`]: A's stamp, B's stamp and the delay, nanoseconds.
///
/// # Errors
/// The file is damaged, or takes too much memory or time.
pub fn read_delays(input: impl ChunkReader + 'static, mut each: impl FnMut(i64, i64, f64)) -> Result<(), Refused> {
    rows(input, ParquetFile::open, &["a_ns", "b_ns", "delay_ns"], |columns, row| {
        let [a_ns, b_ns, delay_ns] = columns else { return None };
        let delay_ns = Some(f64::from_bits(delay_ns.number(row)?)).filter(|ns| ns.is_finite())?;
        each(a_ns.number(row)?.cast_signed(), b_ns.number(row)?.cast_signed(), delay_ns);
        Some(())
    })
}

/// The samples of a file of [`super::write_samples`].
#[derive(Debug, Default)]
pub struct ReadSamples(Vec<ReadFlow>);

/// Those of a flow.
#[derive(Debug)]
struct ReadFlow {
    end: &'static str,
    direction: &'static str,
    stream: u32,
    congestion: Vec<CongestionSince>,
    series: Series,
}

impl ReadSamples {
    /// Reads a file.
    ///
    /// # Errors
    /// It is damaged, takes too much memory or time, or has more samples or flows than a test.
    pub fn read(input: impl ChunkReader + 'static) -> Result<Self, Refused> {
        let known = ["end", "direction", "stream", "at_ns", "congestion_control"];
        let columns: Vec<&str> = known.into_iter().chain(FIELDS.iter().map(|field| field.name)).collect();
        let (mut flows, mut places) = (Vec::new(), HashMap::new());
        let mut count = 0;
        rows(input, ParquetFile::open, &columns, |columns, row| {
            let (known, fields) = columns.split_at_checked(known.len())?;
            let [end, direction, stream, at_ns, control] = known else { return None };
            let end = word(end.text(row)?, ["sender", "receiver", "watched"])?;
            let direction = word(direction.text(row)?, ["forward", "backward", "both"])?;
            let stream = u32::try_from(stream.number(row)?).ok()?;
            let place = *places.entry((end, direction, stream)).or_insert_with(|| {
                let (congestion, series) = (Vec::new(), Series::new(SAMPLES_MOST));
                flows.push(ReadFlow { end, direction, stream, congestion, series });
                flows.len() - 1
            });
            count += 1;
            if count > SAMPLES_MOST || flows.len() > FLOWS_MOST {
                return None;
            }
            let values: Vec<Option<u64>> = fields.iter().map(|field| field.number(row)).collect();
            flows[place].push(at_ns.number(row)?, control.text(row)?, TcpInfo::of_values(&values))
        })?;
        Ok(Self(flows))
    }

    /// Each flow with its samples, in the order of the file. The samples are there once.
    pub fn take(&mut self) -> Vec<FlowSamples<'_>> {
        let mut flows = Vec::with_capacity(self.0.len());
        for ReadFlow { end, direction, stream, congestion, series } in &mut self.0 {
            let series = std::mem::replace(series, Series::new(0));
            flows.push(FlowSamples { end, direction, stream: *stream, congestion, series });
        }
        flows
    }
}

impl ReadFlow {
    /// Adds a sample, which was taken no earlier than the last: lines of samples are thinned by their order. The first one of another congestion
    /// control was taken as that began.
    fn push(&mut self, at_ns: u64, control: &str, info: TcpInfo) -> Option<()> {
        if self.series.samples().last().is_some_and(|last| at_ns < last.at_ns) {
            return None;
        }
        if self.congestion.last().is_none_or(|last| last.name != control) {
            if self.congestion.len() == CONTROLS_MOST || control.len() > CONTROL_BYTES_MOST {
                return None;
            }
            self.congestion.push(CongestionSince { at_ns, name: control.to_owned() });
        }
        let congestion = u8::try_from(self.congestion.len() - 1).ok()?;
        self.series.push(Sample { at_ns, congestion, info });
        Some(())
    }
}

/// Which of `words` the text is.
fn word(text: &str, words: [&'static str; 3]) -> Option<&'static str> {
    words.into_iter().find(|word| *word == text)
}

/// The next values of a column.
enum Column {
    /// The file has none of its name.
    Missing,
    /// Numbers, truth as 1, and floating-point numbers as their bits.
    Numbers(Vec<Option<u64>>),
    Texts(Vec<Option<ByteArray>>),
}

impl Column {
    fn number(&self, row: usize) -> Option<u64> {
        if let Self::Numbers(values) = self { values.get(row).copied().flatten() } else { None }
    }

    fn text(&self, row: usize) -> Option<&str> {
        let Self::Texts(values) = self else { return None };
        std::str::from_utf8(values.get(row)?.as_ref()?.data()).ok()
    }

    fn numbers<T>(values: Vec<Option<T>>, of: impl Fn(T) -> u64) -> Self {
        Self::Numbers(values.into_iter().map(|value| value.map(&of)).collect())
    }
}

/// Calls `each` for every row of the columns `names` of a file that `open` opens, with a batch of their values and the row's place in it. `each` returns
/// `None` if the row is damaged.
fn rows<R: ChunkReader + 'static>(
    input: R,
    open: impl FnOnce(R) -> Result<ParquetFile<R>, Refused>,
    names: &[&str],
    mut each: impl FnMut(&[Column], usize) -> Option<()>,
) -> Result<(), Refused> {
    guarded(|| {
        let file = open(input)?;
        let schema = file.metadata().file_metadata().schema_descr_ptr();
        let place = |name: &&str| {
            let is_flat = |column: &ColumnDescriptor| column.max_rep_level() == 0 && column.max_def_level() <= 1;
            schema.columns().iter().position(|column| column.path().string() == **name && is_flat(column))
        };
        let places: Vec<Option<usize>> = names.iter().map(place).collect();
        for number in 0.. {
            let Some(group) = file.group(number, |place| places.contains(&Some(place)))? else { break };
            if file.batch_rows() < BATCH_ROWS_LEAST {
                return Err(Refused::Damaged);
            }
            let open = |place: usize| {
                Ok::<_, Refused>((group.get_column_reader(place)?, schema.column(place).max_def_level() == 0))
            };
            let mut readers = Vec::with_capacity(places.len());
            for place in &places {
                readers.push(place.map(open).transpose()?);
            }
            let mut left = usize::try_from(group.metadata().num_rows()).map_err(|_| Refused::Damaged)?;
            while left > 0 {
                let count = left.min(file.batch_rows());
                left -= count;
                let columns = readers.iter_mut().map(|reader| next(reader, count)).collect::<Result<Vec<_>, _>>()?;
                (0..count).try_for_each(|row| each(&columns, row)).ok_or(Refused::Damaged)?;
            }
        }
        Ok(())
    })
}

/// The next `count` values of a column; `bool`: whether each row has one.
fn next(column: &mut Option<(ColumnReader, bool)>, count: usize) -> Result<Column, Refused> {
    let Some((reader, always)) = column else { return Ok(Column::Missing) };
    Ok(match reader {
        ColumnReader::BoolColumnReader(reader) => Column::numbers(next_values(reader, count, *always)?, u64::from),
        ColumnReader::Int32ColumnReader(reader) => {
            Column::numbers(next_values(reader, count, *always)?, |value| u64::from(value.cast_unsigned()))
        }
        ColumnReader::Int64ColumnReader(reader) => {
            Column::numbers(next_values(reader, count, *always)?, i64::cast_unsigned)
        }
        ColumnReader::DoubleColumnReader(reader) => Column::numbers(next_values(reader, count, *always)?, f64::to_bits),
        ColumnReader::ByteArrayColumnReader(reader) => Column::Texts(next_values(reader, count, *always)?),
        _ => Column::Missing,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use longhaul_flows::compare::{PathDirection, Reached};
    use longhaul_tcp::fields;

    use super::*;
    use crate::parquet::{DelayFile, End, SeriesFile, write_losses, write_samples};

    #[test]
    fn losses_are_read_as_they_were_written() {
        let loss = |at: u64| Loss {
            stream: (at % 3) as u8,
            first_sequence: u64::MAX - at,
            packets: at + 1,
            unit_packets: u32::MAX,
            location: Location::ALL[at as usize % 12],
            reason: "why".into(),
        };
        let mut out = Vec::new();
        write_losses(&mut out, (0..70_000).map(loss)).unwrap();
        let mut next = 0;
        let same = |read: Loss| {
            assert_eq!(read, Loss { reason: "".into(), ..loss(next) });
            next += 1;
        };
        read_losses(Bytes::from(out.clone()), same).unwrap();
        assert_eq!(next, 70_000);
        let cut = read_losses(Bytes::from(out[..out.len() / 2].to_vec()), |_| {});
        assert!(cut.is_err(), "a file that was cut off");
        assert!(read_delays(Bytes::from(out), |_, _, _| {}).is_err(), "a file of other columns");
    }

    /// The second packet of each two is lost: no file of so many losses is shorter. Losses that are all the same cannot be.
    #[test]
    fn a_table_has_as_many_losses_as_one_of_its_length() {
        let file = |sequence: fn(u64) -> u64| {
            let loss = |at: u64| Loss {
                stream: 0,
                first_sequence: sequence(at),
                packets: 1,
                unit_packets: 1,
                location: Location::Network,
                reason: "".into(),
            };
            let mut out = Vec::new();
            write_losses(&mut out, (0..LOSSES_SURE + 200_000).map(loss)).unwrap();
            out
        };
        let sparse = file(|at| 2 * at + 1);
        let mut count = 0;
        read_losses(Bytes::from(sparse.clone()), |_| count += 1).unwrap();
        assert_eq!(count, LOSSES_SURE + 200_000);
        assert!(sparse.len() as u64 > count, "{} bytes of {count} losses", sparse.len());
        let refused = read_losses(Bytes::from(file(|_| 1)), |_| {}).unwrap_err();
        assert!(matches!(refused, Refused::Rows(rows) if rows == count), "{refused:?}");
    }

    /// A sample that is the kernel's word for "none" is none in the table, and that word again.
    #[test]
    fn samples_are_read_as_they_were_written() {
        let names = ["reno", "cubic"].map(|name| CongestionSince { at_ns: 0, name: name.into() });
        let mut series = Series::new(100);
        for at in 0..5_u8 {
            let mut bytes = [0; 168];
            bytes[68] = 40 + at;
            bytes[6] = 0x7a;
            bytes[167] = 0x80;
            bytes[112..120].fill(0xff);
            series.push(Sample { at_ns: 1_000 + u64::from(at), congestion: at / 3, info: TcpInfo::parse(&bytes) });
        }
        let flow = |end, stream| {
            let series = series.clone();
            FlowSamples { end, direction: "forward", stream, congestion: &names, series }
        };
        let end = |end, streams: u32| {
            let flows = (0..streams).map(|stream| flow(end, stream)).collect();
            End { flows, unix_offset_ns: None }
        };
        let mut out = Vec::new();
        write_samples(&mut out, &[end("sender", 2), end("receiver", 1)]).unwrap();
        let mut read = ReadSamples::read(Bytes::from(out)).unwrap();
        let flows = read.take();
        let told: Vec<_> = flows.iter().map(|flow| (flow.end, flow.direction, flow.stream)).collect();
        assert_eq!(told, [("sender", "forward", 0), ("sender", "forward", 1), ("receiver", "forward", 0)]);
        for flow in &flows {
            let since: Vec<_> = flow.congestion.iter().map(|since| (since.at_ns, since.name.as_str())).collect();
            assert_eq!(since, [(0, "reno"), (3, "cubic")]);
            for (read, written) in flow.series.samples().iter().zip(series.samples()) {
                assert_eq!((read.at_ns, read.congestion), (written.at_ns - 1_000, written.congestion));
                for field in FIELDS {
                    assert_eq!(read.info.get(field), written.info.get(field), "{field:?}");
                }
            }
            assert_eq!(flow.series.samples()[0].info.get(fields::BUSY_TIME), None);
            assert_eq!(flow.series.samples().len(), 5);
        }
    }

    #[test]
    fn samples_of_a_flow_whose_time_goes_back_are_damaged() {
        let read = |flows: [&[u64]; 2]| {
            let flow = |(stream, times): (u32, &[u64])| {
                let (mut series, info) = (Series::new(100), TcpInfo::parse(&[0; 168]));
                times.iter().for_each(|at_ns| series.push(Sample { at_ns: *at_ns, congestion: 0, info }));
                FlowSamples { end: "sender", direction: "forward", stream, congestion: &[], series }
            };
            let mut out = Vec::new();
            let flows = (0..).zip(flows).map(flow).collect();
            write_samples(&mut out, &[End { flows, unix_offset_ns: None }]).unwrap();
            ReadSamples::read(Bytes::from(out)).map(|mut read| read.take().len()).map_err(|error| error.to_string())
        };
        assert_eq!(read([&[0, 7, 7, 9], &[0, 8]]), Ok(2), "each flow has its own time");
        assert_eq!(read([&[0, 7, 7, 9], &[0, 9, 8]]), Err("it is damaged".to_owned()));
    }

    #[test]
    fn series_and_delays_are_read_as_they_were_written() {
        let row = Millisecond { payload_bytes: 7, sequence: 9, rtt_ns: Some(-3), ..Millisecond::default() };
        let mut out = Vec::new();
        let mut file = SeriesFile::new(&mut out).unwrap();
        file.push(5, true, 1_000_000, row);
        file.push(5, false, -1_000_000, Millisecond { in_gap: true, in_flight_bytes: Some(8), ..row });
        file.finish().unwrap();
        let mut read = Vec::new();
        read_series(Bytes::from(out), |flow, forward, at_ns, row| read.push((flow, forward, at_ns, row))).unwrap();
        let second = Millisecond { in_gap: true, in_flight_bytes: Some(8), ..row };
        assert_eq!(read, [(5, true, 1_000_000, row), (5, false, -1_000_000, second)]);

        let mut out = Vec::new();
        let mut file = DelayFile::new(&mut out).unwrap();
        file.push(Reached {
            direction: PathDirection::BToA,
            path: 0,
            sequence: 1,
            payload_bytes: 2,
            a_ns: 9,
            b_ns: -4,
            delay_ns: 13.5,
            after_gap: false,
        });
        file.finish().unwrap();
        let mut read = Vec::new();
        read_delays(Bytes::from(out), |a_ns, b_ns, delay_ns| read.push((a_ns, b_ns, delay_ns))).unwrap();
        assert_eq!(read, [(9, -4, 13.5)]);
    }
}
