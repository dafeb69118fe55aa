//! UDP tests: numbered datagrams, each of which is accounted for.

use std::net::IpAddr;

use longhaul_result::Caveat;
use longhaul_terms::{Amount, Directions, ParameterError, SOCKBUF_LEAST, SoftirqPlacement, StreamSent, TestDirection};
use longhaul_udp::account::{Counts, LossMap, MAX_SEQUENCES, PacketRows, ReorderingSummary, Run, StreamReceived};
use longhaul_udp::locate::Loss;
use longhaul_udp::proof::ClientProof;
use longhaul_udp::{Pace, Timestamps, UdpEndReport, UdpParameters, UdpReceiverReport, UdpResult, UdpSenderReport};
use longhaul_units::{BitRate, Bytes, Nanos};
use longhaul_wire::probe::Cookie;

use super::{
    DONT_FRAGMENT, EndReport, Proof, TRAFFIC_CLASS, TestEnd, TestKind, TestParameters, datagrams_proof, sockets,
};
use crate::caveats;
use crate::limits::{Caps, DRAIN_QUIET, held_bytes, report_bytes_most};
use crate::progress::Progress;
use crate::randomness::Randomness;

/// A feature in a hello: this end changes settings of the receiving interface for the time of a test.
pub const RECEIVE_SETTINGS: &str = "receive_settings";

/// A feature in a hello: as a receiver this end reports when each packet arrived.
pub const EACH_PACKET: &str = "each_packet";

/// How long a server's burst may last at the rate that it allows.
const BURST_MOST: Nanos = Nanos::from_millis(100);

/// A burst leaves at once, at whatever rate.
fn check_burst(asked: &UdpParameters, caps: &Caps) -> Result<(), ParameterError> {
    let Some(cap) = caps.rate.filter(|_| asked.direction.server_sends() && asked.burst_packets > 1) else {
        return Ok(());
    };
    let bytes = u64::from(asked.burst_packets).saturating_mul(asked.payload_bytes.into());
    let bytes = bytes.saturating_mul(asked.streams.into());
    if bytes <= cap.bytes_in(BURST_MOST) {
        return Ok(());
    }
    let allowed = format!("this server allows {BURST_MOST} of {cap} at once, over all streams");
    Err(ParameterError::new("burst_packets", asked.burst_packets, allowed))
}

impl TestKind for UdpParameters {
    fn needs(&self) -> Vec<&'static str> {
        let settings = (!self.receive.is_empty() && self.direction.client_sends()).then_some(RECEIVE_SETTINGS);
        // Also where the client receives: a server that does not know it would grant another test.
        let rows = self.each_packet.then_some(EACH_PACKET);
        let whole = self.dont_fragment.then_some(DONT_FRAGMENT);
        let class = (self.traffic_class > 0).then_some(TRAFFIC_CLASS);
        [settings, rows, whole, class].into_iter().flatten().collect()
    }

    fn amount(&self) -> Amount {
        self.amount
    }

    fn is_short(&self, stream: u8, sent: &StreamSent) -> bool {
        self.packets_of_stream(stream).is_some_and(|all| sent.sent_packets < all)
    }

    fn direction(&self) -> TestDirection {
        self.direction
    }

    fn streams(&self) -> u8 {
        self.streams
    }

    fn interval_ns(&self) -> Option<u64> {
        self.interval_ns
    }

    fn validate(&self) -> Result<(), ParameterError> {
        self.validate()
    }

    fn check(&self, caps: &Caps) -> Result<(), ParameterError> {
        let receives = self.direction.client_sends();
        let account_bytes = if receives { self.account_bytes() } else { 0 };
        let account_bytes = account_bytes.saturating_add(report_bytes_most(caps.report));
        caps.check_account(self.amount, account_bytes)?;
        let buffer = self.sockbuf_bytes.or(receives.then(|| self.default_receive_buffer()));
        let more = account_bytes.saturating_add(self.readers_bytes());
        let sockets = sockets(self.streams, self.direction);
        if held_bytes(SOCKBUF_LEAST.0, sockets, more) > caps.memory.0 {
            let allowed = format!(
                "their readers and the account of the packets take {}; this server allows {} for a test",
                Bytes(more),
                caps.memory
            );
            return Err(ParameterError::new("streams", self.streams, allowed));
        }
        caps.check_memory("sockbuf_bytes", buffer, sockets, more)?;
        check_burst(self, caps)?;
        if self.payload_bytes > caps.payload_bytes {
            let allowed = format!("this server allows {} bytes", caps.payload_bytes);
            return Err(ParameterError::new("payload_bytes", self.payload_bytes, allowed));
        }
        match changes_receiver(self) {
            Some((field, given)) if self.direction.client_sends() && !caps.host_settings => {
                let allowed = "this server does not let clients change settings of its host (`host_settings`)";
                Err(ParameterError::new(field, given, allowed))
            }
            _ => Ok(()),
        }
    }

    fn rate(&self) -> Option<(&'static str, BitRate)> {
        let field = if matches!(self.pace, Pace::SpacingNs(_)) { "spacing_ns" } else { "rate_bps" };
        self.rate().map(|rate| (field, rate))
    }

    fn at_rate(&self, rate: BitRate) -> TestParameters {
        Self { pace: Pace::RateBps(rate.0), ..self.clone() }.into()
    }

    fn data_ports(&self) -> usize {
        self.streams.into()
    }

    fn drain_quiet(&self) -> Nanos {
        DRAIN_QUIET
    }

    fn client_proof(&self, cookie: Cookie, token: u64) -> Option<ClientProof> {
        Some(ClientProof::new(cookie, token, self.streams))
    }

    fn server_proof(&self, peer: IpAddr, random: &Randomness) -> Proof {
        datagrams_proof(peer, random, self.streams)
    }
}

/// The field and value by which a test changes settings of the receiving host.
fn changes_receiver(asked: &UdpParameters) -> Option<(&'static str, String)> {
    if !asked.receive.is_empty() {
        return Some(("receive", "(settings of the interface)".into()));
    }
    match (asked.affinity.softirq, asked.affinity.softirq_cpus.first()) {
        (Some(SoftirqPlacement::Same), _) => Some(("softirq", "same".into())),
        (Some(SoftirqPlacement::Split), _) => Some(("softirq", "split".into())),
        (None, Some(cpu)) => Some(("affinity", format!("(softirq on CPU {cpu})"))),
        (None, None) => (asked.timestamps == Timestamps::Nic).then(|| ("timestamps", "nic".into())),
    }
}

impl From<UdpParameters> for TestParameters {
    fn from(parameters: UdpParameters) -> Self {
        Self::Udp(parameters)
    }
}

impl TestParameters {
    /// The parameters of a UDP test; `None` for other kinds.
    pub fn udp(&self) -> Option<&UdpParameters> {
        if let Self::Udp(parameters) = self { Some(parameters) } else { None }
    }
}

impl TestEnd {
    /// Client: the reports of sender and receiver of a direction of a UDP test, for [`UdpResult::assemble`]. `None` if that direction
    /// was not tested.
    pub fn udp_reports(&self, backward: bool) -> Option<(&UdpSenderReport, &UdpReceiverReport)> {
        let (sender, receiver) = self.reports(backward)?;
        Some((sender.udp.as_ref()?.sender.as_ref()?, receiver.udp.as_ref()?.receiver.as_ref()?))
    }
}

/// The least that a lost server would have reported: as a receiver its last interim report, as a sender the packets that arrived here.
fn lost_server(client: &EndReport, heard: Option<Progress>) -> EndReport {
    let client = client.udp.clone().unwrap_or_default();
    let receiver = client.sender.as_ref().zip(heard).map(|(_, heard)| {
        // Which packets were missing it did not say.
        let sent = heard.received_packets.saturating_add(heard.missing_packets).min(MAX_SEQUENCES);
        let missing = heard.missing_packets.min(sent);
        let run = Run { first_sequence: sent - missing, packets: missing };
        let counts = Counts {
            received_packets: sent - missing,
            duplicate_packets: heard.duplicate_packets,
            missing_packets: missing,
            reordering: ReorderingSummary {
                reordered_packets: heard.reordered_packets,
                ..ReorderingSummary::default()
            },
            ..Counts::default()
        };
        let all = StreamReceived {
            counts,
            jitter_ns: None,
            delay_over_least: None,
            trains: None,
            first_arrival_ns: 0,
            last_arrival_ns: heard.elapsed_ns,
            traffic_classes: Default::default(),
            losses: LossMap::of_runs(sent, (missing > 0).then_some(run)),
            packets: None,
        };
        UdpReceiverReport { streams: vec![all], ..UdpReceiverReport::default() }
    });
    let sender = client.receiver.as_ref().map(|received| UdpSenderReport {
        streams: (received.streams.iter())
            .map(|stream| StreamSent {
                sent_packets: stream.losses.sent_packets(),
                sent_bytes: 0,
                first_sent_ns: stream.first_arrival_ns,
                last_sent_ns: stream.last_arrival_ns,
            })
            .collect(),
        method: received.method,
        ..UdpSenderReport::default()
    });
    EndReport { udp: Some(UdpEndReport { sender, receiver }), ..EndReport::default() }
}

/// The result up to the last word of a receiver that was lost, about the first `counted` packets. It did not say which of them were missing.
fn lost_receiver_result(
    parameters: &UdpParameters,
    sender: &UdpSenderReport,
    receiver: &UdpReceiverReport,
    counted: u64,
) -> UdpResult {
    let in_time = StreamSent {
        sent_packets: counted,
        sent_bytes: 0,
        first_sent_ns: 0,
        last_sent_ns: receiver.streams.iter().map(|stream| stream.last_arrival_ns).max().unwrap_or(0),
    };
    // Evidence of single packets finds none of them.
    let sender = UdpSenderReport {
        streams: vec![in_time],
        spacing: sender.spacing,
        buffer: sender.buffer,
        counters: sender.counters.clone(),
        ..UdpSenderReport::default()
    };
    let mut result = UdpResult::assemble(parameters, &sender, receiver).result;
    (result.losses, result.streams) = (Vec::new(), Vec::new());
    (result.loss_periods, result.loss_distances) = Default::default();
    result
}

/// Writes all losses of a direction to a file. Gets the suffix of the file's name (`-forward` or `-backward` if both directions
/// were tested, else empty) and the losses. Returns the file's name, or why it could not be written.
pub type SaveLosses<'a> = dyn FnMut(&str, &mut dyn Iterator<Item = Loss>) -> Result<String, String> + 'a;

/// The results of a UDP test with all caveats. `save` writes the losses to a file if they are too many to list; without it there is
/// a caveat. `None` if a report is incomplete, or the test was not UDP.
pub fn results(end: &TestEnd, mut save: Option<&mut SaveLosses<'_>>) -> Option<(Directions<UdpResult>, Vec<Caveat>)> {
    let parameters = end.parameters.udp()?;
    let mut caveats = end.all_caveats();
    let whole = end.with_server(lost_server);
    let results = Directions::of(|backward| {
        let (sender, receiver) = whole.udp_reports(backward)?;
        if end.cut.is_some() && !backward {
            let counted = receiver.streams.iter().map(|stream| stream.losses.sent_packets()).sum();
            return Some(lost_receiver_result(parameters, sender, receiver, counted));
        }
        let mut assembled = UdpResult::assemble(parameters, sender, receiver);
        if end.cut.is_some() {
            // What stands in for the departures of a lost server are arrivals.
            for stream in &mut assembled.result.streams {
                (stream.first_sent_ns, stream.last_sent_ns) = (None, None);
            }
        }
        if assembled.needs_losses_file {
            let losses = &mut assembled.attribution.losses();
            match save.as_mut().map(|save| save(ending(parameters.direction, backward), losses)) {
                Some(Ok(name)) => assembled.result.losses_file = Some(name),
                Some(Err(error)) => caveats.push(Caveat::new(
                    caveats::LOSSES_NOT_SAVED,
                    error,
                    "free disk space or give another folder, then run the test again",
                )),
                None => caveats.push(Caveat::new(
                    caveats::LOSSES_NOT_LISTED,
                    "there are too many losses to list them in the result",
                    "save the result in a folder: a file there lists every loss",
                )),
            }
        }
        caveats.append(&mut assembled.caveats);
        Some(assembled.result)
    })?;
    Some((results, Caveat::unique(caveats)))
}

/// Of the names of the files of one direction.
fn ending(direction: TestDirection, backward: bool) -> &'static str {
    match (direction, backward) {
        (TestDirection::Bidirectional, false) => "-forward",
        (TestDirection::Bidirectional, true) => "-backward",
        _ => "",
    }
}

/// Writes the packets of a direction to a file. Gets the suffix of the file's name, as [`SaveLosses`] does, and the packets of each stream by
/// its number. Returns the file's name, or why it could not be written.
pub type SavePackets<'a> = dyn FnMut(&str, &[(u8, &PacketRows)]) -> Result<String, String> + 'a;

/// Has `save` write the packets of each direction, and names the file in its result. Returns what of the packets no file has.
pub fn save_packets(end: &TestEnd, results: &mut Directions<UdpResult>, save: &mut SavePackets<'_>) -> Vec<Caveat> {
    let direction = end.parameters.udp().map_or(TestDirection::Forward, |asked| asked.direction);
    let mut backwards = [false, true].into_iter().filter(|backward| match direction {
        TestDirection::Forward => !backward,
        TestDirection::Reverse => *backward,
        TestDirection::Bidirectional => true,
    });
    let mut doubts = Vec::new();
    results.each(|result| {
        let backward = backwards.next().unwrap_or_default();
        let report = if backward { Some(&end.local) } else { end.remote.as_ref() };
        let receiver = report.and_then(|report| report.udp.as_ref()?.receiver.as_ref());
        let streams = receiver.map_or(&[][..], |receiver| &receiver.streams);
        let packets: Vec<(u8, &PacketRows)> =
            (0..).zip(streams).filter_map(|(stream, of)| Some((stream, of.packets.as_ref()?))).collect();
        let mut not_saved = |why: String, remedy: &str| {
            doubts.push(Caveat::new(caveats::PACKETS_NOT_SAVED, why, remedy));
        };
        if packets.is_empty() {
            return not_saved(
                "the receiver reported no single packets".into(),
                "use the same version of longhaul at both ends, and let the test run to its end",
            );
        }
        match save(ending(direction, backward), &packets) {
            Ok(name) => result.packets_file = Some(name),
            Err(error) => not_saved(error, "free disk space or give another folder, then run the test again"),
        }
        let left_out = packets.iter().fold(0_u64, |sum, (_, packets)| sum.saturating_add(packets.left_out()));
        if left_out > 0 {
            not_saved(
                format!("the receiver had no room for the last {left_out} packets: the file has those before them"),
                "send fewer packets: some 4 million have room",
            );
        }
    });
    doubts
}

#[cfg(test)]
mod tests {
    use longhaul_terms::Affinity;
    use longhaul_udp::ReceiveSettings;
    use longhaul_units::Bytes;

    use super::*;
    use crate::limits::report_cap;

    #[test]
    fn a_server_with_a_rate_sends_no_long_bursts() {
        let caps = Caps { rate: Some(BitRate(1_000_000)), ..Caps::default() };
        let grant = |burst_packets, direction| {
            let asked =
                UdpParameters { burst_packets, direction, pace: Pace::RateBps(1_000_000), ..UdpParameters::default() };
            TestParameters::from(asked).grant(&caps)
        };
        // 12,500 bytes in 100 ms.
        assert!(grant(8, TestDirection::Reverse).is_ok());
        assert_eq!(grant(9, TestDirection::Reverse).unwrap_err().field, "burst_packets");
        assert!(grant(1000, TestDirection::Forward).is_ok(), "the client's own");
    }

    /// What arrives may be as long as a datagram can be, whatever was granted.
    #[test]
    fn a_server_bounds_the_memory_of_its_readers() {
        let memory = Bytes(16 << 20);
        let caps = Caps { memory, report: report_cap(memory), ..Caps::default() };
        let pace = Pace::RateBps(1_000_000);
        let asked = UdpParameters { streams: 64, sockbuf_bytes: Some(1 << 13), pace, ..UdpParameters::default() };
        assert_eq!(TestParameters::from(asked.clone()).grant(&caps).unwrap_err().field, "streams");
        assert!(TestParameters::from(UdpParameters { streams: 2, ..asked }).grant(&caps).is_ok());
    }

    /// Whatever the numbers of its packets are.
    #[test]
    fn a_server_bounds_the_memory_of_the_account() {
        let memory = Bytes(100 << 20);
        let caps = Caps { memory, report: report_cap(memory), ..Caps::default() };
        let long = UdpParameters {
            amount: Amount::DurationNs(3_600_000_000_000),
            streams: 64,
            sockbuf_bytes: Some(1 << 16),
            pace: Pace::RateBps(1_000_000),
            ..UdpParameters::default()
        };
        let grant = |asked: &UdpParameters| TestParameters::from(asked.clone()).grant(&caps);
        assert!(grant(&long).is_ok(), "at the rate of {:?}", long.pace);
        let fast = UdpParameters { pace: Pace::Unlimited, ..long.clone() };
        assert_eq!(grant(&fast).unwrap_err().field, "duration_ns");
        let buffers = UdpParameters { sockbuf_bytes: Some(1 << 20), ..long.clone() };
        assert_eq!(grant(&buffers).unwrap_err().field, "sockbuf_bytes", "the account alone would fit");
        assert!(grant(&UdpParameters { direction: TestDirection::Reverse, ..fast }).is_ok());
    }

    #[test]
    fn what_changes_the_servers_host_can_be_refused() {
        let caps = Caps { host_settings: false, ..Caps::default() };
        let grant = |asked: &UdpParameters, caps| TestParameters::from(asked.clone()).grant(&caps);
        let plain = UdpParameters::default();
        let bound = |affinity| UdpParameters { affinity, ..UdpParameters::default() };
        let split = bound(Affinity { softirq: Some(SoftirqPlacement::Split), ..Affinity::default() });
        let softirq = bound(Affinity { softirq_cpus: vec![1], ..Affinity::default() });
        let reader = bound(Affinity { receiver_cpus: vec![1], ..Affinity::default() });
        let nic = UdpParameters { timestamps: Timestamps::Nic, ..plain.clone() };
        let gro = ReceiveSettings { gro: Some(false), ..ReceiveSettings::default() };
        let interface = UdpParameters { receive: gro, ..plain.clone() };
        let all = [(&split, "softirq"), (&softirq, "affinity"), (&nic, "timestamps"), (&interface, "receive")];
        for (asked, field) in all {
            assert_eq!(grant(asked, caps).unwrap_err().field, field);
            assert!(grant(asked, Caps::default()).is_ok());
            // Then the setting is changed on the client's own host.
            let toward = |direction| UdpParameters { direction, ..asked.clone() };
            assert!(grant(&toward(TestDirection::Reverse), caps).is_ok());
            assert!(grant(&toward(TestDirection::Bidirectional), caps).is_err());
        }
        assert!(grant(&plain, caps).is_ok() && grant(&reader, caps).is_ok());
    }

    #[test]
    fn beyond_a_cap_is_refused_and_no_limit_becomes_the_cap() {
        let caps = Caps { rate: Some(BitRate::from_gbit(1)), duration: Nanos::from_secs(60), ..Caps::default() };
        let asked = UdpParameters { streams: 2, ..UdpParameters::default() };
        let grant = |asked: UdpParameters| TestParameters::from(asked).grant(&caps);
        assert_eq!(grant(asked.clone()).unwrap().udp().unwrap().pace, Pace::RateBps(500_000_000));
        let at = |pace| grant(UdpParameters { pace, ..asked.clone() });
        assert!(at(Pace::RateBps(500_000_000)).is_ok());
        assert_eq!(
            at(Pace::RateBps(600_000_000)).unwrap_err().to_string(),
            "`rate_bps` (600Mbit × 2): this server allows a payload rate of 1Gbit over all streams"
        );
        assert_eq!(at(Pace::SpacingNs(1_000)).unwrap_err().field, "spacing_ns");
        let long = UdpParameters { amount: Amount::DurationNs(61_000_000_000), ..asked };
        assert_eq!(grant(long).unwrap_err().to_string(), "`duration_ns` 61s: this server allows 60s");
    }
}
