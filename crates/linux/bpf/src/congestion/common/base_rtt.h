/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The base RTT: the least RTT of the last base_rtt_ms milliseconds, which is the path's without queues. With base_rtt_ms = 0 it is the
 * least of the flow, as in the papers and in Linux: then a path that has become longer looks like a queue for ever.
 *
 * Two halves of the time are kept. A value is forgotten when it is between half of base_rtt_ms and all of it old.
 *
 * The default is ten minutes, as RFC 6817 (LEDBAT) §2.5 and §3.1.1 have it: a flow that keeps a queue of its own (Vegas, FAST) takes it for a
 * part of the path when the queue is older than that, and adds another. A loss empties the queue, and the true value is seen again.
 */
#ifndef LONGHAUL_CONGESTION_BASE_RTT_H
#define LONGHAUL_CONGESTION_BASE_RTT_H

#include "congestion/common/tcp.h"

struct base_rtt {
	u32 us; /* the least; RTT_NONE: none */
	u32 fresh_us; /* the least of the present half */
	u32 since_ms; /* when it began */
};

/* The parameter of each control that has a base RTT. */
#define BASE_RTT(P) P(base_rtt_ms, 600000)

static __always_inline void forget_base(struct tcp_sock *tp, struct base_rtt *base)
{
	base->us = RTT_NONE;
	base->fresh_us = RTT_NONE;
	base->since_ms = now_ms(tp);
}

/* Takes a sample; says whether one half is over. */
#define TAKE_BASE_RTT(tp, base, rtt_us) take_base_rtt(tp, base, rtt_us, parameters.base_rtt_ms)

static __always_inline bool take_base_rtt(struct tcp_sock *tp, struct base_rtt *base, u32 rtt_us, u32 window_ms)
{
	u32 passed_ms = now_ms(tp) - base->since_ms;
	bool over = window_ms && passed_ms >= window_ms / 2;

	if (over) {
		base->us = passed_ms >= window_ms ? RTT_NONE : base->fresh_us;
		base->fresh_us = RTT_NONE;
		base->since_ms = now_ms(tp);
	}
	rtt_us = MIN(rtt_us, RTT_NONE - 1);
	base->us = MIN(base->us, rtt_us);
	base->fresh_us = MIN(base->fresh_us, rtt_us);
	return over;
}

#endif
