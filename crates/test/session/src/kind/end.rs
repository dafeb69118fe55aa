//! What is known at the end of a test of any kind.

use longhaul_result::Caveat;
use longhaul_rtt::RttEndReport;
use longhaul_tcp::TcpEndReport;
use longhaul_udp::UdpEndReport;
use serde::{Deserialize, Serialize};

use super::TestParameters;

/// The report of one end of a test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndReport {
    /// UDP test: what it sent and received.
    #[serde(default)]
    pub udp: Option<UdpEndReport>,
    /// TCP test: what it sent and received.
    #[serde(default)]
    pub tcp: Option<TcpEndReport>,
    /// Round trips: what the responder answered.
    #[serde(default)]
    pub rtt: Option<RttEndReport>,
    /// The host, as in `longhaul host`; `null` if it was not inspected.
    #[serde(default)]
    pub host: serde_json::Value,
    /// The caveats of this end.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

/// The end of a test.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TestEnd {
    /// The granted parameters.
    pub parameters: TestParameters,
    /// The report of this end.
    pub local: EndReport,
    /// The report of the other end; `None` at the server.
    pub remote: Option<EndReport>,
    /// The server's caveats about the conditions of the test.
    pub caveats: Vec<Caveat>,
}

impl TestEnd {
    /// Client: the reports of sender and receiver of a direction. `None` without the server's.
    pub(super) fn reports(&self, backward: bool) -> Option<(&EndReport, &EndReport)> {
        let remote = self.remote.as_ref()?;
        Some(if backward { (remote, &self.local) } else { (&self.local, remote) })
    }

    /// The caveats about the conditions at the server, and those of both ends.
    pub(super) fn all_caveats(&self) -> Vec<Caveat> {
        let ends = [Some(&self.local), self.remote.as_ref()].into_iter().flatten();
        self.caveats.iter().chain(ends.flat_map(|end| &end.caveats)).cloned().collect()
    }
}
