//! Reads one flow.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_kernel::tcp::{discard, set_patience};
use longhaul_tcp::{MOST_TRANSFERS, TcpParameters};
use longhaul_units::Nanos;

use super::counts::Counts;
use super::pace::{LOOK, Limit, go_on, paced_bytes, wait_for_rate};
use crate::cpu_use::ThreadWatch;

/// Bytes that one call reads at most: what a socket gets at 100 Gb/s in 80 µs.
const READ_BYTES: usize = 1 << 20;

/// Bytes that a connection may bring before the rate of a server counts: ten segments of 9,000 bytes, which TCP sends before it is paced (RFC
/// 6928). Over loopback, whose segments have 64 KiB, the reader waits for a moment.
const UNPACED_BYTES: u64 = 1 << 17;

/// Reads to the end of the stream, or until `stop`, as `parameters` say, and no faster than `most_bps`. Whether it came to the end.
pub(super) fn read_all(
    socket: &TcpStream,
    counts: &Counts,
    parameters: &TcpParameters,
    most_bps: Option<u64>,
    stop: &AtomicBool,
) -> std::io::Result<bool> {
    let (omit, rate_bps) = (Nanos(parameters.omit_ns), parameters.read_rate_bps);
    let mut arriving = parameters.transfers.map(|transfers| Arriving::new(transfers.bytes));
    set_patience(socket, LOOK)?;
    let most = paced_bytes(rate_bps, READ_BYTES);
    let mut limit = most_bps.map(Limit::new);
    let (mut cpu, mut is_over) = (None, false);
    while !is_over && !stop.load(Ordering::Relaxed) {
        match discard(socket.as_fd(), most) {
            Ok(0) => {
                counts.end_of_stream();
                is_over = true;
            }
            Ok(count) => {
                counts.add(count, omit);
                if let Some(arriving) = &mut arriving {
                    arriving.take(Nanos(counts.last_ns()), counts.bytes());
                }
                // What comes before the first byte is no time of the test.
                cpu.get_or_insert_with(ThreadWatch::start);
                let (arrived, bytes) = (Nanos(counts.arrived_ns()), counts.bytes());
                wait_for_rate(arrived, bytes, rate_bps, stop, Nanos::MAX);
                if let Some(limit) = &mut limit {
                    limit.wait(arrived, bytes.saturating_sub(UNPACED_BYTES), stop);
                }
            }
            Err(error) if go_on(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(cpu) = cpu {
        counts.used(cpu.used());
    }
    counts.transferred(arriving.map(|arriving| arriving.times_ns).unwrap_or_default());
    Ok(is_over)
}

/// When the transfers of one connection arrive.
#[derive(Debug)]
struct Arriving {
    transfer_bytes: u64,
    /// When the first byte came of the one that is arriving.
    began: Option<Nanos>,
    before: u64,
    /// 0 where the first byte and the last came by one call.
    times_ns: Vec<u64>,
}

impl Arriving {
    fn new(transfer_bytes: u64) -> Self {
        Self { transfer_bytes: transfer_bytes.max(1), began: None, before: 0, times_ns: Vec::new() }
    }

    /// At `now` there are `bytes` in all.
    fn take(&mut self, now: Nanos, bytes: u64) {
        let began = *self.began.get_or_insert(now);
        let complete = bytes / self.transfer_bytes - self.before / self.transfer_bytes;
        self.before = bytes;
        if complete == 0 {
            return;
        }
        if self.times_ns.len() < MOST_TRANSFERS {
            self.times_ns.push(now.saturating_sub(began).0);
        }
        // What came with the end of one belongs to the next.
        self.began = (!bytes.is_multiple_of(self.transfer_bytes)).then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_takes_from_its_first_byte_to_its_last() {
        let mut arriving = Arriving::new(100);
        for (at, bytes) in [(10, 40), (30, 100), (500, 101), (540, 200), (900, 250), (950, 320)] {
            arriving.take(Nanos(at), bytes);
        }
        assert_eq!(arriving.times_ns, [20, 40, 50]);
        assert_eq!(arriving.began, Some(Nanos(950)));
        arriving.take(Nanos(990), 400);
        arriving.take(Nanos(2_000), 500);
        assert_eq!(arriving.times_ns, [20, 40, 50, 40, 0], "the reader was late for the last one");
    }
}
