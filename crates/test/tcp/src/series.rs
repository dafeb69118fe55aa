//! The samples of a flow over time, in bounded memory, and as text for the other end.
//!
//! A full series drops every second sample and then takes only every second one: it always covers the whole time evenly.
//!
//! The text is base64 (RFC 4648 §4) of LEB128 numbers: number of samples, number of bytes of `TCP_INFO` that the kernel wrote, then
//! column after column — the time, the congestion control, each field — the differences of successive values in zigzag code. After
//! a 0 comes the number of further zeros. Most fields rarely change and take only a few bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::info::{FIELDS, TcpInfo};

/// Most samples of all flows that an end keeps or accepts: an hour of one flow every 10 ms, some 120 MB.
pub const MAX_SAMPLES: usize = 400_000;

/// A reading of `TCP_INFO` and when it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Time on `CLOCK_MONOTONIC` of the end that took it.
    pub at_ns: u64,
    /// Number of the flow's congestion control at that time.
    pub congestion: u8,
    /// The kernel's `TCP_INFO`.
    pub info: TcpInfo,
}

/// Samples of a flow, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    samples: Vec<Sample>,
    most: usize,
    /// One sample of this many is kept.
    stride: u32,
    /// This many samples are skipped before the next.
    skip: u32,
}

/// Why a text is not a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    /// It is cut off, not base64, or its time goes back.
    #[error("the samples are cut off or damaged")]
    Damaged,
    /// It has more samples than allowed.
    #[error("more samples than allowed")]
    TooMany,
}

impl Series {
    /// An empty series that keeps at most `most` samples, at least two.
    pub fn new(most: usize) -> Self {
        Self { samples: Vec::new(), most: most.max(2), stride: 1, skip: 0 }
    }

    /// Adds a sample.
    pub fn push(&mut self, sample: Sample) {
        if let Some(skip) = self.skip.checked_sub(1) {
            self.skip = skip;
            return;
        }
        if self.samples.len() == self.most {
            self.thin();
        }
        self.samples.push(sample);
        self.skip = self.stride - 1;
    }

    /// Keeps every second sample.
    pub fn thin(&mut self) {
        let mut number = 0_usize;
        self.samples.retain(|_| {
            number += 1;
            number % 2 == 1
        });
        self.stride = self.stride.saturating_mul(2);
    }

    /// The samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// One sample of this many was kept.
    pub fn stride(&self) -> u32 {
        self.stride
    }

    /// The series as text.
    pub fn to_text(&self) -> String {
        let length = self.samples.iter().map(|sample| sample.info.length()).min().unwrap_or(0);
        let mut out = Vec::new();
        put(&mut out, self.samples.len() as u64);
        put(&mut out, length as u64);
        put(&mut out, self.stride.into());
        column(&mut out, self.samples.iter().map(|sample| sample.at_ns));
        column(&mut out, self.samples.iter().map(|sample| sample.congestion.into()));
        for field in FIELDS {
            column(&mut out, self.samples.iter().map(|sample| sample.info.value(field)));
        }
        STANDARD.encode(out)
    }

    /// Reads the text of [`Self::to_text`], of at most `most` samples. Memory and time for it follow its length: it may be another host's.
    ///
    /// # Errors
    /// [`SeriesError`].
    pub fn from_text(text: &str, most: usize) -> Result<Self, SeriesError> {
        let bytes = STANDARD.decode(text).map_err(|_| SeriesError::Damaged)?;
        let mut rest = bytes.as_slice();
        let count = usize::try_from(get(&mut rest)?).map_err(|_| SeriesError::TooMany)?;
        if count > most.min(MAX_SAMPLES) {
            return Err(SeriesError::TooMany);
        }
        // Samples have times of their own, each a byte or more. Runs of zeros would be any number of samples in two bytes a column.
        if count > rest.len() {
            return Err(SeriesError::Damaged);
        }
        let length = get(&mut rest)?.try_into().map_err(|_| SeriesError::Damaged)?;
        let stride = get(&mut rest)?.try_into().map_err(|_| SeriesError::Damaged)?;
        let mut samples = vec![Sample { at_ns: 0, congestion: 0, info: TcpInfo::default() }; count];
        read_column(&mut rest, &mut samples, |sample, value| sample.at_ns = value)?;
        // Who draws them relies on their order.
        if !samples.is_sorted_by_key(|sample| sample.at_ns) {
            return Err(SeriesError::Damaged);
        }
        read_column(&mut rest, &mut samples, |sample, value| sample.congestion = value as u8)?;
        for field in FIELDS {
            read_column(&mut rest, &mut samples, |sample, value| sample.info.set(field, value))?;
        }
        samples.iter_mut().for_each(|sample| sample.info.set_length(length));
        Ok(Self { samples, most: most.max(2), stride, skip: 0 })
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn get(rest: &mut &[u8]) -> Result<u64, SeriesError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first().ok_or(SeriesError::Damaged)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(SeriesError::Damaged)
}

fn column(out: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
    let (mut before, mut zeros) = (0_u64, 0_u64);
    let flush = |out: &mut Vec<u8>, zeros: &mut u64| {
        if let Some(more) = zeros.checked_sub(1) {
            put(out, 0);
            put(out, more);
            *zeros = 0;
        }
    };
    for value in values {
        let difference = value.wrapping_sub(before) as i64;
        before = value;
        if difference == 0 {
            zeros += 1;
            continue;
        }
        flush(out, &mut zeros);
        put(out, ((difference << 1) ^ (difference >> 63)) as u64);
    }
    flush(out, &mut zeros);
}

fn read_column(rest: &mut &[u8], samples: &mut [Sample], set: impl Fn(&mut Sample, u64)) -> Result<(), SeriesError> {
    let (mut value, mut zeros) = (0_u64, 0_u64);
    for sample in samples {
        if zeros > 0 {
            zeros -= 1;
        } else {
            let code = get(rest)?;
            if code == 0 {
                zeros = get(rest)?;
            }
            value = value.wrapping_add((code >> 1) ^ (code & 1).wrapping_neg());
        }
        set(sample, value);
    }
    if zeros > 0 { Err(SeriesError::Damaged) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fields;

    fn sample(at: u64, seed: u64) -> Sample {
        let mut info = TcpInfo::parse(&[0; 280]);
        for (number, field) in (0_u64..).zip(FIELDS) {
            let value = if number % 3 == 0 { seed.wrapping_mul(number) } else { number };
            info.set(field, value & (u64::MAX >> (64 - field.bits())));
        }
        Sample { at_ns: at, congestion: (seed % 3) as u8, info }
    }

    #[test]
    fn a_full_series_keeps_every_second_sample() {
        let mut series = Series::new(4);
        for at in 0..100 {
            series.push(sample(at, at));
        }
        let at: Vec<u64> = series.samples().iter().map(|sample| sample.at_ns).collect();
        assert_eq!(at, [0, 32, 64, 96]);
        assert_eq!(series.stride(), 32);
    }

    #[test]
    fn what_hardly_changes_takes_little() {
        let mut series = Series::new(10_000);
        for at in 0..6_000 {
            let mut sample = sample(at * 10_000_000, 7);
            sample.info.set(fields::RTT, 20_000 + at % 50);
            sample.info.set(fields::BYTES_SENT, at * 1_000_000);
            series.push(sample);
        }
        // A minute every 10 ms.
        let text = series.to_text();
        assert!(text.len() < 6_000 * 16, "{}", text.len());
        assert_eq!(Series::from_text(&text, 6_000).unwrap().samples(), series.samples());
        assert_eq!(Series::from_text(&text, 5_999), Err(SeriesError::TooMany));
        assert!(Series::from_text(&text[..text.len() / 8 * 4], 6_000).is_err());
    }

    /// What another host sends: each column a run of zeros.
    #[test]
    fn few_bytes_are_few_samples() {
        let text = |count: u64| {
            let mut bytes = Vec::new();
            [count, 232, 1].into_iter().for_each(|value| put(&mut bytes, value));
            for _ in 0..FIELDS.len() + 2 {
                put(&mut bytes, 0);
                put(&mut bytes, count - 1);
            }
            STANDARD.encode(bytes)
        };
        assert!(text(399_999).len() < 1_000);
        assert_eq!(Series::from_text(&text(399_999), MAX_SAMPLES), Err(SeriesError::Damaged));
        assert_eq!(Series::from_text(&text(50), MAX_SAMPLES).unwrap().samples().len(), 50);
    }

    #[test]
    fn samples_whose_time_goes_back_are_damaged() {
        let read = |times: [u64; 3]| {
            let mut series = Series::new(10);
            times.into_iter().for_each(|at| series.push(sample(at, 7)));
            Series::from_text(&series.to_text(), 10).map(|series| series.samples().len())
        };
        assert_eq!([read([5, 9, 9]), read([5, 9, 8])], [Ok(3), Err(SeriesError::Damaged)]);
    }

    proptest! {
        #[test]
        fn any_series_survives(mut seeds in prop::collection::vec((any::<u64>(), any::<u64>()), 0..40), length in 0_usize..=280) {
            let mut series = Series::new(100);
            seeds.sort_unstable();
            for (at, seed) in seeds {
                let mut sample = sample(at, seed);
                sample.info.set_length(length);
                series.push(sample);
            }
            let read = Series::from_text(&series.to_text(), 100).unwrap();
            let values = |series: &Series| -> Vec<Vec<Option<u64>>> {
                series.samples().iter().map(|sample| FIELDS.iter().map(|field| sample.info.get(*field)).collect()).collect()
            };
            prop_assert_eq!(values(&read), values(&series));
        }

        #[test]
        fn no_text_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Series::from_text(&STANDARD.encode(bytes), 1_000);
        }
    }
}
