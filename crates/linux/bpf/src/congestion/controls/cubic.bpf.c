// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * CUBIC. The window is a cubic function of the time since the last loss, whatever the RTT: it rises fast to the window of that loss (Wmax),
 * stays near it for a while, and then probes beyond. Where Reno would have more, it is Reno's.
 *
 *   W(t) = C(t - K)³ + Wmax,  K = cbrt((Wmax - cwnd at t = 0)/C)        loss: Wmax ← cwnd, cwnd ← β·cwnd
 *
 * Source: RFC 9438 (C = 0.4, β = 0.7). Slow start ends by HyStart++ (RFC 9406), as §4.10 asks for.
 *
 * Differences from the RFC: windows and times are whole packets and milliseconds, W(t) is in 1024ths of a packet. A loss takes β of cwnd,
 * not of the data in flight (§4.6 allows it where the window is validated).
 * The kernel's own `cubic` is an older CUBIC: other HyStart, the time does not stand still while the application limits the flow, and
 * its Reno window is never as fast as Reno. There is no --variant linux: select the kernel's.
 */
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)            \
	P(c_1024, 410)           \
	P(keep_1024, 717)        \
	P(fast_convergence, 1)   \
	SLOW_START(P, 1)

TAKES(PARAMETERS);

/* What a loss changes and an undo brings back. */
struct epoch {
	u64 reno_65536; /* West */
	u32 clock_ms; /* t */
	u32 k_ms;
	u32 origin; /* Wmax where the function is at K */
	u32 begun;
};

struct state {
	struct slow_start slow_start;
	struct clock clock;
	u64 credit;
	struct epoch epoch;
	struct epoch before;
	u32 max; /* Wmax; 0: none */
	u32 before_max; /* and cwnd_prior, the window before the loss: Reno's growth is β's up to it */
	u32 prior;
};

/*
 * Cube root of up to 2^63, by Newton's method from 2^21: each step leaves at most two thirds of the estimate until it is near. There are no
 * branches, as the verifier follows each (the last bit of the square is set instead of asking whether it is zero).
 */
static __always_inline u32 cube_root(u64 number)
{
	u64 root = 1ULL << 21;
	u32 step;

	for (step = 0; step < 45; step++)
		root = (2 * root + number / (root * root | 1)) / 3;
	return root;
}

/* K³ = (Wmax - cwnd)/C, in ms³. */
static __always_inline void begin_epoch(struct tcp_sock *tp, struct state *cubic)
{
	u64 below = MIN(cubic->max > tp->snd_cwnd ? cubic->max - tp->snd_cwnd : 0, 1U << 23);

	cubic->epoch.begun = 1;
	cubic->epoch.k_ms = cube_root(below * 1000000000 / MAX(parameters.c_1024, 1) << 10);
	cubic->epoch.origin = MAX(cubic->max, tp->snd_cwnd);
	cubic->epoch.reno_65536 = (u64)tp->snd_cwnd << 16;
	cubic->credit = 0;
	start_clock(tp, &cubic->clock);
}

/* W(t), in 1024ths of a packet; t in ms. At most 200 s from K: 8·10^15 · 1024 fits. */
static __always_inline u64 function_1024(struct state *cubic, u64 t_ms)
{
	u64 k = cubic->epoch.k_ms;
	u64 apart = t_ms > k ? t_ms - k : k - t_ms;
	u64 origin = (u64)cubic->epoch.origin << 10;
	u64 offset;

	apart = MIN(apart, 200000);
	offset = apart * apart * apart / 1000000 * MIN(parameters.c_1024, 1024) / 1000;
	if (t_ms > k)
		return origin + offset;
	return origin > offset ? origin - offset : 0;
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *cubic = STATE(sk);
	u64 cwnd, now_1024, target_1024, keep, alpha_65536;

	if (!window_limits(tp)) {
		run_clock(tp, &cubic->clock);
		return;
	}
	if (in_slow_start(tp)) {
		acked = SLOWLY_START(tp, &cubic->slow_start, ack, acked);
		if (!acked)
			return;
	}
	if (!cubic->epoch.begun)
		begin_epoch(tp, cubic);
	run_clock(tp, &cubic->clock);
	cwnd = MAX(tp->snd_cwnd, 1U);

	/* §4.3: Reno with a β of its own up to the window before the loss, then Reno. */
	keep = MIN(parameters.keep_1024, 1024);
	alpha_65536 = cubic->epoch.reno_65536 >> 16 < cubic->prior ? 3 * (1024 - keep) * 65536 / (1024 + keep) : 65536;
	cubic->epoch.reno_65536 += alpha_65536 * MIN(acked, 1U << 23) / cwnd;
	now_1024 = function_1024(cubic, cubic->clock.ms);
	if (now_1024 << 6 < cubic->epoch.reno_65536) {
		u64 reno = cubic->epoch.reno_65536 >> 16;

		grow_window(tp, reno > cwnd ? reno - cwnd : 0, acked);
		return;
	}
	/* §4.4 and §4.5: where the function is a round trip from now, at most half more than the window. */
	target_1024 = function_1024(cubic, (u64)cubic->clock.ms + tp->srtt_us / 8000);
	target_1024 = MIN(target_1024, cwnd * 1536);
	if (target_1024 > cwnd << 10)
		grow_at(tp, &cubic->credit, (target_1024 - (cwnd << 10)) << 6, acked);
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *cubic = STATE(sk);
	u64 cwnd = window_at_loss(tp);
	u64 keep = MIN(parameters.keep_1024, 1024);

	run_clock(tp, &cubic->clock);
	cubic->before = cubic->epoch;
	cubic->before.clock_ms = cubic->clock.ms;
	cubic->before_max = cubic->max;
	cubic->epoch.begun = 0;
	cubic->credit = 0;
	/* §4.7. */
	if (parameters.fast_convergence && cwnd < cubic->max)
		cubic->max = cwnd * (1024 + keep) / 2048;
	else
		cubic->max = cwnd;
	cubic->prior = cwnd;
	return at_least_two(cwnd * keep / 1024);
}

/* §4.9. */
CALLBACK(u32, undo_cwnd, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *cubic = STATE(sk);

	if (cubic->before.begun) {
		cubic->epoch = cubic->before;
		cubic->clock.ms = cubic->before.clock_ms;
		cubic->before.begun = 0;
	}
	cubic->max = cubic->before_max;
	return window_before_loss(tp);
}

static __always_inline void tx_start(struct sock *sk)
{
	skip_idle_time(tcp_of(sk), &STATE(sk)->clock);
}

ONLY_TX_START_EVENTS

ONLY_SLOW_START_SAMPLES

CONGESTION_CONTROL(cubic,
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	EVENTS,
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
