//! A row for each packet that a stream received, in the order of arrival and in bounded memory.
//!
//! In JSON: base64, without padding, of LEB128 numbers, three for each row:
//!
//! | number | of |
//! |---|---|
//! | sequence | zigzag of the distance from the row before plus one |
//! | departure | zigzag of the distance from the row before |
//! | arrival | zigzag of the distance from the row before, × 2, plus 1 where the program stamped a packet that another should have |
//!
//! A packet in order takes some 6 bytes. What comes when the room is full is counted and has no row.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use longhaul_units::Nanos;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::run_list::MAX_SEQUENCES;

/// Bytes that the rows of all streams of an end may take: some 4 million packets. As text they are half of the longest report.
pub const ROWS_BYTES_MOST: usize = 24 << 20;
/// The longest row: three numbers of ten bytes.
const ROW_BYTES_MOST: usize = 30;

/// A packet as its receiver saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRow {
    /// Its number, from 0 in each stream. A duplicate has the number of the first.
    pub sequence: u64,
    /// When it was sent, by the sender's monotonic clock. Packets that one call sent share it.
    pub sent: Nanos,
    /// When it arrived, by the receiver's monotonic clock.
    pub arrived: Nanos,
    /// Whether the program stamped the arrival although the test asked for another stamp.
    pub program_stamped: bool,
    /// Counts the batches of a stream from 0: packets with one stamp of arrival, which one call returned or GRO joined.
    pub batch: u64,
}

/// The rows of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PacketRows {
    bytes: Vec<u8>,
    /// Packets behind these rows that have none.
    left_out: u64,
    before: [u64; 3],
    most: usize,
}

impl PacketRows {
    /// Takes rows until `most` bytes are full.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// The next packet that arrived.
    #[inline]
    pub fn push(&mut self, sequence: u64, sent: Nanos, arrived: Nanos, program_stamped: bool) {
        if self.bytes.len() + ROW_BYTES_MOST > self.most {
            self.left_out += 1;
            return;
        }
        let [expected, sent_before, arrived_before] = self.before;
        put(&mut self.bytes, zigzag(sequence.wrapping_sub(expected)).into());
        put(&mut self.bytes, zigzag(sent.0.wrapping_sub(sent_before)).into());
        let late = zigzag(arrived.0.wrapping_sub(arrived_before));
        put(&mut self.bytes, u128::from(late) << 1 | u128::from(program_stamped));
        self.before = [sequence.wrapping_add(1), sent.0, arrived.0];
    }

    /// Packets that have no row, as there was no more room: all behind the last row.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The rows, in the order of arrival.
    pub fn rows(&self) -> impl Iterator<Item = PacketRow> + '_ {
        let (mut rest, mut before, mut batch) = (self.bytes.as_slice(), [0_u64; 3], 0_u64);
        let mut first = true;
        std::iter::from_fn(move || {
            let [sequence, sent, arrived] = [take(&mut rest)?, take(&mut rest)?, take(&mut rest)?];
            let next = |number: u128, before: u64| before.wrapping_add(unzigzag(number as u64));
            let row = PacketRow {
                sequence: next(sequence, before[0]),
                sent: Nanos(next(sent, before[1])),
                arrived: Nanos(next(arrived >> 1, before[2])),
                program_stamped: arrived & 1 == 1,
                batch: 0,
            };
            batch += u64::from(!std::mem::take(&mut first) && row.arrived.0 != before[2]);
            before = [row.sequence.wrapping_add(1), row.sent.0, row.arrived.0];
            Some(PacketRow { batch, ..row })
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Text {
    rows: String,
    left_out: u64,
}

impl Serialize for PacketRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Text { rows: STANDARD_NO_PAD.encode(&self.bytes), left_out: self.left_out }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PacketRows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        let bytes = STANDARD_NO_PAD.decode(text.rows).map_err(|_| D::Error::custom("the rows are not base64"))?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let whole = take(&mut rest).and_then(|_| take(&mut rest)).and_then(|_| take(&mut rest));
            whole.ok_or_else(|| D::Error::custom("the rows end within a number"))?;
        }
        let rows = Self { bytes, left_out: text.left_out, ..Self::default() };
        let possible = rows.rows().all(|row| row.sequence < MAX_SEQUENCES);
        if possible { Ok(rows) } else { Err(D::Error::custom("a row has an impossible sequence")) }
    }
}

/// Small numbers for small distances in both directions.
fn zigzag(distance: u64) -> u64 {
    let distance = distance as i64;
    (distance << 1 ^ distance >> 63) as u64
}

fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

fn put(bytes: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u128> {
    let mut value = 0;
    // Ten bytes hold 70 bits: a time and a mark.
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u128::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_come_back(rows in prop::collection::vec((0..MAX_SEQUENCES, any::<u64>(), any::<u64>(), any::<bool>()), 0..50)) {
            let mut kept = PacketRows::new(1 << 20);
            for (sequence, sent, arrived, program_stamped) in &rows {
                kept.push(*sequence, Nanos(*sent), Nanos(*arrived), *program_stamped);
            }
            let text = serde_json::to_string(&kept).unwrap();
            let read: PacketRows = serde_json::from_str(&text).unwrap();
            let read: Vec<_> = read.rows().map(|row| (row.sequence, row.sent.0, row.arrived.0, row.program_stamped)).collect();
            prop_assert_eq!(read, rows);
        }

        #[test]
        fn no_text_panics(text in "[A-Za-z0-9+/]{0,60}") {
            let _ = serde_json::from_value::<PacketRows>(serde_json::json!({ "rows": text, "left_out": u64::MAX }));
        }
    }

    /// Packets 10 us apart, taken up by fours: six bytes each, a batch for each four, and what finds no room is counted.
    #[test]
    fn batches_are_counted_and_memory_is_bounded() {
        let mut rows = PacketRows::new(6_000);
        for n in 0..2_000 {
            rows.push(n, Nanos(10_000 * n), Nanos(5_000_000 + n / 4 * 40_000), false);
        }
        let kept: Vec<PacketRow> = rows.rows().collect();
        assert_eq!(kept.len() as u64 + rows.left_out(), 2_000);
        assert!((900..1_500).contains(&kept.len()), "{}", kept.len());
        assert!(rows.bytes.len() <= 6_000);
        assert_eq!(
            kept.iter().map(|row| row.batch).collect::<Vec<_>>(),
            (0..kept.len() as u64).map(|n| n / 4).collect::<Vec<_>>()
        );
        assert_eq!((kept[7].sequence, kept[7].sent, kept[7].arrived), (7, Nanos(70_000), Nanos(5_040_000)));
    }
}
