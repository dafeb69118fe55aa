//! Measurements of round trips: datagrams that the server answers, no more bytes than it received.

use std::net::IpAddr;

use longhaul_rtt::{RttEndReport, RttParameters};
use longhaul_terms::{Amount, ParameterError, TestDirection};
use longhaul_udp::proof::ClientProof;
use longhaul_units::{BitRate, Nanos};
use longhaul_wire::probe::Cookie;

use super::{Proof, TestEnd, TestKind, TestParameters, datagrams_proof};
use crate::limits::{Caps, DRAIN_QUIET};
use crate::randomness::Randomness;

/// A feature in a hello: this end answers probes.
pub const FEATURE: &str = "rtt";

impl TestKind for RttParameters {
    fn needs(&self) -> Vec<&'static str> {
        vec![FEATURE]
    }

    fn amount(&self) -> Amount {
        self.amount
    }

    fn direction(&self) -> TestDirection {
        TestDirection::Forward
    }

    fn streams(&self) -> u8 {
        1
    }

    /// The client knows all itself.
    fn interval_ns(&self) -> Option<u64> {
        None
    }

    fn validate(&self) -> Result<(), ParameterError> {
        self.validate()
    }

    fn check(&self, caps: &Caps) -> Result<(), ParameterError> {
        if self.payload_bytes > caps.payload_bytes {
            let allowed = format!("this server allows {} bytes", caps.payload_bytes);
            return Err(ParameterError::new("payload_bytes", self.payload_bytes, allowed));
        }
        Ok(())
    }

    fn rate(&self) -> Option<(&'static str, BitRate)> {
        Some(("interval_ns", BitRate::of(self.payload_bytes.into(), Nanos(self.interval_ns.max(1)))))
    }

    /// It has a rate always.
    fn at_rate(&self, _rate: BitRate) -> TestParameters {
        self.clone().into()
    }

    fn data_ports(&self) -> usize {
        1
    }

    fn drain_quiet(&self) -> Nanos {
        DRAIN_QUIET
    }

    fn answers(&self) -> bool {
        true
    }

    fn client_proof(&self, cookie: Cookie, token: u64) -> Option<ClientProof> {
        Some(ClientProof::new(cookie, token, 1))
    }

    fn server_proof(&self, peer: IpAddr, random: &Randomness) -> Proof {
        datagrams_proof(peer, random, 1)
    }
}

impl From<RttParameters> for TestParameters {
    fn from(parameters: RttParameters) -> Self {
        Self::Rtt(parameters)
    }
}

impl TestEnd {
    /// Client: the responder's report of a measurement of round trips.
    pub fn responder(&self) -> Option<&RttEndReport> {
        self.remote.as_ref()?.rtt.as_ref()
    }
}
