/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What main.bpf.c and enabled.rs exchange. Numbers are in the host's byte order.
 */
#ifndef LONGHAUL_MIX_INTF_H
#define LONGHAUL_MIX_INTF_H

#define MAX_TEMPLATES 4096
/* The longest frame with two VLAN tags, without FCS, in whole words. */
#define MAX_FRAME 1528
/* Frames that wait for the tracepoint: one bulk of the kernel's (DEV_MAP_BULK_SIZE, 16), the next one's first, and room. */
#define PENDING 64

/* A column of the alias table. */
struct column {
	__u32 threshold;
	__u32 other;
};

struct template {
	__u16 length;
	__u16 probe_at; /* where the probe header of a numbered frame lies, behind UDP's; 0: it has none */
	__u16 checksum; /* of UDP, as in the frame; of numbered frames */
	__u16 padding;
	__u8 bytes[MAX_FRAME];
};

/* What one sending thread makes: frames of the numbers `next`, `next + step`, ... */
struct share {
	__u64 next;
	__u64 step;
	__u64 made;
	__u64 broken; /* of these, that could not be made */
	__s64 last_error;
	__u64 sent[MAX_TEMPLATES]; /* that the interface took */
	__u32 pending_head;
	__u32 pending_tail;
	__u32 pending[PENDING];
	__u64 apart[16]; /* from the next CPU's: no cache line has parts of both */
};

_Static_assert(sizeof(struct template) == 1536, "enabled.rs has the same");
_Static_assert(sizeof(struct share) == 8 * (5 + MAX_TEMPLATES + 1 + 16) + 4 * PENDING, "enabled.rs has the same");

#endif
