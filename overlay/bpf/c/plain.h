/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Writing the headers of a plain path. */
#pragma once
#include "flow.h"

/* The header that is written in front of a packet on a plain path: IP, UDP, VXLAN, and an Ethernet header of which the
 * addresses hold the tag and the network. All of it stays the same within a flow, or the receiver could not put segments
 * together. */
struct vxlan {
	struct udphdr udp;
	__u32 flags;
	__u32 vni;
	__u64 tag;
	__u32 net;
	__u16 proto;
} __attribute__((packed));

#define VXLAN_FLAGS bpf_htonl(0x08000000)

part int to_plain(struct __sk_buff *skb, struct peer *peer, __u32 net, __u32 mix)
{
	__u64 room = BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN) | BPF_F_ADJ_ROOM_ENCAP_L2_ETH | BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;
	__u32 len = skb->len - ETH_HLEN + sizeof(struct vxlan);
	struct vxlan v = {};

	if (!peer)
		return DROP;
	/* Segments are cut up later; each then gets a length of its own. */
	if (len > 65535 - sizeof(struct ipv6hdr))
		len = 65535 - sizeof(struct ipv6hdr);
	v.udp.source = bpf_htons(49152 | (mix & 0x3fff));
	v.udp.dest = peer->port;
	v.udp.len = bpf_htons(len);
	v.flags = VXLAN_FLAGS;
	v.vni = bpf_htonl((net & 0xffffff) << 8);
	v.tag = peer->tag;
	v.net = bpf_htonl(net);
	v.proto = skb->protocol;
	if (peer->endpoint.w[2] == bpf_htonl(0xffff)) {
		struct {
			__u16 proto;
			struct iphdr ip;
			struct vxlan v;
		} __attribute__((packed)) o = {.proto = bpf_htons(ETH_P_IP), .v = v};
		struct iphdr h = {.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_UDP, .frag_off = bpf_htons(0x4000)};
		__u16 *w = (__u16 *)&h;
		__u32 sum = 0;

		h.tot_len = bpf_htons(len + sizeof(h));
		h.saddr = peer->source.w[3];
		h.daddr = peer->endpoint.w[3];
#pragma unroll
		for (int i = 0; i < 10; i++)
			sum += w[i];
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		h.check = ~sum;
		o.ip = h;
		if (bpf_skb_adjust_room(skb, sizeof(o) - 2, BPF_ADJ_ROOM_MAC, room | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4) || bpf_skb_store_bytes(skb, ETH_HLEN - 2, &o, sizeof(o), 0))
			return drop(DROP_KERNEL);
	} else {
		struct {
			__u16 proto;
			struct ipv6hdr ip;
			struct vxlan v;
		} __attribute__((packed)) o = {.proto = bpf_htons(ETH_P_IPV6), .v = v};

		o.ip.version = 6;
		o.ip.hop_limit = 64;
		o.ip.nexthdr = IPPROTO_UDP;
		o.ip.payload_len = bpf_htons(len);
		__builtin_memcpy(&o.ip.saddr, &peer->source, 16);
		__builtin_memcpy(&o.ip.daddr, &peer->endpoint, 16);
		if (bpf_skb_adjust_room(skb, sizeof(o) - 2, BPF_ADJ_ROOM_MAC, room | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6) || bpf_skb_store_bytes(skb, ETH_HLEN - 2, &o, sizeof(o), 0))
			return drop(DROP_KERNEL);
	}
	count(TO_PLAIN);
	struct bpf_redir_neigh hop = {};

	if (peer->v6) {
		hop.nh_family = AF_INET6;
		__builtin_memcpy(hop.ipv6_nh, &peer->hop, 16);
	} else {
		hop.nh_family = AF_INET;
		hop.ipv4_nh = peer->hop.w[3];
	}
	return bpf_redirect_neigh(peer->ifindex, &hop, sizeof(hop), 0);
}
