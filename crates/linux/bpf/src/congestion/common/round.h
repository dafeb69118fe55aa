/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The measurements of delay-based controls: the base RTT (no queue) and the RTTs of the present round trip. A round trip
 * ends with the ACK of the first data sent after it began.
 */
#ifndef LONGHAUL_CONGESTION_ROUND_H
#define LONGHAUL_CONGESTION_ROUND_H

#include "congestion/common/base_rtt.h"

struct round {
	struct base_rtt base;
	u32 least_rtt_us; /* of this round trip */
	u32 samples;
	u32 end; /* sequence number */
};

/* If there are fewer, all may be from delayed ACKs. */
#define ENOUGH_SAMPLES 3

static __always_inline void begin_round(struct tcp_sock *tp, struct round *round)
{
	round->end = tp->snd_nxt;
	round->samples = 0;
	round->least_rtt_us = RTT_NONE;
}

static __always_inline void forget_round(struct tcp_sock *tp, struct round *round)
{
	forget_base(tp, &round->base);
	begin_round(tp, round);
}

/* Plus one microsecond, against a division by zero. */
#define TAKE_RTT(tp, round, rtt_us) take_rtt(tp, round, rtt_us, parameters.base_rtt_ms)

static __always_inline void take_rtt(struct tcp_sock *tp, struct round *round, s32 rtt_us, u32 window_ms)
{
	u32 rtt;

	if (rtt_us < 0)
		return;
	rtt = MIN((u32)rtt_us, RTT_NONE - 2) + 1;
	take_base_rtt(tp, &round->base, rtt, window_ms);
	round->least_rtt_us = MIN(round->least_rtt_us, rtt);
	round->samples++;
}

/* Queued packets of a window `cwnd` that takes `rtt_us`: cwnd·(rtt - base)/rtt. */
static __always_inline u64 queued(struct round *round, u64 cwnd, u32 rtt_us)
{
	return rtt_us > round->base.us ? cwnd * (rtt_us - round->base.us) / rtt_us : 0;
}

#endif
