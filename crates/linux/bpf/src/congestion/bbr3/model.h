/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The steps of each ACK that measure: rounds, rates, aggregation, and whether the path is full.
 *
 * Source: draft-ietf-ccwg-bbr-06, "Updating Network Path Model Parameters", "Exiting Acceleration Based on Bandwidth Plateau".
 */
#ifndef LONGHAUL_CONGESTION_BBR3_MODEL_H
#define LONGHAUL_CONGESTION_BBR3_MODEL_H

#include "congestion/bbr3/state.h"

static __always_inline void update_latest_delivery_signals(struct tcp_sock *tp, struct state *bbr)
{
	struct sample *rs = &bbr->sample;

	bbr->loss_round_start = 0;
	bbr->bw_latest = MAX(bbr->bw_latest, rs->rate);
	bbr->inflight_latest = MAX(bbr->inflight_latest, rs->delivered);
	if (rs->delivered && !after(bbr->loss_round_delivered, rs->prior_delivered)) {
		bbr->loss_round_delivered = tp->delivered;
		bbr->loss_round_start = 1;
	}
}

static __always_inline void update_max_bw(struct tcp_sock *tp, struct state *bbr)
{
	struct sample *rs = &bbr->sample;

	/* UpdateRound */
	bbr->round_start = rs->delivered && !after(bbr->next_round_delivered, rs->prior_delivered);
	if (bbr->round_start) {
		start_round(tp, bbr);
		bbr->round_count++;
		bbr->rounds_since_probe_up = MIN(bbr->rounds_since_probe_up + 1, MOST_PACKETS);
	}
	if (rs->rate && (rs->rate >= bbr->max_bw || !rs->is_app_limited)) {
		bbr->max_bw_filter[1] = MAX(bbr->max_bw_filter[1], rs->rate);
		bbr->max_bw = MAX(bbr->max_bw_filter[0], bbr->max_bw_filter[1]);
	}
}

/* AdvanceMaxBwFilter. A cycle without a sample is none. */
static __always_inline void advance_max_bw_filter(struct state *bbr)
{
	if (!bbr->max_bw_filter[1])
		return;
	bbr->max_bw_filter[0] = bbr->max_bw_filter[1];
	bbr->max_bw_filter[1] = 0;
}

static __always_inline void update_congestion_signals(struct tcp_sock *tp, struct state *bbr)
{
	update_max_bw(tp, bbr);
	if (!bbr->loss_round_start)
		return;
	/* AdaptLowerBoundsFromCongestion: not while it probes for bandwidth. */
	if (bbr->is_loss_in_round && bbr->state != STARTUP && bbr->state != REFILL && bbr->state != UP) {
		u64 keep = MIN(parameters.keep_1000, 1000);
		u64 rate, packets;

		rate = bbr->bw_shortterm == INFINITE_RATE ? bbr->max_bw : bbr->bw_shortterm;
		rate = rate * keep / 1000;
		bbr->bw_shortterm = MAX(bbr->bw_latest, rate);
		packets = bbr->inflight_shortterm == INFINITE ? tp->snd_cwnd : bbr->inflight_shortterm;
		packets = packets * keep / 1000;
		bbr->inflight_shortterm = MAX(bbr->inflight_latest, (u32)packets);
	}
	bbr->is_loss_in_round = 0;
}

static __always_inline void update_ack_aggregation(struct tcp_sock *tp, struct state *bbr)
{
	u64 interval_us = tp->tcp_mstamp - bbr->extra_acked_start;
	/* At most 17 minutes: 32 bits of a rate and 30. */
	u64 expected = MIN(bbr->bw, MOST_RATE) * MIN(interval_us, 1ULL << 30) >> RATE_SHIFT;
	u64 extra;
	u32 back;

	if (bbr->extra_acked_delivered <= expected) {
		bbr->extra_acked_delivered = 0;
		bbr->extra_acked_start = tp->tcp_mstamp;
		expected = 0;
	}
	bbr->extra_acked_delivered += bbr->sample.newly_acked;
	extra = bbr->extra_acked_delivered - MIN(expected, bbr->extra_acked_delivered);
	extra = MIN(extra, tp->snd_cwnd);
	if (bbr->round_start) {
		EXTRA_ACKED(bbr, bbr->round_count) = 0;
		bbr->extra_acked_before = 0;
		/* In Startup it remembers one round trip. */
		if (!bbr->full_bw_reached)
			EXTRA_ACKED(bbr, bbr->round_count - 1) = 0;
		for (back = 1; back < MOST_EXTRA_ACKED_ROUNDS && back < parameters.extra_acked_rounds; back++)
			bbr->extra_acked_before = MAX(bbr->extra_acked_before, EXTRA_ACKED(bbr, bbr->round_count - back));
	}
	EXTRA_ACKED(bbr, bbr->round_count) = MAX(EXTRA_ACKED(bbr, bbr->round_count), (u32)extra);
}

static __always_inline void check_full_bw_reached(struct state *bbr)
{
	struct sample *rs = &bbr->sample;

	if (bbr->full_bw_now || !bbr->round_start || rs->is_app_limited || !rs->rate)
		return;
	if (rs->rate * 100 >= bbr->full_bw * parameters.full_growth_100) {
		reset_full_bw(bbr, rs->rate);
		return;
	}
	bbr->full_bw_count++;
	bbr->full_bw_now = bbr->full_bw_count >= parameters.full_rounds;
	if (bbr->full_bw_now)
		bbr->full_bw_reached = 1;
}

#endif
