/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The common part of the congestion controls: the fields of a TCP socket that they read and write, and shared arithmetic. Each control is
 * one file NAME.bpf.c, which is compiled twice:
 *
 *   for BPF      the kernel calls it (struct tcp_congestion_ops). CO-RE: the loader takes offsets from the running kernel.
 *   natively     tests call it, with the socket of native.h.
 *
 * Units. cwnd, ssthresh, acked: packets. Times: microseconds, from tcp_mstamp, which the kernel refreshes with each ACK and timer.
 * A suffix _128 or _1024 says that a number counts 128ths or 1024ths.
 *
 * The kernel's order of calls. For each ACK: in_ack_event, pkts_acked, then cong_avoid. In a recovery there is no cong_avoid: the kernel
 * itself shrinks the window to ssthresh (PRR, RFC 6937). `acked` counts packets newly acknowledged or SACKed, so stretch ACKs count in
 * full (appropriate byte counting, RFC 3465, without its limit). On a loss: ssthresh, then set_state.
 */
#ifndef LONGHAUL_CONGESTION_TCP_H
#define LONGHAUL_CONGESTION_TCP_H

#include "types.h"

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

/* <net/tcp.h>: enum tcp_ca_state, enum tcp_ca_event and a flag. All have had these values since Linux 2.6. */
enum {
	TCP_CA_Open = 0,
	TCP_CA_Disorder = 1,
	TCP_CA_CWR = 2,
	TCP_CA_Recovery = 3,
	TCP_CA_Loss = 4,
};
enum {
	CA_EVENT_TX_START = 0,
	CA_EVENT_CWND_RESTART = 1,
	CA_EVENT_COMPLETE_CWR = 2,
	CA_EVENT_LOSS = 3,
};
/* Usable without CAP_NET_ADMIN, and as the default of a network namespace. */
#define TCP_CONG_NON_RESTRICTED 1
/* enum sk_pacing in <net/sock.h>. */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1

/* icsk_ca_priv: a control's memory of a flow. 104 bytes in every Linux that has struct_ops links (6.4). */
#define STATE_BYTES 104

#define U32_MAX 0xffffffffU
/* No RTT was measured. */
#define RTT_NONE 0x7fffffffU
/* TCP_INFINITE_SSTHRESH of <net/tcp.h>: there was no loss yet. */
#define NO_SSTHRESH 0x7fffffffU

#ifdef __bpf__

/* <linux/bpf.h>, user-space ABI. */
enum {
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_F_NO_PREALLOC = 1,
	BPF_SK_STORAGE_GET_F_CREATE = 1,
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock {
	u32 sk_pacing_status;
	unsigned long sk_pacing_rate; /* bytes a second */
	unsigned long sk_max_pacing_rate;
};

struct inet_connection_sock {
	u8 icsk_ca_state : 5;
	u64 icsk_ca_priv[13];
};

struct tcp_options_received {
	u16 sack_ok : 3;
};

struct tcp_sock {
	struct tcp_options_received rx_opt;
	u8 is_cwnd_limited : 1;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 max_packets_out;
	u32 delivered;
	u32 lost; /* in all */
	u32 packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 app_limited; /* 0, or the `delivered` up to which the application limits the flow */
	u32 mss_cache;
	u32 snd_una;
	u32 snd_nxt;
	u32 srtt_us; /* eightfold */
	u64 tcp_mstamp; /* microseconds */
};

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us; /* negative: none */
};

struct rate_sample {
	u32 prior_delivered; /* `delivered` when the packet was sent that this ACK acknowledges, the latest of them */
	s32 delivered; /* since then; negative: none */
	long interval_us; /* for that; negative: less than the least RTT */
	long rtt_us; /* of that packet; negative: none */
	u32 acked_sacked; /* by this ACK */
	u32 prior_in_flight; /* before this ACK */
	bool is_app_limited;
};

#pragma clang attribute pop

/*
 * libbpf finds the running kernel's members by name; their order here means nothing but to the loader, which writes the first, the name,
 * and clears the last where the running kernel does not have it.
 */
struct tcp_congestion_ops {
	char name[16];
	u32 flags;
	void (*init)(struct sock *sk);
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, u32 event);
	void (*in_ack_event)(struct sock *sk, u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *sample);
	u32 (*sndbuf_expand)(struct sock *sk);
	void (*cwnd_event_tx_start)(struct sock *sk);
};

#define BITFIELD(pointer, field) BPF_CORE_READ_BITFIELD(pointer, field)

#define CALLBACK(type, name, args...) SEC("struct_ops") type BPF_PROG(name, ##args)

#define RANDOM(tp) bpf_get_prandom_u32()

/*
 * A memory of the flow that is larger than the kernel's: it goes with the socket. The kernel may have none to give, and then gives it, all
 * zero, at a later call.
 */
#define LARGE_STATE                                                                    \
	struct {                                                                       \
		__uint(type, BPF_MAP_TYPE_SK_STORAGE);                                 \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                  \
		__type(key, int);                                                      \
		__type(value, struct state);                                           \
	} memory SEC(".maps");                                                         \
	static __always_inline struct state *large_state(struct sock *sk)              \
	{                                                                              \
		return bpf_sk_storage_get(&memory, sk, 0, BPF_SK_STORAGE_GET_F_CREATE); \
	}

/*
 * The parameters of a control: numbers that the loader may change before the program is loaded. All are u32 and alone in
 * .rodata, in this order; crates/congestion lists the same (a test compares them).
 */
#define FIELD(name, value) u32 name;
#define VALUE(name, value) .name = value,
#define TAKES(list)                   \
	struct parameters {           \
		list(FIELD)           \
	};                            \
	const volatile struct parameters parameters = { list(VALUE) }

#define CONGESTION_CONTROL(algorithm, callbacks...)             \
	SEC(".struct_ops.link")                                 \
	struct tcp_congestion_ops algorithm = {                 \
		.name = "lh_" #algorithm,                       \
		.flags = TCP_CONG_NON_RESTRICTED,               \
		callbacks                                       \
	};                                                      \
	char LICENSE[] SEC("license") = "Dual BSD/GPL"

#else
#include "congestion/common/native.h"
#endif

#define FN(callback) (void *)callback

static __always_inline struct tcp_sock *tcp_of(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* A control's memory of the flow: zero when init is called. */
#define STATE(sk)                                                                                \
	({                                                                                       \
		_Static_assert(sizeof(struct state) <= STATE_BYTES, "it must fit the kernel");  \
		(struct state *)((struct inet_connection_sock *)(sk))->icsk_ca_priv;             \
	})

static __always_inline u32 ca_state(struct sock *sk)
{
	struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;

	return BITFIELD(icsk, icsk_ca_state);
}

/* What TCP takes to be in the network. */
static __always_inline u32 packets_in_flight(struct tcp_sock *tp)
{
	return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Whether sequence number a comes after b. */
static __always_inline bool after(u32 a, u32 b)
{
	return (s32)(b - a) < 0;
}

static __always_inline u32 now_us(struct tcp_sock *tp)
{
	return tp->tcp_mstamp;
}

/* 49 days until it wraps; microseconds do after 71 minutes. */
static __always_inline u32 now_ms(struct tcp_sock *tp)
{
	return tp->tcp_mstamp / 1000;
}

static __always_inline bool in_slow_start(struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

static __always_inline void set_window(struct tcp_sock *tp, u64 packets)
{
	u32 most = MAX(tp->snd_cwnd_clamp, 1U);

	tp->snd_cwnd = packets < 1 ? 1 : packets > most ? most : packets;
}

/*
 * Rules for all controls, in every variant, wherever paper or module say otherwise:
 *
 *   1. The window grows only while it limits the flow (window_limits).
 *   2. An ACK adds at most the packets that it acknowledged, as in slow start (grow_window). Hybla alone adds more: it is made for that.
 *   3. A clock of the time since a loss runs only while the window limits the flow (struct clock).
 *
 * BBRv3 paces, and says in its file what of them it keeps. Without them a flow that was idle for ten minutes would send a burst that no ACK has ever asked the path to carry.
 */

/*
 * Rule 1 (RFC 7661). In slow start a window below twice the packets in flight may grow.
 */
static __always_inline bool window_limits(struct tcp_sock *tp)
{
	if (BITFIELD(tp, is_cwnd_limited))
		return true;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * (u64)tp->max_packets_out;
}

/* Rule 2. */
static __always_inline void grow_window(struct tcp_sock *tp, u64 packets, u32 acked)
{
	set_window(tp, tp->snd_cwnd + MIN(packets, (u64)acked));
}

/* Rule 3. */
struct clock {
	u32 ms; /* that passed while the window was the limit */
	u32 seen_ms; /* when the last ACK came, or the first packet after an idle time was sent */
};

static __always_inline void start_clock(struct tcp_sock *tp, struct clock *clock)
{
	clock->ms = 0;
	clock->seen_ms = now_ms(tp);
}

/* At each ACK. */
static __always_inline void run_clock(struct tcp_sock *tp, struct clock *clock)
{
	u32 now = now_ms(tp);

	if (window_limits(tp)) {
		u32 sum = clock->ms + (now - clock->seen_ms);

		clock->ms = sum < clock->ms ? U32_MAX : sum;
	}
	clock->seen_ms = now;
}

/* When nothing was in flight and a packet is sent. */
static __always_inline void skip_idle_time(struct tcp_sock *tp, struct clock *clock)
{
	clock->seen_ms = now_ms(tp);
}

/* A window that delay has shrunk must not grow back by slow start. */
static __always_inline void stay_out_of_slow_start(struct tcp_sock *tp)
{
	tp->snd_ssthresh = MIN(tp->snd_ssthresh, tp->snd_cwnd);
}

/*
 * Grows the window by one packet for `each` acknowledged packets: each = cwnd is Reno's one in a round trip. snd_cwnd_cnt carries the
 * rest. Credit from a time with a larger `each` is worth at most one packet.
 */
static __always_inline void grow_by_one_for(struct tcp_sock *tp, u32 each, u32 acked)
{
	u64 credit = tp->snd_cwnd_cnt;
	u64 more = 0;

	each = MAX(each, 1U);
	if (credit >= each) {
		credit = 0;
		more++;
	}
	credit += acked;
	if (credit >= each) {
		u64 times = credit / each;

		credit -= times * each;
		more += times;
	}
	tp->snd_cwnd_cnt = MIN(credit, U32_MAX);
	grow_window(tp, more, acked);
}

/*
 * Grows the window by increase_65536 / 65536 packets for each window that is acknowledged, whatever the size of ACKs. `credit` carries the
 * rest: packets acknowledged times increase. A product of 2^23 packets and 2^24 packets in 65536ths fits.
 */
static __always_inline void grow_at(struct tcp_sock *tp, u64 *credit, u64 increase_65536, u32 acked)
{
	u64 one = (u64)(tp->snd_cwnd < 1 ? 1 : MIN(tp->snd_cwnd, 1U << 24)) << 16;
	u64 more;

	*credit = MIN(*credit, one) + MIN(increase_65536, one) * MIN(acked, 1U << 23);
	more = *credit / one;
	*credit -= more * one;
	grow_window(tp, more, acked);
}

/* A growth that is decided once a round trip, spread over the ACKs of the next one. */
struct spread {
	u64 credit; /* packets acknowledged times `packets` */
	u32 packets;
	u32 window; /* when it was decided */
	u32 left;
};

static __always_inline void spread_growth(struct spread *spread, u32 packets, u32 window)
{
	spread->credit = 0;
	spread->packets = packets;
	spread->left = packets;
	spread->window = MAX(window, 1U);
}

/* What an ACK adds: at most `most`. */
static __always_inline u32 part_of(struct spread *spread, u32 acked, u32 most)
{
	u64 part, window = MAX(spread->window, 1U);

	if (!spread->left)
		return 0;
	spread->credit += (u64)MIN(spread->packets, 1U << 24) * MIN(acked, 1U << 23);
	part = spread->credit / window;
	spread->credit -= part * window;
	part = MIN(part, spread->left);
	part = MIN(part, most);
	spread->left -= part;
	return part;
}

/* A loss leaves at least two packets (RFC 5681 Eq. 4). */
static __always_inline u32 at_least_two(u64 packets)
{
	return packets < 2 ? 2 : packets > U32_MAX ? U32_MAX : packets;
}

/*
 * No receiver can grant a window of so many packets: 2^30 bytes (RFC 7323 §2.3) are fewer, even of 64 bytes each.
 */
#define IMPOSSIBLE_WINDOW (1U << 24)

/*
 * The window that a loss makes smaller. One kernel (Linux 6.18) was seen to begin one recovery in 400 without a call of the control: ssthresh
 * was what lay on its stack, and the window grew to 10^8 packets and more. What is in flight counts then, so that the next loss fixes it.
 */
static __always_inline u32 window_at_loss(struct tcp_sock *tp)
{
	return tp->snd_cwnd < IMPOSSIBLE_WINDOW ? tp->snd_cwnd : packets_in_flight(tp);
}

static __always_inline u32 half(u32 packets)
{
	return at_least_two(packets >> 1);
}

/* The window before a spurious loss; one that a loss has fixed stays so. */
static __always_inline u32 window_before_loss(struct tcp_sock *tp)
{
	return tp->prior_cwnd < IMPOSSIBLE_WINDOW ? MAX(tp->snd_cwnd, tp->prior_cwnd) : tp->snd_cwnd;
}

/* The callback of most controls after a spurious loss. */
#define UNDO_TO_WINDOW_BEFORE_LOSS \
	CALLBACK(u32, undo_cwnd, struct sock *sk) \
	{ \
		return window_before_loss(tcp_of(sk)); \
	}

/*
 * CA_EVENT_TX_START: nothing was in flight, and a packet is sent. Linux tells it by cwnd_event, and from 7.1 on by a callback of its own
 * instead. A control defines tx_start(sk), and calls it from its cwnd_event; one without other events takes ONLY_TX_START_EVENTS.
 */
#define TX_START_CALLBACK \
	CALLBACK(void, cwnd_event_tx_start, struct sock *sk) \
	{ \
		tx_start(sk); \
	}

#define ONLY_TX_START_EVENTS \
	CALLBACK(void, cwnd_event, struct sock *sk, u32 event) \
	{ \
		if (event == CA_EVENT_TX_START) \
			tx_start(sk); \
	} \
	TX_START_CALLBACK

#define EVENTS \
	.cwnd_event = FN(cwnd_event), \
	.cwnd_event_tx_start = FN(cwnd_event_tx_start)

#endif
