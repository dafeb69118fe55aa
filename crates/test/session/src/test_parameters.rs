//! The kind of a test, and the parameters that all kinds have.
//!
//! A UDP test is sent in its original form plus `"kind": "udp"`, which older versions ignore; a test without a kind is a UDP test.
//! The features in a server's hello say which other kinds it knows.

use longhaul_tcp::TcpParameters;
use longhaul_terms::{Affinity, Amount, Collect, ParameterError, TestDirection};
use longhaul_udp::UdpParameters;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A feature in a hello: this end supports TCP tests.
pub const TCP_FEATURE: &str = "tcp";

/// A test of either kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TestParameters {
    /// Datagrams.
    Udp(UdpParameters),
    /// Bulk transfer.
    Tcp(TcpParameters),
}

impl Default for TestParameters {
    fn default() -> Self {
        Self::Udp(UdpParameters::default())
    }
}

impl From<UdpParameters> for TestParameters {
    fn from(parameters: UdpParameters) -> Self {
        Self::Udp(parameters)
    }
}

impl From<TcpParameters> for TestParameters {
    fn from(parameters: TcpParameters) -> Self {
        Self::Tcp(parameters)
    }
}

impl TestParameters {
    /// The parameters of a UDP test; `None` for other kinds.
    pub fn udp(&self) -> Option<&UdpParameters> {
        match self {
            Self::Udp(parameters) => Some(parameters),
            Self::Tcp(_) => None,
        }
    }

    /// The parameters of a TCP test; `None` for other kinds.
    pub fn tcp(&self) -> Option<&TcpParameters> {
        match self {
            Self::Tcp(parameters) => Some(parameters),
            Self::Udp(_) => None,
        }
    }

    /// Who sends.
    pub fn direction(&self) -> TestDirection {
        match self {
            Self::Udp(udp) => udp.direction,
            Self::Tcp(tcp) => tcp.direction,
        }
    }

    /// Streams in each direction.
    pub fn streams(&self) -> u8 {
        match self {
            Self::Udp(udp) => udp.streams,
            Self::Tcp(tcp) => tcp.streams,
        }
    }

    /// How much is sent.
    pub fn amount(&self) -> Amount {
        match self {
            Self::Udp(udp) => udp.amount,
            Self::Tcp(tcp) => tcp.amount,
        }
    }

    /// Time between interim reports, nanoseconds; `None` for none.
    pub fn interval_ns(&self) -> Option<u64> {
        match self {
            Self::Udp(udp) => udp.interval_ns,
            Self::Tcp(tcp) => tcp.interval_ns,
        }
    }

    /// How lost packets are located.
    pub fn collect(&self) -> Collect {
        match self {
            Self::Udp(udp) => udp.collect,
            Self::Tcp(tcp) => tcp.collect,
        }
    }

    /// CPUs for the threads.
    pub fn affinity(&self) -> &Affinity {
        match self {
            Self::Udp(udp) => &udp.affinity,
            Self::Tcp(tcp) => &tcp.affinity,
        }
    }

    /// Checks the limits that every longhaul has; a server can have lower ones.
    ///
    /// # Errors
    /// The first parameter out of range, with what is allowed.
    pub fn validate(&self) -> Result<(), ParameterError> {
        match self {
            Self::Udp(udp) => udp.validate(),
            Self::Tcp(tcp) => tcp.validate(),
        }
    }

    /// The feature that the server needs for such a test; `None` if every server supports it.
    pub(super) fn needs(&self) -> Option<&'static str> {
        matches!(self, Self::Tcp(_)).then_some(TCP_FEATURE)
    }
}

impl<'de> Deserialize<'de> for TestParameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let kind = value.as_object_mut().and_then(|object| object.remove("kind"));
        match kind.as_ref().map(|kind| kind.as_str()) {
            None | Some(Some("udp")) => serde_json::from_value(value).map(Self::Udp),
            Some(Some("tcp")) => serde_json::from_value(value).map(Self::Tcp),
            Some(_) => return Err(D::Error::custom("this version does not know this kind of test")),
        }
        .map_err(D::Error::custom)
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
