/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The maps of the filter: what user space sets, what it reads, and the constants of one attachment. */
#ifndef LONGHAUL_FILTER_MAPS_H
#define LONGHAUL_FILTER_MAPS_H

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_LPM_TRIE = 11, BPF_F_NO_PREALLOC = 1 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_config);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_followed);
} followed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_sampling);
} sampling SEC(".maps");

/* Local and broadcast addresses, as on the wire. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __be32);
	__type(value, __u8);
} local_v4 SEC(".maps");

struct in6 {
	__u64 word[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct in6);
	__type(value, __u8);
} local_v6 SEC(".maps");

/* Local networks: 127.0.0.0/8, and those of `ip route add local`; 1024 of each family. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2048);
	__type(key, struct network_key);
	__type(value, __u8);
} local_prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct network_key);
	__type(value, __u8);
} allowed_nets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
} allowed_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 19);
} samples SEC(".maps");

/* The bits of `settings` that do not change while the filter is attached: the kernel removes the code for what is off. */
const volatile __u64 lasting;

#endif
