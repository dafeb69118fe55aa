//! The metrics of RFC 6349.

use serde::{Deserialize, Serialize};

/// Metrics of RFC 6349 §4 for a TCP test; `null` if an input is not known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rfc6349 {
    /// §4.2: percentage of the transmitted bytes that were not retransmissions.
    pub tcp_efficiency_percentage: Option<f64>,
    /// §4.3: percentage by which the mean round-trip time exceeded the least one.
    pub buffer_delay_percentage: Option<f64>,
    /// §4.1: ratio of the actual transfer time to the ideal one, at the rate goal.
    pub transfer_time_ratio: Option<f64>,
}

/// RFC 6349 §4.2: `(transmitted - retransmitted) / transmitted × 100`. `None` if nothing was transmitted.
pub fn tcp_efficiency_percentage(transmitted_bytes: u64, retransmitted_bytes: u64) -> Option<f64> {
    let first_time = transmitted_bytes.checked_sub(retransmitted_bytes)?;
    (transmitted_bytes > 0).then(|| first_time as f64 / transmitted_bytes as f64 * 100.0)
}

/// RFC 6349 §4.3: `(mean RTT during the transfer - baseline RTT) / baseline RTT × 100`. `None` without a baseline.
pub fn buffer_delay_percentage(mean_rtt_ns: f64, baseline_rtt_ns: f64) -> Option<f64> {
    (baseline_rtt_ns > 0.0).then(|| (mean_rtt_ns - baseline_rtt_ns) / baseline_rtt_ns * 100.0)
}

/// RFC 6349 §4.1: ratio of the actual transfer time to the ideal one, of `bytes` at `ideal_bps` of payload. `None` if one of them
/// is 0.
///
/// Difference from the RFC: the ideal rate is the payload rate that the user gives, not computed from a link's rate and overheads.
pub fn transfer_time_ratio(actual_ns: u64, bytes: u64, ideal_bps: u64) -> Option<f64> {
    let ideal_ns = bytes as f64 * 8e9 / ideal_bps as f64;
    (actual_ns > 0 && bytes > 0 && ideal_bps > 0).then(|| actual_ns as f64 / ideal_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "if 100,000 bytes were sent and 2,000 had to be retransmitted, the TCP Efficiency Percentage would be 98.03".
    #[test]
    fn efficiency() {
        let percentage = tcp_efficiency_percentage(102_000, 2_000).unwrap();
        assert!((percentage - 98.039).abs() < 0.001, "{percentage}");
        assert_eq!(tcp_efficiency_percentage(0, 0), None);
        assert_eq!(tcp_efficiency_percentage(1, 2), None);
    }

    /// "baseline RTT is 25 ms, average RTT 32 ms: 28 %".
    #[test]
    fn buffer_delay() {
        let percentage = buffer_delay_percentage(32e6, 25e6).unwrap();
        assert!((percentage - 28.0).abs() < 1e-9, "{percentage}");
        assert_eq!(buffer_delay_percentage(1.0, 0.0), None);
    }

    /// Five flows of 100 MB at 500 Mb/s take 8 s at best; 12 s are a ratio of 1.5.
    #[test]
    fn transfer_time() {
        let ratio = transfer_time_ratio(12_000_000_000, 500_000_000, 500_000_000).unwrap();
        assert!((ratio - 1.5).abs() < 1e-9, "{ratio}");
        assert_eq!(transfer_time_ratio(1, 0, 1), None);
    }
}
