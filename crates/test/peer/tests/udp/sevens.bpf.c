// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * For tests: drops the bulk packets over IPv4 whose sequence leaves 3 when divided by 7, at XDP or tc; and of the fragments of UDP that
 * are not the first one in 40, by chance, at tc.
 * Self-contained: neither kernel nor libbpf headers are needed.
 */
typedef unsigned char u8;
typedef unsigned int u32;

#define SEC(name) __attribute__((section(name), used))

struct xdp_md {
	u32 data;
	u32 data_end;
};

static long (*bpf_skb_load_bytes)(const void *skb, u32 offset, void *to, u32 bytes) = (void *)26;

/* Ethernet 14, IPv4 20, UDP 8, cookie 4, sequence 6 (the upper two zero but for reserved ones). */
#define FRAME 52

static __attribute__((always_inline)) int ours(const u8 *frame)
{
	u32 sequence = (u32)frame[48] << 24 | (u32)frame[49] << 16 | (u32)frame[50] << 8 | frame[51];

	return frame[12] == 8 && frame[13] == 0 && frame[23] == 17 && !frame[46] && !frame[47] && sequence % 7 == 3;
}

SEC("xdp")
int xdp_sevens(struct xdp_md *context)
{
	u8 *data = (u8 *)(long)context->data;

	if (data + FRAME > (u8 *)(long)context->data_end)
		return 2; /* XDP_PASS */
	return ours(data) ? 1 : 2; /* XDP_DROP */
}

SEC("tc")
int tc_sevens(void *skb)
{
	u8 frame[FRAME];

	if (bpf_skb_load_bytes(skb, 0, frame, FRAME))
		return 0; /* TC_ACT_OK */
	return ours(frame) ? 2 : 0; /* TC_ACT_SHOT */
}

static u32 (*bpf_get_prandom_u32)(void) = (void *)7;

SEC("parts")
int tc_parts(void *skb)
{
	u8 frame[FRAME];

	if (bpf_skb_load_bytes(skb, 0, frame, FRAME))
		return 0;
	u8 ipv4 = frame[12] == 8 && frame[13] == 0 && frame[23] == 17 && (frame[20] & 0x1f || frame[21]);
	/* Next header: fragment. */
	u8 place[2];
	/* Next header: fragment; its offset lies behind 14 and 40 bytes and two more. */
	u8 ipv6 = frame[12] == 0x86 && frame[13] == 0xdd && frame[20] == 44 && !bpf_skb_load_bytes(skb, 56, place, 2) &&
		  (place[0] || place[1] & 0xf8);

	return (ipv4 || ipv6) && bpf_get_prandom_u32() % 40 == 0 ? 2 : 0;
}

static char terms[] __attribute__((section("license"), used)) = "Dual BSD/GPL";
