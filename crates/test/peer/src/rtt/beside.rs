//! Round trips beside a test, by ICMP echo: what the path's other users have of its load.

use std::net::SocketAddr;
use std::sync::mpsc::Receiver;

use longhaul_rtt::{Observed, RttParameters};
use longhaul_session::SessionError;
use longhaul_terms::{Amount, Latency, RoundTrips};
use longhaul_units::Nanos;

use super::echo::begin;
use super::probing::{Probing, realtime_ns};
use crate::data::Source;

/// Time between probes.
const INTERVAL: Nanos = Nanos::from_millis(20);
/// An answer that takes longer is none.
const TIMEOUT: Nanos = Nanos::from_secs(4);
/// Longer than any test.
const LONGEST: Nanos = Nanos::from_secs(7 * 24 * 3600);

/// Probes that are sent from now on.
pub struct LatencyBeside {
    probing: Probing,
    events: Receiver<Observed>,
    /// When the test began, Unix time in nanoseconds.
    loaded_from_ns: i64,
}

impl LatencyBeside {
    /// Begins to probe `peer` from the address of `source`.
    ///
    /// # Errors
    /// No socket is allowed, or no route leads there.
    pub fn start(peer: SocketAddr, source: Source) -> Result<Self, SessionError> {
        let parameters = RttParameters {
            amount: Amount::DurationNs(LONGEST.0),
            interval_ns: INTERVAL.0,
            timeout_ns: TIMEOUT.0,
            ..RttParameters::default()
        };
        let (probing, events) = begin(peer, source, &parameters)?;
        Ok(Self { probing, events, loaded_from_ns: i64::MAX })
    }

    /// The test begins now.
    pub fn load(&mut self) {
        self.loaded_from_ns = realtime_ns();
    }

    /// Sends no more, waits for the last answers, and says how long all took.
    pub fn finish(mut self) -> Latency {
        self.probing.stop();
        let rows: Vec<_> = self.events.iter().flat_map(|observed| observed.rows).collect();
        self.probing.join();
        let (idle, loaded): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.sent_ns < self.loaded_from_ns);
        let trips = |rows: Vec<&longhaul_rtt::probe_log::ProbeRow>| {
            RoundTrips::of(rows.iter().map(|row| row.rtt_ns.and_then(|ns| u64::try_from(ns).ok())))
        };
        Latency { idle: trips(idle), loaded: trips(loaded) }
    }
}
