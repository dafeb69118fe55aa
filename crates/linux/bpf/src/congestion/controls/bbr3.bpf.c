// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * BBRv3. It measures the rate at which the path delivers (max_bw) and the least RTT (min_rtt), and paces at that rate with some two round
 * trips' worth of packets in flight. It probes for more every two or three seconds (ProbeBW), and sends half as much for 200 ms where no
 * lower RTT was seen for five seconds (ProbeRTT). Loss is no signal by itself: more than 2 % in a round trip while it probes bounds what
 * it puts in flight (inflight_longterm), loss at other times what it does until it probes again (the short-term bounds).
 *
 * Source: draft-ietf-ccwg-bbr-06 (N. Cardwell, I. Swett, J. Beshay, 2026), whose names and sections the comments use.
 *
 * Differences from the draft. Volumes are packets, and a BDP is rounded up. The kernel does not keep P.tx_in_flight and P.lost: see rate.h;
 * lost packets are judged by the packet whose ACK found them, which was sent a little later. Ranges of lost packets are counted as ACKs that
 * found losses. Whether a probe has reached inflight_longterm is asked of what was in flight before an ACK. A restart from idle begins
 * extra_acked anew, with what was acknowledged, too. The draft leaves ECN open but for a mark being congestion: here a mark (or a packet that
 * this host's queue dropped) ends Startup or a probe as too much loss does, and is one loss at other times. --set changes the constants.
 * The kernel's own `bbr` is BBRv1: it does not respond to loss, probes each eighth round trip, and falls to four packets for ProbeRTT. There
 * is no --variant linux.
 *
 * Rules of tcp.h: an ACK adds at most what it acknowledged, but the end of a recovery and of ProbeRTT bring back the window that was. The
 * model bounds the window, whether the window limits the flow or not (rule 1), and the draft's times are those of a clock (rule 3).
 */
#include "congestion/common/rate.h"

#define PARAMETERS(P)                    \
	P(startup_pacing_100, 277)       \
	P(drain_pacing_100, 50)          \
	P(down_pacing_100, 90)           \
	P(up_pacing_100, 125)            \
	P(pacing_margin_100, 1)          \
	P(cwnd_gain_100, 200)            \
	P(up_cwnd_gain_100, 225)         \
	P(probe_rtt_cwnd_gain_100, 50)   \
	P(full_growth_100, 125)          \
	P(full_rounds, 3)                \
	P(startup_losses, 6)             \
	P(loss_threshold_1000, 20)       \
	P(keep_1000, 700)                \
	P(headroom_1000, 150)            \
	P(probe_wait_ms, 2000)           \
	P(probe_wait_spread_ms, 1000)    \
	P(reno_rounds, 63)               \
	P(precautionary, 1)              \
	P(min_rtt_ms, 10000)             \
	P(probe_rtt_every_ms, 5000)      \
	P(probe_rtt_ms, 200)             \
	P(extra_acked_rounds, 10)

TAKES(PARAMETERS);

#include "congestion/bbr3/probe.h"

/* Pacing. */

static __always_inline u32 pacing_gain_100(struct state *bbr)
{
	switch (bbr->state) {
	case STARTUP:
		return parameters.startup_pacing_100;
	case DRAIN:
		return parameters.drain_pacing_100;
	case DOWN:
		return parameters.down_pacing_100;
	case UP:
		return parameters.up_pacing_100;
	default:
		return 100;
	}
}

static __always_inline u32 cwnd_gain_100(struct state *bbr)
{
	return bbr->state == PROBE_RTT ? parameters.probe_rtt_cwnd_gain_100 :
	       bbr->state == UP	       ? parameters.up_cwnd_gain_100 :
					 parameters.cwnd_gain_100;
}

/* Bytes a second: 10^6/2^24 is 15625/2^18. 32 bits, 16 of a segment, a gain of ten; less four, and 14. */
static __always_inline u64 bytes_per_second(struct sock *sk, u64 rate, u32 gain_100, u32 margin_100)
{
	u64 bytes = MIN(rate, MOST_RATE) * MIN(tcp_of(sk)->mss_cache, 65535);

	bytes = bytes * MIN(gain_100, 1000) / 100;
	bytes = bytes / 100 * (100 - MIN(margin_100, 100));
	bytes = (bytes >> 4) * 15625 >> 14;
	return MIN(bytes, (u64)sk->sk_max_pacing_rate);
}

/* InitPacingRate */
static __always_inline void init_pacing_rate(struct sock *sk, struct state *bbr)
{
	u32 srtt_us = tcp_of(sk)->srtt_us >> 3;
	u64 rate;

	if (srtt_us)
		bbr->has_seen_rtt = 1;
	rate = ((u64)bbr->initial_cwnd << RATE_SHIFT) / (srtt_us ? srtt_us : 1000);
	sk->sk_pacing_rate = bytes_per_second(sk, rate, parameters.startup_pacing_100, 0);
}

/* SetPacingRateWithGain */
static __always_inline void set_pacing_rate(struct sock *sk, struct state *bbr, u32 gain_100)
{
	u64 rate;

	if (!bbr->has_seen_rtt && tcp_of(sk)->srtt_us)
		init_pacing_rate(sk, bbr);
	rate = bytes_per_second(sk, bbr->bw, gain_100, parameters.pacing_margin_100);
	if (bbr->full_bw_reached || rate > sk->sk_pacing_rate)
		sk->sk_pacing_rate = rate;
}

/* BoundCwndForModel */
static __always_inline u32 model_bound(struct state *bbr)
{
	u32 cap = INFINITE;

	if (bbr->state == PROBE_RTT || bbr->state == CRUISE)
		cap = inflight_with_headroom(bbr);
	else if (in_probe_bw(bbr))
		cap = bbr->inflight_longterm;
	cap = MIN(cap, bbr->inflight_shortterm);
	return MAX(cap, MIN_PIPE_CWND);
}

static __always_inline void set_cwnd(struct sock *sk, struct state *bbr)
{
	struct tcp_sock *tp = tcp_of(sk);
	u32 acked = bbr->sample.newly_acked;
	u64 cwnd = tp->snd_cwnd;
	u32 most, bound;

	/* UpdateMaxInflight */
	most = bdp_multiple(bbr, bbr->bw, cwnd_gain_100(bbr));
	most += MIN(MAX(bbr->extra_acked_before, EXTRA_ACKED(bbr, bbr->round_count)), MOST_PACKETS);
	most = quantized(sk, bbr, most);
	if (bbr->full_bw_reached)
		cwnd = MIN(cwnd + acked, most);
	else if (cwnd < most || tp->delivered < bbr->initial_cwnd)
		cwnd += acked;
	cwnd = MAX(cwnd, MIN_PIPE_CWND);
	if (bbr->state == PROBE_RTT) {
		bound = probe_rtt_cwnd(bbr);
		cwnd = MIN(cwnd, bound);
	}
	bound = model_bound(bbr);
	set_window(tp, MIN(cwnd, bound));
}

/* OnInit */
static __always_inline void begin(struct sock *sk, struct state *bbr)
{
	struct tcp_sock *tp = tcp_of(sk);
	u32 srtt_us = tp->srtt_us >> 3;
	u32 round;

	bbr->begun = 1;
	begin_flights(tp, &bbr->flights);
	bbr->seen_lost = tp->lost;
	bbr->loss_events = 0;
	bbr->sample.lost = 0;
	bbr->sample.tx_in_flight = packets_in_flight(tp);
	bbr->sample.rate = 0;
	bbr->sample.is_app_limited = 0;
	bbr->max_bw = 0;
	bbr->max_bw_filter[0] = 0;
	bbr->max_bw_filter[1] = 0;
	bbr->bw = 0;
	bbr->min_rtt_us = srtt_us ? srtt_us : RTT_NONE;
	bbr->min_rtt_stamp = tp->tcp_mstamp;
	bbr->probe_rtt_min_us = RTT_NONE;
	bbr->probe_rtt_min_stamp = tp->tcp_mstamp;
	bbr->probe_rtt_done_stamp = 0;
	bbr->probe_rtt_round_done = 0;
	bbr->probe_rtt_expired = 0;
	bbr->initial_cwnd = tp->snd_cwnd;
	bbr->prior_cwnd = 0;
	bbr->undo_state = UNDO_NOTHING;
	bbr->undo_bw_shortterm = 0;
	bbr->undo_inflight_shortterm = 0;
	bbr->undo_inflight_longterm = 0;
	bbr->idle_restart = 0;
	bbr->extra_acked_start = tp->tcp_mstamp;
	bbr->extra_acked_delivered = 0;
	bbr->extra_acked_before = 0;
	for (round = 0; round < MOST_EXTRA_ACKED_ROUNDS; round++)
		bbr->extra_acked[round] = 0;
	bbr->full_bw_reached = 0;
	bbr->inflight_longterm = INFINITE;
	bbr->probe_up_acked_per_inc = INFINITE;
	bbr->bw_probe_up_acked = 0;
	bbr->bw_probe_up_rounds = 0;
	bbr->rounds_since_probe_up = 0;
	bbr->is_bw_probe_sample = 0;
	bbr->prev_probe_too_high = 0;
	bbr->prev_probe_precautionary = 0;
	bbr->ack_phase = ACKS_INIT;
	bbr->cycle_stamp = 0;
	bbr->bw_probe_wait = 0;
	bbr->loss_round_delivered = tp->delivered;
	bbr->loss_round_start = 0;
	reset_congestion_signals(bbr);
	reset_shortterm_model(bbr);
	bbr->next_round_delivered = tp->delivered;
	bbr->round_start = 0;
	bbr->round_count = 0;
	bbr->drain_start_round = 0;
	reset_full_bw(bbr, 0);
	bbr->has_seen_rtt = 0;
	init_pacing_rate(sk, bbr);
	bbr->state = STARTUP;
}

/* The flow's memory, begun; NULL while the kernel has none. */
static __always_inline struct state *state_of(struct sock *sk)
{
	struct state *bbr = large_state(sk);

	if (bbr && !bbr->begun)
		begin(sk, bbr);
	return bbr;
}

CALLBACK(void, init, struct sock *sk)
{
	struct state *bbr = large_state(sk);

	if (bbr)
		begin(sk, bbr);
	/* fq paces where there is one, the socket itself otherwise. */
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

CALLBACK(void, cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *told)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *bbr = state_of(sk);

	if (!bbr)
		return;
	take_rate(tp, &bbr->flights, &bbr->sample, told);
	handle_losses(sk, bbr);

	update_latest_delivery_signals(tp, bbr);
	update_congestion_signals(tp, bbr);
	update_ack_aggregation(tp, bbr);
	check_full_bw_reached(bbr);
	check_startup_done(sk, bbr);
	check_drain_done(sk, bbr);
	update_probe_bw_cycle_phase(sk, bbr);
	update_min_rtt(tp, bbr);
	check_probe_rtt(sk, bbr);
	/* AdvanceLatestDeliverySignals */
	if (bbr->loss_round_start) {
		bbr->bw_latest = bbr->sample.rate;
		bbr->inflight_latest = bbr->sample.delivered;
	}
	/* BoundBWForModel */
	bbr->bw = MIN(bbr->max_bw, bbr->bw_shortterm);

	set_pacing_rate(sk, bbr, pacing_gain_100(bbr));
	set_cwnd(sk, bbr);
	next_flight(tp, &bbr->flights);
}

/* OnEnterFastRecovery and OnEnterRTO. There is no threshold. */
CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct state *bbr = state_of(sk);

	if (bbr)
		save_state_upon_loss(sk, bbr);
	return at_least_two(tcp_of(sk)->snd_ssthresh);
}

CALLBACK(void, set_state, struct sock *sk, u8 new_state)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *bbr = state_of(sk);
	u32 old_state = ca_state(sk);

	if (!bbr)
		return;
	if (new_state == TCP_CA_Loss) {
		/* A timeout: all are lost. What other timers find is told with the next ACK. */
		handle_losses(sk, bbr);
		next_flight(tp, &bbr->flights);
	} else if (new_state < TCP_CA_Recovery && old_state >= TCP_CA_Recovery) {
		restore_cwnd(tp, bbr);
	} else if (new_state == TCP_CA_CWR && old_state != TCP_CA_CWR) {
		handle_mark(sk, bbr);
	}
}

/* HandleSpuriousLossDetection */
CALLBACK(u32, undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *bbr = state_of(sk);

	if (!bbr)
		return tp->snd_cwnd;
	bbr->is_loss_in_round = 0;
	reset_full_bw(bbr, 0);
	bbr->bw_shortterm = MAX(bbr->bw_shortterm, bbr->undo_bw_shortterm);
	bbr->inflight_shortterm = MAX(bbr->inflight_shortterm, bbr->undo_inflight_shortterm);
	bbr->inflight_longterm = MAX(bbr->inflight_longterm, bbr->undo_inflight_longterm);
	if (bbr->undo_state == UNDO_STARTUP && bbr->state != STARTUP) {
		bbr->full_bw_reached = 0;
		if (bbr->state != PROBE_RTT)
			bbr->state = STARTUP;
	} else if (bbr->undo_state == UNDO_UP && bbr->state != UP && bbr->state != PROBE_RTT) {
		start_refill(tp, bbr);
	}
	bbr->undo_state = UNDO_NOTHING;
	return MAX(tp->snd_cwnd, bbr->prior_cwnd);
}

/* HandleRestartFromIdle */
static __always_inline void tx_start(struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *bbr = state_of(sk);

	if (!bbr || !tp->app_limited)
		return;
	bbr->idle_restart = 1;
	bbr->extra_acked_start = tp->tcp_mstamp;
	bbr->extra_acked_delivered = 0;
	if (in_probe_bw(bbr))
		set_pacing_rate(sk, bbr, 100);
	else if (bbr->state == PROBE_RTT)
		check_probe_rtt_done(tp, bbr);
}

ONLY_TX_START_EVENTS

/* Of the window: lost packets stay in the buffer until they are repaired, while it sends on. Two is the kernel's for others. */
CALLBACK(u32, sndbuf_expand, struct sock *sk)
{
	return 3;
}

CONGESTION_CONTROL(bbr3,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.set_state = FN(set_state),
	EVENTS,
	.undo_cwnd = FN(undo_cwnd),
	.cong_control = FN(cong_control),
	.sndbuf_expand = FN(sndbuf_expand),
);
