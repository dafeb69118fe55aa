// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * HighSpeed TCP. Standard TCP up to a window of 38 packets. Beyond it the increase a(w) and the decrease b(w) depend on the window: the
 * response function is w = 0.12 / p^0.835, and a window of 83,000 packets tolerates a loss rate of 10^-7.
 *
 * Source: RFC 3649, §5 (a and b), Appendix B (the table).
 *
 * a(w) is a whole number, as in Appendix B: row i holds the smallest window with a(w) = i + 1. The loader makes another table
 * from low_window, high_window, high_loss_e9 (10^-9) and high_decrease_1000, by the formulas of §5 (longhaul-congestion).
 *
 * Differences from the RFC: an ACK for n packets adds n·a(w)/w. Beyond the last row a and b stay as they are.
 * Differences from Linux (tcp_highspeed.c): Linux rounds up to the next row (a is 2 from 39 packets on, and b is that of the next
 * row), adds a(w)/w for an ACK of any size, and takes b from the window of its last growth beyond slow start.
 * --variant linux does all that.
 */
#include "congestion/common/slow_start.h"

#define PARAMETERS(P)                   \
	P(low_window, 38)               \
	P(high_window, 83000)           \
	P(high_loss_e9, 100)            \
	P(high_decrease_1000, 100)      \
	P(next_row, 0)                  \
	P(count_acks, 0)                \
	P(decrease_of_last_growth, 0)   \
	SLOW_START(P, 0)

TAKES(PARAMETERS);

#define ROWS 128

struct row {
	u32 window;
	u32 decrease_256;
};

/* A row without a window ends it. */
SEC(".rodata.table")
const volatile struct row table[ROWS] = {
	{ 38, 128 }, { 118, 112 }, { 221, 104 }, { 347, 98 }, { 495, 93 }, { 663, 89 },
	{ 851, 86 }, { 1058, 83 }, { 1284, 81 }, { 1529, 78 }, { 1793, 76 }, { 2076, 74 },
	{ 2378, 72 }, { 2699, 71 }, { 3039, 69 }, { 3399, 68 }, { 3778, 66 }, { 4177, 65 },
	{ 4596, 64 }, { 5036, 62 }, { 5497, 61 }, { 5979, 60 }, { 6483, 59 }, { 7009, 58 },
	{ 7558, 57 }, { 8130, 56 }, { 8726, 55 }, { 9346, 54 }, { 9991, 53 }, { 10661, 52 },
	{ 11358, 52 }, { 12082, 51 }, { 12834, 50 }, { 13614, 49 }, { 14424, 48 }, { 15265, 48 },
	{ 16137, 47 }, { 17042, 46 }, { 17981, 45 }, { 18955, 45 }, { 19965, 44 }, { 21013, 43 },
	{ 22101, 43 }, { 23230, 42 }, { 24402, 41 }, { 25618, 41 }, { 26881, 40 }, { 28193, 39 },
	{ 29557, 39 }, { 30975, 38 }, { 32450, 38 }, { 33986, 37 }, { 35586, 36 }, { 37253, 36 },
	{ 38992, 35 }, { 40808, 35 }, { 42707, 34 }, { 44694, 33 }, { 46776, 33 }, { 48961, 32 },
	{ 51258, 32 }, { 53677, 31 }, { 56230, 30 }, { 58932, 30 }, { 61799, 29 }, { 64851, 28 },
	{ 68113, 28 }, { 71617, 27 }, { 75401, 26 }, { 79517, 26 }, { 84035, 25 }, { 89053, 24 },
	{ 94717, 23 },
};

struct state {
	struct slow_start slow_start;
	u64 credit;
	u32 row; /* at the last growth */
};

/*
 * The last row whose window is at most `cwnd`, or, as in Linux, the first whose window is at least `cwnd`. A binary search; unused rows
 * have no window.
 */
static __always_inline u32 row_of(u32 cwnd)
{
	u32 at_most = 0; /* rows whose window is at most `limit`, less one */
	u32 limit = parameters.next_row ? cwnd - 1 : cwnd;
	u32 step;

	if (parameters.next_row && (cwnd == 0 || table[0].window > limit))
		return 0;
	for (step = ROWS / 2; step > 0; step /= 2) {
		u32 row = at_most + step;
		u32 window = row < ROWS ? table[row].window : 0;

		if (window && window <= limit)
			at_most = row;
	}
	if (parameters.next_row && at_most + 1 < ROWS && table[at_most + 1].window)
		at_most++;
	return at_most;
}

CALLBACK(void, cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct state *highspeed = STATE(sk);
	u32 cwnd;

	if (!window_limits(tp))
		return;
	if (in_slow_start(tp)) {
		acked = SLOWLY_START(tp, &highspeed->slow_start, ack, acked);
		if (!acked || parameters.count_acks)
			return;
	}
	cwnd = MAX(tp->snd_cwnd, 1U);
	highspeed->row = row_of(cwnd);

	grow_at(tp, &highspeed->credit, (u64)(highspeed->row + 1) << 16, parameters.count_acks ? MIN(acked, 1U) : acked);
}

CALLBACK(u32, ssthresh, struct sock *sk)
{
	u64 cwnd = window_at_loss(tcp_of(sk));
	struct state *highspeed = STATE(sk);
	u32 row = parameters.decrease_of_last_growth ? highspeed->row : row_of(cwnd);
	u32 decrease_256 = table[row & (ROWS - 1)].decrease_256;

	highspeed->credit = 0;
	return at_least_two(cwnd - (cwnd * MIN(decrease_256, 256) >> 8));
}

ONLY_SLOW_START_SAMPLES

UNDO_TO_WINDOW_BEFORE_LOSS

CONGESTION_CONTROL(highspeed,
	.ssthresh = FN(ssthresh),
	.cong_avoid = FN(cong_avoid),
	.pkts_acked = FN(pkts_acked),
	.undo_cwnd = FN(undo_cwnd),
);
