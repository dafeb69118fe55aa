//! What the sender does: congestion control, pacing, starting, MTU.

use longhaul_units::BitRate;

use super::{Draft, NEW_CONNECTIONS, OF_THE_ROUTE, Reason};
use crate::host::RouteState;
use crate::place::{HostSetting, RoutePart};

/// Controls that bear random loss: the kernel's BBR, and longhaul's.
const BEARS_LOSS: [&str; 3] = ["bbr", "bbr3", "lh_bbr3"];

pub(super) fn plan(draft: &mut Draft<'_>) {
    if !draft.target.role.sends() {
        return;
    }
    let by_host = !draft.target.is_bound_by_network();
    if by_host && draft.target.may_be(&["slow_start", "sender_application", "application_window"]) {
        let why = "a connection that sent nothing for a timeout begins with a small window again: over a long path that costs many round trips";
        let source = "RFC 5681 §4.1, RFC 7661 §1; Documentation/networking/ip-sysctl.rst, tcp_slow_start_after_idle";
        let touches = "connections of every program in this network namespace; after a pause they send a burst into what may have filled meanwhile";
        draft.set_sysctl("net.ipv4.tcp_slow_start_after_idle", "0", Reason::new(why, source, touches));
    }
    if by_host && draft.target.may_be(&["slow_start", "loss", "congestion_control"]) {
        let why =
            "a connection to the same host otherwise begins with the slow-start threshold that an earlier loss left";
        let source =
            "Documentation/networking/ip-sysctl.rst, tcp_no_metrics_save; ESnet, fasterdata.es.net/host-tuning/linux";
        draft.set_sysctl("net.ipv4.tcp_no_metrics_save", "1", Reason::new(why, source, NEW_CONNECTIONS));
    }
    if draft.target.names(&["mtu_black_hole"]) && draft.host.number("net.ipv4.tcp_mtu_probing") == Some(0) {
        let why = "the path drops large packets and does not say so: TCP finds the size that passes by probing";
        let source = "RFC 4821 §4, RFC 2923 §2.1; Documentation/networking/ip-sysctl.rst, tcp_mtu_probing";
        draft.set_sysctl("net.ipv4.tcp_mtu_probing", "1", Reason::new(why, source, NEW_CONNECTIONS));
    }
    let control = congestion_control(draft);
    if control.is_some() || draft.target.may_be(&["loss", "policer", "queue", "congestion_control"]) {
        pacing(draft);
    }
    advice(draft);
}

/// A control that bears loss, where loss in the network or the control itself is a cause. Gives the one that connections will have.
fn congestion_control(draft: &mut Draft<'_>) -> Option<&'static str> {
    let key = "net.ipv4.tcp_congestion_control";
    let now = draft.host.sysctls.get(key)?.clone();
    if !draft.target.names(&["congestion_control"]) && !draft.target.loses_in_network() {
        return None;
    }
    let available = draft.host.sysctls.get("net.ipv4.tcp_available_congestion_control").cloned().unwrap_or_default();
    let is_there =
        |name: &str| available.split(' ').any(|one| one == name) || draft.host.loadable_controls.contains(name);
    let why = "a loss-based control halves its rate, or nearly so, at each loss event, and the rate that it holds falls with the round trip; this \
               one follows the rate that is delivered";
    let source = "RFC 9438 §5.1; RFC 3649 §2; Cardwell et al., draft-ietf-ccwg-bbr";
    let touches = "connections that open from then on, of every program in this network namespace; beside loss-based flows it may take more than \
                   its share";
    if let Some(same) = BEARS_LOSS.into_iter().find(|name| *name == now) {
        draft.set_sysctl(key, same, Reason::new(why, source, touches));
        return Some(same);
    }
    if let Some(better) = BEARS_LOSS.into_iter().find(|name| is_there(name)) {
        match kept_route(draft) {
            Some(RouteState { network, congestion_control: now, .. }) => {
                let place = HostSetting::Route { network, part: RoutePart::CongestionControl };
                let source = format!("{source}; ip-route(8), congctl");
                draft.set(place, now, better.into(), Reason::new(why, &source, OF_THE_ROUTE));
            }
            None => draft.set_sysctl(key, better, Reason::new(why, source, touches)),
        }
        return Some(better);
    }
    draft.by_hand(
        "longhaul cc use bbr3 -- COMMAND",
        "loss limits the rate, and this kernel has no congestion control that bears it; longhaul brings one, for one program \
         (or for all: longhaul cc load bbr3, then this plan again)",
        "draft-ietf-ccwg-bbr; longhaul cc list",
    );
    None
}

/// `fq` for new interfaces, and at the roots where the kernel attached the default. A kernel without it has TCP pace by itself.
fn pacing(draft: &mut Draft<'_>) {
    let why = "paces each flow and shares between flows: fewer bursts into short queues of the path";
    let source =
        "tc-fq(8); Documentation/admin-guide/sysctl/net.rst, default_qdisc; ESnet, fasterdata.es.net/host-tuning/linux";
    let touches = "interfaces that come up from then on, on the whole machine";
    if !draft.host.has_fq {
        return;
    }
    draft.set_sysctl("net.core.default_qdisc", "fq", Reason::new(why, source, touches));
    for link in &draft.host.links {
        let Some((kind, major)) = &link.root_qdisc else { continue };
        let place = HostSetting::RootQdisc { link: link.name.clone() };
        let is_several = link.transmit_queues > 1;
        match (kind.as_str(), *major) {
            // Of memory alone: a veth, a bridge. TCP paces by itself there.
            ("noqueue", _) => {}
            // They would go with it, and could not be rebuilt.
            (kind, 0) if link.qdisc_has_children => draft.by_hand(
                format!("tc qdisc show dev {}", link.name),
                format!(
                    "somebody put queueing disciplines below {kind} of {}: they could not be rebuilt, so it stays; where they do not pace, TCP does \
                     so itself",
                    link.name
                ),
                "tc-fq(8), tc-mq(8)",
            ),
            // Its queues have the default kind, which was fq before.
            ("mq", 0) if draft.host.sysctls.get("net.core.default_qdisc").is_some_and(|kind| kind == "fq") => {
                draft.set(place, kind.clone(), kind.clone(), Reason::new(why, source, touches));
            }
            ("fq", _) => draft.set(place, "fq".into(), "fq".into(), Reason::new(why, source, touches)),
            (_, 0) => {
                let then = if is_several { "mq of fq" } else { "fq" };
                let touches = "all that this interface sends; packets that wait in the present queue are dropped";
                draft.set(place, kind.clone(), then.into(), Reason::new(why, source, touches));
            }
            // mq holds one for each queue, and may hold fq already.
            (kind, major) => draft.by_hand(
                format!("tc qdisc show dev {}", link.name),
                format!(
                    "somebody put {kind} {major:x}: at the root of {}: its settings could not be rebuilt, so it stays; where it does not pace, \
                     TCP does so itself",
                    link.name
                ),
                "tc-fq(8)",
            ),
        }
    }
}

/// A first window of three times the usual one: what CDNs send at once (RFC 6928 §2 has 10; ESnet's hosts and others use 20 to 40).
const FIRST_WINDOW: u32 = 32;

/// The route to the other end, where its owner keeps what is set there.
fn kept_route(draft: &Draft<'_>) -> Option<RouteState> {
    draft.host.route.clone().filter(|route| route.not_kept.is_none())
}

/// A larger first window for short transfers, at the route to the other end.
fn first_window(draft: &mut Draft<'_>) {
    let source = "RFC 6928 §2 (10 is the default); ip-route(8), initcwnd";
    let why = "a short transfer ends before its window has grown";
    if let Some(RouteState { network, first_window: now, .. }) = kept_route(draft) {
        let enough = now.parse().is_ok_and(|packets: u32| packets >= FIRST_WINDOW);
        let then = if enough { now.clone() } else { FIRST_WINDOW.to_string() };
        let place = HostSetting::Route { network, part: RoutePart::FirstWindow };
        return draft.set(place, now, then, Reason::new(why, source, OF_THE_ROUTE));
    }
    let owner = match &draft.host.route {
        Some(RouteState { network, not_kept: Some(owner), .. }) => format!("the route is that to {network}; {owner}"),
        _ => "ROUTE is the line of `ip route get HOST` up to `src` (or name the other end with --to). Whatever created the route may later \
              recreate it without this option"
            .to_owned(),
    };
    draft.by_hand(
        format!("ip route change ROUTE initcwnd {FIRST_WINDOW}"),
        format!("{why}; {owner}: put it into the owner's configuration"),
        source,
    );
}

/// What is said and not done.
fn advice(draft: &mut Draft<'_>) {
    if draft.target.names(&["slow_start"]) {
        first_window(draft);
    }
    let slower = draft
        .target
        .own_causes()
        .filter(|cause| ["policer", "shaper", "link", "queue"].contains(&cause.code.as_str()) && cause.is_of_network())
        .filter_map(|cause| cause.bound_bps)
        .min();
    if let Some(bps) = slower {
        // A policer counts headers, longhaul's bound payload: 5 % are IP, TCP and Ethernet at 1500 bytes, and a margin of about one.
        let rate = BitRate(bps / 100 * 95);
        draft.by_hand(
            format!("longhaul pace {rate} -- COMMAND"),
            "the path carries less than this host sends at once: a sender that paces below that rate loses nothing to bursts",
            "SO_MAX_PACING_RATE, socket(7); Aggarwal, Savage, Anderson, Understanding the Performance of TCP Pacing, 2000",
        );
    }
    if draft.target.names(&["reordering"]) && draft.host.number("net.ipv4.tcp_recovery") == Some(0) {
        let why = "where packets are reordered, deciding by time and not by a count of packets causes fewer false retransmissions";
        draft.set_sysctl(
            "net.ipv4.tcp_recovery",
            "1",
            Reason::new(why, "RFC 8985 §3; Documentation/networking/ip-sysctl.rst, tcp_recovery", NEW_CONNECTIONS),
        );
    }
}
