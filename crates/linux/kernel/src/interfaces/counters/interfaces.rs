//! Interfaces and queueing disciplines with their counters, by rtnetlink.
//!
//! Source: `<linux/if_link.h>` (`rtnl_link_stats64`, `IFLA_STATS64`), `<linux/pkt_sched.h>`, `<linux/gen_stats.h>`
//! (`gnet_stats_queue`), rtnetlink(7).

use std::collections::BTreeMap;
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;

use super::attributes::{attribute, text, u32_at, u64_at};
use super::netlink::{NLM_F_DUMP, ask_for};
use super::{Kind, Scope};

const RTM_GETLINK: u16 = 18;
const RTM_GETQDISC: u16 = 38;
/// `struct ifinfomsg`: family, type, index, flags, change.
const IFINFOMSG_BYTES: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_STATS64: u16 = 23;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
/// `XDP_ATTACHED_SKB` and, with a program in the driver as well, `XDP_ATTACHED_MULTI`.
const XDP_GENERIC: [u8; 2] = [2, 4];
/// `struct tcmsg`: family, index, handle, parent, info.
const TCMSG_BYTES: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_H_INGRESS: u32 = 0xffff_fff1;

/// The fields of `rtnl_link_stats64` in their order; older kernels send fewer.
const LINK_STATS: [&str; 25] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "multicast",
    "collisions",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
    "rx_compressed",
    "tx_compressed",
    "rx_nohandler",
    "rx_otherhost_dropped",
];

/// Counters of one interface.
pub(super) type LinkCounters = Vec<(&'static str, u64)>;
/// Counters of one queueing discipline.
pub(super) type QdiscCounters = Vec<(&'static str, Kind, u64)>;

/// What was asked for and is there.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Names by index.
    pub(super) names: BTreeMap<u32, String>,
    /// By name.
    pub(super) links: Vec<(String, LinkCounters)>,
    /// Interfaces with an XDP program in generic mode, whose drops no counter has.
    pub(super) generic_xdp: Vec<String>,
    /// By scope.
    pub(super) qdiscs: Vec<(Scope, QdiscCounters)>,
    /// There are more interfaces or queueing disciplines than were read.
    pub(super) is_cut: bool,
}

/// Reads the counters of the first `most` interfaces that the kernel lists, and of `qdiscs_most` queueing disciplines.
///
/// # Errors
/// What the kernel says.
pub(super) fn read(most: usize, qdiscs_most: usize) -> io::Result<Found> {
    let mut found = Found::default();
    let links = ask_for(NETLINK_ROUTE, RTM_GETLINK, NLM_F_DUMP, &[0; IFINFOMSG_BYTES], most, |_| true)?;
    for body in links.found {
        if let Some((index, name, counters)) = link(&body) {
            found.names.insert(index, name.clone());
            if has_generic_xdp(&body) {
                found.generic_xdp.push(name.clone());
            }
            found.links.push((name, counters));
        }
    }
    let of_these = |body: &[u8]| u32_at(body, 1).is_some_and(|index| found.names.contains_key(&index));
    let qdiscs = ask_for(NETLINK_ROUTE, RTM_GETQDISC, NLM_F_DUMP, &[0; TCMSG_BYTES], qdiscs_most, of_these)?;
    found.qdiscs = qdiscs.found.iter().filter_map(|body| qdisc(body, &found.names)).collect();
    found.is_cut = links.is_cut || qdiscs.is_cut;
    Ok(found)
}

fn link(body: &[u8]) -> Option<(u32, String, LinkCounters)> {
    let index = u32_at(body, 1)?;
    let rest = body.get(IFINFOMSG_BYTES..)?;
    let name = text(attribute(rest, IFLA_IFNAME)?);
    let stats = attribute(rest, IFLA_STATS64)?;
    let counters = LINK_STATS.iter().enumerate().map_while(|(i, name)| Some((*name, u64_at(stats, i)?))).collect();
    Some((index, name, counters))
}

fn has_generic_xdp(body: &[u8]) -> bool {
    let attached =
        || attribute(attribute(body.get(IFINFOMSG_BYTES..)?, IFLA_XDP)?, IFLA_XDP_ATTACHED)?.first().copied();
    attached().is_some_and(|mode| XDP_GENERIC.contains(&mode))
}

fn qdisc(body: &[u8], names: &BTreeMap<u32, String>) -> Option<(Scope, QdiscCounters)> {
    let interface = names.get(&u32_at(body, 1)?)?.clone();
    let (handle, parent) = (u32_at(body, 2)?, u32_at(body, 3)?);
    let rest = body.get(TCMSG_BYTES..)?;
    let kind = text(attribute(rest, TCA_KIND)?);
    let stats = attribute(rest, TCA_STATS2)?;
    let mut counters = Vec::new();
    if let Some(basic) = attribute(stats, TCA_STATS_BASIC) {
        counters.extend(u64_at(basic, 0).map(|bytes| ("bytes", Kind::Counter, bytes)));
        let packets = attribute(stats, TCA_STATS_PKT64).and_then(|all| u64_at(all, 0)).map(|all| (Kind::Counter, all));
        let packets = packets.or_else(|| Some((Kind::Counter32, u32_at(basic, 2)?.into())));
        counters.extend(packets.map(|(kind, all)| ("packets", kind, all)));
    }
    if let Some(queue) = attribute(stats, TCA_STATS_QUEUE) {
        let fields = [
            ("queued_packets", Kind::Level),
            ("backlog_bytes", Kind::Level),
            ("drops", Kind::Counter32),
            ("requeues", Kind::Counter32),
            ("overlimits", Kind::Counter32),
        ];
        let read = |(i, (name, kind)): (usize, (&'static str, Kind))| Some((name, kind, u32_at(queue, i)?.into()));
        counters.extend(fields.into_iter().enumerate().filter_map(read));
    }
    let scope = Scope::Qdisc { interface, kind, parent: parent_name(parent), handle: handle_name(handle) };
    Some((scope, counters))
}

fn handle_name(handle: u32) -> String {
    let (major, minor) = (handle >> 16, handle & 0xffff);
    if minor == 0 { format!("{major:x}:") } else { format!("{major:x}:{minor:x}") }
}

fn parent_name(parent: u32) -> String {
    match parent {
        TC_H_ROOT => "root".into(),
        TC_H_INGRESS => "ingress".into(),
        _ => handle_name(parent),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::attributes::push;
    use super::*;

    fn names() -> BTreeMap<u32, String> {
        BTreeMap::from([(2, "eth0".to_owned())])
    }

    #[test]
    fn no_more_interfaces_are_read_than_asked_for() {
        let none = read(0, 0).unwrap();
        assert!(none.is_cut && none.links.is_empty() && none.names.is_empty(), "{none:?}");
        let all = read(100_000, 100_000).unwrap();
        assert!(!all.is_cut && !all.links.is_empty());
        let one = read(1, 100_000).unwrap();
        assert_eq!((one.links.len(), one.is_cut), (1, all.links.len() > 1));
    }

    #[test]
    fn a_link_of_an_older_kernel_has_fewer_counters() {
        let mut body = vec![0; IFINFOMSG_BYTES];
        body[4..8].copy_from_slice(&2_u32.to_ne_bytes());
        push(&mut body, IFLA_IFNAME, b"eth0\0");
        let stats: Vec<u8> = (1..=24_u64).flat_map(u64::to_ne_bytes).collect();
        push(&mut body, IFLA_STATS64, &stats);
        let (index, name, counters) = link(&body).unwrap();
        assert_eq!((index, name.as_str(), counters.len()), (2, "eth0", 24));
        assert_eq!(counters[15], ("rx_missed_errors", 16));
    }

    #[test]
    fn a_qdisc_says_where_it_sits() {
        let mut body = vec![0; TCMSG_BYTES];
        body[4..8].copy_from_slice(&2_u32.to_ne_bytes());
        body[8..12].copy_from_slice(&0x8001_0000_u32.to_ne_bytes());
        body[12..16].copy_from_slice(&TC_H_ROOT.to_ne_bytes());
        push(&mut body, TCA_KIND, b"tbf\0");
        let mut stats = Vec::new();
        let mut basic = 5000_u64.to_ne_bytes().to_vec();
        basic.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
        push(&mut stats, TCA_STATS_BASIC, &basic);
        let queue: Vec<u8> = [1_u32, 2, 3, 4, 5].iter().flat_map(|n| n.to_ne_bytes()).collect();
        push(&mut stats, TCA_STATS_QUEUE, &queue);
        push(&mut body, TCA_STATS2, &stats);
        let (scope, counters) = qdisc(&body, &names()).unwrap();
        let expected = Scope::Qdisc {
            interface: "eth0".into(),
            kind: "tbf".into(),
            parent: "root".into(),
            handle: "8001:".into(),
        };
        assert_eq!(scope, expected);
        assert!(counters.contains(&("drops", Kind::Counter32, 3)), "{counters:?}");
        assert!(counters.contains(&("bytes", Kind::Counter, 5000)), "{counters:?}");
        assert_eq!(parent_name(0x0001_0010), "1:10");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (link(&bytes), qdisc(&bytes, &names()));
        }
    }
}
