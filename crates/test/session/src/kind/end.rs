//! What is known at the end of a test of any kind.

use std::borrow::Cow;

use longhaul_result::Caveat;
use longhaul_rtt::RttEndReport;
use longhaul_tcp::TcpEndReport;
use longhaul_terms::bounded_list;
use longhaul_udp::UdpEndReport;
use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

use super::TestParameters;
use crate::bounded::bounded;
use crate::error::SessionError;
use crate::progress::Progress;

/// Most caveats of one end.
const CAVEATS_MOST: usize = 4096;

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
    /// The host, as in `longhaul host`; `null` if it was not inspected. Of a peer's no more than 64 MiB are kept.
    #[serde(default, deserialize_with = "bounded")]
    pub host: serde_json::Value,
    /// The caveats of this end.
    #[serde(default, deserialize_with = "bounded_list::<_, _, CAVEATS_MOST>")]
    pub caveats: Vec<Caveat>,
}

/// The end of a test.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TestEnd {
    /// The granted parameters.
    pub parameters: TestParameters,
    /// The report of this end.
    pub local: EndReport,
    /// The report of the other end; `None` at the server, and where the server was lost.
    pub remote: Option<EndReport>,
    /// The server's caveats about the conditions of the test.
    pub caveats: Vec<Caveat>,
    /// Client: how the server was lost before it reported; `None` if it was not.
    pub cut: Option<Cut>,
    /// Client: the server had this end stop sending before its time, as no server of longhaul does.
    pub stopped_by_server: bool,
    /// Client: the server stopped sending before its time by this host's clock, or before it had sent all packets or bytes that were asked for.
    /// Nobody had told it to.
    pub ended_by_server: bool,
    /// Client: a sender stopped before it had sent all packets or bytes that were asked for, as the time that the server allows was over, or for a
    /// reason of this end's. That time; `None` if all was sent, or the user had it stop.
    pub fell_short: Option<Nanos>,
}

/// The server was lost while a test ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// How.
    pub error: SessionError,
    /// What it last said that it had received; `None` if it said nothing.
    pub heard: Option<Progress>,
}

impl TestEnd {
    /// The end of a test in which both ends have reported.
    ///
    /// # Errors
    /// How the server was lost.
    pub fn whole(self) -> Result<Self, SessionError> {
        match self.cut {
            Some(cut) => Err(cut.error),
            None => Ok(self),
        }
    }

    /// The same with a report of the server in any case: where it was lost, `stand_in` makes one of what is known.
    pub(super) fn with_server(&self, stand_in: impl Fn(&EndReport, Option<Progress>) -> EndReport) -> Cow<'_, Self> {
        match &self.cut {
            None => Cow::Borrowed(self),
            Some(cut) => Cow::Owned(Self { remote: Some(stand_in(&self.local, cut.heard)), ..self.clone() }),
        }
    }

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
