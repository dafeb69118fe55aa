// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts the datagrams of all UDP sockets of one network namespace, by port and peer: sent (tracepoint net:net_dev_queue, as IP gives
 * them to an interface), arrived (net:netif_receive_skb, as an interface gives them to the stack) and dropped, by reason and function
 * (skb:kfree_skb). And by socket what its program reads, and which program it is (sock:sock_recv_length, sock:sock_send_length).
 *
 * Tracepoints alone: a kernel may refuse programs at its functions (fentry) to root, too.
 *
 * A super-packet counts as the datagrams that it stands for. Of a datagram in fragments the first one counts.
 *
 * Not here: UDP-Lite, IPv6 extension headers, tunnels, 802.1Q tags in the data.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "udp_flow/intf.h"

#define IPV4_HEADER 20
#define IPV6_HEADER 40
#define UDP_HEADER 8
#define MAC_HEADER_UNSET 0xffff
#define ETHERNET_HEADER 14

/* kfree_skb tells the receiving socket (Linux 6.11 on). */
const volatile bool has_receiving_socket;
/* The namespace, as in net:[…]. */
const volatile __u32 netns_inum;

/* Datagrams and drops for which there was no room in any map. */
__u64 uncounted = 0;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common___udp {
	__u16 skc_num;
	possible_net_t skc_net;
};

struct sock___udp {
	struct sock_common___udp __sk_common;
	__u16 sk_protocol;
};

struct task_struct___udp {
	int tgid;
	struct task_struct___udp *real_parent;
};

#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SOCKETS);
	__type(key, __u64);
	__type(value, struct socket_sum);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow_key);
	__type(value, struct flow_sum);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_KINDS);
	__type(key, struct drop_kind);
	__type(value, struct drop_sum);
} drops SEC(".maps");

/* The ports of the namespace's sockets, as far as known. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u16);
	__type(value, __u8);
} ports SEC(".maps");

/* The addresses and ports of a packet. */
struct ends {
	__u32 source[4];
	__u32 destination[4];
	__be16 source_port;
	__be16 destination_port;
	__u32 payload; /* where it begins, from the head */
};

static __always_inline void map_ipv4(__u32 *words, __u32 address)
{
	words[0] = 0;
	words[1] = 0;
	words[2] = bpf_htonl(0xffff);
	words[3] = address;
}

/* Reads the headers of an skb whose network header is at `network`. False for other protocols and for later fragments. */
static __always_inline bool read_ends(struct sk_buff *skb, __u32 network, bool ipv6, struct ends *ends)
{
	const unsigned char *head = BPF_CORE_READ(skb, head);
	__u8 header[IPV6_HEADER];
	__be16 ports_of[2];
	__u32 transport, address;

	if (ipv6) {
		if (bpf_probe_read_kernel(header, IPV6_HEADER, head + network) || header[6] != IPPROTO_UDP)
			return false;
		__builtin_memcpy(ends->source, header + 8, 16);
		__builtin_memcpy(ends->destination, header + 24, 16);
		transport = network + IPV6_HEADER;
	} else {
		if (bpf_probe_read_kernel(header, IPV4_HEADER, head + network) || header[9] != IPPROTO_UDP)
			return false;
		if ((header[6] & 0x1f) | header[7])
			return false;
		__builtin_memcpy(&address, header + 12, 4);
		map_ipv4(ends->source, address);
		__builtin_memcpy(&address, header + 16, 4);
		map_ipv4(ends->destination, address);
		transport = network + (header[0] & 0xf) * 4;
	}
	if (bpf_probe_read_kernel(ports_of, sizeof(ports_of), head + transport))
		return false;
	ends->source_port = ports_of[0];
	ends->destination_port = ports_of[1];
	ends->payload = transport + UDP_HEADER;
	return true;
}

/* Datagrams in an skb with so much payload. */
static __always_inline __u64 datagrams_of(struct sk_buff *skb, __u64 bytes)
{
	struct skb_shared_info *shared = (struct skb_shared_info *)(BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end));
	__u32 gso_size = BPF_CORE_READ(shared, gso_size);

	return gso_size && bytes > gso_size ? (bytes + gso_size - 1) / gso_size : 1;
}

static __always_inline bool is_udp(struct sock *sk)
{
	return BPF_CORE_READ((struct sock___udp *)sk, sk_protocol) == IPPROTO_UDP;
}

static __always_inline __u16 port_of(struct sock *sk)
{
	return BPF_CORE_READ((struct sock___udp *)sk, __sk_common.skc_num);
}

/* Whether the packet is at a device of the namespace. */
static __always_inline bool is_here(struct sk_buff *skb)
{
	struct net_device *dev = skb->dev;

	return dev && BPF_CORE_READ(dev, nd_net.net, ns.inum) == netns_inum;
}

static __always_inline struct flow_sum *flow_of(struct flow_key *key)
{
	struct flow_sum none = {};
	struct flow_sum *sum = bpf_map_lookup_elem(&flows, key);

	if (sum)
		return sum;
	/* Another CPU may be faster. */
	bpf_map_update_elem(&flows, key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&flows, key);
}

static __always_inline void count(struct sk_buff *skb, bool is_sent, const struct ends *ends)
{
	struct flow_key key = {};
	struct flow_sum *sum;
	__u64 bytes = skb->data - skb->head + skb->len;
	__u64 datagrams;

	bytes = bytes > ends->payload ? bytes - ends->payload : 0;
	datagrams = datagrams_of(skb, bytes);
	__builtin_memcpy(key.local, is_sent ? ends->source : ends->destination, 16);
	__builtin_memcpy(key.peer, is_sent ? ends->destination : ends->source, 16);
	key.peer_port = is_sent ? ends->destination_port : ends->source_port;
	key.local_port = bpf_ntohs(is_sent ? ends->source_port : ends->destination_port);
	sum = flow_of(&key);
	if (!sum) {
		__builtin_memset(key.local, 0, 16);
		__builtin_memset(key.peer, 0, 16);
		key.peer_port = 0;
		sum = flow_of(&key);
	}
	if (!sum) {
		__sync_fetch_and_add(&uncounted, datagrams);
		return;
	}
	__sync_fetch_and_add(is_sent ? &sum->sent : &sum->arrived, datagrams);
	__sync_fetch_and_add(is_sent ? &sum->sent_bytes : &sum->arrived_bytes, bytes);
}

SEC("tp_btf/net_dev_queue")
int on_send(__u64 *ctx)
{
	/* TP_PROTO(struct sk_buff *skb) */
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	struct sock *sk = skb->sk;
	__u16 protocol = skb->protocol;
	bool ipv6 = protocol == bpf_htons(ETH_P_IPV6);
	struct ends ends = {};

	/* What another host sent and this one forwards has no socket, or that of another namespace. */
	if (!sk || (!ipv6 && protocol != bpf_htons(ETH_P_IP)) || !is_here(skb) || !is_udp(sk) ||
	    BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) != netns_inum)
		return 0;
	if (read_ends(skb, skb->network_header, ipv6, &ends))
		count(skb, true, &ends);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int on_arrival(__u64 *ctx)
{
	/* TP_PROTO(struct sk_buff *skb); its data begin with the network header */
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	__u16 protocol = skb->protocol;
	bool ipv6 = protocol == bpf_htons(ETH_P_IPV6);
	struct ends ends = {};

	if ((!ipv6 && protocol != bpf_htons(ETH_P_IP)) || !is_here(skb))
		return 0;
	if (read_ends(skb, skb->data - skb->head, ipv6, &ends))
		count(skb, false, &ends);
	return 0;
}

/* The socket, with the process that uses it. */
static __always_inline struct socket_sum *used(struct sock *sk)
{
	struct task_struct___udp *task = (void *)bpf_get_current_task();
	struct socket_sum none = {};
	struct socket_sum *sum;
	__u64 cookie;
	__u16 port;
	__u8 one = 1;
	int number;

	if (!is_udp(sk) || BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) != netns_inum)
		return (void *)0;
	cookie = bpf_get_socket_cookie(sk);
	sum = bpf_map_lookup_elem(&sockets, &cookie);
	if (sum)
		return sum;
	port = port_of(sk);
	if (port)
		bpf_map_update_elem(&ports, &port, &one, BPF_ANY);
	none.began_ns = bpf_ktime_get_ns();
	none.local_port = port;
	none.cgroup_id = bpf_get_current_cgroup_id();
	none.pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(none.comm, sizeof(none.comm));
#pragma unroll
	for (number = 0; number < MAX_ANCESTORS; number++) {
		task = BPF_CORE_READ(task, real_parent);
		none.ancestors[number] = BPF_CORE_READ(task, tgid);
	}
	bpf_map_update_elem(&sockets, &cookie, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sockets, &cookie);
}

SEC("tp_btf/sock_send_length")
int on_use(__u64 *ctx)
{
	/* TP_PROTO(struct sock *sk, int ret, int flags) */
	used((struct sock *)ctx[0]);
	return 0;
}

#define MSG_PEEK 2

SEC("tp_btf/sock_recv_length")
int on_read(__u64 *ctx)
{
	/* TP_PROTO(struct sock *sk, int ret, int flags) */
	struct socket_sum *sum = used((struct sock *)ctx[0]);
	int bytes = ctx[1];

	if (!sum || bytes < 0 || (int)ctx[2] & MSG_PEEK)
		return 0;
	__sync_fetch_and_add(&sum->read, 1);
	__sync_fetch_and_add(&sum->read_bytes, bytes);
	return 0;
}

static __always_inline struct drop_sum *drop_of(struct drop_kind *kind)
{
	struct drop_sum none = {};
	struct drop_sum *sum = bpf_map_lookup_elem(&drops, kind);

	if (sum)
		return sum;
	bpf_map_update_elem(&drops, kind, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&drops, kind);
}

SEC("tp_btf/kfree_skb")
int on_drop(__u64 *ctx)
{
	/* TP_PROTO(struct sk_buff *skb, void *location, enum skb_drop_reason reason[, struct sock *rx_sk]) */
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	__u16 protocol = skb->protocol;
	bool ipv6 = protocol == bpf_htons(ETH_P_IPV6);

	/* What a socket sends has no protocol until IP has written its header. */
	if (!ipv6 && protocol != bpf_htons(ETH_P_IP))
		return 0;

	__u32 data = skb->data - skb->head;
	__u32 network = skb->network_header;
	struct drop_kind kind = { .location = ctx[1], .reason = ctx[2] };
	struct ends ends = {};

	/* Unset until the stack takes over from the driver. */
	if (network == 0)
		network = skb->mac_header == MAC_HEADER_UNSET ? data : skb->mac_header + ETHERNET_HEADER;
	if (!read_ends(skb, network, ipv6, &ends))
		return 0;

	struct sock *receiving = has_receiving_socket ? (struct sock *)ctx[3] : (void *)0;
	struct sock *sk = receiving ? receiving : skb->sk;
	struct net_device *dev = skb->dev;
	struct net *net = (void *)0;
	__u16 to = bpf_ntohs(ends.destination_port), from = bpf_ntohs(ends.source_port);
	__u16 own = 0;

	if (sk && is_udp(sk) && BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == netns_inum)
		own = port_of(sk);
	/*
	 * A packet may keep the sender's socket into the namespace behind a veth: there the device tells. In a UDP socket's queue other
	 * things lie in the place of `dev`, and reading through them fails.
	 */
	if (receiving)
		net = BPF_CORE_READ(receiving, __sk_common.skc_net.net);
	else if (dev && bpf_core_read(&net, sizeof(net), &dev->nd_net.net))
		net = (void *)0;
	if (!net && sk)
		net = BPF_CORE_READ(sk, __sk_common.skc_net.net);
	if (!net) {
		struct task_struct *task = (struct task_struct *)bpf_get_current_task();

		kind.flags |= TASKS_NAMESPACE;
		net = BPF_CORE_READ(task, nsproxy, net_ns);
	}
	if (!net || BPF_CORE_READ(net, ns.inum) != netns_inum)
		return 0;
	if (receiving || (own == to && own != from)) {
		kind.local_port = to;
	} else if (own == from && own) {
		kind.flags |= FROM_HERE;
		kind.local_port = from;
	} else if (bpf_map_lookup_elem(&ports, &from) && !bpf_map_lookup_elem(&ports, &to)) {
		kind.flags |= FROM_HERE;
		kind.local_port = from;
	} else {
		/* A packet of this host has its socket nearly everywhere. */
		kind.local_port = to;
	}

	bool is_sent = kind.flags & FROM_HERE;
	__u64 end = data + skb->len;
	__u64 bytes = end > ends.payload ? end - ends.payload : 0;
	__u64 datagrams = datagrams_of(skb, bytes);
	struct drop_sum *sum;

	__builtin_memcpy(kind.peer, is_sent ? ends.destination : ends.source, 16);
	kind.peer_port = is_sent ? ends.destination_port : ends.source_port;
	sum = drop_of(&kind);
	if (!sum) {
		__builtin_memset(kind.peer, 0, 16);
		kind.peer_port = 0;
		sum = drop_of(&kind);
	}
	if (!sum) {
		__sync_fetch_and_add(&uncounted, datagrams);
		return 0;
	}
	__sync_fetch_and_add(&sum->datagrams, datagrams);
	__sync_fetch_and_add(&sum->bytes, bytes);
	return 0;
}

/* The helpers and the tracepoints are for GPL-compatible programs. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
