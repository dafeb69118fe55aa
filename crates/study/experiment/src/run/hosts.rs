//! How the hosts of a lab are set for a run. All of it ends with the lab.

use std::process::Command;

use longhaul_kernel::link::Netlink;
use longhaul_kernel::{rps, sysctl};
use longhaul_lab::Lab;
use longhaul_lab::plan::HOST_INTERFACE;
use longhaul_result::Caveat;
use longhaul_terms::SoftirqPlacement;

use super::lab_failed;
use crate::caveats;
use crate::spec::{Faulty, HostSettings, Setting};

/// Sets the hosts as `wanted`, but for what the lab itself was made with (MTU, offloads).
///
/// # Errors
/// The kernel refuses one.
pub(super) fn set(lab: &Lab, wanted: &HostSettings) -> Result<(), Caveat> {
    let switch = |on: bool| if on { "1" } else { "0" };
    for host in lab.hosts() {
        let set = || -> Result<(), String> {
            let parameters = [("net.ipv4.tcp_sack", wanted.sack), ("net.ipv4.tcp_timestamps", wanted.timestamps)];
            for (key, on) in parameters {
                on.map_or(Ok(()), |on| sysctl::write(key, switch(on))).map_err(|error| error.to_string())?;
            }
            if wanted.txqueuelen.is_none() && wanted.qdisc.is_none() {
                return Ok(());
            }
            let mut links = Netlink::open().map_err(|error| error.to_string())?;
            let index = links.index_of(HOST_INTERFACE).map_err(|error| error.to_string())?;
            if let Some(packets) = wanted.txqueuelen {
                links.set_queue_packets(index, packets).map_err(|error| error.to_string())?;
            }
            // After the length, which a queue takes when it is made.
            if let Some(kind) = &wanted.qdisc {
                links.set_root_qdisc(index, kind, 0).map_err(|error| format!("qdisc {kind}: {error}"))?;
            }
            Ok(())
        };
        let done = host.namespace.enter(set).map_err(|error| error.to_string()).and_then(|done| done);
        done.map_err(|error| lab_failed(&format!("{}: {error}", host.plan.name)))?;
    }
    Ok(())
}

/// Has a host drop datagrams that reach it, before anything else in its stack sees them.
///
/// # Errors
/// There is no `nft`, or it refuses.
pub(super) fn make_faulty(lab: &Lab, faulty: &Faulty) -> Result<(), Caveat> {
    let Faulty { host, drops_one_in } = faulty;
    let rules = format!(
        "table inet faulty {{ chain card {{ type filter hook prerouting priority -300; \
         iifname \"{HOST_INTERFACE}\" meta l4proto udp numgen inc mod {drops_one_in} == 0 drop; }}; }}"
    );
    let of_host = lab.host(host).map_err(|error| lab_failed(&error))?;
    let run = || Command::new("nft").arg(rules).output().map_err(|error| error.to_string());
    let output = of_host.namespace.enter(run).map_err(|error| error.to_string()).and_then(|output| output);
    let refused = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error,
    };
    Err(Caveat::new(caveats::LAB_FAILED, format!("{host}: nft: {refused}"), "install nftables"))
}

/// Puts the server's softirq where `wanted` says, for a test of TCP; a test of UDP does so itself. The CPU of the receiver.
///
/// # Errors
/// There is no second CPU, or the kernel refuses.
pub(super) fn place_softirq(lab: &Lab, wanted: &Setting) -> Result<Option<u16>, Caveat> {
    let Some(placement) = wanted.softirq else { return Ok(None) };
    let mut cpus = lab.spec().host_cpus();
    if cpus.is_empty() {
        cpus = longhaul_kernel::schedule::allowed_cpus().unwrap_or_default();
    }
    let (receiver, softirq) = match (placement, cpus.as_slice()) {
        (SoftirqPlacement::Same, [cpu, ..]) => (*cpu, *cpu),
        (SoftirqPlacement::Split, [first, second, ..]) => (*first, *second),
        _ => return Err(lab_failed(&format!("softirq: the hosts have CPUs {cpus:?} alone"))),
    };
    let server = lab.host("server").map_err(|error| lab_failed(&error))?;
    let steer = || rps::steer_for_good(HOST_INTERFACE, &[softirq]).map_err(|error| error.to_string());
    let done = server.namespace.enter(steer).map_err(|error| error.to_string()).and_then(|done| done);
    done.map_err(|error| lab_failed(&format!("softirq: {error}")))?;
    Ok(u16::try_from(receiver).ok())
}

/// What of `settings` all have, in words: of the hosts, and how often the ring is polled.
pub(super) fn shared<'a>(settings: impl Iterator<Item = &'a Setting>) -> (Vec<String>, Option<u64>) {
    let mut words: Option<Vec<String>> = None;
    let mut polled: Option<Option<u64>> = None;
    for setting in settings {
        let mut own = setting.hosts.words();
        own.extend(setting.ipv6.then(|| "IPv6".to_owned()));
        let polled_at = setting.poll_at.words();
        own.extend(setting.faulty.as_ref().map(Faulty::words));
        own.extend((!polled_at.is_empty()).then(|| format!("rings polled{polled_at}")));
        match &mut words {
            None => words = Some(own),
            Some(all) => all.retain(|word| own.contains(word)),
        }
        let interval = setting.poll_interval.map(|interval| interval.0);
        polled = Some(polled.map_or(interval, |other| other.filter(|other| Some(*other) == interval)));
    }
    (words.unwrap_or_default(), polled.flatten())
}
