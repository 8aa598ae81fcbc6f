/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What instances say to their neighbours on the link. */
#pragma once
#include "packet.h"

/* neighbourly lets what an instance says to its neighbours pass if it speaks for itself. */
always int neighbourly(struct __sk_buff *skb)
{
	struct {
		__u16 htype, ptype;
		__u8 hlen, plen;
		__u16 op;
		__u8 sha[6];
		__u32 sip;
		__u8 tha[6];
		__u32 tip;
	} __attribute__((packed)) a;
	struct instance *i;
	struct addr sip;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &a, sizeof(a)) || a.ptype != bpf_htons(ETH_P_IP) || a.hlen != 6 || a.plen != 4)
		return drop(DROP_MALFORMED);
	if (a.sip == 0)
		return NEXT;
	mapped(&sip, a.sip);
	i = bpf_map_lookup_elem(&instances, &sip);
	if (!i || i->ifindex != skb->ifindex)
		return drop(DROP_SPOOFED);
	return NEXT;
}

/* discovery does the same for IPv6, where the link's own addresses serve to find neighbours and nothing else. */
always int discovery(struct __sk_buff *skb, struct packet *p)
{
	struct addr target;
	struct instance *i;

	if (p->proto != IPPROTO_ICMPV6 || p->frag != WHOLE || p->inner)
		return drop(DROP_SPOOFED);
	switch (p->type) {
	case 130: /* multicast listeners */
	case 131:
	case 132:
	case 143:
	case 133: /* router solicitation */
	case 135: /* neighbour solicitation */
		return NEXT;
	case 136: /* neighbour advertisement */
		if (bpf_skb_load_bytes(skb, p->l4 + 8, &target, 16))
			return drop(DROP_MALFORMED);
		if ((target.w[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000))
			return NEXT;
		i = bpf_map_lookup_elem(&instances, &target);
		if (i && i->ifindex == skb->ifindex)
			return NEXT;
	}
	return drop(DROP_SPOOFED);
}
