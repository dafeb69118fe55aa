//! Where a packet of TCP was dropped, by the reason, the function that freed it, and its direction.
//!
//! Source: `include/net/dropreason-core.h`, `net/ipv4/tcp_input.c`, `net/ipv4/tcp_ipv4.c` of Linux 6.18.

use longhaul_result::TcpLocation;

/// Where a packet of a followed connection was dropped; `None` where that is no loss: what TCP has already, or will have no use for.
///
/// `outgoing`: it went from this host to the other. `reason` is a name as [`ReasonNames`](crate::drops::ReasonNames) has it, `symbol`
/// the function, empty where it is not known.
pub fn tcp_place(reason: &str, symbol: &str, outgoing: bool) -> Option<TcpLocation> {
    if is_no_loss(reason) || is_copy(symbol) {
        return None;
    }
    if outgoing {
        // What TCP itself frees of its queue when a connection ends was not lost on the way.
        return (!is_tcp(symbol)).then_some(TcpLocation::Transmit);
    }
    match reason {
        "PROTO_MEM"
        | "SOCKET_BACKLOG"
        | "SOCKET_RCVBUFF"
        | "TCP_ZEROWINDOW"
        | "TCP_OVERWINDOW"
        | "TCP_OFO_QUEUE_PRUNE"
        | "TCP_OFO_DROP" => Some(TcpLocation::Pruned),
        _ if reason.starts_with("TCP_") && reason != "TCP_CSUM" => None,
        // Without a reason TCP frees what it was done with.
        "NOT_SPECIFIED" | "QUEUE_PURGE" if is_tcp(symbol) => None,
        _ => Some(TcpLocation::Receive),
    }
}

/// Duplicates, acknowledgements without news, segments of ended connections, and packets that an emulator on the same interface has taken.
fn is_no_loss(reason: &str) -> bool {
    matches!(
        reason,
        "TCP_OLD_DATA"
            | "TCP_OFOMERGE"
            | "TCP_OLD_SEQUENCE"
            | "TCP_OLD_ACK"
            | "TCP_TOO_OLD_ACK"
            | "TCP_ACK_UNSENT_DATA"
            | "TCP_RFC7323_PAWS"
            | "TCP_RFC7323_PAWS_ACK"
            | "TCP_CLOSE"
            | "TCP_RESET"
            | "TCP_ABORT_ON_DATA"
            | "SOCKET_CLOSE"
            | "NO_SOCKET"
            | "OTHERHOST"
            | "SKB_CONSUMED"
    )
}

/// Whether what was freed is a copy for a packet socket.
fn is_copy(symbol: &str) -> bool {
    ["packet_", "tpacket_", "raw_rcv", "raw6_", "rawv6_", "raw_local_deliver", "skb_release_data"]
        .iter()
        .any(|prefix| symbol.starts_with(prefix))
}

/// Whether it is a function of TCP, or of sockets that end.
fn is_tcp(symbol: &str) -> bool {
    ["tcp_", "__tcp_", "inet_csk_", "inet_sock_destruct", "sk_stream_", "__sk_", "skb_rbtree_purge"]
        .iter()
        .any(|prefix| symbol.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::TcpLocation::*;
    use super::*;

    #[test]
    fn each_drop_has_its_side() {
        let cases = [
            ("QDISC_DROP", "__dev_queue_xmit", true, Some(Transmit)),
            ("NETFILTER_DROP", "nf_hook_slow", true, Some(Transmit)),
            ("NETFILTER_DROP", "nft_do_chain", false, Some(Receive)),
            ("CPU_BACKLOG", "enqueue_to_backlog", false, Some(Receive)),
            ("NOT_SPECIFIED", "veth_xmit", false, Some(Receive)),
            ("TCP_CSUM", "tcp_v4_rcv", false, Some(Receive)),
            ("TCP_OFO_QUEUE_PRUNE", "tcp_prune_ofo_queue", false, Some(Pruned)),
            ("PROTO_MEM", "tcp_data_queue", false, Some(Pruned)),
            ("TCP_ZEROWINDOW", "tcp_data_queue", false, Some(Pruned)),
            ("SOCKET_BACKLOG", "tcp_add_backlog", false, Some(Pruned)),
            // No losses.
            ("TCP_OLD_DATA", "tcp_data_queue", false, None),
            ("TCP_OLD_ACK", "tcp_rcv_established", false, None),
            ("TCP_INVALID_SEQUENCE", "tcp_validate_incoming", false, None),
            ("NO_SOCKET", "tcp_v4_rcv", false, None),
            ("NOT_SPECIFIED", "tcp_recvmsg_locked", false, None),
            ("NOT_SPECIFIED", "tcp_write_queue_purge", true, None),
            ("SOCKET_RCVBUFF", "packet_rcv", false, None),
            ("OTHERHOST", "ip_rcv_core", false, None),
        ];
        for (reason, symbol, outgoing, expected) in cases {
            assert_eq!(tcp_place(reason, symbol, outgoing), expected, "{reason} @ {symbol} ({outgoing})");
        }
    }
}
