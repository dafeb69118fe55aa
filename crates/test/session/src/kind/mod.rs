//! The kinds of tests, side by side: what each of them means to the session.
//!
//! A further kind is a file beside `udp` and `tcp` that implements [`TestKind`], and here a variant, an arm, its feature and the report of
//! its ends.
//!
//! A UDP test is sent in its original form plus `"kind": "udp"`, which older versions ignore; a test without a kind is a UDP test.
//! The features in a server's hello say which other kinds it knows.

use std::net::IpAddr;

use longhaul_rtt::RttParameters;
use longhaul_tcp::TcpParameters;
use longhaul_tcp::proof::TcpProof;
use longhaul_terms::{Amount, ParameterError, StreamSent, TestDirection};
use longhaul_udp::UdpParameters;
use longhaul_udp::proof::{ClientProof, ServerProof};
use longhaul_units::{BitRate, Nanos};
use longhaul_wire::probe::Cookie;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::limits::Caps;
use crate::randomness::Randomness;

mod end;
pub mod rtt;
pub mod tcp;
pub mod udp;

pub use end::{Cut, EndReport, TestEnd};

/// The features in a hello: the kinds of tests that not every server knows, and what of a kind it may not know.
pub(crate) const FEATURES: [&str; 6] =
    [tcp::FEATURE, rtt::FEATURE, udp::RECEIVE_SETTINGS, udp::EACH_PACKET, DONT_FRAGMENT, TRAFFIC_CLASS];

/// A feature in a hello: this end sends packets that must not be fragmented, if it is asked to.
pub const DONT_FRAGMENT: &str = "dont_fragment";

/// A feature in a hello: this end sends packets with a traffic class, if it is asked to.
pub const TRAFFIC_CLASS: &str = "traffic_class";

/// A test of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", remote = "Self")]
pub enum TestParameters {
    /// Datagrams.
    Udp(UdpParameters),
    /// Bulk transfer.
    Tcp(TcpParameters),
    /// Round trips.
    Rtt(RttParameters),
}

/// A kind of test, with the parameters of one test.
pub trait TestKind {
    /// The features that the server needs for such a test; none if every server supports it.
    fn needs(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// How much is sent.
    fn amount(&self) -> Amount;

    /// Whether a stream of this number that has `sent` so much has sent less than was asked for; `false` where the time of the test decides.
    fn is_short(&self, _stream: u8, _sent: &StreamSent) -> bool {
        false
    }

    /// Who sends.
    fn direction(&self) -> TestDirection;

    /// Streams in each direction.
    fn streams(&self) -> u8;

    /// Time between interim reports, nanoseconds; `None` for none.
    fn interval_ns(&self) -> Option<u64>;

    /// Checks the limits that every longhaul has; a server can have lower ones.
    ///
    /// # Errors
    /// The first parameter out of range, with what is allowed.
    fn validate(&self) -> Result<(), ParameterError>;

    /// Checks the caps of a server on what only this kind has.
    ///
    /// # Errors
    /// The first parameter above a cap, with the cap.
    fn check(&self, caps: &Caps) -> Result<(), ParameterError>;

    /// Payload bits per second of each stream, and the parameter that says so; `None` for as fast as possible.
    fn rate(&self) -> Option<(&'static str, BitRate)>;

    /// The same test at this rate of each stream.
    fn at_rate(&self, rate: BitRate) -> TestParameters;

    /// Number of ports that the server opens.
    fn data_ports(&self) -> usize;

    /// After the sender's end: all data has arrived if nothing arrives for this time.
    fn drain_quiet(&self) -> Nanos;

    /// Whether the server answers the client's datagrams: it needs to know the proven address, though it sends nothing by itself.
    fn answers(&self) -> bool {
        false
    }

    /// The client's part of the proof of the data path; `None` where its connections need no more messages.
    fn client_proof(&self, _cookie: Cookie, _token: u64) -> Option<ClientProof> {
        None
    }

    /// The server's part, for the client at `peer`.
    fn server_proof(&self, peer: IpAddr, random: &Randomness) -> Proof;
}

/// Sockets at each end.
fn sockets(streams: u8, direction: TestDirection) -> u64 {
    u64::from(streams) * if direction == TestDirection::Bidirectional { 2 } else { 1 }
}

/// The proof that datagrams of each of `streams` pass between this server and `peer`.
fn datagrams_proof(peer: IpAddr, random: &Randomness, streams: u8) -> Proof {
    let (_, token) = random.token();
    Proof::Datagrams(ServerProof::new(peer, random.cookie(), token, &random.challenges(streams)))
}

/// What a server must see before any bulk data.
#[derive(Debug)]
pub enum Proof {
    /// Datagrams of each stream pass in both directions.
    Datagrams(ServerProof),
    /// All connections are there.
    Connections(TcpProof),
}

impl TestParameters {
    /// The kind of the test.
    pub fn kind(&self) -> &dyn TestKind {
        match self {
            Self::Udp(udp) => udp,
            Self::Tcp(tcp) => tcp,
            Self::Rtt(rtt) => rtt,
        }
    }

    /// What a server with these caps grants: all of it or nothing. Only if no rate was requested does the server set its own.
    ///
    /// # Errors
    /// The first parameter above a cap, with the cap.
    pub fn grant(self, caps: &Caps) -> Result<Self, ParameterError> {
        let kind = self.kind();
        kind.validate()?;
        caps.check_size(kind.amount(), kind.streams())?;
        kind.check(caps)?;
        let Some(cap) = caps.rate else { return Ok(self) };
        let streams = u64::from(kind.streams());
        match kind.rate() {
            None => Ok(kind.at_rate(BitRate((cap.0 / streams).max(1_000)))),
            Some((field, rate)) if rate.0.saturating_mul(streams) > cap.0 => {
                let allowed = format!("this server allows a payload rate of {cap} over all streams");
                Err(ParameterError::new(field, format_args!("({rate} × {streams})"), allowed))
            }
            Some(_) => Ok(self),
        }
    }
}

impl Default for TestParameters {
    fn default() -> Self {
        Self::Udp(UdpParameters::default())
    }
}

impl Serialize for TestParameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for TestParameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        if let Some(object) = value.as_object_mut() {
            object.entry("kind").or_insert("udp".into());
        }
        Self::deserialize(value).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_udp_test_reads_as_it_always_did() {
        let udp = UdpParameters { streams: 3, ..UdpParameters::default() };
        let old = serde_json::to_string(&udp).unwrap();
        let test: TestParameters = serde_json::from_str(&old).unwrap();
        assert_eq!(test, TestParameters::Udp(udp.clone()));
        // A version that knows no other kind can read what is written now.
        assert_eq!(serde_json::from_str::<UdpParameters>(&serde_json::to_string(&test).unwrap()).unwrap(), udp);
    }

    #[test]
    fn a_tcp_test_survives_and_other_kinds_are_refused() {
        let test = TestParameters::Tcp(TcpParameters { streams: 4, ..TcpParameters::default() });
        let text = serde_json::to_string(&test).unwrap();
        assert_eq!(serde_json::from_str::<TestParameters>(&text).unwrap(), test);
        for other in ["{\"kind\":\"sctp\"}", "{\"kind\":7}", "7"] {
            assert!(serde_json::from_str::<TestParameters>(other).is_err(), "{other}");
        }
    }
}
