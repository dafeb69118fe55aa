/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The steps of each ACK that choose the state.
 *
 * Source: draft-ietf-ccwg-bbr-06, "State Machine Operation".
 */
#ifndef LONGHAUL_CONGESTION_BBR3_PROBE_H
#define LONGHAUL_CONGESTION_BBR3_PROBE_H

#include "congestion/bbr3/loss.h"
#include "congestion/bbr3/model.h"

static __always_inline void check_startup_done(struct sock *sk, struct state *bbr)
{
	struct tcp_sock *tp = tcp_of(sk);

	/* CheckStartupHighLoss */
	if (bbr->state == STARTUP && !bbr->full_bw_reached && ca_state(sk) == TCP_CA_Recovery) {
		if (has_selective_acks(tp) ? bbr->loss_round_start && bbr->loss_events >= parameters.startup_losses &&
						     is_inflight_too_high(tp, bbr) :
					     bbr->loss_events)
			leave_startup(bbr);
	}
	if (bbr->loss_round_start)
		bbr->loss_events = 0;
	if (bbr->state == STARTUP && bbr->full_bw_reached) {
		bbr->state = DRAIN;
		bbr->drain_start_round = bbr->round_count;
	}
}

static __always_inline void check_drain_done(struct sock *sk, struct state *bbr)
{
	struct tcp_sock *tp = tcp_of(sk);

	if (bbr->state == DRAIN && (packets_in_flight(tp) <= inflight(sk, bbr, bbr->bw) ||
				    bbr->round_count - bbr->drain_start_round > 3))
		start_down(tp, bbr);
}

/* ProbeInflightLongtermUpward */
static __always_inline void raise_longterm(struct tcp_sock *tp, struct state *bbr)
{
	u32 each = MAX(bbr->probe_up_acked_per_inc, 1);

	if (!BITFIELD(tp, is_cwnd_limited) || tp->snd_cwnd < bbr->inflight_longterm)
		return;
	bbr->bw_probe_up_acked += MIN(bbr->sample.newly_acked, MOST_PACKETS);
	if (bbr->bw_probe_up_acked >= each) {
		u32 more = bbr->bw_probe_up_acked / each;

		bbr->bw_probe_up_acked -= more * each;
		bbr->inflight_longterm = MIN((u64)bbr->inflight_longterm + more, MOST_PACKETS);
	}
	if (bbr->round_start)
		raise_longterm_slope(tp, bbr);
}

/* AdaptLongTermModel: whether it decided about the state. */
static __always_inline bool adapt_longterm_model(struct tcp_sock *tp, struct state *bbr)
{
	if (bbr->ack_phase == ACKS_PROBE_STARTING && bbr->round_start)
		bbr->ack_phase = ACKS_PROBE_FEEDBACK;
	if (bbr->ack_phase == ACKS_PROBE_STOPPING && bbr->round_start) {
		bbr->is_bw_probe_sample = 0;
		bbr->ack_phase = ACKS_INIT;
		if (in_probe_bw(bbr) && !bbr->sample.is_app_limited)
			advance_max_bw_filter(bbr);
		if (in_probe_bw(bbr) && bbr->prev_probe_precautionary && !bbr->prev_probe_too_high) {
			start_refill(tp, bbr);
			return true;
		}
	}
	if (bbr->inflight_longterm == INFINITE || is_inflight_too_high(tp, bbr))
		return false;
	if (bbr->sample.delivered)
		bbr->inflight_longterm = MAX(bbr->inflight_longterm, MIN(bbr->sample.tx_in_flight, MOST_PACKETS));
	if (bbr->state == UP)
		raise_longterm(tp, bbr);
	return false;
}

static __always_inline bool is_time_to_probe(struct sock *sk, struct state *bbr)
{
	u32 rounds = target_inflight(sk, bbr);

	rounds = MIN(rounds, parameters.reno_rounds);
	return tcp_of(sk)->tcp_mstamp > bbr->cycle_stamp + bbr->bw_probe_wait || bbr->rounds_since_probe_up >= rounds;
}

static __always_inline bool is_time_to_go_down(struct tcp_sock *tp, struct state *bbr)
{
	/* What was in flight before this ACK: after it a flow that its window limits is never at its bound. */
	if (parameters.precautionary && bbr->prev_probe_too_high &&
	    bbr->sample.prior_in_flight >= bbr->inflight_longterm) {
		bbr->prev_probe_precautionary = 1;
		return true;
	}
	if (BITFIELD(tp, is_cwnd_limited) && tp->snd_cwnd >= bbr->inflight_longterm) {
		/* It is the bound that holds the rate. */
		reset_full_bw(bbr, bbr->sample.rate);
		return false;
	}
	return bbr->full_bw_now;
}

static __always_inline void update_probe_bw_cycle_phase(struct sock *sk, struct state *bbr)
{
	struct tcp_sock *tp = tcp_of(sk);

	if (!bbr->full_bw_reached || adapt_longterm_model(tp, bbr))
		return;
	switch (bbr->state) {
	case DOWN:
	case CRUISE:
		if (is_time_to_probe(sk, bbr))
			start_refill(tp, bbr);
		else if (bbr->state == DOWN && packets_in_flight(tp) <= inflight_with_headroom(bbr) &&
			 packets_in_flight(tp) <= inflight(sk, bbr, bbr->max_bw))
			bbr->state = CRUISE;
		break;
	case REFILL:
		if (bbr->round_start) {
			bbr->is_bw_probe_sample = 1;
			start_up(tp, bbr);
		}
		break;
	case UP:
		if (is_time_to_go_down(tp, bbr)) {
			bbr->prev_probe_too_high = 0;
			start_down(tp, bbr);
		}
		break;
	default:
		break;
	}
}

static __always_inline void update_min_rtt(struct tcp_sock *tp, struct state *bbr)
{
	u32 rtt_us = bbr->sample.rtt_us;
	u64 now = tp->tcp_mstamp;

	bbr->probe_rtt_expired = now > bbr->probe_rtt_min_stamp + ms(parameters.probe_rtt_every_ms);
	if (rtt_us != RTT_NONE && (rtt_us < bbr->probe_rtt_min_us || bbr->probe_rtt_expired)) {
		bbr->probe_rtt_min_us = rtt_us;
		bbr->probe_rtt_min_stamp = now;
	}
	if (bbr->probe_rtt_min_us < bbr->min_rtt_us || now > bbr->min_rtt_stamp + ms(parameters.min_rtt_ms)) {
		bbr->min_rtt_us = bbr->probe_rtt_min_us;
		bbr->min_rtt_stamp = bbr->probe_rtt_min_stamp;
	}
}

static __always_inline void check_probe_rtt_done(struct tcp_sock *tp, struct state *bbr)
{
	if (bbr->probe_rtt_done_stamp && tp->tcp_mstamp > bbr->probe_rtt_done_stamp) {
		bbr->probe_rtt_min_stamp = tp->tcp_mstamp;
		restore_cwnd(tp, bbr);
		exit_probe_rtt(tp, bbr);
	}
}

static __always_inline void handle_probe_rtt(struct tcp_sock *tp, struct state *bbr)
{
	u32 until = tp->delivered + packets_in_flight(tp);

	/* MarkConnectionAppLimited: these rates say nothing of the path. */
	tp->app_limited = MAX(until, 1U);
	if (!bbr->probe_rtt_done_stamp) {
		if (packets_in_flight(tp) <= probe_rtt_cwnd(bbr)) {
			bbr->probe_rtt_done_stamp = tp->tcp_mstamp + ms(parameters.probe_rtt_ms);
			bbr->probe_rtt_round_done = 0;
			start_round(tp, bbr);
		}
		return;
	}
	if (bbr->round_start)
		bbr->probe_rtt_round_done = 1;
	if (bbr->probe_rtt_round_done)
		check_probe_rtt_done(tp, bbr);
}

static __always_inline void check_probe_rtt(struct sock *sk, struct state *bbr)
{
	struct tcp_sock *tp = tcp_of(sk);

	if (bbr->state != PROBE_RTT && bbr->probe_rtt_expired && !bbr->idle_restart) {
		save_cwnd(sk, bbr);
		bbr->state = PROBE_RTT;
		bbr->probe_rtt_done_stamp = 0;
		bbr->ack_phase = ACKS_PROBE_STOPPING;
		start_round(tp, bbr);
	}
	if (bbr->state == PROBE_RTT)
		handle_probe_rtt(tp, bbr);
	if (bbr->sample.delivered)
		bbr->idle_restart = 0;
}

#endif
