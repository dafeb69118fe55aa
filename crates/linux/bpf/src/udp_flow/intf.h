/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What main.bpf.c and enabled.rs exchange. Numbers are in the host's byte order, but for addresses and peers' ports, which are as the
 * wire has them. IPv4 addresses are ::ffff:a.b.c.d.
 */
#ifndef LONGHAUL_UDP_FLOW_INTF_H
#define LONGHAUL_UDP_FLOW_INTF_H

/* Sockets whose programs sent or received. */
#define MAX_SOCKETS 16384
/* Pairs of a port and a peer. What finds no room is counted for the port alone: peer 0. */
#define MAX_FLOWS 16384
/* Different kinds of drops, each with its peer. */
#define MAX_KINDS 16384
/* Parents, their parents and so on that a socket's owner names. */
#define MAX_ANCESTORS 16

/* Key of the map `flows`. */
struct flow_key {
	__u32 local[4];
	__u32 peer[4];
	__u16 peer_port;
	__u16 local_port; /* in the host's byte order */
};

struct flow_sum {
	__u64 sent; /* datagrams that IP gave to an interface */
	__u64 sent_bytes; /* their payload */
	__u64 arrived; /* datagrams that an interface gave to the stack */
	__u64 arrived_bytes;
};

/* Value of the map `sockets`, by cookie. */
struct socket_sum {
	__u64 began_ns; /* its program first sent or received, on CLOCK_MONOTONIC */
	__u64 read; /* calls that received something */
	__u64 read_bytes;
	__u64 cgroup_id; /* of the process that did, version 2 */
	__u32 pid; /* what the kernel calls tgid */
	__u32 ancestors[MAX_ANCESTORS]; /* the parent first; 0 where there are no more */
	char comm[16];
	__u32 local_port;
};

enum drop_flags {
	FROM_HERE = 1, /* sent by the socket */
	TASKS_NAMESPACE = 2, /* neither socket nor device tells: it is that of the task that ran */
};

/* Key of the map `drops`. */
struct drop_kind {
	__u64 location; /* return address of kfree_skb's caller */
	__u32 peer[4];
	__u32 reason; /* enum skb_drop_reason; its numbers are not ABI */
	__u32 flags; /* enum drop_flags */
	__u16 peer_port;
	__u16 local_port; /* in the host's byte order */
	__u32 zero;
};

struct drop_sum {
	__u64 datagrams;
	__u64 bytes; /* of their payload */
};

_Static_assert(sizeof(struct flow_key) == 36 && sizeof(struct flow_sum) == 32, "event.rs has the same");
_Static_assert(sizeof(struct socket_sum) == 120 && sizeof(struct drop_kind) == 40, "event.rs has the same");

#endif
