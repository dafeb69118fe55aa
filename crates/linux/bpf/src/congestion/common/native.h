/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Replaces the kernel where a congestion control is compiled natively. tests/congestion/native.rs has the same structures.
 */
#ifndef LONGHAUL_CONGESTION_NATIVE_H
#define LONGHAUL_CONGESTION_NATIVE_H

#define __always_inline inline __attribute__((always_inline))

struct sock {
	u64 sk_pacing_rate;
	u64 sk_pacing_status;
	u64 sk_max_pacing_rate;
};

struct inet_connection_sock {
	struct sock sk;
	u64 icsk_ca_state;
	u64 icsk_ca_priv[STATE_BYTES / 8];
};

struct tcp_options_received {
	u32 sack_ok;
};

/* Words of the memory of a control whose memory is larger than the kernel's. */
#define LARGE_STATE_WORDS 384

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u64 tcp_mstamp;
	u32 is_cwnd_limited;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 max_packets_out;
	u32 delivered;
	u32 snd_una;
	u32 snd_nxt;
	u32 srtt_us;
	u32 lost;
	u32 packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 app_limited;
	u32 mss_cache;
	struct tcp_options_received rx_opt;
	u32 random; /* the last number of a generator */
	u64 large_state[LARGE_STATE_WORDS];
};

_Static_assert(__builtin_offsetof(struct tcp_sock, snd_cwnd) == 148 && __builtin_offsetof(struct tcp_sock, large_state) == 224,
	       "native.rs has the same");

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
};

struct rate_sample {
	u32 prior_delivered;
	s32 delivered;
	s64 interval_us;
	s64 rtt_us;
	u32 acked_sacked;
	u32 prior_in_flight;
	u32 is_app_limited;
};

struct tcp_congestion_ops {
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
	/* Of the calling thread. */
	u32 *(*parameters)(void);
	u32 parameter_count;
	const char *const *parameter_names;
};

#define BITFIELD(pointer, field) ((pointer)->field)
#define CALLBACK(type, name, args...) static type name(args)
#define SEC(name)

/* Numerical Recipes' generator of 32 bits. */
#define RANDOM(tp) ((tp)->random = (tp)->random * 1664525U + 1013904223U)

#define LARGE_STATE                                                                                                  \
	static __always_inline struct state *large_state(struct sock *sk)                                            \
	{                                                                                                            \
		_Static_assert(sizeof(struct state) <= LARGE_STATE_WORDS * 8, "it must fit the stand-in");           \
		return (struct state *)((struct tcp_sock *)sk)->large_state;                                         \
	}

#define FIELD(name, value) u32 name;
#define VALUE(name, value) .name = value,
#define NAME(name, value) #name,
#define TAKES(list)                                                              \
	struct parameters {                                                      \
		list(FIELD)                                                      \
	};                                                                       \
	static _Thread_local struct parameters parameters = { list(VALUE) };     \
	static u32 *values(void)                                                 \
	{                                                                        \
		return (u32 *)&parameters;                                       \
	}                                                                        \
	static const char *const names[] = { list(NAME) }

#define CONGESTION_CONTROL(algorithm, callbacks...)                              \
	const struct tcp_congestion_ops longhaul_##algorithm = {                 \
		.parameters = values,                                            \
		.parameter_count = sizeof(names) / sizeof(names[0]),             \
		.parameter_names = names,                                        \
		callbacks                                                        \
	}

#endif
