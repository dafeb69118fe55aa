/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What main.bpf.c and event.rs exchange. Numbers are in the host's byte order.
 */
#ifndef LONGHAUL_TCP_OWNER_INTF_H
#define LONGHAUL_TCP_OWNER_INTF_H

/* Parents, their parents and so on that an event names; more than shells and wrappers commonly stack. */
#define MAX_ANCESTORS 16

enum owner_event_kind {
	ESTABLISHED = 1, /* no task has to do with it: all but time and cookie is 0 */
	OPENED = 2, /* by connect() */
	CLOSED = 3, /* by close(), shutdown(), or the end of the last process that had it */
};

struct owner_event {
	__u64 at_ns; /* CLOCK_MONOTONIC */
	__u64 cookie;
	__u64 cgroup_id; /* of the task, version 2 */
	__u32 kind; /* enum owner_event_kind */
	__u32 pid; /* the process: what the kernel calls tgid */
	__u32 ancestors[MAX_ANCESTORS]; /* the parent first; 0 where there are no more */
	char comm[16];
};

_Static_assert(sizeof(struct owner_event) == 112, "event.rs has the same");

#endif
