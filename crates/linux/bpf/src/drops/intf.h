/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What main.bpf.c and event.rs exchange. Numbers are in the host's byte order.
 */
#ifndef LONGHAUL_DROPS_INTF_H
#define LONGHAUL_DROPS_INTF_H

/* (port, cookie) pairs that one program watches: 128 streams, each way. */
#define MAX_FLOWS 256
/* Sequence numbers in one event: all that GRO merges. A batch of UDP_SEGMENT, up to 128, may become two events. */
#define MAX_SEQUENCES 64
/* Segments looked at in one super-packet: 64 KiB of the smallest payload that holds a probe header. */
#define MAX_SEGMENTS 4096

/* Key of the map `flows`. */
struct flow {
	__u32 cookie;
	__u16 port; /* UDP destination */
	__u16 zero;
};

enum drop_flags {
	DROP_GSO = 1,	       /* a super-packet */
	DROP_IPV6 = 2,
	DROP_CONTINUED = 8,    /* another event of the same super-packet came before */
	DROP_TASKS_NAMESPACE = 16, /* neither device nor socket tells: it is that of the task that ran */
	DROP_FRAGMENT = 32, /* a fragment of the datagram alone */
	/*
	 * Damaged, and known by its port alone: its cookie and sequence number are none, and the cookie told is the flow's. fragment_offset
	 * is its source port, and the first 16 bytes of `sequences` its source address (of IPv4 the first four).
	 */
	DROP_UNIDENTIFIED = 64,
};

/*
 * Key of the map `unrecorded`: drops for whose event the ring had no room, counted by what tells their place.
 */
struct unrecorded_key {
	__u64 location;
	__u32 reason;
	__u32 cookie;
	__u32 flags; /* enum drop_flags, those of one skb */
	__u32 zero;
};

struct unrecorded {
	__u64 skbs;
	__u64 packets;
};

/* Different keys. Beyond them a drop is counted as one whose place nobody knows. */
#define MAX_UNRECORDED 1024

/*
 * Drop reasons of damaged packets that the program is told: their numbers, 0 where the kernel lacks one. For the first ones a packet of the
 * test may be known by its port, for the others, which matter over IPv6, by its cookie alone: whole packets of others are dropped for them, too.
 */
#define DAMAGE_REASONS 7
#define DAMAGE_REASONS_BY_PORT 4
/* Sequence numbers from here on are no data's (FIRST_RESERVED of longhaul_wire). */
#define FIRST_RESERVED ((1ULL << 48) - 16)

/* What the fragments of one datagram have in common (RFC 791, RFC 8200 section 4.5); the protocol is UDP. */
struct fragment_key {
	__u8 source[16]; /* of IPv4 the first four bytes */
	__u8 destination[16];
	__u32 id; /* as it lies in the packet */
	__u32 ipv6;
};

/*
 * What is known of a datagram by one fragment: its sequence number, by the first, or the drop of a later one that came before it.
 */
struct fragment {
	__u64 time_ns;
	__u64 sequence;
	__u64 location;
	__u64 netns_cookie;
	__u32 netns_inum;
	__u32 ifindex;
	__u32 reason;
	__u32 cookie;
	__u32 offset;
	__u32 bytes;
	__u16 port;
	__u8 flags; /* enum drop_flags of the drop */
	__u8 is_known; /* cookie, port and sequence are there; else location, reason and the like */
	__u32 zero;
};

/* Datagrams of which fragments are remembered: 100 ms of 160,000 a second. */
#define MAX_FRAGMENTS 16384
/*
 * For how long. An identification of IPv4 is used again after 65,536 datagrams; fragments of one datagram follow each other within
 * microseconds, unless a machine of few CPUs does other things between them.
 */
#define FRAGMENT_NS 300000000ULL

struct drop_event {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 location; /* return address of kfree_skb's caller */
	__u64 netns_cookie; /* 0: unknown */
	__u32 netns_inum; /* 0: unknown */
	__u32 ifindex; /* 0: no device */
	__u32 reason; /* enum skb_drop_reason; its numbers are not ABI */
	__u32 cookie;
	__u32 unit_packets; /* wire packets in the skb */
	__u16 port; /* UDP destination */
	__u8 flags; /* enum drop_flags */
	__u8 count; /* of sequences */
	__u32 fragment_offset; /* of a fragment: its place in the payload of IP, and its bytes */
	__u32 fragment_bytes;
	__u64 sequences[MAX_SEQUENCES];
};

#define EVENT_HEADER_BYTES 56
_Static_assert(__builtin_offsetof(struct drop_event, sequences) == EVENT_HEADER_BYTES, "event.rs has the same");

#endif
