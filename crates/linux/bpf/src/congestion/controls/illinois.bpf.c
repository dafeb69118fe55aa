// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Illinois. Loss tells when to reduce the window, delay tells how much. With the mean queueing delay da of a round trip and the largest
 * delay dm so far, the increase α falls from 10 to 0.1 packets and the decrease β rises from 1/8 to 1/2 as the queue fills.
 *
 *   α: 10 up to dm/100, then κ1/(κ2 + da)        β: 1/8 up to dm/10, then linear up to 1/2 at 8 dm/10
 *
 * Source: S. Liu, T. Başar, R. Srikant, "TCP-Illinois: A loss- and delay-based congestion control algorithm for high-speed
 * networks", Performance Evaluation 65(6-7), 2008 (VALUETOOLS 2006).
 *
 * Differences from the paper: a timeout sets α and β to those of standard TCP. Least and largest RTT are those of ten minutes.
 * Differences from Linux (tcp_illinois.c): Linux has α at least 0.3, is adaptive from 15 packets on (not 10), waits 5 round trips of
 * low delay (not 10) before α is 10 again, ignores the rest of an ACK beyond ssthresh, drops the acknowledged
 * packets beyond those for a whole packet of growth, counts those that were SACKed before again, and never forgets RTTs. --variant linux does that. Linux limits an
 * RTT to 3.3 s.
 */
#include "congestion/common/base_rtt.h"
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)                  \
	P(least_alpha_128, 13)         \
	P(most_alpha_128, 1280)        \
	P(least_beta_64, 8)            \
	P(most_beta_64, 32)            \
	P(window_threshold, 10)        \
	P(good_rtts, 10)               \
	P(slow_start_ends_ack, 0)      \
	P(drop_rest, 0)                \
	BASE_RTT(P)                    \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

struct state {
	struct slow_start slow_start;
	u64 credit;
	u64 sum_rtt_us; /* of this round trip */
	u32 samples;
	struct base_rtt base;
	u32 most_rtt_us;
	u32 fresh_most_rtt_us; /* of the present half of base_rtt_ms */
	u32 round_end; /* sequence number */
	u32 alpha_128;
	u32 beta_64;
	u32 left_low; /* there was delay since α was 10 */
	u32 low_rtts; /* round trips of low delay in a row */
	u32 acked; /* by the last ACK, those that were SACKed before among them */
};

#define STANDARD_ALPHA_128 128

static __always_inline void begin_round(struct tcp_sock *tp, struct state *illinois)
{
	illinois->round_end = tp->snd_nxt;
	illinois->samples = 0;
	illinois->sum_rtt_us = 0;
}

static __always_inline u32 alpha_128(struct state *illinois, u64 mean_us, u64 most_us)
{
	u64 low_us = most_us / 100;
	u64 least = MAX(parameters.least_alpha_128, 1);
	u64 most = MAX(parameters.most_alpha_128, least);

	if (mean_us <= low_us) {
		if (!illinois->left_low)
			return most;
		/* One round trip of low delay is not enough to raise α. */
		if (++illinois->low_rtts < parameters.good_rtts)
			return illinois->alpha_128;
		illinois->low_rtts = 0;
		illinois->left_low = 0;
		return most;
	}
	illinois->left_low = 1;
	/* The hyperbola through (low, most) and (most_us, least). */
	most_us -= low_us;
	mean_us -= low_us;
	return most_us * most / (most_us + mean_us * (most - least) / least);
}

static __always_inline u32 beta_64(u64 mean_us, u64 most_us)
{
	u64 low_us = most_us / 10;
	u64 high_us = 8 * most_us / 10;
	u64 least = parameters.least_beta_64;
	u64 most = MAX(parameters.most_beta_64, least);

	if (mean_us <= low_us)
		return least;
	if (mean_us >= high_us || high_us <= low_us)
		return most;
	return (least * high_us + (most - least) * mean_us - most * low_us) / (high_us - low_us);
}

static __always_inline void adapt(struct tcp_sock *tp, struct state *illinois)
{
	if (tp->snd_cwnd < parameters.window_threshold) {
		illinois->alpha_128 = STANDARD_ALPHA_128;
		illinois->beta_64 = parameters.most_beta_64;
	} else if (illinois->samples > 0) {
		u64 mean_us = illinois->sum_rtt_us / illinois->samples;
		u64 most_us = MAX(illinois->most_rtt_us, illinois->base.us) - illinois->base.us;

		/* The base may have been forgotten in mid-round. */
		mean_us = MAX(mean_us, illinois->base.us) - illinois->base.us;
		mean_us = MIN(mean_us, most_us);

		illinois->alpha_128 = alpha_128(illinois, mean_us, most_us);
		illinois->beta_64 = beta_64(mean_us, most_us);
	}
	begin_round(tp, illinois);
}

CALLBACK(void, init, struct sock *sk)
{
	struct state *illinois = STATE(sk);

	illinois->acked = 1;
	illinois->alpha_128 = parameters.most_alpha_128;
	illinois->beta_64 = parameters.most_beta_64;
	forget_base(tcp_of(sk), &illinois->base);
	begin_round(tcp_of(sk), illinois);
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *illinois = STATE(sk);
	u32 rtt_us = sample->rtt_us;

	SAMPLE_SLOW_START(tp, &illinois->slow_start, sample->rtt_us);
	illinois->acked = sample->pkts_acked;
	if (sample->rtt_us < 0)
		return;
	if (TAKE_BASE_RTT(tp, &illinois->base, rtt_us)) {
		illinois->most_rtt_us = illinois->fresh_most_rtt_us;
		illinois->fresh_most_rtt_us = 0;
	}
	illinois->most_rtt_us = MAX(illinois->most_rtt_us, rtt_us);
	illinois->fresh_most_rtt_us = MAX(illinois->fresh_most_rtt_us, rtt_us);
	illinois->samples++;
	illinois->sum_rtt_us += rtt_us;
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *illinois = STATE(sk);
	u64 cwnd, gain;

	if (after(ack, illinois->round_end))
		adapt(tp, illinois);
	if (!window_limits(tp))
		return;
	if (in_slow_start(tp)) {
		acked = SLOWLY_START(tp, &illinois->slow_start, ack, acked);
		if (!acked || parameters.slow_start_ends_ack)
			return;
	}
	if (!parameters.drop_rest) {
		grow_at(tp, &illinois->credit, (u64)illinois->alpha_128 << 9, acked);
		return;
	}
	/* snd_cwnd_cnt: packets acknowledged since the last growth. */
	cwnd = MAX(tp->snd_cwnd, 1U);
	tp->snd_cwnd_cnt += illinois->acked;
	illinois->acked = 1;
	gain = (u64)tp->snd_cwnd_cnt * illinois->alpha_128 >> 7;
	if (gain >= cwnd) {
		grow_window(tp, gain / cwnd, acked);
		tp->snd_cwnd_cnt = 0;
	}
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct state *illinois = STATE(sk);
	u64 cwnd = window_at_loss(tcp_of(sk));

	illinois->credit = 0;
	return at_least_two(cwnd - (cwnd * MIN(illinois->beta_64, 64U) >> 6));
}

CALLBACK(void, set_state, struct sock *sk, u8 new_state)
{
	struct state *illinois = STATE(sk);

	if (new_state != TCP_CA_Loss)
		return;
	illinois->alpha_128 = STANDARD_ALPHA_128;
	illinois->beta_64 = parameters.most_beta_64;
	illinois->low_rtts = 0;
	illinois->left_low = 0;
	begin_round(tcp_of(sk), illinois);
}

UNDO_TO_WINDOW_BEFORE_LOSS

CONGESTION_CONTROL(illinois,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.set_state = FN(set_state),
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
