/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The memory of a BBRv3 flow; volumes and rates that follow from it; and the states, with what of the model begins anew as each begins.
 *
 * Source: draft-ietf-ccwg-bbr-06, "Terminology", "ProbeBW Algorithm Details", "Updating Control Parameters".
 */
#ifndef LONGHAUL_CONGESTION_BBR3_STATE_H
#define LONGHAUL_CONGESTION_BBR3_STATE_H

#include "congestion/common/rate.h"

#define MIN_PIPE_CWND 4
#define INFINITE U32_MAX
#define INFINITE_RATE (~0ULL)
#define MOST_EXTRA_ACKED_ROUNDS 16
/* Windows and volumes. */
#define MOST_PACKETS (1U << 30)

enum { STARTUP, DRAIN, DOWN, CRUISE, REFILL, UP, PROBE_RTT };
enum { ACKS_INIT, ACKS_REFILLING, ACKS_PROBE_STARTING, ACKS_PROBE_FEEDBACK, ACKS_PROBE_STOPPING };
enum { UNDO_NOTHING, UNDO_STARTUP, UNDO_UP };

/* Rates as in rate.h, volumes in packets, times in microseconds of tcp_mstamp. */
struct state {
	struct flights flights;
	struct sample sample;

	/* Long-term model. */
	u64 max_bw;
	u64 max_bw_filter[2]; /* the cycle before, and this one */
	u64 min_rtt_stamp;
	u32 min_rtt_us;
	u32 inflight_longterm;
	/* Short-term model. */
	u64 bw_shortterm;
	u64 bw; /* the lesser of max_bw and bw_shortterm */
	u64 bw_latest;
	u32 inflight_shortterm;
	u32 inflight_latest;
	u32 loss_round_delivered;

	u64 full_bw;
	u64 cycle_stamp;
	u64 bw_probe_wait;
	u64 probe_rtt_min_stamp;
	u64 probe_rtt_done_stamp; /* 0: none */
	u64 extra_acked_start;
	u64 extra_acked_delivered;
	u32 extra_acked[MOST_EXTRA_ACKED_ROUNDS]; /* the most in each of the last round trips, by round_count */
	u32 extra_acked_before; /* in those before this one that count */
	u32 probe_rtt_min_us;
	u32 next_round_delivered;
	u32 round_count;
	u32 drain_start_round;
	u32 rounds_since_probe_up;
	u32 bw_probe_up_rounds;
	u32 bw_probe_up_acked;
	u32 probe_up_acked_per_inc;
	u32 initial_cwnd;
	u32 prior_cwnd;
	u32 seen_lost;
	u32 loss_events; /* ACKs that found losses since the last round of losses began */
	u32 full_bw_count;

	u64 undo_bw_shortterm;
	u32 undo_inflight_shortterm;
	u32 undo_inflight_longterm;

	u8 begun;
	u8 state;
	u8 ack_phase;
	u8 undo_state;
	u8 round_start;
	u8 loss_round_start;
	u8 is_loss_in_round;
	u8 is_bw_probe_sample;
	u8 full_bw_reached;
	u8 full_bw_now;
	u8 prev_probe_too_high;
	u8 prev_probe_precautionary;
	u8 probe_rtt_expired;
	u8 probe_rtt_round_done;
	u8 idle_restart;
	u8 has_seen_rtt;
};

LARGE_STATE

#define EXTRA_ACKED(bbr, round) (bbr)->extra_acked[(round) & (MOST_EXTRA_ACKED_ROUNDS - 1)]

static __always_inline u64 ms(u32 milliseconds)
{
	return (u64)milliseconds * 1000;
}

static __always_inline bool has_selective_acks(struct tcp_sock *tp)
{
	return BITFIELD(tp, rx_opt.sack_ok);
}

static __always_inline bool in_loss_recovery(struct sock *sk)
{
	return ca_state(sk) >= TCP_CA_Recovery;
}

static __always_inline bool in_probe_bw(struct state *bbr)
{
	return bbr->state >= DOWN && bbr->state <= UP;
}

/* Volumes. */

/* BDPMultiple(gain) at a rate. */
static __always_inline u32 bdp_multiple(struct state *bbr, u64 rate, u32 gain_100)
{
	u64 packets;

	if (bbr->min_rtt_us == RTT_NONE)
		return bbr->initial_cwnd;
	/* In 256ths: 32 bits and 31, less 16, and a gain of at most ten. */
	packets = ((MIN(rate, MOST_RATE) * bbr->min_rtt_us >> (RATE_SHIFT - 8)) * MIN(gain_100, 1000) + 25599) / 25600;
	return MIN(packets, MOST_PACKETS);
}

/* Three times C.send_quantum, which is what the kernel makes a super-packet of: a millisecond, at least two packets, at most 64 KB. */
static __always_inline u32 offload_budget(struct sock *sk)
{
	u64 bytes = (u64)sk->sk_pacing_rate / 1000;
	u32 packets = MIN(bytes, 65536) / MAX(tcp_of(sk)->mss_cache, 1U);

	return 3 * MAX(packets, 2U);
}

/* QuantizationBudget */
static __always_inline u32 quantized(struct sock *sk, struct state *bbr, u32 packets)
{
	u32 budget = offload_budget(sk);

	packets = MAX(packets, budget);
	packets = MAX(packets, MIN_PIPE_CWND);
	return bbr->state == UP ? packets + 2 : packets;
}

/* Inflight(rate, 1.0) */
static __always_inline u32 inflight(struct sock *sk, struct state *bbr, u64 rate)
{
	return quantized(sk, bbr, bdp_multiple(bbr, rate, 100));
}

static __always_inline u32 inflight_with_headroom(struct state *bbr)
{
	u64 longterm = bbr->inflight_longterm;
	u64 headroom;

	if (longterm == INFINITE)
		return INFINITE;
	headroom = longterm * MIN(parameters.headroom_1000, 1000) / 1000;
	headroom = MAX(headroom, 1);
	return longterm > headroom + MIN_PIPE_CWND ? longterm - headroom : MIN_PIPE_CWND;
}

static __always_inline u32 target_inflight(struct sock *sk, struct state *bbr)
{
	u32 bdp = bdp_multiple(bbr, bbr->bw, 100);

	return MIN(bdp, tcp_of(sk)->snd_cwnd);
}

static __always_inline u32 probe_rtt_cwnd(struct state *bbr)
{
	u32 packets = bdp_multiple(bbr, bbr->bw, parameters.probe_rtt_cwnd_gain_100);

	return MAX(packets, MIN_PIPE_CWND);
}

/* Parts of the model that begin anew. */

static __always_inline void start_round(struct tcp_sock *tp, struct state *bbr)
{
	bbr->next_round_delivered = tp->delivered;
}

static __always_inline void reset_full_bw(struct state *bbr, u64 rate)
{
	bbr->full_bw = rate;
	bbr->full_bw_count = 0;
	bbr->full_bw_now = 0;
}

static __always_inline void reset_congestion_signals(struct state *bbr)
{
	bbr->is_loss_in_round = 0;
	bbr->bw_latest = 0;
	bbr->inflight_latest = 0;
}

static __always_inline void reset_shortterm_model(struct state *bbr)
{
	bbr->bw_shortterm = INFINITE_RATE;
	bbr->inflight_shortterm = INFINITE;
}

/* States. */

static __always_inline void start_down(struct tcp_sock *tp, struct state *bbr)
{
	u32 random = RANDOM(tp);

	reset_congestion_signals(bbr);
	bbr->probe_up_acked_per_inc = INFINITE;
	/* PickProbeWait */
	bbr->rounds_since_probe_up = random & 1;
	bbr->bw_probe_wait = ms(parameters.probe_wait_ms) + (ms(parameters.probe_wait_spread_ms) * (random >> 8) >> 24);
	bbr->cycle_stamp = tp->tcp_mstamp;
	bbr->ack_phase = ACKS_PROBE_STOPPING;
	start_round(tp, bbr);
	bbr->state = DOWN;
}

static __always_inline void start_refill(struct tcp_sock *tp, struct state *bbr)
{
	reset_shortterm_model(bbr);
	bbr->bw_probe_up_rounds = 0;
	bbr->bw_probe_up_acked = 0;
	bbr->prev_probe_precautionary = 0;
	bbr->ack_phase = ACKS_REFILLING;
	start_round(tp, bbr);
	bbr->state = REFILL;
}

/* RaiseInflightLongtermSlope: one packet in the first round trip, then twice as many in each. */
static __always_inline void raise_longterm_slope(struct tcp_sock *tp, struct state *bbr)
{
	u32 rounds = MIN(bbr->bw_probe_up_rounds, 30);
	u32 each = tp->snd_cwnd >> rounds;

	bbr->bw_probe_up_rounds = MIN(rounds + 1, 30);
	bbr->probe_up_acked_per_inc = MAX(each, 1);
}

static __always_inline void start_up(struct tcp_sock *tp, struct state *bbr)
{
	bbr->ack_phase = ACKS_PROBE_STARTING;
	start_round(tp, bbr);
	reset_full_bw(bbr, bbr->sample.rate);
	bbr->state = UP;
	raise_longterm_slope(tp, bbr);
}

static __always_inline void exit_probe_rtt(struct tcp_sock *tp, struct state *bbr)
{
	reset_shortterm_model(bbr);
	if (bbr->full_bw_reached) {
		start_down(tp, bbr);
		bbr->state = CRUISE;
	} else {
		bbr->state = STARTUP;
	}
}

#endif
