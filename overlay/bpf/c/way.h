/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The way of a packet that was read: to its backend, to an instance here, to a peer, or to the agent. */
#pragma once
#include "link.h"
#include "plain.h"

enum { FRAME_DATA, FRAME_MISS, FRAME_TOO_BIG, FRAME_AGAIN, FRAME_TO_INST, FRAME_DEAD };

struct frame {
	__u8 two, kind;
	__u32 peer;
	__u8 two2, zero;
	__u32 net;
	__u16 proto;
} __attribute__((packed));

/* MARK is on a packet that goes to an instance through the queue of its cable after it was checked here. It does not
 * come from an instance: crossing a cable clears marks. */
#define MARK 0x5ce77e57

part int to_tap(struct __sk_buff *skb, __u32 kind, __u32 peer, __u32 net)
{
	struct config *c = configuration();
	struct frame f = {.two = 2, .kind = kind, .peer = bpf_htonl(peer), .two2 = 2, .net = bpf_htonl(net), .proto = skb->protocol};
	__u32 to;

	if (!c)
		return drop(DROP_KERNEL);
	to = kind == FRAME_DATA ? c->tunnel : c->agent;
	if (!to || bpf_skb_store_bytes(skb, 0, &f, sizeof(f), 0))
		return drop(DROP_KERNEL);
	count(kind == FRAME_DATA ? TO_TUNNEL : TO_AGENT);
	return bpf_redirect(to, 0);
}

/* route_to tells where an address is. */
part int route_to(const struct addr *a, struct route *r)
{
	struct config *c = configuration();
	struct route_key k = {.bits = 128};
	struct route *found;
	struct recent *m;
	__u32 slot, age;

	if (!a || !r || !c)
		return ROUTE_NONE;
	age = c->age;
	slot = (a->w[3] ^ a->w[3] >> 16 ^ a->w[1]) * 0x9e3779b1 >> 26 & (RECENT - 1);
	m = bpf_map_lookup_elem(&recents, &slot);
	if (!m)
		return ROUTE_NONE;
	if (!same(&m->addr, a) || m->age != age) {
		k.addr = *a;
		found = bpf_map_lookup_elem(&routes, &k);
		m->age = 0;
		m->addr = *a;
		m->route.kind = found ? found->kind : ROUTE_NONE;
		m->route.peer = found ? found->peer : 0;
		m->age = age;
	}
	*r = m->route;
	return r->kind;
}

/* hand_over gives a checked packet to an instance. */
part int hand_over(struct __sk_buff *skb, struct instance *i)
{
	struct ethhdr h;

	if (!i)
		return DROP;
	__builtin_memcpy(h.h_dest, i->mac, 6);
	if (!(i->mac[0] | i->mac[1] | i->mac[2] | i->mac[3] | i->mac[4] | i->mac[5]))
		__builtin_memset(h.h_dest, 0xff, 6);
	__builtin_memcpy(h.h_source, i->gate, 6);
	h.h_proto = skb->protocol;
	if (bpf_skb_store_bytes(skb, 0, &h, sizeof(h), 0))
		return drop(DROP_KERNEL);
	if (i->flags & LIMIT_IN) {
		skb->mark = MARK;
		return bpf_redirect(i->ifindex, 0);
	}
	bpf_skb_change_type(skb, 0 /* PACKET_HOST */);
	return bpf_redirect_peer(i->ifindex, 0);
}

/* accept checks what is for an instance here, and puts the service address in the place of the backend's if it asked for
 * that. It gives 0, or a verdict. */
part int accept(struct __sk_buff *skb, struct packet *p, struct instance *i, __u32 net)
{
	struct flow_key k = {.dir = REVERSE};
	struct flow *r;

	if (!p || !i)
		return DROP;
	k.client = p->dst;
	k.to = p->src;
	k.cport = p->dport;
	k.port = p->sport;
	k.proto = p->proto;
	if (p->inner) {
		/* The packet that it tells of went from the client to the backend. */
		k.cport = p->sport;
		k.port = p->dport;
		k.proto = p->inner_proto;
		if (inner_addr(skb, p, DST, &k.to))
			return drop(DROP_MALFORMED);
	}
	r = flow_get(&k);
	if (!r || !same(&p->src, &k.to)) { /* an error about a flow is an answer if its backend tells of it */
		if (i->net != net) {
			struct foreign_key f = {.ifindex = i->ifindex, .net = net};

			if (!bpf_map_lookup_elem(&foreign, &f))
				return drop(DROP_NETWORK);
		}
	}
	if (!r)
		return 0;
	struct addr service = r->other;

	if (p->inner) {
		if (change_inner(skb, p, DST, &k.to, &service))
			return drop(DROP_KERNEL);
		if (!same(&p->src, &k.to))
			return 0;
	} else {
		server_says(r, &k, p, i->net);
	}
	if (change(skb, p, addr_off(p, SRC), &p->src, &service))
		return drop(DROP_KERNEL);
	return 0;
}

/* by_peer sends a packet to a peer's instance. */
part int by_peer(struct __sk_buff *skb, struct packet *p, __u32 id, __u32 net)
{
	struct peer *peer = bpf_map_lookup_elem(&peers, &id);
	__u32 mix;

	if (!p)
		return DROP;
	if (!peer)
		return to_tap(skb, FRAME_MISS, 0, net);
	if (peer->way == BY_TUNNEL)
		return to_tap(skb, FRAME_DATA, id, net);
	if (!peer->ifindex)
		return drop(DROP_GONE);
	if (peer->way == BY_LINK)
		return to_link(skb, peer, net);
	/* The outer source port, by which receivers spread flows over their queues. All fragments have the same. */
	mix = p->src.w[3] ^ (p->dst.w[3] << 7 | p->dst.w[3] >> 25) ^ ((__u32)p->sport << 16 | p->dport) ^ p->proto;
	return to_plain(skb, peer, net, mix * 0x9e3779b1 >> 18);
}

/* onward sends a packet to the instance that it is for, wherever that is. asked: for a service address. */
part int onward(struct __sk_buff *skb, struct packet *p, __u32 net, int asked)
{
	struct route r = {};
	struct instance *i;
	struct addr dst;
	int verdict;

	if (!p)
		return DROP;
	dst = p->dst; /* as in choose */
	i = bpf_map_lookup_elem(&instances, &dst);
	if (i) {
		verdict = accept(skb, p, i, net);
		if (verdict)
			return verdict;
		count(LOCAL);
		return hand_over(skb, i);
	}
	switch (route_to(&p->dst, &r)) {
	case ROUTE_PEER:
		return by_peer(skb, p, r.peer, net);
	case ROUTE_OWN:
		/* The gateway has one of the addresses. A backend that had another is no more. */
		return asked ? drop(DROP_GONE) : NEXT;
	}
	return to_tap(skb, FRAME_MISS, 0, net);
}

/* serve leads a packet for a service address to its backend. It gives 0, or a verdict. */
part int serve(struct __sk_buff *skb, struct packet *p, __u32 net)
{
	struct addr backend = {};
	struct flow_key k = {};
	struct flow *f;
	int err;

	if (!p)
		return DROP;
	k.client = p->src;
	k.to = p->dst;
	k.net = net;
	k.cport = p->sport;
	k.port = p->dport;
	k.proto = p->proto;
	if (p->inner) {
		/* It tells of a packet from the service address, as the client saw it. */
		k.cport = p->dport;
		k.port = p->sport;
		k.proto = p->inner_proto;
		f = flow_get(&k);
		if (!f)
			return drop(DROP_STRAY);
		backend = f->other;
		if (change_inner(skb, p, SRC, &k.to, &backend) || change(skb, p, addr_off(p, DST), &p->dst, &backend))
			return drop(DROP_KERNEL);
		p->dst = backend;
		/* What it answers is not a flow of its own. */
		return 0;
	}
	f = flow_get(&k);
	if (f && p->proto == IPPROTO_TCP && p->frag != LATER) {
		int begin = (p->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;

		if (f->flags & DEAD && !begin) {
			if (p->flags & TCP_RST)
				return drop(DROP_STRAY);
			return to_tap(skb, FRAME_DEAD, 0, net);
		}
		if (begin && (f->flags & DEAD || closed(f))) {
			end_flow(&k, f);
			f = 0;
		}
	}
	if (f) {
		backend = f->other;
		client_says(f, p);
	} else {
		if (p->proto == IPPROTO_TCP && p->flags & TCP_RST)
			return drop(DROP_STRAY);
		err = choose(skb, p, &k, &backend);
		if (err == -3)
			return to_tap(skb, FRAME_MISS, 0, net);
		if (err == -2) {
			tell_now_and_then(EVENT_FULL, &p->src, &p->dst, net, 0);
			return drop(DROP_FULL);
		}
		if (err)
			return drop(DROP_CLASH);
		count(NEW_FLOW);
		f = flow_get(&k);
		if (f)
			client_says(f, p);
	}
	if (same(&backend, &p->src)) {
		/* It shall not see itself as the sender. */
		if (change(skb, p, addr_off(p, SRC), &p->src, &p->dst))
			return drop(DROP_KERNEL);
	}
	if (change(skb, p, addr_off(p, DST), &p->dst, &backend))
		return drop(DROP_KERNEL);
	p->src = same(&backend, &p->src) ? p->dst : p->src;
	p->dst = backend;
	return 0;
}

always int too_big(struct __sk_buff *skb, struct packet *p)
{
	struct config *c = configuration();
	__u32 len = skb->len - ETH_HLEN;

	if (!c || !c->mtu || len <= c->mtu)
		return 0;
	if (skb->gso_size)
		len = skb->gso_size + p->l4 - ETH_HLEN + p->l4_len;
	return len > c->mtu;
}

/* sent does with a packet what an instance wants of it. */
part int sent(struct __sk_buff *skb, struct packet *p, __u32 net)
{
	int verdict, asked = 0, kind;
	struct route r = {};

	if (!p)
		return DROP;
	kind = route_to(&p->dst, &r);
	if (kind == ROUTE_NONE)
		return NEXT;
	if (too_big(skb, p))
		return to_tap(skb, FRAME_TOO_BIG, 0, net);
	if (kind == ROUTE_PEER)
		return by_peer(skb, p, r.peer, net);
	if (kind == ROUTE_SERVICES) {
		asked = 1;
		verdict = serve(skb, p, net);
		if (verdict)
			return verdict;
	}
	return onward(skb, p, net, asked);
}

/* arrived checks and delivers what came from a peer. */
part int arrived(struct __sk_buff *skb, __u32 peer, __u32 net)
{
	struct instance *i;
	struct route r = {};
	struct packet p = {};
	int verdict = parse(skb, &p);

	if (verdict)
		return verdict;
	if (route_to(&p.src, &r) != ROUTE_PEER || r.peer != peer)
		return drop(DROP_FORGED);
	verdict = put_together(&p);
	if (verdict)
		return verdict;
	i = bpf_map_lookup_elem(&instances, &p.dst);
	if (!i) {
		if (route_to(&p.dst, &r) == ROUTE_OWN)
			tell_now_and_then(EVENT_UNKNOWN, &p.src, &p.dst, net, peer);
		return drop(DROP_UNKNOWN);
	}
	verdict = accept(skb, &p, i, net);
	if (verdict)
		return verdict;
	return hand_over(skb, i);
}
