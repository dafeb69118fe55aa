/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What main.bpf.c and enabled.rs tell each other. Numbers are in the host's byte order.
 */
#ifndef LONGHAUL_MIX_INTF_H
#define LONGHAUL_MIX_INTF_H

#define MAX_TEMPLATES 4096
/* The longest frame with two VLAN tags, without FCS, in whole words. */
#define MAX_FRAME 1528

/* A column of the alias table. */
struct column {
	__u32 threshold;
	__u32 other;
};

struct template {
	__u16 length;
	__u16 probe_at; /* where the probe header of a numbered frame lies, behind UDP's; 0: it has none */
	__u16 checksum; /* of UDP, as it stands in the frame; where numbered */
	__u16 padding;
	__u8 bytes[MAX_FRAME];
};

_Static_assert(sizeof(struct template) == 1536, "enabled.rs has the same");

#endif
