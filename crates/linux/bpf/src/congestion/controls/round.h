/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The measurements of delay-based controls: the smallest RTT of the flow (no queue) and the RTTs of the present round trip. A round trip
 * ends with the ACK of the first data sent after it began.
 */
#ifndef LONGHAUL_CONGESTION_ROUND_H
#define LONGHAUL_CONGESTION_ROUND_H

#include "congestion/controls/tcp.h"

struct round {
	u32 base_rtt_us; /* the least of the flow */
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
	round->base_rtt_us = RTT_NONE;
	begin_round(tp, round);
}

/* Plus one microsecond, against a division by zero. */
static __always_inline void take_rtt(struct round *round, s32 rtt_us)
{
	u32 rtt;

	if (rtt_us < 0)
		return;
	rtt = MIN((u32)rtt_us, RTT_NONE - 2) + 1;
	round->base_rtt_us = MIN(round->base_rtt_us, rtt);
	round->least_rtt_us = MIN(round->least_rtt_us, rtt);
	round->samples++;
}

/* Queued packets of a window `cwnd` that takes `rtt_us`: cwnd·(rtt - base)/rtt. */
static __always_inline u64 queued(struct round *round, u64 cwnd, u32 rtt_us)
{
	return rtt_us > round->base_rtt_us ? cwnd * (rtt_us - round->base_rtt_us) / rtt_us : 0;
}

#endif
