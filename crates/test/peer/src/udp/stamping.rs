//! When packets arrived: which time stamp counts, and what makes it doubtful.

use crate::caveats;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_kernel::clock::{RealtimeOffset, realtime_offset};
use longhaul_kernel::udp::SuperPacket;
use longhaul_result::Caveat;
use longhaul_udp::Timestamps;
use longhaul_units::Nanos;

/// The least step of the realtime clock that counts as one: chrony and ntpd correct up to 100 ms and more by slewing.
const LEAST_STEP: Nanos = Nanos::from_millis(1);

/// Which stamp of a packet is its arrival, on `CLOCK_MONOTONIC`; a NIC's clock counts from its first stamp there.
#[derive(Debug, Clone)]
pub(super) struct Stamping {
    timestamps: Timestamps,
    /// When the test was opened.
    realtime: RealtimeOffset,
    /// `CLOCK_MONOTONIC` less the NIC's clock.
    nic_offset_ns: Option<i64>,
    /// Packets without the stamp that was asked for, all streams together.
    unstamped: Arc<AtomicU64>,
}

/// When a packet arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at: Nanos,
    /// The stamp that was asked for is missing: this is the program's.
    pub(super) program_stamped: bool,
}

impl Stamping {
    pub(super) fn new(timestamps: Timestamps) -> Self {
        Self { timestamps, realtime: realtime_offset(), nic_offset_ns: None, unstamped: Arc::default() }
    }

    /// When `packet`, which a call returned `now`, arrived.
    pub(super) fn arrival(&mut self, packet: &SuperPacket<'_>, now: Nanos) -> Arrival {
        let stamp = match self.timestamps {
            Timestamps::App => return Arrival { at: now, program_stamped: false },
            Timestamps::Kernel => packet.received_at_kernel.map(|stamp| self.realtime.monotonic_of(stamp)),
            Timestamps::Nic => packet.received_at_nic.map(|stamp| {
                let offset = *self.nic_offset_ns.get_or_insert(now.0.wrapping_sub(stamp.0) as i64);
                Nanos(stamp.0.wrapping_add_signed(offset))
            }),
        };
        if stamp.is_none() {
            self.unstamped.fetch_add(1, Ordering::Relaxed);
        }
        Arrival { at: stamp.unwrap_or(now), program_stamped: stamp.is_none() }
    }

    /// Caveats about the stamps, at the end of the test.
    pub(super) fn caveats(&self) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        let unstamped = self.unstamped.load(Ordering::Relaxed);
        if unstamped > 0 {
            let message = format!(
                "{unstamped} packets arrived without the time stamp that was asked for, and have the program's"
            );
            caveats.push(Caveat::new(
                caveats::PACKETS_UNSTAMPED,
                message,
                "use the time stamps of the kernel or the app",
            ));
        }
        caveats
    }
}

/// A caveat where `CLOCK_REALTIME` was stepped.
pub(super) fn stepped(timestamps: Timestamps, before: RealtimeOffset, after: RealtimeOffset) -> Option<Caveat> {
    let step_ns = after.offset_ns.saturating_sub(before.offset_ns);
    let apart = Nanos(step_ns.unsigned_abs());
    let doubt = LEAST_STEP + before.error + after.error;
    (apart > doubt).then(|| {
        let towards = if step_ns > 0 { "forward" } else { "back" };
        Caveat::new(
            caveats::CLOCK_STEPPED,
            format!("the realtime clock was set {towards} by {apart} during the test"),
            match timestamps {
                Timestamps::Kernel => "the kernel stamps packets by that clock: repeat the test, or use the time stamps of the app",
                Timestamps::App | Timestamps::Nic => {
                    "the figures hold, as they come from a clock that does not step; keep NTP from stepping (chrony: makestep)"
                }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use longhaul_kernel::clock::monotonic;

    use super::*;

    fn packet(received_at_kernel: Option<Nanos>, received_at_nic: Option<Nanos>) -> SuperPacket<'static> {
        SuperPacket {
            bytes: &[0],
            segment_bytes: 1,
            source: None,
            received_at_app: Nanos(0),
            received_at_kernel,
            received_at_nic,
            dropped_before: 0,
            traffic_class: None,
            hops_left: None,
            truncated: false,
            icmp: None,
        }
    }

    #[test]
    fn arrivals_are_on_the_monotonic_clock() {
        let now = monotonic();
        let mut app = Stamping::new(Timestamps::App);
        assert_eq!(app.arrival(&packet(Some(Nanos(5)), None), now).at, now);

        let mut kernel = Stamping::new(Timestamps::Kernel);
        let stamp = kernel.realtime.realtime_of(now);
        assert_eq!(kernel.arrival(&packet(Some(stamp), None), now + Nanos::from_secs(9)).at, now);
        assert_eq!(kernel.caveats(), []);
        // A packet without a stamp is taken, and told.
        assert_eq!(kernel.arrival(&packet(None, None), now), Arrival { at: now, program_stamped: true });
        assert_eq!(kernel.caveats()[0].code, "packets_unstamped");

        // A NIC's clock may begin anywhere; what counts is what passes on it.
        let mut nic = Stamping::new(Timestamps::Nic);
        assert_eq!(nic.arrival(&packet(None, Some(Nanos(1_000))), now).at, now);
        assert_eq!(nic.arrival(&packet(None, Some(Nanos(1_250))), now + Nanos::from_secs(1)).at, now + Nanos(250));
    }

    #[test]
    fn a_step_of_the_clock_is_told_and_slewing_is_not() {
        let at = |offset_ns| RealtimeOffset { offset_ns, error: Nanos(1_000) };
        let said = |after| stepped(Timestamps::App, at(5_000_000_000), at(after)).map(|caveat| caveat.message);
        assert_eq!(said(5_000_900_000), None);
        assert!(said(7_000_000_000).unwrap().contains("forward by 2s"));
        assert!(said(4_500_000_000).unwrap().contains("back by 500ms"));
    }
}
