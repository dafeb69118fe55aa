//! Where a packet was dropped, by the reason, the function that freed it, and the owner of the namespace.
//!
//! Source: the drops themselves on Linux 6.18 (this crate's tests provoke each), `include/net/dropreason-core.h`, and the callers
//! of `kfree_skb_reason` in `net/`. Reason and function are compared by name: numbers and addresses differ between kernels.
//!
//! What is not a loss has no place, although it is a drop: a copy for a packet socket or a raw socket, and a packet for somebody
//! else's MAC address that a bridge or an emulator takes on at the same time.

use longhaul_result::Location;

/// Whose network namespace a drop was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostRole {
    /// That of the test's sender.
    Sender,
    /// That of its receiver.
    Receiver,
    /// Somebody's in between on this machine: an emulator, a bridge, a router.
    Other,
}

/// Where a packet was dropped. `None` where that is not known, and where it is no loss.
///
/// `reason` is a name as [`ReasonNames`](super::ReasonNames) has it, `symbol` the function in which
/// [`DropEvent::location`](super::DropEvent::location) lies, empty if not known.
pub fn place(reason: &str, symbol: &str, role: HostRole) -> Option<Location> {
    if is_copy(symbol) {
        // An emulator's own packet socket is the network; a sniffer's on a host is nothing.
        let full = matches!(reason, "SOCKET_RCVBUFF" | "PACKET_SOCK_ERROR") && role == HostRole::Other;
        return full.then_some(Location::Network);
    }
    if is_remains(reason, symbol) {
        return None;
    }
    if is_closed_socket(symbol) {
        return Some(Location::ReceiverApplication);
    }
    match role {
        HostRole::Other => on_the_way(reason, symbol),
        HostRole::Sender => on_sending(reason, symbol),
        HostRole::Receiver => on_receiving(reason, symbol),
    }
}

/// Whether what was freed is not the packet itself: a copy for a packet or raw socket, or a part of a super-packet that is
/// told of as a whole.
fn is_copy(symbol: &str) -> bool {
    let copies = ["packet_", "tpacket_", "raw_rcv", "raw6_", "rawv6_", "raw_local_deliver", "skb_release_data"];
    copies.iter().any(|prefix| symbol.starts_with(prefix))
}

/// Whether the freed fragments are only the rest of a datagram that lost a fragment elsewhere: fragments that waited for it in vain, later
/// fragments of a datagram whose first one the queue refused, and a duplicate fragment.
fn is_remains(reason: &str, symbol: &str) -> bool {
    matches!(reason, "FRAG_REASM_TIMEOUT" | "DUP_FRAG")
        || reason == "NOT_SPECIFIED" && matches!(symbol, "ip_do_fragment" | "ip6_fragment" | "inet_frag_rbtree_purge")
}

/// Whether the packet lay in the queue of a UDP socket that was closed, by the program or by its end. Whose namespace that was
/// is not known: UDP gives sockets back after an RCU grace period, when any task may run.
fn is_closed_socket(symbol: &str) -> bool {
    ["udp_destruct_common", "udp_destruct_sock", "udpv6_destruct_sock", "inet_sock_destruct"].contains(&symbol)
}

fn on_the_way(reason: &str, symbol: &str) -> Option<Location> {
    match reason {
        // A port without an address of its own: its packet socket has taken the frame already.
        "OTHERHOST" | "UNHANDLED_PROTO" => None,
        // A forwarder's own socket is no part of the way.
        _ if is_udp_socket(symbol) => None,
        _ => Some(Location::Network),
    }
}

fn on_sending(reason: &str, symbol: &str) -> Option<Location> {
    Some(match reason {
        _ if reason.starts_with("QDISC_") || reason.starts_with("FQ_") => Location::SenderQdisc,
        "CAKE_FLOOD" | "DUALPI2_STEP_DROP" | "TC_EGRESS" | "TC_CHAIN_NOTFOUND" | "TC_RECLASSIFY_LOOP"
        | "TC_COOKIE_ERROR" => Location::SenderQdisc,
        _ if reason.starts_with("NEIGH_") || reason.starts_with("IP_") || reason.starts_with("IPV6") => {
            Location::SenderStack
        }
        "NETFILTER_DROP" | "BPF_CGROUP_EGRESS" | "XFRM_POLICY" | "SECURITY_HOOK" | "PKT_TOO_BIG"
        | "RECURSION_LIMIT" => Location::SenderStack,
        "DEV_HDR" | "DEV_READY" | "FULL_RING" | "SKB_GSO_SEG" | "SKB_CSUM" | "TAP_FILTER" | "TAP_TXFILTER"
        | "NO_TX_TARGET" => Location::SenderDevice,
        "SKB_UCOPY_FAULT" => Location::SenderSocket,
        // The rest has no reason of its own.
        _ => match symbol {
            "__ip_append_data"
            | "__ip6_append_data"
            | "__ip_flush_pending_frames"
            | "__ip6_flush_pending_frames"
            | "sock_alloc_send_pskb" => Location::SenderSocket,
            // The program is told, and sends once more or gives up: what cannot be cut into packets.
            "udp_send_skb" | "udp_v6_send_skb" => return None,
            _ if symbol.starts_with("udp_send") || symbol.starts_with("udp_v6_send") => Location::SenderSocket,
            _ if ["ip_", "ip6_", "__ip_", "neigh_", "arp_", "ndisc_", "nf_", "dst_", "xfrm"]
                .iter()
                .any(|prefix| symbol.starts_with(prefix)) =>
            {
                Location::SenderStack
            }
            // Between the queueing discipline and the wire; the driver's own functions have any name.
            "__dev_queue_xmit"
            | "dev_hard_start_xmit"
            | "validate_xmit_skb"
            | "validate_xmit_skb_list"
            | "sch_direct_xmit"
            | "__dev_direct_xmit" => Location::SenderDevice,
            _ if symbol.ends_with("_xmit") || symbol.contains("_xmit_") || symbol.ends_with("_start_xmit") => {
                Location::SenderDevice
            }
            _ if symbol.contains("qdisc") || symbol.ends_with("_enqueue") => Location::SenderQdisc,
            _ => return None,
        },
    })
}

fn on_receiving(reason: &str, symbol: &str) -> Option<Location> {
    Some(match reason {
        "SOCKET_RCVBUFF" | "PROTO_MEM" | "SOCKET_BACKLOG" => Location::ReceiverSocketBuffer,
        "SOCKET_CLOSE" => Location::ReceiverApplication,
        "CPU_BACKLOG" => Location::ReceiverBacklog,
        "NETFILTER_DROP" | "XDP" | "TC_INGRESS" | "SOCKET_FILTER" | "SECURITY_HOOK" | "XFRM_POLICY"
        | "TC_CHAIN_NOTFOUND" | "TC_RECLASSIFY_LOOP" | "TC_COOKIE_ERROR" => Location::ReceiverFilter,
        "FULL_RING" => Location::ReceiverRing,
        "NOT_SPECIFIED" | "QUEUE_PURGE" | "NOMEM" | "PFMEMALLOC" => match symbol {
            "veth_xmit" | "veth_forward_skb" => Location::ReceiverRing,
            // veth_xdp_rcv_one drops frames that were redirected: no skb, no event.
            "veth_xdp_rcv_skb" | "do_xdp_generic" | "netif_receive_generic_xdp" => Location::ReceiverFilter,
            _ if symbol.starts_with("enqueue_to_backlog") || symbol == "netif_rx_internal" => Location::ReceiverBacklog,
            _ if symbol.starts_with("ip_") || symbol.starts_with("ip6_") || symbol.starts_with("ipv6_") => {
                Location::ReceiverStack
            }
            _ if is_udp_socket(symbol) => Location::ReceiverStack,
            _ if symbol.contains("netif_receive_skb") => Location::ReceiverStack,
            _ => return None,
        },
        // Checksums, no socket, wrong MAC address, routes, headers: what else the stack says of a packet that came in.
        _ => Location::ReceiverStack,
    })
}

/// Whether it is a function of UDP's receiving side.
fn is_udp_socket(symbol: &str) -> bool {
    [
        "udp_",
        "__udp_",
        "udpv6_",
        "__udpv6_",
        "udp4_",
        "__udp4_",
        "udp6_",
        "__udp6_",
        "first_packet_length",
        "__first_packet_length",
    ]
    .iter()
    .any(|prefix| symbol.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::HostRole::*;
    use super::Location::*;
    use super::*;

    #[test]
    fn each_drop_has_its_place() {
        let cases = [
            // What the kernel tests of this crate provoke.
            ("SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", Receiver, Some(ReceiverSocketBuffer)),
            ("SOCKET_RCVBUFF", "udpv6_queue_rcv_one_skb", Receiver, Some(ReceiverSocketBuffer)),
            ("NETFILTER_DROP", "nft_do_chain", Sender, Some(SenderStack)),
            ("NETFILTER_DROP", "nft_do_chain", Receiver, Some(ReceiverFilter)),
            ("NEIGH_QUEUEFULL", "__neigh_event_send", Sender, Some(SenderStack)),
            ("NEIGH_FAILED", "neigh_invalidate", Sender, Some(SenderStack)),
            ("QDISC_DROP", "__dev_queue_xmit", Sender, Some(SenderQdisc)),
            ("CPU_BACKLOG", "enqueue_to_backlog", Receiver, Some(ReceiverBacklog)),
            ("NOT_SPECIFIED", "veth_xmit", Receiver, Some(ReceiverRing)),
            ("NOT_SPECIFIED", "veth_xdp_rcv_skb", Receiver, Some(ReceiverFilter)),
            ("NOT_SPECIFIED", "do_xdp_generic", Receiver, Some(ReceiverFilter)),
            ("TC_INGRESS", "__netif_receive_skb_core", Receiver, Some(ReceiverFilter)),
            ("UDP_CSUM", "__udp4_lib_rcv", Receiver, Some(ReceiverStack)),
            ("UDP_CSUM", "udp_recvmsg", Receiver, Some(ReceiverStack)),
            ("NO_SOCKET", "__udp4_lib_rcv", Receiver, Some(ReceiverStack)),
            ("NOT_SPECIFIED", "udp_destruct_common", Receiver, Some(ReceiverApplication)),
            ("NOT_SPECIFIED", "udp_destruct_common", Other, Some(ReceiverApplication)),
            // Traps.
            ("OTHERHOST", "ip_rcv_core", Other, None),
            ("OTHERHOST", "ip_rcv_core", Receiver, Some(ReceiverStack)),
            ("SOCKET_RCVBUFF", "packet_rcv", Receiver, None),
            ("PACKET_SOCK_ERROR", "tpacket_rcv", Sender, None),
            ("PACKET_SOCK_ERROR", "tpacket_rcv", Other, Some(Network)),
            ("SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", Other, None),
            ("NOT_SPECIFIED", "skb_release_data", Receiver, None),
            ("QDISC_DROP", "__dev_queue_xmit", Other, Some(Network)),
            ("NETFILTER_DROP", "nf_hook_slow", Other, Some(Network)),
            ("NOT_SPECIFIED", "ip_forward", Other, Some(Network)),
            // One fragment of a datagram missed, and what became of the others.
            ("FRAG_REASM_TIMEOUT", "inet_frag_rbtree_purge", Receiver, None),
            ("FRAG_TOO_FAR", "inet_frag_rbtree_purge", Receiver, Some(ReceiverStack)),
            ("DUP_FRAG", "ip_defrag", Receiver, None),
            ("NOT_SPECIFIED", "ip_do_fragment", Sender, None),
            ("NOT_SPECIFIED", "ip6_fragment", Sender, None),
            ("NOT_SPECIFIED", "ip_defrag", Receiver, Some(ReceiverStack)),
            // Not provoked here.
            ("FQ_FLOW_LIMIT", "__dev_queue_xmit", Sender, Some(SenderQdisc)),
            ("IP_OUTNOROUTES", "ip_output", Sender, Some(SenderStack)),
            ("DEV_READY", "__dev_queue_xmit", Sender, Some(SenderDevice)),
            ("NOT_SPECIFIED", "ixgbe_xmit_frame_ring", Sender, Some(SenderDevice)),
            ("NOT_SPECIFIED", "udp_sendmsg", Sender, Some(SenderSocket)),
            ("NOT_SPECIFIED", "udp_send_skb", Sender, None),
            ("IP_CSUM", "ip_rcv_core", Receiver, Some(ReceiverStack)),
            ("SOCKET_FILTER", "udp_queue_rcv_one_skb", Receiver, Some(ReceiverFilter)),
            // Without symbols the reason alone may do.
            ("SOCKET_RCVBUFF", "", Receiver, Some(ReceiverSocketBuffer)),
            ("NOT_SPECIFIED", "", Receiver, None),
        ];
        for (reason, symbol, role, expected) in cases {
            assert_eq!(place(reason, symbol, role), expected, "{reason} @ {symbol} ({role:?})");
        }
    }
}
