//! Samples of `TCP_INFO` as a Parquet file: a row a sample, a column a field, and null where the kernel does not have it.

use std::io::Write;

use longhaul_tcp::{CongestionSince, FIELDS, MAX_SAMPLES, Sample, Series, TcpEndReport, TcpStreamReport};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedRowGroupWriter;

use crate::parquet::{ROW_GROUP, writer};

/// The samples of a flow, with what they do not say themselves.
#[derive(Debug)]
pub struct FlowSamples<'a> {
    /// `sender` or `receiver` of the flow's data; `watched` where it may be either.
    pub end: &'static str,
    /// `forward` or `backward`; `both` of a connection that is watched.
    pub direction: &'static str,
    /// Its number in its direction, or among those that are watched.
    pub stream: u32,
    /// What a sample's number of a congestion control stands for.
    pub congestion: &'a [CongestionSince],
    /// The samples.
    pub series: Series,
}

/// The flows that were sampled on one host, by one clock.
#[derive(Debug)]
pub struct End<'a> {
    /// The flows.
    pub flows: Vec<FlowSamples<'a>>,
    /// What that clock must be added to for Unix time, nanoseconds; `None` where the host did not say.
    pub unix_offset_ns: Option<i64>,
}

impl<'a> End<'a> {
    /// Those of one end's report, of at most `most` samples of a flow.
    ///
    /// # Errors
    /// Where the samples are damaged, or more.
    pub fn of_test(report: &'a TcpEndReport, most: usize) -> Result<Self, String> {
        let streams = &report.streams;
        let most = most.min(MAX_SAMPLES / streams.len().max(1));
        let flow = |report: &'a TcpStreamReport| {
            let series = Series::from_text(report.samples.as_deref()?, most);
            Some(series.map(|series| FlowSamples {
                end: if report.sends { "sender" } else { "receiver" },
                direction: if report.backward { "backward" } else { "forward" },
                stream: report.stream.into(),
                congestion: &report.congestion,
                series,
            }))
        };
        let flows = streams.iter().filter_map(flow).collect::<Result<_, _>>();
        let unix_offset_ns = report.unix_offset_ns;
        flows.map(|flows| Self { flows, unix_offset_ns }).map_err(|error| error.to_string())
    }

    /// When its first sample was taken.
    fn start_ns(&self) -> u64 {
        let first = |flow: &FlowSamples<'_>| flow.series.samples().first().map(|sample| sample.at_ns);
        self.flows.iter().filter_map(first).min().unwrap_or(0)
    }
}

/// The columns of the file; docs/reference/tcp-results.md tells what they mean.
pub(super) fn columns() -> String {
    let mut text = String::from(
        "message samples {
            required byte_array end (string);
            required byte_array direction (string);
            required int32 stream (integer(32, false));
            required int64 at_ns (integer(64, false));
            optional int64 time (timestamp(nanos, true));
            required byte_array congestion_control (string);\n",
    );
    for field in FIELDS {
        let kind = if field.bits() > 32 { "int64" } else { "int32" };
        let bits = match field.bits() {
            0..=8 => 8,
            bits => bits,
        };
        text += &format!("optional {kind} {} (integer({bits}, false));\n", field.name);
    }
    text + "}"
}

/// Writes the samples of all `ends`, whose times count from the first sample of each.
///
/// # Errors
/// Where `out` does not take what is written.
pub fn write_samples(out: impl Write + Send, ends: &[End<'_>]) -> Result<(), ParquetError> {
    let mut writer = writer(out, &columns())?;
    for end in ends {
        let start_ns = end.start_ns();
        for flow in &end.flows {
            for rows in flow.series.samples().chunks(ROW_GROUP) {
                let mut group = writer.next_row_group()?;
                write_rows(&mut group, flow, rows, (start_ns, end.unix_offset_ns))?;
                group.close()?;
            }
        }
    }
    writer.close()?;
    Ok(())
}

fn write_rows(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    flow: &FlowSamples<'_>,
    rows: &[Sample],
    (start_ns, unix_offset_ns): (u64, Option<i64>),
) -> Result<(), ParquetError> {
    let same = |text: &str| vec![ByteArray::from(text); rows.len()];
    let control = |sample: &Sample| flow.congestion.get(usize::from(sample.congestion)).map_or("", |since| &since.name);
    text(group, same(flow.end))?;
    text(group, same(flow.direction))?;
    int32(group, &vec![flow.stream as i32; rows.len()], None)?;
    let at: Vec<i64> = rows.iter().map(|sample| sample.at_ns.saturating_sub(start_ns) as i64).collect();
    int64(group, &at, None)?;
    let unix = |sample: &Sample| unix_offset_ns.map(|offset| (sample.at_ns as i64).saturating_add(offset));
    let times: Vec<i64> = rows.iter().filter_map(unix).collect();
    int64(group, &times, Some(&vec![i16::from(unix_offset_ns.is_some()); rows.len()]))?;
    text(group, rows.iter().map(|sample| ByteArray::from(control(sample))).collect())?;
    for field in FIELDS {
        // Numbers keep their bits: the schema says that they have no sign.
        // All ones are the kernel's word for no limit, and for no round trip yet.
        let none = if field.bits() > 32 { u64::MAX } else { u64::from(u32::MAX) };
        let known = |sample: &Sample| sample.info.get(field).filter(|value| *value != none);
        let values: Vec<u64> = rows.iter().filter_map(known).collect();
        let there: Vec<i16> = rows.iter().map(|sample| known(sample).is_some().into()).collect();
        if field.bits() > 32 {
            int64(group, &values.iter().map(|value| *value as i64).collect::<Vec<_>>(), Some(&there))?;
        } else {
            int32(group, &values.iter().map(|value| *value as i32).collect::<Vec<_>>(), Some(&there))?;
        }
    }
    Ok(())
}

fn text(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: Vec<ByteArray>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
    column.close()
}

fn int32(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[i32],
    there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<Int32Type>().write_batch(values, there, None)?;
    column.close()
}

fn int64(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[i64],
    there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else { return Ok(()) };
    column.typed::<Int64Type>().write_batch(values, there, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use longhaul_tcp::{TcpInfo, fields};
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    #[test]
    fn samples_read_back_and_what_the_kernel_lacks_is_null() {
        let mut series = Series::new(100);
        for at in 0..5_u8 {
            // An older kernel's: it ends with the delivery rate.
            let mut bytes = [0; 168];
            bytes[68] = 40 + at;
            bytes[167] = 0x80;
            // No limit of the pacing rate.
            bytes[112..120].fill(0xff);
            series.push(Sample { at_ns: 1_000 + u64::from(at), congestion: at / 3, info: TcpInfo::parse(&bytes) });
        }
        let names = ["reno", "cubic"].map(|name| CongestionSince { at_ns: 0, name: name.into() });
        let flow = FlowSamples { end: "sender", direction: "forward", stream: 3, congestion: &names, series };
        let path = std::env::temp_dir().join(format!("longhaul-samples-{}.parquet", std::process::id()));
        write_samples(
            File::create(&path).unwrap(),
            &[End { flows: vec![flow], unix_offset_ns: Some(1_795_515_330_000_000_000) }],
        )
        .unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_json_value_like()).collect();
        assert_eq!(rows.len(), 5);
        let row = &rows[4];
        assert_eq!((row["end"].as_str(), row["at_ns"].as_str(), row["stream"].as_str()), ("\"sender\"", "4", "3"));
        assert_eq!((row["congestion_control"].as_str(), row[fields::RTT.name].as_str()), ("\"cubic\"", "44"));
        assert_eq!(row[fields::DELIVERY_RATE.name], (1_u64 << 63).to_string());
        assert_eq!(row[fields::BUSY_TIME.name], "null");
        assert_eq!(row[fields::MAX_PACING_RATE.name], "null");
        assert!(
            row["time"].contains("1795515330000001004") || row["time"].starts_with("2026-11-24"),
            "{}",
            row["time"]
        );
        assert_eq!(row.len(), FIELDS.len() + 6);
    }

    /// Another host's report says any number; who reads it knows how many there can be.
    #[test]
    fn an_end_has_no_more_samples_than_the_test_can_have() {
        let mut series = Series::new(100);
        for at_ns in 0..10 {
            series.push(Sample { at_ns, congestion: 0, info: TcpInfo::parse(&[0; 168]) });
        }
        let stream = TcpStreamReport { samples: Some(series.to_text()), ..TcpStreamReport::default() };
        let report = TcpEndReport { streams: vec![stream], ..TcpEndReport::default() };
        assert_eq!(End::of_test(&report, 10).unwrap().flows[0].series.samples().len(), 10);
        assert_eq!(End::of_test(&report, 9).unwrap_err(), "more samples than allowed");
    }

    trait Named {
        fn to_json_value_like(&self) -> std::collections::BTreeMap<String, String>;
    }

    impl Named for parquet::record::Row {
        fn to_json_value_like(&self) -> std::collections::BTreeMap<String, String> {
            self.get_column_iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
        }
    }
}
