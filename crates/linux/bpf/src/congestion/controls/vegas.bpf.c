// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Vegas. Once a round trip it compares its rate with the rate that it would have without queues, and changes the window by one packet
 * or none, to keep between α and β packets of the flow in queues. Slow start doubles the window every other round trip and ends when
 * more than γ packets are queued.
 *
 * Source: L. Brakmo, L. Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global Internet", IEEE JSAC 13(8), 1995.
 *
 * Differences from the paper: no retransmission by fine-grained timeouts, as the kernel's RACK is better. α = 2, β = 4 of the paper's two
 * settings (1, 3 and 2, 4). The base RTT is forgotten after idle time and after ten minutes.
 * Differences from Linux (tcp_vegas.c): Linux doubles each round trip, a loss halves the window (the paper: a quarter less), it takes
 * cwnd·(RTT - base)/base for the packets in queues (the paper: /RTT) in whole packets, and never forgets the base RTT of a flow that is
 * not idle. --variant linux does that. Linux grows even if the application, not the window, limits the flow: no variant does.
 */
#include "congestion/common/round.h"
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)                      \
	P(alpha, 2)                        \
	P(beta, 4)                         \
	P(gamma, 1)                        \
	P(slow_start_every, 2)             \
	P(per_base_rtt, 0)                 \
	P(keep_128, 96)                    \
	BASE_RTT(P)                        \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

struct state {
	struct slow_start slow_start;
	struct round round;
	u32 on; /* off while losses are repaired */
	u32 rounds;
};

static __always_inline void vegas_slow_start(struct tcp_sock *tp, struct state *vegas, u32 ack, u32 acked)
{
	if (window_limits(tp) && vegas->rounds % MAX(parameters.slow_start_every, 1) == 0)
		SLOWLY_START(tp, &vegas->slow_start, ack, acked);
}

/* At the end of a round trip. */
static __always_inline void adjust(struct sock *sk, struct state *vegas, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	u64 cwnd = tp->snd_cwnd;
	u64 base = MIN(vegas->round.base.us, vegas->round.least_rtt_us);
	u64 rtt = vegas->round.least_rtt_us;
	u64 target = cwnd * base / rtt;
	/*
	 * Expected less actual rate, times the base RTT: packets in queues, as a fraction. Linux takes the expected rate of a base RTT and
	 * the actual one of a base RTT, and whole packets.
	 */
	u64 per = parameters.per_base_rtt ? base : rtt;
	u64 difference = cwnd * (rtt - base);
	u64 window = cwnd;

	if (parameters.per_base_rtt)
		difference -= difference % per;
	if (in_slow_start(tp)) {
		if (difference > parameters.gamma * per) {
			/* The cwnd of the actual rate, and one for the division's rest. */
			window = MIN(cwnd, target + 1);
			tp->snd_ssthresh = MIN(tp->snd_ssthresh, (u32)window - 1);
		} else {
			vegas_slow_start(tp, vegas, ack, acked);
			window = tp->snd_cwnd;
		}
	} else if (difference > parameters.beta * per) {
		window = cwnd - 1;
		tp->snd_ssthresh = MIN(tp->snd_ssthresh, (u32)window - 1);
	} else if (difference < parameters.alpha * per && window_limits(tp)) {
		window = cwnd + MIN(acked, 1U);
	}
	set_window(tp, MAX(window, 2));

	/* The kernel's ssthresh outside of recovery. */
	u32 cwnd_now = tp->snd_cwnd;
	u32 state = ca_state(sk);

	if (state != TCP_CA_CWR && state != TCP_CA_Recovery)
		tp->snd_ssthresh = MAX(tp->snd_ssthresh, (cwnd_now >> 1) + (cwnd_now >> 2));
}

static __always_inline void turn_on(struct tcp_sock *tp, struct state *vegas)
{
	vegas->on = 1;
	begin_round(tp, &vegas->round);
}

CALLBACK(void, init, struct sock *sk)
{
	struct state *vegas = STATE(sk);

	forget_base(tcp_of(sk), &vegas->round.base);
	turn_on(tcp_of(sk), vegas);
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *vegas = STATE(sk);

	if (!vegas->on) {
		RENO_CONG_AVOID(tp, &vegas->slow_start, ack, acked);
	} else if (after(ack, vegas->round.end)) {
		if (vegas->round.samples < ENOUGH_SAMPLES)
			RENO_CONG_AVOID(tp, &vegas->slow_start, ack, acked);
		else
			adjust(sk, vegas, ack, acked);
		vegas->rounds++;
		begin_round(tp, &vegas->round);
	} else if (in_slow_start(tp)) {
		vegas_slow_start(tp, vegas, ack, acked);
	}
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *vegas = STATE(sk);

	SAMPLE_SLOW_START(tp, &vegas->slow_start, sample->rtt_us);
	TAKE_RTT(tp, &vegas->round, sample->rtt_us);
}

CALLBACK(void, set_state, struct sock *sk, u8 new_state)
{
	struct state *vegas = STATE(sk);

	if (new_state == TCP_CA_Open)
		turn_on(tcp_of(sk), vegas);
	else
		vegas->on = 0;
}

/* After idle time the path may have changed. */
static __always_inline void tx_start(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *vegas = STATE(sk);

	forget_base(tp, &vegas->round.base);
	turn_on(tp, vegas);
}

CALLBACK(void, cwnd_event, struct sock *sk, u32 event)
{
	if (event == CA_EVENT_CWND_RESTART || event == CA_EVENT_TX_START)
		tx_start(sk);
}

TX_START_CALLBACK

CALLBACK(u32, ssthresh, struct sock *sk)
{
	return at_least_two((u64)window_at_loss(tcp_of(sk)) * MIN(parameters.keep_128, 128) >> 7);
}

UNDO_TO_WINDOW_BEFORE_LOSS

CONGESTION_CONTROL(vegas,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.set_state = FN(set_state),
	EVENTS,
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
