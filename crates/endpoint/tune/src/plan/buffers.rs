//! Buffers and the window: how much may be in flight.
//!
//! **Why twice the bytes in flight.** A buffer counts what packets take in memory, headers and rounding included, not the payload alone. Of a receive
//! buffer the kernel offers about half as window (`tcp_adv_win_scale`, and since Linux 6.6 the measured ratio of payload to memory). A send buffer grows
//! to twice the congestion window (`tcp_sndbuf_expand` in `net/ipv4/tcp_input.c`), as it holds what is unacknowledged and what is retransmitted. The
//! formula buffer / round trip therefore overstates: `tcp_wmem` of 4 MiB over 80 ms is 419 Mb/s by formula; measured are 250 to 348.

use longhaul_units::Bytes;

use super::{BUFFER_MOST, Draft, MACHINE, NEW_CONNECTIONS, OF_THE_ROUTE, Reason, buffer_bytes};
use crate::caveats;
use crate::place::{DEFAULT, HostSetting, RoutePart};

const IP_SYSCTL: &str = "Documentation/networking/ip-sysctl.rst; ESnet, fasterdata.es.net/host-tuning/linux";
const WHOLE_BUFFERS: &str = "connections that open from then on, of every program in this network namespace: each may take that much where its path \
                             holds it, and a slow reader may";

pub(super) fn plan(draft: &mut Draft<'_>) {
    let role = draft.target.role;
    window_options(draft);
    let (bytes, _) = buffer_bytes(draft.target);
    let mut most_bytes = 0_u64;
    if role.receives() {
        most_bytes = raise_maximum(draft, "net.ipv4.tcp_rmem", "window", bytes);
        allow(draft, "net.core.rmem_max", "SO_RCVBUF", bytes);
        let why =
            "TCP sizes receive buffers by what the path holds; without it each stays at the middle value of tcp_rmem";
        let source = "Documentation/networking/ip-sysctl.rst, tcp_moderate_rcvbuf";
        draft.set_sysctl("net.ipv4.tcp_moderate_rcvbuf", "1", Reason::new(why, source, NEW_CONNECTIONS));
        route_window(draft);
    }
    if role.sends() {
        most_bytes = most_bytes.saturating_add(raise_maximum(draft, "net.ipv4.tcp_wmem", "unacknowledged data", bytes));
        allow(draft, "net.core.wmem_max", "SO_SNDBUF", bytes);
    }
    draft.doubt_cap();
    memory(draft, most_bytes);
}

/// The route to the other end may bound the window, whatever the buffers.
fn route_window(draft: &mut Draft<'_>) {
    let Some(route) = draft.host.route.clone().filter(|route| route.receive_window != DEFAULT) else { return };
    let why = "the route limits the receive window, regardless of the buffers";
    let source = "ip-route(8), window";
    match route.not_kept {
        None => {
            let place = HostSetting::Route { network: route.network, part: RoutePart::ReceiveWindow };
            draft.set(place, route.receive_window, DEFAULT.into(), Reason::new(why, source, OF_THE_ROUTE));
        }
        Some(owner) => draft.by_hand(
            "ip route change ROUTE",
            format!(
                "{why}; ROUTE is the line of `ip route show {}` without window {}; {owner}: put it into the owner's configuration",
                route.network, route.receive_window
            ),
            source,
        ),
    }
}

/// Options of the SYN, which both ends must want.
fn window_options(draft: &mut Draft<'_>) {
    for (key, why, source) in [
        (
            "net.ipv4.tcp_window_scaling",
            "without window scaling at most 64 KiB are in flight, regardless of the buffers",
            "RFC 7323 §2; Documentation/networking/ip-sysctl.rst, tcp_window_scaling",
        ),
        (
            "net.ipv4.tcp_sack",
            "without selective acknowledgement a sender repairs one lost packet per round trip",
            "RFC 2018 §1; RFC 6675; Documentation/networking/ip-sysctl.rst, tcp_sack",
        ),
        (
            "net.ipv4.tcp_timestamps",
            "without time stamps old segments cannot be distinguished from new ones once sequence numbers wrap, at 10 Gb/s each 3.4 s, and the \
             round trip is measured less often",
            "RFC 7323 §3 and §5; Documentation/networking/ip-sysctl.rst, tcp_timestamps",
        ),
    ] {
        // 2: time stamps without a random offset.
        if draft.host.number(key) == Some(0) {
            draft.set_sysctl(key, "1", Reason::new(why, source, NEW_CONNECTIONS));
        } else if let Some(now) = draft.host.sysctls.get(key) {
            draft.set_sysctl(key, &now.clone(), Reason::new(why, source, NEW_CONNECTIONS));
        }
    }
}

/// Raises the last of minimum, default and maximum, and gives what a connection may take of it then.
fn raise_maximum(draft: &mut Draft<'_>, key: &str, what: &str, bytes: u64) -> u64 {
    let Some([least, default, most]) = draft.host.numbers(key).and_then(|numbers| <[u64; 3]>::try_from(numbers).ok())
    else {
        return 0;
    };
    let then = most.max(bytes).min(BUFFER_MOST.max(most));
    let why = format!(
        "{} keeps {} in flight; a buffer holds about half its size as {what}, so it takes twice that",
        draft.path(),
        Bytes(draft.plan.in_flight_bytes).rounded()
    );
    let reason = Reason::new(why, IP_SYSCTL, WHOLE_BUFFERS).taking(then);
    draft.set_sysctl(key, &format!("{least} {default} {then}"), reason);
    then
}

/// Lets programs that size their own buffer ask for as much.
fn allow(draft: &mut Draft<'_>, key: &str, option: &str, bytes: u64) {
    let why = format!(
        "a program that sizes its buffer itself ({option}) gets no more than this, and its buffer stays as it is then"
    );
    let source = "Documentation/admin-guide/sysctl/net.rst; socket(7); ESnet, fasterdata.es.net/host-tuning/linux";
    draft.raise_sysctl(key, bytes, Reason::new(why, source, MACHINE).taking(bytes));
}

/// The share of the machine's memory that TCP may have at most by a plan: 1/4. The kernel's own default is a tenth.
const MEMORY_SHARE: u64 = 4;

/// Looks whether TCP may take what its connections may take.
fn memory(draft: &mut Draft<'_>, connection_bytes: u64) {
    let key = "net.ipv4.tcp_mem";
    let page = draft.host.page_bytes.max(1);
    let Some([low, pressure, most]) = draft.host.numbers(key).and_then(|numbers| <[u64; 3]>::try_from(numbers).ok())
    else {
        return;
    };
    // One connection that reaches the pressure limit by itself has its window reduced. Room for two.
    let wanted = connection_bytes.saturating_mul(2).div_ceil(page);
    let why = format!(
        "TCP reduces windows when all connections together have {}; one may take {}, so this leaves room for two",
        Bytes(pressure.saturating_mul(page)).rounded(),
        Bytes(connection_bytes).rounded()
    );
    let reason = Reason::new(why, "Documentation/networking/ip-sysctl.rst, tcp_mem", MACHINE);
    draft.plan.tcp_memory_bytes = Some(pressure.saturating_mul(page));
    if pressure >= wanted {
        draft.set_sysctl(key, &format!("{low} {pressure} {most}"), reason);
        return;
    }
    // As the kernel has them: 3/4, 1, 3/2 (tcp_init_mem).
    let then = [wanted / 4 * 3, wanted, wanted.saturating_mul(3) / 2];
    let bytes = then[2].saturating_mul(page);
    let allowed = draft.host.memory_bytes.map_or(0, |memory| memory / MEMORY_SHARE);
    if bytes <= allowed {
        let [low, pressure, most] = [then[0].max(low), then[1], then[2].max(most)];
        draft.plan.tcp_memory_bytes = Some(pressure.saturating_mul(page));
        draft.set_sysctl(key, &format!("{low} {pressure} {most}"), reason);
    } else {
        draft.doubt(
            caveats::TCP_MEMORY_SHORT,
            format!(
                "one connection may take {}, TCP as a whole has {} before it reduces windows, and more than a quarter of this machine's memory \
                 would be needed to change that",
                Bytes(connection_bytes).rounded(),
                Bytes(pressure.saturating_mul(page)).rounded()
            ),
            "tune for a lower rate, or give the machine more memory",
        );
    }
}
