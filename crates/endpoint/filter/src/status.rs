//! [`FilterStatus`]: a filter as it is now, what it counted, and the caveats that go with it.

use crate::caveats;
use longhaul_bpf::filter::{
    Cast, Class, Filter, FilterCounters, FilterError, Generations, LocalNetwork, MOST_ADDRESSES, MOST_NETWORKS, Reason,
    SizeRange, Tally, Verdicts, holds,
};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::{Link, LinkError, Netlink};
use longhaul_result::Caveat;
use serde::Serialize;

use crate::obstacle::{forwards_ipv4, forwards_ipv6, obstacles};

/// Why a filter's status could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The filter did not answer.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The kernel did not list its links.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A filter as it is now, and every frame that arrived since it was attached.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FilterStatus {
    /// The interface's name.
    pub interface: String,
    /// The interface's number in its network namespace.
    pub ifindex: u32,
    /// The number of the XDP program in the kernel, as bpftool shows it.
    pub program_id: u32,
    /// Where the program runs: `native` (in the driver) or `generic` (in the stack).
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["native", "generic"])))]
    pub mode: &'static str,
    /// Why the driver does not run it; `None` where the driver does, or where another process attached it.
    pub not_native_because: Option<String>,
    /// It drops rejected frames now; otherwise it only counts them.
    pub enforces: bool,
    /// Nanoseconds until it only counts, unless it is confirmed; `None` where there is no such time.
    pub reverts_in_ns: Option<u64>,
    /// It stays when every process that holds it has ended.
    pub kept: bool,
    /// What it judges besides MAC addresses.
    pub judges: Judges,
    /// It knows the addresses of now; otherwise it passes what it would reject by address.
    pub addresses_current: bool,
    /// What it counted, in tables.
    #[serde(flatten)]
    pub tables: Tables,
    /// What it counted, by number.
    #[serde(skip)]
    pub counters: FilterCounters,
}

/// What a filter judges besides MAC addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Judges {
    /// Destination addresses of IPv4; not where the host forwards IPv4.
    pub ipv4_addresses: bool,
    /// Destination addresses of IPv6; not where the host forwards IPv6.
    pub ipv6_addresses: bool,
    /// The address that an ARP request asks for.
    pub arp: bool,
    /// The address that an IPv6 neighbour solicitation asks for.
    pub solicitations: bool,
    /// Whether a socket listens on the port (--ports listening).
    pub ports: bool,
}

/// All that a filter counted. Each table has every frame once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tables {
    /// All frames.
    pub total: Verdicts,
    /// Rejected frames that it dropped.
    pub dropped_packets: u64,
    /// Samples of rejected frames that nobody read in time.
    pub lost_samples: u64,
    /// By protocol and destination.
    pub protocols: Vec<ProtocolCount>,
    /// All frames to one station.
    pub unicast: Verdicts,
    /// All frames to a group.
    pub multicast: Verdicts,
    /// All frames to all stations.
    pub broadcast: Verdicts,
    /// By length on the wire, FCS included (RFC 2819).
    pub sizes: Vec<SizeCount>,
    /// Accepted frames by reason.
    pub accepted: Vec<ReasonCount>,
    /// Rejected frames by reason.
    pub rejected: Vec<ReasonCount>,
}

/// Frames of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProtocolCount {
    /// Its name.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = Class::ALL.map(Class::name))))]
    pub protocol: &'static str,
    /// Frames to one station.
    pub unicast: Verdicts,
    /// Frames to a group.
    pub multicast: Verdicts,
    /// Frames to all stations.
    pub broadcast: Verdicts,
}

/// Frames of a range of lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeCount {
    /// The shortest length, in bytes.
    pub least_bytes: u32,
    /// The longest length, in bytes; `None` for no bound.
    pub most_bytes: Option<u32>,
    /// Frames of these lengths.
    pub frames: Verdicts,
}

/// Frames that were accepted or rejected for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReasonCount {
    /// The reason; docs/reference/filter.md explains each.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = Reason::ALL.map(Reason::name))))]
    pub reason: &'static str,
    /// Frames with this reason.
    pub frames: Tally,
}

impl Tables {
    fn of(counters: &FilterCounters) -> Self {
        let reasons = |rejects: bool| {
            let these = Reason::ALL.into_iter().filter(|reason| reason.rejects() == rejects);
            these.map(|reason| ReasonCount { reason: reason.name(), frames: counters.reason(reason) }).collect()
        };
        let sizes = SizeRange::ALL.iter().enumerate().map(|(index, range)| SizeCount {
            least_bytes: range.least_bytes,
            most_bytes: range.most_bytes,
            frames: counters.size(index),
        });
        let protocols = Class::ALL.map(|class| ProtocolCount {
            protocol: class.name(),
            unicast: counters.protocol(class, Cast::Unicast),
            multicast: counters.protocol(class, Cast::Multicast),
            broadcast: counters.protocol(class, Cast::Broadcast),
        });
        Self {
            total: counters.total(),
            dropped_packets: counters.dropped_packets,
            lost_samples: counters.lost_samples,
            protocols: protocols.into(),
            unicast: counters.cast(Cast::Unicast),
            multicast: counters.cast(Cast::Multicast),
            broadcast: counters.cast(Cast::Broadcast),
            sizes: sizes.collect(),
            accepted: reasons(false),
            rejected: reasons(true),
        }
    }
}

impl FilterStatus {
    /// Reads the status of `filter` at `link`, with its caveats. `netlink` is of the link's network namespace.
    ///
    /// # Errors
    /// Any [`StatusError`].
    pub fn read(netlink: &mut Netlink, link: &Link, filter: &Filter) -> Result<(Self, Vec<Caveat>), StatusError> {
        let name = &link.name;
        let settings = filter.settings()?;
        let (judgement, told) = filter.followed()?;
        let now = monotonic();
        let kernels = Generations::load()?.now()?;
        let addresses_current = told == kernels;
        let enforces = settings.drops_at(now);
        let counters = filter.counters()?;
        let reverts_in = settings.enforce_until.filter(|until| *until > now).map(|until| until.saturating_sub(now));
        let mut caveats = Vec::new();
        if told.namespace != kernels.namespace {
            caveats.push(Caveat::new(
                caveats::ADDRESSES_OLD,
                "the interface came from another network namespace, whose addresses the filter has: it passes all frames",
                format!("longhaul filter follow {name}"),
            ));
        } else if !addresses_current {
            caveats.push(Caveat::new(
                caveats::ADDRESSES_OLD,
                "addresses or routes changed since the filter got them: it passes frames that may be for a new address",
                format!("longhaul filter follow {name}"),
            ));
        } else {
            caveats.extend(too_many_addresses(netlink, link, filter)?);
        }
        if settings.enforce && !enforces {
            caveats.push(Caveat::new(
                caveats::TIME_IS_OVER,
                "the filter only counts: nobody confirmed it in time",
                format!("longhaul filter attach {name} --enforce"),
            ));
        }
        if counters.lost_samples > 0 {
            caveats.push(Caveat::new(
                caveats::SAMPLES_LOST,
                format!("{} samples were lost: they were read too late", counters.lost_samples),
                "sample fewer: --sample-every",
            ));
        }
        let found = obstacles(netlink, link)?;
        caveats.extend(found.iter().map(|obstacle| obstacle.caveat(name)));
        let status = Self {
            interface: name.clone(),
            ifindex: link.index,
            program_id: filter.program_id(),
            mode: filter.mode().name(),
            not_native_because: filter.not_native().map(str::to_owned),
            enforces,
            reverts_in_ns: reverts_in.map(|time| time.0),
            kept: filter.is_kept(),
            judges: Judges {
                ipv4_addresses: judgement.ipv4,
                ipv6_addresses: judgement.ipv6,
                arp: judgement.arp,
                solicitations: judgement.solicitations,
                ports: settings.judge_ports,
            },
            addresses_current,
            tables: Tables::of(&counters),
            counters,
        };
        Ok((status, caveats))
    }
}

/// A caveat for each family that `filter` does not judge because the host at `link` has too many addresses of it. `netlink` is of the link's
/// network namespace.
///
/// # Errors
/// Any [`StatusError`].
pub fn too_many_addresses(netlink: &mut Netlink, link: &Link, filter: &Filter) -> Result<Vec<Caveat>, StatusError> {
    let (judgement, _) = filter.followed()?;
    let ipv4 = !judgement.ipv4 && !forwards_ipv4(&link.name);
    let ipv6 = !judgement.ipv6 && !forwards_ipv6(&link.name);
    let local = if ipv4 || ipv6 { netlink.local_networks()? } else { Vec::new() };
    Ok([(ipv4, true), (ipv6, false)]
        .into_iter()
        .filter_map(|(asked, is_ipv4)| too_many(&local, is_ipv4).filter(|_| asked))
        .collect())
}

fn too_many(local: &[LocalNetwork], is_ipv4: bool) -> Option<Caveat> {
    let (family, asks) = if is_ipv4 { ("IPv4", "ARP") } else { ("IPv6", "neighbour solicitations") };
    (!holds(local, is_ipv4)).then(|| {
        Caveat::new(
            caveats::TOO_MANY_ADDRESSES,
            format!(
                "the host has more than {MOST_ADDRESSES} local addresses of {family}, or more than {MOST_NETWORKS} local networks: the filter \
                 passes {family} and {asks} for all addresses"
            ),
            "replace addresses by local routes to networks, or these by wider ones",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_with_too_many_networks_is_told() {
        let local: Vec<LocalNetwork> =
            (0..=MOST_NETWORKS as u32).map(|n| ((n << 8).to_be_bytes().into(), 24)).collect();
        let caveat = too_many(&local, true).unwrap();
        assert!(caveat.is(caveats::TOO_MANY_ADDRESSES) && caveat.message.contains("passes IPv4 and ARP"), "{caveat:?}");
        assert_eq!(too_many(&local, false), None);
        assert_eq!(too_many(&local[1..], true), None);
    }
}
