// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// The overlay's way of a packet:
//
//	instance ─ from_instance ─┬─ another one here
//	                          ├─ to_plain ─ wire ─ from_wire ─ instance
//	                          ├─ tap of the datapath ... from_tunnel ─ instance
//	                          └─ tap of the agent: nothing is known, or it is too long
//
// What is for nobody in the overlay goes on to the host's stack. to_instance looks at what the stack gives to an instance.
#include "neighbour.h"
#include "way.h"

/* from_instance is where a packet of an instance leaves its cable. */
SEC("tc")
int from_instance(struct __sk_buff *skb)
{
	__u16 proto = skb->protocol;
	struct instance *i;
	struct packet p = {};
	int verdict;

	if (skb->vlan_present)
		/* A tag stays with the packet, and would lead it astray where it leaves the host. */
		return drop(DROP_PROTOCOL);
	if (proto == bpf_htons(ETH_P_ARP))
		return neighbourly(skb);
	if (proto != bpf_htons(ETH_P_IP) && proto != bpf_htons(ETH_P_IPV6))
		return drop(DROP_PROTOCOL);
	verdict = parse(skb, &p);
	if (verdict)
		return verdict;
	i = bpf_map_lookup_elem(&instances, &p.src);
	if (!i || i->ifindex != skb->ifindex) {
		int link = (p.src.w[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
		int none = !(p.src.w[0] | p.src.w[1] | p.src.w[2] | p.src.w[3]);

		if (p.v6 && (link || none))
			return discovery(skb, &p);
		return drop(DROP_SPOOFED);
	}
	if (p.v6 && p.proto == IPPROTO_ICMPV6 && p.type >= 133 && p.type <= 137)
		return discovery(skb, &p);
	verdict = put_together(&p);
	if (verdict)
		return verdict;
	struct ethhdr h;

	if (load(skb, 0, &h, sizeof(h)))
		return drop(DROP_MALFORMED);
	if (__builtin_memcmp(h.h_source, i->mac, 6))
		__builtin_memcpy(i->mac, h.h_source, 6);
	if (i->flags & LIMIT_OUT)
		return NEXT;
	return sent(skb, &p, i->net);
}

/* from_bridge is where packets go up from the bridge to the host's stack. Those of instances are there only if they did
 * not leave at once. */
SEC("tc")
int from_bridge(struct __sk_buff *skb)
{
	struct instance *i;
	struct packet p = {};
	int verdict;

	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return NEXT;
	verdict = parse(skb, &p);
	if (verdict)
		return verdict;
	i = bpf_map_lookup_elem(&instances, &p.src);
	if (!i || !(i->flags & LIMIT_OUT))
		return NEXT;
	verdict = put_together(&p);
	if (verdict)
		return verdict;
	return sent(skb, &p, i->net);
}

/* to_instance looks at what the stack or the bridge gives to an instance. */
SEC("tc")
int to_instance(struct __sk_buff *skb)
{
	__u32 port = skb->ifindex;
	struct instance *i, self = {};
	struct route r = {};
	struct packet p = {};
	__u32 *net;
	int verdict;

	if (skb->mark == MARK) {
		skb->mark = 0;
		return NEXT;
	}
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return NEXT;
	net = bpf_map_lookup_elem(&cables, &port);
	if (!net)
		return NEXT;
	verdict = parse(skb, &p);
	if (verdict)
		return verdict;
	i = bpf_map_lookup_elem(&instances, &p.src);
	if (!i) {
		/* The gateway is the only other one with an address out of the block. */
		verdict = route_to(&p.src, &r);
		return verdict == ROUTE_NONE || verdict == ROUTE_OWN ? NEXT : drop(DROP_FORGED);
	}
	if (p.v6 && p.proto == IPPROTO_ICMPV6 && (p.type == 135 || p.type == 136))
		/* Neighbours find each other, as with ARP. from_instance has seen to it that none speaks for another. */
		return NEXT;
	verdict = put_together(&p);
	if (verdict)
		return verdict;
	self.net = *net;
	self.ifindex = port;
	verdict = accept(skb, &p, &self, i->net);
	return verdict ? verdict : NEXT;
}

/* from_wire is where datagrams of peers come in. Everything that is no such datagram goes on. */
SEC("tc")
int from_wire(struct __sk_buff *skb)
{
	struct config *c = configuration();
	__u64 room = BPF_F_ADJ_ROOM_FIXED_GSO;
	struct tag_key k = {};
	struct addr dst;
	struct vxlan v;
	__u32 *peer, id, net, len;
	int v6;

	if (!c || !c->plain_port)
		return NEXT;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr h;

		if (load(skb, ETH_HLEN, &h, sizeof(h)) || h.protocol != IPPROTO_UDP || h.ihl != 5)
			return NEXT;
		mapped(&k.source, h.saddr);
		mapped(&dst, h.daddr);
		if (!same(&dst, &c->plain) || h.frag_off & bpf_htons(0x1fff))
			return NEXT;
		if (load(skb, ETH_HLEN + sizeof(h), &v.udp, sizeof(v.udp)) || v.udp.dest != c->plain_port)
			return NEXT;
		if (h.frag_off & bpf_htons(0x2000))
			return drop(DROP_PLAIN);
		len = sizeof(h);
		v6 = 0;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr h;

		if (load(skb, ETH_HLEN, &h, sizeof(h)) || h.nexthdr != IPPROTO_UDP)
			return NEXT;
		__builtin_memcpy(&k.source, &h.saddr, 16);
		__builtin_memcpy(&dst, &h.daddr, 16);
		if (!same(&dst, &c->plain))
			return NEXT;
		if (load(skb, ETH_HLEN + sizeof(h), &v.udp, sizeof(v.udp)) || v.udp.dest != c->plain_port)
			return NEXT;
		len = sizeof(h);
		v6 = 1;
	} else {
		return NEXT;
	}
	if (load(skb, ETH_HLEN + len, &v, sizeof(v)) || v.flags != VXLAN_FLAGS)
		return drop(DROP_PLAIN);
	if (v.proto == bpf_htons(ETH_P_IP)) {
		if (v6)
			room |= ADJ_ROOM_DECAP_L3_IPV4;
	} else if (v.proto == bpf_htons(ETH_P_IPV6)) {
		if (!v6)
			room |= ADJ_ROOM_DECAP_L3_IPV6;
	} else {
		return drop(DROP_PLAIN);
	}
	k.tag = v.tag;
	peer = bpf_map_lookup_elem(&tags, &k);
	if (!peer)
		return drop(DROP_PLAIN);
	id = *peer;
	net = bpf_ntohl(v.net);
	len += sizeof(v);
	if (skb->len < ETH_HLEN + len + (v.proto == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)))
		return drop(DROP_MALFORMED);
	if (skb->gso_size) {
		__u8 proto;

		/* A buffer of many datagrams cannot be unwrapped here: the kernel would go on to take it for one of a tunnel.
		 * Its own unwrapping gives it to from_vxlan. */
		if (load(skb, ETH_HLEN + len + (v.proto == bpf_htons(ETH_P_IP) ? 9 : 6), &proto, 1))
			return drop(DROP_MALFORMED);
		if (proto == IPPROTO_UDP)
			return NEXT;
	}
	if (bpf_skb_adjust_room(skb, -(__s32)len, BPF_ADJ_ROOM_MAC, room)) {
		/* Linux before 6.3 does not change the protocol on the way. Another helper does, and the header's size with it. */
		if (v.proto == skb->protocol || bpf_skb_change_proto(skb, v.proto, 0))
			return drop(DROP_KERNEL);
		len = v6 ? len - 20 : len + 20;
		if (bpf_skb_adjust_room(skb, -(__s32)len, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
			return drop(DROP_KERNEL);
	}
	count(FROM_PLAIN);
	return arrived(skb, id, net);
}

/* from_vxlan is on the device that exists so that the kernel puts segments together before from_wire sees them. What comes
 * out of it is what from_wire left to it, or has come by another way. */
SEC("tc")
int from_vxlan(struct __sk_buff *skb)
{
	struct bpf_tunnel_key from = {};
	struct tag_key k = {};
	struct {
		__u64 tag;
		__u32 net;
	} __attribute__((packed)) h;
	__u32 *peer;

	if (!bpf_skb_get_tunnel_key(skb, &from, sizeof(from), 0))
		mapped(&k.source, bpf_htonl(from.remote_ipv4));
	else if (!bpf_skb_get_tunnel_key(skb, &from, sizeof(from), BPF_F_TUNINFO_IPV6))
		__builtin_memcpy(&k.source, from.remote_ipv6, 16);
	else
		return drop(DROP_PLAIN);
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return drop(DROP_PLAIN);
	if (load(skb, 0, &h, sizeof(h)))
		return drop(DROP_PLAIN);
	k.tag = h.tag;
	peer = bpf_map_lookup_elem(&tags, &k);
	if (!peer)
		return drop(DROP_PLAIN);
	count(FROM_PLAIN);
	return arrived(skb, *peer, bpf_ntohl(h.net));
}

/* from_link is the WireGuard device, which has checked that a packet is from the peer whose prefix it comes from. Its packets have no
 * Ethernet header, and none of them is for the host. */
SEC("tc")
int from_link(struct __sk_buff *skb)
{
	__u64 room = BPF_F_ADJ_ROOM_FIXED_GSO;
	struct addr src, dst;
	struct ipv6hdr h;
	__u32 *peer, *self, id, net, len = sizeof(h);
	__u16 proto;
	__u8 inner;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || load(skb, 0, &h, sizeof(h)) || h.version != 6)
		return drop(DROP_LINK);
	__builtin_memcpy(&src, &h.saddr, 16);
	__builtin_memcpy(&dst, &h.daddr, 16);
	net = bpf_ntohl(src.w[3]);
	if (src.w[3] != dst.w[3])
		return drop(DROP_LINK);
	src.w[3] = 0;
	dst.w[3] = 0;
	peer = bpf_map_lookup_elem(&prefixes, &src);
	self = bpf_map_lookup_elem(&prefixes, &dst);
	if (!peer || !*peer || !self || *self)
		return drop(DROP_LINK);
	id = *peer;
	if (h.nexthdr == IPPROTO_ICMP6 && !net)
		return echo(skb, &h);
	if (h.nexthdr == IPPROTO_IPIP)
		proto = bpf_htons(ETH_P_IP);
	else if (h.nexthdr == IPPROTO_IPV6)
		proto = bpf_htons(ETH_P_IPV6);
	else
		return drop(DROP_LINK);
	if (skb->len < len + (proto == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)))
		return drop(DROP_MALFORMED);
	if (skb->gso_size) {
		/* As in from_wire. It takes a device that was told to put together what is not TCP. */
		if (load(skb, len + (proto == bpf_htons(ETH_P_IP) ? 9 : 6), &inner, 1))
			return drop(DROP_MALFORMED);
		if (inner == IPPROTO_UDP)
			return drop(DROP_KERNEL);
	}
	if (proto == bpf_htons(ETH_P_IP))
		room |= ADJ_ROOM_DECAP_L3_IPV4;
	if (bpf_skb_adjust_room(skb, -(__s32)len, BPF_ADJ_ROOM_MAC, room)) {
		/* Linux before 6.3, as in from_wire. */
		if (proto == skb->protocol || bpf_skb_change_proto(skb, proto, 0) || bpf_skb_adjust_room(skb, -(__s32)(len - 20), BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
			return drop(DROP_KERNEL);
	}
	if (bpf_skb_change_head(skb, ETH_HLEN, 0))
		return drop(DROP_KERNEL);
	count(FROM_LINK);
	return arrived(skb, id, net);
}

/* from_tunnel is the tap of the datapath, which has checked that a frame is from the peer that it names. */
SEC("tc")
int from_tunnel(struct __sk_buff *skb)
{
	struct frame f;

	if (load(skb, 0, &f, sizeof(f)) || f.two != 2 || f.kind != FRAME_DATA)
		return drop(DROP_MALFORMED);
	if (f.proto != bpf_htons(ETH_P_IP) && f.proto != bpf_htons(ETH_P_IPV6))
		return drop(DROP_MALFORMED);
	count(FROM_TUNNEL);
	return arrived(skb, bpf_ntohl(f.peer), bpf_ntohl(f.net));
}

/* from_agent is the agent's tap: packets that it held, and its own answers to instances. */
SEC("tc")
int from_agent(struct __sk_buff *skb)
{
	struct instance *i;
	struct packet p = {};
	struct frame f;
	int verdict;

	if (load(skb, 0, &f, sizeof(f)) || f.two != 2)
		return DROP;
	if (f.proto != bpf_htons(ETH_P_IP) && f.proto != bpf_htons(ETH_P_IPV6))
		return DROP;
	verdict = parse(skb, &p);
	if (verdict)
		return verdict;
	if (f.kind == FRAME_AGAIN) {
		i = bpf_map_lookup_elem(&instances, &p.src);
		if (!i)
			return drop(DROP_GONE);
		verdict = put_together(&p);
		if (verdict)
			return verdict;
		verdict = sent(skb, &p, i->net);
		/* It came from an instance, and not for the host. */
		return verdict == NEXT ? DROP : verdict;
	}
	if (f.kind == FRAME_TO_INST) {
		i = bpf_map_lookup_elem(&instances, &p.dst);
		if (i)
			return hand_over(skb, i);
	}
	return drop(DROP_GONE);
}

/* sweep ends flows that are over, or those to a backend that is no more. The agent runs it. */
SEC("syscall")
int sweep(struct sweep *s)
{
	struct sweep copy = *s;
	struct share *sum = every();

	copy.now = bpf_ktime_get_ns() / 1000000;
	copy.flows = 0;
	copy.ended = 0;
	bpf_for_each_map_elem(&tcp, visit_flow, &copy, 0);
	bpf_for_each_map_elem(&other, visit_flow, &copy, 0);
	if (copy.what == SWEEP) {
		bpf_for_each_map_elem(&shares, visit_share, &copy, 0);
		if (sum)
			sum->flows = sum->round == copy.now ? sum->seen : 0;
	}
	if (copy.what == RESET)
		bpf_for_each_map_elem(&affinities, visit_affinity, &copy, 0);
	s->flows = copy.flows;
	s->ended = copy.ended;
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
