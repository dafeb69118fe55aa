// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * BIC: a binary search for the window, between the window before the last loss (too large) and the window after it (small enough), by at
 * most Smax packets a round trip. Beyond the old maximum it probes with growing steps.
 *
 *   cwnd                max   linear: Smax a round trip, until half the distance is less
 *    |____...---''''''''.|    search: half the distance a round trip
 *    |  .-'              |...---'''  probing: as in a slow start, 1, 2, 4, … Smax
 *    time
 *
 * Source: L. Xu, K. Harfoush, I. Rhee, "Binary Increase Congestion Control (BIC) for Fast Long-Distance Networks", INFOCOM 2004.
 *
 * Differences from the paper: windows are whole packets. The last packet below the maximum takes log2(1/Smin) = 7 round trips; the
 * paper's search continues there down to Smin = 0.01. Farther away a round trip adds half of the distance, in fractions. Probing adds 1 + (cwnd - max) a round trip, which is the paper's 1, 2, 4, …
 * at each of its steps. A timeout forgets the maximum.
 * Differences from Linux (tcp_bic.c): Linux searches by quarters, keeps 0.8 of a window at a loss (not 0.875), takes Smax = 16, probes
 * slowly up to 4 packets beyond the maximum, has no maximum at first and then grows by at least one packet for 20, takes
 * whole steps, divides by the mean number of packets of an ACK, and forgets the maximum that it had before a loss which was none.
 * --variant linux does all that.
 */
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)                 \
	P(most_increase, 32)          \
	P(last_packet_rtts, 7)        \
	P(keep_1024, 896)             \
	P(low_window, 14)             \
	P(search_divisor, 2)          \
	P(probe_near, 0)              \
	P(probe_divisor, 1)           \
	P(unknown_most_each, 0)       \
	P(scale_by_ack_ratio, 0)      \
	P(update_us, 0)               \
	P(fast_convergence, 1)        \
	P(whole_steps, 0)             \
	P(undo_memory, 1)             \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

struct state {
	struct slow_start slow_start;
	u64 credit;
	u32 max; /* window before the last loss; 0: none is known */
	u32 each; /* packets acknowledged for one more */
	u32 at_window; /* of `each` */
	u32 at_us;
	u32 ack_ratio_16; /* packets an ACK, 16fold */
	u32 before_max; /* the same before the last loss */
};

static __always_inline void forget(struct state *bic)
{
	bic->max = 0;
	bic->each = 0;
	bic->at_window = 0;
	bic->at_us = 0;
	bic->ack_ratio_16 = 2 << 4;
}

/* The growth at window `cwnd`: packets in round trips. */
struct growth {
	u64 packets;
	u64 round_trips;
};

static __always_inline struct growth growth_at(struct state *bic, u64 cwnd)
{
	u64 most = MAX(parameters.most_increase, 1);
	u64 search = MAX(parameters.search_divisor, 1);
	u64 probe = MAX(parameters.probe_divisor, 1);
	struct growth largest = { most, 1 }, least = { 1, MAX(parameters.last_packet_rtts, 1) };

	if (cwnd < bic->max) {
		u64 distance = bic->max - cwnd;

		if (distance / search > most || (!parameters.whole_steps && distance > most * search))
			return largest;
		if (parameters.whole_steps)
			return distance / search <= 1 ? least : (struct growth){ distance / search, 1 };
		return distance <= 1 ? least : (struct growth){ distance, search };
	}

	u64 beyond = cwnd - bic->max;

	if (beyond < parameters.probe_near)
		return least;
	if (!parameters.probe_near)
		beyond++;
	return beyond < most * probe ? (struct growth){ beyond, probe } : largest;
}

/* Linux: packets to acknowledge for one more, rounded down, and looked at now and then. */
static __always_inline void update_each(struct state *bic, struct tcp_sock *tp)
{
	u32 cwnd = tp->snd_cwnd;
	u32 now = now_us(tp);
	struct growth growth;
	u64 each;

	if (parameters.update_us && bic->at_window == cwnd && now - bic->at_us <= parameters.update_us)
		return;
	bic->at_window = cwnd;
	bic->at_us = now;
	if (cwnd <= parameters.low_window) {
		bic->each = cwnd;
		return;
	}
	growth = growth_at(bic, cwnd);
	each = (u64)cwnd * growth.round_trips / MAX(growth.packets, 1ULL);
	if (bic->max == 0 && parameters.unknown_most_each)
		each = MIN(each, parameters.unknown_most_each);
	if (parameters.scale_by_ack_ratio)
		each = (each << 4) / MAX(bic->ack_ratio_16, 1U);
	bic->each = each < 1 ? 1 : MIN(each, U32_MAX);
}

CALLBACK(void, init, struct sock *sk)
{
	forget(STATE(sk));
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *bic = STATE(sk);
	struct growth growth = { 1, 1 };

	if (!window_limits(tp))
		return;
	if (in_slow_start(tp)) {
		acked = SLOWLY_START(tp, &bic->slow_start, ack, acked);
		if (!acked)
			return;
	}
	if (parameters.whole_steps) {
		update_each(bic, tp);
		grow_by_one_for(tp, bic->each, acked);
		return;
	}
	if (tp->snd_cwnd > parameters.low_window)
		growth = growth_at(bic, tp->snd_cwnd);
	grow_at(tp, &bic->credit, (growth.packets << 16) / MAX(growth.round_trips, 1ULL), acked);
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct state *bic = STATE(sk);
	u64 cwnd = window_at_loss(tcp_of(sk));
	u32 keep_1024 = MIN(parameters.keep_1024, 1024);

	bic->before_max = bic->max;
	bic->credit = 0;
	/* Below its last maximum the flow leaves bandwidth to others (fast convergence). */
	if (parameters.fast_convergence && cwnd < bic->max)
		bic->max = cwnd * (1024 + keep_1024) / 2048;
	else
		bic->max = cwnd;
	if (cwnd <= parameters.low_window)
		return half(cwnd);
	return at_least_two(cwnd * keep_1024 / 1024);
}

CALLBACK(void, set_state, struct sock *sk, u8 new_state)
{
	if (new_state == TCP_CA_Loss)
		forget(STATE(sk));
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct state *bic = STATE(sk);

	SAMPLE_SLOW_START(tcp_of(sk), &bic->slow_start, sample->rtt_us);
	/* A mean of the last 16, roughly. */
	if (ca_state(sk) == TCP_CA_Open)
		bic->ack_ratio_16 += sample->pkts_acked - (bic->ack_ratio_16 >> 4);
}

CALLBACK(u32, undo_cwnd, struct sock *sk)
{
	struct state *bic = STATE(sk);

	if (parameters.undo_memory)
		bic->max = bic->before_max;
	return window_before_loss(tcp_of(sk));
}

CONGESTION_CONTROL(bic,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.set_state = FN(set_state),
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
