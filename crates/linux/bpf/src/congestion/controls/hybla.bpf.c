// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Hybla. A flow with a long round trip grows in the same time as a flow with RTT0 = 25 ms: with ρ = RTT/RTT0, at least 1, each
 * acknowledged packet adds 2^ρ - 1 in slow start and ρ²/cwnd beyond. A loss halves the window.
 *
 * Source: C. Caini, R. Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks", Int. J. Satellite Communications and
 * Networking 22(5), 2004.
 *
 * Differences from the paper: the initial window and ssthresh are the kernel's, the host paces (fq), and there is no bandwidth
 * estimate for the first ssthresh. ρ is at most 1000, and 16 in slow start. An ACK for n packets adds n times.
 * Differences from Linux (tcp_hybla.c): Linux begins with a window of ρ packets, limits the window to 65,535, and adds once for an ACK of
 * any size. --variant linux does all that. In any state but Open both are Reno.
 */
#include "congestion/controls/tcp.h"

#define PARAMETERS(P)               \
	P(rtt0_us, 25000)           \
	P(most_window, 0)           \
	P(window_of_rho, 0)         \
	P(count_acks, 0)

TAKES(PARAMETERS);

struct state {
	u64 credit_128; /* of packets to add */
	u32 rho_8; /* ρ; 0: unknown */
	u32 least_srtt_8us; /* the RTT that it is of */
};

/* 1000 eighths of 25 ms are 25 s: longer round trips do not occur. */
#define MOST_RHO_8 8000

static __always_inline void measure(struct tcp_sock *tp, struct state *hybla)
{
	/* srtt_us has eighths of microseconds. */
	u32 rho_8 = tp->srtt_us / MAX(parameters.rtt0_us, 1);

	hybla->rho_8 = rho_8 < 8 ? 8 : rho_8 > MOST_RHO_8 ? MOST_RHO_8 : rho_8;
	hybla->least_srtt_8us = tp->srtt_us;
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

	measure(tp, hybla);
	if (parameters.window_of_rho)
		set_window(tp, hybla->rho_8 >> 3);
}

/* For an ACK of any size, without the rest of ρ²/cwnd below 1/128, but at least one packet in cwnd ACKs. */
static __always_inline void grow_as_linux(struct tcp_sock *tp, struct state *hybla, u64 increase_128)
{
	u32 cwnd = tp->snd_cwnd;
	bool small = increase_128 < 128 && !in_slow_start(tp);
	u64 credit_128 = hybla->credit_128 + increase_128 % 128;
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
	hybla->credit_128 = credit_128;
	tp->snd_cwnd_cnt = acks;
	set_window(tp, in_slow_start(tp) ? MIN(window, tp->snd_ssthresh) : window);
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *hybla = STATE(sk);
	u32 cwnd = MAX(tp->snd_cwnd, 1U);
	u32 rho_8, rho;
	u64 increase_128, window;

	if (!hybla->rho_8 || tp->srtt_us < hybla->least_srtt_8us)
		measure(tp, hybla);
	if (!window_limits(tp))
		return;
	if (ca_state(sk) != TCP_CA_Open) {
		reno_cong_avoid(tp, acked);
		limit_window(tp);
		return;
	}
	rho_8 = hybla->rho_8;
	rho = MIN(rho_8 >> 3, 16U);
	if (in_slow_start(tp))
		increase_128 = ((u64)fraction_of_two(rho_8 & 7) << rho) - 128;
	else
		increase_128 = (u64)rho_8 * rho_8 << 1;
	if (parameters.count_acks) {
		grow_as_linux(tp, hybla, in_slow_start(tp) ? increase_128 : increase_128 / cwnd);
		limit_window(tp);
		return;
	}
	if (in_slow_start(tp)) {
		window = cwnd + (increase_128 * acked >> 7);
		window = MIN(window, tp->snd_ssthresh);
	} else {
		u64 one = (u64)cwnd << 7;
		u64 credit = hybla->credit_128 + increase_128 * acked;
		u64 more = credit / one;

		hybla->credit_128 = credit - more * one;
		window = cwnd + more;
	}
	set_window(tp, window);
	limit_window(tp);
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	struct state *hybla = STATE(sk);

	hybla->credit_128 = 0;
	return half(tcp_of(sk)->snd_cwnd);
}

UNDO_TO_WINDOW_BEFORE_LOSS

CONGESTION_CONTROL(hybla,
	.init = FN(init),
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.undo_cwnd = FN(undo_cwnd),
);
