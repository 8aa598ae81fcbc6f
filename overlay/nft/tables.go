//go:build linux

package nft

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableBuffer is room for a transaction: it is sent as one message, and the kernel acknowledges each part of it before the
// first answer is read.
const tableBuffer = 32 << 20

// atOnce is how many elements are in one part of a transaction, the length of which has 16 bits.
const atOnce = 400

func (d *Device) conn() (*nftables.Conn, error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(d.host.Fd())), nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(tableBuffer), c.SetWriteBuffer(tableBuffer))
	}))
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	return c, nil
}

// probe has the kernel look at all rules, and take none.
func (d *Device) probe() error {
	c, err := d.conn()
	if err != nil {
		return err
	}
	o := Options{Worker: d.opts.Worker + " probe"}
	s := newSkeleton(&o)
	if err := s.build(c, "lo", true); err != nil {
		return err
	}
	for _, t := range s.tables() {
		c.DelTable(t)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return nil
}

// tables are what is in the kernel's, as far as this process wrote or read it.
type tables struct {
	sets   map[setID]elements
	chains map[setID]string // signatures; none: not known
	named  map[string]bool
}

// load reads what an earlier process left; nil: nothing that can be gone on with.
func (d *Device) load() (*tables, error) {
	nft, err := d.conn()
	if err != nil {
		return nil, err
	}
	t := &tables{map[setID]elements{}, map[setID]string{}, map[string]bool{}}
	for _, table := range d.skeleton.tables() {
		chains, err := nft.ListChainsOfTableFamily(table.Family)
		if err != nil {
			return nil, fmt.Errorf("nftables: list chains: %w", err)
		}
		known, hooks := false, 0
		for _, ch := range chains {
			if ch.Table.Name != table.Name {
				continue
			}
			known = known || ch.Name == layout
			d.guard = d.guard || ch.Name == guardChain
			if ch.Hooknum != nil {
				hooks++
			}
			if table == d.skeleton.inet && isNamed(ch.Name) {
				t.named[ch.Name] = true
			}
		}
		if !known || table == d.skeleton.netdev && hooks != 2 {
			return nil, nil
		}
		for name, set := range d.skeleton.sets[table.Family] {
			list, err := nft.GetSetElements(set)
			if err != nil {
				return nil, fmt.Errorf("nftables: set %s: %w", name, err)
			}
			have := elements{}
			for _, e := range list {
				v := string(e.Val)
				if set.DataType.Name == nftables.TypeVerdict.Name {
					v = chainOf(e.Val)
				}
				have[string(e.Key)] = v
			}
			t.sets[setID{table.Family, name}] = have
		}
	}
	return t, nil
}

// isNamed tells a chain of which the name stands for what is in it from the others.
func isNamed(chain string) bool {
	return len(chain) > 2 && chain[1] == '-' && strings.Contains("snr", chain[:1])
}

// update brings the kernel's tables to what they are to be, in one transaction.
func (d *Device) update(w *want) error {
	nft, err := d.conn()
	if err != nil {
		return err
	}
	t := d.tables
	if t == nil {
		if t, err = d.load(); err != nil {
			return err
		}
	}
	d.tables = nil // until it is known what happened
	if t == nil {
		t = &tables{map[setID]elements{}, map[setID]string{}, map[string]bool{}}
		if err := d.skeleton.build(nft, d.opts.tunnelTap(), d.guard); err != nil {
			return err
		}
	}
	table := map[nftables.TableFamily]*nftables.Table{}
	for _, x := range d.skeleton.tables() {
		table[x.Family] = x
	}
	for _, name := range slices.Sorted(maps.Keys(w.named)) {
		if !t.named[name] {
			out := writer{nft, d.skeleton.inet}
			if err := w.named[name](out, out.chain(name)); err != nil {
				return err
			}
		}
	}
	for id, rules := range w.chains {
		s := signature(rules)
		if t.chains[id] == s {
			continue
		}
		t.chains[id] = s
		out := writer{nft, table[id.table]}
		ch := out.chain(id.name)
		nft.FlushChain(ch)
		for _, r := range rules {
			out.rule(ch, r)
		}
	}
	for family, list := range d.skeleton.sets {
		for name, set := range list {
			id := setID{family, name}
			have, to := t.sets[id], w.sets[id]
			var del, add []nftables.SetElement
			for k, v := range have {
				if x, ok := to[k]; !ok || x != v {
					del = append(del, element(set, k, v))
				}
			}
			for k, v := range to {
				if x, ok := have[k]; !ok || x != v {
					add = append(add, element(set, k, v))
				}
			}
			for part := range slices.Chunk(del, atOnce) {
				if err := nft.SetDeleteElements(set, part); err != nil {
					return err
				}
			}
			for part := range slices.Chunk(add, atOnce) {
				if err := nft.SetAddElements(set, part); err != nil {
					return err
				}
			}
			t.sets[id] = maps.Clone(to)
		}
	}
	for name := range t.named {
		if _, ok := w.named[name]; !ok {
			nft.DelChain(&nftables.Chain{Table: d.skeleton.inet, Name: name})
		}
	}
	if err := nft.Flush(); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	t.named = map[string]bool{}
	for name := range w.named {
		t.named[name] = true
	}
	d.tables = t
	return nil
}

func element(s *nftables.Set, key, value string) nftables.SetElement {
	e := nftables.SetElement{Key: []byte(key)}
	switch {
	case !s.IsMap:
	case s.DataType.Name == nftables.TypeVerdict.Name:
		e.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: value}
	default:
		e.Val = []byte(value)
	}
	return e
}

// dropTables takes all of them away.
func (d *Device) dropTables() error {
	c, err := d.conn()
	if err != nil {
		return err
	}
	for _, t := range d.skeleton.tables() {
		c.AddTable(t)
		c.DelTable(t)
	}
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete nftables tables %s: %w", d.opts.table(), err)
	}
	d.tables = nil
	return nil
}

// counts reads the counters, those of a name added up.
func (d *Device) counts() (map[string]int64, error) {
	out := map[string]int64{}
	for _, names := range counters() {
		for _, n := range names {
			out[n] = 0
		}
	}
	nft, err := d.conn()
	if err != nil {
		return nil, err
	}
	for _, t := range d.skeleton.tables() {
		list, err := nft.GetNamedObjects(t)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("nftables: counters: %w", err)
		}
		for _, o := range list {
			if n, ok := o.(*nftables.NamedObj); ok {
				if v, ok := n.Obj.(*expr.Counter); ok {
					out[n.Name] += int64(v.Packets)
				}
			}
		}
	}
	return out, nil
}
