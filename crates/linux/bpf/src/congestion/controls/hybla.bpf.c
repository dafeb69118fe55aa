// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Hybla. A flow with a long round trip grows in the same time as a flow with RTT0 = 25 ms: with ρ = RTT/RTT0, at least 1, each
 * acknowledged packet adds 2^ρ - 1 in slow start and ρ²/cwnd beyond. A loss halves the window.
 *
 * Source: C. Caini, R. Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks", Int. J. Satellite Communications and
 * Networking 22(5), 2004.
 *
 * Differences from the paper: the initial window and ssthresh are the kernel's, the host paces (fq), and there is no bandwidth
 * estimate for the first ssthresh. ρ is at most 1000. In slow start it is at most 16, in eighths. An ACK for n packets adds n times.
 * The RTT is the least smoothed one of the last ten minutes.
 * Differences from Linux (tcp_hybla.c): Linux begins with a window of ρ packets, limits the window to 65,535, adds once for an ACK of
 * any size, and takes ρ in eighths, of the least RTT of the flow. --variant linux does all that. In any state but Open both are Reno.
 */
#include "congestion/common/base_rtt.h"
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)               \
	P(rtt0_us, 25000)           \
	P(most_window, 0)           \
	P(window_of_rho, 0)         \
	P(count_acks, 0)            \
	BASE_RTT(P)                 \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

struct state {
	struct slow_start slow_start;
	u64 credit; /* of packets to add; Linux: in 128ths */
	u32 rho_1024; /* ρ; 0: unknown */
	u32 srtt_8us; /* the RTT that it is of, in eighths of microseconds */
	struct base_rtt base; /* of the smoothed RTT */
};

/* 1000 times 25 ms are 25 s: longer round trips do not occur. */
#define MOST_RHO_1024 (1000 << 10)

static __always_inline void measure(struct tcp_sock *tp, struct state *hybla, u32 srtt_8us)
{
	u64 rho_1024 = ((u64)srtt_8us << 7) / MAX(parameters.rtt0_us, 1);

	/* Linux has eighths. */
	if (parameters.count_acks)
		rho_1024 -= rho_1024 % 128;
	hybla->rho_1024 = rho_1024 < 1024 ? 1024 : MIN(rho_1024, MOST_RHO_1024);
	hybla->srtt_8us = srtt_8us;
}

/* 2^(eighths/8), in 128ths. */
static __always_inline u32 fraction_of_two(u32 eighths)
{
	switch (eighths) {
	case 1: return 139;
	case 2: return 152;
	case 3: return 165;
	case 4: return 181;
	case 5: return 197;
	case 6: return 215;
	case 7: return 234;
	default: return 128;
	}
}

static __always_inline void limit_window(struct tcp_sock *tp)
{
	if (parameters.most_window && tp->snd_cwnd > parameters.most_window)
		set_window(tp, parameters.most_window);
}

CALLBACK(void, init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *hybla = STATE(sk);

	forget_base(tp, &hybla->base);
	measure(tp, hybla, tp->srtt_us);
	if (parameters.window_of_rho)
		set_window(tp, hybla->rho_1024 >> 10);
}

/* For an ACK of any size, without the rest of ρ²/cwnd below 1/128, but at least one packet in cwnd ACKs. */
static __always_inline void grow_as_linux(struct tcp_sock *tp, struct state *hybla, u64 increase_128)
{
	u32 cwnd = tp->snd_cwnd;
	bool small = increase_128 < 128 && !in_slow_start(tp);
	u64 credit_128 = hybla->credit + increase_128 % 128;
	u32 acks = tp->snd_cwnd_cnt + small;
	u64 window = cwnd + (increase_128 >> 7);

	if (credit_128 >= 128) {
		window += credit_128 >> 7;
		credit_128 %= 128;
		acks = 0;
	}
	if (increase_128 == 0 && acks >= window) {
		window++;
		acks = 0;
	}
	hybla->credit = credit_128;
	tp->snd_cwnd_cnt = acks;
	set_window(tp, in_slow_start(tp) ? MIN(window, tp->snd_ssthresh) : window);
}

CALLBACK(void, pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *hybla = STATE(sk);

	SAMPLE_SLOW_START(tp, &hybla->slow_start, sample->rtt_us);
	if (sample->rtt_us >= 0)
		TAKE_BASE_RTT(tp, &hybla->base, tp->srtt_us);
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *hybla = STATE(sk);
	u32 cwnd = MAX(tp->snd_cwnd, 1U);
	u32 rho;
	u64 increase_128, one, divisor;

	/* A longer RTT is a queue until the shorter one is forgotten. */
	if (tp->srtt_us < hybla->srtt_8us || !hybla->srtt_8us)
		measure(tp, hybla, tp->srtt_us);
	else if (hybla->base.us < RTT_NONE && hybla->base.us > hybla->srtt_8us)
		measure(tp, hybla, hybla->base.us);
	if (!window_limits(tp))
		return;
	if (ca_state(sk) != TCP_CA_Open) {
		RENO_CONG_AVOID(tp, &hybla->slow_start, ack, acked);
		limit_window(tp);
		return;
	}
	divisor = in_slow_start(tp) ? SLOW_START_DIVISOR(tp, &hybla->slow_start, ack) : 1;
	rho = MIN(hybla->rho_1024 >> 10, 16U);
	if (in_slow_start(tp))
		increase_128 = ((u64)fraction_of_two(hybla->rho_1024 >> 7 & 7) << rho) - 128;
	else
		increase_128 = (u64)hybla->rho_1024 * hybla->rho_1024 >> 13;
	if (parameters.count_acks) {
		grow_as_linux(tp, hybla, increase_128 / (in_slow_start(tp) ? divisor : cwnd));
		limit_window(tp);
		return;
	}
	one = (in_slow_start(tp) ? divisor : cwnd) << 7;
	hybla->credit = hybla->credit % one + increase_128 * MIN(acked, 1U << 24);
	increase_128 = hybla->credit / one;
	hybla->credit -= increase_128 * one;
	set_window(tp, in_slow_start(tp) ? MIN(cwnd + increase_128, tp->snd_ssthresh) : cwnd + increase_128);
	limit_window(tp);
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct state *hybla = STATE(sk);

	/* Linux keeps its fraction. */
	if (!parameters.count_acks)
		hybla->credit = 0;
	return half(window_at_loss(tcp_of(sk)));
}

UNDO_TO_WINDOW_BEFORE_LOSS

CONGESTION_CONTROL(hybla,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
