//! The parameters of each control, with the values of the paper and of Linux.
//!
//! The lists are those of the C sources, name by name: a test of longhaul-bpf compares them.

/// A parameter of a control. It is stored as a whole number; its value is that over [`Parameter::unit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// The name in the C source, with the unit at its end: `decrease_1024`.
    pub name: &'static str,
    /// The paper's value, as stored.
    pub paper: u32,
    /// Linux's value, as stored; the paper's where Linux has no such module.
    pub linux: u32,
    /// A stored 1 means one over this.
    pub unit: u32,
    /// The largest value that can be stored.
    pub most: u32,
    /// What it means.
    pub meaning: &'static str,
}

impl Parameter {
    /// The value of `stored`: 128 of 1024 is 0.125.
    pub fn value(&self, stored: u32) -> f64 {
        f64::from(stored) / f64::from(self.unit)
    }
}

/// A whole number.
const fn count(name: &'static str, paper: u32, linux: u32, most: u32, meaning: &'static str) -> Parameter {
    Parameter { name, paper, linux, unit: 1, most, meaning }
}

/// A fraction of `unit`, at most one.
const fn share(name: &'static str, unit: u32, paper: u32, linux: u32, meaning: &'static str) -> Parameter {
    Parameter { name, paper, linux, unit, most: unit, meaning }
}

/// Yes or no.
const fn rule(name: &'static str, paper: u32, linux: u32, meaning: &'static str) -> Parameter {
    Parameter { name, paper, linux, unit: 1, most: 1, meaning }
}

/// Any window.
const WINDOW: u32 = 1 << 24;
/// A minute.
const MINUTE_US: u32 = 60_000_000;

/// Of every control: RFC 9406.
const HYSTART: Parameter = rule("hystart", 0, 0, "end slow start when the RTT rises (HyStart++, RFC 9406)");
/// Of every control: RFC 3742.
const MAX_SSTHRESH: Parameter = count(
    "max_ssthresh",
    0,
    0,
    WINDOW,
    "window above which slow start adds at most half of this in a round trip (limited slow start, RFC 3742), packets; 0: none",
);
/// Of every control that looks at delay. Ten minutes, as RFC 6817 §2.5: see `base_rtt.h`.
const BASE_RTT_MS: Parameter =
    count("base_rtt_ms", 600_000, 0, 86_400_000, "time after which a least RTT is forgotten, milliseconds; 0: never");
/// Of controls whose memory a loss changes.
const UNDO_MEMORY: Parameter = rule("undo_memory", 1, 0, "restore the state of the control after a spurious loss");

pub(crate) const CUBIC: &[Parameter] = &[
    share("c_1024", 1024, 410, 410, "C: growth, packets for the cube of a second"),
    share("keep_1024", 1024, 717, 717, "β: share of the window that a loss leaves"),
    rule("fast_convergence", 1, 1, "a flow that did not reach its last maximum uses a lower one"),
    Parameter { paper: 1, linux: 1, ..HYSTART },
    MAX_SSTHRESH,
];

pub(crate) const HIGHSPEED: &[Parameter] = &[
    count("low_window", 38, 38, WINDOW, "window up to which it is standard TCP, packets"),
    count("high_window", 83_000, 83_000, WINDOW, "mean window at high_loss, packets"),
    Parameter {
        name: "high_loss_e9",
        paper: 100,
        linux: 100,
        unit: 1_000_000_000,
        most: 1_000_000,
        meaning: "rate of loss at which the mean window is high_window",
    },
    share("high_decrease_1000", 1000, 100, 100, "share of high_window by which a loss reduces it"),
    rule("next_row", 0, 1, "use the next row of the table, as if the window were larger"),
    rule("count_acks", 0, 1, "add once for each ACK, not for each packet that it acknowledges"),
    rule("decrease_of_last_growth", 0, 1, "decrease by the window at the last growth, not the present one"),
    HYSTART,
    MAX_SSTHRESH,
];

pub(crate) const SCALABLE: &[Parameter] = &[
    count("packets_for_one_more", 100, 100, WINDOW, "1/a: acknowledged packets for one more packet of window"),
    share("decrease_1024", 1024, 128, 128, "b: share of the window by which a loss reduces it"),
    count("low_window", 16, 100, WINDOW, "window up to which it grows as standard TCP, packets"),
    rule("low_window_halves", 1, 0, "up to low_window a loss halves the window"),
    HYSTART,
    MAX_SSTHRESH,
];

pub(crate) const BIC: &[Parameter] = &[
    count("most_increase", 32, 16, WINDOW, "Smax: most packets added to the window in a round trip"),
    count("last_packet_rtts", 7, 5, 1000, "round trips for the last packet of the search: log2(1/Smin)"),
    share("keep_1024", 1024, 896, 819, "1 - β: share of the window that a loss leaves"),
    count("low_window", 14, 14, WINDOW, "window up to which it is standard TCP, packets"),
    count(
        "search_divisor",
        2,
        4,
        64,
        "share of the distance to the maximum that the window grows in a round trip: one over this",
    ),
    count(
        "probe_near",
        0,
        4,
        WINDOW,
        "packets beyond the maximum up to which probing is as slow as the end of the search",
    ),
    count("probe_divisor", 1, 3, 64, "packets beyond the maximum for one more in a round trip"),
    count(
        "unknown_most_each",
        0,
        20,
        WINDOW,
        "without a known maximum, most acknowledged packets for one more packet of window; 0: no such rule",
    ),
    rule("scale_by_ack_ratio", 0, 1, "multiply the growth by the packets that an ACK acknowledges"),
    count("update_us", 0, 31_250, MINUTE_US, "time between updates at one window, microseconds"),
    rule("fast_convergence", 1, 1, "a flow that did not reach its last maximum uses a lower one"),
    rule("whole_steps", 0, 1, "grow by whole packets for whole packets, rounded down"),
    UNDO_MEMORY,
    HYSTART,
    MAX_SSTHRESH,
];

pub(crate) const HTCP: &[Parameter] = &[
    count(
        "low_us",
        1_000_000,
        1_000_000,
        MINUTE_US,
        "ΔL: time since a loss up to which it is standard TCP, microseconds",
    ),
    share("least_keep_128", 128, 64, 64, "least β: share of the window that a loss leaves"),
    share("most_keep_128", 128, 102, 102, "greatest β"),
    count("adapt_from_us", 0, 10_000, MINUTE_US, "RTT from which on β follows the RTTs, microseconds"),
    rule("bandwidth_switch", 1, 1, "use the least β where the rate changed by more than a fifth"),
    rule("rtt_scaling", 1, 1, "scale the increase with the RTT over 100 ms"),
    rule("whole_packets", 0, 1, "increase by whole packets, and drop fractions"),
    UNDO_MEMORY,
    BASE_RTT_MS,
    HYSTART,
    MAX_SSTHRESH,
];

pub(crate) const HYBLA: &[Parameter] = &[
    count("rtt0_us", 25_000, 25_000, MINUTE_US, "RTT0: the round trip of the flow that it grows like, microseconds"),
    count("most_window", 0, 65_535, u32::MAX, "largest window, packets; 0: none"),
    rule("window_of_rho", 0, 1, "start with a window of RTT/RTT0 packets"),
    rule("count_acks", 0, 1, "add once for each ACK, not for each packet that it acknowledges"),
    BASE_RTT_MS,
    HYSTART,
    MAX_SSTHRESH,
];

pub(crate) const ILLINOIS: &[Parameter] = &[
    Parameter {
        name: "least_alpha_128",
        paper: 13,
        linux: 38,
        unit: 128,
        most: 12_800,
        meaning: "least α: packets added in a round trip",
    },
    Parameter { name: "most_alpha_128", paper: 1280, linux: 1280, unit: 128, most: 128_000, meaning: "greatest α" },
    share("least_beta_64", 64, 8, 8, "least β: share of the window by which a loss reduces it"),
    share("most_beta_64", 64, 32, 32, "greatest β"),
    count("window_threshold", 10, 15, WINDOW, "window below which it is standard TCP, packets"),
    count("good_rtts", 10, 5, 1000, "θ: round trips of low delay until α returns to its greatest value"),
    rule("slow_start_ends_ack", 0, 1, "an ACK that ends slow start adds nothing beyond ssthresh"),
    rule("drop_rest", 0, 1, "forget acknowledged packets beyond those for whole packets of growth"),
    BASE_RTT_MS,
    HYSTART,
    MAX_SSTHRESH,
];

pub(crate) const WESTWOOD: &[Parameter] = &[
    share("keep_1024", 1024, 922, 896, "weight of the old estimate of the rate when a sample is added"),
    rule("smooth_twice", 0, 1, "smooth the estimate twice"),
    count("least_sample_us", 0, 50_000, MINUTE_US, "least duration of a sample, microseconds"),
    rule("halve_in_recovery", 0, 1, "halve the window during recovery, and set it at the end of recovery"),
    rule("forget_rtt", 0, 1, "forget the least RTT after a timeout"),
    BASE_RTT_MS,
    HYSTART,
    MAX_SSTHRESH,
];

pub(crate) const YEAH: &[Parameter] = &[
    count("alpha", 80, 80, WINDOW, "packets of its own in queues above which it is slow"),
    count("gamma", 1, 1, 64, "share of its queue that it removes in a round trip: one over this"),
    count("delta", 3, 3, 31, "least share of the window by which a loss reduces it: 2^-δ"),
    count("epsilon", 1, 1, 31, "greatest share of the window that it removes early: 2^-ε"),
    count("phi", 8, 8, WINDOW, "queueing delay above which it is slow: least RTT over this"),
    count("rho", 16, 16, WINDOW, "slow round trips in a row that show greedy competitors"),
    count("zeta", 50, 50, WINDOW, "fast round trips that show there are none"),
    count("packets_for_one_more", 100, 100, WINDOW, "when fast: acknowledged packets for one more packet of window"),
    UNDO_MEMORY,
    BASE_RTT_MS,
    HYSTART,
    MAX_SSTHRESH,
];

pub(crate) const VEGAS: &[Parameter] = &[
    count("alpha", 2, 2, WINDOW, "least packets of its own in queues"),
    count("beta", 4, 4, WINDOW, "most packets of its own in queues"),
    count("gamma", 1, 1, WINDOW, "packets in queues that end slow start"),
    count("slow_start_every", 2, 1, 64, "round trips between doublings in slow start"),
    rule("per_base_rtt", 0, 1, "count queued packets a base RTT, in whole packets, not an RTT"),
    share("keep_128", 128, 96, 64, "share of the window that a loss leaves"),
    BASE_RTT_MS,
    HYSTART,
    MAX_SSTHRESH,
];

pub(crate) const FAST: &[Parameter] = &[
    count("alpha", 200, 200, WINDOW, "packets of its own in queues"),
    share("gamma_128", 128, 64, 64, "γ: share of the distance that one step covers"),
    count("update_rtts", 2, 2, 64, "round trips for each step"),
    rule("pacing", 1, 1, "pace packets over the round trip"),
    BASE_RTT_MS,
    HYSTART,
    MAX_SSTHRESH,
];

/// A gain or a growth, in hundredths.
const fn gain(name: &'static str, value: u32, meaning: &'static str) -> Parameter {
    Parameter { name, paper: value, linux: value, unit: 100, most: 1000, meaning }
}

/// Names of the draft where it has one: `BBR.StartupPacingGain` is the first. BBR has no slow start, and forgets RTTs by itself.
pub(crate) const BBR3: &[Parameter] = &[
    gain("startup_pacing_100", 277, "Startup: pace at this times the measured rate"),
    gain("drain_pacing_100", 50, "the same in Drain"),
    gain("down_pacing_100", 90, "the same in ProbeBW_DOWN"),
    gain("up_pacing_100", 125, "the same in ProbeBW_UP"),
    share("pacing_margin_100", 100, 1, 1, "share by which it paces below that"),
    gain("cwnd_gain_100", 200, "most in flight, times rate and least RTT"),
    gain("up_cwnd_gain_100", 225, "the same in ProbeBW_UP"),
    gain("probe_rtt_cwnd_gain_100", 50, "the same in ProbeRTT"),
    gain("full_growth_100", 125, "the path is full where the rate grows by less than this in a round trip"),
    count("full_rounds", 3, 3, 1000, "round trips of less growth that show a full path"),
    count(
        "startup_losses",
        6,
        6,
        255,
        "ACKs in a round trip that found losses, which end Startup if the rate of loss does",
    ),
    share(
        "loss_threshold_1000",
        1000,
        20,
        20,
        "share of packets lost in a round trip that is too much while it probes",
    ),
    share("keep_1000", 1000, 700, 700, "Beta: least share of rate and volume that a round trip with losses leaves"),
    share(
        "headroom_1000",
        1000,
        150,
        150,
        "share of inflight_longterm that it leaves to others while it does not probe",
    ),
    count("probe_wait_ms", 2000, 2000, 3_600_000, "least time between probes for a higher rate, milliseconds"),
    count("probe_wait_spread_ms", 1000, 1000, 3_600_000, "random time that is added to that, milliseconds"),
    count("reno_rounds", 63, 63, WINDOW, "round trips after which it probes at the latest, as Reno has a loss by then"),
    rule("precautionary", 1, 1, "after a probe that lost too much, end the next where the last one was too high"),
    count("min_rtt_ms", 10_000, 10_000, 86_400_000, "time after which a least RTT is forgotten, milliseconds"),
    count(
        "probe_rtt_every_ms",
        5000,
        5000,
        86_400_000,
        "time without a lower RTT after which it enters ProbeRTT, milliseconds",
    ),
    count("probe_rtt_ms", 200, 200, 60_000, "least duration of ProbeRTT, milliseconds"),
    count(
        "extra_acked_rounds",
        10,
        10,
        16,
        "round trips for which it remembers how many packets are acknowledged at once",
    ),
];

pub(crate) const COMPOUND: &[Parameter] = &[
    Parameter {
        name: "alpha_256",
        paper: 32,
        linux: 32,
        unit: 256,
        most: 25_600,
        meaning: "α: growth in a round trip, times win^k",
    },
    share("beta_256", 256, 128, 128, "β: share of the window by which a loss reduces it"),
    count("gamma", 30, 30, WINDOW, "packets of its own in queues above which dwnd shrinks"),
    count("zeta", 1, 1, 1000, "packets by which dwnd shrinks for each queued packet"),
    count("low_window", 38, 38, WINDOW, "window above which dwnd grows, packets"),
    BASE_RTT_MS,
    HYSTART,
    MAX_SSTHRESH,
];
