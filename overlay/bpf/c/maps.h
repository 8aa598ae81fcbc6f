/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The tables that the programs and the agent share. A change of what lies in them needs a new layout number in
 * layout.go. Addresses are of 16 bytes in network order, IPv4 as ::ffff:a.b.c.d. */
#pragma once
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define NEXT (-1) /* TCX_NEXT, and TC_ACT_UNSPEC: go on to the stack */
#define DROP 2    /* TC_ACT_SHOT */

#define AF_INET 2
#define AF_INET6 10

/* Newer than the headers of some distributions. */
#define ADJ_ROOM_DECAP_L3_IPV4 (1ULL << 7)
#define ADJ_ROOM_DECAP_L3_IPV6 (1ULL << 8)
#define CSUM_IPV6 (1ULL << 7)

#define MAX_SLOTS 64

struct addr {
	__u32 w[4];
};

/* Counters. Go has the names, in the same order. */
enum counter {
	LOCAL,
	TO_PLAIN,
	TO_TUNNEL,
	FROM_PLAIN,
	FROM_TUNNEL,
	NEW_FLOW,
	TO_AGENT,
	DROP_SPOOFED,
	DROP_PROTOCOL,
	DROP_MALFORMED,
	DROP_NETWORK,
	DROP_FORGED,
	DROP_PLAIN,
	DROP_UNKNOWN,
	DROP_FULL,
	DROP_CLASH,
	DROP_FRAGMENT,
	DROP_GONE,
	DROP_STRAY,
	DROP_KERNEL,
	EVENTS_LOST,
	TO_LINK,
	FROM_LINK,
	DROP_LINK,
	COUNTERS,
};

struct config {
	struct addr plain; /* where plain datagrams come in */
	__u32 tunnel;      /* interface of the tap to the datapath */
	__u32 agent;       /* interface of the tap to the agent */
	__u32 mtu;
	__u16 plain_port; /* network order; 0: none come in */
	__u16 pad;
	__u32 age; /* grows with each change of routes */
};

struct service_key {
	struct addr addr;
	__u32 net;
};

struct service {
	__u32 turn;
	__u32 slots;
	struct addr slot[MAX_SLOTS];
};

enum {
	LIMIT_IN = 1,  /* what it receives waits in the queue of its cable */
	LIMIT_OUT = 2, /* what it sends takes a detour, and comes to from_bridge */
};

struct instance {
	__u32 net;
	__u32 ifindex;
	__u32 flags;
	__u8 mac[6];  /* its own, as it was last seen; zero: not yet */
	__u8 gate[6]; /* that of its gateway */
};

struct foreign_key {
	__u32 ifindex;
	__u32 net;
};

struct route_key {
	__u32 bits;
	struct addr addr;
};

enum route_kind {
	ROUTE_NONE,
	ROUTE_SERVICES,
	ROUTE_INSTANCES, /* somewhere, not known where */
	ROUTE_OWN,       /* this worker's block */
	ROUTE_PEER,
};

struct route {
	__u32 kind;
	__u32 peer;
};

/* What was found for an address, on one processor: walking the routes costs more. */
struct recent {
	struct addr addr;
	struct route route;
	__u32 age;
};

#define RECENT 64

struct peer {
	struct addr endpoint, source, hop;
	__u64 tag;      /* network order */
	__u32 ifindex;  /* 0: by the tunnel */
	__u16 port;     /* network order */
	__u8 way, v6;   /* v6: the hop's family */
};

enum {
	BY_TUNNEL,
	BY_WIRE, /* plain */
	BY_LINK, /* WireGuard; endpoint and source are prefixes of 96 bits */
};

struct tag_key {
	__u64 tag;
	struct addr source;
};

enum {
	FORWARD, /* from a client to a service address; leads to the backend */
	REVERSE, /* from a client to a backend; leads to the service address */
};

struct flow_key {
	struct addr client, to;
	__u32 net; /* of the client; 0 in reverse entries */
	__u16 cport, port;
	__u8 proto, dir;
	__u16 pad;
};

enum {
	CLIENT_FIN = 1,
	SERVER_FIN = 2,
	RST = 4,
	REPLIED = 8,
	HAIRPIN = 16, /* the client is its own backend */
	DEAD = 32,    /* the backend is no more; the client is to hear of it */
};

struct flow {
	struct addr other;
	__u32 last; /* ms, see now() */
	__u32 ack;  /* last one that the client sent, network order */
	__u32 flags;
};

/* How many flows of the table for TCP are a client's, or all of them. */
struct share {
	__u32 flows;
	__u32 seen, round; /* counted by the sweep of this time */
	__u32 most;        /* of all: room in the table; 0: no limit */
};

struct fragment_key {
	struct addr src, dst;
	__u32 id;
	__u32 proto;
};

struct fragment {
	__u16 sport, dport;
};

struct affinity_key {
	struct addr client, to;
	__u32 net;
	__u16 none, port;
};

struct affinity {
	struct addr backend;
	__u32 last;
};

struct event {
	struct addr src, dst;
	__u32 kind, net, peer, pad;
};

enum event_kind {
	EVENT_UNKNOWN = 1,
	EVENT_FULL = 2,
	EVENT_RESET = 3, /* src and dst: of the flow; net: the ack; peer: both ports */
};

#define MAP(name_, type_, key_, value_, max_, flags_) \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_##type_);   \
		__uint(max_entries, max_);            \
		__uint(map_flags, flags_);            \
		__type(key, key_);                    \
		__type(value, value_);                \
	} name_ SEC(".maps")

/* The agent gives the sizes. */
MAP(config, ARRAY, __u32, struct config, 1, 0);
MAP(counters, PERCPU_ARRAY, __u32, __u64, COUNTERS, 0);
MAP(services, HASH, struct service_key, struct service, 32768, BPF_F_NO_PREALLOC);
MAP(instances, HASH, struct addr, struct instance, 4096, BPF_F_NO_PREALLOC);
MAP(cables, HASH, __u32, __u32, 2048, BPF_F_NO_PREALLOC);
MAP(foreign, HASH, struct foreign_key, __u8, 8192, BPF_F_NO_PREALLOC);
MAP(routes, LPM_TRIE, struct route_key, struct route, 65536, BPF_F_NO_PREALLOC);
MAP(recents, PERCPU_ARRAY, __u32, struct recent, RECENT, 0);
MAP(peers, HASH, __u32, struct peer, 16384, BPF_F_NO_PREALLOC);
MAP(tags, HASH, struct tag_key, __u32, 32768, BPF_F_NO_PREALLOC);
MAP(prefixes, HASH, struct addr, __u32, 16385, BPF_F_NO_PREALLOC); /* by prefix on the WireGuard device; 0: this worker */
MAP(tcp, HASH, struct flow_key, struct flow, 131072, BPF_F_NO_PREALLOC);
MAP(shares, HASH, struct addr, struct share, 8192, BPF_F_NO_PREALLOC); /* by client */
MAP(all, ARRAY, __u32, struct share, 1, 0);
MAP(other, LRU_HASH, struct flow_key, struct flow, 32768, 0);
MAP(fragments, LRU_HASH, struct fragment_key, struct fragment, 1024, 0);
MAP(told, PERCPU_ARRAY, __u32, __u32, 4, 0); /* when an event of a kind was told */
MAP(affinities, LRU_HASH, struct affinity_key, struct affinity, 1024, 0);
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} events SEC(".maps");

#define always static __always_inline
/* A part is a function that the kernel's verifier looks at once, and not anew for each way to it. What it is given may be
 * anything, as far as it is concerned, so that pointers are checked. */
#define part __attribute__((noinline))

always void count(__u32 which)
{
	__u64 *v = bpf_map_lookup_elem(&counters, &which);

	if (v)
		*v += 1;
}

always int drop(__u32 why)
{
	count(why);
	return DROP;
}

/* now is a clock of milliseconds that wraps every 49 days; it is coarse and costs next to nothing. */
always __u32 now(void)
{
	return bpf_ktime_get_coarse_ns() / 1000000;
}

always int same(const struct addr *a, const struct addr *b)
{
	return a->w[3] == b->w[3] && a->w[2] == b->w[2] && a->w[1] == b->w[1] && a->w[0] == b->w[0];
}

always struct config *configuration(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&config, &zero);
}

/* load reads from a packet: at once if its pieces allow, which is the rule. */
always int load(struct __sk_buff *skb, __u32 off, void *to, __u32 len)
{
	void *from, *end;

	off &= 0x3fff; /* headers are shorter; the verifier wants to know */
	from = (void *)(long)skb->data + off;
	end = (void *)(long)skb->data_end;
	if (from + len <= end) {
		__builtin_memcpy(to, from, len);
		return 0;
	}
	return bpf_skb_load_bytes(skb, off, to, len);
}

always int tell(__u32 kind, const struct addr *src, const struct addr *dst, __u32 net, __u32 peer)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e)
		return 0;
	e->src = *src;
	e->dst = *dst;
	e->kind = kind;
	e->net = net;
	e->peer = peer;
	e->pad = 0;
	bpf_ringbuf_submit(e, 0);
	return 1;
}

/* tell_now_and_then is for what packets cause: each event wakes the agent, who needs no more than a hundred in a second. */
always void tell_now_and_then(__u32 kind, const struct addr *src, const struct addr *dst, __u32 net, __u32 peer)
{
	__u32 *last = bpf_map_lookup_elem(&told, &kind);
	__u32 t = now();

	if (!last || (*last && t - *last < 10))
		return;
	*last = t;
	if (!tell(kind, src, dst, net, peer))
		count(EVENTS_LOST);
}
