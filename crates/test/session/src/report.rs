//! What one end knows at the end of a test of any kind.

use longhaul_result::Caveat;
use longhaul_tcp::TcpEndReport;
use longhaul_udp::UdpEndReport;
use serde::{Deserialize, Serialize};

/// The report of one end of a test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndReport {
    /// UDP test: what it sent and received.
    #[serde(default)]
    pub udp: Option<UdpEndReport>,
    /// TCP test: what it sent and received.
    #[serde(default)]
    pub tcp: Option<TcpEndReport>,
    /// The host, as in `longhaul host`; `null` if it was not inspected.
    #[serde(default)]
    pub host: serde_json::Value,
    /// The caveats of this end.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}
