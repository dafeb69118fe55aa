//! How much memory a path takes: what is in flight at its rates, and what its queues hold.

use longhaul_path::spec::{HopSpec, HostSpec, PathEnd, PathSpec, QueueLimit};
use longhaul_units::{BitRate, Nanos};

/// The rate of a path that has none, for its memory: what a host's burst into a veth reaches.
const ASSUMED_RATE: BitRate = BitRate::from_gbit(40);
/// Room for what hosts send while the emulating thread waits for a CPU: a burst into a veth for 8 ms.
const SLACK_BYTES: u64 = 40 << 20;
/// What a queue without limit is given, as time at its rate; it may fill up whatever else is free.
const UNLIMITED_QUEUE: Nanos = Nanos::from_millis(10);
/// A packet of a queue that counts packets, where the hosts' MTU is not larger.
const PACKET_BYTES: u64 = 1514;

/// Bytes of payload that the frames from `end` may take at a time.
///
/// For each hop, the fastest rate at which packets can reach it × the time they stay, and its queue's limit.
///
/// What a full queue drops is not in it, though it takes memory until the packets beside it have left, as memory is freed in chunks: where a share `d`
/// is dropped, what is in flight takes up to `1/(1 - d)` times as much. The slack holds that where little is dropped, or the path holds little.
pub fn payload_bytes(path: &PathSpec, end: PathEnd) -> u64 {
    let (hosts, shared) = match end {
        PathEnd::Client => (&path.clients, &path.forward),
        PathEnd::Server => (&path.servers, &path.backward),
    };
    let far = match end {
        PathEnd::Client => &path.servers,
        PathEnd::Server => &path.clients,
    };
    let one = [HostSpec::default()];
    let hosts: &[HostSpec] = if hosts.is_empty() { &one } else { hosts };
    let packet_bytes = hosts.iter().filter_map(|host| host.mtu).map(|mtu| u64::from(mtu) + 14).max();
    let packet_bytes = packet_bytes.unwrap_or(0).max(PACKET_BYTES);

    let mut entering = Some(BitRate(0));
    let mut bytes = SLACK_BYTES;
    for host in hosts {
        let access =
            HopSpec { rate: path.access_rate(host), delay: host.delay, queue: host.queue, ..HopSpec::default() };
        let mut rate = None;
        // The host itself can fill its link's queue at any speed, so a queue without limit is no part of this.
        let access = HopSpec { queue: limited(access.queue), ..access };
        bytes = hop_bytes(&access, &mut rate, packet_bytes).saturating_add(bytes);
        entering = entering.zip(rate).map(|(sum, rate)| BitRate(sum.0.saturating_add(rate.0)));
    }
    let mut rate = entering;
    for hop in shared {
        bytes = hop_bytes(hop, &mut rate, packet_bytes).saturating_add(bytes);
    }
    let far_delay = far.iter().map(|host| host.delay).max().unwrap_or_default();
    hop_bytes(&HopSpec { delay: far_delay, ..HopSpec::default() }, &mut rate, packet_bytes).saturating_add(bytes)
}

fn limited(queue: QueueLimit) -> QueueLimit {
    match queue {
        QueueLimit::Unlimited => QueueLimit::Packets(0),
        limit => limit,
    }
}

/// What `hop` holds of packets that come at `rate`, which becomes the rate at which they leave.
fn hop_bytes(hop: &HopSpec, rate: &mut Option<BitRate>, packet_bytes: u64) -> u64 {
    let mut queued = 0;
    if let Some(own) = hop.rate {
        queued = match hop.queue {
            QueueLimit::Unlimited => own.bytes_in(UNLIMITED_QUEUE),
            QueueLimit::Bytes(limit) => limit.0,
            QueueLimit::Packets(limit) => limit.saturating_mul(packet_bytes),
        };
        *rate = Some(rate.map_or(own, |rate| rate.min(own)));
    }
    // Six standard deviations are more than nearly any packet takes beyond the mean.
    let jitter = hop.jitter.as_ref().map_or(0, |jitter| jitter.stddev.0.saturating_mul(6));
    let batch = hop.coalesce.as_ref().map_or(0, |coalesce| coalesce.time.0);
    let stays = hop.longest_delay().saturating_add(Nanos(jitter)).saturating_add(Nanos(batch));
    rate.unwrap_or(ASSUMED_RATE).bytes_in(stays).saturating_add(queued)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rate_gbit: Option<u64>, delay_ms: u64, queue: QueueLimit) -> PathSpec {
        let hop = HopSpec {
            rate: rate_gbit.map(BitRate::from_gbit),
            delay: Nanos::from_millis(delay_ms),
            queue,
            ..HopSpec::default()
        };
        PathSpec {
            name: "test".into(),
            source: String::new(),
            forward: vec![hop.clone()],
            backward: vec![hop],
            clients: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// 10 Gb/s × 250 ms are 312.5 MB, at most 1.3 times that is taken with a queue of a tenth of it.
    #[test]
    fn a_long_path_takes_little_more_than_its_product() {
        let product = BitRate::from_gbit(10).bytes_in(Nanos::from_millis(250));
        let queue = QueueLimit::Bytes(longhaul_units::Bytes(32 << 20));
        for end in [PathEnd::Client, PathEnd::Server] {
            let bytes = payload_bytes(&path(Some(10), 250, queue), end);
            assert!(bytes > product && bytes * 10 <= product * 13, "{bytes} for {product}");
        }
    }

    #[test]
    fn a_path_without_rate_is_given_one() {
        let bytes = payload_bytes(&path(None, 100, QueueLimit::Unlimited), PathEnd::Client);
        let product = ASSUMED_RATE.bytes_in(Nanos::from_millis(100));
        assert!((product..product * 12 / 10).contains(&bytes));
    }

    #[test]
    fn what_is_beyond_all_memory_is_counted_as_that() {
        let mut path = path(None, 1, QueueLimit::Unlimited);
        path.forward.push(HopSpec { rate: Some(BitRate(u64::MAX)), delay: Nanos(u64::MAX), ..HopSpec::default() });
        assert_eq!(payload_bytes(&path, PathEnd::Client), u64::MAX);
    }
}
