//! Where a test runs: CPUs of its threads, and of the softirq that brings the receiver its packets.
//!
//! The NLR paper's "bound" is `--softirq same`, its "balanced" `--softirq split`: there by interrupt affinity, here by RPS, which also
//! virtual interfaces have.

use std::net::IpAddr;

use longhaul_kernel::link::{LinkError, Netlink};
use longhaul_kernel::rps::Rps;
use longhaul_kernel::schedule::allowed_cpus;
use longhaul_kernel::udp::NicStamps;
use longhaul_session::{DataPlan, SessionError};
use longhaul_terms::{Affinity, SoftirqPlacement};
use longhaul_udp::{Binding, Timestamps, UdpParameters};

/// What was set for the time of a test at the end that receives. Dropping it undoes that.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    pub(crate) receiver_cpus: Vec<u16>,
    softirq_cpus: Vec<u16>,
    rps: Option<Rps>,
    _stamps: Option<NicStamps>,
}

impl Bound {
    /// Does what `plan` asks of this end, which is `own` and receives from `peer`.
    ///
    /// # Errors
    /// What of it cannot be had, with what to do.
    pub(crate) fn new(
        plan: &DataPlan,
        parameters: &UdpParameters,
        own: IpAddr,
        peer: IpAddr,
    ) -> Result<Self, SessionError> {
        let allowed = allowed();
        if plan.sends {
            known(&parameters.affinity.sender_cpus, &allowed)?;
        }
        if !plan.receives {
            return Ok(Self::default());
        }
        let (receiver_cpus, softirq_cpus) = cpus(&parameters.affinity, &allowed)?;
        known(&receiver_cpus, &allowed)?;
        let mut bound = Self { receiver_cpus, softirq_cpus, ..Self::default() };
        let interface = || {
            receiving_interface(own, peer)
                .map_err(|error| SessionError::new("interface_unknown", error.to_string(), ""))
        };
        if !bound.softirq_cpus.is_empty() {
            let wanted: Vec<usize> = bound.softirq_cpus.iter().map(|cpu| usize::from(*cpu)).collect();
            let rps = Rps::steer(&interface()?, &wanted);
            bound.rps = Some(rps.map_err(|error| {
                SessionError::new("not_bound", error.to_string(), "leave out --softirq and the third CPU of -A")
            })?);
        }
        if parameters.timestamps == Timestamps::Nic {
            let stamps = NicStamps::enable(&interface()?);
            bound._stamps = Some(stamps.map_err(|error| {
                SessionError::new("no_nic_timestamps", format!("--timestamps nic: {error}"), "use --timestamps kernel")
            })?);
        }
        Ok(bound)
    }

    /// For the result; `None` where nothing was asked.
    pub(crate) fn said(&self) -> Option<Binding> {
        let numbers = |cpus: &[u16]| cpus.iter().map(|cpu| u32::from(*cpu)).collect::<Vec<_>>();
        (!self.receiver_cpus.is_empty() || self.rps.is_some()).then(|| Binding {
            receiver_cpus: numbers(&self.receiver_cpus),
            softirq_cpus: numbers(&self.softirq_cpus),
            interfaces: self.rps.iter().flat_map(|rps| rps.interfaces().iter().cloned()).collect(),
        })
    }
}

/// CPUs of receiver and softirq, of those `allowed` here; empty leaves it to the kernel.
fn cpus(affinity: &Affinity, allowed: &[u16]) -> Result<(Vec<u16>, Vec<u16>), SessionError> {
    let Affinity { sender_cpus, receiver_cpus, softirq_cpus, softirq } = affinity.clone();
    let Some(placement) = softirq else { return Ok((receiver_cpus, softirq_cpus)) };
    // The last, as the first has most of a machine's other work; and where both ends are on one machine not the sender's.
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
                let message = format!("--softirq split takes two CPUs, this process may use {allowed:?}");
                return Err(SessionError::new(
                    "not_bound",
                    message,
                    "allow it another one (taskset), or --softirq same",
                ));
            }
            Ok((receiver, softirq))
        }
    }
}

/// The CPUs that this process may use.
fn allowed() -> Vec<u16> {
    allowed_cpus().unwrap_or_default().into_iter().filter_map(|cpu| u16::try_from(cpu).ok()).collect()
}

/// That this process may run on `cpus`.
///
/// # Errors
/// The first on which it may not.
pub(crate) fn may_use(cpus: &[u16]) -> Result<(), SessionError> {
    if cpus.is_empty() { Ok(()) } else { known(cpus, &allowed()) }
}

fn known(cpus: &[u16], allowed: &[u16]) -> Result<(), SessionError> {
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => {
            let message = format!("-A {cpu}: this end may use CPUs {allowed:?}");
            Err(SessionError::new("no_such_cpu", message, "choose one of those, or see taskset(1) and cpuset(7)"))
        }
    }
}

/// The interface that packets from `peer` to `own` come in by.
fn receiving_interface(own: IpAddr, peer: IpAddr) -> Result<String, LinkError> {
    let (own, peer) = (own.to_canonical(), peer.to_canonical());
    let mut netlink = Netlink::open()?;
    let addresses = netlink.addresses()?;
    let of = |ip: IpAddr| addresses.iter().find(|address| address.ip == ip).map(|address| address.ifindex);
    match of(own) {
        // Between addresses of one host everything goes over loopback.
        Some(index) if of(peer).is_none() => Ok(netlink.link_by_index(index)?.name),
        _ => Ok("lo".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn affinity(sender: &[u16], receiver: &[u16], softirq: &[u16], bind: Option<SoftirqPlacement>) -> Affinity {
        Affinity {
            sender_cpus: sender.into(),
            receiver_cpus: receiver.into(),
            softirq_cpus: softirq.into(),
            softirq: bind,
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

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        assert_eq!(known(&[0, 1], &[0, 1]), Ok(()));
        assert_eq!(known(&[0, 7], &[0, 1]).unwrap_err().message, "-A 7: this end may use CPUs [0, 1]");
    }
}
