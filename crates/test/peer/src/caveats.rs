//! Codes of the caveats of the ends of a test: each is raised in this crate, and docs/reference/caveats.md lists them.

use longhaul_result::caveat_codes;

caveat_codes! {
    /// Some counters could not be read.
    COUNTERS_UNREAD = "counters_unread";
    /// The CPUs of the receiver were busy: it may have lost packets for this reason alone.
    RECEIVER_CPU_SATURATED = "receiver_cpu_saturated";
    /// The kernel gave a smaller socket buffer than requested.
    BUFFER_NOT_GRANTED = "buffer_not_granted";
    /// The kernel uses a congestion control of another name than the requested one.
    OTHER_CONGESTION_CONTROL = "other_congestion_control";
    /// A stream uses the system's congestion control instead of the requested one.
    CONGESTION_CONTROL_NOT_SET = "congestion_control_not_set";
    /// The receiver did not read all data before the end.
    NOT_DRAINED = "not_drained";
    /// The kernel does not pace the stream.
    NOT_PACED = "not_paced";
    /// The sender could not keep up with its schedule.
    PACING_NOT_ACHIEVED = "pacing_not_achieved";
    /// The server's memory limit has room for only a part of the samples.
    SAMPLES_THINNED = "samples_thinned";
    /// Some packets had no time stamp.
    PACKETS_UNSTAMPED = "packets_unstamped";
    /// The realtime clock was set during the test.
    CLOCK_STEPPED = "clock_stepped";
}
