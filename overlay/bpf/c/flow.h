/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Flows: each has an entry for what the client sends to a service address, and one for what the backend answers. Both are
 * on the client's host only. The state of a flow is in the first; the time of the last packet is in each. */
#pragma once
#include "packet.h"

always struct flow *flow_get(const struct flow_key *k)
{
	if (k->proto == IPPROTO_TCP)
		return bpf_map_lookup_elem(&tcp, k);
	return bpf_map_lookup_elem(&other, k);
}

always long flow_put(const struct flow_key *k, const struct flow *f, __u64 flags)
{
	if (k->proto == IPPROTO_TCP)
		return bpf_map_update_elem(&tcp, k, f, flags);
	return bpf_map_update_elem(&other, k, f, flags);
}

always long flow_delete(const struct flow_key *k)
{
	if (k->proto == IPPROTO_TCP)
		return bpf_map_delete_elem(&tcp, k);
	return bpf_map_delete_elem(&other, k);
}

always void touch(struct flow *f)
{
	__u32 t = now();

	/* A line that is not written stays in the caches of all processors. */
	if (t - f->last > 100)
		f->last = t;
}

/* turn_back makes the key of the other entry. */
always void turn_back(struct flow_key *r, const struct flow_key *k, const struct flow *f, __u32 net)
{
	*r = *k;
	r->to = f->other;
	if (k->dir == FORWARD && f->flags & HAIRPIN) {
		/* The backend's answers are a flow to the service address like that of the client. */
		r->to = k->to;
		r->cport = k->port;
		r->port = k->cport;
		return;
	}
	r->dir = k->dir == FORWARD ? REVERSE : FORWARD;
	r->net = k->dir == FORWARD ? 0 : net;
}

always struct share *every(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&all, &zero);
}

/* admit takes room in the table for a client's flow, or gives -2. A client may have as many as are still free, so that one takes half
 * of the table, and two a third each: there always is some for others (dynamic thresholds, Choudhury and Hahne 1998). */
always int admit(const struct flow_key *k)
{
	struct share *sum = every(), *own;

	if (k->proto != IPPROTO_TCP || !sum || !sum->most)
		return 0;
	own = bpf_map_lookup_elem(&shares, &k->client);
	if (!own) {
		struct share fresh = {};

		bpf_map_update_elem(&shares, &k->client, &fresh, BPF_NOEXIST);
		own = bpf_map_lookup_elem(&shares, &k->client);
		if (!own)
			return -2; /* more clients than a worker has instances */
	}
	if (sum->flows >= sum->most || own->flows >= sum->most - sum->flows)
		return -2;
	__sync_fetch_and_add(&own->flows, 1);
	__sync_fetch_and_add(&sum->flows, 1);
	return 0;
}

always void fewer(struct share *s)
{
	/* The sweep counts anew what went wrong between two processors. */
	if (s && (__s32)s->flows > 0)
		__sync_fetch_and_add(&s->flows, -1);
}

always void release(const struct flow_key *k)
{
	if (k->proto != IPPROTO_TCP)
		return;
	fewer(bpf_map_lookup_elem(&shares, &k->client));
	fewer(every());
}

/* recount notes that a flow of a client is there. */
always void recount(struct share *s, __u32 round)
{
	if (!s)
		return;
	if (s->round != round) {
		s->round = round;
		s->seen = 0;
	}
	s->seen++;
}

always void end_flow(const struct flow_key *k, const struct flow *f)
{
	struct flow_key r;

	turn_back(&r, k, f, 0);
	flow_delete(&r);
	if (!flow_delete(k))
		release(k);
}

always int closed(const struct flow *f)
{
	return f->flags & RST || (f->flags & CLIENT_FIN && f->flags & (SERVER_FIN | HAIRPIN));
}

/* quic says of the first packet of a flow over UDP whether it begins a connection (1) or goes on with one (2). */
always int quic(struct __sk_buff *skb, struct packet *p)
{
	struct {
		__u8 first;
		__u32 version;
	} __attribute__((packed)) h;

	if (p->proto != IPPROTO_UDP || p->frag == LATER || bpf_skb_load_bytes(skb, p->l4 + 8, &h, sizeof(h)))
		return 0;
	if ((h.first & 0xf0) == 0xc0 && h.version == bpf_htonl(1))
		return 1;
	if ((h.first & 0xf0) == 0xd0 && h.version == bpf_htonl(0x6b3343cf))
		return 1;
	return (h.first & 0xc0) == 0x40 ? 2 : 0;
}

/* enter writes a flow down; -1: it clashes with another one, -2: the table is full. */
always int enter(const struct flow_key *k, const struct addr *backend)
{
	struct flow f = {.other = *backend, .last = now()};
	struct flow_key r;
	struct flow *old;
	struct flow back = {.last = f.last, .other = k->to};

	if (same(backend, &k->client)) {
		f.flags = HAIRPIN | REPLIED;
		back.flags = f.flags;
		back.other = *backend;
	}
	turn_back(&r, k, &f, 0);
	if (flow_put(&r, &back, BPF_NOEXIST)) {
		old = flow_get(&r);
		if (!old)
			return -2;
		if (!same(&old->other, &back.other))
			return -1;
	}
	if (admit(k)) {
		flow_delete(&r);
		return -2;
	}
	if (flow_put(k, &f, BPF_ANY)) {
		release(k);
		flow_delete(&r);
		return -2;
	}
	return 0;
}

/* choose begins a flow. It gives 0, -3: nothing is known of the address, or as enter. */
part int choose(struct __sk_buff *skb, struct packet *p, struct flow_key *whose, struct addr *backend)
{
	struct flow_key key, *k = &key;
	struct service *s;
	int q, err = -1;
	__u16 cport;
	__u32 n;

	if (!p || !whose || !backend)
		return -3;
	key = *whose; /* Linux 6.1 takes no key of a table that is the caller's */
	/* A service's key is a part of the flow's, and an affinity's is its beginning without the client's port: room on the
	 * stack is scarce. */
	_Static_assert(sizeof(struct service_key) == 20 && __builtin_offsetof(struct flow_key, net) == __builtin_offsetof(struct flow_key, to) + 16, "layout");
	_Static_assert(sizeof(struct affinity_key) == __builtin_offsetof(struct flow_key, proto), "layout");
	cport = key.cport;
	s = bpf_map_lookup_elem(&services, &key.to);
	if (!s)
		return -3;
	q = quic(skb, p);
	n = s->slots;
	if (n == 0 || n > MAX_SLOTS)
		return -3;
	if (q == 2) {
		struct affinity *a;

		key.cport = 0;
		a = bpf_map_lookup_elem(&affinities, &key);
		key.cport = cport;
		if (a && now() - a->last < 120000) {
			*backend = a->backend;
			a->last = now();
			if (!enter(k, backend))
				return 0;
		}
	}
	/* Another one is tried when the client's port to this backend is taken by a flow through another service address,
	 * and rather than leading a client to itself. */
	for (int i = 0; i < 4; i++) {
		__u32 turn = __sync_fetch_and_add(&s->turn, 1) % n;

		/* The compiler knows the bound; the kernel's verifier does not. */
		asm volatile("" : "+r"(turn));
		*backend = s->slot[turn & (MAX_SLOTS - 1)];
		if (i < 3 && n > 1 && same(backend, &k->client))
			continue;
		err = enter(k, backend);
		if (err != -1)
			break;
	}
	if (!err && q == 1) {
		struct affinity a = {.backend = *backend, .last = now()};

		key.cport = 0;
		bpf_map_update_elem(&affinities, &key, &a, BPF_ANY);
	}
	return err;
}

/* client_says notes what a packet of the client means for its flow. */
always void client_says(struct flow *f, struct packet *p)
{
	touch(f);
	if (p->proto != IPPROTO_TCP || p->frag == LATER)
		return;
	if (p->flags & TCP_ACK)
		f->ack = p->ack;
	if (p->flags & TCP_FIN && !(f->flags & CLIENT_FIN))
		__sync_fetch_and_or(&f->flags, CLIENT_FIN);
	if (p->flags & TCP_RST && !(f->flags & RST))
		__sync_fetch_and_or(&f->flags, RST);
}

/* server_says does the same for one of the backend, which comes with the other entry. */
always void server_says(struct flow *r, const struct flow_key *rk, struct packet *p, __u32 net)
{
	__u32 news = REPLIED;
	struct flow_key k;
	struct flow *f;

	touch(r);
	if (p->proto == IPPROTO_TCP && p->frag != LATER) {
		if (p->flags & TCP_FIN)
			news |= SERVER_FIN;
		if (p->flags & TCP_RST)
			news |= RST;
	}
	if ((r->flags & news) == news)
		return;
	turn_back(&k, rk, r, net);
	f = flow_get(&k);
	if (!f)
		return;
	__sync_fetch_and_or(&f->flags, news);
	__sync_fetch_and_or(&r->flags, news);
}

/* The sweep walks the tables in the kernel: a walk of the agent's would copy them. */
enum { SWEEP, RESET, FORGET, COUNT };

struct sweep {
	struct addr backend; /* of RESET; of FORGET, the client */
	__u32 what;
	__u32 established, closing, udp, icmp; /* ms without a packet */
	__u32 flows, ended;                    /* the answer; flows: those that are left */
	__u32 now;
};

always long visit(struct flow_key *k, struct flow *f, struct sweep *s)
{
	struct flow_key key = *k, r;
	struct flow *o;
	__u32 idle, limit, o_idle;
	__u32 net = 0;

	if (key.dir == REVERSE) {
		/* Those whose other entry is gone: the table for flows that are no TCP forgets the eldest. */
		if (s->what != SWEEP)
			return 0;
		if (s->now - f->last > s->udp && s->now - f->last > s->closing) {
			struct instance *i = bpf_map_lookup_elem(&instances, &key.client);

			if (i)
				net = i->net;
			turn_back(&r, &key, f, net);
			if (!flow_get(&r))
				flow_delete(&key);
		}
		return 0;
	}
	if (s->what == RESET) {
		if (!same(&f->other, &s->backend) || f->flags & DEAD)
			return 0;
		if (key.proto != IPPROTO_TCP || closed(f)) {
			s->ended++;
			end_flow(&key, f);
			return 0;
		}
		if (!tell(EVENT_RESET, &key.client, &key.to, f->ack, (__u32)key.cport << 16 | key.port)) {
			/* The agent has not yet read the others. */
			s->flows++;
			return 0;
		}
		s->ended++;
		__sync_fetch_and_or(&f->flags, DEAD);
		turn_back(&r, &key, f, 0);
		if (!(f->flags & HAIRPIN))
			flow_delete(&r);
		return 0;
	}
	if (s->what == FORGET) {
		if (same(&key.client, &s->backend)) {
			s->ended++;
			end_flow(&key, f);
		}
		return 0;
	}
	s->flows++;
	if (s->what == COUNT)
		return 0;
	turn_back(&r, &key, f, 0);
	o = flow_get(&r);
	idle = s->now - f->last;
	if ((__s32)idle < 0)
		idle = 0;
	if (o) {
		o_idle = s->now - o->last;
		if ((__s32)o_idle < 0)
			o_idle = 0;
		if (o_idle < idle)
			idle = o_idle;
	}
	if (key.proto == IPPROTO_TCP)
		limit = closed(f) || f->flags & DEAD || !(f->flags & REPLIED) ? s->closing : s->established;
	else if (key.proto == IPPROTO_ICMP || key.proto == IPPROTO_ICMPV6)
		limit = s->icmp;
	else
		limit = s->udp;
	if (idle > limit) {
		end_flow(&key, f);
		s->flows--;
		s->ended++;
	} else if (key.proto == IPPROTO_TCP) {
		recount(bpf_map_lookup_elem(&shares, &key.client), s->now);
		recount(every(), s->now);
	}
	return 0;
}

static long visit_share(void *map, struct addr *a, struct share *own, struct sweep *s)
{
	own->flows = own->round == s->now ? own->seen : 0;
	if (!own->flows) {
		struct addr key = *a;

		bpf_map_delete_elem(&shares, &key);
	}
	return 0;
}

static long visit_flow(void *map, struct flow_key *k, struct flow *f, struct sweep *s)
{
	return visit(k, f, s);
}

static long visit_affinity(void *map, struct affinity_key *k, struct affinity *a, struct sweep *s)
{
	if (same(&a->backend, &s->backend)) {
		struct affinity_key key = *k;

		bpf_map_delete_elem(&affinities, &key);
	}
	return 0;
}
