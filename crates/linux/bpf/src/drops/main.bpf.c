// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reports each dropped packet of the tests in `flows`: its sequence numbers, the reason, and the function that dropped it.
 *
 * The program runs for every skb that the machine drops (tracepoint skb:kfree_skb), so it leaves foreign packets early: by ethertype,
 * then by protocol and destination port, then by cookie.
 *
 * An skb may be dropped at any layer: `data` may point to its MAC, IP or UDP header or behind them. The transport header may be unset
 * or, between the driver and ip_rcv, equal to the network header. The network header is valid from the sender's socket to the
 * receiver's, so the program starts there. Payload is in the linear part or, with UDP_SEGMENT and after GRO, in pages (frags) or
 * further skbs (frag_list), where head + offset would read stale bytes.
 *
 *   head       network_header        data            data + len - data_len
 *    |               |                 |                   |
 *    | headroom | MAC | IPv4/6 | UDP | payload ...         |  -> frags, frag_list
 *
 * A fragment of IP other than the first has no UDP header. Where a test has datagrams longer than a packet, two further programs note
 * the identification of each first fragment that a host sends or receives, so that a drop of a later one has its sequence number.
 *
 * Not here: other IPv6 extension headers, tunnels (the outer header counts), 802.1Q tags in the data.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "drops/intf.h"

#define UDP_HEADER 8
#define IPV4_HEADER 20
#define IPV6_HEADER 40
#define IPV6_FRAGMENT_HEADER 8
/* cookie (32 bits) and sequence (48), big endian. */
#define PROBE_BYTES 10
#define MAC_HEADER_UNSET 0xffff
#define ETHERNET_HEADER 14

/* One bit for each UDP destination port of `flows`. */
const volatile __u8 ports[65536 / 8];
/* kfree_skb tells the receiving socket (Linux 6.11 on). */
const volatile bool has_receiving_socket;
/* bpf_dynptr_from_skb may be called here (6.12 on). Without it payload outside the linear part cannot be read. */
const volatile bool has_dynptr;

/* Datagrams of the test may be longer than a packet: the programs that note first fragments are there. */
const volatile bool has_fragments;

/* Reasons for which damaged packets are dropped. */
const volatile __u32 damage_reasons[DAMAGE_REASONS];

/* The program wakes a sleeping reader when the ring has so many bytes. */
const volatile __u32 wake_bytes;

/* The cookie of the only namespace whose drops are reported; 0: all. */
const volatile __u64 only_namespace;

/* Packets of the tests whose event had no room, neither in the ring nor in `unrecorded`. */
__u64 lost_packets = 0;
/* Packets to one of our ports whose payload could not be read. */
__u64 unread_packets = 0;
/* Drops in an interrupt that came while the program ran, which its twin saw. */
__u64 nested_runs = 0;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow);
	__type(value, __u8);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_UNRECORDED);
	__type(key, struct unrecorded_key);
	__type(value, struct unrecorded);
} unrecorded SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FRAGMENTS);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* Flows by one of the two things that identify them: a damaged packet may have lost the other. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, __u32);
	__type(value, struct flow);
} by_cookie SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, __u16);
	__type(value, struct flow);
} by_port SEC(".maps");

/* Whether the program runs on this CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} running SEC(".maps");

/*
 * An event is too large for the stack. One for each program and CPU is enough: the kernel never nests a program on a CPU (see
 * on_nested_drop).
 */
enum scratch_of { OF_DROP, OF_NESTED, OF_QUEUED, OF_RECEIVED, SCRATCHES };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct drop_event);
} scratch SEC(".maps");

extern int bpf_dynptr_from_skb(struct sk_buff *skb, __u64 flags, struct bpf_dynptr *dynptr) __ksym __weak;

#define barrier() asm volatile("" ::: "memory")

/* The bytes of an skb. Offsets are from head. */
struct view {
	const unsigned char *head;
	__u32 data;
	__u32 linear_end;
	__u32 end;
	struct bpf_dynptr dynptr;
};

static __always_inline bool read_linear(struct view *view, __u32 offset, void *into, __u32 bytes)
{
	return offset + bytes <= view->linear_end && bpf_probe_read_kernel(into, bytes, view->head + offset) == 0;
}

static __always_inline bool read(struct view *view, __u32 offset, void *into, __u32 bytes)
{
	if (read_linear(view, offset, into, bytes))
		return true;
	if (!has_dynptr || offset < view->data || offset + bytes > view->end)
		return false;
	/* Counts from data, and follows frags and frag_list. */
	return bpf_dynptr_read(into, bytes, &view->dynptr, offset - view->data, 0) == 0;
}

static __always_inline bool parse_probe(const __u8 *probe, __u32 *cookie, __u64 *sequence)
{
	*cookie = (__u32)probe[0] << 24 | (__u32)probe[1] << 16 | (__u32)probe[2] << 8 | probe[3];
	*sequence = (__u64)probe[4] << 40 | (__u64)probe[5] << 32 | (__u64)probe[6] << 24 | (__u64)probe[7] << 16 |
		    (__u64)probe[8] << 8 | probe[9];
	return true;
}

/* A packet or fragment of UDP. */
struct found {
	struct fragment_key key; /* of a fragment */
	__u32 udp; /* offset of the UDP header; 0 where there is none for one of our ports */
	__u32 offset; /* of a fragment: its place, and its bytes */
	__u32 bytes;
	__u16 port;
	bool is_fragment;
};

/*
 * Finds the UDP header by the network header. Reads IP and UDP header at once, as there is mostly no IP option: this is the price that
 * every dropped IP packet pays.
 * Headers lie in the linear part: the stack pulls them there before it looks at them, and drivers and GRO do mostly, too.
 */
static __always_inline void find_udp(struct view *view, __u32 network, bool ipv6, struct found *found)
{
	__u8 headers[IPV6_HEADER + UDP_HEADER];
	__u32 udp;

	found->udp = 0;
	found->is_fragment = false;
	found->offset = 0;
	if (ipv6) {
		/* The last fragment of a datagram may have a byte behind its header. */
		if (!read_linear(view, network, headers, IPV6_HEADER + UDP_HEADER))
			return;
		udp = IPV6_HEADER;
		if (headers[6] == IPPROTO_FRAGMENT && headers[IPV6_HEADER] == IPPROTO_UDP) {
			found->is_fragment = true;
			found->offset = (headers[IPV6_HEADER + 2] << 8 | headers[IPV6_HEADER + 3]) & ~7;
			found->bytes = (headers[4] << 8 | headers[5]) - IPV6_FRAGMENT_HEADER;
			__builtin_memcpy(found->key.source, headers + 8, 16);
			__builtin_memcpy(found->key.destination, headers + 24, 16);
			__builtin_memcpy(&found->key.id, headers + IPV6_HEADER + 4, 4);
			found->key.ipv6 = 1;
			if (found->offset)
				return;
			udp += IPV6_FRAGMENT_HEADER;
			if (!read_linear(view, network + udp, headers + IPV6_HEADER, UDP_HEADER))
				return;
		} else if (headers[6] != IPPROTO_UDP) {
			return;
		}
		found->port = headers[IPV6_HEADER + 2] << 8 | headers[IPV6_HEADER + 3];
	} else {
		/* The last fragment may have fewer bytes than a UDP header. */
		if (!read_linear(view, network, headers, IPV4_HEADER) || headers[9] != IPPROTO_UDP)
			return;
		udp = (headers[0] & 0xf) * 4;
		if ((headers[6] & 0x3f) | headers[7]) {
			found->is_fragment = true;
			found->offset = ((headers[6] & 0x1f) << 8 | headers[7]) * 8;
			found->bytes = (headers[2] << 8 | headers[3]) - udp;
			__builtin_memset(&found->key, 0, sizeof(found->key));
			__builtin_memcpy(found->key.source, headers + 12, 4);
			__builtin_memcpy(found->key.destination, headers + 16, 4);
			found->key.id = headers[4] << 8 | headers[5];
			if (found->offset)
				return;
		}
		if (!read_linear(view, network + udp, headers, UDP_HEADER))
			return;
		found->port = headers[2] << 8 | headers[3];
	}
	if (ports[found->port >> 3] & 1 << (found->port & 7))
		found->udp = network + udp;
}

/*
 * The namespace: the device's, else the socket's, else the current task's. The task's is right in a system call. It is arbitrary where
 * the kernel frees a socket's memory later (as UDP does, by RCU). In a UDP receive queue `dev` holds dev_scratch, a number that is no
 * address: reading through it fails.
 */
static __always_inline void find_namespace(struct drop_event *event, struct sk_buff *skb, struct sock *receiving)
{
	struct net_device *dev = skb->dev;
	struct sock *sk = skb->sk;
	struct net *net = (void *)0;

	event->ifindex = 0;
	if (dev && !bpf_core_read(&net, sizeof(net), &dev->nd_net.net) && net)
		event->ifindex = BPF_CORE_READ(dev, ifindex);
	else if (sk)
		net = BPF_CORE_READ(sk, __sk_common.skc_net.net);
	else if (receiving)
		net = BPF_CORE_READ(receiving, __sk_common.skc_net.net);
	if (!net) {
		struct task_struct *task = (struct task_struct *)bpf_get_current_task();

		event->flags |= DROP_TASKS_NAMESPACE;
		net = BPF_CORE_READ(task, nsproxy, net_ns);
	}
	event->netns_cookie = net ? BPF_CORE_READ(net, net_cookie) : 0;
	event->netns_inum = net ? BPF_CORE_READ(net, ns.inum) : 0;
}

/*
 * A reader who polls sees all events. A sleeping reader is woken when there are many: a wake-up for each event costs more than the
 * event.
 */
static __always_inline void count_unrecorded(const struct drop_event *event)
{
	struct unrecorded_key key = {
		.location = event->location,
		.reason = event->reason,
		.cookie = event->cookie,
		.flags = event->flags & ~DROP_CONTINUED,
	};
	struct unrecorded none = {};
	struct unrecorded *counted;

	/* Whose it was, only its event would have told. */
	if (event->flags & DROP_UNIDENTIFIED) {
		__sync_fetch_and_add(&lost_packets, 1);
		return;
	}
	counted = bpf_map_lookup_elem(&unrecorded, &key);
	if (!counted) {
		/* Another CPU may have been faster; then it is there. */
		bpf_map_update_elem(&unrecorded, &key, &none, BPF_NOEXIST);
		counted = bpf_map_lookup_elem(&unrecorded, &key);
	}
	/* Several fragments may be one datagram's: how many datagrams is not known. */
	if (!counted || event->flags & DROP_FRAGMENT) {
		__sync_fetch_and_add(&lost_packets, event->count);
		return;
	}
	__sync_fetch_and_add(&counted->packets, event->count);
	if (!(event->flags & DROP_CONTINUED))
		__sync_fetch_and_add(&counted->skbs, 1);
}

static __always_inline void submit(struct drop_event *event)
{
	__u64 waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);
	__u64 flags = waiting >= wake_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
	__u64 bytes = EVENT_HEADER_BYTES + event->count * sizeof(__u64);

	if (bytes > sizeof(*event))
		return;
	if (bpf_ringbuf_output(&events, event, bytes, flags))
		count_unrecorded(event);
}

/* The position in a super-packet. */
struct walk {
	struct view view;
	__u32 offset; /* of the next segment's probe header */
	__u32 gso_size;
	__u32 cookie;
	__u32 of; /* enum scratch_of */
};

/*
 * One segment. Each sequence number is read: a super-packet that GRO built has gaps, so "first + n" would be wrong.
 */
static long read_segment(__u32 index, struct walk *walk)
{
	__u8 probe[PROBE_BYTES];
	__u32 of = walk->of;
	__u32 cookie;
	__u64 sequence;
	__u32 offset = walk->offset;
	struct drop_event *event = bpf_map_lookup_elem(&scratch, &of);

	if (!event || offset + PROBE_BYTES > walk->view.end)
		return 1;
	walk->offset = offset + walk->gso_size;
	if (!read(&walk->view, offset, probe, PROBE_BYTES)) {
		__sync_fetch_and_add(&unread_packets, 1);
		return 0;
	}
	parse_probe(probe, &cookie, &sequence);
	if (cookie != walk->cookie)
		return 0;
	if (event->count == MAX_SEQUENCES) {
		submit(event);
		event->count = 0;
		event->flags |= DROP_CONTINUED;
	}
	event->sequences[event->count & (MAX_SEQUENCES - 1)] = sequence;
	event->count++;
	return 0;
}

static __always_inline void view_of(struct view *view, struct sk_buff *skb)
{
	view->head = skb->head;
	view->data = skb->data - skb->head;
	view->end = view->data + skb->len;
	view->linear_end = view->end - skb->data_len;
}

/*
 * Cookie and sequence number behind the UDP header, of one of our flows.
 */
static __always_inline bool read_ours(struct view *view, const struct found *found, struct flow *flow, __u64 *sequence)
{
	__u8 probe[PROBE_BYTES];
	__u32 payload = found->udp + UDP_HEADER;

	if (payload + PROBE_BYTES > view->end)
		return false;
	if (!read(view, payload, probe, PROBE_BYTES)) {
		__sync_fetch_and_add(&unread_packets, 1);
		return false;
	}
	__builtin_memset(flow, 0, sizeof(*flow));
	flow->port = found->port;
	parse_probe(probe, &flow->cookie, sequence);
	return bpf_map_lookup_elem(&flows, flow);
}

/* Of a damaged packet: what is known of it. */
struct damaged {
	struct flow flow;
	__u64 sequence;
	bool is_identified; /* by its cookie: then the sequence number is its own */
	/* What its headers say of its sender, where only the port is known: anyone may send to that. */
	__u16 source_port;
	__u64 source[2]; /* of IPv4 the first four bytes */
};

static __always_inline bool is_foreign(const struct drop_event *event)
{
	/* A namespace known from the task alone may belong to a socket that is being freed: report the drop. */
	return only_namespace && !(event->flags & DROP_TASKS_NAMESPACE) && event->netns_cookie &&
	       event->netns_cookie != only_namespace;
}

/*
 * The drop of a later fragment: an event if its datagram is known, else remembered until the first fragment comes.
 */
static __always_inline void drop_part(struct drop_event *event, const struct found *found)
{
	struct fragment *known = bpf_map_lookup_elem(&fragments, &found->key);

	if (known && known->is_known && event->time_ns - known->time_ns < FRAGMENT_NS) {
		event->cookie = known->cookie;
		event->port = known->port;
		event->sequences[0] = known->sequence;
		submit(event);
		return;
	}
	/* Of several drops before the first fragment one is enough. */
	struct fragment dropped = {
		.time_ns = event->time_ns,
		.location = event->location,
		.netns_cookie = event->netns_cookie,
		.netns_inum = event->netns_inum,
		.ifindex = event->ifindex,
		.reason = event->reason,
		.offset = event->fragment_offset,
		.bytes = event->fragment_bytes,
		.flags = event->flags,
	};
	bpf_map_update_elem(&fragments, &found->key, &dropped, BPF_ANY);
}

/*
 * A first fragment that this host sends or receives.
 */
static __always_inline void note_first(struct sk_buff *skb, __u32 network, bool ipv6, __u32 of)
{
	struct view view;
	struct found found;
	struct flow flow;
	struct fragment first = { .is_known = 1 };
	struct fragment *dropped;

	view_of(&view, skb);
	find_udp(&view, network, ipv6, &found);
	if (!found.is_fragment || !found.udp)
		return;
	if (has_dynptr)
		bpf_dynptr_from_skb(skb, 0, &view.dynptr);
	if (!read_ours(&view, &found, &flow, &first.sequence))
		return;
	if (only_namespace && BPF_CORE_READ(skb, dev, nd_net.net, net_cookie) != only_namespace)
		return;
	first.time_ns = bpf_ktime_get_ns();
	first.cookie = flow.cookie;
	first.port = flow.port;
	dropped = bpf_map_lookup_elem(&fragments, &found.key);
	if (dropped && !dropped->is_known && first.time_ns - dropped->time_ns < FRAGMENT_NS) {
		struct drop_event *event = bpf_map_lookup_elem(&scratch, &of);

		if (event) {
			event->time_ns = dropped->time_ns;
			event->location = dropped->location;
			event->netns_cookie = dropped->netns_cookie;
			event->netns_inum = dropped->netns_inum;
			event->ifindex = dropped->ifindex;
			event->reason = dropped->reason;
			event->cookie = flow.cookie;
			event->unit_packets = 1;
			event->port = flow.port;
			event->flags = dropped->flags;
			event->count = 1;
			event->fragment_offset = dropped->offset;
			event->fragment_bytes = dropped->bytes;
			event->sequences[0] = first.sequence;
			submit(event);
		}
	}
	bpf_map_update_elem(&fragments, &found.key, &first, BPF_ANY);
}

SEC("tp_btf/net_dev_queue")
int on_queued(__u64 *ctx)
{
	/* TP_PROTO(struct sk_buff *skb) */
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	bool ipv6 = skb->protocol == bpf_htons(ETH_P_IPV6);

	if (ipv6 || skb->protocol == bpf_htons(ETH_P_IP))
		note_first(skb, skb->network_header, ipv6, OF_QUEUED);
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int on_received(__u64 *ctx)
{
	/* TP_PROTO(struct sk_buff *skb): before the network header is set, at which data points. */
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	bool ipv6 = skb->protocol == bpf_htons(ETH_P_IPV6);

	if (ipv6 || skb->protocol == bpf_htons(ETH_P_IP))
		note_first(skb, skb->data - skb->head, ipv6, OF_RECEIVED);
	return 0;
}

/*
 * A damaged packet that is no more what identifies it: known by the cookie behind a UDP header that follows an IP header without options,
 * whatever the headers say, or else by its port: then who reads the event compares the source.
 */
static __always_inline bool find_damaged(struct view *view, __u32 network, bool ipv6, __u32 reason, struct damaged *damaged)
{
	__u8 bytes[UDP_HEADER + PROBE_BYTES];
	__u32 cookie;
	__u16 port;
	struct flow *flow;
	bool is_damaged = false;
	bool port_tells = false;

	for (int i = 0; i < DAMAGE_REASONS; i++) {
		if (damage_reasons[i] && damage_reasons[i] == reason) {
			/* Over IPv4 the later ones are for whole packets alone. */
			is_damaged = ipv6 || i < DAMAGE_REASONS_BY_PORT;
			port_tells = i < DAMAGE_REASONS_BY_PORT;
		}
	}
	if (!is_damaged || !read(view, network + (ipv6 ? IPV6_HEADER : IPV4_HEADER), bytes, sizeof(bytes)))
		return false;
	parse_probe(bytes + UDP_HEADER, &cookie, &damaged->sequence);
	port = bytes[2] << 8 | bytes[3];
	flow = bpf_map_lookup_elem(&by_cookie, &cookie);
	damaged->is_identified = flow;
	if (!flow && port_tells && damaged->sequence < FIRST_RESERVED)
		flow = bpf_map_lookup_elem(&by_port, &port);
	if (!flow)
		return false;
	damaged->flow = *flow;
	if (!damaged->is_identified) {
		damaged->source_port = bytes[0] << 8 | bytes[1];
		if (!read(view, network + (ipv6 ? 8 : 12), damaged->source, ipv6 ? 16 : 4))
			return false;
	}
	return true;
}

static __always_inline int dropped(__u64 *ctx, __u32 of)
{
	/* TP_PROTO(struct sk_buff *skb, void *location, enum skb_drop_reason reason[, struct sock *rx_sk]) */
	struct sk_buff *skb = (struct sk_buff *)ctx[0];
	__u16 protocol = skb->protocol;
	bool ipv6 = protocol == bpf_htons(ETH_P_IPV6);

	if (!ipv6 && protocol != bpf_htons(ETH_P_IP))
		return 0;

	struct walk walk;
	struct view *view = &walk.view;
	struct found found;
	struct flow flow;
	__u64 sequence;
	__u32 network = skb->network_header;

	view_of(view, skb);
	/* Unset until the stack takes over from the driver. */
	if (network == 0)
		network = skb->mac_header == MAC_HEADER_UNSET ? view->data : skb->mac_header + ETHERNET_HEADER;
	find_udp(view, network, ipv6, &found);

	bool is_later = found.is_fragment && found.offset && has_fragments;
	bool is_ours = false;
	bool is_damaged = false;
	/* 6.1 lets no program read what is unset, not even for nothing. */
	struct damaged damaged = {};

	/* In every branch, or the verifier takes it for unset in the callback. If it fails, reading through it fails, too. */
	if (has_dynptr)
		bpf_dynptr_from_skb(skb, 0, &view->dynptr);
	if (found.udp && !is_later)
		is_ours = read_ours(view, &found, &flow, &sequence);
	if (!is_ours && !is_later) {
		is_damaged = find_damaged(view, network, ipv6, ctx[2], &damaged);
		if (!is_damaged)
			return 0;
		flow = damaged.flow;
		sequence = damaged.sequence;
		found.is_fragment = false;
	}

	struct drop_event *event = bpf_map_lookup_elem(&scratch, &of);

	if (!event)
		return 0;
	event->time_ns = bpf_ktime_get_ns();
	event->location = ctx[1];
	event->reason = ctx[2];
	event->flags = ipv6 ? DROP_IPV6 : 0;
	event->unit_packets = 1;
	event->count = 1;
	event->fragment_offset = found.offset;
	event->fragment_bytes = 0;
	if (found.is_fragment) {
		event->flags |= DROP_FRAGMENT;
		event->fragment_bytes = found.bytes;
	}
	if (is_damaged && !damaged.is_identified)
		event->flags |= DROP_UNIDENTIFIED;
	find_namespace(event, skb, has_receiving_socket ? (struct sock *)ctx[3] : (void *)0);
	if (is_foreign(event))
		return 0;
	if (is_later) {
		drop_part(event, &found);
		return 0;
	}
	event->cookie = flow.cookie;
	event->port = flow.port;

	__u32 payload = found.udp + UDP_HEADER;
	struct skb_shared_info *shared = (struct skb_shared_info *)(skb->head + skb->end);
	__u32 gso_size = BPF_CORE_READ(shared, gso_size);

	/* UFO, a virtio guest's, has one UDP header for all its fragments: one packet. */
	if (!is_damaged && gso_size >= PROBE_BYTES && BPF_CORE_READ(shared, gso_type) & SKB_GSO_UDP_L4) {
		event->flags |= DROP_GSO;
		event->unit_packets = (view->end - payload + gso_size - 1) / gso_size;
		event->count = 0;
		walk.offset = payload;
		walk.gso_size = gso_size;
		walk.cookie = flow.cookie;
		walk.of = of;
		bpf_loop(MAX_SEGMENTS, read_segment, &walk, 0);
		if (event->count)
			submit(event);
	} else if (event->flags & DROP_UNIDENTIFIED) {
		event->fragment_offset = damaged.source_port;
		event->sequences[0] = damaged.source[0];
		event->sequences[1] = damaged.source[1];
		event->count = 2;
		submit(event);
	} else {
		event->sequences[0] = sequence;
		submit(event);
	}
	return 0;
}

SEC("tp_btf/kfree_skb")
int on_drop(__u64 *ctx)
{
	__u32 zero = 0;
	__u32 *runs = bpf_map_lookup_elem(&running, &zero);

	if (!runs)
		return 0;
	*runs = 1;
	barrier();
	dropped(ctx, OF_DROP);
	barrier();
	*runs = 0;
	return 0;
}

/*
 * The kernel does not run a program in an interrupt of itself on the same CPU. So a twin takes the drops of such an interrupt.
 */
SEC("tp_btf/kfree_skb")
int on_nested_drop(__u64 *ctx)
{
	__u32 zero = 0;
	__u32 *runs = bpf_map_lookup_elem(&running, &zero);

	if (!runs || !*(volatile __u32 *)runs)
		return 0;
	__sync_fetch_and_add(&nested_runs, 1);
	return dropped(ctx, OF_NESTED);
}

/* The helpers and the tracepoint are for GPL-compatible programs. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
