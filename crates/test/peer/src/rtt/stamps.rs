//! When packets of a measurement were sent and arrived: by the NIC's stamp, else the kernel's, else the program's.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::nic_stamps::{NicStamps, NicStampsError, nic_stamps_support};
use longhaul_kernel::udp::{NicClock, SuperPacket};
use longhaul_rtt::probe_log::StampedBy;
use longhaul_rtt::{Account, NicReading, NicTime};
use longhaul_session::SessionError;
use longhaul_units::Nanos;

use super::probing::{kernel_stamp, realtime_ns};
use crate::interface::receiving_interface;

/// How often a NIC's clock is read.
const READ: Nanos = Nanos::from_millis(100);

/// A NIC that stamps packets, and its clock beside the host's. When it is dropped the NIC is set back as it was.
#[derive(Debug)]
pub(super) struct Nic {
    clock: NicClock,
    time: Mutex<ReadTime>,
    _stamps: Option<NicStamps>,
}

#[derive(Debug, Default)]
struct ReadTime {
    nic: NicTime,
    /// When to read the clock again, `CLOCK_MONOTONIC`.
    due: Nanos,
}

impl Nic {
    /// Has the NIC stamp that receives what `peer` sends to this host's address `own`; link-local ones are in the zone of interface number `zone`.
    ///
    /// # Errors
    /// `no_nic_timestamps`: it cannot, it has no clock that can be read, or this process may not.
    pub(super) fn open(own: IpAddr, peer: IpAddr, zone: Option<u32>) -> Result<Self, SessionError> {
        let failed = |error: String| {
            SessionError::new(
                "no_nic_timestamps",
                format!("time stamps of the NIC: {error}"),
                "use those of the kernel",
            )
        };
        let link = receiving_interface(own, peer, zone).map_err(|error| failed(error.to_string()))?;
        let stamps = match NicStamps::enable(&link) {
            // As long as the other test has it stamp.
            Err(NicStampsError::Busy { .. }) => None,
            enabled => Some(enabled.map_err(|error| failed(error.to_string()))?),
        };
        let index = nic_stamps_support(&link).map_err(|error| failed(error.to_string()))?.clock_index;
        let index = index.ok_or_else(|| failed(format!("the NIC of {link} has no clock (see `ethtool -T {link}`)")))?;
        let unread = |error| failed(format!("cannot read the clock of {link}, /dev/ptp{index}: {error}"));
        let clock = NicClock::open(index).map_err(unread)?;
        clock.read().map_err(unread)?;
        Ok(Self { clock, time: Mutex::default(), _stamps: stamps })
    }

    fn told<T>(&self, tell: impl FnOnce(&NicTime) -> Option<T>) -> Option<T> {
        let mut time = self.time.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic();
        if now >= time.due {
            time.due = now + READ;
            // Without it the clock is told by earlier readings, and then by none that fits.
            if let Some(reading) = self.clock.read().ok().and_then(|read| {
                let [nic_ns, realtime_ns] = [read.nic, read.realtime].map(|at| i64::try_from(at.0));
                Some(NicReading { nic_ns: nic_ns.ok()?, realtime_ns: realtime_ns.ok()? })
            }) {
                time.nic.take(reading);
            }
        }
        tell(&time.nic)
    }
}

/// The NIC's stamp, nanoseconds of its own clock.
fn nic_stamp(packet: &SuperPacket<'_>) -> Option<i64> {
    i64::try_from(packet.received_at_nic?.0).ok()
}

/// When a packet arrived, Unix time in nanoseconds, and who says so.
pub(super) fn received(packet: &SuperPacket<'_>, nic: Option<&Nic>) -> (i64, StampedBy) {
    let Some(at) = kernel_stamp(packet) else {
        return (i64::try_from(packet.received_at_app.0).unwrap_or_else(|_| realtime_ns()), StampedBy::Program);
    };
    let by_nic = nic.zip(nic_stamp(packet)).and_then(|(nic, stamp)| nic.told(|time| time.arrival(stamp, at)));
    by_nic.map_or((at, StampedBy::Kernel), |at| (at, StampedBy::Nic))
}

/// Enters into the account when probe `sequence` left, by the stamp of `packet`, the copy of it that came back.
pub(super) fn enter_sent(account: &mut Account, sequence: u64, packet: &SuperPacket<'_>, nic: Option<&Nic>) {
    if let Some(at) = kernel_stamp(packet) {
        account.stamp(sequence, at, StampedBy::Kernel);
    }
    let by_nic = nic.zip(nic_stamp(packet)).zip(account.program_ns(sequence));
    if let Some(at) = by_nic.and_then(|((nic, stamp), program)| nic.told(|time| time.departure(stamp, program))) {
        account.stamp(sequence, at, StampedBy::Nic);
    }
}
