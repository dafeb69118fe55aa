//! On which CPUs a receiver reads, and on which the softirq runs that brings it packets.
//!
//! The NLR paper's "bound" is `same`, its "balanced" `split`. The paper set interrupt affinity; RPS does the same for virtual interfaces
//! too.

use std::net::IpAddr;

use longhaul_kernel::nic_stamps::NicStamps;
use longhaul_kernel::receive_settings::{self, HeldSettings, hold, receive_settings};
use longhaul_kernel::rps::Rps;
use longhaul_session::{DataPlan, SessionError};
use longhaul_terms::Affinity;
use longhaul_terms::SoftirqPlacement;
use longhaul_udp::Binding;
use longhaul_udp::{ReceiveSettings, Timestamps, UdpParameters};

use crate::cpus::{all_in, allowed};
use crate::interface::receiving_interface;

/// What is set for the time of a test at the receiving end. Dropping it undoes that.
#[derive(Debug, Default)]
pub(super) struct Placement {
    pub(super) receiver_cpus: Vec<u16>,
    softirq_cpus: Vec<u16>,
    rps: Option<Rps>,
    _stamps: Option<NicStamps>,
    _held: Option<HeldSettings>,
    /// Settings of the receiving interface as they are now.
    pub(super) settings: Option<ReceiveSettings>,
}

impl Placement {
    /// Sets what `plan` asks of this end, which is `own` and receives from `peer`; link-local addresses are in the zone of interface number `zone`.
    ///
    /// # Errors
    /// What of it this host cannot have, with what to do.
    pub(super) fn new(
        plan: &DataPlan,
        parameters: &UdpParameters,
        own: IpAddr,
        peer: IpAddr,
        zone: Option<u32>,
    ) -> Result<Self, SessionError> {
        let allowed = allowed();
        if plan.sends {
            all_in(&parameters.affinity.sender_cpus, &allowed)?;
        }
        if !plan.receives {
            return Ok(Self::default());
        }
        let (receiver_cpus, softirq_cpus) = cpus(&parameters.affinity, &allowed)?;
        all_in(&receiver_cpus, &allowed)?;
        let mut bound = Self { receiver_cpus, softirq_cpus, ..Self::default() };
        let interface = || {
            receiving_interface(own, peer, zone)
                .map_err(|error| SessionError::new("interface_unknown", error.to_string(), ""))
        };
        if !bound.softirq_cpus.is_empty() {
            let wanted: Vec<usize> = bound.softirq_cpus.iter().map(|cpu| usize::from(*cpu)).collect();
            let rps = Rps::steer(&interface()?, &wanted);
            bound.rps =
                Some(rps.map_err(|error| {
                    SessionError::new("not_bound", error.to_string(), "leave the softirq where it is")
                })?);
        }
        if !parameters.receive.is_empty() {
            let held = hold(&interface()?, &wanted(&parameters.receive));
            bound._held = Some(held.map_err(|error| {
                SessionError::new("receive_settings", error.to_string(), "leave the setting as it is, or run as root")
            })?);
        }
        // Without knowing it, the test is as good.
        bound.settings = interface().ok().map(|interface| reported(receive_settings(&interface)));
        if parameters.timestamps == Timestamps::Nic {
            let stamps = NicStamps::enable(&interface()?);
            bound._stamps = Some(stamps.map_err(|error| {
                SessionError::new(
                    "no_nic_timestamps",
                    format!("time stamps of the NIC: {error}"),
                    "use those of the kernel",
                )
            })?);
        }
        Ok(bound)
    }

    /// For the result; `None` where nothing was asked for.
    pub(super) fn binding(&self) -> Option<Binding> {
        let numbers = |cpus: &[u16]| cpus.iter().map(|cpu| u32::from(*cpu)).collect::<Vec<_>>();
        (!self.receiver_cpus.is_empty() || self.rps.is_some()).then(|| Binding {
            receiver_cpus: numbers(&self.receiver_cpus),
            softirq_cpus: numbers(&self.softirq_cpus),
            interfaces: self.rps.iter().flat_map(|rps| rps.interfaces().iter().cloned()).collect(),
        })
    }
}

fn wanted(asked: &ReceiveSettings) -> receive_settings::ReceiveSettings {
    let ReceiveSettings { gro, napi_defer_hard_irqs, gro_flush_timeout_ns, ring_packets, coalesce_us, irq_cpus } =
        asked.clone();
    receive_settings::ReceiveSettings {
        gro,
        napi_defer_hard_irqs,
        gro_flush_timeout_ns,
        ring_packets,
        coalesce_us,
        irq_cpus,
    }
}

fn reported(found: receive_settings::ReceiveSettings) -> ReceiveSettings {
    let receive_settings::ReceiveSettings {
        gro,
        napi_defer_hard_irqs,
        gro_flush_timeout_ns,
        ring_packets,
        coalesce_us,
        irq_cpus,
    } = found;
    ReceiveSettings { gro, napi_defer_hard_irqs, gro_flush_timeout_ns, ring_packets, coalesce_us, irq_cpus }
}

/// CPUs of receiver and softirq, among those `allowed`; empty leaves them to the kernel.
fn cpus(affinity: &Affinity, allowed: &[u16]) -> Result<(Vec<u16>, Vec<u16>), SessionError> {
    let Affinity { sender_cpus, receiver_cpus, softirq_cpus, softirq } = affinity.clone();
    let Some(placement) = softirq else { return Ok((receiver_cpus, softirq_cpus)) };
    // The last, as the first does most of a machine's other work. Where both ends are on one machine: not the sender's.
    let free = |taken: &[u16]| allowed.iter().rev().find(|cpu| !taken.contains(cpu)).copied();
    let first = receiver_cpus.first().or(softirq_cpus.first()).copied();
    match placement {
        SoftirqPlacement::Same => {
            let cpu: Vec<u16> = first.or(free(&sender_cpus)).or(free(&[])).into_iter().collect();
            Ok((cpu.clone(), cpu))
        }
        SoftirqPlacement::Split => {
            let other = |own: &[u16]| free(&[own, &sender_cpus].concat()).or(free(own)).into_iter().collect::<Vec<_>>();
            let receiver = if receiver_cpus.is_empty() { other(&softirq_cpus) } else { receiver_cpus };
            let softirq = if softirq_cpus.is_empty() { other(&receiver) } else { softirq_cpus };
            if receiver.is_empty() || softirq.is_empty() {
                let message = format!("split needs two CPUs, and this process may use {allowed:?}");
                return Err(SessionError::new("not_bound", message, "allow it another one (taskset), or use same"));
            }
            Ok((receiver, softirq))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn affinity(
        sender: &[u16],
        receiver: &[u16],
        softirq: &[u16],
        softirq_placement: Option<SoftirqPlacement>,
    ) -> Affinity {
        Affinity {
            sender_cpus: sender.into(),
            receiver_cpus: receiver.into(),
            softirq_cpus: softirq.into(),
            softirq: softirq_placement,
        }
    }

    #[test]
    fn cpus_are_those_asked_for_or_free_ones() {
        let of = |sender: &[u16], receiver: &[u16], softirq: &[u16], bind, allowed: &[u16]| {
            cpus(&affinity(sender, receiver, softirq, bind), allowed).map_err(|error| error.code)
        };
        let (same, split) = (Some(SoftirqPlacement::Same), Some(SoftirqPlacement::Split));
        assert_eq!(of(&[0], &[1], &[], None, &[0, 1]), Ok((vec![1], vec![])));
        assert_eq!(of(&[], &[], &[], same, &[0, 1]), Ok((vec![1], vec![1])));
        assert_eq!(of(&[1], &[], &[], same, &[0, 1]), Ok((vec![0], vec![0])));
        assert_eq!(of(&[], &[0], &[], same, &[0, 1]), Ok((vec![0], vec![0])));
        assert_eq!(of(&[], &[], &[], split, &[0, 1, 2]), Ok((vec![2], vec![1])));
        assert_eq!(of(&[2], &[], &[], split, &[0, 1, 2]), Ok((vec![1], vec![0])));
        // With two CPUs one of them is the sender's as well.
        assert_eq!(of(&[0], &[1], &[], split, &[0, 1]), Ok((vec![1], vec![0])));
        assert_eq!(of(&[], &[], &[1], split, &[0, 1]), Ok((vec![0], vec![1])));
        assert_eq!(of(&[], &[], &[], split, &[3]), Err("not_bound".into()));
    }
}
