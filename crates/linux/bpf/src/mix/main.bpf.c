// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Makes the frames of a mix. BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES (Linux 5.18) gives it a frame in a recycled page. The program
 * writes a template over the page, numbers the frames of the stream, and redirects the frame to the interface.
 *
 * The tracepoint xdp:xdp_devmap_xmit reports which frames the driver took, for up to 16 frames at once in their order: the first `sent`
 * were sent, the others dropped. Frames wait in `pending` for this report, so each class is counted exactly.
 *
 * Several threads may run it at once, each on its own CPU. Each has its own share: every n-th frame, and the counts of these frames.
 * All threads share the stream's sequence.
 */
#include "types.h"

/* <linux/bpf.h>, user-space ABI. */
enum { BPF_MAP_TYPE_ARRAY = 2 };
enum { XDP_ABORTED = 0, XDP_DROP = 1 };

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "mix/intf.h"

/* 64 bytes with FCS. */
#define SHORTEST_FRAME 60
const volatile __u64 seed;
const volatile __u32 templates_count = 1;
/* 0: frames are made and dropped, which tells what making them costs. */
const volatile __u32 ifindex;
const volatile __u32 cookie;
/* The process that has this program run: tracepoints tell of others' frames, too. */
const volatile __u32 process;
/* What each frame is before the program changes it. */
const volatile __u32 longest;

/* Whether a share is a CPU's; otherwise there is one, whichever CPU its thread is on. */
const volatile bool share_by_cpu;

/* Of the next frame of the stream. */
__u64 sequence = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* as many as user space wants */
	__type(key, __u32);
	__type(value, struct share);
} shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_TEMPLATES);
	__type(key, __u32);
	__type(value, struct column);
} columns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_TEMPLATES);
	__type(key, __u32);
	__type(value, struct template);
} templates SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net_device {
	int ifindex;
};

#pragma clang attribute pop

static __always_inline struct share *own_share(void)
{
	__u32 slot = share_by_cpu ? bpf_get_smp_processor_id() : 0;

	return bpf_map_lookup_elem(&shares, &slot);
}

/* As crates/endpoint/mix/src/draw.rs has it. */
static __always_inline __u64 random(__u64 number)
{
	__u64 z = seed + (number + 1) * 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

struct probe {
	__be16 checksum;
	__be32 cookie;
	__be16 sequence_high;
	__be32 sequence_low;
	__be32 sent_high;
	__be32 sent_low;
} __attribute__((packed));

static __always_inline __u32 words(__u32 value)
{
	return (value >> 16) + (value & 0xffff);
}

/* UDP's checksum, and the probe header behind it (crates/foundation/wire/src/probe.rs). */
static __always_inline int number(struct xdp_md *ctx, __u32 probe_at, __u16 checksum)
{
	__u64 own = share_by_cpu ? __sync_fetch_and_add(&sequence, 1) : sequence++;
	__u64 now = bpf_ktime_get_ns();
	struct probe probe = {
		.cookie = bpf_htonl(cookie),
		.sequence_high = bpf_htons(own >> 32),
		.sequence_low = bpf_htonl(own),
		.sent_high = bpf_htonl(now >> 32),
		.sent_low = bpf_htonl(now),
	};
	/* RFC 1624, Eq. 3; the template has zeros where the header is. */
	__u32 sum = (__u16)~checksum;

	sum += words(cookie) + (__u16)(own >> 32) + words(own) + words(now >> 32) + words(now);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~sum & 0xffff;
	probe.checksum = bpf_htons(sum ? sum : 0xffff);
	return bpf_xdp_store_bytes(ctx, probe_at - sizeof(probe.checksum), &probe, sizeof(probe));
}

/* The template over what the page had. The shortest frames are most of what is sent at high rates: for them without a call. */
static __always_inline int write(struct xdp_md *ctx, const struct template *template, __u32 length)
{
	__u64 *to = (__u64 *)(long)ctx->data;
	const __u64 *from = (const __u64 *)template->bytes;
	int at;

	if (length != SHORTEST_FRAME || (void *)to + SHORTEST_FRAME > (void *)(long)ctx->data_end)
		return bpf_xdp_store_bytes(ctx, 0, (void *)template->bytes, length);
#pragma unroll
	for (at = 0; at < SHORTEST_FRAME / 8; at++)
		to[at] = from[at];
	*(__u32 *)(to + at) = *(const __u32 *)(from + at);
	return 0;
}

SEC("xdp")
int make_frame(struct xdp_md *ctx)
{
	struct share *share = own_share();
	struct template *template;
	struct column *column;
	__u32 choice, length;
	__u64 bits;

	if (!share)
		return XDP_ABORTED;
	bits = random(share->next);
	choice = ((bits >> 32) * templates_count) >> 32;
	share->next += share->step;
	share->made++;
	column = bpf_map_lookup_elem(&columns, &choice);
	if (!column)
		goto broken;
	if ((__u32)bits >= column->threshold)
		choice = column->other;
	template = bpf_map_lookup_elem(&templates, &choice);
	if (!template)
		goto broken;
	length = template->length;
	if (length == 0 || length > MAX_FRAME)
		goto broken;
	if (length != longest && bpf_xdp_adjust_tail(ctx, (int)length - (int)longest))
		goto broken;
	if (write(ctx, template, length))
		goto broken;
	if (template->probe_at && number(ctx, template->probe_at, template->checksum))
		goto broken;
	if (!ifindex) {
		share->sent[choice & (MAX_TEMPLATES - 1)]++;
		return XDP_DROP;
	}
	/* Full only where the kernel refuses frames before a driver sees them, as of an interface that is down. */
	if (share->pending_tail - share->pending_head >= PENDING)
		share->pending_head = share->pending_tail;
	share->pending[share->pending_tail & (PENDING - 1)] = choice;
	share->pending_tail++;
	return bpf_redirect(ifindex, 0);
broken:
	share->broken++;
	return XDP_ABORTED;
}

/* TP_PROTO(const struct net_device *from_dev, const struct net_device *to_dev, int sent, int drops, int err) */
SEC("tp_btf/xdp_devmap_xmit")
int on_xmit(__u64 *ctx)
{
	struct net_device *to = (struct net_device *)ctx[1];
	int sent = ctx[2], drops = ctx[3], error = ctx[4];
	struct share *share;
	int at;

	if (bpf_get_current_pid_tgid() >> 32 != process || BPF_CORE_READ(to, ifindex) != ifindex)
		return 0;
	share = own_share();
	if (!share)
		return 0;
	for (at = 0; at < PENDING && at < sent + drops; at++) {
		__u32 choice = share->pending[share->pending_head & (PENDING - 1)] & (MAX_TEMPLATES - 1);

		if (share->pending_head == share->pending_tail)
			break;
		share->pending_head++;
		if (at < sent)
			share->sent[choice]++;
	}
	if (drops && error)
		share->last_error = error;
	return 0;
}

/* The tracepoint is for GPL-compatible programs. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
