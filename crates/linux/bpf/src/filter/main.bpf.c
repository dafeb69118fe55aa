// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts frames for this host and other frames, and drops the others on request, before the stack spends anything on them (XDP).
 *
 * The algorithm is NIMA's. It accepts unicast to this host, multicast that it joined, ARP for its addresses, and broadcast that cannot
 * be judged, and rejects the rest. Beyond the paper are IP addresses, IPv6 neighbour discovery, VLAN tags, closed ports, and
 * exceptions without which a host would lose its network. docs/reference/filter.md has every reason.
 *
 * The program reads MAC addresses, joined groups, and whether a bridge or bond has taken the interface over, from the kernel's memory
 * (device.h). It cannot look up local IP addresses there (bpf_fib_lookup fails where forwarding is off). They are in a map, with the
 * routing generation at which they were read. While the kernel's generation differs, the program passes what the map would reject. In
 * another network namespace than that of the map it passes everything.
 *
 * A rejected frame is dropped only while the filter enforces; otherwise it is counted and passes.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "filter/intf.h"
#include "filter/device.h"
#include "filter/parse.h"
#include "filter/maps.h"
#include "filter/judge.h"

enum { XDP_DROP = 1, XDP_PASS = 2 };

static __always_inline __u32 size_of(__u64 bytes)
{
	/* With FCS. */
	bytes += 4;
	return bytes <= 64 ? 0 : bytes < 128 ? 1 : bytes < 256 ? 2 : bytes < 512 ? 3 : bytes < 1024 ? 4 : bytes <= 1518 ? 5 : 6;
}

static __always_inline void add(struct tally *tally, __u64 bytes)
{
	tally->packets++;
	tally->bytes += bytes;
}

static __always_inline void send_sample(struct question *q, struct filter_counters *all, enum filter_reason reason,
					__u64 bytes)
{
	struct filter_sampling *wanted;
	struct filter_sample *sample;
	__u64 every, snippet = bytes;
	__u32 zero = 0;

	wanted = bpf_map_lookup_elem(&sampling, &zero);
	/* Where nobody reads samples the clock is not read. */
	if (!wanted || !wanted->until_ns || bpf_ktime_get_coarse_ns() >= wanted->until_ns)
		return;
	every = wanted->every;
	if (every > 1 && all->samples_seen++ % every)
		return;
	sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	if (!sample) {
		all->samples_lost++;
		return;
	}
	if (snippet > SAMPLE_BYTES)
		snippet = SAMPLE_BYTES;
	sample->at_ns = bpf_ktime_get_ns();
	sample->frame_bytes = bytes;
	sample->reason = reason;
	sample->class = q->parsed.class;
	/* The verifier must see that it is not 0. */
	if (snippet < 1 || bpf_xdp_load_bytes(q->context, 0, sample->snippet, snippet))
		snippet = 0;
	sample->snippet_bytes = snippet;
	bpf_ringbuf_submit(sample, 0);
}

/*
 * A shortcut for most frames to this host: TCP and UDP with plain headers, to the interface's MAC address and to the IP address that
 * this CPU found to be local last. Each test is one of judge(); a frame that fails one goes to judge(). PLAINS: not such a frame.
 */
static __always_inline __u32 plainly_ours(struct xdp_md *context, const unsigned char *data, const unsigned char *end,
					  __u64 bytes, const struct filter_followed *followed, const struct filter_recent *recent)
{
	/* Read before the address, as in is_local_ipv4(). */
	__u64 told = *(const volatile __u64 *)&followed->told;
	struct net_device___filter *dev;
	const unsigned char *transport;
	__u32 plain, protocol, port, headers, packet_end;
	__u16 type;

	if ((lasting & JUDGE_PORTS) || data + ETHERNET_BYTES + IPV4_BYTES + 4 > end)
		return PLAINS;
	type = *(const __u16 *)(data + 12);
	if (type == bpf_htons(ETH_P_IP)) {
		if (data[14] != 0x45 || recent->v4 != *(const __be32 *)(data + 30) || recent->told_v4 != told)
			return PLAINS;
		protocol = data[23];
		transport = data + ETHERNET_BYTES + IPV4_BYTES;
		headers = ETHERNET_BYTES + IPV4_BYTES;
		packet_end = ETHERNET_BYTES + be16(data + 16);
		plain = PLAIN_IPV4_TCP;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		if (data + ETHERNET_BYTES + IPV6_BYTES + 4 > end || data[14] >> 4 != 6 || recent->told_v6 != told ||
		    recent->v6[0] != *(const __u64 *)(data + 38) || recent->v6[1] != *(const __u64 *)(data + 46))
			return PLAINS;
		protocol = data[20];
		transport = data + ETHERNET_BYTES + IPV6_BYTES;
		headers = ETHERNET_BYTES + IPV6_BYTES;
		packet_end = headers + be16(data + 18);
		plain = PLAIN_IPV6_TCP;
	} else {
		return PLAINS;
	}
	/* The ports are in the packet, and the packet is in the frame. */
	if (packet_end < headers + 4 || packet_end > bytes)
		return PLAINS;
	if (protocol == IPPROTO_UDP) {
		port = *(const __be16 *)(transport + 2);
		/* judge() counts DHCP of either family apart. */
		if (port == bpf_htons(67) || port == bpf_htons(68) || port == bpf_htons(546) || port == bpf_htons(547))
			return PLAINS;
		plain++;
	} else if (protocol != PROTOCOL_TCP) {
		return PLAINS;
	}
	dev = device_of(context);
	if ((dev->rx_handler && !(lasting & FORCED)) || mac_at(data) != own_mac(dev))
		return PLAINS;
	return plain;
}

SEC("xdp.frags")
int longhaul_filter(struct xdp_md *context)
{
	struct question q = {
		.context = context,
		.data = (const unsigned char *)(long)context->data,
		.end = (const unsigned char *)(long)context->data_end,
	};
	__u64 bytes = bytes_of(context);
	struct filter_counters *all;
	enum filter_reason reason;
	__u32 zero = 0, rejected, plain;

	all = bpf_map_lookup_elem(&counters, &zero);
	q.followed = bpf_map_lookup_elem(&followed, &zero);
	if (!all || !q.followed || q.data + ETHERNET_BYTES > q.end)
		return XDP_PASS;
	plain = plainly_ours(context, q.data, q.end, bytes, q.followed, &all->recent);
	if (plain < PLAINS) {
		add(&all->plain[plain][size_of(bytes)], bytes);
		return XDP_PASS;
	}
	q.config = bpf_map_lookup_elem(&settings, &zero);
	if (!q.config)
		return XDP_PASS;
	/* Most frames need no call. With all of it inline the verifier would take ten times as long. */
	if (be16(q.data + 12) == ETH_P_IP) {
		begin(&q.parsed, q.data, bytes);
		q.parsed.network_at = ETHERNET_BYTES;
		q.parsed.type = ETH_P_IP;
		parse_ipv4(&q.parsed, q.data, q.end);
	} else if (!parse_frame(context, &q.parsed)) {
		return XDP_PASS;
	}
	q.dev = device_of(context);
	q.recent = &all->recent;
	reason = judge(&q);
	/* Another host may forward, bridge or capture what this one had no use for. */
	if (reason >= ACCEPTED_REASONS && !is_at_home(&q))
		reason = DOUBTFUL;
	rejected = reason >= ACCEPTED_REASONS;
	/* parse and judge stay within their ranges, but the verifier cannot know that. */
	if (q.parsed.class >= CLASSES || q.parsed.cast >= CASTS || reason >= REASONS)
		return XDP_PASS;
	add(&all->protocol[q.parsed.class][q.parsed.cast][rejected], bytes);
	add(&all->size[size_of(bytes)][rejected], bytes);
	add(&all->reason[reason], bytes);
	if (!rejected)
		return XDP_PASS;
	send_sample(&q, all, reason, bytes);
	if (!(q.config->flags & ENFORCE))
		return XDP_PASS;
	if (q.config->enforce_until_ns && bpf_ktime_get_coarse_ns() >= q.config->enforce_until_ns)
		return XDP_PASS;
	all->dropped++;
	return XDP_DROP;
}

/* Only GPL-compatible programs may use the kernel's functions. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
