package ipam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func key(service string, b spec.Balance, ordinal int) Key {
	return Key{skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: service}, b, ordinal}
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestWants(t *testing.T) {
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}
	spec := &spec.ServiceSpec{Addresses: &spec.ServiceAddresses{Closest: ip("10.30.1.2"), Instances: []netip.Addr{{}, ip("10.30.1.11")}}}
	got := ""
	for _, w := range Wants(k, spec, 3) {
		got += fmt.Sprintln(w.Key, w.Chosen)
	}
	want := "round-robin of default/shop/web invalid IP\nclosest of default/shop/web 10.30.1.2\nleast-loaded of default/shop/web invalid IP\n" +
		"instance 0 of default/shop/web invalid IP\ninstance 1 of default/shop/web 10.30.1.11\ninstance 2 of default/shop/web invalid IP\n"
	if got != want {
		t.Errorf("got %s", got)
	}
	if n := len(Wants(k, nil, 2)); n != 5 {
		t.Error(n)
	}
}

func TestConflictsNameTheHolder(t *testing.T) {
	var a Addresses
	web, db := key("web", spec.BalanceRoundRobin, 0), key("db", spec.BalanceRoundRobin, 0)
	if err := a.Set(t0, t0, []Want{{Key: web}}); err != nil {
		t.Fatal(err)
	}
	had, _ := a.Of(web)
	before, _ := json.Marshal(a)
	err := a.Set(t0, t0, []Want{{Key: web}, {db, had}})
	if e := skerry.AsError(err); err == nil || e.Code != skerry.CodeConflict || !strings.Contains(e.Error(), "leads to round-robin of default/shop/web already") {
		t.Fatal(err)
	}
	err = a.Set(t0, t0, []Want{{web, ip("10.30.2.2")}, {db, ip("10.30.2.2")}})
	if err == nil || !strings.Contains(err.Error(), "round-robin of default/shop/web: 10.30.2.2 leads to round-robin of default/shop/db already") {
		t.Fatal(err)
	}
	if err = a.Set(t0, t0, []Want{{web, ip("10.30.0.2")}}); err == nil {
		t.Fatal("reserved")
	}
	if err = a.Set(t0, t0, []Want{{Key: web}, {Key: web}}); err == nil {
		t.Fatal("twice")
	}
	if after, _ := json.Marshal(a); !bytes.Equal(before, after) {
		t.Error("a refused set changed something")
	}
	// Two that exchange their addresses are no conflict.
	if err := a.Set(t0, t0.Add(time.Hour), []Want{{web, ip("10.30.2.2")}, {db, had}}); err != nil {
		t.Fatal(err)
	}
	if k, _ := a.Holder(spec.ServiceTwin(had)); k != db {
		t.Error(k)
	}
}

func TestFreedAddressesRest(t *testing.T) {
	var a Addresses
	web, db := key("web", spec.BalanceClosest, 0), key("db", spec.BalanceClosest, 0)
	set := func(now time.Time, wants ...Want) {
		t.Helper()
		if err := a.Set(now, now.Add(time.Hour), wants); err != nil {
			t.Fatal(err)
		}
	}
	set(t0, Want{Key: web})
	first, _ := a.Of(web)
	set(t0, Want{Key: db})
	// Every other address is taken, so that only the resting one is left. They are chosen: to find a free one among few takes long.
	second, _ := a.Of(db)
	all := []Want{{Key: key("x", spec.BalanceInstance, NumServices)}}
	for i := range NumServices {
		if addr := serviceAddr(uint64(i)); addr != first && addr != second {
			all = append(all, Want{Key: key("x", spec.BalanceInstance, i), Chosen: addr})
		}
	}
	err := a.Set(t0.Add(59*time.Minute), t0, append(all, Want{Key: db}))
	if e := skerry.AsError(err); err == nil || e.Code != skerry.CodeFull || e.Hint == "" {
		t.Fatal(err)
	}
	set(t0.Add(time.Minute), Want{Key: db}, Want{Key: web}) // it comes back to its own
	if got, _ := a.Of(web); got != first {
		t.Error(got, first)
	}
	set(t0.Add(2*time.Minute), Want{Key: db}) // and leaves again
	set(t0.Add(62*time.Minute), append(all, Want{Key: db})...)
	if a.Len() != NumServices {
		t.Error(a.Len())
	}
	if err := a.Set(t0, t0, append(all, Want{Key: db}, Want{Key: web})); skerry.AsError(err).Code != skerry.CodeFull {
		t.Error(err)
	}
}

// TestAddressesAgainstTwin runs random updates beside a twin that knows only lists.
func TestAddressesAgainstTwin(t *testing.T) {
	type entry struct {
		k     Key
		a     netip.Addr
		until time.Time
	}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var a Addresses
		var held, resting []entry
		now := t0
		for step := range 60 {
			now = now.Add(time.Duration(r.IntN(30)) * time.Minute)
			var wants []Want
			for i := range 12 {
				if r.IntN(3) > 0 {
					w := Want{Key: key(string(rune('a'+i)), spec.BalanceClosest, 0)}
					if r.IntN(4) == 0 {
						w.Chosen = serviceAddr(uint64(r.IntN(14)))
					}
					wants = append(wants, w)
				}
			}
			r.Shuffle(len(wants), func(i, j int) { wants[i], wants[j] = wants[j], wants[i] })
			until := now.Add(45 * time.Minute)
			err := a.Set(now, until, wants)

			// The twin: is there a conflict?
			conflict := false
			for i, w := range wants {
				for j, v := range wants {
					if i != j && w.Chosen.IsValid() && w.Chosen == v.Chosen {
						conflict = true
					}
					for _, h := range held {
						if i != j && w.Chosen.IsValid() && !v.Chosen.IsValid() && h.k == v.Key && h.a == w.Chosen {
							conflict = true
						}
					}
				}
			}
			if conflict != (err != nil) {
				t.Fatalf("seed %d step %d: conflict %v, error %v", seed, step, conflict, err)
			}
			if err != nil {
				continue
			}
			var next []entry
			for _, w := range wants {
				got, ok := a.Of(w.Key)
				if !ok {
					t.Fatal("missing", w.Key)
				}
				if w.Chosen.IsValid() && got != w.Chosen {
					t.Fatal("not what was chosen")
				}
				for _, h := range held {
					if h.k == w.Key && !w.Chosen.IsValid() && h.a != got {
						t.Fatalf("seed %d step %d: %s moved from %s to %s", seed, step, w.Key, h.a, got)
					}
				}
				for _, q := range resting {
					if q.a == got && now.Before(q.until) && q.k != w.Key && !w.Chosen.IsValid() {
						t.Fatalf("seed %d step %d: %s rests", seed, step, got)
					}
				}
				for _, n := range next {
					if n.a == got {
						t.Fatal("given twice")
					}
				}
				next = append(next, entry{w.Key, got, time.Time{}})
			}
			for _, h := range held {
				if k, ok := a.Holder(h.a); !ok || k != h.k {
					resting = append(resting, entry{h.k, h.a, until})
				}
			}
			for _, h := range next {
				resting = slices.DeleteFunc(resting, func(q entry) bool { return q.a == h.a })
			}
			if held = next; a.Len() != len(held) {
				t.Fatal(a.Len())
			}
			// What is stored reads back, and goes on the same way.
			data, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			var b Addresses
			if err := json.Unmarshal(data, &b); err != nil {
				t.Fatal(err)
			}
			if again, _ := json.Marshal(b); !bytes.Equal(data, again) {
				t.Fatal("changes when read back")
			}
			a = b
		}
	}
}

func TestSameStateSameAddresses(t *testing.T) {
	var a, b Addresses
	var wants []Want
	for i := range 500 {
		wants = append(wants, Want{Key: key("web", spec.BalanceInstance, i)})
	}
	if err := a.Set(t0, t0, wants); err != nil {
		t.Fatal(err)
	}
	rand.Shuffle(len(wants), func(i, j int) { wants[i], wants[j] = wants[j], wants[i] })
	if err := b.Set(t0.Add(time.Hour), t0, wants); err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if !bytes.Equal(x, y) {
		t.Error("the order of wants matters")
	}
	// They must not change from version to version: other tiers work them out as well.
	if got, _ := a.Of(key("web", spec.BalanceInstance, 7)); got != ip("10.30.48.204") {
		t.Error(got)
	}
}

func TestStoredAddressesAreChecked(t *testing.T) {
	for _, s := range []string{
		`[{"service":{},"policy":"closest","address":"10.30.1.1"},{"service":{},"policy":"closest","address":"10.30.1.2"}]`,
		`[{"service":{},"policy":"closest","address":"10.30.1.1"},{"service":{},"policy":"instance","address":"10.30.1.1"}]`,
		`[{"service":{},"policy":"closest","address":"10.31.1.1"}]`, `[{"service":{},"policy":"closest","address":""}]`, `[{"service":{},"policy":"closest","address":"10.30.0.1"}]`, `{}`,
	} {
		var a Addresses
		if json.Unmarshal([]byte(s), &a) == nil {
			t.Error("accepted", s)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	var a Addresses
	var wants []Want
	for i := range 1000 {
		wants = append(wants, Want{Key: key("web", spec.BalanceInstance, i)})
	}
	for b.Loop() {
		if err := a.Set(t0, t0, wants); err != nil {
			b.Fatal(err)
		}
	}
}

// What rests gives way to what is in use, first what has rested longest.
func TestFit(t *testing.T) {
	var a Addresses
	for n, name := range []string{"first", "second", "third"} {
		at := t0.Add(time.Duration(n) * time.Minute)
		if err := a.Set(at, at.Add(time.Hour), Wants(skerry.ServiceKey{Service: name}, nil, 10)); err != nil {
			t.Fatal(err)
		}
	}
	size := func() int { return stored(a) }
	resting := func() map[string]int {
		out := map[string]int{}
		for _, r := range a.resting {
			out[r.Was.Service.Service]++
		}
		return out
	}
	most := size() - 100
	if !a.Fit(most) || size() > most || resting()["first"] >= 13 || resting()["second"] != 13 {
		t.Errorf("a bit less: got %d bytes of %d with %v resting", size(), most, resting())
	}
	if a.Fit(1000) || resting()["second"] != 13 {
		t.Errorf("less than what is in use has: got %v resting, want it refused and nothing changed", resting())
	}
	a.resting = nil
	if most := size(); !a.Fit(most) || a.Fit(most-1) || a.Len() != 13 {
		t.Errorf("as much as what is in use has: got %d in use, want 13 that fit, and do not in less", a.Len())
	}
}

func TestRoom(t *testing.T) {
	for _, name := range []string{"", "s", strings.Repeat("s", 63)} {
		for _, policy := range append(spec.Balances(), spec.BalanceInstance) {
			k := key(name, policy, 0)
			if policy == spec.BalanceInstance {
				k.Ordinal = spec.MaxInstanceAddrs - 1
			}
			room, n := Room(k.Service), stored(heldAddress{Key: k, Addr: ip("10.30.255.254")})+1
			if n > room || n < room-50 {
				t.Errorf("%s: got room for %d bytes, want little more than %d", k, room, n)
			}
		}
	}
}
