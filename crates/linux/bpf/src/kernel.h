/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel types that longhaul's BPF programs use, each with only the fields they read.
 *
 * CO-RE: the offsets here mean nothing. The loader takes those of the running kernel from its BTF, so one object file runs on
 * many kernels. What a kernel lacks is asked for with bpf_core_field_exists and the like.
 */
#ifndef LONGHAUL_KERNEL_H
#define LONGHAUL_KERNEL_H

#include "types.h"

/* <linux/bpf.h>, user-space ABI. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,

	BPF_ANY = 0,
	BPF_NOEXIST = 1,

	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
};

struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

#define IPPROTO_UDP 17
#define IPPROTO_FRAGMENT 44
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	struct nsproxy *nsproxy;
};

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

struct sock_common {
	possible_net_t skc_net;
};

struct sock {
	struct sock_common __sk_common;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	unsigned int data_len;
	__be16 protocol;
	__u16 network_header;
	__u16 mac_header;
	/* An offset from head on 64-bit kernels, the only ones that longhaul runs on. */
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
};

struct skb_shared_info {
	unsigned short gso_size;
	unsigned int gso_type;
};

#pragma clang attribute pop

/* <linux/skbuff.h>; not ABI: ask for the value with bpf_core_enum_value. */
enum {
	SKB_GSO_UDP_L4 = 1 << 17,
};

#endif
