/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The reason to accept or reject a parsed frame: judge(). It needs the maps, the interface (device.h) and the headers (parse.h).
 */
#ifndef LONGHAUL_FILTER_JUDGE_H
#define LONGHAUL_FILTER_JUDGE_H

struct bpf_sock_tuple {
	union {
		struct {
			__be32 saddr, daddr;
			__be16 sport, dport;
		} ipv4;
		struct {
			__be32 saddr[4], daddr[4];
			__be16 sport, dport;
		} ipv6;
	};
};

struct bpf_sock {
	__u32 bound_dev_if, family, type, protocol, mark, priority, src_ip4, src_ip6[4], src_port;
	__be16 dst_port;
	__u32 dst_ip4, dst_ip6[4], state;
};

/* The network namespace of the interface. */
#define CURRENT_NETNS (-1L)
/* <net/tcp_states.h> */
#define STATE_LISTEN 10
#define STATE_ESTABLISHED 1

/*
 * These functions are not static, so that the verifier checks each once by itself, not once for every path that leads to it.
 */

__noinline int parse_frame(struct xdp_md *context, struct parsed *parsed)
{
	if (!parsed)
		return false;
	return parse(parsed, (const unsigned char *)(long)context->data, (const unsigned char *)(long)context->data_end,
		     bytes_of(context));
}

__noinline int is_joined(struct xdp_md *context, __u64 mac)
{
	return is_listed(&device_of(context)->mc, mac);
}

__noinline int is_secondary(struct xdp_md *context, __u64 mac)
{
	return is_listed(&device_of(context)->uc, mac);
}

/* LISTENING or CONNECTED where a socket receives the packet; PORT_CLOSED where none does. */
__noinline int judge_socket(struct xdp_md *context, struct parsed *parsed)
{
	const unsigned char *data = (const unsigned char *)(long)context->data;
	const unsigned char *end = (const unsigned char *)(long)context->data_end, *ip, *transport;
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sock;
	__u32 bytes, state;

	if (!parsed)
		return TRUNCATED;
	if (parsed->fragment)
		return FRAGMENT;
	if (!parsed->transport_at || parsed->transport_at > 4096 || parsed->network_at > 4096)
		return TRUNCATED;
	ip = data + parsed->network_at;
	transport = data + parsed->transport_at;
	if (transport + 4 > end || parsed->transport_at + 4 > parsed->packet_end)
		return TRUNCATED;
	if (parsed->network == NETWORK_IPV4) {
		if (ip + IPV4_BYTES > end)
			return TRUNCATED;
		__builtin_memcpy(&tuple.ipv4.saddr, ip + 12, 8);
		__builtin_memcpy(&tuple.ipv4.sport, transport, 4);
		bytes = sizeof(tuple.ipv4);
	} else {
		if (ip + IPV6_BYTES > end)
			return TRUNCATED;
		__builtin_memcpy(&tuple.ipv6.saddr, ip + 8, 32);
		__builtin_memcpy(&tuple.ipv6.sport, transport, 4);
		bytes = sizeof(tuple.ipv6);
	}
	/* TCP and UDP sockets have different types for the verifier: the compiler must not merge the two branches. */
	if (parsed->protocol == PROTOCOL_TCP) {
		sock = bpf_skc_lookup_tcp(context, &tuple, bytes, CURRENT_NETNS, 0);
		if (sock) {
			state = sock->state;
			asm volatile("%0 += 0" : "+r"(state));
			bpf_sk_release(sock);
			return state == STATE_LISTEN ? LISTENING : CONNECTED;
		}
	} else {
		sock = bpf_sk_lookup_udp(context, &tuple, bytes, CURRENT_NETNS, 0);
		if (sock) {
			state = sock->state;
			asm volatile("%0 |= 0" : "+r"(state));
			bpf_sk_release(sock);
			return state == STATE_ESTABLISHED ? CONNECTED : LISTENING;
		}
	}
	return PORT_CLOSED;
}

/* A frame, and what is needed to judge it. */
struct question {
	struct xdp_md *context;
	const unsigned char *data, *end;
	struct net_device___filter *dev;
	const struct filter_config *config;
	const struct filter_followed *followed;
	struct filter_recent *recent;
	struct parsed parsed;
};

/* At most two tags behind the Ethernet header; the mask is for the verifier. */
static __always_inline const unsigned char *network_header(struct question *q)
{
	return q->data + (q->parsed.network_at & 31);
}

static __always_inline struct network_key key_of_ipv4(const unsigned char *address)
{
	struct network_key key = { .prefix_bits = 128, .address = { [10] = 0xff, [11] = 0xff } };

	__builtin_memcpy(key.address + 12, address, 4);
	return key;
}

static __always_inline struct network_key key_of_ipv6(const unsigned char *address)
{
	struct network_key key = { .prefix_bits = 128 };

	__builtin_memcpy(key.address, address, 16);
	return key;
}

static __always_inline bool is_local_ipv4(struct question *q, const unsigned char *address)
{
	/* Read before the lookup, so that an address that is removed meanwhile is looked up next time. */
	__u64 told = *(const volatile __u64 *)&q->followed->told;
	struct filter_recent *recent = q->recent;
	bool local;
	__be32 key;

	__builtin_memcpy(&key, address, 4);
	if (recent->told_v4 == told && recent->v4 == key)
		return true;
	local = bpf_map_lookup_elem(&local_v4, &key);
	if (!local && (q->followed->flags & WIDE_LOCAL)) {
		struct network_key wide = key_of_ipv4(address);

		local = bpf_map_lookup_elem(&local_prefixes, &wide);
	}
	if (local) {
		recent->v4 = key;
		recent->told_v4 = told;
	}
	return local;
}

static __always_inline bool is_local_ipv6(struct question *q, const unsigned char *address)
{
	__u64 told = *(const volatile __u64 *)&q->followed->told;
	struct filter_recent *recent = q->recent;
	struct in6 key;
	bool local;

	__builtin_memcpy(&key, address, 16);
	if (recent->told_v6 == told &&
	    !((recent->v6[0] ^ key.word[0]) | (recent->v6[1] ^ key.word[1])))
		return true;
	local = bpf_map_lookup_elem(&local_v6, &key);
	if (!local && (q->followed->flags & WIDE_LOCAL)) {
		struct network_key wide = key_of_ipv6(address);

		local = bpf_map_lookup_elem(&local_prefixes, &wide);
	}
	if (local) {
		__builtin_memcpy(recent->v6, address, 16);
		recent->told_v6 = told;
	}
	return local;
}

/* `reason` to reject by address, unless the addresses have changed since they were read. */
static __always_inline enum filter_reason unless_doubtful_ipv4(struct question *q, enum filter_reason reason)
{
	return ipv4_generation(q->dev) == q->followed->ipv4_generation ? reason : DOUBTFUL;
}

static __always_inline enum filter_reason unless_doubtful_ipv6(struct question *q, enum filter_reason reason)
{
	return ipv6_generation(q->dev) == q->followed->ipv6_generation && !is_forced_to_forward(q->dev) ? reason : DOUBTFUL;
}

/* Whether the interface is still in the network namespace whose host the filter was made for. */
static __always_inline bool is_at_home(struct question *q)
{
	__u64 home = q->followed->namespace;

	return !home || namespace_of(q->dev) == home;
}

static __always_inline bool is_allowed_network(struct question *q)
{
	const unsigned char *ip = network_header(q);
	struct network_key key;

	if (!(lasting & ALLOWS_NETWORKS))
		return false;
	if (q->parsed.network == NETWORK_IPV4) {
		if (ip + IPV4_BYTES > q->end)
			return false;
		key = key_of_ipv4(ip + 12);
	} else {
		if (ip + IPV6_BYTES > q->end)
			return false;
		key = key_of_ipv6(ip + 8);
	}
	return bpf_map_lookup_elem(&allowed_nets, &key);
}

/* Destination port, in the host's byte order; 0 where there is none. */
static __always_inline __u32 destination_port(struct question *q)
{
	const unsigned char *transport;
	__u32 at = q->parsed.transport_at;

	if (!at || at > 4096 || q->parsed.fragment)
		return 0;
	transport = q->data + at;
	if (transport + 4 > q->end || at + 4 > q->parsed.packet_end)
		return 0;
	return be16(transport + 2);
}

static __always_inline enum filter_reason judge_arp(struct question *q, enum filter_reason base)
{
	const unsigned char *arp = network_header(q);

	if (!(q->followed->flags & JUDGE_ARP) || q->parsed.cast == UNICAST)
		return base;
	if (arp + ARP_BYTES > q->end)
		return TRUNCATED;
	/* Ethernet, IPv4, six and four bytes: RFC 826. Other ARP cannot be judged. */
	if (be16(arp) != 1 || be16(arp + 2) != ETH_P_IP || arp[4] != 6 || arp[5] != 4)
		return base;
	if (is_local_ipv4(q, arp + 24))
		return ARP_FOR_US;
	/* A broadcast reply, or a request for the sender's own address: an address moved to another MAC address (RFC 5227 section 3). */
	if (be16(arp + 6) != 1 || !__builtin_memcmp(arp + 14, arp + 24, 4))
		return ARP_ANNOUNCEMENT;
	/* Without a sender address: two hosts may be about to use one address (RFC 5227 section 2.1.1). */
	if (!(arp[14] | arp[15] | arp[16] | arp[17]))
		return ARP_PROBE;
	return unless_doubtful_ipv4(q, ARP_FOR_OTHERS);
}

static __always_inline enum filter_reason judge_port(struct question *q, enum filter_reason base)
{
	enum filter_reason reason;
	__u32 port;

	if (!(lasting & JUDGE_PORTS) ||
	    !(q->followed->flags & (q->parsed.network == NETWORK_IPV4 ? JUDGE_IPV4 : JUDGE_IPV6)) ||
	    (q->parsed.protocol != PROTOCOL_TCP && q->parsed.protocol != IPPROTO_UDP))
		return base;
	reason = judge_socket(q->context, &q->parsed);
	if (reason != PORT_CLOSED)
		return reason;
	if (lasting & ALLOWS_PORTS) {
		__u8 *allowed;

		port = destination_port(q);
		allowed = bpf_map_lookup_elem(&allowed_ports, &port);
		if (allowed && *allowed)
			return ALLOWED;
	}
	return is_allowed_network(q) ? ALLOWED : PORT_CLOSED;
}

static __always_inline enum filter_reason judge_ipv4(struct question *q, enum filter_reason base)
{
	const unsigned char *ip = network_header(q);
	__u32 port = q->parsed.protocol == IPPROTO_UDP ? destination_port(q) : 0;

	if (q->parsed.truncated || ip + IPV4_BYTES > q->end)
		return TRUNCATED;
	if (q->parsed.protocol == PROTOCOL_IGMP)
		return GROUP_MANAGEMENT;
	/* DHCP may be sent to an address that is only offered yet (RFC 2131 section 4.1). */
	if (port == 67 || port == 68)
		return DHCP;
	/* Multicast is judged by MAC address; 255.255.255.255 and 0.0.0.0 mean all hosts. */
	if ((q->followed->flags & JUDGE_IPV4) && (ip[16] & 0xf0) != 0xe0 &&
	    (ip[16] & ip[17] & ip[18] & ip[19]) != 0xff && (ip[16] | ip[17] | ip[18] | ip[19]) &&
	    !is_local_ipv4(q, ip + 16))
		return is_allowed_network(q) ? ALLOWED : unless_doubtful_ipv4(q, ADDRESS_NOT_OURS);
	return judge_port(q, base);
}

static __always_inline enum filter_reason judge_solicitation(struct question *q, enum filter_reason base, __u32 at)
{
	const unsigned char *icmp = q->data + at;

	/* To a group that was joined for a local address (RFC 4291 section 2.7.1), or to this host alone. */
	if (base != BROADCAST_UNJUDGED && base != MULTICAST_ALL && (q->parsed.cast == UNICAST || q->data[2] == 0xff))
		return NEIGHBOUR_DISCOVERY;
	if (!(q->followed->flags & JUDGE_SOLICITATIONS))
		return base;
	if (icmp + 24 > q->end || at + 24 > q->parsed.packet_end)
		return TRUNCATED;
	if (is_local_ipv6(q, icmp + 8))
		return NEIGHBOUR_DISCOVERY;
	return unless_doubtful_ipv6(q, SOLICITATION_FOR_OTHERS);
}

static __always_inline enum filter_reason judge_ipv6(struct question *q, enum filter_reason base)
{
	const unsigned char *ip = network_header(q), *icmp;
	__u32 port = q->parsed.protocol == IPPROTO_UDP ? destination_port(q) : 0, at = q->parsed.transport_at;

	if (q->parsed.truncated || ip + IPV6_BYTES > q->end)
		return TRUNCATED;
	if (port == 546 || port == 547)
		return DHCP;
	if (q->parsed.protocol == PROTOCOL_ICMPV6 && !q->parsed.fragment && at && at <= 4096) {
		icmp = q->data + at;
		if (icmp + 1 > q->end || at >= q->parsed.packet_end)
			return TRUNCATED;
		/* RFC 2710, RFC 3810. */
		if ((icmp[0] >= 130 && icmp[0] <= 132) || icmp[0] == 143)
			return GROUP_MANAGEMENT;
		if (icmp[0] == 135)
			return judge_solicitation(q, base, at);
		/* RFC 4861: routers, advertisements, redirects. */
		if (icmp[0] >= 133 && icmp[0] <= 137)
			return NEIGHBOUR_DISCOVERY;
	}
	if ((q->followed->flags & JUDGE_IPV6) && ip[24] != 0xff && !is_local_ipv6(q, ip + 24))
		return is_allowed_network(q) ? ALLOWED : unless_doubtful_ipv6(q, ADDRESS_NOT_OURS);
	return judge_port(q, base);
}

/* IGMP and MLD must reach a host that joined no group: routers ask who is a member. */
static __always_inline bool manages_groups(struct question *q)
{
	const unsigned char *icmp;
	__u32 at = q->parsed.transport_at;

	if (q->parsed.truncated)
		return false;
	if (q->parsed.class == CLASS_IPV4_IGMP)
		return true;
	if (q->parsed.class != CLASS_IPV6_ICMP || q->parsed.fragment || !at || at > 4096)
		return false;
	icmp = q->data + at;
	return icmp + 1 <= q->end && at < q->parsed.packet_end && ((icmp[0] >= 130 && icmp[0] <= 132) || icmp[0] == 143);
}

static __always_inline bool is_solicitation(struct question *q)
{
	const unsigned char *icmp;
	__u32 at = q->parsed.transport_at;

	if (q->parsed.class != CLASS_IPV6_ICMP || q->parsed.truncated || q->parsed.fragment || !at || at > 4096)
		return false;
	icmp = q->data + at;
	return icmp + 1 <= q->end && at < q->parsed.packet_end && icmp[0] == 135;
}

static __always_inline enum filter_reason judge(struct question *q)
{
	__u64 mac = mac_at(q->data);
	enum filter_reason base;
	enum listed listed;

	/* A bridge, bond or the like takes every frame from here, and only it knows what it needs. */
	if (q->dev->rx_handler && !(lasting & FORCED))
		return HANDED_OVER;
	if (q->parsed.cast == UNICAST) {
		if (mac == own_mac(q->dev)) {
			base = OUR_UNICAST;
		} else {
			listed = q->dev->uc.count ? is_secondary(q->context, mac) : NOT_LISTED;
			if (listed == TOO_MANY)
				return DOUBTFUL;
			return listed == IS_LISTED ? SECONDARY_UNICAST : FOREIGN_UNICAST;
		}
	} else if (q->parsed.cast == BROADCAST) {
		base = BROADCAST_UNJUDGED;
	} else {
		switch (q->parsed.type) {
		case TYPE_LLDP:
			return LINK_DISCOVERY;
		case TYPE_EAPOL:
			return EAPOL;
		case TYPE_PTP:
			return PTP;
		case TYPE_SLOW:
			return SLOW_PROTOCOL;
		}
		listed = is_joined(q->context, mac);
		if (listed == TOO_MANY)
			return DOUBTFUL;
		if (listed == NOT_LISTED) {
			if (q->dev->flags & IFF_ALLMULTI)
				base = MULTICAST_ALL;
			else if (manages_groups(q))
				return GROUP_MANAGEMENT;
			else
				return is_solicitation(q) ? SOLICITATION_FOR_OTHERS : MULTICAST_NOT_JOINED;
		} else {
			base = MULTICAST_JOINED;
		}
	}
	/* Interfaces on top may have addresses, VLANs and sockets that are not visible from here. */
	if (has_uppers(q->dev))
		return base;
	if (q->parsed.tagged)
		return VLAN_NOT_OURS;
	switch (q->parsed.network) {
	case NETWORK_ARP:
		return judge_arp(q, base);
	case NETWORK_IPV4:
		return judge_ipv4(q, base);
	case NETWORK_IPV6:
		return judge_ipv6(q, base);
	default:
		return q->parsed.truncated ? TRUNCATED : base;
	}
}

#endif
