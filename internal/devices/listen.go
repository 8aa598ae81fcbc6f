package devices

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/ipv4"

	"skerry.dev/skerry/spec"
)

// How often a network is asked, for how long answers are awaited, and in how many rounds in a row a device may be silent: datagrams get
// lost, and a camera that restarts is no other one.
const (
	askEvery  = time.Minute
	askWait   = 5 * time.Second
	maxSilent = 3
	// maxHeard bounds the answers of a round, each of which may name several devices.
	maxHeard = 1024
	// maxOfHost bounds the devices of one host: others are to have room, too.
	maxOfHost = 64
)

// Listen asks for a rule's devices in its network again and again until ctx ends, and tells all of them whenever that has changed. Those
// that are known from before count until they are silent for long. A network that is not there is asked once it is; failed is told why it
// cannot be.
func Listen(ctx context.Context, rule Rule, known []Device, heard func([]Device), failed func(error)) {
	there := networkOf(known)
	for {
		round, whole, err := ask(ctx, &rule)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			failed(err)
		}
		if now, changed := there.round(Offer(round, []Rule{rule}), whole); changed {
			heard(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askEvery):
		}
	}
}

// network is who was heard in one.
type network struct {
	known  map[string]Device
	silent map[string]int // rounds in a row
	told   []Device
}

func networkOf(known []Device) *network {
	n := &network{known: map[string]Device{}, silent: map[string]int{}, told: slices.Clone(known)}
	for _, d := range known {
		n.known[d.ID()] = d
	}
	slices.SortFunc(n.told, func(a, b Device) int { return compare(&a, &b) })
	return n
}

// round takes the answers of a round, and gives all devices that count and whether they have changed. Nobody was silent in a round that is
// not whole. Whoever is known keeps its name: anybody in the network can answer by it.
func (n *network) round(answers []Device, whole bool) (now []Device, changed bool) {
	for id := range n.known {
		if whole {
			n.silent[id]++
		}
		if n.silent[id] > maxSilent {
			delete(n.known, id)
			delete(n.silent, id)
		}
	}
	slices.SortFunc(answers, func(a, b Device) int { return compare(&a, &b) })
	answers = slices.CompactFunc(answers, func(a, b Device) bool { return compare(&a, &b) == 0 }) // many answer twice
	answered := map[string]bool{}
	var others []Device
	for _, d := range answers {
		if name, ok := n.knownAs(&d); ok {
			d.Name = name
			n.known[d.ID()], n.silent[d.ID()], answered[d.ID()] = d, 0, true
		} else {
			others = append(others, d)
		}
	}
	others = slices.DeleteFunc(others, func(d Device) bool { // a datagram may be lost: whoever has moved has its name once it is gone here
		_, taken := n.known[d.ID()]
		return taken && !answered[d.ID()]
	})
	for i := range others {
		if _, taken := n.known[others[i].ID()]; taken {
			others[i].Name = nameAtPlace(&others[i])
		}
	}
	ofHost := map[string]int{}
	for _, d := range n.known {
		ofHost[d.Labels[LabelPlace]]++
	}
	for _, d := range distinct(others) {
		at := d.Labels[LabelPlace]
		if _, taken := n.known[d.ID()]; !taken && len(n.known) < spec.MaxDevices && ofHost[at] < maxOfHost {
			n.known[d.ID()], n.silent[d.ID()] = d, 0
			ofHost[at]++
		}
	}
	now = slices.SortedFunc(maps.Values(n.known), func(a, b Device) int { return compare(&a, &b) })
	same := func(a, b Device) bool { return compare(&a, &b) == 0 && maps.Equal(a.Labels, b.Labels) }
	if slices.EqualFunc(now, n.told, same) {
		return now, false
	}
	n.told = now
	return slices.Clone(now), true
}

// knownAs gives the name by which whoever answers is known, if it is.
func (n *network) knownAs(answer *Device) (name string, ok bool) {
	for _, name := range []string{answer.Name, nameAtPlace(answer)} {
		id := (&Device{Class: answer.Class, Name: name}).ID()
		if d, ok := n.known[id]; ok && d.Address == answer.Address {
			return name, true
		}
	}
	return "", false
}

func compare(a, b *Device) int {
	for _, pair := range [][2]string{{a.ID(), b.ID()}, {a.Address, b.Address}} {
		if pair[0] < pair[1] {
			return -1
		} else if pair[0] > pair[1] {
			return 1
		}
	}
	return 0
}

// ask asks once, and collects the answers; whole: that is all of them.
func ask(ctx context.Context, rule *Rule) (out []Device, whole bool, err error) {
	at, err := net.InterfaceByName(rule.Interface)
	if err != nil {
		return nil, true, fmt.Errorf("interface %s: %w", rule.Interface, err)
	}
	own, err := addressOf(at)
	if err != nil {
		return nil, true, err
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: own.Addr().AsSlice()})
	if err != nil {
		return nil, true, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	out4 := ipv4.NewPacketConn(conn)
	if err := out4.SetMulticastInterface(at); err != nil {
		return nil, true, err
	}
	if err := out4.SetMulticastTTL(1); err != nil { // it stays in that network
		return nil, true, err
	}
	question, group := []byte(nil), groupONVIF()
	if rule.Kind == KindMDNS {
		group = groupMDNS()
		if question, err = askMDNS(rule.Service); err != nil {
			return nil, true, err
		}
	} else {
		var id [16]byte
		_, _ = rand.Read(id[:])
		question = askONVIF(id)
	}
	if _, err := conn.WriteToUDP(question, group); err != nil {
		return nil, true, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(askWait)); err != nil {
		return nil, true, err
	}
	out, whole = collect(rule, own, conn.ReadFromUDPAddrPort)
	return out, whole, ctx.Err()
}

// collect reads answers until there is an error, which is that the time is over. It reads so many at most, and says whether that was all.
func collect(rule *Rule, own netip.Prefix, next func(buf []byte) (int, netip.AddrPort, error)) (out []Device, whole bool) {
	buf := make([]byte, maxAnswer+1)
	for range maxHeard {
		n, from, err := next(buf)
		if err != nil {
			return out, true
		}
		if who := from.Addr().Unmap(); !own.Masked().Contains(who) {
			continue // not of that network
		} else if rule.Kind == KindMDNS {
			out = append(out, parseMDNS(buf[:n], rule.Service, who)...)
		} else {
			out = append(out, parseONVIF(buf[:n], who)...)
		}
		if len(out) > 4*spec.MaxDevices {
			return out[:4*spec.MaxDevices], false
		}
	}
	return out, false
}

// addressOf gives the first IPv4 address of an interface, with its network.
func addressOf(at *net.Interface) (none netip.Prefix, err error) {
	list, err := at.Addrs()
	if err != nil {
		return none, err
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return p, nil
		}
	}
	return none, fmt.Errorf("interface %s has no IPv4 address", at.Name)
}
