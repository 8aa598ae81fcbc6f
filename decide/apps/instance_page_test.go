package apps

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"skerry.dev/skerry"
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

// BenchmarkInstancePage takes a page of a thousand of so many instances, as a client that lists them all does.
func BenchmarkInstancePage(b *testing.B) {
	for _, many := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			list := &ledger{inst: map[skerry.InstanceID]*Instance{}}
			for n := range many {
				id := skerry.InstanceID(fmt.Sprintf("web-%06d", n*7919%many))
				list.inst[id] = &Instance{}
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
