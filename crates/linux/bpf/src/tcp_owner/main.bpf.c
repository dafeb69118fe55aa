// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Reports which process opens or closes each TCP connection of one network namespace, and when it was established (tracepoint
 * sock:inet_sock_set_state).
 *
 * Only three changes of state name a process: connect() sets SYN_SENT, and close() sets FIN_WAIT1 or LAST_ACK, both in the context of
 * that process. A socket becomes ESTABLISHED in softirq, where the current task is an arbitrary one. A connection that ends by a reset
 * names no process.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "tcp_owner/intf.h"

#define IPPROTO_TCP 6

/* <net/tcp_states.h>, user-space ABI. */
enum { TCP_ESTABLISHED = 1, TCP_SYN_SENT = 2, TCP_FIN_WAIT1 = 4, TCP_LAST_ACK = 9 };

/* The namespace, as in net:[…]. */
const volatile __u32 netns_inum;

/* Events for which the ring had no room. */
__u64 lost_events = 0;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock___owner {
	__u16 sk_protocol;
};

struct task_struct___owner {
	int tgid;
	struct task_struct___owner *real_parent;
};

#pragma clang attribute pop

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

SEC("tp_btf/inet_sock_set_state")
int on_state(__u64 *ctx)
{
	/* TP_PROTO(const struct sock *sk, const int oldstate, const int newstate) */
	struct sock *sk = (struct sock *)ctx[0];
	__u32 state = ctx[2];
	struct owner_event *event;

	if (state != TCP_ESTABLISHED && state != TCP_SYN_SENT && state != TCP_FIN_WAIT1 && state != TCP_LAST_ACK)
		return 0;
	if (BPF_CORE_READ((struct sock___owner *)sk, sk_protocol) != IPPROTO_TCP ||
	    BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) != netns_inum)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&lost_events, 1);
		return 0;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->at_ns = bpf_ktime_get_ns();
	event->cookie = bpf_get_socket_cookie(sk);
	event->kind = state == TCP_ESTABLISHED ? ESTABLISHED : state == TCP_SYN_SENT ? OPENED : CLOSED;
	if (state != TCP_ESTABLISHED) {
		struct task_struct___owner *task = (void *)bpf_get_current_task();
		int number;

		event->pid = bpf_get_current_pid_tgid() >> 32;
		event->cgroup_id = bpf_get_current_cgroup_id();
		bpf_get_current_comm(event->comm, sizeof(event->comm));
#pragma unroll
		for (number = 0; number < MAX_ANCESTORS; number++) {
			task = BPF_CORE_READ(task, real_parent);
			event->ancestors[number] = BPF_CORE_READ(task, tgid);
		}
	}
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The helpers and the tracepoint are for GPL-compatible programs. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";
