// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * For tests: programs that drop the UDP datagrams to one port and let all else pass; and those that do nothing else than drop or pass,
 * as others' programs and to compare costs with.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

/* <linux/bpf.h>: user-space ABI; the kernel turns these fields into its own. */
struct xdp_md {
	__u32 data;
	__u32 data_end;
};

struct __sk_buff;

enum { XDP_DROP = 1, XDP_PASS = 2 };
enum { TC_ACT_OK = 0, TC_ACT_SHOT = 2 };

const volatile __u16 port;

SEC("xdp")
int xdp_drop(struct xdp_md *context)
{
	unsigned char *data = (unsigned char *)(long)context->data;
	unsigned char *end = (unsigned char *)(long)context->data_end;

	/* Ethernet 14, IPv4 20, UDP 8. */
	if (data + 42 > end || data[12] != 8 || data[13] != 0 || data[23] != IPPROTO_UDP)
		return XDP_PASS;
	return (data[36] << 8 | data[37]) == port ? XDP_DROP : XDP_PASS;
}

SEC("tc")
int tc_drop(struct __sk_buff *skb)
{
	unsigned char frame[42];

	if (bpf_skb_load_bytes(skb, 0, frame, sizeof(frame)) || frame[12] != 8 || frame[23] != IPPROTO_UDP)
		return TC_ACT_OK;
	return (frame[36] << 8 | frame[37]) == port ? TC_ACT_SHOT : TC_ACT_OK;
}

SEC("xdp")
int bare_pass(struct xdp_md *context)
{
	return XDP_PASS;
}

SEC("xdp")
int bare_drop(struct xdp_md *context)
{
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
