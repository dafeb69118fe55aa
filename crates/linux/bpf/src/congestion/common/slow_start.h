/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Slow start, with two parameters of every control: HyStart++, and limited slow start.
 *
 * Sources: RFC 5681 §3.1; RFC 9406 §4.2 and §4.3 (HyStart++); RFC 3742 §2 (limited slow start).
 *
 * Differences from the RFCs: growth counts packets, not bytes, and an ACK for n packets adds n times: HyStart++ is used without its limit
 * L = 8 of packets that an ACK may add, as the RFC allows a sender that paces; today's ACKs are for 45 packets.
 */
#ifndef LONGHAUL_CONGESTION_SLOW_START_H
#define LONGHAUL_CONGESTION_SLOW_START_H

#include "congestion/common/tcp.h"

/* The parameters, the last two of each control. */
#define SLOW_START(P, hystart_value) P(hystart, hystart_value) P(max_ssthresh, 0)

/* RFC 9406 §4.3. */
#define MIN_RTT_THRESH_US 4000
#define MAX_RTT_THRESH_US 16000
#define MIN_RTT_DIVISOR 8
#define N_RTT_SAMPLE 8
#define CSS_GROWTH_DIVISOR 4
#define CSS_ROUNDS 5

/* All zero when a flow begins. RTTs: 0 is none. */
struct slow_start {
	u32 round_end; /* sequence number */
	u32 rtt_us; /* the least of this round trip */
	u32 last_rtt_us; /* of the one before */
	u32 css_rtt_us; /* cssBaselineMinRtt; 0: it is not in conservative slow start (CSS) */
	u16 samples;
	u8 css_rounds;
	u8 begun;
};

/* RFC 9406 is for the first slow start. */
#define HYSTART_MAY(tp) (parameters.hystart && in_slow_start(tp) && (tp)->snd_ssthresh >= NO_SSTHRESH)

/* At each ACK with an RTT: the callback pkts_acked of a control without an own one. */
#define ONLY_SLOW_START_SAMPLES \
	CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample) \
	{ \
		SAMPLE_SLOW_START(tcp_of(sk), &STATE(sk)->slow_start, sample->rtt_us); \
	}

#define SAMPLE_SLOW_START(tp, slow_start, rtt_us) \
	do { \
		if (HYSTART_MAY(tp)) \
			sample_slow_start(slow_start, rtt_us); \
	} while (0)

static __always_inline void sample_slow_start(struct slow_start *slow, s32 rtt_us)
{
	u32 rtt;

	if (rtt_us < 0)
		return;
	rtt = MAX((u32)rtt_us, 1U);
	slow->rtt_us = slow->rtt_us ? MIN(slow->rtt_us, rtt) : rtt;
	slow->samples = MIN(slow->samples + 1, 0xffff);
}

/* RFC 9406 §4.2. Returns the share of the growth: one over this. */
static __always_inline u32 hystart(struct tcp_sock *tp, struct slow_start *slow, u32 ack)
{
	if (!slow->begun || after(ack, slow->round_end)) {
		if (slow->css_rtt_us && ++slow->css_rounds >= CSS_ROUNDS) {
			tp->snd_ssthresh = tp->snd_cwnd;
			return 1;
		}
		slow->begun = 1;
		slow->round_end = tp->snd_nxt;
		slow->last_rtt_us = slow->rtt_us;
		slow->rtt_us = 0;
		slow->samples = 0;
	}
	if (slow->samples >= N_RTT_SAMPLE) {
		if (slow->css_rtt_us) {
			/* The queue is gone: the rise was no congestion. */
			if (slow->rtt_us < slow->css_rtt_us)
				slow->css_rtt_us = 0;
		} else if (slow->last_rtt_us) {
			u32 rise = slow->last_rtt_us / MIN_RTT_DIVISOR;

			rise = rise < MIN_RTT_THRESH_US ? MIN_RTT_THRESH_US : rise > MAX_RTT_THRESH_US ? MAX_RTT_THRESH_US : rise;
			if (slow->rtt_us >= (u64)slow->last_rtt_us + rise) {
				slow->css_rtt_us = slow->rtt_us;
				slow->css_rounds = 0;
			}
		}
	}
	return slow->css_rtt_us ? CSS_GROWTH_DIVISOR : 1;
}

/* By how much less the window grows than it would: HyStart++'s divisor times RFC 3742's K. */
#define SLOW_START_DIVISOR(tp, slow, ack) \
	((u64)(HYSTART_MAY(tp) ? hystart(tp, slow, ack) : 1) * limited_slow_start(tp, parameters.max_ssthresh))

/* RFC 3742 §2: beyond max_ssthresh a round trip adds max_ssthresh / 2 packets. */
static __always_inline u32 limited_slow_start(struct tcp_sock *tp, u32 max_ssthresh)
{
	if (!max_ssthresh || tp->snd_cwnd <= max_ssthresh)
		return 1;
	return tp->snd_cwnd / MAX(max_ssthresh / 2, 1U);
}

/* Returns the part of `acked` beyond ssthresh, for congestion avoidance. */
#define SLOWLY_START(tp, slow, ack, acked) slow_start(tp, acked, SLOW_START_DIVISOR(tp, slow, ack))

static __always_inline u32 slow_start(struct tcp_sock *tp, u32 acked, u64 divisor)
{
	u64 credit = acked, beyond, before = tp->snd_cwnd;
	u64 wanted, window;

	/* HyStart++ has just ended it. */
	if (!in_slow_start(tp))
		return acked;
	if (divisor > 1) {
		credit += tp->snd_cwnd_cnt;
		tp->snd_cwnd_cnt = credit % divisor;
		credit /= divisor;
	}
	wanted = before + MIN(credit, acked);
	window = MIN(wanted, tp->snd_ssthresh);
	set_window(tp, window);
	beyond = (wanted - window) * divisor;
	return MIN(beyond, acked);
}

/* RFC 5681. */
#define RENO_CONG_AVOID(tp, slow, ack, acked) reno_cong_avoid(tp, acked, SLOW_START_DIVISOR(tp, slow, ack))

static __always_inline void reno_cong_avoid(struct tcp_sock *tp, u32 acked, u64 divisor)
{
	if (!window_limits(tp))
		return;
	if (in_slow_start(tp)) {
		acked = slow_start(tp, acked, divisor);
		if (!acked)
			return;
	}
	grow_by_one_for(tp, tp->snd_cwnd, acked);
}

#endif
