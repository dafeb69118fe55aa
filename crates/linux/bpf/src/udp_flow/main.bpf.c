// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts the datagrams of all UDP sockets of one network namespace, by socket and peer: sent (fentry of ip_send_skb and
 * ip6_send_skb), arrived at the socket (fentry of __udp_enqueue_schedule_skb), read (fentry of skb_consume_udp), and dropped, by reason
 * and function (tracepoint skb:kfree_skb). A socket begins when it gets its port (fexit of udp_lib_get_port) and ends in
 * udp_destroy_sock.
 *
 * A datagram that arrives is counted before the socket looks for room: afterwards a reader may have freed it. A super-packet counts as the
 * datagrams that it stands for. Of a datagram in fragments the first one counts; a drop of a later one is not seen.
 *
 * A drop belongs to a socket where the packet or the tracepoint names it, else to the port. Ports are those of the namespace's sockets.
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

typedef struct {
	__s64 counter;
} atomic64___udp;

struct sock_common___udp {
	__u16 skc_num;
	possible_net_t skc_net;
	atomic64___udp skc_cookie;
};

struct sock___udp {
	struct sock_common___udp __sk_common;
	__u16 sk_protocol;
};

struct sk_buff___udp {
	__u16 transport_header;
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

/* The ports of the namespace's sockets. */
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

static __always_inline bool is_watched(struct sock *sk)
{
	return BPF_CORE_READ((struct sock___udp *)sk, sk_protocol) == IPPROTO_UDP &&
	       BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == netns_inum;
}

static __always_inline __u64 cookie_of(struct sock *sk)
{
	return BPF_CORE_READ((struct sock___udp *)sk, __sk_common.skc_cookie.counter);
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

static __always_inline void count(__u64 cookie, bool is_sent, const struct ends *ends, __u64 datagrams, __u64 bytes)
{
	struct flow_key key = { .cookie = cookie };
	struct flow_sum *sum;

	__builtin_memcpy(key.local, is_sent ? ends->source : ends->destination, 16);
	__builtin_memcpy(key.peer, is_sent ? ends->destination : ends->source, 16);
	key.peer_port = is_sent ? ends->destination_port : ends->source_port;
	sum = flow_of(&key);
	if (!sum) {
		__builtin_memset(&key, 0, sizeof(key));
		key.cookie = cookie;
		sum = flow_of(&key);
	}
	if (!sum) {
		__sync_fetch_and_add(&uncounted, datagrams);
		return;
	}
	__sync_fetch_and_add(is_sent ? &sum->sent : &sum->arrived, datagrams);
	__sync_fetch_and_add(is_sent ? &sum->sent_bytes : &sum->arrived_bytes, bytes);
}

static __always_inline struct socket_sum *socket_of(__u64 cookie)
{
	struct socket_sum none = {};
	struct socket_sum *sum = bpf_map_lookup_elem(&sockets, &cookie);

	if (sum)
		return sum;
	bpf_map_update_elem(&sockets, &cookie, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sockets, &cookie);
}

SEC("fexit/udp_lib_get_port")
int on_port(__u64 *ctx)
{
	/* int udp_lib_get_port(struct sock *sk, unsigned short snum, unsigned int hash2_nulladdr) */
	struct sock *sk = (struct sock *)ctx[0];
	struct task_struct___udp *task = (void *)bpf_get_current_task();
	__u16 port = BPF_CORE_READ((struct sock___udp *)sk, __sk_common.skc_num);
	struct socket_sum *sum;
	__u8 one = 1;
	int number;

	if ((int)ctx[3] || !is_watched(sk))
		return 0;
	bpf_map_update_elem(&ports, &port, &one, BPF_ANY);
	sum = socket_of(bpf_get_socket_cookie(sk));
	if (!sum)
		return 0;
	sum->began_ns = bpf_ktime_get_ns();
	sum->local_port = port;
	sum->cgroup_id = bpf_get_current_cgroup_id();
	bpf_get_current_comm(sum->comm, sizeof(sum->comm));
#pragma unroll
	for (number = 0; number < MAX_ANCESTORS; number++) {
		task = BPF_CORE_READ(task, real_parent);
		sum->ancestors[number] = BPF_CORE_READ(task, tgid);
	}
	/* Last: whoever reads it takes the rest for complete. */
	sum->pid = bpf_get_current_pid_tgid() >> 32;
	return 0;
}

static __always_inline int ended(struct sock *sk)
{
	struct socket_sum *sum;

	/* A socket without a port was never seen. */
	if (!is_watched(sk) || !BPF_CORE_READ((struct sock___udp *)sk, __sk_common.skc_num))
		return 0;
	sum = socket_of(bpf_get_socket_cookie(sk));
	if (sum)
		sum->ended_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("fentry/udp_destroy_sock")
int on_end(__u64 *ctx)
{
	return ended((struct sock *)ctx[0]);
}

SEC("fentry/udpv6_destroy_sock")
int on_end_ipv6(__u64 *ctx)
{
	return ended((struct sock *)ctx[0]);
}

static __always_inline int sent(struct sk_buff *skb, bool ipv6)
{
	struct sock *sk = BPF_CORE_READ(skb, sk);
	__u32 network = BPF_CORE_READ(skb, network_header);
	struct ends ends = {};
	__u64 bytes;

	if (!sk || !is_watched(sk) || !read_ends(skb, network, ipv6, &ends))
		return 0;
	bytes = BPF_CORE_READ(skb, data) - BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, len);
	bytes = bytes > ends.payload ? bytes - ends.payload : 0;
	count(cookie_of(sk), true, &ends, datagrams_of(skb, bytes), bytes);
	return 0;
}

SEC("fentry/ip_send_skb")
int on_send(__u64 *ctx)
{
	/* int ip_send_skb(struct net *net, struct sk_buff *skb) */
	return sent((struct sk_buff *)ctx[1], false);
}

SEC("fentry/ip6_send_skb")
int on_send_ipv6(__u64 *ctx)
{
	/* int ip6_send_skb(struct sk_buff *skb) */
	return sent((struct sk_buff *)ctx[0], true);
}

SEC("fentry/__udp_enqueue_schedule_skb")
int on_arrival(__u64 *ctx)
{
	/* int __udp_enqueue_schedule_skb(struct sock *sk, struct sk_buff *skb) */
	struct sock *sk = (struct sock *)ctx[0];
	struct sk_buff *skb = (struct sk_buff *)ctx[1];
	bool ipv6 = BPF_CORE_READ(skb, protocol) == bpf_htons(ETH_P_IPV6);
	__u64 bytes = BPF_CORE_READ(skb, len);
	struct ends ends = {};

	if (!is_watched(sk) || !read_ends(skb, BPF_CORE_READ(skb, network_header), ipv6, &ends))
		return 0;
	count(bpf_get_socket_cookie(sk), false, &ends, datagrams_of(skb, bytes), bytes);
	return 0;
}

SEC("fentry/skb_consume_udp")
int on_read(__u64 *ctx)
{
	/* void skb_consume_udp(struct sock *sk, struct sk_buff *skb, int len); len is negative where it stays in the queue */
	struct sock *sk = (struct sock *)ctx[0];
	struct sk_buff *skb = (struct sk_buff *)ctx[1];
	__u64 bytes = BPF_CORE_READ(skb, len);
	struct socket_sum *sum;

	if ((int)ctx[2] < 0 || !is_watched(sk))
		return 0;
	sum = socket_of(bpf_get_socket_cookie(sk));
	if (!sum)
		return 0;
	__sync_fetch_and_add(&sum->read, datagrams_of(skb, bytes));
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

	if (sk) {
		net = BPF_CORE_READ(sk, __sk_common.skc_net.net);
		own = BPF_CORE_READ((struct sock___udp *)sk, __sk_common.skc_num);
		if (BPF_CORE_READ((struct sock___udp *)sk, sk_protocol) == IPPROTO_UDP)
			kind.cookie = cookie_of(sk);
		else
			own = 0;
	} else if (dev && bpf_core_read(&net, sizeof(net), &dev->nd_net.net)) {
		net = (void *)0;
	}
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
	} else if (bpf_map_lookup_elem(&ports, &to)) {
		kind.local_port = to;
	} else if (bpf_map_lookup_elem(&ports, &from)) {
		kind.flags |= FROM_HERE;
		kind.local_port = from;
	} else {
		return 0;
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
