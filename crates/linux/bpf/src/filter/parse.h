/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Parses a frame: destination, protocol, offsets of headers.
 *
 *   Ethernet II   | destination 6 | source 6 | [tag 4] [tag 4] | type 2 | payload
 *   IEEE 802.3    | destination 6 | source 6 | [tag 4] [tag 4] | length 2 (to 1500) | DSAP 1 | SSAP 1 | control 1 | payload
 *   with SNAP     ... | AA AA 03 | organisation 3 | type 2 | payload
 *   raw IPX       ... | length 2 | FF FF | payload
 *
 * Every read is checked against the frame's end, and behind the IP header against the packet's: what lies behind it pads the frame. A
 * frame that ends too early, or whose lengths contradict it or each other, is `truncated`, as the kernel would drop it.
 */
#ifndef LONGHAUL_FILTER_PARSE_H
#define LONGHAUL_FILTER_PARSE_H

#define ETHERNET_BYTES 14
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define ARP_BYTES 28

enum {
	TYPE_ARP = 0x0806,
	TYPE_TAG = 0x8100,
	TYPE_SERVICE_TAG = 0x88a8,
	TYPE_OLD_SERVICE_TAG = 0x9100,
	TYPE_IPX = 0x8137,
	TYPE_IPX_TOO = 0x8138,
	TYPE_APPLETALK = 0x809b,
	TYPE_AARP = 0x80f3,
	TYPE_SLOW = 0x8809,
	TYPE_EAPOL = 0x888e,
	TYPE_LLDP = 0x88cc,
	TYPE_PTP = 0x88f7,
};

/* <linux/in.h>, <linux/in6.h>; IPPROTO_UDP is in kernel.h. */
enum {
	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_ICMP = 1,
	PROTOCOL_IGMP = 2,
	PROTOCOL_TCP = 6,
	PROTOCOL_ROUTING = 43,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_AUTHENTICATION = 51,
	PROTOCOL_ICMPV6 = 58,
	PROTOCOL_DESTINATION = 60,
	/* No protocol number: none was found. */
	PROTOCOL_UNKNOWN = 255,
};

/* IPv6 extension headers that are followed; RFC 8200 section 4.1 knows six, each once. */
#define MOST_EXTENSIONS 6

enum network { NETWORK_OTHER, NETWORK_ARP, NETWORK_IPV4, NETWORK_IPV6 };

struct parsed {
	enum filter_class class;
	enum filter_cast cast;
	enum network network;
	__u32 type; /* Ethernet II; 0 in IEEE 802.3 */
	__u32 frame_bytes; /* without FCS */
	__u32 network_at; /* offsets in the frame */
	__u32 packet_end; /* where the IP packet ends by its own length; 0: no such packet */
	__u32 transport_at; /* 0: not found */
	__u32 protocol;
	bool tagged; /* for a VLAN; a tag for priority alone (802.1Q section 9.6) does not count */
	bool fragment;
	bool truncated;
};

static __always_inline __u32 be16(const unsigned char *at)
{
	return at[0] << 8 | at[1];
}

static __always_inline bool is_tag(__u32 type)
{
	return type == TYPE_TAG || type == TYPE_SERVICE_TAG || type == TYPE_OLD_SERVICE_TAG;
}

static __always_inline enum filter_class class_of_type(__u32 type)
{
	switch (type) {
	case TYPE_ARP:
		return CLASS_ARP;
	case TYPE_IPX:
	case TYPE_IPX_TOO:
		return CLASS_IPX;
	case TYPE_APPLETALK:
	case TYPE_AARP:
		return CLASS_APPLETALK;
	case TYPE_LLDP:
		return CLASS_LLDP;
	default:
		return CLASS_OTHER;
	}
}

/* IEEE 802.3: by the bytes after the length. */
static __always_inline enum filter_class class_of_llc(const unsigned char *at, const unsigned char *end)
{
	__u32 organisation, type;

	if (at + 3 > end)
		return CLASS_OTHER;
	if (at[0] == 0xff && at[1] == 0xff)
		return CLASS_IPX;
	if (at[0] == 0xe0)
		return CLASS_IPX;
	if (at[0] == 0xf0)
		return CLASS_NETBEUI;
	if (at[0] == 0x42)
		return CLASS_STP;
	if (at[0] != 0xaa || at[1] != 0xaa || at + 8 > end)
		return CLASS_OTHER;
	organisation = at[3] << 16 | at[4] << 8 | at[5];
	type = be16(at + 6);
	if (organisation == 0x00000c) { /* Cisco */
		if (type == 0x2000)
			return CLASS_CDP;
		if (type == 0x2003)
			return CLASS_VTP;
		if (type == 0x2004)
			return CLASS_DISL;
		return type == 0x010b ? CLASS_STP : CLASS_OTHER;
	}
	if (organisation == 0x00e02b && type == 0x00bb) /* Extreme */
		return CLASS_EDP;
	if (organisation == 0x080007 && type == TYPE_APPLETALK)
		return CLASS_APPLETALK;
	if (organisation == 0 && (type == TYPE_IPX || type == TYPE_IPX_TOO))
		return CLASS_IPX;
	return organisation == 0 && type == TYPE_AARP ? CLASS_APPLETALK : CLASS_OTHER;
}

static __always_inline void parse_ipv4(struct parsed *p, const unsigned char *data, const unsigned char *end)
{
	const unsigned char *ip = data + p->network_at;
	__u32 transport_at, packet_end;

	p->class = CLASS_IPV4_OTHER;
	p->network = NETWORK_IPV4;
	if (ip + IPV4_BYTES > end || ip[0] >> 4 != 4 || (ip[0] & 0xf) < 5) {
		p->truncated = true;
		return;
	}
	transport_at = p->network_at + 4 * (ip[0] & 0xf);
	packet_end = p->network_at + be16(ip + 2);
	if (transport_at > packet_end || packet_end > p->frame_bytes) {
		p->truncated = true;
		return;
	}
	p->fragment = (ip[6] & 0x3f) || ip[7];
	p->protocol = ip[9];
	p->transport_at = transport_at;
	p->packet_end = packet_end;
	if (p->protocol == PROTOCOL_TCP)
		p->class = CLASS_IPV4_TCP;
	else if (p->protocol == IPPROTO_UDP)
		p->class = CLASS_IPV4_UDP;
	else if (p->protocol == PROTOCOL_ICMP)
		p->class = CLASS_IPV4_ICMP;
	else if (p->protocol == PROTOCOL_IGMP)
		p->class = CLASS_IPV4_IGMP;
}

static __always_inline void parse_ipv6(struct parsed *p, const unsigned char *data, const unsigned char *end)
{
	const unsigned char *ip = data + p->network_at;
	__u32 next, packet_end, at = p->network_at + IPV6_BYTES;
	int number;

	p->class = CLASS_IPV6_OTHER;
	p->network = NETWORK_IPV6;
	if (ip + IPV6_BYTES > end || ip[0] >> 4 != 6) {
		p->truncated = true;
		return;
	}
	next = ip[6];
	packet_end = at + be16(ip + 4);
	/* A jumbogram says its length in an option (RFC 2675). */
	if (packet_end == at && next == PROTOCOL_HOP_BY_HOP)
		packet_end = p->frame_bytes;
	if (packet_end > p->frame_bytes) {
		p->truncated = true;
		return;
	}
	for (number = 0; number <= MOST_EXTENSIONS; number++) {
		const unsigned char *extension;
		__u32 bytes;

		if (next != PROTOCOL_HOP_BY_HOP && next != PROTOCOL_ROUTING && next != PROTOCOL_FRAGMENT &&
		    next != PROTOCOL_AUTHENTICATION && next != PROTOCOL_DESTINATION)
			break;
		/* No driver has headers further back in its first buffer. */
		if (number == MOST_EXTENSIONS || at > 1024) {
			p->truncated = true;
			return;
		}
		extension = data + at;
		if (extension + 8 > end || at + 8 > packet_end) {
			p->truncated = true;
			return;
		}
		if (next == PROTOCOL_FRAGMENT) {
			/* An atomic fragment (RFC 6946) is whole. */
			if (extension[2] || (extension[3] & 0xf9))
				p->fragment = true;
			bytes = 8;
		} else if (next == PROTOCOL_AUTHENTICATION) {
			bytes = 4 * (extension[1] + 2);
		} else {
			bytes = 8 * (extension[1] + 1);
		}
		next = extension[0];
		at += bytes;
		/* A later fragment has no transport header. */
		if (p->fragment)
			break;
	}
	if (at > packet_end) {
		p->truncated = true;
		return;
	}
	p->protocol = next;
	p->transport_at = at;
	p->packet_end = packet_end;
	if (next == PROTOCOL_TCP)
		p->class = CLASS_IPV6_TCP;
	else if (next == IPPROTO_UDP)
		p->class = CLASS_IPV6_UDP;
	else if (next == PROTOCOL_ICMPV6)
		p->class = CLASS_IPV6_ICMP;
}

/* Sets length and destination; all else is unknown. */
static __always_inline void begin(struct parsed *p, const unsigned char *data, __u32 frame_bytes)
{
	p->class = CLASS_OTHER;
	p->cast = UNICAST;
	p->network = NETWORK_OTHER;
	p->type = 0;
	p->frame_bytes = frame_bytes;
	p->network_at = 0;
	p->packet_end = 0;
	p->transport_at = 0;
	p->protocol = PROTOCOL_UNKNOWN;
	p->tagged = p->fragment = p->truncated = false;
	if (data[0] & 1)
		p->cast = (data[0] & data[1] & data[2] & data[3] & data[4] & data[5]) == 0xff ? BROADCAST : MULTICAST;
}

/* `false` where the frame is shorter than an Ethernet header. */
static __always_inline bool parse(struct parsed *p, const unsigned char *data, const unsigned char *end, __u32 frame_bytes)
{
	__u32 at = ETHERNET_BYTES, type;
	int tag;

	if (data + ETHERNET_BYTES > end)
		return false;
	begin(p, data, frame_bytes);
	type = be16(data + 12);
#pragma unroll
	for (tag = 0; tag < 2; tag++) {
		if (!is_tag(type))
			break;
		if (data + at + 4 > end) {
			p->truncated = true;
			return true;
		}
		if ((be16(data + at) & 0xfff) != 0)
			p->tagged = true;
		type = be16(data + at + 2);
		at += 4;
	}
	p->network_at = at;
	if (type == ETH_P_IP) {
		p->type = type;
		parse_ipv4(p, data, end);
	} else if (type == ETH_P_IPV6) {
		p->type = type;
		parse_ipv6(p, data, end);
	} else if (type >= 0x600) {
		p->type = type;
		p->class = class_of_type(type);
		p->network = type == TYPE_ARP ? NETWORK_ARP : NETWORK_OTHER;
	} else if (type <= 1500) {
		p->class = class_of_llc(data + at, end);
		p->truncated = at + type > frame_bytes;
	}
	return true;
}

#endif
