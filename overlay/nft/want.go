//go:build linux

package nft

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

// setID names a set of one of the tables.
type setID struct {
	table nftables.TableFamily
	name  string
}

// elements are the keys of a set, with the values of a map; those of a map of verdicts are names of chains.
type elements map[string]string

// want is what sets and chains are to hold for a configuration.
type want struct {
	sets map[setID]elements
	// chains are those that are written anew as a whole when they change.
	chains map[setID][]match
	// named are chains of which the name stands for what is in them, so that they never change.
	named map[string]func(w writer, ch *nftables.Chain) error
}

// serviceChain leads a service address to its slots.
type serviceChain struct {
	f     family
	slots []netip.Addr
	self  []netip.Addr // instances here among the slots
}

func (w *want) put(t nftables.TableFamily, set string, key []byte, value ...byte) {
	id := setID{t, set}
	if w.sets[id] == nil {
		w.sets[id] = elements{}
	}
	w.sets[id][string(key)] = string(value)
}

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// of says which of the families an address is of.
func of(a netip.Addr) family { return families()[map[bool]int{false: 0, true: 1}[a.Is6()]] }

// plan works out what is to be. bridges are names of bridges with their hardware addresses.
func (s *skeleton) plan(conf overlay.Config, bridges map[string]net.HardwareAddr, agentTap int) *want {
	w := &want{map[setID]elements{}, map[setID][]match{}, map[string]func(writer, *nftables.Chain) error{}}
	const inet, netdev, bridge = nftables.TableFamilyINet, nftables.TableFamilyNetdev, nftables.TableFamilyBridge
	w.put(inet, "inside", name(s.o.agentTap()))
	for b, mac := range bridges {
		w.put(inet, "inside", name(b))
		w.put(inet, "bridges", name(b))
		w.put(bridge, "gates", mac)
	}
	for _, i := range conf.Instances {
		w.put(bridge, "cables", name(i.Device))
		for _, a := range i.Addrs {
			f, addr := of(a).name, a.AsSlice()
			w.put(bridge, "own"+f, cat(name(i.Device), addr))
			w.put(inet, "here"+f, addr)
			w.put(inet, "asks"+f, addr, []byte(s.network(w, of(a), i.Net, 'n'))...)
			w.put(inet, "reaches"+f, addr, []byte(s.network(w, of(a), i.Net, 'r'))...)
			w.put(inet, "self"+f, cat(addr, addr))
			w.put(netdev, "mac"+f, addr, cat([]byte{2, 0}, be32(uint32(i.Net)))...)
			w.put(netdev, "here"+f, addr)
			for _, n := range append([]wire.NetworkID{i.Net}, i.Foreign...) {
				w.put(inet, "open"+f, cat(be32(uint32(n)), addr))
				w.put(netdev, "open"+f, cat(be32(uint32(n)), addr))
			}
		}
	}
	here := w.sets[setID{inet, "here4"}]
	here6 := w.sets[setID{inet, "here6"}]
	for _, v := range conf.Services {
		if len(v.Slots) == 0 {
			continue
		}
		ch := serviceChain{f: of(v.Addr)}
		h := sha256.New()
		h.Write(cat(be32(uint32(v.Net)), v.Addr.AsSlice()))
		for _, b := range v.Slots {
			_, near := here[string(b.Addr.AsSlice())]
			if _, near6 := here6[string(b.Addr.AsSlice())]; near || near6 {
				if !slices.Contains(ch.self, b.Addr) {
					ch.self = append(ch.self, b.Addr)
				}
				h.Write([]byte{1})
			} else {
				h.Write([]byte{0})
			}
			h.Write(b.Addr.AsSlice())
			ch.slots = append(ch.slots, b.Addr)
		}
		chain := "s-" + hex.EncodeToString(h.Sum(nil)[:12])
		w.named[chain] = func(w writer, c *nftables.Chain) error { return s.write(w, c, ch) }
		w.put(inet, "service"+ch.f.name, cat(be32(uint32(v.Net)), v.Addr.AsSlice()), []byte(chain)...)
	}
	lengths := map[string]map[int]bool{"4": {}, "6": {}}
	for _, p := range conf.Peers {
		for _, x := range p.Prefixes {
			x = x.Masked()
			f := of(x.Addr())
			lengths[f.name][x.Bits()] = true
			w.put(netdev, "to"+f.name, cat(be32(uint32(x.Bits())), x.Addr().AsSlice()),
				cat([]byte{2, byte(overlay.FrameData)}, be32(uint32(p.ID)))...)
			w.put(netdev, "from"+f.name, cat(be32(uint32(p.ID)), be32(uint32(x.Bits())), x.Addr().AsSlice()))
		}
	}
	for _, f := range families() {
		send, known := setID{netdev, "send" + f.name}, setID{netdev, "known" + f.name}
		w.chains[send], w.chains[known] = nil, nil
		// Longer prefixes come first: they tell more exactly whose an address is.
		for _, n := range slices.Backward(slices.Sorted(maps.Keys(lengths[f.name]))) {
			m := net.CIDRMask(n, int(f.size)*8)
			w.chains[send] = append(w.chains[send], join(set(0, be32(uint32(n))...), f.dest(1), mask(1, m),
				find(0, s.sets[netdev]["to"+f.name], 0), writeLink(0, 6, 0), accept()))
			w.chains[known] = append(w.chains[known], join(link(2, 4, 0), set(1, be32(uint32(n))...), f.source(2), mask(2, m),
				inSet(0, s.sets[netdev]["from"+f.name]), goTo("deliver"+f.name)))
		}
		stray, kept, mine, pool := setID{netdev, "stray" + f.name}, setID{inet, "kept" + f.name}, setID{inet, "mine" + f.name},
			setID{inet, "pool" + f.name}
		w.chains[stray], w.chains[kept], w.chains[mine], w.chains[pool] = nil, nil, nil, nil
		for _, p := range conf.Local.Blocks {
			if f.has(p.Addr()) {
				// The agent is told of some, and what it is told of is lost like the rest.
				some := match{&expr.Limit{Type: expr.LimitTypePkts, Rate: 100, Unit: expr.LimitTimeSecond, Burst: 10}}
				w.chains[stray] = append(w.chains[stray], join(f.dest(0), within(0, p), some,
					set(0, binaryutil.NativeEndian.PutUint32(uint32(agentTap))...), match{&expr.Dup{RegAddr: reg(0), RegDev: reg(0), IsRegDevSet: true}}))
				w.chains[pool] = append(w.chains[pool], join(f.source(0), within(0, p), back()))
			}
		}
		for _, p := range append(slices.Clone(conf.Local.Services), conf.Local.Instances...) {
			if f.has(p.Addr()) {
				w.chains[pool] = append(w.chains[pool], join(f.source(0), within(0, p), loses("drop-forged")))
			}
		}
		for _, p := range conf.Local.Services {
			if f.has(p.Addr()) {
				w.chains[kept] = append(w.chains[kept], join(asked(0), within(0, p), f.source(0), fromAddr(f, 0)))
				w.chains[mine] = append(w.chains[mine], join(f.dest(0), within(0, p), accept()))
			}
		}
	}
	return w
}

// network gives the chain in which packets of a network's instances are led to what services have, or to instances here.
func (s *skeleton) network(w *want, f family, n wire.NetworkID, kind byte) string {
	name := fmt.Sprintf("%c-%08x-%s", kind, uint32(n), f.name)
	have := s.sets[nftables.TableFamilyINet]
	w.named[name] = func(w writer, ch *nftables.Chain) error {
		key := join(set(0, be32(uint32(n))...), f.dest(1))
		if kind == 'n' {
			w.rule(ch, key, follow(0, have["service"+f.name]))
			return nil
		}
		w.rule(ch, key, inSet(0, have["open"+f.name]), count("local"), accept())
		w.rule(ch, loses("drop-network"))
		return nil
	}
	return name
}

// write makes the chain of a service: the slots in turn, for clients that are among them the others.
func (s *skeleton) write(out writer, ch *nftables.Chain, v serviceChain) error {
	turn := func(before match, slots []netip.Addr) error {
		if len(slots) == 1 {
			out.rule(ch, before, set(0, slots[0].AsSlice()...), count("new-flow"), toAddr(v.f, 0))
			return nil
		}
		s.anonymous++
		m := &nftables.Set{Table: out.t, ID: s.anonymous, Name: "__map%d", Anonymous: true, Constant: true, IsMap: true,
			KeyType: nftables.TypeInteger, DataType: v.f.typ}
		var list []nftables.SetElement
		for i, a := range slots {
			list = append(list, nftables.SetElement{Key: binaryutil.NativeEndian.PutUint32(uint32(i)), Val: a.AsSlice()})
		}
		if err := out.c.AddSet(m, list); err != nil {
			return err
		}
		out.rule(ch, before, match{&expr.Numgen{Register: reg(0), Modulus: uint32(len(slots)), Type: unix.NFT_NG_INCREMENTAL}}, find(0, m, 0),
			count("new-flow"), toAddr(v.f, 0))
		return nil
	}
	for _, a := range v.self {
		others := slices.DeleteFunc(slices.Clone(v.slots), func(b netip.Addr) bool { return a == b })
		if len(others) == 0 {
			continue
		}
		if err := turn(join(v.f.source(0), is(0, a.AsSlice()...)), others); err != nil {
			return err
		}
	}
	return turn(nil, v.slots)
}

// signature tells whether a chain's rules are others.
func signature(ms []match) string {
	h := sha256.New()
	for _, m := range ms {
		for _, e := range m {
			b, err := expr.Marshal(unix.NFPROTO_INET, e)
			fmt.Fprintf(h, "%x %v\n", b, err)
		}
		h.Write([]byte{'\n'})
	}
	return string(h.Sum(nil))
}

// chainOf reads the chain that a verdict of the kernel's goes to.
func chainOf(b []byte) string {
	for len(b) >= 4 {
		n := int(binary.NativeEndian.Uint16(b))
		if n < 4 || n > len(b) {
			return ""
		}
		if binary.NativeEndian.Uint16(b[2:])&0x3fff == unix.NFTA_VERDICT_CHAIN {
			return string(bytes.TrimRight(b[4:n], "\x00"))
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return ""
}

func check(conf overlay.Config) error {
	if conf.Local.MTU != 0 && (conf.Local.MTU < 576 || conf.Local.MTU > 65535) {
		return fmt.Errorf("MTU %d must be 576 to 65535", conf.Local.MTU)
	}
	for _, s := range conf.Services {
		if !s.Addr.IsValid() || len(s.Slots) > overlay.MaxSlots {
			return fmt.Errorf("service address %s with %d slots: it must be valid, with at most %d", s.Addr, len(s.Slots), overlay.MaxSlots)
		}
		for _, b := range s.Slots {
			if !b.Addr.IsValid() || b.Addr.Is4() != s.Addr.Is4() {
				return fmt.Errorf("service address %s leads to %s: both must be of one family", s.Addr, b.Addr)
			}
		}
	}
	owner := map[netip.Addr]string{}
	for _, i := range conf.Instances {
		if i.Device == "" || len(i.Device) >= unix.IFNAMSIZ {
			return fmt.Errorf("instance %s: device %q is not one", i.ID, i.Device)
		}
		for _, a := range i.Addrs {
			if id, ok := owner[a]; ok || !a.IsValid() {
				return fmt.Errorf("instance %s: address %q is not valid, or is that of %q too", i.ID, a, id)
			}
			owner[a] = i.ID
		}
	}
	for _, list := range [][]netip.Prefix{conf.Local.Blocks, conf.Local.Instances, conf.Local.Services} {
		for _, p := range list {
			if !p.IsValid() {
				return errors.New("a prefix of this worker is not valid")
			}
		}
	}
	ids, prefixes := map[wire.PeerID]bool{}, map[netip.Prefix]wire.PeerID{}
	for _, p := range conf.Peers {
		if p.ID == 0 || ids[p.ID] {
			return fmt.Errorf("peer %d %s: the number must be its own, and not 0", p.ID, p.Name)
		}
		ids[p.ID] = true
		for _, x := range p.Prefixes {
			if o, ok := prefixes[x.Masked()]; ok || !x.IsValid() {
				return fmt.Errorf("peer %d %s: prefix %s is not valid, or is that of peer %d too", p.ID, p.Name, x, o)
			}
			prefixes[x.Masked()] = p.ID
		}
	}
	return nil
}
