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
 * trip is its smallest. There is no Linux module.
 */
#include "congestion/controls/round.h"

#define PARAMETERS(P)          \
	P(alpha_256, 32)       \
	P(beta_256, 128)       \
	P(gamma, 30)           \
	P(zeta, 1)             \
	P(low_window, 38)

TAKES(PARAMETERS);

/* 2^24 packets: in 256ths they fit 32 bits. */
#define MOST_DELAY_WINDOW ((1U << 24) - 1)

struct state {
	struct round round;
	u32 delay_window_256; /* dwnd */
	u32 before_256; /* the same before the last loss */
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

/* Replaces the old dwnd in the window by the new one. */
static __always_inline void set_delay_window(struct tcp_sock *tp, struct state *compound, u64 delay_window_256)
{
	u32 before = compound->delay_window_256 >> 8;
	u64 reno = tp->snd_cwnd > before ? tp->snd_cwnd - before : 1;

	compound->delay_window_256 = MIN(delay_window_256, (u64)MOST_DELAY_WINDOW << 8);
	set_window(tp, reno + (compound->delay_window_256 >> 8));
	stay_out_of_slow_start(tp);
}

static __always_inline void adjust(struct tcp_sock *tp, struct state *compound)
{
	u64 window = tp->snd_cwnd;
	u64 delay_256 = compound->delay_window_256;
	u64 queue = queued(&compound->round, window, compound->round.least_rtt_us);

	if (queue < parameters.gamma) {
		u64 more_256 = to_the_three_quarters_256(window) * parameters.alpha_256 >> 8;

		if (more_256 > 256 && window >= parameters.low_window && window_limits(tp))
			delay_256 += more_256 - 256;
	} else {
		u64 less_256 = queue * parameters.zeta << 8;

		delay_256 = delay_256 > less_256 ? delay_256 - less_256 : 0;
	}
	set_delay_window(tp, compound, delay_256);
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

	/* One packet a round trip, as 1/(cwnd + dwnd) for each. */
	reno_cong_avoid(tp, acked);
	if (after(ack, compound->round.end)) {
		if (!slow && compound->round.samples >= ENOUGH_SAMPLES)
			adjust(tp, compound);
		begin_round(tp, &compound->round);
	}
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct state *compound = STATE(sk);

	take_rtt(&compound->round, sample->rtt_us);
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct state *compound = STATE(sk);
	u64 window = tcp_of(sk)->snd_cwnd;
	u64 delay = compound->delay_window_256 >> 8;
	u64 reno = window > delay ? window - delay : 1;
	u64 kept = window * (256 - MIN(parameters.beta_256, 256)) >> 8;
	u64 delay_kept = kept > reno / 2 ? kept - reno / 2 : 0;

	compound->before_256 = compound->delay_window_256;
	/* While dwnd is zero, Reno. */
	compound->delay_window_256 = delay ? MIN(delay_kept, MOST_DELAY_WINDOW) << 8 : 0;
	return at_least_two(delay ? MAX(kept, reno / 2) : reno / 2);
}

CALLBACK(void, set_state, struct sock *sk, u8 new_state)
{
	struct state *compound = STATE(sk);

	if (new_state == TCP_CA_Loss)
		compound->delay_window_256 = 0;
	else if (new_state == TCP_CA_Open)
		begin_round(tcp_of(sk), &compound->round);
}

CALLBACK(void, cwnd_event, struct sock *sk, u32 event)
{
	struct state *compound = STATE(sk);

	/* After idle time the path may have changed. */
	if (event == CA_EVENT_CWND_RESTART) {
		forget_round(tcp_of(sk), &compound->round);
		compound->delay_window_256 = 0;
	}
}

CALLBACK(u32, undo_cwnd, struct sock *sk)
{
	struct state *compound = STATE(sk);

	compound->delay_window_256 = compound->before_256;
	return window_before_loss(tcp_of(sk));
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
