/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Taking packets apart, and changing their addresses. Everything is read by load, which knows the packet's end and its
 * pieces. */
#pragma once
#include "maps.h"

enum {
	WHOLE,
	FIRST, /* fragment, which has the ports */
	LATER, /* fragment */
};

struct packet {
	struct addr src, dst;
	__u32 l4; /* offset */
	__u32 ack;
	__u32 inner; /* offset of the packet that an ICMP error tells of; 0: none */
	__u32 id;    /* of a fragment */
	__u16 sport, dport; /* network order; of an ICMP error: those of the inner packet */
	__u8 proto;
	__u8 inner_proto;
	__u8 v6;
	__u8 frag;
	__u8 flags;  /* of TCP */
	__u8 type;   /* of ICMP */
	__u8 l4_len; /* header */
	__u8 df;
};

enum { TCP_FIN = 1, TCP_SYN = 2, TCP_RST = 4, TCP_ACK = 16 };

always void mapped(struct addr *a, __u32 v4)
{
	a->w[0] = 0;
	a->w[1] = 0;
	a->w[2] = bpf_htonl(0xffff);
	a->w[3] = v4;
}

always int has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP || proto == IPPROTO_UDPLITE || proto == IPPROTO_DCCP;
}

/* ports_of reads what tells flows of one protocol apart: ports, or the number of an echo, which is the client's port. */
always int ports_of(struct __sk_buff *skb, __u32 off, __u8 proto, __u16 *sport, __u16 *dport)
{
	__u16 w[4] = {};

	*sport = 0;
	*dport = 0;
	if (has_ports(proto)) {
		if (load(skb, off, w, 4))
			return -1;
		*sport = w[0];
		*dport = w[1];
	} else if (proto == IPPROTO_ICMP || proto == IPPROTO_ICMPV6) {
		if (load(skb, off, w, 8))
			return -1;
		__u8 type = *(__u8 *)w;

		if (type == (proto == IPPROTO_ICMP ? 8 : 128))
			*sport = w[2];
		else if (type == (proto == IPPROTO_ICMP ? 0 : 129))
			*dport = w[2];
	}
	return 0;
}

/* parse_inner reads of which packet an ICMP error tells. Ports and protocol in p become those of that packet. */
always int parse_inner(struct __sk_buff *skb, struct packet *p)
{
	__u32 at = p->l4 + 8, l4;

	if (p->v6) {
		struct ipv6hdr h;

		if (bpf_skb_load_bytes(skb, at, &h, sizeof(h)))
			return -1;
		p->inner_proto = h.nexthdr;
		l4 = at + sizeof(h);
	} else {
		struct iphdr h;

		if (bpf_skb_load_bytes(skb, at, &h, sizeof(h)) || h.version != 4 || h.ihl < 5)
			return -1;
		p->inner_proto = h.protocol;
		l4 = at + h.ihl * 4;
	}
	p->inner = at;
	return ports_of(skb, l4, p->inner_proto, &p->sport, &p->dport);
}

always int parse_l4(struct __sk_buff *skb, struct packet *p)
{
	if (p->proto == IPPROTO_TCP) {
		struct {
			__u16 sport, dport;
			__u32 seq, ack;
			__u8 off, flags;
		} __attribute__((packed)) h;

		if (load(skb, p->l4, &h, sizeof(h)))
			return -1;
		p->sport = h.sport;
		p->dport = h.dport;
		p->ack = h.ack;
		p->flags = h.flags;
		p->l4_len = (h.off >> 4) * 4;
		return 0;
	}
	p->l4_len = 8;
	if (p->proto == (p->v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP)) {
		if (bpf_skb_load_bytes(skb, p->l4, &p->type, 1))
			return -1;
		if (p->v6 ? p->type < 128 : p->type == 3 || p->type == 11 || p->type == 12 || p->type == 4 || p->type == 5)
			return parse_inner(skb, p);
	}
	return ports_of(skb, p->l4, p->proto, &p->sport, &p->dport);
}

/* parse takes a packet apart. It gives 0, or a verdict. */
part int parse(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return DROP;
	__builtin_memset(p, 0, sizeof(*p));
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr h;

		if (load(skb, ETH_HLEN, &h, sizeof(h)) || h.version != 4 || h.ihl < 5)
			return drop(DROP_MALFORMED);
		mapped(&p->src, h.saddr);
		mapped(&p->dst, h.daddr);
		p->proto = h.protocol;
		p->l4 = ETH_HLEN + h.ihl * 4;
		p->df = !!(h.frag_off & bpf_htons(0x4000));
		if (h.frag_off & bpf_htons(0x1fff))
			p->frag = LATER;
		else if (h.frag_off & bpf_htons(0x2000))
			p->frag = FIRST;
		p->id = h.id;
	} else {
		struct ipv6hdr h;

		if (load(skb, ETH_HLEN, &h, sizeof(h)) || h.version != 6)
			return drop(DROP_MALFORMED);
		__builtin_memcpy(&p->src, &h.saddr, 16);
		__builtin_memcpy(&p->dst, &h.daddr, 16);
		p->v6 = 1;
		p->df = 1;
		p->proto = h.nexthdr;
		p->l4 = ETH_HLEN + sizeof(h);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			__u8 x[8];

			if (p->proto != IPPROTO_HOPOPTS && p->proto != IPPROTO_DSTOPTS && p->proto != IPPROTO_ROUTING && p->proto != IPPROTO_FRAGMENT)
				break;
			if (bpf_skb_load_bytes(skb, p->l4, x, 8))
				return drop(DROP_MALFORMED);
			if (p->proto == IPPROTO_ROUTING)
				/* It would lead past the destination that is checked here. */
				return drop(DROP_PROTOCOL);
			if (p->proto == IPPROTO_FRAGMENT) {
				__u16 off = (__u16)x[2] << 8 | x[3];

				if (off & 0xfff8)
					p->frag = LATER;
				else if (off & 1)
					p->frag = FIRST;
				__builtin_memcpy(&p->id, x + 4, 4);
				p->l4 += 8;
			} else {
				p->l4 += 8 + (__u32)x[1] * 8;
			}
			p->proto = x[0];
			if (p->frag == LATER)
				break;
		}
		if (p->frag != LATER && (p->proto == IPPROTO_HOPOPTS || p->proto == IPPROTO_DSTOPTS || p->proto == IPPROTO_ROUTING || p->proto == IPPROTO_FRAGMENT))
			/* Nobody needs more of them, and a routing header could be behind. */
			return drop(DROP_PROTOCOL);
	}
	if (p->frag != LATER && parse_l4(skb, p))
		return drop(DROP_MALFORMED);
	return 0;
}

/* put_together gives a later fragment the ports of its first one, which it remembers. Whoever sends it is checked before: else an instance could
 * say what those of others have. It gives 0, or a verdict. */
part int put_together(struct packet *p)
{
	if (!p)
		return DROP;
	if (p->frag == WHOLE)
		return 0;
	struct fragment_key k = {.src = p->src, .dst = p->dst, .id = p->id, .proto = p->proto};

	if (p->frag == FIRST) {
		struct fragment f = {p->sport, p->dport};

		bpf_map_update_elem(&fragments, &k, &f, BPF_ANY);
		return 0;
	}
	struct fragment *f = bpf_map_lookup_elem(&fragments, &k);

	if (!f)
		/* It came before the first one, which alone tells where it belongs. */
		return drop(DROP_FRAGMENT);
	p->sport = f->sport;
	p->dport = f->dport;
	return 0;
}

/* change replaces one of the packet's addresses, at an offset. */
part int change(struct __sk_buff *skb, struct packet *p, __u32 off, const struct addr *old, const struct addr *new)
{
	__u64 flags = BPF_F_PSEUDO_HDR;
	__u32 sum = 0;

	if (!p || !old || !new)
		return -1;
	if (p->frag != LATER) {
		if (p->proto == IPPROTO_TCP) {
			sum = p->l4 + 16;
		} else if (p->proto == IPPROTO_UDP || p->proto == IPPROTO_UDPLITE) {
			sum = p->l4 + 6;
			flags |= BPF_F_MARK_MANGLED_0;
		} else if (p->proto == IPPROTO_DCCP) {
			sum = p->l4 + 6;
		} else if (p->proto == IPPROTO_ICMPV6) {
			sum = p->l4 + 2;
		}
	}
	if (!p->v6) {
		__u32 a = old->w[3], b = new->w[3];

		if (sum && bpf_l4_csum_replace(skb, sum, a, b, flags | 4))
			return -1;
		if (bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), a, b, 4))
			return -1;
		return bpf_skb_store_bytes(skb, off, &b, 4, 0);
	}
	if (sum) {
		struct addr a = *old, b = *new;
		__s64 diff = bpf_csum_diff(a.w, 16, b.w, 16, 0);

		/* Kernels that do not know the flag do not need it, but for devices that give the sum of the whole packet. */
		if (bpf_l4_csum_replace(skb, sum, 0, diff, flags | CSUM_IPV6) && bpf_l4_csum_replace(skb, sum, 0, diff, flags))
			return -1;
	}
	return bpf_skb_store_bytes(skb, off, new, 16, 0);
}

#define SRC 0
#define DST 1

always __u32 addr_off(struct packet *p, int which)
{
	if (p->v6)
		return ETH_HLEN + (which == SRC ? 8 : 24);
	return ETH_HLEN + (which == SRC ? 12 : 16);
}

always int inner_addr(struct __sk_buff *skb, struct packet *p, int which, struct addr *a)
{
	if (p->v6)
		return bpf_skb_load_bytes(skb, p->inner + (which == SRC ? 8 : 24), a, 16);
	__u32 v4;

	if (bpf_skb_load_bytes(skb, p->inner + (which == SRC ? 12 : 16), &v4, 4))
		return -1;
	mapped(a, v4);
	return 0;
}

/* change_inner replaces an address of the packet that an ICMP error tells of. For IPv4 the sum over the error stays the
 * same, because the inner header's own sum makes up for the change. */
part int change_inner(struct __sk_buff *skb, struct packet *p, int which, const struct addr *old, const struct addr *new)
{
	if (!p || !old || !new)
		return -1;
	if (!p->v6) {
		__u32 a = old->w[3], b = new->w[3];

		if (bpf_l3_csum_replace(skb, p->inner + offsetof(struct iphdr, check), a, b, 4))
			return -1;
		return bpf_skb_store_bytes(skb, p->inner + (which == SRC ? 12 : 16), &b, 4, 0);
	}
	struct addr a = *old, b = *new;
	__s64 diff = bpf_csum_diff(a.w, 16, b.w, 16, 0);

	if (bpf_l4_csum_replace(skb, p->l4 + 2, 0, diff, 0))
		return -1;
	return bpf_skb_store_bytes(skb, p->inner + (which == SRC ? 8 : 24), new, 16, 0);
}
