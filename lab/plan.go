package lab

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/lab/wan"
)

// wanName is the namespace between the hosts.
const wanName = "wan"

// Way is one direction between two hosts.
type Way struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// ways is the state of the network that commands change: what is cut, how cables and ways are, and what routers do.
type ways struct {
	Cut   []Way          `json:"cut,omitempty"`
	Links []Link         `json:"links,omitempty"`
	NATs  map[string]NAT `json:"nats,omitempty"` // of each router its kind
}

// shape gives the qualities of the way from one host to another: those of the last link between the two, else those of
// both cables together.
func (w *ways) shape(t *Topology, from, to string) wan.Shape {
	var own wan.Shape
	pass, once, order := 1.0, 1.0, 1.0
	for _, l := range slices.Backward(w.Links) {
		if len(l.Between) != 2 {
			continue
		}
		a, b := t.side(l.Between[0]), t.side(l.Between[1])
		if slices.Contains(a, from) && slices.Contains(b, to) || slices.Contains(b, from) && slices.Contains(a, to) {
			return wan.Shape{Delay: time.Duration(l.Delay), Jitter: time.Duration(l.Jitter), Loss: float64(l.Loss),
				Reorder: float64(l.Reorder), Duplicate: float64(l.Duplicate)}
		}
	}
	for _, host := range []string{from, to} {
		l := w.cable(host)
		own.Delay += time.Duration(l.Delay)
		own.Jitter += time.Duration(l.Jitter)
		pass *= 1 - float64(l.Loss)
		once *= 1 - float64(l.Duplicate)
		order *= 1 - float64(l.Reorder)
	}
	own.Loss, own.Duplicate, own.Reorder = 1-pass, 1-once, 1-order
	return own
}

// cable is what is said last of a host's cable.
func (w *ways) cable(host string) Link {
	for _, l := range slices.Backward(w.Links) {
		if l.Host == host {
			return l
		}
	}
	return Link{Host: host}
}

// rules are the shapes of all pairs that have one, in order.
func (w *ways) rules(t *Topology) (out []wan.Rule) {
	for _, from := range t.behind("") {
		for _, to := range t.behind("") {
			if from == to {
				continue
			}
			if s := w.shape(t, from.Name, to.Name); !s.Zero() {
				out = append(out, wan.Rule{Pair: wan.Pair{From: netip.MustParseAddr(from.Address), To: netip.MustParseAddr(to.Address)}, Shape: s})
			}
		}
	}
	return out
}

// cut takes ways away, heal gives them back. Both know each way once.
func (w *ways) cut(list []Way) {
	w.Cut = append(w.Cut, list...)
	slices.SortFunc(w.Cut, func(a, b Way) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	w.Cut = slices.Compact(w.Cut)
}

func (w *ways) heal(list []Way) {
	w.Cut = slices.DeleteFunc(w.Cut, func(x Way) bool { return slices.Contains(list, x) })
}

// set changes one link: the values that are given, of the link that was said last of the same host or sides.
func (w *ways) set(l Link) {
	same := func(x Link) bool { return x.Host == l.Host && slices.Equal(x.Between, l.Between) }
	w.Links = append(slices.DeleteFunc(w.Links, same), l)
}

// last gives what is said of a link, or what an unshaped one is.
func (w *ways) last(l Link) Link {
	for _, x := range slices.Backward(w.Links) {
		if x.Host == l.Host && slices.Equal(x.Between, l.Between) {
			return x
		}
	}
	return Link{Host: l.Host, Between: l.Between}
}

// waysBetween lists the ways between two sides.
func (t *Topology) waysBetween(a, b string, oneWay bool) ([]Way, error) {
	as, bs := t.side(a), t.side(b)
	for name, hosts := range map[string][]string{a: as, b: bs} {
		if len(hosts) == 0 {
			return nil, t.noHost(name)
		}
	}
	var out []Way
	for _, from := range as {
		for _, to := range bs {
			if from == to {
				continue
			}
			out = append(out, Way{from, to})
			if !oneWay {
				out = append(out, Way{to, from})
			}
		}
	}
	if len(out) == 0 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "there is no way between %s and %s", a,
			b).WithHint("two sides differ, and are not behind the same NAT")
	}
	return out, nil
}

func (t *Topology) noHost(name string) error {
	var names []string
	for _, h := range t.Hosts {
		names = append(names, h.Name)
	}
	return skerry.Errorf(skerry.CodeNotFound, "lab %s has no host or site %q", t.Name,
		name).WithHint("its hosts are %s; CLUSTER/* is a whole site", strings.Join(names, ", "))
}

// mark is on packets that go to the queue; queueNum is the queue's.
const (
	mark     = 0x5c
	queueNum = 92
)

// ruleset is the whole nftables configuration of the network between the hosts. The mark leads to the queue by a rule of
// iptables, because kernels without nft_queue have only that.
func (w *ways) ruleset(t *Topology) string {
	addr := func(host string) string { return t.Host(host).Address }
	var cuts, shaped []string
	for _, c := range w.Cut {
		cuts = append(cuts, addr(c.From)+" . "+addr(c.To))
	}
	for _, r := range w.rules(t) {
		shaped = append(shaped, r.From.String()+" . "+r.To.String())
	}
	set := func(name string, elements []string) string {
		s := "\tset " + name + " {\n\t\ttype ipv4_addr . ipv4_addr\n"
		if len(elements) > 0 {
			s += "\t\telements = { " + strings.Join(elements, ", ") + " }\n"
		}
		return s + "\t}\n"
	}
	// The copy of a packet comes at once; the packet itself may be delayed, lost or overtaken. Tables of the family inet know no copies.
	copies := ""
	for _, r := range w.rules(t) {
		if n := int(math.Round(r.Duplicate * 1000)); n > 0 {
			copies += fmt.Sprintf("\t\tip saddr %s ip daddr %s numgen random mod 1000 <= %d counter dup to ip daddr\n", r.From, r.To, n-1)
		}
	}
	copies = "table ip lab\ndelete table ip lab\ntable ip lab {\n\tchain copies {\n\t\ttype filter hook forward priority -159; policy accept\n" +
		copies + "\t}\n}\n"
	return copies + "table inet lab\ndelete table inet lab\ntable inet lab {\n" + set("cut", cuts) + set("shaped", shaped) +
		fmt.Sprintf("\tchain forward {\n\t\ttype filter hook forward priority -160; policy accept\n"+
			"\t\tip saddr . ip daddr @cut counter drop\n\t\tip saddr . ip daddr @shaped meta mark set %#x\n\t}\n}\n", mark)
}

// lossy reports whether packets of a host are lost on some way, come twice or out of order. Its cable then carries single packets instead
// of large segments, so that a loss is one of a packet.
func (w *ways) lossy(t *Topology, host string) bool {
	for _, h := range t.Hosts {
		for _, s := range []wan.Shape{w.shape(t, host, h.Name), w.shape(t, h.Name, host)} {
			if h.Name != host && (s.Loss > 0 || s.Duplicate > 0 || s.Reorder > 0) {
				return true
			}
		}
	}
	return false
}
