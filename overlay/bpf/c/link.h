/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Writing and reading the header of a packet on the WireGuard device: IPv6 alone, because the device takes nothing but IP.
 *
 *	source, destination   96 bits: the worker's prefix, which WireGuard checks by key   32 bits: the network
 *
 * The device has no address and no route, so that nothing but these programs and the agent's echo requests use it. */
#pragma once
#include "flow.h"

#define IPPROTO_ICMP6 58
#define ECHO_REQUEST 128
#define ECHO_REPLY 129

part int to_link(struct __sk_buff *skb, struct peer *peer, __u32 net)
{
	__u64 room = BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 | BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;
	struct ipv6hdr h = {.version = 6, .hop_limit = 64};
	__u32 len = skb->len - ETH_HLEN;

	if (!peer)
		return DROP;
	h.nexthdr = skb->protocol == bpf_htons(ETH_P_IP) ? IPPROTO_IPIP : IPPROTO_IPV6;
	/* Segments are cut up later; each then gets a length of its own. */
	h.payload_len = bpf_htons(len > 65535 ? 65535 : len);
	__builtin_memcpy(&h.saddr, &peer->source, 16);
	__builtin_memcpy(&h.daddr, &peer->endpoint, 16);
	h.saddr.in6_u.u6_addr32[3] = bpf_htonl(net);
	h.daddr.in6_u.u6_addr32[3] = bpf_htonl(net);
	if (bpf_skb_adjust_room(skb, sizeof(h), BPF_ADJ_ROOM_MAC, room) || bpf_skb_store_bytes(skb, ETH_HLEN, &h, sizeof(h), 0))
		return drop(DROP_KERNEL);
	count(TO_LINK);
	/* The Ethernet header is left behind: the device has none. */
	return bpf_redirect(peer->ifindex, 0);
}

/* echo answers the agent of a peer, who wants to know whether this way works: also while there is no agent here. An answer
 * is for the agent's own socket. */
always int echo(struct __sk_buff *skb, struct ipv6hdr *h)
{
	__u8 type;
	__u32 a[8];

	if (load(skb, sizeof(*h), &type, 1))
		return drop(DROP_MALFORMED);
	if (type == ECHO_REPLY)
		return NEXT;
	if (type != ECHO_REQUEST)
		return drop(DROP_LINK);
	__builtin_memcpy(a, &h->daddr, 16);
	__builtin_memcpy(a + 4, &h->saddr, 16);
	type = ECHO_REPLY;
	/* The sum stays the same when addresses change places. */
	if (bpf_l4_csum_replace(skb, sizeof(*h) + 2, bpf_htons(ECHO_REQUEST << 8), bpf_htons(ECHO_REPLY << 8), 2) ||
	    bpf_skb_store_bytes(skb, offsetof(struct ipv6hdr, saddr), a, sizeof(a), 0) || bpf_skb_store_bytes(skb, sizeof(*h), &type, 1, 0))
		return drop(DROP_KERNEL);
	return bpf_redirect(skb->ifindex, 0);
}
