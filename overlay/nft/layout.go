//go:build linux

package nft

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// layout names a chain that tells which rules are there; it grows with each change of them. Tables with others are made anew.
const layout = "layout1"

// notOurs marks, on their way through this host, packets of peers that only an answer may be: their network is not one that the
// instance accepts. A host that gives this mark a meaning of its own is not to be expected.
const notOurs = 0x736b4e4f

// counters are those of each table, by the family of the table.
func counters() map[nftables.TableFamily][]string {
	return map[nftables.TableFamily][]string{
		nftables.TableFamilyINet:   {"local", "to-tunnel", "to-agent", "new-flow", "drop-network", "drop-forged", "drop-stray"},
		nftables.TableFamilyNetdev: {"from-tunnel", "drop-malformed", "drop-forged", "drop-unknown", "drop-sent"},
		nftables.TableFamilyBridge: {"drop-spoofed", "drop-protocol", "drop-malformed", "drop-network"},
	}
}

// sets are what rules look things up in, by name. Those of a family end in its name.
//
//	inet    inside   devices by which packets of instances come: bridges, and the agent's tap
//	        bridges
//	        here     addresses of instances here
//	        asks     address of an instance here -> its network's chain for service addresses
//	        reaches  address of an instance here -> its network's chain for instances here
//	        open     network, address of an instance here that accepts it
//	        self     the address of an instance here, twice
//	        service  network, service address -> chain
//	netdev  mac      address of an instance here -> source of frames
//	        to       length of a prefix, prefix -> destination of frames
//	        from     peer, length of a prefix, prefix
//	        open, here
//	bridge  cables, gates (addresses of bridges), own (device, address)
type sets map[string]*nftables.Set

// skeleton holds the names of everything, and writes what is the same for all configurations.
type skeleton struct {
	o                    *Options
	inet, netdev, bridge *nftables.Table
	sets                 map[nftables.TableFamily]sets
	anonymous            uint32 // the last number of a set without a name in a transaction
}

func newSkeleton(o *Options) *skeleton {
	s := &skeleton{o: o, sets: map[nftables.TableFamily]sets{}, anonymous: 1 << 16}
	s.inet = &nftables.Table{Family: nftables.TableFamilyINet, Name: o.table()}
	s.netdev = &nftables.Table{Family: nftables.TableFamilyNetdev, Name: o.table()}
	s.bridge = &nftables.Table{Family: nftables.TableFamilyBridge, Name: o.table()}
	id := uint32(0)
	add := func(t *nftables.Table, name string, key nftables.SetDatatype, data ...nftables.SetDatatype) *nftables.Set {
		id++
		set := &nftables.Set{Table: t, ID: id, Name: name, KeyType: key}
		if len(data) > 0 {
			set.IsMap, set.DataType = true, data[0]
		}
		if s.sets[t.Family] == nil {
			s.sets[t.Family] = sets{}
		}
		s.sets[t.Family][name] = set
		return set
	}
	net := nftables.TypeMark // of four bytes, like lengths and peers
	add(s.inet, "inside", nftables.TypeIFName)
	add(s.inet, "bridges", nftables.TypeIFName)
	add(s.bridge, "cables", nftables.TypeIFName)
	add(s.bridge, "gates", nftables.TypeEtherAddr)
	for _, f := range families() {
		add(s.inet, "here"+f.name, f.typ)
		add(s.inet, "asks"+f.name, f.typ, nftables.TypeVerdict)
		add(s.inet, "reaches"+f.name, f.typ, nftables.TypeVerdict)
		add(s.inet, "open"+f.name, concat(net, f.typ))
		add(s.inet, "self"+f.name, concat(f.typ, f.typ))
		add(s.inet, "service"+f.name, concat(net, f.typ), nftables.TypeVerdict)
		add(s.netdev, "mac"+f.name, f.typ, nftables.TypeEtherAddr)
		add(s.netdev, "to"+f.name, concat(net, f.typ), nftables.TypeEtherAddr)
		add(s.netdev, "from"+f.name, concat(net, net, f.typ))
		add(s.netdev, "open"+f.name, concat(net, f.typ))
		add(s.netdev, "here"+f.name, f.typ)
		add(s.bridge, "own"+f.name, concat(nftables.TypeIFName, f.typ))
	}
	return s
}

func (s *skeleton) tables() []*nftables.Table { return []*nftables.Table{s.inet, s.netdev, s.bridge} }

// hook is where a chain of rules begins with a hook, or none.
type hook struct {
	kind   nftables.ChainType
	num    *nftables.ChainHook
	prio   int32
	device string
}

type writer struct {
	c *nftables.Conn
	t *nftables.Table
}

func (w writer) chain(name string, h ...hook) *nftables.Chain {
	ch := &nftables.Chain{Table: w.t, Name: name}
	for _, h := range h {
		ch.Type, ch.Hooknum, ch.Priority, ch.Device = h.kind, h.num, nftables.ChainPriorityRef(nftables.ChainPriority(h.prio)), h.device
	}
	return w.c.AddChain(ch)
}

func (w writer) rule(ch *nftables.Chain, parts ...match) {
	w.c.AddRule(&nftables.Rule{Table: w.t, Chain: ch, Exprs: join(parts...)})
}

// build writes the tables, empty, in place of what was there. tap is the device that netdev's chains are on.
func (s *skeleton) build(c *nftables.Conn, tap string, guard bool) error {
	for _, t := range s.tables() {
		// Adding first makes the deletion succeed when there is none.
		c.AddTable(t)
		c.DelTable(t)
		c.AddTable(t)
		c.AddChain(&nftables.Chain{Table: t, Name: layout})
		for _, name := range counters()[t.Family] {
			c.AddObj(&nftables.NamedObj{Table: t, Name: name, Type: nftables.ObjTypeCounter, Obj: &expr.Counter{}})
		}
		for _, set := range s.sets[t.Family] {
			if err := c.AddSet(set, nil); err != nil {
				return err
			}
		}
	}
	s.buildINet(writer{c, s.inet}, guard)
	s.buildNetdev(writer{c, s.netdev}, tap)
	s.buildBridge(writer{c, s.bridge})
	return nil
}

func (s *skeleton) buildINet(out writer, guard bool) {
	have := s.sets[nftables.TableFamilyINet]
	filter, nat := nftables.ChainTypeFilter, nftables.ChainTypeNAT
	// Before those of overlay/hostnet, which lead ports of the host to instances, and give what leaves it another address.
	raw := out.chain("raw", hook{filter, nftables.ChainHookPrerouting, -300, ""})
	serve := out.chain("serve", hook{nat, nftables.ChainHookPrerouting, -101, ""})
	input := out.chain("input", hook{filter, nftables.ChainHookInput, -10, ""})
	forward := out.chain("forward", hook{filter, nftables.ChainHookForward, -10, ""})
	output := out.chain("output", hook{filter, nftables.ChainHookOutput, -10, ""})
	post := out.chain("keep", hook{nat, nftables.ChainHookPostrouting, 99, ""})

	out.rule(input, from(s.o.tunnelTap()), drop())
	out.rule(input, from(s.o.agentTap()), drop())
	for _, f := range families() {
		only := func(ch *nftables.Chain) *nftables.Chain {
			own := out.chain(ch.Name + f.name)
			out.rule(ch, meta(expr.MetaKeyNFPROTO, 0), is(0, f.proto), jump(own.Name))
			return own
		}
		here, self := have["here"+f.name], have["self"+f.name]

		// What the agent writes is no part of a flow, but for what it held on the way to a service address.
		r := only(raw)
		mine := out.chain("mine" + f.name)
		out.rule(r, from(s.o.agentTap()), f.source(0), inSet(0, here), jump(mine.Name))
		out.rule(r, from(s.o.agentTap()), match{&expr.Notrack{}}, accept())

		r = only(serve)
		out.rule(r, fromIn(have["inside"]), f.source(0), follow(0, have["asks"+f.name]))

		// The host is in between, so that it would tell instances of a shorter way to each other.
		r = only(output)
		out.rule(r, toIn(have["bridges"]), protocol(f.icmp()), transport(0, map[bool]byte{false: 5, true: 137}[f.six]), drop())

		// The first translation that a connection gets counts: here, that there is none.
		r = only(post)
		kept := out.chain("kept" + f.name)
		out.rule(r, f.source(0), f.dest(f.words()), inSet(0, self), asked(0), fromAddr(f, 0))
		out.rule(r, to(s.o.tunnelTap()), f.source(0), fromAddr(f, 0))
		out.rule(r, to(s.o.agentTap()), f.source(0), fromAddr(f, 0))
		out.rule(r, f.source(0), inSet(0, here), asked(0), jump(kept.Name))

		r = only(forward)
		instance, pool := out.chain("instance"+f.name), out.chain("pool"+f.name)
		out.rule(r, from(s.o.agentTap()), state(expr.CtStateBitUNTRACKED), accept())
		out.rule(r, f.source(0), inSet(0, here), state(expr.CtStateBitINVALID), loses("drop-stray"))
		out.rule(r, from(s.o.tunnelTap()), state(expr.CtStateBitINVALID), loses("drop-stray"))
		out.rule(r, toIn(have["bridges"]), answer(), accept())
		out.rule(r, from(s.o.tunnelTap()), meta(expr.MetaKeyMARK, 0), is(0, binaryutil.NativeEndian.PutUint32(notOurs)...), loses("drop-network"))
		out.rule(r, from(s.o.tunnelTap()), toIn(have["bridges"]), accept())
		out.rule(r, from(s.o.tunnelTap()), loses("drop-forged"))
		out.rule(r, to(s.o.tunnelTap()), fromIn(have["inside"]), f.source(0), inSet(0, here), count("to-tunnel"), accept())
		out.rule(r, to(s.o.tunnelTap()), loses("drop-forged"))
		out.rule(r, to(s.o.agentTap()), fromIn(have["inside"]), f.source(0), inSet(0, here), count("to-agent"), accept())
		out.rule(r, to(s.o.agentTap()), loses("drop-forged"))
		out.rule(r, toIn(have["bridges"]), f.dest(0), inSet(0, here), jump(instance.Name))
		out.rule(instance, fromIn(have["inside"]), f.source(0), follow(0, have["reaches"+f.name]))
		out.rule(instance, f.source(0), jump(pool.Name))
	}
	if guard {
		// This worker made the host forward IPv6; it is to do so for instances alone.
		only := out.chain(guardChain)
		out.rule(forward, meta(expr.MetaKeyNFPROTO, 0), is(0, unix.NFPROTO_IPV6), jump(guardChain))
		out.rule(only, fromIn(have["inside"]), back())
		out.rule(only, from(s.o.tunnelTap()), back())
		out.rule(only, toIn(have["bridges"]), back())
		out.rule(only, drop())
	}
}

// guardChain is there if this worker made the host forward IPv6.
const guardChain = "guard"

func (s *skeleton) buildNetdev(w writer, tap string) {
	have := s.sets[nftables.TableFamilyNetdev]
	egress := w.chain("egress", hook{nftables.ChainTypeFilter, nftables.ChainHookEgress, 0, tap})
	ingress := w.chain("ingress", hook{nftables.ChainTypeFilter, nftables.ChainHookIngress, 0, tap})
	// Two bytes of the destination say that it is data of a peer, two of the source that a network follows.
	w.rule(ingress, link(0, 2, 0), isNot(0, 2, 0), loses("drop-malformed"))
	w.rule(ingress, link(6, 2, 0), isNot(0, 2, 0), loses("drop-malformed"))
	for _, f := range families() {
		only := func(ch *nftables.Chain) *nftables.Chain {
			own := w.chain(ch.Name + f.name)
			w.rule(ch, meta(expr.MetaKeyPROTOCOL, 0), is(0, f.ether...), goTo(own.Name))
			return own
		}
		out := only(egress)
		send := w.chain("send" + f.name)
		w.rule(out, f.source(0), find(0, have["mac"+f.name], 0), writeLink(6, 6, 0), jump(send.Name))
		w.rule(out, loses("drop-sent"))

		in := only(ingress)
		known, deliver, stray := w.chain("known"+f.name), w.chain("deliver"+f.name), w.chain("stray"+f.name)
		w.rule(in, jump(known.Name)) // which goes to deliver
		w.rule(in, loses("drop-forged"))
		host := join(set(0, 0), match{&expr.Meta{Key: expr.MetaKeyPKTTYPE, SourceRegister: true, Register: reg(0)}}, count("from-tunnel"),
			accept())
		w.rule(deliver, link(8, 4, 0), f.dest(1), inSet(0, have["open"+f.name]), host)
		w.rule(deliver, f.dest(0), inSet(0, have["here"+f.name]), setMark(notOurs), host)
		w.rule(deliver, jump(stray.Name))
		w.rule(deliver, loses("drop-unknown"))
	}
	w.rule(egress, loses("drop-sent"))
	w.rule(ingress, loses("drop-malformed"))
}

func setMark(m uint32) match {
	return join(set(0, binaryutil.NativeEndian.PutUint32(m)...),
		match{&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg(0)}})
}

func (s *skeleton) buildBridge(w writer) {
	have := s.sets[nftables.TableFamilyBridge]
	pre := w.chain("prerouting", hook{nftables.ChainTypeFilter, nftables.ChainHookPrerouting, -300, ""})
	cable, near := w.chain("cable"), w.chain("neighbours")
	w.rule(pre, meta(expr.MetaKeyIIFNAME, 0), inSet(0, have["cables"]), goTo(cable.Name))
	own := func(f family, address match) match { // the address is in register 4
		return join(meta(expr.MetaKeyIIFNAME, 0), address, inSet(0, have["own"+f.name]))
	}
	four, six := families()[0], families()[1]
	kind := func(ether ...byte) match { return join(meta(expr.MetaKeyPROTOCOL, 0), is(0, ether...)) }
	nd := func(types ...byte) (out []match) {
		for _, t := range types {
			out = append(out, join(protocol(unix.IPPROTO_ICMPV6), transport(0, t)))
		}
		return out
	}

	w.rule(cable, kind(8, 6), load(expr.PayloadBaseNetworkHeader, 0, 6, 0), isNot(0, 0, 1, 8, 0, 6, 4), loses("drop-malformed"))
	w.rule(cable, kind(8, 6), own(four, load(expr.PayloadBaseNetworkHeader, 14, 4, 4)), accept())
	w.rule(cable, kind(8, 6), load(expr.PayloadBaseNetworkHeader, 14, 4, 0), is(0, 0, 0, 0, 0), accept())
	w.rule(cable, kind(8, 6), loses("drop-spoofed"))

	// Everything but finding neighbours goes by the gateway, those on the same bridge too.
	gate := join(link(0, 6, 0), inSet(0, have["gates"]))
	for _, m := range nd(133, 134, 135, 136, 137, 130, 131, 132, 143) {
		w.rule(cable, kind(six.ether...), m, goTo(near.Name))
	}
	for _, f := range []family{four, six} {
		w.rule(cable, kind(f.ether...), own(f, f.source(4)), gate, accept())
		w.rule(cable, kind(f.ether...), own(f, f.source(4)), loses("drop-network"))
		w.rule(cable, kind(f.ether...), loses("drop-spoofed"))
	}
	w.rule(cable, loses("drop-protocol"))

	// The link's own addresses serve to find neighbours, and nothing else.
	for _, m := range nd(134, 137) {
		w.rule(near, m, loses("drop-spoofed"))
	}
	target := load(expr.PayloadBaseTransportHeader, 8, 16, 4)
	local := func(at match) match { return join(at, mask(4, []byte{0xff, 0xc0, 0, 0}), is(4, 0xfe, 0x80, 0, 0)) }
	for _, m := range nd(136) {
		w.rule(near, m, own(six, target), accept())
		w.rule(near, m, local(load(expr.PayloadBaseTransportHeader, 8, 4, 4)), accept())
		w.rule(near, m, loses("drop-spoofed"))
	}
	w.rule(near, own(six, six.source(4)), accept())
	w.rule(near, local(load(expr.PayloadBaseNetworkHeader, 8, 4, 4)), accept())
	w.rule(near, six.source(0), is(0, make([]byte, 16)...), accept())
	w.rule(near, loses("drop-spoofed"))
}
