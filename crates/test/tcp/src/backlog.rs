//! How far a sender writes ahead of what TCP can send.
//!
//! A send buffer can be as large as the window of the path. Unsent data in it at the end of a test still has to be sent; with a
//! window that a loss made small, this takes many seconds. A limit on unsent data (`TCP_NOTSENT_LOWAT`, tcp(7)) prevents this. It
//! must be more than TCP sends before the writer runs again: otherwise TCP waits for the application, and the result says so.

use super::info::{TcpInfo, fields};

/// Sending time of the unsent data: a writer that waits for a CPU behind the softirq of its own flow waits some 10 ms, and the
/// kernel wakes it when half of the limit is left.
const AHEAD_US: u64 = 100_000;
/// The least limit at any rate: what a flow of 20 Mb/s sends in that time.
const LEAST_BYTES: u64 = 256 << 10;

/// The limit on unsent data in the socket of `info`, bytes: what its window sends in 100 ms. `None` if the kernel lacks the fields.
pub fn unsent_limit_bytes(info: &TcpInfo) -> Option<u32> {
    let mss = info.get(fields::SND_MSS)?;
    let window = info.get(fields::SND_CWND)?.saturating_mul(mss);
    // There is no round-trip time before the first acknowledgement.
    let rtt_us = info.get(fields::RTT).filter(|us| *us > 0)?;
    let ahead = u128::from(window) * u128::from(AHEAD_US) / u128::from(rtt_us);
    Some(u32::try_from(ahead.max(LEAST_BYTES.into())).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(window: u32, rtt_us: u32) -> Option<u32> {
        let mut info = TcpInfo::default();
        for (field, value) in [(fields::SND_MSS, 1_000), (fields::SND_CWND, window), (fields::RTT, rtt_us)] {
            info.set(field, value.into());
        }
        unsent_limit_bytes(&info)
    }

    #[test]
    fn it_is_what_the_window_sends_in_a_tenth_of_a_second() {
        // 10 Gb/s at 500 ms, 1 Gb/s at 10 ms.
        assert_eq!(limit(625_000, 500_000), Some(125_000_000));
        assert_eq!(limit(1_250, 10_000), Some(12_500_000));
        // A slow flow, one that has just lost its window, one on the loopback interface.
        assert_eq!(limit(10, 100_000), Some(256 << 10));
        assert_eq!(limit(1, 500_000), Some(256 << 10));
        assert_eq!(limit(1_000_000, 20), Some(u32::MAX));
        assert_eq!(limit(1_000_000, 0), None);
        assert_eq!(unsent_limit_bytes(&TcpInfo::default()), None);
    }
}
