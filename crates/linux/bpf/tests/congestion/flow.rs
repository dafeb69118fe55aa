//! A flow whose kernel is the test.

use crate::native::Native;
use longhaul_congestion::{Algorithm, Settings, Variant};

pub(crate) const MS: u32 = 1000;

/// The controls that set a window; others pace at a rate, and have tests of their own.
pub(crate) fn window_based() -> impl Iterator<Item = Algorithm> + Clone {
    Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.measures_rate())
}

/// A flow in congestion avoidance at a window of `cwnd`, with the paper's parameters.
pub(crate) fn paper(algorithm: Algorithm, cwnd: u32) -> Native {
    flow(algorithm, Variant::Paper, cwnd)
}

/// The same with Linux's.
pub(crate) fn linux(algorithm: Algorithm, cwnd: u32) -> Native {
    flow(algorithm, Variant::Linux, cwnd)
}

/// The same with one parameter changed, such as `alpha=200`.
pub(crate) fn changed(algorithm: Algorithm, variant: Variant, change: &str, cwnd: u32) -> Native {
    let mut settings = Settings::new(algorithm, variant).unwrap();
    settings.set(change).unwrap();
    begun(&settings, cwnd)
}

fn flow(algorithm: Algorithm, variant: Variant, cwnd: u32) -> Native {
    begun(&Settings::new(algorithm, variant).unwrap(), cwnd)
}

fn begun(settings: &Settings, cwnd: u32) -> Native {
    let mut flow = Native::new(settings);
    flow.init();
    set_window(&mut flow, cwnd);
    flow.socket.ssthresh = 2;
    flow
}

pub(crate) fn set_window(flow: &mut Native, cwnd: u32) {
    flow.socket.cwnd = cwnd;
    flow.socket.cwnd_cnt = 0;
    flow.socket.max_packets_out = cwnd;
}

/// One ACK for `packets`, which tells no RTT and takes no time.
pub(crate) fn ack(flow: &mut Native, packets: u32) -> u32 {
    flow.grow(flow.socket.snd_una, packets);
    flow.socket.cwnd
}

/// A round trip of `rtt_us`: what is in flight is acknowledged, `packets_an_ack` at a time, and as much is sent. Sequence numbers count
/// packets.
pub(crate) fn round_trip(flow: &mut Native, rtt_us: u32, packets_an_ack: u32) -> u32 {
    let window = flow.socket.cwnd;
    let acks = window.div_ceil(packets_an_ack);
    flow.socket.srtt_8us = rtt_us.saturating_mul(8);
    // What the flow sent until now.
    flow.socket.snd_nxt = flow.socket.snd_una.wrapping_add(window);
    flow.socket.max_packets_out = window;
    let mut left = window;
    let began_us = flow.socket.time_us;
    for index in 1..=acks {
        let packets = left.min(packets_an_ack);
        left -= packets;
        flow.socket.time_us = began_us + u64::from(rtt_us) * u64::from(index) / u64::from(acks);
        flow.socket.snd_una = flow.socket.snd_una.wrapping_add(packets);
        flow.socket.delivered = flow.socket.delivered.wrapping_add(packets);
        flow.acked(flow.socket.snd_una, packets, Some(rtt_us));
        flow.socket.snd_nxt = flow.socket.snd_una.wrapping_add(flow.socket.cwnd);
    }
    flow.socket.cwnd
}
