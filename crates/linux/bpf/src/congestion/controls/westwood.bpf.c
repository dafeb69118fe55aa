// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Westwood+. Grows as Reno, but a loss sets ssthresh to what the path carried: the estimated bandwidth BWE × the smallest RTT. Half of
 * the window says nothing about a lossy path. BWE is the data delivered in a round trip divided by its duration, smoothed.
 *
 * Source: L. Grieco, S. Mascolo, "Performance evaluation and comparison of Westwood+, New Reno, and Vegas TCP congestion control",
 * ACM CCR 34(2), 2004; S. Mascolo et al., MobiCom 2001.
 *
 * Differences from the paper: the kernel's count of delivered packets (SACKed ones included) replaces the paper's AckedCount, an
 * estimate from duplicate ACKs. The new ssthresh is at most the window: the window never grows at a loss.
 * Differences from Linux (tcp_westwood.c): Linux keeps 7/8 (not 0.9) of the old estimate and smooths twice, measures over 50 ms
 * at least, halves during a recovery and sets the window at its end, and forgets the least RTT after a timeout.
 * --variant linux does that. Linux counts bytes a jiffy, by its own guess from ACK numbers.
 */
#include "congestion/common/base_rtt.h"
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)              \
	P(keep_1024, 922)          \
	P(smooth_twice, 0)         \
	P(least_sample_us, 0)      \
	P(halve_in_recovery, 0)    \
	P(forget_rtt, 0)           \
	BASE_RTT(P)                \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

struct state {
	struct slow_start slow_start;
	u64 rate; /* packets a second, 256fold, smoothed */
	u64 rate_once; /* the same, smoothed once */
	u32 delivered; /* packets, when the present sample began */
	u32 sample_us; /* when it did */
	u32 rtt_us; /* the last; 0: none */
	struct base_rtt base;
	u32 begun;
};

static __always_inline u64 smooth(u64 old, u64 fresh)
{
	u64 keep = MIN(parameters.keep_1024, 1024);

	return (keep * old + (1024 - keep) * fresh) >> 10;
}

static __always_inline void take_sample(struct tcp_sock *tp, struct state *westwood)
{
	u32 now = now_us(tp);
	u32 passed = now - westwood->sample_us;
	u32 least = MAX(westwood->rtt_us, parameters.least_sample_us);
	u64 fresh;

	if (!westwood->begun) {
		westwood->begun = 1;
		westwood->delivered = tp->delivered;
		westwood->sample_us = now;
		return;
	}
	if (!westwood->rtt_us || passed <= least)
		return;
	fresh = (u64)(tp->delivered - westwood->delivered) * 256000000 / passed;
	/* 10^9 packets a second: beyond any link. */
	fresh = MIN(fresh, 256000000000ULL);
	if (!westwood->rate) {
		westwood->rate_once = fresh;
		westwood->rate = fresh;
	} else {
		westwood->rate_once = smooth(westwood->rate_once, fresh);
		westwood->rate = parameters.smooth_twice ? smooth(westwood->rate, westwood->rate_once) : westwood->rate_once;
	}
	westwood->delivered = tp->delivered;
	westwood->sample_us = now;
}

/* BWE × RTTmin, in packets; 0: not known yet. */
static __always_inline u64 carried(struct state *westwood)
{
	/* 2^38 × 2^31 would be too much: the rate is taken in whole packets a second. */
	return westwood->base.us < RTT_NONE ? (westwood->rate >> 8) * westwood->base.us / 1000000 : 0;
}

CALLBACK(void, init, struct sock *sk)
{
	forget_base(tcp_of(sk), &STATE(sk)->base);
}

CALLBACK(void, in_ack_event, struct sock *sk, u32 flags)
{
	take_sample(tcp_of(sk), STATE(sk));
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *westwood = STATE(sk);

	SAMPLE_SLOW_START(tp, &westwood->slow_start, sample->rtt_us);
	if (sample->rtt_us <= 0)
		return;
	westwood->rtt_us = sample->rtt_us;
	TAKE_BASE_RTT(tp, &westwood->base, westwood->rtt_us);
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	RENO_CONG_AVOID(tcp_of(sk), &STATE(sk)->slow_start, ack, acked);
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct state *westwood = STATE(sk);
	u32 cwnd = window_at_loss(tcp_of(sk));
	u64 packets = carried(westwood);

	if (parameters.halve_in_recovery || !westwood->rate)
		return half(cwnd);
	return at_least_two(MIN(packets, cwnd));
}

/* A sample does not span an idle time. */
static __always_inline void tx_start(struct sock *sk)
{
	STATE(sk)->begun = 0;
}

CALLBACK(void, cwnd_event, struct sock *sk, u32 event)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *westwood = STATE(sk);

	if (event == CA_EVENT_COMPLETE_CWR && parameters.halve_in_recovery) {
		tp->snd_ssthresh = at_least_two(carried(westwood));
		set_window(tp, tp->snd_ssthresh);
	} else if (event == CA_EVENT_LOSS) {
		if (parameters.halve_in_recovery)
			tp->snd_ssthresh = at_least_two(carried(westwood));
		if (parameters.forget_rtt)
			forget_base(tp, &westwood->base);
	} else if (event == CA_EVENT_TX_START) {
		tx_start(sk);
	}
}

TX_START_CALLBACK

UNDO_TO_WINDOW_BEFORE_LOSS

CONGESTION_CONTROL(westwood,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	EVENTS,
	.in_ack_event = FN(in_ack_event),
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
