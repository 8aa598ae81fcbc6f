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
)

// Listen asks for a rule's devices in its network again and again until ctx ends, and tells all of them whenever that has changed. A
// network that is not there is asked once it is; failed is told why it cannot be.
func Listen(ctx context.Context, rule Rule, heard func([]Device), failed func(error)) {
	var there network
	for {
		round, err := ask(ctx, &rule)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			failed(err)
		}
		if now, changed := there.round(Offer(round, []Rule{rule})); changed {
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

// round takes the answers of a round, and gives all devices that count and whether they have changed.
func (n *network) round(answers []Device) (now []Device, changed bool) {
	if n.known == nil {
		n.known, n.silent = map[string]Device{}, map[string]int{}
	}
	for id := range n.known {
		if n.silent[id]++; n.silent[id] > maxSilent {
			delete(n.known, id)
			delete(n.silent, id)
		}
	}
	slices.SortFunc(answers, func(a, b Device) int { return compare(&a, &b) })
	answers = slices.CompactFunc(answers, func(a, b Device) bool { return compare(&a, &b) == 0 }) // many answer twice
	for _, d := range distinct(answers) {
		if _, ok := n.known[d.ID()]; ok || len(n.known) < spec.MaxDevices {
			n.known[d.ID()], n.silent[d.ID()] = d, 0
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

// ask asks once, and collects the answers.
func ask(ctx context.Context, rule *Rule) (out []Device, err error) {
	at, err := net.InterfaceByName(rule.Interface)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", rule.Interface, err)
	}
	own, err := addressOf(at)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: own.Addr().AsSlice()})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	out4 := ipv4.NewPacketConn(conn)
	if err := out4.SetMulticastInterface(at); err != nil {
		return nil, err
	}
	if err := out4.SetMulticastTTL(1); err != nil { // it stays in that network
		return nil, err
	}
	question, group := []byte(nil), groupONVIF()
	if rule.Kind == KindMDNS {
		group = groupMDNS()
		if question, err = askMDNS(rule.Service); err != nil {
			return nil, err
		}
	} else {
		var id [16]byte
		_, _ = rand.Read(id[:])
		question = askONVIF(id)
	}
	if _, err := conn.WriteToUDP(question, group); err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(askWait)); err != nil {
		return nil, err
	}
	buf := make([]byte, maxAnswer+1)
	for range maxHeard {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return out, ctx.Err() // the time is over
		}
		if who := from.Addr().Unmap(); !own.Masked().Contains(who) {
			continue // not of that network
		} else if rule.Kind == KindMDNS {
			out = append(out, parseMDNS(buf[:n], rule.Service, who)...)
		} else {
			out = append(out, parseONVIF(buf[:n], who)...)
		}
		out = out[:min(len(out), 4*spec.MaxDevices)]
	}
	return out, nil
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
