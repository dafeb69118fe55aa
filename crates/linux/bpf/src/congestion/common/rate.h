/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What an ACK says of the path, for controls that measure it: the kernel's rate sample, and two numbers that the kernel does not keep for
 * each packet: how much was in flight when a packet was sent, and how much was lost since.
 *
 * All packets that are sent between two ACKs have the same `delivered` of the connection, which the kernel does keep for each packet. So a
 * list by `delivered` finds both numbers again. An entry begins with each ACK that found losses, and with each 64th of a window that is
 * delivered. What is in flight before an ACK is what was when the last packet before it was sent; it stands for all that were sent since
 * the ACK before, which is too much for the first of a burst.
 *
 * Source: draft-ietf-ccwg-bbr-06, "Delivery Rate Samples" (RS) and "Updating the Model Upon Packet Loss" (P.tx_in_flight, P.lost).
 */
#ifndef LONGHAUL_CONGESTION_RATE_H
#define LONGHAUL_CONGESTION_RATE_H

#include "congestion/common/tcp.h"

/* Rates are packets a microsecond, in 2^-24: at most 256 packets. */
#define RATE_SHIFT 24
#define MOST_RATE 0xffffffffULL

#define FLIGHTS 128 /* a power of two */

struct flight {
	u32 delivered; /* when it began */
	u32 lost; /* in all, until then */
	u32 sent; /* the same */
	u32 in_flight; /* the most of its packets' */
};

struct sample {
	u64 rate; /* 0: none */
	u32 prior_delivered;
	u32 delivered; /* since then; 0: this ACK acknowledges nothing new */
	u32 newly_acked;
	u32 rtt_us; /* RTT_NONE: none */
	u32 prior_in_flight; /* before this ACK */
	u32 tx_in_flight; /* when the packet was sent that is acknowledged */
	u32 lost; /* since then */
	u32 is_app_limited;
};

struct flights {
	struct flight list[FLIGHTS];
	u32 first; /* in which the packet was sent that was acknowledged last */
	u32 last;
};

#define FLIGHT(flights, number) (&(flights)->list[(number) & (FLIGHTS - 1)])

static __always_inline u32 packets_sent(struct tcp_sock *tp)
{
	return tp->delivered + tp->lost + packets_in_flight(tp);
}

static __always_inline void begin_flight(struct tcp_sock *tp, struct flight *flight)
{
	flight->delivered = tp->delivered;
	flight->lost = tp->lost;
	flight->sent = packets_sent(tp);
	flight->in_flight = packets_in_flight(tp);
}

static __always_inline void begin_flights(struct tcp_sock *tp, struct flights *flights)
{
	flights->first = 0;
	flights->last = 0;
	begin_flight(tp, FLIGHT(flights, 0));
}

/* What is sent from now on belongs to a flight of its own, if enough was delivered since the last began. */
static __always_inline void next_flight(struct tcp_sock *tp, struct flights *flights)
{
	struct flight *flight = FLIGHT(flights, flights->last);
	u32 delivered = tp->delivered - flight->delivered;

	/* Nothing of it was sent; or a timer found losses, and what is sent now is not among them. */
	if (packets_sent(tp) == flight->sent || !delivered) {
		begin_flight(tp, flight);
		return;
	}
	if (delivered < tp->snd_cwnd / (FLIGHTS / 2) &&
	    (tp->lost == flight->lost || flights->last - flights->first > FLIGHTS * 3 / 4))
		return;
	if (flights->last - flights->first >= FLIGHTS - 1)
		flights->first++;
	flights->last++;
	begin_flight(tp, FLIGHT(flights, flights->last));
}

/* At the beginning of each ACK. */
static __always_inline void take_rate(struct tcp_sock *tp, struct flights *flights, struct sample *sample,
				      const struct rate_sample *told)
{
	struct flight *flight = FLIGHT(flights, flights->last);
	s64 interval_us = told->interval_us, rtt_us = told->rtt_us;
	s32 delivered = told->delivered;
	u64 rate = 0;
	u32 step;

	flight->in_flight = MAX(flight->in_flight, told->prior_in_flight);
	sample->prior_delivered = told->prior_delivered;
	sample->delivered = delivered > 0 ? delivered : 0;
	sample->newly_acked = told->acked_sacked;
	sample->rtt_us = rtt_us < 0 || rtt_us >= RTT_NONE ? RTT_NONE : rtt_us;
	sample->prior_in_flight = told->prior_in_flight;
	sample->is_app_limited = told->is_app_limited;
	if (delivered > 0 && interval_us > 0)
		rate = ((u64)delivered << RATE_SHIFT) / (u64)interval_us;
	sample->rate = MIN(rate, MOST_RATE);

	/* An ACK for more flights than steps finds the rest at the next. */
	for (step = 0; step < 16 && sample->delivered; step++) {
		if (flights->first == flights->last ||
		    after(FLIGHT(flights, flights->first + 1)->delivered, sample->prior_delivered))
			break;
		flights->first++;
	}
	flight = FLIGHT(flights, flights->first);
	sample->tx_in_flight = flight->in_flight;
	sample->lost = tp->lost - flight->lost;
}

#endif
