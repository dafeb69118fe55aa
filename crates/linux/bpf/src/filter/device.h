/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reads the receiving interface in the kernel's own memory. The program sees a changed address or a new group from the next frame on,
 * and user space need not tell it.
 *
 * bpf_cast_to_kern_ctx (Linux 6.2) gives access. Lists are walked under RCU, as the kernel does: an entry that exists before and
 * after the walk is seen.
 */
#ifndef LONGHAUL_FILTER_DEVICE_H
#define LONGHAUL_FILTER_DEVICE_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

struct netdev_hw_addr {
	struct list_head list;
	unsigned char addr[32];
};

struct netdev_hw_addr_list {
	struct list_head list;
	int count;
};

typedef struct {
	int counter;
} atomic_t;

struct netns_ipv4 {
	atomic_t rt_genid;
};

struct netns_ipv6 {
	atomic_t fib6_sernum;
};

struct net___filter {
	__u64 net_cookie;
	struct netns_ipv4 ipv4;
	struct netns_ipv6 ipv6;
};

typedef struct {
	struct net___filter *net;
} possible_net_t___filter;

struct ipv6_devconf___filter {
	__s32 force_forwarding; /* Linux 6.17 */
};

struct inet6_dev___filter {
	struct ipv6_devconf___filter cnf;
};

struct net_device___filter {
	unsigned int flags;
	const unsigned char *dev_addr;
	struct netdev_hw_addr_list uc;
	struct netdev_hw_addr_list mc;
	void *rx_handler;
	possible_net_t___filter nd_net;
	struct inet6_dev___filter *ip6_ptr;
	struct {
		struct list_head upper;
	} adj_list;
};

struct xdp_rxq_info {
	struct net_device___filter *dev;
};

struct xdp_buff {
	struct xdp_rxq_info *rxq;
	__u32 flags;
};

#pragma clang attribute pop

/* <linux/bpf.h>: user-space ABI; the kernel turns these fields into its own. */
struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

extern void *bpf_cast_to_kern_ctx(void *context) __ksym;
extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym;

/* <linux/if.h> */
#define IFF_ALLMULTI 0x200
/* <net/xdp.h> */
#define XDP_FLAGS_HAS_FRAGS 1

/* The most entries of a list that are walked; what may be among the others passes. */
#define MOST_ADDRESSES 128

enum listed { NOT_LISTED, IS_LISTED, TOO_MANY };

/* Six bytes in memory order. */
static __always_inline __u64 mac_at(const void *bytes)
{
	return *(const __u64 *)bytes & 0xffffffffffffULL;
}

static __always_inline struct netdev_hw_addr *hardware_address(const void *at)
{
	return bpf_rdonly_cast(at, bpf_core_type_id_kernel(struct netdev_hw_addr));
}

static __always_inline __u64 own_mac(struct net_device___filter *dev)
{
	/* The verifier does not follow a pointer to bytes, so name the structure around them. */
	const void *bytes = dev->dev_addr;
	struct netdev_hw_addr *address =
		hardware_address(bytes - bpf_core_field_offset(struct netdev_hw_addr, addr));

	return mac_at(address->addr);
}

static __always_inline enum listed is_listed(struct netdev_hw_addr_list *list, __u64 mac)
{
	struct list_head *end = &list->list, *at;
	int number;

	at = list->list.next;
	for (number = 0; number < MOST_ADDRESSES; number++) {
		struct netdev_hw_addr *address;

		if (at == end)
			return NOT_LISTED;
		address = hardware_address(at);
		if (mac_at(address->addr) == mac)
			return IS_LISTED;
		at = address->list.next;
	}
	return TOO_MANY;
}

/* VLAN interfaces, macvlan, ipvlan, VRF, bridges, bonds: they may be in other namespaces, with their own addresses. */
static __always_inline bool has_uppers(struct net_device___filter *dev)
{
	return dev->adj_list.upper.next != &dev->adj_list.upper;
}

/*
 * Numbers that change with every change of a routing table. Local addresses are routes of the table `local`, by which the kernel
 * decides what it delivers to itself.
 */
static __always_inline __u32 ipv4_generation(struct net_device___filter *dev)
{
	return dev->nd_net.net->ipv4.rt_genid.counter;
}

static __always_inline __u32 ipv6_generation(struct net_device___filter *dev)
{
	return dev->nd_net.net->ipv6.fib6_sernum.counter;
}

/* The network namespace of now: an interface can be moved, and its programs go along. No other one has had this number since boot. */
static __always_inline __u64 namespace_of(struct net_device___filter *dev)
{
	return dev->nd_net.net->net_cookie;
}

/* Turning it on changes no route. */
static __always_inline bool is_forced_to_forward(struct net_device___filter *dev)
{
	struct inet6_dev___filter *ipv6;

	if (!bpf_core_field_exists(struct ipv6_devconf___filter, force_forwarding))
		return false;
	ipv6 = dev->ip6_ptr;
	return ipv6 && ipv6->cnf.force_forwarding;
}

/* Bytes of the frame. Asking the kernel is a call, which only frames of several pages need. */
static __always_inline __u64 bytes_of(struct xdp_md *context)
{
	struct xdp_buff *buffer = bpf_cast_to_kern_ctx(context);

	return buffer->flags & XDP_FLAGS_HAS_FRAGS ? bpf_xdp_get_buff_len(context) : context->data_end - context->data;
}

static __always_inline struct net_device___filter *device_of(struct xdp_md *context)
{
	struct xdp_buff *buffer = bpf_cast_to_kern_ctx(context);

	return buffer->rxq->dev;
}

#endif
