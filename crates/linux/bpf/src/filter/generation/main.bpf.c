// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Never attached: whoever follows the host runs these (BPF_PROG_TEST_RUN) to learn the kernel's routing generations, and which network
 * namespace they are of. A test run returns 32 bits. It
 * comes in by the loopback interface of the network namespace that the caller is in.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "filter/device.h"

SEC("xdp")
int generation_v4(struct xdp_md *context)
{
	return ipv4_generation(device_of(context));
}

SEC("xdp")
int generation_v6(struct xdp_md *context)
{
	return ipv6_generation(device_of(context));
}

SEC("xdp")
int namespace_low(struct xdp_md *context)
{
	return namespace_of(device_of(context));
}

SEC("xdp")
int namespace_high(struct xdp_md *context)
{
	return namespace_of(device_of(context)) >> 32;
}

/* What the kernel has of its own is for GPL-compatible programs. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
