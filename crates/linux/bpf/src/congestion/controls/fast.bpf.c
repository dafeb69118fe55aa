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
 * α is fixed at 200 packets, the paper's value for 1 Gb/s. The base RTT is that of ten minutes: the paper's is that of the flow. An increase
 * is spread over a round trip, as in the paper; a decrease is not. A loss halves the window, as in the paper. There is no Linux module.
 */
#include "congestion/common/round.h"
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)          \
	P(alpha, 200)          \
	P(gamma_128, 64)       \
	P(update_rtts, 2)      \
	P(pacing, 1)           \
	BASE_RTT(P)            \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

struct state {
	struct slow_start slow_start;
	struct round round;
	struct spread growth;
	u64 mean_rtt_us_65536; /* 0: none */
	u32 rounds;
};

static __always_inline u32 mean_rtt_us(struct state *fast)
{
	return fast->mean_rtt_us_65536 >> 16;
}

static __always_inline void step(struct tcp_sock *tp, struct state *fast)
{
	u64 cwnd = tp->snd_cwnd;
	u32 mean = MAX(mean_rtt_us(fast), 1U);
	u64 base = MIN(fast->round.base.us, mean);
	u64 gamma = MIN(parameters.gamma_128, 128);
	u64 aim_128, window;

	/* In 128ths, and rounded: truncation errors would add up. */
	aim_128 = (cwnd << 7) * base / mean + ((u64)parameters.alpha << 7);
	window = (((128 - gamma) * (cwnd << 7) + gamma * aim_128 + 8192) >> 14);
	window = MIN(window, 2 * cwnd);
	spread_growth(&fast->growth, window > cwnd ? window - cwnd : 0, cwnd);
	if (window < cwnd)
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
	struct tcp_sock *tp = tcp_of(sk);
	struct state *fast = STATE(sk);
	u64 cwnd = tp->snd_cwnd < 1 ? 1 : MIN(tp->snd_cwnd, 1U << 24);
	u64 fresh, old = fast->mean_rtt_us_65536, apart, weight;

	SAMPLE_SLOW_START(tp, &fast->slow_start, sample->rtt_us);
	TAKE_RTT(tp, &fast->round, sample->rtt_us);
	if (sample->rtt_us < 0)
		return;
	/* At most 17 s. */
	fresh = (u64)MIN((u32)sample->rtt_us + 1, 1U << 24) << 16;
	if (!old) {
		fast->mean_rtt_us_65536 = fresh;
		return;
	}
	/* The weight is that over cwnd: 3 for each packet, so that an ACK for n counts n times, and at most a quarter. */
	weight = 3 * (u64)MAX(sample->pkts_acked, 1U);
	weight = MIN(weight, MAX(cwnd / 4, 1ULL));
	apart = (fresh > old ? fresh - old : old - fresh) * weight / cwnd;
	fast->mean_rtt_us_65536 = fresh > old ? old + apart : old - apart;
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *fast = STATE(sk);
	bool ended = after(ack, fast->round.end);

	if (in_slow_start(tp)) {
		fast->growth.left = 0;
		if (ended && fast->round.samples >= ENOUGH_SAMPLES &&
		    queued(&fast->round, tp->snd_cwnd, fast->round.least_rtt_us) > parameters.alpha / 2)
			tp->snd_ssthresh = tp->snd_cwnd;
		else if (window_limits(tp))
			SLOWLY_START(tp, &fast->slow_start, ack, acked);
	} else {
		if (ended && fast->mean_rtt_us_65536 && ++fast->rounds >= parameters.update_rtts) {
			fast->rounds = 0;
			step(tp, fast);
		}
		if (window_limits(tp))
			grow_window(tp, part_of(&fast->growth, acked, acked), acked);
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
		fast->mean_rtt_us_65536 = 0;
		fast->growth.left = 0;
	}
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	STATE(sk)->growth.left = 0;
	return half(window_at_loss(tcp_of(sk)));
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
