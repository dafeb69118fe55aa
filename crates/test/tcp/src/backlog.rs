//! How much a sender should have written ahead of what TCP may send.
//!
//! A send buffer may be as deep as the path's window is wide. What lies in it unsent when a test's time is over still has to go: with a
//! window that a loss made small, for many seconds. A limit on what lies unsent (`TCP_NOTSENT_LOWAT`, tcp(7)) ends that, as long as it
//! is more than goes before the writer runs again: else TCP waits for the application, and the result says so.

use super::info::{TcpInfo, fields};

/// For how long what lies unsent may last: a writer that waits for a CPU behind the softirq of its own flow does so for some 10 ms, and
/// it is woken when half of the limit is gone.
const AHEAD_US: u64 = 100_000;
/// At least so much lies there, whatever the rate: what a flow of 20 Mb/s sends in that time.
const LEAST_BYTES: u64 = 256 << 10;

/// What may lie unsent in the socket that `info` is of: what its window sends in 100 ms. `None` where the kernel does not tell.
pub fn unsent_limit_bytes(info: &TcpInfo) -> Option<u32> {
    let mss = info.get(fields::SND_MSS)?;
    let window = info.get(fields::SND_CWND)?.saturating_mul(mss);
    // Before the first acknowledgement there is no round trip.
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
        // A slow flow, one that has just lost its window, one in memory.
        assert_eq!(limit(10, 100_000), Some(256 << 10));
        assert_eq!(limit(1, 500_000), Some(256 << 10));
        assert_eq!(limit(1_000_000, 20), Some(u32::MAX));
        assert_eq!(limit(1_000_000, 0), None);
        assert_eq!(unsent_limit_bytes(&TcpInfo::default()), None);
    }
}
