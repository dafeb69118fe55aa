/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What BBRv3 does when losses are found.
 *
 * Source: draft-ietf-ccwg-bbr-06, "Updating the Model Upon Packet Loss", "Saving State Upon Loss Recovery", "Modulating cwnd in Loss Recovery".
 */
#ifndef LONGHAUL_CONGESTION_BBR3_LOSS_H
#define LONGHAUL_CONGESTION_BBR3_LOSS_H

#include "congestion/bbr3/state.h"

/* The last known good window. */

static __always_inline void save_cwnd(struct sock *sk, struct state *bbr)
{
	u32 cwnd = tcp_of(sk)->snd_cwnd;

	if (!in_loss_recovery(sk) && bbr->state != PROBE_RTT)
		bbr->prior_cwnd = cwnd;
	else
		bbr->prior_cwnd = MAX(bbr->prior_cwnd, cwnd);
}

static __always_inline void restore_cwnd(struct tcp_sock *tp, struct state *bbr)
{
	set_window(tp, MAX(tp->snd_cwnd, bbr->prior_cwnd));
}

static __always_inline void save_state_upon_loss(struct sock *sk, struct state *bbr)
{
	save_cwnd(sk, bbr);
	bbr->undo_state = UNDO_NOTHING;
	bbr->undo_bw_shortterm = bbr->bw_shortterm;
	bbr->undo_inflight_shortterm = bbr->inflight_shortterm;
	bbr->undo_inflight_longterm = bbr->inflight_longterm;
}

/* Losses. */

static __always_inline void note_loss(struct sock *sk, struct state *bbr)
{
	if (!bbr->is_loss_in_round) {
		bbr->loss_round_delivered = tcp_of(sk)->delivered;
		save_state_upon_loss(sk, bbr);
	}
	bbr->is_loss_in_round = 1;
}

static __always_inline bool is_inflight_too_high(struct tcp_sock *tp, struct state *bbr)
{
	u64 lost = bbr->sample.lost;

	return lost * 1000 > (u64)bbr->sample.tx_in_flight * parameters.loss_threshold_1000 ||
	       (lost && !has_selective_acks(tp));
}

static __always_inline void handle_inflight_too_high(struct sock *sk, struct state *bbr, u32 tx_in_flight)
{
	bbr->prev_probe_too_high = 1;
	bbr->is_bw_probe_sample = 0;
	if (!bbr->sample.is_app_limited) {
		u32 least = (u64)target_inflight(sk, bbr) * MIN(parameters.keep_1000, 1000) / 1000;

		bbr->inflight_longterm = MAX(tx_in_flight, least);
	}
	if (bbr->state == UP) {
		bbr->undo_state = UNDO_UP;
		start_down(tcp_of(sk), bbr);
	}
}

/* InflightAtLoss: at which packet of those `newly_lost` losses crossed the threshold. */
static __always_inline u32 inflight_at_loss(struct state *bbr, u32 newly_lost)
{
	u64 threshold = MIN(parameters.loss_threshold_1000, 999);
	u64 before = bbr->sample.tx_in_flight > newly_lost ? bbr->sample.tx_in_flight - newly_lost : 0;
	u64 lost_before_1000 = bbr->sample.lost > newly_lost ? (u64)(bbr->sample.lost - newly_lost) * 1000 : 0;
	u64 allowed_1000 = before * threshold;

	if (allowed_1000 > lost_before_1000)
		before += (allowed_1000 - lost_before_1000) / (1000 - threshold);
	return before;
}

/* HandleLostPacket, for all that an ACK or a timer found. */
static __always_inline void handle_losses(struct sock *sk, struct state *bbr)
{
	struct tcp_sock *tp = tcp_of(sk);
	u32 newly_lost = tp->lost - bbr->seen_lost;

	bbr->seen_lost = tp->lost;
	if (!newly_lost)
		return;
	bbr->sample.lost = tp->lost - FLIGHT(&bbr->flights, bbr->flights.first)->lost;
	bbr->loss_events = MIN(bbr->loss_events + 1, 255);
	note_loss(sk, bbr);
	if (bbr->is_bw_probe_sample && is_inflight_too_high(tp, bbr))
		handle_inflight_too_high(sk, bbr, inflight_at_loss(bbr, newly_lost));
}

/* The end of CheckStartupHighLoss. */
static __always_inline void leave_startup(struct state *bbr)
{
	u32 bdp = bdp_multiple(bbr, bbr->bw, 100);

	bbr->undo_state = UNDO_STARTUP;
	bbr->full_bw_reached = 1;
	bbr->full_bw_now = 1;
	bbr->inflight_longterm = MAX(bdp, bbr->inflight_latest);
}

/* Congestion that is told once a round trip: ECN, or a queue of this host. */
static __always_inline void handle_mark(struct sock *sk, struct state *bbr)
{
	note_loss(sk, bbr);
	if (bbr->is_bw_probe_sample)
		handle_inflight_too_high(sk, bbr, bbr->sample.tx_in_flight);
	else if (bbr->state == STARTUP && !bbr->full_bw_reached)
		leave_startup(bbr);
}

#endif
