/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What main.bpf.c and its user exchange. Numbers are in the host's byte order unless noted.
 */
#ifndef LONGHAUL_FILTER_INTF_H
#define LONGHAUL_FILTER_INTF_H

/* What a frame carries; class.rs has the same order. */
enum filter_class {
	CLASS_IPV4_TCP,
	CLASS_IPV4_UDP,
	CLASS_IPV4_ICMP,
	CLASS_IPV4_IGMP,
	CLASS_IPV4_OTHER,
	CLASS_IPV6_TCP,
	CLASS_IPV6_UDP,
	CLASS_IPV6_ICMP,
	CLASS_IPV6_OTHER,
	CLASS_ARP,
	CLASS_IPX,
	CLASS_NETBEUI,
	CLASS_STP,
	CLASS_CDP,
	CLASS_VTP,
	CLASS_DISL,
	CLASS_EDP,
	CLASS_LLDP,
	CLASS_APPLETALK,
	CLASS_OTHER,
	CLASSES,
};

/* Whom a frame is sent to, by its destination MAC address. */
enum filter_cast {
	UNICAST,
	MULTICAST,
	BROADCAST,
	CASTS,
};

/* Frames by their length on the wire, FCS included (RFC 2819, etherStatsPkts64Octets and on). */
enum { SIZES = 7 };

/* Why a frame passes or not; reason.rs has the same order, docs/reference/filter.md what each means. */
enum filter_reason {
	OUR_UNICAST,
	SECONDARY_UNICAST,
	ARP_FOR_US,
	ARP_ANNOUNCEMENT,
	ARP_PROBE,
	NEIGHBOUR_DISCOVERY,
	BROADCAST_UNJUDGED,
	MULTICAST_JOINED,
	MULTICAST_ALL,
	GROUP_MANAGEMENT,
	DHCP,
	LINK_DISCOVERY,
	EAPOL,
	PTP,
	SLOW_PROTOCOL,
	FRAGMENT,
	LISTENING,
	CONNECTED,
	ALLOWED,
	TRUNCATED,
	DOUBTFUL,
	HANDED_OVER,
	ACCEPTED_REASONS,
	FOREIGN_UNICAST = ACCEPTED_REASONS,
	ARP_FOR_OTHERS,
	SOLICITATION_FOR_OTHERS,
	MULTICAST_NOT_JOINED,
	VLAN_NOT_OURS,
	ADDRESS_NOT_OURS,
	PORT_CLOSED,
	REASONS,
};

/* Bits of filter_config.flags: what the user wants. Those from FORCED on are `lasting` in the program as well. */
enum {
	ENFORCE = 1, /* drop what is rejected */
	FORCED = 2, /* judge although a bridge, bond or macvlan has the interface */
	JUDGE_PORTS = 4,
	ALLOWS_NETWORKS = 8, /* allowed_nets has entries */
	ALLOWS_PORTS = 16, /* allowed_ports has entries */
};

/* Written when the filter is attached or confirmed. */
struct filter_config {
	__u64 flags;
	/* CLOCK_MONOTONIC: from then on the filter only counts; 0: never. The program itself reads the clock, so no process is needed. */
	__u64 enforce_until_ns;
};

/* Written by the process that reads the ring, again and again: nothing is sampled for one that was killed. */
struct filter_sampling {
	/* CLOCK_MONOTONIC: until then rejected frames go to the ring; 0: none. */
	__u64 until_ns;
	/* One in this many of them. */
	__u64 every;
};

/* Bits of filter_followed.flags: what can be judged by what is known. */
enum {
	JUDGE_IPV4 = 1, /* addresses and ports */
	JUDGE_IPV6 = 2,
	JUDGE_ARP = 4,
	JUDGE_SOLICITATIONS = 8,
	WIDE_LOCAL = 16, /* local_prefixes has entries */
};

/* Written by the process that follows the host. */
struct filter_followed {
	/* First: the kernel copies from the front, so new flags are seen with old generations, which differ from the kernel's. */
	__u64 flags;
	/* The kernel's routing generations before the local addresses were read. */
	__u32 ipv4_generation;
	__u32 ipv6_generation;
	/* Counts the writes, from 1: a CPU remembers local addresses of one of them. */
	__u64 told;
	/* The network namespace of the addresses, by its cookie; 0: nobody told them yet. */
	__u64 namespace;
};

struct tally {
	__u64 packets;
	__u64 bytes; /* without FCS */
};

/* The addresses that were found to be local last, with their `filter_followed.told`: mostly the next frame has the same. */
struct filter_recent {
	__u64 told_v6;
	__u64 v6[2];
	__u64 told_v4;
	__be32 v4;
	__u32 padding;
};

/* Most accepted frames; all of them are OUR_UNICAST. */
enum filter_plain {
	PLAIN_IPV4_TCP,
	PLAIN_IPV4_UDP,
	PLAIN_IPV6_TCP,
	PLAIN_IPV6_UDP,
	PLAINS,
};

/* One a CPU. A frame is counted in `protocol`, `size` and `reason`, or once for the three in `plain`. */
struct filter_counters {
	struct tally protocol[CLASSES][CASTS][2]; /* 0: accepted, 1: rejected */
	struct tally size[SIZES][2];
	struct tally reason[REASONS];
	__u64 dropped; /* rejected frames that were dropped */
	__u64 samples_lost; /* the ring had no room for them */
	__u64 samples_seen; /* rejected frames while samples were asked for */
	struct filter_recent recent;
	struct tally plain[PLAINS][SIZES]; /* not in the tables above */
};

struct network_key {
	__u32 prefix_bits;
	__u8 address[16]; /* IPv4 as ::ffff:a.b.c.d */
};

#define SAMPLE_BYTES 256

struct filter_sample {
	__u64 at_ns; /* CLOCK_MONOTONIC */
	__u32 frame_bytes; /* without FCS */
	__u16 snippet_bytes;
	__u8 reason;
	__u8 class;
	__u8 snippet[SAMPLE_BYTES]; /* the first bytes of the frame */
};

_Static_assert(sizeof(struct filter_counters) == 16 * (2 * CLASSES * CASTS + 2 * SIZES + REASONS) + 24 + 40 + 16 * PLAINS * SIZES, "counters.rs has the same");
_Static_assert(sizeof(struct filter_followed) == 32, "maps.rs has the same");
_Static_assert(sizeof(struct filter_sample) == 16 + SAMPLE_BYTES, "sample.rs has the same");
_Static_assert(CLASSES == 20 && ACCEPTED_REASONS == 22 && REASONS == 29, "class.rs and reason.rs have the same");

#endif
