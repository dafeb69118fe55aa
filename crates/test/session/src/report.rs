//! What one end of a test knows when it is over, of any kind of test.

use longhaul_result::Caveat;
use longhaul_tcp::TcpEndReport;
use longhaul_udp::UdpEndReport;
use serde::{Deserialize, Serialize};

/// What one end knows of a test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndReport {
    /// Of a UDP test: what it sent and received.
    #[serde(default)]
    pub udp: Option<UdpEndReport>,
    /// Of a TCP test: what it did, sending or receiving.
    #[serde(default)]
    pub tcp: Option<TcpEndReport>,
    /// The host as `longhaul host` has it; `null` where it was not looked at.
    #[serde(default)]
    pub host: serde_json::Value,
    /// Doubts of this end.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}
