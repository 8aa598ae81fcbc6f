package ipam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// TestBlocksAgainstTwin takes and returns blocks beside a twin that counts addresses one by one.
func TestBlocksAgainstTwin(t *testing.T) {
	site := prefixes("10.64.0.0/22", "10.99.1.0/24", "10.99.2.128/25")
	var every []netip.Prefix // of 26 bits, in order
	for _, p := range site {
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			if q, _ := a.Prefix(26); q.Addr() == a {
				every = append(every, q)
			}
		}
	}
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 2))
		var b Blocks
		type state struct {
			holder string
			until  time.Time
		}
		twin := map[netip.Prefix]state{}
		now := t0
		for range 300 {
			now = now.Add(time.Duration(r.IntN(20)) * time.Minute)
			holder := fmt.Sprint("w", r.IntN(5))
			var avoid []netip.Prefix
			for range r.IntN(3) {
				q := every[r.IntN(len(every))]
				p, _ := q.Addr().Prefix(20 + r.IntN(13))
				avoid = append(avoid, p)
			}
			if r.IntN(5) < 3 {
				got, err := b.Take(now, holder, site, avoid)
				var want netip.Prefix
				for _, q := range every {
					s, used := twin[q]
					if used && (s.until.IsZero() || now.Before(s.until)) {
						continue
					}
					bad := false
					for _, o := range avoid {
						for a := q.Addr(); q.Contains(a); a = a.Next() {
							bad = bad || o.Contains(a)
						}
					}
					if !bad {
						want = q
						break
					}
				}
				if want.IsValid() != (err == nil) || got != want {
					t.Fatalf("seed %d: got %s, %v; want %s avoiding %s", seed, got, err, want, avoid)
				}
				if err != nil {
					if skerry.AsError(err).Code != skerry.CodeFull {
						t.Fatal(err)
					}
					continue
				}
				twin[got] = state{holder: holder}
			} else {
				q := every[r.IntN(len(every))]
				s, ok := twin[q]
				want := ok && s.holder == holder && s.until.IsZero()
				if b.Return(holder, q, now.Add(time.Hour)) != want {
					t.Fatal("return", q, holder, s)
				}
				if want {
					twin[q] = state{holder, now.Add(time.Hour)}
				}
			}
			data, err := json.Marshal(b)
			var c Blocks
			if err != nil || json.Unmarshal(data, &c) != nil {
				t.Fatal(err)
			}
			if again, _ := json.Marshal(c); !bytes.Equal(data, again) {
				t.Fatal("changes when read back")
			}
			b = c
			for q, s := range twin {
				if slices.Contains(b.Of(s.holder), q) != s.until.IsZero() {
					t.Fatal(q, s, b.Of(s.holder))
				}
			}
		}
	}
}

func TestBlocks(t *testing.T) {
	var b Blocks
	site := prefixes("fd00::/48", "10.64.0.0/24")
	for range 2 {
		if _, err := b.Take(t0, "w1", site, prefixes("10.64.0.0/26")); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(b.Of("w1")); got != "[10.64.0.64/26 10.64.0.128/26]" {
		t.Error(got)
	}
	if got := b.Overlapping(prefixes("10.64.0.100/32", "192.168.0.0/16")); len(got) != 1 || got[0].Holder != "w1" {
		t.Error(got)
	}
	if got := b.ReturnAll("w1", t0.Add(time.Hour)); len(got) != 2 || len(b.Of("w1")) != 0 || len(b.Overlapping(site)) != 0 {
		t.Error(got, b.Of("w1"))
	}
	for _, s := range []string{`[{"prefix":"10.0.0.0/25"}]`, `[{"prefix":"10.0.0.1/26"}]`, `[{"prefix":"10.0.0.0/26"},{"prefix":"10.0.0.0/26"}]`, `[{"prefix":""}]`} {
		if json.Unmarshal([]byte(s), &b) == nil {
			t.Error("accepted", s)
		}
	}
}

func TestExtents(t *testing.T) {
	var taken []netip.Prefix
	for i := range 1024 {
		p, err := Extent(DefaultPool(), ExtentBits, fmt.Sprint("site", i), 0, taken)
		if err != nil {
			t.Fatal(err)
		}
		if _, hit := Overlap(p, taken); hit || !DefaultPool().Contains(p.Addr()) || p.Bits() != ExtentBits || p != p.Masked() {
			t.Fatal(p)
		}
		taken = append(taken, p)
	}
	if _, err := Extent(DefaultPool(), ExtentBits, "late", 0, taken); skerry.AsError(err).Code != skerry.CodeFull {
		t.Error(err)
	}
	a, _ := Extent(DefaultPool(), ExtentBits, "north", 0, nil)
	b, _ := Extent(DefaultPool(), ExtentBits, "north", 1, nil)
	if a == b || a.String() != "10.105.128.0/20" {
		t.Error(a, b)
	}
	if _, err := Extent(DefaultPool(), 8, "x", 0, nil); err == nil {
		t.Error("an extent larger than the pool")
	}
	if p, err := Extent(netip.MustParsePrefix("fd12:3456::/32"), 48, "north", 0, nil); err != nil || p.Bits() != 48 || !netip.MustParsePrefix("fd12:3456::/32").Contains(p.Addr()) {
		t.Error(p, err)
	}
}

func TestSubnetsAgainstCounting(t *testing.T) {
	for _, c := range []struct {
		in   string
		bits int
	}{{"10.1.2.0/24", 28}, {"fd00::/120", 124}, {"fd00:1:2:fff0::/60", 66}, {"fd00::/60", 64}, {"0.0.0.0/0", 4}, {"::/0", 3}} {
		p := netip.MustParsePrefix(c.in)
		want := netip.PrefixFrom(p.Addr(), c.bits)
		for n := range subnets(p, c.bits) {
			if got := subnet(p, c.bits, n); got != want {
				t.Fatalf("%s number %d: %s, want %s", c.in, n, got, want)
			}
			last := want.Addr().As16() // the last address of it, found bit by bit
			for i := c.bits + 128 - p.Addr().BitLen(); i < 128; i++ {
				last[i/8] |= 1 << (7 - i%8)
			}
			a := netip.AddrFrom16(last)
			if p.Addr().Is4() {
				a = a.Unmap()
			}
			want = netip.PrefixFrom(a.Next(), c.bits)
		}
	}
	if subnets(netip.MustParsePrefix("::/0"), 128) != 1<<32 || subnets(netip.MustParsePrefix("10.0.0.0/8"), 33) != 0 {
		t.Error("limits")
	}
}

func TestIPv6(t *testing.T) {
	u := ULA("federation-1")
	if u.String() != "fdd7:6cb8:2480::/48" || ULA("federation-2") == u {
		t.Error(u)
	}
	w, err := Subnet64(u, 65535)
	if err != nil || w.Bits() != 64 || Twin(w, ip("10.64.1.2")).String() != w.Addr().StringExpanded()[:19]+"::a40:102" {
		t.Error(w, err, Twin(w, ip("10.64.1.2")))
	}
	if _, err := Subnet64(u, 65536); err == nil {
		t.Error("a number too many")
	}
	if _, err := Subnet64(netip.MustParsePrefix("10.0.0.0/8"), 0); err == nil {
		t.Error("IPv4")
	}
}
