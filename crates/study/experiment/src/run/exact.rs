//! How exactly a path was emulated: delay and loss of each packet beside what the path asks for.

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{LinkStats, Netlink};
use longhaul_kernel::wait::sleep_until;
use longhaul_lab::Lab;
use longhaul_lab::plan::HOST_INTERFACE;
use longhaul_path::spec::{DelaySteps, Direction, PathSpec};
use longhaul_report::html::udp_loss::{Exactness, OneWayDelay};
use longhaul_result::Caveat;
use longhaul_session::TestEnd;
use longhaul_units::Nanos;

use super::{lab_failed, netem};
use crate::spec::Emulator;

/// Time beside round trips in which the last packets of a control connection arrive.
const SETTLES: Nanos = Nanos::from_millis(50);
/// Round trips of the end of a TCP connection, and one more.
const ROUND_TRIPS: u64 = 3;

/// Packets from client to server so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    entered: u64,
    left: u64,
    dropped: u64,
}

impl Passed {
    /// By the interfaces of both hosts, and by the emulator's own word.
    ///
    /// # Errors
    /// One does not tell.
    pub(super) fn of(lab: &Lab, emulator: Emulator) -> Result<Self, Caveat> {
        let dropped = match emulator {
            Emulator::Longhaul => {
                let status = lab.status().map_err(|error| lab_failed(&error))?;
                let forward = status.hops.iter().filter(|hop| hop.name.starts_with("forward."));
                forward.map(|hop| hop.counters.dropped().packets).sum()
            }
            Emulator::Netem => netem::forward(lab).map_err(|error| lab_failed(&error))?.drops,
        };
        Ok(Self { entered: stats(lab, "client")?.tx_packets, left: stats(lab, "server")?.rx_packets, dropped })
    }

    /// What passed of a test that ended, when all of its packets arrived.
    ///
    /// # Errors
    /// As [`Passed::of`].
    pub(super) fn until_now(
        self,
        lab: &Lab,
        path: &PathSpec,
        emulator: Emulator,
        end: &TestEnd,
    ) -> Result<Exactness, Caveat> {
        sleep_until(monotonic() + SETTLES + Nanos(path.round_trip().0.saturating_mul(ROUND_TRIPS)));
        let now = Self::of(lab, emulator)?;
        Ok(Exactness {
            emulator: emulator.name().to_owned(),
            delay: OneWayDelay::of(delays(end)),
            asked_delay_ns: asked_delay(path).map(|delay| delay.0),
            entered_packets: now.entered.saturating_sub(self.entered),
            left_packets: now.left.saturating_sub(self.left),
            dropped_packets: now.dropped.saturating_sub(self.dropped),
        })
    }
}

fn stats(lab: &Lab, host: &str) -> Result<LinkStats, Caveat> {
    let host = lab.host(host).map_err(|error| lab_failed(&error))?;
    let link = host.namespace.enter(|| Netlink::open()?.link_by_name(HOST_INTERFACE));
    let link = link.map_err(|error| lab_failed(&error))?.map_err(|error| lab_failed(&error))?;
    link.stats.ok_or_else(|| lab_failed(&format!("{HOST_INTERFACE} of {} has no counters", host.plan.name)))
}

/// From before a packet was sent until it arrived. Both hosts of a lab have one clock.
fn delays(end: &TestEnd) -> Vec<i64> {
    let streams = end.udp_reports(false).map(|(_, receiver)| receiver.streams.as_slice()).unwrap_or_default();
    let rows = streams.iter().filter_map(|stream| stream.packets.as_ref()).flat_map(|packets| packets.rows());
    let stamped = rows.filter(|row| !row.program_stamped);
    stamped.map(|row| row.arrived.0.wrapping_sub(row.sent.0) as i64).collect()
}

/// The delay of each packet to the server; `None` where it is no constant.
fn asked_delay(path: &PathSpec) -> Option<Nanos> {
    let constant = path.forward.iter().all(|hop| {
        hop.rate.is_none() && hop.jitter.is_none() && hop.coalesce.is_none() && hop.delay_steps == DelaySteps::default()
    });
    let ends = path.clients.iter().take(1).chain(path.servers.iter().take(1));
    let ends = ends.fold(Nanos::ZERO, |sum, host| sum.saturating_add(host.delay));
    constant.then(|| path.one_way_delay(Direction::Forward).saturating_add(ends))
}

#[cfg(test)]
mod tests {
    use longhaul_path::spec::no_files;

    use super::*;

    #[test]
    fn only_a_constant_delay_is_asked_of_each_packet() {
        for (hop, asked) in [
            ("delay = '10ms'", Some(10)),
            ("delay = '10ms'\nloss = { every = 5 }", Some(10)),
            ("delay = '10ms'\nrate = '1Gbit'", None),
            ("delay = '10ms'\njitter = { law = 'normal', stddev = '1ms' }", None),
            ("delay = '10ms'\ncoalesce = { time = '50us' }", None),
        ] {
            let path = PathSpec::parse(&format!("name = 'x'\n[[both]]\n{hop}\n"), &no_files).unwrap();
            assert_eq!(asked_delay(&path), asked.map(Nanos::from_millis), "{hop}");
        }
    }
}
