// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Scalable TCP. The time to recover from a loss does not depend on the window: each acknowledged packet adds a = 0.01, and a loss
 * removes b = 0.125 of the window. Up to a small window it is standard TCP.
 *
 * Source: T. Kelly, "Scalable TCP: Improving Performance in Highspeed Wide Area Networks", ACM CCR 33(2), 2003.
 *
 * Differences from the paper: an ACK for n packets adds n·a, as today's receivers acknowledge many packets at once.
 * Differences from Linux (tcp_scalable.c): Linux is standard TCP up to 100 packets, as 1/cwnd is more than 0.01 there, and removes
 * 1/8 of any window. --variant linux does that.
 */
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)                  \
	P(packets_for_one_more, 100)   \
	P(decrease_1024, 128)          \
	P(low_window, 16)              \
	P(low_window_halves, 1)        \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

struct state {
	struct slow_start slow_start;
};

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	u32 each;

	if (!window_limits(tp))
		return;
	if (in_slow_start(tp)) {
		acked = SLOWLY_START(tp, &STATE(sk)->slow_start, ack, acked);
		if (!acked)
			return;
	}
	each = tp->snd_cwnd <= parameters.low_window ? tp->snd_cwnd : parameters.packets_for_one_more;
	grow_by_one_for(tp, each, acked);
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	u64 window = window_at_loss(tcp_of(sk));

	if (parameters.low_window_halves && window <= parameters.low_window)
		return half(window);
	return at_least_two(window - (window * MIN(parameters.decrease_1024, 1024) >> 10));
}

ONLY_SLOW_START_SAMPLES

UNDO_TO_WINDOW_BEFORE_LOSS

CONGESTION_CONTROL(scalable,
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
