// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * YeAH. Fast mode (Scalable TCP) while queues are short. Slow mode (Reno) while they are long: more than α packets of the flow queued, or
 * an RTT more than 1/φ above the smallest. In slow mode it removes its queue from the window (precautionary decongestion), but keeps
 * at least what Reno flows beside it would have. A loss removes the queued packets, at least 1/8 of the window. It removes half of the
 * window beside greedy flows, which ρ slow round trips in a row indicate.
 *
 * Source: A. Baiocchi, A. Castellani, F. Vacirca, "YeAH-TCP: Yet Another Highspeed TCP", PFLDnet 2007.
 *
 * Differences from the paper: an ACK for n packets counts n times.
 * Differences from Linux (tcp_yeah.c), which its authors wrote: Linux never forgets the base RTT of a flow that is not idle, and an undo
 * leaves what the loss did to the control's memory. --variant linux does that. Linux limits the window to 2^25 packets.
 */
#include "congestion/common/round.h"
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)                  \
	P(alpha, 80)                   \
	P(gamma, 1)                    \
	P(delta, 3)                    \
	P(epsilon, 1)                  \
	P(phi, 8)                      \
	P(rho, 16)                     \
	P(zeta, 50)                    \
	P(packets_for_one_more, 100)   \
	P(undo_memory, 1)              \
	BASE_RTT(P)                    \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

struct state {
	struct slow_start slow_start;
	struct round round;
	u32 queue; /* packets, at the end of the last round trip */
	u32 slow_rounds; /* in a row; 0: it is fast */
	u32 reno_window; /* the least that a Reno flow would have */
	u32 fast_rounds;
	u32 before_reno_window; /* the same before the last loss */
	u32 before_fast_rounds;
};

static __always_inline void judge(struct tcp_sock *tp, struct state *yeah)
{
	u32 rtt = yeah->round.least_rtt_us;
	u32 delay = rtt - yeah->round.base.us;
	u64 cwnd = tp->snd_cwnd;
	u64 queue = queued(&yeah->round, cwnd, rtt);

	if (queue > parameters.alpha || delay > yeah->round.base.us / MAX(parameters.phi, 1)) {
		if (queue > parameters.alpha && cwnd > yeah->reno_window) {
			u64 share = queue / MAX(parameters.gamma, 1);
			u64 reduction = MIN(share, cwnd >> (parameters.epsilon & 31));

			cwnd -= reduction;
			set_window(tp, MAX(cwnd, yeah->reno_window));
			tp->snd_ssthresh = tp->snd_cwnd;
		}
		if (yeah->reno_window <= 2)
			yeah->reno_window = half(tp->snd_cwnd);
		else if (yeah->reno_window < U32_MAX)
			yeah->reno_window++;
		yeah->slow_rounds = MIN(yeah->slow_rounds + 1, 0xffffffU);
	} else {
		yeah->fast_rounds++;
		if (yeah->fast_rounds > parameters.zeta) {
			yeah->reno_window = 2;
			yeah->fast_rounds = 0;
		}
		yeah->slow_rounds = 0;
	}
	yeah->queue = MIN(queue, U32_MAX);
}

CALLBACK(void, init, struct sock *sk)
{
	struct state *yeah = STATE(sk);

	forget_round(tcp_of(sk), &yeah->round);
	yeah->reno_window = 2;
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *yeah = STATE(sk);

	if (!window_limits(tp))
		return;
	if (in_slow_start(tp))
		acked = SLOWLY_START(tp, &yeah->slow_start, ack, acked);
	if (acked) {
		u32 each = tp->snd_cwnd;

		if (!yeah->slow_rounds)
			each = MIN(each, parameters.packets_for_one_more);
		grow_by_one_for(tp, each, acked);
	}
	if (after(ack, yeah->round.end)) {
		if (yeah->round.samples >= ENOUGH_SAMPLES)
			judge(tp, yeah);
		begin_round(tp, &yeah->round);
	}
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *yeah = STATE(sk);

	SAMPLE_SLOW_START(tp, &yeah->slow_start, sample->rtt_us);
	TAKE_RTT(tp, &yeah->round, sample->rtt_us);
}

CALLBACK(void, set_state, struct sock *sk, u8 new_state)
{
	struct state *yeah = STATE(sk);

	if (new_state == TCP_CA_Open)
		begin_round(tcp_of(sk), &yeah->round);
}

/* After idle time the path may have changed. */
static __always_inline void tx_start(struct sock *sk)
{
	struct state *yeah = STATE(sk);

	forget_round(tcp_of(sk), &yeah->round);
}

CALLBACK(void, cwnd_event, struct sock *sk, u32 event)
{
	if (event == CA_EVENT_CWND_RESTART || event == CA_EVENT_TX_START)
		tx_start(sk);
}

TX_START_CALLBACK

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct state *yeah = STATE(sk);
	u32 cwnd = window_at_loss(tcp_of(sk));
	u32 reduction = half(cwnd);

	if (yeah->slow_rounds < parameters.rho) {
		u32 least = cwnd >> (parameters.delta & 31);

		reduction = MIN(reduction, yeah->queue);
		reduction = MAX(reduction, least);
	}
	yeah->before_fast_rounds = yeah->fast_rounds;
	yeah->before_reno_window = yeah->reno_window;
	yeah->fast_rounds = 0;
	yeah->reno_window = half(yeah->reno_window);
	return cwnd > reduction ? at_least_two(cwnd - reduction) : 2;
}

CALLBACK(u32, undo_cwnd, struct sock *sk)
{
	struct state *yeah = STATE(sk);

	if (parameters.undo_memory && yeah->before_reno_window) {
		yeah->fast_rounds = yeah->before_fast_rounds;
		yeah->reno_window = yeah->before_reno_window;
		yeah->before_reno_window = 0;
	}
	return window_before_loss(tcp_of(sk));
}

CONGESTION_CONTROL(yeah,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.set_state = FN(set_state),
	EVENTS,
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
