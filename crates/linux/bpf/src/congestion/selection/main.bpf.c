// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Gives a congestion control to the TCP connections of a cgroup, or to those with certain remote addresses: before a SYN is sent, and when
 * a connection of a listener is established. What the program itself selects with setsockopt later, it gets.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

/* <linux/bpf.h>, user-space ABI. */
enum { BPF_SOCK_OPS_TCP_CONNECT_CB = 3, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5 };

#define AF_INET 2
#define IPPROTO_TCP 6
#define TCP_CONGESTION 13
#define NAME_BYTES 16
#define MOST_DESTINATIONS 16

struct bpf_sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
};

/* In network byte order; IPv4 as ::ffff:a.b.c.d. */
struct destination {
	__u32 address[4];
	__u32 mask[4];
};

const volatile unsigned char control[NAME_BYTES];
const volatile struct destination destinations[MOST_DESTINATIONS];
/* 0: any. */
const volatile __u32 destination_count;

/* Connections that got the control, and those that the kernel refused it. */
__u64 selected = 0;
__u64 refused = 0;

static __always_inline bool is_in(const __u32 remote[4], const volatile struct destination *destination)
{
	__u32 differs = 0;
	int word;

	for (word = 0; word < 4; word++)
		differs |= (remote[word] & destination->mask[word]) ^ destination->address[word];
	return !differs;
}

SEC("sockops")
int select_control(struct bpf_sock_ops *context)
{
	__u32 remote[4] = { 0, 0, __builtin_bswap32(0xffff), 0 };
	char name[NAME_BYTES];
	bool wanted = destination_count == 0;
	__u32 index;

	if (context->op != BPF_SOCK_OPS_TCP_CONNECT_CB && context->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	if (context->family == AF_INET) {
		remote[3] = context->remote_ip4;
		/* clang must not make one load of this and the last of the others: the verifier takes no computed pointer into the context. */
		asm volatile("" : "+r"(remote[3]));
	} else {
		remote[0] = context->remote_ip6[0];
		remote[1] = context->remote_ip6[1];
		remote[2] = context->remote_ip6[2];
		remote[3] = context->remote_ip6[3];
	}
	for (index = 0; index < MOST_DESTINATIONS; index++)
		if (index < destination_count && is_in(remote, &destinations[index]))
			wanted = true;
	if (!wanted)
		return 1;
	for (index = 0; index < NAME_BYTES; index++)
		name[index] = control[index];
	if (bpf_setsockopt(context, IPPROTO_TCP, TCP_CONGESTION, name, NAME_BYTES))
		__sync_fetch_and_add(&refused, 1);
	else
		__sync_fetch_and_add(&selected, 1);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
