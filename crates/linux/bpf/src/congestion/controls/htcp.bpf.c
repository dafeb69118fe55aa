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
 * once, as in Linux: a single outlier would distort it forever.
 * Differences from Linux (tcp_htcp.c): Linux rounds the increase to whole packets before it scales it with β, adapts β only from an RTT
 * of 10 ms on, and adds one packet for cwnd/α acknowledged ones without carrying the rest. --variant linux does that. Linux
 * counts time in jiffies, this in microseconds (RTT) and milliseconds (since the loss).
 */
#include "congestion/controls/tcp.h"

#define PARAMETERS(P)                    \
	P(low_us, 1000000)               \
	P(least_keep_128, 64)            \
	P(most_keep_128, 102)            \
	P(adapt_from_us, 0)              \
	P(bandwidth_switch, 1)           \
	P(rtt_scaling, 1)                \
	P(whole_packets, 0)

TAKES(PARAMETERS);

struct state {
	u64 credit_128; /* packets acknowledged, weighted with alpha */
	u32 alpha_128;
	u32 keep_128; /* β */
	u32 adapts; /* β follows the RTTs: there was a loss before */
	u32 acked; /* by the last ACK */
	u32 least_rtt_us;
	u32 most_rtt_us;
	u32 loss_ms; /* when the last congestion event was */
	u32 before_loss_ms; /* the same of the event before; 0: nothing to undo */
	u32 before_most_rtt_us;
	u32 before_old_rate;
	u32 packets; /* acknowledged since rate_us */
	u32 rate_us;
	u32 rate; /* smoothed, packets a second */
	u32 most_rate; /* since the last event */
	u32 old_most_rate; /* before it */
};

static __always_inline u32 since_loss_ms(struct tcp_sock *tp, struct state *htcp)
{
	return now_ms(tp) - htcp->loss_ms;
}

/* The draft's α, at most a million packets a round trip. */
static __always_inline void update_alpha(struct tcp_sock *tp, struct state *htcp)
{
	u64 factor_128 = 128;
	u64 low_ms = parameters.low_us / 1000;
	u64 passed_ms = since_loss_ms(tp, htcp);
	u32 keep_128 = MIN(htcp->keep_128, 128U);

	if (passed_ms > low_ms) {
		u64 beyond_ms = MIN(passed_ms - low_ms, 10000000);
		u64 half_ms = beyond_ms / 2;
		u64 scaled = 10 * beyond_ms + half_ms * half_ms / 1000;

		factor_128 += parameters.whole_packets ? scaled / 1000 * 128 : scaled * 128 / 1000;
	}
	if (parameters.rtt_scaling && htcp->least_rtt_us) {
		/* 100 ms over the RTT, in eighths, between 0.5 and 10. */
		u64 scale_8 = 800000 / htcp->least_rtt_us;

		scale_8 = scale_8 < 4 ? 4 : scale_8 > 80 ? 80 : scale_8;
		if (parameters.whole_packets)
			factor_128 = ((factor_128 >> 7) << 3) / scale_8 << 7;
		else
			factor_128 = (factor_128 << 3) / scale_8;
		if (parameters.whole_packets && !factor_128)
			factor_128 = 128;
	}
	factor_128 = 2 * factor_128 * (128 - keep_128) >> 7;
	htcp->alpha_128 = factor_128 ? MIN(factor_128, 128000000) : 128;
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
	if (htcp->adapts && htcp->least_rtt_us > parameters.adapt_from_us && htcp->most_rtt_us) {
		u64 keep = ((u64)htcp->least_rtt_us << 7) / htcp->most_rtt_us;

		htcp->keep_128 = keep < least ? least : keep > most ? most : keep;
	} else {
		htcp->keep_128 = least;
		htcp->adapts = 1;
	}
}

static __always_inline void measure_rtt(struct state *htcp, u32 rtt_us, bool calm)
{
	if (!htcp->least_rtt_us || rtt_us < htcp->least_rtt_us)
		htcp->least_rtt_us = rtt_us;
	if (!calm)
		return;
	if (htcp->most_rtt_us < htcp->least_rtt_us)
		htcp->most_rtt_us = htcp->least_rtt_us;
	if (rtt_us > htcp->most_rtt_us && rtt_us - htcp->most_rtt_us <= 20000)
		htcp->most_rtt_us = rtt_us;
}

CALLBACK(void, init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);

	htcp->alpha_128 = 128;
	htcp->keep_128 = parameters.least_keep_128;
	htcp->acked = 1;
	htcp->loss_ms = now_ms(tp);
	htcp->rate_us = now_us(tp);
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);
	u32 state = ca_state(sk);
	u32 now = now_us(tp);
	u32 passed_us = now - htcp->rate_us;
	u32 reserve = MAX(htcp->alpha_128 >> 7, 1U);

	if (state == TCP_CA_Open)
		htcp->acked = sample->pkts_acked;
	if (sample->rtt_us > 0)
		measure_rtt(htcp, sample->rtt_us, state == TCP_CA_Open);
	if (!parameters.bandwidth_switch)
		return;
	if (state != TCP_CA_Open && state != TCP_CA_Disorder) {
		htcp->packets = 0;
		htcp->rate_us = now;
		return;
	}
	htcp->packets += sample->pkts_acked;
	if (htcp->packets + (u64)reserve < tp->snd_cwnd || passed_us < htcp->least_rtt_us || !htcp->least_rtt_us)
		return;
	/* A round trip has passed. */
	u64 rate = (u64)htcp->packets * 1000000 / MAX(passed_us, 1U);

	rate = MIN(rate, U32_MAX / 8);
	if ((u64)since_loss_ms(tp, htcp) * 1000 < 4 * (u64)htcp->least_rtt_us) {
		htcp->rate = rate;
		htcp->most_rate = rate;
	} else {
		htcp->rate = (3 * (u64)htcp->rate + rate) / 4;
		htcp->most_rate = MAX(htcp->most_rate, htcp->rate);
	}
	htcp->packets = 0;
	htcp->rate_us = now;
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);
	u64 cwnd;

	if (!window_limits(tp))
		return;
	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked);
		if (!acked || parameters.whole_packets)
			return;
	}
	cwnd = MAX(tp->snd_cwnd, 1U);
	if (parameters.whole_packets) {
		if ((u64)tp->snd_cwnd_cnt * htcp->alpha_128 >> 7 >= cwnd) {
			set_window(tp, cwnd + 1);
			tp->snd_cwnd_cnt = 0;
			update_alpha(tp, htcp);
		} else {
			tp->snd_cwnd_cnt += htcp->acked;
		}
		htcp->acked = 1;
		return;
	}
	update_alpha(tp, htcp);
	htcp->credit_128 += (u64)acked * htcp->alpha_128;
	if (htcp->credit_128 >= cwnd << 7) {
		u64 more = htcp->credit_128 / (cwnd << 7);

		htcp->credit_128 -= more * (cwnd << 7);
		set_window(tp, cwnd + more);
	}
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);
	u64 cwnd = tp->snd_cwnd;

	update_keep(htcp);
	update_alpha(tp, htcp);
	htcp->credit_128 = 0;
	if (htcp->most_rtt_us > htcp->least_rtt_us)
		htcp->most_rtt_us = htcp->least_rtt_us + (u64)(htcp->most_rtt_us - htcp->least_rtt_us) * 95 / 100;
	return at_least_two(cwnd * htcp->keep_128 >> 7);
}

CALLBACK(void, set_state, struct sock *sk, u8 new_state)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);

	if (new_state == TCP_CA_Open) {
		/* The event ends here, and δ counts from its end. */
		if (htcp->before_loss_ms) {
			htcp->loss_ms = now_ms(tp);
			htcp->before_loss_ms = 0;
		}
	} else if (new_state != TCP_CA_Disorder) {
		htcp->before_loss_ms = MAX(htcp->loss_ms, 1U);
		htcp->before_most_rtt_us = htcp->most_rtt_us;
		htcp->before_old_rate = htcp->old_most_rate;
		htcp->loss_ms = now_ms(tp);
	}
}

CALLBACK(u32, undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *htcp = STATE(sk);

	if (htcp->before_loss_ms) {
		htcp->loss_ms = htcp->before_loss_ms;
		htcp->most_rtt_us = htcp->before_most_rtt_us;
		htcp->old_most_rate = htcp->before_old_rate;
		htcp->before_loss_ms = 0;
	}
	return window_before_loss(tp);
}

CONGESTION_CONTROL(htcp,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.set_state = FN(set_state),
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
