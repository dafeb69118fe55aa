//! TCP tests: bulk transfer over a connection for each stream.

use std::net::IpAddr;

use longhaul_result::Caveat;
use longhaul_tcp::proof::TcpProof;
use longhaul_tcp::{TcpEndReport, TcpParameters, TcpResult, TcpStreamReport};
use longhaul_terms::{Amount, Directions, ParameterError, StreamSent, TestDirection};
use longhaul_units::{BitRate, Bytes, Nanos};

use super::{EndReport, Proof, TRAFFIC_CLASS, TestEnd, TestKind, TestParameters, sockets};
use crate::limits::{Caps, DRAIN_LIMIT, held_bytes};
use crate::progress::Progress;
use crate::randomness::Randomness;

/// A feature in a hello: this end supports TCP tests.
pub const FEATURE: &str = "tcp";

impl TestKind for TcpParameters {
    fn needs(&self) -> Vec<&'static str> {
        let class = (self.traffic_class > 0).then_some(TRAFFIC_CLASS);
        [Some(FEATURE), class].into_iter().flatten().collect()
    }

    fn amount(&self) -> Amount {
        self.amount
    }

    fn is_short(&self, stream: u8, sent: &StreamSent) -> bool {
        self.bytes_of_stream(stream).is_some_and(|all| sent.sent_bytes < all)
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
        let block = u64::from(self.block_bytes);
        if block > caps.block.0 {
            return Err(ParameterError::new("block_bytes", Bytes(block), format!("this server allows {}", caps.block)));
        }
        if self.mptcp && self.direction.server_sends() && caps.rate.is_some() {
            // SO_MAX_PACING_RATE is not for its sockets.
            let allowed = "this server limits the rate at which it sends, and the kernel does not pace MPTCP";
            return Err(ParameterError::new("mptcp", true, allowed));
        }
        let own_block = if self.direction.server_sends() { block } else { 0 };
        let sockets = sockets(self.streams, self.direction);
        if self.window_bytes.is_none() {
            let grown = grown_bytes(caps, sockets);
            if grown.saturating_add(own_block) > caps.memory.0 {
                let (grown, memory) = (Bytes(grown), caps.memory);
                let allowed = format!(
                    "the kernel lets the buffers of {sockets} sockets grow to {grown}; this server allows {memory} for a test"
                );
                return Err(ParameterError::new("window_bytes", "unset", allowed));
            }
        }
        caps.check_memory("window_bytes", self.window_bytes, sockets, own_block)
    }

    fn rate(&self) -> Option<(&'static str, BitRate)> {
        self.pace_bps.map(|bps| ("pace_bps", BitRate(bps)))
    }

    fn at_rate(&self, rate: BitRate) -> TestParameters {
        Self { pace_bps: Some(rate.0), ..self.clone() }.into()
    }

    fn data_ports(&self) -> usize {
        1
    }

    /// The peer reports its end, and there can be much time between two retransmissions.
    fn drain_quiet(&self) -> Nanos {
        DRAIN_LIMIT
    }

    fn server_proof(&self, peer: IpAddr, random: &Randomness) -> Proof {
        let (forward, backward) = (self.direction.client_sends(), self.direction.server_sends());
        Proof::Connections(TcpProof::new(peer, random.tcp_cookie(), self.streams, forward, backward))
    }
}

/// What the kernel lets the buffers of so many sockets grow to.
fn grown_bytes(caps: &Caps, sockets: u64) -> u64 {
    let grown = caps.tuned_buffer.0.saturating_mul(sockets);
    if caps.tuned_buffers.0 == 0 { grown } else { grown.min(caps.tuned_buffers.0) }
}

/// Bytes of a server's memory that the sockets and the block of a test leave for its samples and their text.
pub fn left_for_samples(caps: &Caps, asked: &TcpParameters) -> u64 {
    let block = if asked.direction.server_sends() { asked.block_bytes.into() } else { 0 };
    let sockets = sockets(asked.streams, asked.direction);
    let held = match asked.window_bytes {
        Some(bytes) => held_bytes(bytes, sockets, block),
        None => grown_bytes(caps, sockets).saturating_add(block),
    };
    caps.memory.0.saturating_sub(held)
}

impl From<TcpParameters> for TestParameters {
    fn from(parameters: TcpParameters) -> Self {
        Self::Tcp(parameters)
    }
}

impl TestParameters {
    /// The parameters of a TCP test; `None` for other kinds.
    pub fn tcp(&self) -> Option<&TcpParameters> {
        if let Self::Tcp(parameters) = self { Some(parameters) } else { None }
    }
}

/// The least that a lost server would have reported: as a receiver the data that it acknowledged, as a sender the data that arrived here.
fn lost_server(client: &EndReport, _heard: Option<Progress>) -> EndReport {
    let stream = |own: &TcpStreamReport| {
        let theirs =
            TcpStreamReport { backward: own.backward, stream: own.stream, sends: !own.sends, ..Default::default() };
        if !own.sends {
            return theirs;
        }
        // A time of 0 is none.
        let (first_ns, span_ns) = (1, own.summary.acked_span_ns);
        TcpStreamReport { bytes: own.summary.acked_bytes.unwrap_or(0), first_ns, last_ns: first_ns + span_ns, ..theirs }
    };
    let streams = client.tcp.iter().flat_map(|tcp| &tcp.streams).map(stream).collect();
    let complete = false;
    EndReport { tcp: Some(TcpEndReport { streams, complete, ..TcpEndReport::default() }), ..EndReport::default() }
}

/// The results of a TCP test over IPv6 or IPv4, with all caveats. `None` if a report is incomplete, or the test was not TCP.
pub fn results(end: &TestEnd, ipv6: bool) -> Option<(Directions<TcpResult>, Vec<Caveat>)> {
    let parameters = end.parameters.tcp()?;
    let mut caveats = end.all_caveats();
    let whole = end.with_server(lost_server);
    let results = Directions::of(|backward| {
        let (sender, receiver) = whole.reports(backward)?;
        let (sender, receiver) = (sender.tcp.as_ref()?, receiver.tcp.as_ref()?);
        let mut assembled = TcpResult::assemble(parameters, ipv6, backward, sender, receiver)?;
        caveats.append(&mut assembled.caveats);
        Some(assembled.result)
    })?;
    Some((results, Caveat::unique(caveats)))
}

#[cfg(test)]
mod tests {
    use longhaul_units::Bytes;

    use super::*;

    #[test]
    fn a_capped_server_paces_tcp() {
        let caps = Caps { rate: Some(BitRate::from_gbit(1)), sockbuf: Bytes(1 << 20), ..Caps::default() };
        let grant = |asked: &TcpParameters| TestParameters::from(asked.clone()).grant(&caps);
        let asked = TcpParameters { streams: 4, ..TcpParameters::default() };
        assert_eq!(grant(&asked).unwrap().tcp().unwrap().pace_bps, Some(250_000_000));
        let fast = TcpParameters { pace_bps: Some(300_000_000), ..asked.clone() };
        assert!(grant(&fast).unwrap_err().to_string().starts_with("`pace_bps` (300Mbit × 4): this server allows"));
        let wide = TcpParameters { window_bytes: Some(2 << 20), ..asked };
        assert_eq!(grant(&wide).unwrap_err().field, "window_bytes");
    }

    /// The kernel does not pace MPTCP.
    #[test]
    fn a_server_with_a_rate_sends_no_mptcp() {
        let caps = Caps { rate: Some(BitRate::from_gbit(1)), ..Caps::default() };
        let grant = |direction| {
            let asked = TcpParameters { mptcp: true, direction, ..TcpParameters::default() };
            TestParameters::from(asked).grant(&caps)
        };
        assert!(grant(TestDirection::Forward).is_ok());
        for direction in [TestDirection::Reverse, TestDirection::Bidirectional] {
            assert_eq!(grant(direction).unwrap_err().field, "mptcp");
        }
    }

    #[test]
    fn a_server_bounds_the_memory_of_a_test() {
        let caps = Caps { memory: Bytes(64 << 20), block: Bytes(4 << 20), ..Caps::default() };
        let grant = |asked: &TcpParameters| TestParameters::from(asked.clone()).grant(&caps);
        let asked = TcpParameters { streams: 16, window_bytes: Some(2 << 20), ..TcpParameters::default() };
        assert!(grant(&asked).is_ok());
        // Its own block is beyond the 64 MiB of the sockets.
        let reverse = TcpParameters { direction: TestDirection::Reverse, ..asked.clone() };
        let refused = grant(&reverse).unwrap_err().to_string();
        assert!(refused.contains("16 sockets") && refused.contains("this server allows 64MiB"), "{refused}");
        let both = TcpParameters { direction: TestDirection::Bidirectional, ..asked.clone() };
        assert!(grant(&both).unwrap_err().to_string().contains("32 sockets"));
        assert_eq!(left_for_samples(&caps, &TcpParameters { window_bytes: Some(1 << 20), ..asked.clone() }), 32 << 20);
        // Buffers of no size grow as far as the kernel lets them.
        let tuned = Caps { tuned_buffer: Bytes(6 << 20), tuned_buffers: Bytes(1 << 30), ..caps };
        let any = TcpParameters { window_bytes: None, ..asked.clone() };
        assert!(
            TestParameters::from(any.clone())
                .grant(&tuned)
                .unwrap_err()
                .to_string()
                .contains("16 sockets grow to 96MiB")
        );
        assert!(TestParameters::from(any.clone()).grant(&Caps { tuned_buffers: Bytes(60 << 20), ..tuned }).is_ok());
        let four = TcpParameters { streams: 4, ..any };
        assert_eq!(left_for_samples(&tuned, &four), 40 << 20);
        assert!(TestParameters::from(four).grant(&tuned).is_ok());
        let long = TcpParameters { block_bytes: 5 << 20, ..asked.clone() };
        assert_eq!(grant(&long).unwrap_err().to_string(), "`block_bytes` 5MiB: this server allows 4MiB");
        // A server of a mesh's round trips takes no TCP test so.
        let none = Caps { block: Bytes(0), ..caps };
        let least = TcpParameters { block_bytes: 1, ..asked };
        assert_eq!(TestParameters::from(least).grant(&none).unwrap_err().field, "block_bytes");
    }
}
