// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * FAST. Delay shows the distance between the window and the window that keeps α packets of the flow in queues. The steps are in
 * proportion to this distance:
 *
 *   w ← min(2w, (1 - γ)w + γ(baseRTT/RTT · w + α))      every other round trip
 *
 * RTT is smoothed with the weight min(3/w, 1/4) a packet.
 *
 * Source: D. X. Wei, C. Jin, S. H. Low, S. Hegde, "FAST TCP: Motivation, Architecture, Algorithms, Performance", IEEE/ACM ToN 14(6), 2006.
 *
 * Differences from the paper: it starts with a standard slow start (the paper: multiplicative increase) until half of α is queued.
 * α is fixed at 200 packets, the paper's value for 1 Gb/s. The paper spreads each step over a round trip; here the kernel paces. A loss
 * halves the window, as in the paper. There is no Linux module.
 */
#include "congestion/controls/round.h"

#define PARAMETERS(P)          \
	P(alpha, 200)          \
	P(gamma_128, 64)       \
	P(update_rtts, 2)      \
	P(pacing, 1)

TAKES(PARAMETERS);

struct state {
	struct round round;
	u64 mean_rtt_us_256; /* 0: none */
	u32 rounds;
};

static __always_inline u32 mean_rtt_us(struct state *fast)
{
	return fast->mean_rtt_us_256 >> 8;
}

static __always_inline void step(struct tcp_sock *tp, struct state *fast)
{
	u64 cwnd = tp->snd_cwnd;
	u32 mean = MAX(mean_rtt_us(fast), 1U);
	u64 base = MIN(fast->round.base_rtt_us, mean);
	u64 gamma = MIN(parameters.gamma_128, 128);
	u64 aim_128, window;

	/* In 128ths, and rounded: truncation errors would add up. */
	aim_128 = (cwnd << 7) * base / mean + ((u64)parameters.alpha << 7);
	window = (((128 - gamma) * (cwnd << 7) + gamma * aim_128 + 8192) >> 14);
	window = MIN(window, 2 * cwnd);
	if (window > cwnd && !window_limits(tp))
		return;
	set_window(tp, MAX(window, 2));
	stay_out_of_slow_start(tp);
}

CALLBACK(void, init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *fast = STATE(sk);

	forget_round(tp, &fast->round);
	/* fq paces where there is one, the socket itself otherwise. */
	if (parameters.pacing && sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct state *fast = STATE(sk);
	u64 cwnd = MAX(tcp_of(sk)->snd_cwnd, 1U);
	u64 fresh, old = fast->mean_rtt_us_256, weight_256;

	take_rtt(&fast->round, sample->rtt_us);
	if (sample->rtt_us < 0)
		return;
	fresh = ((u64)(u32)sample->rtt_us + 1) << 8;
	if (!old) {
		fast->mean_rtt_us_256 = fresh;
		return;
	}
	/* For each packet: an ACK for n counts n times. */
	weight_256 = 3 * 65536 / cwnd * MAX(sample->pkts_acked, 1U) >> 8;
	weight_256 = weight_256 < 1 ? 1 : weight_256 > 64 ? 64 : weight_256;
	fast->mean_rtt_us_256 = ((256 - weight_256) * old + weight_256 * fresh) >> 8;
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *fast = STATE(sk);
	bool ended = after(ack, fast->round.end);

	if (in_slow_start(tp)) {
		if (ended && fast->round.samples >= ENOUGH_SAMPLES &&
		    queued(&fast->round, tp->snd_cwnd, fast->round.least_rtt_us) > parameters.alpha / 2)
			tp->snd_ssthresh = tp->snd_cwnd;
		else if (window_limits(tp))
			slow_start(tp, acked);
	} else if (ended && fast->mean_rtt_us_256 && ++fast->rounds >= parameters.update_rtts) {
		fast->rounds = 0;
		step(tp, fast);
	}
	if (ended)
		begin_round(tp, &fast->round);
}

CALLBACK(void, cwnd_event, struct sock *sk, u32 event)
{
	struct state *fast = STATE(sk);

	/* After idle time the path may have changed. */
	if (event == CA_EVENT_CWND_RESTART) {
		forget_round(tcp_of(sk), &fast->round);
		fast->mean_rtt_us_256 = 0;
	}
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	return half(tcp_of(sk)->snd_cwnd);
}

UNDO_TO_WINDOW_BEFORE_LOSS

CONGESTION_CONTROL(fast,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.cwnd_event = FN(cwnd_event),
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
