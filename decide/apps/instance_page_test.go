package apps

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// Pages are what sorting and cutting the whole list gives.
func TestInstancePages(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		all := map[skerry.InstanceID]skerry.ServiceKey{}
		for range random.IntN(60) {
			id := skerry.InstanceID(fmt.Sprintf("i-%03d", random.IntN(200)))
			all[id] = skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: fmt.Sprint("app-", random.IntN(2))}, Service: "web"}
		}
		var want []skerry.InstanceID
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if all[id].App.Name == "app-1" {
				want = append(want, id)
			}
		}
		page := InstancePage{Limit: 1 + random.IntN(9), App: "app-1"}
		var got []skerry.InstanceID
		for more := true; more; {
			var picked []skerry.InstanceID
			if picked, more = page.Pick(maps.All(all)); len(picked) > page.Limit || more && len(picked) != page.Limit {
				t.Fatalf("round %d: a page of %d has %d", round, page.Limit, len(picked))
			}
			if got = append(got, picked...); more {
				page.After = picked[len(picked)-1]
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d: pages of %d: got %v, want %v", round, page.Limit, got, want)
		}
	}
}

// Pages of a ledger are what sorting and cutting all its instances gives, whatever is asked for.
func TestInstancePagesOfLedger(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	list := newLedger([16]byte{}, "r")
	for n := range 1500 {
		list.addInstance(&Instance{Instance: wire.Instance{ID: skerry.InstanceID(fmt.Sprintf("i-%06d", n*7919%10_000)),
			Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: fmt.Sprint("n", n%2), Name: fmt.Sprint("app-", n%5)},
				Service: fmt.Sprint("s", n%3)}}})
	}
	for _, id := range slices.Sorted(maps.Keys(list.inst)) {
		if random.IntN(4) == 0 {
			list.dropInstance(list.inst[id], &wire.Effects{})
		}
	}
	for _, page := range []InstancePage{{}, {Namespace: "n1"}, {App: "app-3"}, {Service: "s2"}, {Namespace: "n0", App: "app-1"},
		{Namespace: "n0", App: "app-1", Service: "s1"}, {Namespace: "none"}, {Namespace: "n0", App: "none"}} {
		var want, got []skerry.InstanceID
		for id, i := range list.inst {
			if page.wants(i.Service) {
				want = append(want, id)
			}
		}
		slices.Sort(want)
		page.Limit = 1 + random.IntN(40)
		for more := true; more; {
			var part []*Instance
			if part, more = list.Page(&page); len(part) > page.Limit || more && len(part) != page.Limit {
				t.Fatalf("%+v: got a page of %d, more: %v; want %[2]d at most", page, len(part), more)
			}
			for _, i := range part {
				got, page.After = append(got, i.ID), i.ID
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: got %d instances, in order %v; want %d", page, len(got), slices.IsSorted(got), len(want))
		}
	}
}

// BenchmarkInstancePage takes a page of a thousand of so many instances, as a client that lists them all does.
func BenchmarkInstancePage(b *testing.B) {
	for _, many := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			list := newLedger([16]byte{}, "r")
			for n := range many {
				list.addInstance(&Instance{Instance: wire.Instance{ID: skerry.InstanceID(fmt.Sprintf("web-%06d", n*7919%many))}})
			}
			page := &InstancePage{Limit: 1000, After: "web-000300"}
			b.ReportAllocs()
			for b.Loop() {
				if got, _ := list.Page(page); len(got) == 0 {
					b.Fatalf("got nothing, want a page of %d", page.Limit)
				}
			}
		})
	}
}
