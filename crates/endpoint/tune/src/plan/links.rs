//! Interfaces: offloads, rings, queues and backlogs.

use longhaul_units::{BitRate, Nanos};

use super::{Draft, MACHINE, Reason};
use crate::place::HostSetting;

/// Features that let several wire packets pass the stack as one, and whether the sender or the receiver needs them.
const OFFLOADS: [(&str, bool, &str); 4] = [
    ("rx-gro", false, "each received packet passes the stack by itself"),
    ("tx-generic-segmentation", true, "each sent packet passes the stack by itself"),
    ("tx-tcp-segmentation", true, "the CPU cuts IPv4 segments that the NIC could cut"),
    ("tx-tcp6-segmentation", true, "the CPU cuts IPv6 segments that the NIC could cut"),
];

/// Turns on what is off.
pub(super) fn plan_offloads(draft: &mut Draft<'_>) {
    let role = draft.target.role;
    for link in &draft.host.links {
        for (feature, sends, costs) in OFFLOADS {
            let Some(on) = link.features.get(feature).filter(|_| if sends { role.sends() } else { role.receives() })
            else {
                continue;
            };
            let place = HostSetting::Feature { link: link.name.clone(), feature: feature.into() };
            let reason = Reason::new(
                format!("while it is off, {costs}"),
                "Documentation/networking/segmentation-offloads.rst; ethtool(8)",
                "all traffic of this interface; captures show super-packets",
            );
            draft.set(place, if *on { "on" } else { "off" }.into(), "on".into(), reason);
        }
    }
}

/// How long a CPU may be away from a backlog: one scheduling tick at 100 Hz.
const PAUSE: Nanos = Nanos::from_millis(10);
/// The payload and headers of a full packet on Ethernet.
const PACKET_BYTES: u64 = 1500;
/// What `txqueuelen` should be at least where it is a queue: ESnet's value for hosts with fast NICs.
const QUEUE_PACKETS: u32 = 10_000;

/// Longer rings and queues where a diagnosis saw them drop packets.
pub(super) fn plan_queues(draft: &mut Draft<'_>) {
    let rate = BitRate(draft.target.rate_bps);
    if draft.target.loses_at("receiver_backlog") {
        let packets = (rate.bytes_in(PAUSE) / PACKET_BYTES).clamp(1000, 1 << 20).next_power_of_two();
        let why = format!(
            "packets were dropped at the CPU's backlog; at {rate} it takes this many to wait {PAUSE} for the CPU"
        );
        let source =
            "Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog; Documentation/networking/scaling.rst";
        draft.raise_sysctl("net.core.netdev_max_backlog", packets, Reason::new(why, source, MACHINE));
    }
    for link in &draft.host.links {
        let name = &link.name;
        for (receive, ring, place, part) in
            [(true, link.receive_ring, "receiver_ring", "rx"), (false, link.transmit_ring, "sender_device", "tx")]
        {
            let Some((now, most)) = ring.filter(|(now, most)| now < most) else { continue };
            if draft.target.loses_at(place) {
                let reason = Reason::new(
                    "packets were dropped because it was full",
                    "ethtool(8), -G; ESnet, fasterdata.es.net/host-tuning/linux",
                    "all traffic of this interface; many drivers stop the link for some seconds",
                );
                let ring = HostSetting::Ring { link: name.clone(), receive };
                draft.set(ring, now.to_string(), most.to_string(), reason);
            } else if draft.target.causes.is_none() && (receive && draft.target.role.receives()) {
                draft.by_hand(
                    format!("ethtool -G {name} {part} {most}"),
                    format!(
                        "the ring holds {now} packets of {most}; it matters where `longhaul udp` sees losses at {place}, and many drivers stop the \
                         link for some seconds"
                    ),
                    "ethtool(8), -G",
                );
            }
        }
        if draft.target.loses_at("sender_qdisc") {
            let kind = link.root_qdisc.as_ref().map_or("", |(kind, _)| kind.as_str());
            // The others have a limit of their own.
            match link.queue_packets.filter(|_| ["pfifo_fast", "pfifo", "mq"].contains(&kind)) {
                Some(now) => {
                    let reason = Reason::new(
                        "packets were dropped at the interface's queue",
                        "ip-link(8), txqueuelen; ESnet, fasterdata.es.net/host-tuning/linux",
                        "all that this interface sends, after its queue is created again; a longer queue delays others",
                    );
                    let then = now.max(QUEUE_PACKETS).to_string();
                    draft.set(HostSetting::QueueLength { link: name.clone() }, now.to_string(), then, reason);
                }
                None if kind != "noqueue" => draft.by_hand(
                    format!("tc -s qdisc show dev {name}"),
                    format!(
                        "packets were dropped at the queue of {name}, {kind}, whose limit is its own: see tc-{kind}(8)"
                    ),
                    "tc(8)",
                ),
                None => {}
            }
        }
    }
}
