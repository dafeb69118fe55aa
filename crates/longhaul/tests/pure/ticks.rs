//! Putting the packets of a spool in order takes time for each packet, however many ticks there are.

use std::time::{Duration, Instant};

use longhaul_captures::Record;
use longhaul_captures::spool::RecordBuffer;

fn record(at_ns: i64, snippet: &[u8]) -> Record<'_> {
    Record { at_ns, frame_len: 60, snippet, ..Record::default() }
}

/// Packets of a time that never comes, and before each tick one that is due.
#[test]
fn a_tick_costs_nothing_for_those_that_wait_longer() {
    let mut buffer = RecordBuffer::default();
    for at in 0..100_000 {
        buffer.push(&record(i64::MAX - at, &[1; 2]));
    }
    let began = Instant::now();
    for at in 0..100_000 {
        buffer.push(&record(at, &[2; 2]));
        buffer.settle(at + 1);
        assert_eq!(buffer.current().map(|record| (record.at_ns, record.snippet)), Some((at, &[2; 2][..])));
        buffer.advance();
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    buffer.settle_all();
    assert_eq!(buffer.current().map(|record| record.at_ns), Some(i64::MAX - 99_999));
    assert_eq!(buffer.waiting(), 100_000);
}
