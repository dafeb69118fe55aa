/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What main.bpf.c and enabled.rs exchange. Numbers are in the host's byte order, but for addresses and ports.
 */
#ifndef LONGHAUL_TCP_LOSS_INTF_H
#define LONGHAUL_TCP_LOSS_INTF_H

/* Connections that one program watches, each with two keys. */
#define MAX_CONNECTIONS 256
/* Different kinds of drops. */
#define MAX_KINDS 4096

/* Key of the map `connections`: a packet's addresses and ports as the wire has them, IPv4 as ::ffff:a.b.c.d. */
struct tuple {
	__u32 source[4];
	__u32 destination[4];
	__u16 source_port;
	__u16 destination_port;
};

enum packet_flags {
	FROM_HERE = 1, /* from this end to the other */
	TASKS_NAMESPACE = 2, /* neither socket nor device tells: it is that of the task that ran */
	SOCKETS_OWN = 8, /* the receiving socket dropped it */
};

/* Key of the map `drops`. */
struct kind {
	__u64 location; /* return address of kfree_skb's caller */
	__u32 connection;
	__u32 reason; /* enum skb_drop_reason; its numbers are not ABI */
	__u32 netns_inum; /* 0: unknown */
	__u32 flags; /* enum packet_flags */
};

/* What was dropped: packets as the wire has them, and bytes of their IP packets. */
struct sum {
	__u64 packets;
	__u64 bytes;
};

/* What one connection retransmitted. */
struct again {
	__u64 packets;
	__u64 payload_bytes;
	__u64 ip_bytes;
};

_Static_assert(sizeof(struct tuple) == 36 && sizeof(struct kind) == 24 && sizeof(struct again) == 24, "enabled.rs has the same");

#endif
