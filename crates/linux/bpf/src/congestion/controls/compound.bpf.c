// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Compound TCP. The window is a sum: cwnd, which grows and halves as Reno's, and dwnd, which grows while delay shows free capacity.
 * Once a round trip, with diff = win·(RTT - baseRTT)/RTT packets of the flow in queues:
 *
 *   diff < γ:  dwnd ← dwnd + α·win^k - 1      else:  dwnd ← dwnd - ζ·diff      loss:  dwnd ← win(1 - β) - cwnd/2
 *
 * While queues are empty, win grows almost as HighSpeed TCP's (α = 1/8, β = 1/2, k = 3/4). Otherwise it is Reno's.
 *
 * Source: draft-sridharan-tcpm-ctcp-02; K. Tan, J. Song, Q. Zhang, M. Sridharan, "A Compound TCP Approach for High-speed and Long
 * Distance Networks", INFOCOM 2006.
 *
 * Differences from the draft: γ is fixed at 30, without adaptation to small buffers. k is 3/4 (two square roots). The RTT of a round
 * trip is its smallest. The base RTT is that of ten minutes, and since the last timeout. An increase of dwnd is spread over a round trip.
 * There is no Linux module.
 */
#include "congestion/common/round.h"
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)          \
	P(alpha_256, 32)       \
	P(beta_256, 128)       \
	P(gamma, 30)           \
	P(zeta, 1)             \
	P(low_window, 38)      \
	BASE_RTT(P)            \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

/* 2^24 packets: in 256ths they fit 32 bits. */
#define MOST_DELAY_WINDOW ((1U << 24) - 1)

struct state {
	struct slow_start slow_start;
	struct round round;
	struct spread growth; /* of dwnd */
	u32 delay_window_256; /* dwnd */
	u32 before_256; /* the same before the last loss */
	u32 window; /* the sum, as the last callback left it */
};

/*
 * Integer part of the square root of up to 2^62, by Newton's method from 2^31: each step halves the estimate until it is near, and five
 * more make it exact. There are no branches, as the verifier follows each. The cost is a microsecond, once a round trip.
 */
static __always_inline u64 square_root(u64 number)
{
	u64 root = 1ULL << 31;
	u32 step;

	for (step = 0; step < 37; step++)
		root = (root + number / MAX(root, 1)) / 2;
	/* The last steps may alternate between the integer part and one more. */
	return root * root > number ? root - 1 : root;
}

/* window^(3/4), in 256ths. */
static __always_inline u64 to_the_three_quarters_256(u64 window)
{
	u64 root_65536;

	window = MIN(window, 1ULL << 30);
	root_65536 = square_root(window << 32);
	return square_root(window * root_65536);
}

/*
 * The kernel may have reduced the window, after a time that the application limited or idle time: both parts have become smaller, in
 * proportion.
 */
static __always_inline void follow_window(struct tcp_sock *tp, struct state *compound)
{
	if (tp->snd_cwnd < compound->window)
		compound->delay_window_256 = (u64)compound->delay_window_256 * tp->snd_cwnd / compound->window;
	compound->window = tp->snd_cwnd;
}

static __always_inline void adjust(struct tcp_sock *tp, struct state *compound)
{
	u64 window = tp->snd_cwnd;
	u64 delay_256 = compound->delay_window_256;
	u64 queue = queued(&compound->round, window, compound->round.least_rtt_us);

	if (queue < parameters.gamma) {
		u64 more_256 = to_the_three_quarters_256(window) * parameters.alpha_256 >> 8;

		if (more_256 <= 256 || window < parameters.low_window || !window_limits(tp))
			return;
		delay_256 = MIN(delay_256 + more_256 - 256, (u64)MOST_DELAY_WINDOW << 8);
		/* Whole packets come with the ACKs of the next round trip, and those that came with none of this one's, as ACKs are few. */
		if (delay_256 > compound->delay_window_256) {
			u32 more = (delay_256 >> 8) - (compound->delay_window_256 >> 8);

			spread_growth(&compound->growth, MIN(more + compound->growth.left, window), window);
		}
		compound->delay_window_256 = (compound->delay_window_256 & ~255U) | (delay_256 & 255);
	} else {
		u64 less_256 = queue * parameters.zeta << 8;
		u64 less;

		less_256 = MIN(less_256, delay_256);
		less = (delay_256 >> 8) - ((delay_256 - less_256) >> 8);
		compound->growth.left = 0;
		compound->delay_window_256 = delay_256 - less_256;
		set_window(tp, window > less ? window - less : 1);
	}
	stay_out_of_slow_start(tp);
}

CALLBACK(void, init, struct sock *sk)
{
	struct state *compound = STATE(sk);

	forget_round(tcp_of(sk), &compound->round);
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *compound = STATE(sk);
	bool slow = in_slow_start(tp);
	u32 before = tp->snd_cwnd, left, more;

	follow_window(tp, compound);
	/* One packet a round trip, as 1/(cwnd + dwnd) for each. */
	RENO_CONG_AVOID(tp, &compound->slow_start, ack, acked);
	if (slow) {
		compound->growth.left = 0;
	} else if (window_limits(tp)) {
		left = acked - MIN(tp->snd_cwnd - MIN(before, tp->snd_cwnd), acked);
		more = part_of(&compound->growth, acked, left);
		compound->delay_window_256 = MIN((u64)compound->delay_window_256 + ((u64)more << 8), (u64)MOST_DELAY_WINDOW << 8);
		grow_window(tp, more, acked);
	}
	if (after(ack, compound->round.end)) {
		if (!slow && compound->round.samples >= ENOUGH_SAMPLES)
			adjust(tp, compound);
		begin_round(tp, &compound->round);
	}
	compound->window = tp->snd_cwnd;
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *compound = STATE(sk);

	SAMPLE_SLOW_START(tp, &compound->slow_start, sample->rtt_us);
	TAKE_RTT(tp, &compound->round, sample->rtt_us);
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *compound = STATE(sk);
	u64 window = window_at_loss(tp);
	u64 delay, reno, kept, delay_kept;

	follow_window(tp, compound);
	delay = compound->delay_window_256 >> 8;
	reno = window > delay ? window - delay : 1;
	kept = window * (256 - MIN(parameters.beta_256, 256)) >> 8;
	delay_kept = kept > reno / 2 ? kept - reno / 2 : 0;
	compound->before_256 = compound->delay_window_256;
	compound->growth.left = 0;
	/* While dwnd is zero, Reno. */
	compound->delay_window_256 = delay ? MIN(delay_kept, MOST_DELAY_WINDOW) << 8 : 0;
	compound->window = at_least_two(delay ? MAX(kept, reno / 2) : reno / 2);
	return compound->window;
}

/* After a timeout and after idle time the path may be another one, as the draft says of timeouts. */
static __always_inline void restart(struct tcp_sock *tp, struct state *compound)
{
	forget_round(tp, &compound->round);
	compound->delay_window_256 = 0;
	compound->growth.left = 0;
}

CALLBACK(void, set_state, struct sock *sk, u8 new_state)
{
	struct state *compound = STATE(sk);

	if (new_state == TCP_CA_Loss)
		restart(tcp_of(sk), compound);
	else if (new_state == TCP_CA_Open)
		begin_round(tcp_of(sk), &compound->round);
}

CALLBACK(void, cwnd_event, struct sock *sk, u32 event)
{
	if (event == CA_EVENT_CWND_RESTART)
		restart(tcp_of(sk), STATE(sk));
}

CALLBACK(u32, undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *compound = STATE(sk);

	compound->delay_window_256 = compound->before_256;
	compound->window = window_before_loss(tp);
	return compound->window;
}

CONGESTION_CONTROL(compound,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.set_state = FN(set_state),
	.cwnd_event = FN(cwnd_event),
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
