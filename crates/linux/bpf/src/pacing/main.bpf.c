// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Paces the TCP connections of a cgroup: sets SO_MAX_PACING_RATE before a SYN is sent, and when a connection of a listener is established. A
 * program that sets the option itself later has its way.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

/* <linux/bpf.h>, user-space ABI. */
enum { BPF_SOCK_OPS_TCP_CONNECT_CB = 3, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5 };

#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47

struct bpf_sock_ops {
	__u32 op;
};

/* Bytes a second. */
const volatile __u32 rate = 0xffffffff;

/* Connections that are paced, and those that the kernel refused it. */
__u64 paced = 0;
__u64 refused = 0;

SEC("sockops")
int pace(struct bpf_sock_ops *context)
{
	__u32 wanted = rate;

	if (context->op != BPF_SOCK_OPS_TCP_CONNECT_CB && context->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	/* It takes 32 bits here, and no more. */
	if (bpf_setsockopt(context, SOL_SOCKET, SO_MAX_PACING_RATE, &wanted, sizeof(wanted)))
		__sync_fetch_and_add(&refused, 1);
	else
		__sync_fetch_and_add(&paced, 1);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
