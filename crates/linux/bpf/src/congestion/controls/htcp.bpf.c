// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * H-TCP. The increase grows with the time δ since the last loss: 1 up to a second, then 1 + 10(δ - 1) + ((δ - 1)/2)². A loss
 * multiplies the window by β = RTTmin/RTTmax, between 0.5 and 0.8, so that the queue just empties. β is 0.5 when throughput changed by
 * more than a fifth since the loss before. The increase is scaled with 2(1 - β), and with the RTT (100 ms is 1), so that flows with
 * different RTTs get equal shares.
 *
 * Source: draft-leith-tcp-htcp-06; D. Leith, R. Shorten, "H-TCP: TCP for high-speed and long-distance networks", PFLDnet 2004.
 *
 * Differences from the draft: at each loss the maximum RTT falls by 5 % of its distance to the minimum. It rises by at most 20 ms at
 * once, as in Linux: a single outlier would distort it forever. The minimum RTT is that of ten minutes. δ counts only while the window
 * limits the flow, in every variant (tcp.h, rule 3).
 * Differences from Linux (tcp_htcp.c): Linux rounds the increase to whole packets before it scales it with β, takes RTTs for its scaling in
 * eighths of 100 ms, adapts β only from an RTT of 10 ms on, adds one packet for cwnd/α acknowledged ones without carrying the rest,
 * and remembers for an undo what the loss has already changed. --variant linux does that. Linux counts time in jiffies, this in
 * microseconds (RTT) and milliseconds (since the loss).
 */
#include "congestion/common/base_rtt.h"
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)                    \
	P(low_us, 1000000)               \
	P(least_keep_128, 64)            \
	P(most_keep_128, 102)            \
	P(adapt_from_us, 0)              \
	P(bandwidth_switch, 1)           \
	P(rtt_scaling, 1)                \
	P(whole_packets, 0)              \
	P(undo_memory, 1)                \
	BASE_RTT(P)                      \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

struct state {
	struct slow_start slow_start;
	struct clock clock; /* δ */
	struct base_rtt base;
	u64 credit;
	u32 alpha_65536;
	u8 keep_128; /* β */
	u8 adapts; /* β follows the RTTs: there was a loss before */
	u8 may_undo; /* what `before` says is of the present event */
	u32 acked; /* by the last ACK */
	u32 most_rtt_us;
	struct {
		u32 clock_ms;
		u32 most_rtt_us;
		u32 old_rate;
	} before; /* the same before the last event */
	u32 packets; /* acknowledged since rate_us */
	u32 rate_us;
	u32 rate; /* smoothed, packets a second */
	u32 most_rate; /* since the last event */
	u32 old_most_rate; /* before it */
};

static __always_inline u32 least_rtt_us(struct state *htcp)
{
	return htcp->base.us < RTT_NONE ? htcp->base.us : 0;
}

/* At most 65,535 packets a round trip. */
static __always_inline void set_alpha(struct state *htcp, u64 alpha_65536)
{
	htcp->alpha_65536 = alpha_65536 ? MIN(alpha_65536, U32_MAX) : 65536;
}

/* The draft's α: 2(1 - β)·f(δ)·RTT/100 ms. */
static __always_inline void update_alpha(struct state *htcp)
{
	u64 low_ms = parameters.low_us / 1000;
	u64 passed_ms = htcp->clock.ms;
	u64 less_128 = 128 - MIN(htcp->keep_128, 128);
	u64 rtt_us = least_rtt_us(htcp);
	u64 thousandths = 0; /* f(δ) - 1 */
	u64 factor;

	if (passed_ms > low_ms) {
		u64 beyond_ms = MIN(passed_ms - low_ms, 10000000);
		u64 half_ms = beyond_ms / 2;

		thousandths = 10 * beyond_ms + half_ms * half_ms / 1000;
	}
	if (parameters.whole_packets) {
		factor = 1 + thousandths / 1000;
		if (parameters.rtt_scaling && rtt_us) {
			/* 100 ms over the RTT, in eighths. */
			u64 scale_8 = 800000 / rtt_us;

			scale_8 = scale_8 < 4 ? 4 : scale_8 > 80 ? 80 : scale_8;
			factor = MAX((factor << 3) / scale_8, 1ULL);
		}
		set_alpha(htcp, (2 * factor * less_128) << 9);
		return;
	}
	factor = MIN(1000 + thousandths, 100000000);
	if (parameters.rtt_scaling && rtt_us)
		factor *= rtt_us < 10000 ? 10000 : MIN(rtt_us, 200000);
	else
		factor *= 100000;
	/* Thousandths, and 100,000 µs: 2^27 · 2^18 · 2^8 · 2^10, over 10^8, in 65536ths. */
	set_alpha(htcp, (factor * less_128 / 100000 << 10) / 1000);
}

static __always_inline void update_keep(struct state *htcp)
{
	u32 least = parameters.least_keep_128;
	u32 most = parameters.most_keep_128;

	if (parameters.bandwidth_switch) {
		u64 rate = htcp->most_rate;
		u64 old = htcp->old_most_rate;

		htcp->old_most_rate = rate;
		if (5 * rate < 4 * old || 5 * rate > 6 * old) {
			htcp->keep_128 = least;
			htcp->adapts = 0;
			return;
		}
	}
	if (htcp->adapts && least_rtt_us(htcp) > parameters.adapt_from_us && htcp->most_rtt_us) {
		u64 keep = ((u64)least_rtt_us(htcp) << 7) / htcp->most_rtt_us;

		htcp->keep_128 = keep < least ? least : keep > most ? most : keep;
	} else {
		htcp->keep_128 = least;
		htcp->adapts = 1;
	}
}

static __always_inline void measure_rtt(struct tcp_sock *tp, struct state *htcp, u32 rtt_us, bool calm)
{
	TAKE_BASE_RTT(tp, &htcp->base, rtt_us);
	if (!calm)
		return;
	if (htcp->most_rtt_us < htcp->base.us)
		htcp->most_rtt_us = htcp->base.us;
	if (rtt_us > htcp->most_rtt_us && rtt_us - htcp->most_rtt_us <= 20000)
		htcp->most_rtt_us = rtt_us;
}

CALLBACK(void, init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);

	htcp->alpha_65536 = 65536;
	htcp->keep_128 = parameters.least_keep_128;
	htcp->acked = 1;
	start_clock(tp, &htcp->clock);
	forget_base(tp, &htcp->base);
	htcp->rate_us = now_us(tp);
}

static __always_inline void measure_rate(struct tcp_sock *tp, struct state *htcp, u32 state, u32 acked)
{
	u32 now = now_us(tp);
	u32 passed_us = now - htcp->rate_us;
	u32 reserve = MAX(htcp->alpha_65536 >> 16, 1U);
	u64 least_us = least_rtt_us(htcp);
	u64 rate;

	if (state != TCP_CA_Open && state != TCP_CA_Disorder) {
		htcp->packets = 0;
		htcp->rate_us = now;
		return;
	}
	htcp->packets += acked;
	if (htcp->packets + (u64)reserve < tp->snd_cwnd || passed_us < least_us || !least_us)
		return;
	/* A round trip has passed. */
	rate = (u64)htcp->packets * 1000000 / MAX(passed_us, 1U);
	rate = MIN(rate, U32_MAX / 8);
	if ((u64)htcp->clock.ms * 1000 < 4 * least_us) {
		htcp->rate = rate;
		htcp->most_rate = rate;
	} else {
		htcp->rate = (3 * (u64)htcp->rate + rate) / 4;
		htcp->most_rate = MAX(htcp->most_rate, htcp->rate);
	}
	htcp->packets = 0;
	htcp->rate_us = now;
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);
	u32 state = ca_state(sk);

	SAMPLE_SLOW_START(tp, &htcp->slow_start, sample->rtt_us);
	if (state == TCP_CA_Open)
		htcp->acked = sample->pkts_acked;
	if (sample->rtt_us > 0)
		measure_rtt(tp, htcp, sample->rtt_us, state == TCP_CA_Open);
	if (parameters.bandwidth_switch)
		measure_rate(tp, htcp, state, sample->pkts_acked);
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);
	u64 cwnd;

	run_clock(tp, &htcp->clock);
	if (!window_limits(tp))
		return;
	if (in_slow_start(tp)) {
		acked = SLOWLY_START(tp, &htcp->slow_start, ack, acked);
		if (!acked || parameters.whole_packets)
			return;
	}
	cwnd = MAX(tp->snd_cwnd, 1U);
	if (parameters.whole_packets) {
		if ((u64)tp->snd_cwnd_cnt * htcp->alpha_65536 >> 16 >= cwnd) {
			grow_window(tp, 1, acked);
			tp->snd_cwnd_cnt = 0;
			update_alpha(htcp);
		} else {
			tp->snd_cwnd_cnt += htcp->acked;
		}
		htcp->acked = 1;
		return;
	}
	update_alpha(htcp);
	grow_at(tp, &htcp->credit, htcp->alpha_65536, acked);
}

/* What an undo brings back. */
static __always_inline void remember(struct state *htcp)
{
	htcp->before.clock_ms = htcp->clock.ms;
	htcp->before.most_rtt_us = htcp->most_rtt_us;
	htcp->before.old_rate = htcp->old_most_rate;
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);
	u64 cwnd = window_at_loss(tp);
	u32 least_us = least_rtt_us(htcp);

	run_clock(tp, &htcp->clock);
	if (parameters.undo_memory)
		remember(htcp);
	update_keep(htcp);
	update_alpha(htcp);
	htcp->credit = 0;
	if (htcp->most_rtt_us > least_us)
		htcp->most_rtt_us = least_us + (u64)(htcp->most_rtt_us - least_us) * 95 / 100;
	return at_least_two(cwnd * htcp->keep_128 >> 7);
}

CALLBACK(void, set_state, struct sock *sk, u8 new_state)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);

	if (new_state == TCP_CA_Open) {
		/* The event ends here, and δ counts from its end. */
		if (htcp->may_undo) {
			start_clock(tp, &htcp->clock);
			htcp->may_undo = 0;
		}
	} else if (new_state != TCP_CA_Disorder) {
		/* Linux does not know what ssthresh, which the kernel called before, has changed. */
		if (!parameters.undo_memory)
			remember(htcp);
		htcp->may_undo = 1;
		start_clock(tp, &htcp->clock);
	}
}

static __always_inline void tx_start(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);

	skip_idle_time(tp, &htcp->clock);
	/* Nor does a sample of the rate span it. */
	htcp->packets = 0;
	htcp->rate_us = now_us(tp);
}

ONLY_TX_START_EVENTS

CALLBACK(u32, undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);

	if (htcp->may_undo) {
		htcp->clock.ms = htcp->before.clock_ms;
		htcp->most_rtt_us = htcp->before.most_rtt_us;
		htcp->old_most_rate = htcp->before.old_rate;
		htcp->may_undo = 0;
	}
	return window_before_loss(tp);
}

CONGESTION_CONTROL(htcp,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.set_state = FN(set_state),
	EVENTS,
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
