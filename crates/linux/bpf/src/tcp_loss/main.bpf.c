// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sums up the packets of some TCP connections that the kernel drops, by reason and function (tracepoint skb:kfree_skb), and their
 * retransmissions (tcp:tcp_retransmit_skb). Sums are enough: TCP itself says what was lost, and these sums say where.
 *
 * As in drops/main.bpf.c the program finds all fields from the network header, which is valid wherever an skb may be dropped. In TCP's
 * queues a tree node occupies an skb's `dev`. So the namespace is that of the receiving socket, else of the packet's socket, else of
 * the device, else of the current task. A packet socket is none of these: what an emulator sends is, in the ring of a veth, with the host
 * whose device it has.
 *
 * Not here: IPv6 extension headers, tunnels, 802.1Q tags in the data.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "tcp_loss/intf.h"

#define IPPROTO_TCP 6
#define AF_INET 2
#define AF_PACKET 17
#define IPV4_HEADER 20
#define IPV6_HEADER 40
#define TCP_HEADER 20
#define MAC_HEADER_UNSET 0xffff
#define ETHERNET_HEADER 14

/* kfree_skb tells the receiving socket (Linux 6.11 on). */
const volatile bool has_receiving_socket;

/* Drops for which there was no room, as there are too many kinds. */
__u64 lost_drops = 0;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr___tcp {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common___tcp {
	unsigned short skc_family;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	struct in6_addr___tcp skc_v6_daddr;
	struct in6_addr___tcp skc_v6_rcv_saddr;
};

struct sock___tcp {
	struct sock_common___tcp __sk_common;
};

struct tcp_sock___tcp {
	__u16 tcp_header_len;
	__u32 mss_cache;
};

#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * MAX_CONNECTIONS);
	__type(key, struct tuple);
	__type(value, __u32); /* the connection's number, twice, and 1 for packets from here */
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_KINDS);
	__type(key, struct kind);
	__type(value, struct sum);
} drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_CONNECTIONS);
	__type(key, __u32);
	__type(value, struct again);
} retransmitted SEC(".maps");

static __always_inline void map_ipv4(__u32 *words, __u32 address)
{
	words[0] = 0;
	words[1] = 0;
	words[2] = bpf_htonl(0xffff);
	words[3] = address;
}

/* What a drop's packet is. */
struct packet {
	struct tuple tuple;
	__u32 header_bytes; /* IP and TCP */
	__u32 ip_bytes; /* as the IP header says; 0 where it does not, as in a super-packet */
};

static __always_inline bool read_packet(struct sk_buff *skb, __u32 network, __u32 end, bool ipv6, struct packet *packet)
{
	const unsigned char *head = skb->head;
	__u8 header[IPV6_HEADER];
	__u8 tcp[TCP_HEADER];
	__u32 bytes;

	if (ipv6) {
		if (network + IPV6_HEADER + TCP_HEADER > end ||
		    bpf_probe_read_kernel(header, IPV6_HEADER, head + network) || header[6] != IPPROTO_TCP)
			return false;
		bytes = IPV6_HEADER;
		__builtin_memcpy(packet->tuple.source, header + 8, 16);
		__builtin_memcpy(packet->tuple.destination, header + 24, 16);
		packet->ip_bytes = header[4] << 8 | header[5];
		if (packet->ip_bytes)
			packet->ip_bytes += IPV6_HEADER;
	} else {
		__u32 address;

		if (network + IPV4_HEADER + TCP_HEADER > end ||
		    bpf_probe_read_kernel(header, IPV4_HEADER, head + network) || header[9] != IPPROTO_TCP)
			return false;
		/* A later fragment has no TCP header. */
		if ((header[6] & 0x1f) | header[7])
			return false;
		bytes = (header[0] & 0xf) * 4;
		__builtin_memcpy(&address, header + 12, 4);
		map_ipv4(packet->tuple.source, address);
		__builtin_memcpy(&address, header + 16, 4);
		map_ipv4(packet->tuple.destination, address);
		packet->ip_bytes = header[2] << 8 | header[3];
	}
	if (bpf_probe_read_kernel(tcp, TCP_HEADER, head + network + bytes))
		return false;
	__builtin_memcpy(&packet->tuple.source_port, tcp, 2);
	__builtin_memcpy(&packet->tuple.destination_port, tcp + 2, 2);
	packet->header_bytes = bytes + (tcp[12] >> 4) * 4;
	return true;
}

SEC("tp_btf/kfree_skb")
int on_drop(__u64 *ctx)
{
	/* TP_PROTO(struct sk_buff *skb, void *location, enum skb_drop_reason reason[, struct sock *rx_sk]) */
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	__u16 protocol = skb->protocol;
	bool ipv6 = protocol == bpf_htons(ETH_P_IPV6);

	if (!ipv6 && protocol != bpf_htons(ETH_P_IP))
		return 0;

	__u32 data = skb->data - skb->head;
	__u32 end = data + skb->len;
	__u32 network = skb->network_header;
	struct packet packet = {};

	/* Unset until the stack takes over from the driver. */
	if (network == 0)
		network = skb->mac_header == MAC_HEADER_UNSET ? data : skb->mac_header + ETHERNET_HEADER;
	/* TCP may have cut data from its front, or taken its headers away: they still lie in the linear part. */
	if (!read_packet(skb, network, end > network + 512 ? end : network + 512, ipv6, &packet))
		return 0;

	__u32 *found = bpf_map_lookup_elem(&connections, &packet.tuple);

	if (!found)
		return 0;

	struct kind kind = { .location = ctx[1], .reason = ctx[2], .connection = *found >> 1, .flags = *found & 1 };
	struct sock *receiving = has_receiving_socket ? (struct sock *)ctx[3] : (void *)0;
	struct sock *sk = skb->sk;
	struct net_device *dev = skb->dev;
	struct net *net = (void *)0;

	if (receiving) {
		net = BPF_CORE_READ(receiving, __sk_common.skc_net.net);
		kind.flags |= SOCKETS_OWN;
	} else if (sk && BPF_CORE_READ((struct sock___tcp *)sk, __sk_common.skc_family) != AF_PACKET) {
		net = BPF_CORE_READ(sk, __sk_common.skc_net.net);
	} else if (dev && bpf_core_read(&net, sizeof(net), &dev->nd_net.net)) {
		net = (void *)0;
	}
	if (!net) {
		struct task_struct *task = (struct task_struct *)bpf_get_current_task();

		kind.flags |= TASKS_NAMESPACE;
		net = BPF_CORE_READ(task, nsproxy, net_ns);
	}
	kind.netns_inum = net ? BPF_CORE_READ(net, ns.inum) : 0;

	struct skb_shared_info *shared = (struct skb_shared_info *)(skb->head + skb->end);
	__u32 gso_size = BPF_CORE_READ(shared, gso_size);
	__u64 bytes = end > network ? end - network : 0;
	__u64 packets = 1;

	if (gso_size && bytes > packet.header_bytes) {
		packets = (bytes - packet.header_bytes + gso_size - 1) / gso_size;
		bytes += (packets - 1) * packet.header_bytes;
	} else if (packet.ip_bytes) {
		/* A frame may be longer, by padding, and bytes that TCP removed from its front still count as lost. */
		bytes = packet.ip_bytes;
	}

	struct sum none = {};
	struct sum *sum = bpf_map_lookup_elem(&drops, &kind);

	if (!sum) {
		/* Another CPU may be faster. */
		bpf_map_update_elem(&drops, &kind, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&drops, &kind);
	}
	if (!sum) {
		__sync_fetch_and_add(&lost_drops, packets);
		return 0;
	}
	__sync_fetch_and_add(&sum->packets, packets);
	__sync_fetch_and_add(&sum->bytes, bytes);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int on_retransmit(__u64 *ctx)
{
	/* TP_PROTO(const struct sock *sk, const struct sk_buff *skb[, int err]) */
	struct sock___tcp *sk = (void *)ctx[0];
	struct sk_buff *skb = (struct sk_buff *)ctx[1];
	struct tcp_sock___tcp *tcp = (void *)sk;
	struct tuple tuple = {};
	__u32 ip_header = IPV4_HEADER;

	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET) {
		map_ipv4(tuple.source, BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
		map_ipv4(tuple.destination, BPF_CORE_READ(sk, __sk_common.skc_daddr));
	} else {
		BPF_CORE_READ_INTO(&tuple.source, sk, __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32);
		BPF_CORE_READ_INTO(&tuple.destination, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr32);
		if (tuple.source[0] | tuple.source[1] | (tuple.source[2] ^ bpf_htonl(0xffff)))
			ip_header = IPV6_HEADER;
	}
	tuple.source_port = bpf_htons(BPF_CORE_READ(sk, __sk_common.skc_num));
	tuple.destination_port = BPF_CORE_READ(sk, __sk_common.skc_dport);

	__u32 *found = bpf_map_lookup_elem(&connections, &tuple);

	if (!found || !(*found & FROM_HERE))
		return 0;

	__u32 connection = *found >> 1;
	struct again *again = bpf_map_lookup_elem(&retransmitted, &connection);

	if (!again)
		return 0;

	__u32 payload = BPF_CORE_READ(skb, len);
	__u32 mss = BPF_CORE_READ(tcp, mss_cache);
	__u64 packets = mss ? (payload + mss - 1) / mss : 1;

	if (!packets)
		packets = 1;
	__sync_fetch_and_add(&again->packets, packets);
	__sync_fetch_and_add(&again->payload_bytes, payload);
	__sync_fetch_and_add(&again->ip_bytes, payload + packets * (ip_header + BPF_CORE_READ(tcp, tcp_header_len)));
	return 0;
}

/* The helpers and the tracepoints are for GPL-compatible programs. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
