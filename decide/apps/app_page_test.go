package apps

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// someApps gives a catalog of applications in namespaces of which one begins like another, and what is kept of them as a map.
func someApps(random *rand.Rand, many int) (*catalog, map[string]*App) {
	list, all := newCatalog(), map[string]*App{}
	for range many {
		a := &App{Org: fmt.Sprint("org-", random.IntN(3)), Manifest: spec.Application{Metadata: spec.Metadata{
			Namespace: []string{"shop", "shop-2", "shop2", "a"}[random.IntN(4)], Name: fmt.Sprintf("app-%d", random.IntN(2*many))}}}
		list.enter(a)
		all[a.Key().String()] = a
		if random.IntN(4) == 0 {
			list.forget(a.Key(), &wire.Effects{})
			delete(all, a.Key().String())
		}
	}
	return list, all
}

// Pages of applications are what sorting and cutting all of them gives, whatever is asked for, whether they are looked up or made whole.
func TestAppPages(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for round := range 60 {
		list, all := someApps(random, 1+random.IntN(200))
		page := AppPage{Namespace: []string{"", "shop", "shop-2", "none"}[random.IntN(4)], Limit: 1 + random.IntN(20)}
		if round%2 == 0 {
			page.May = func(org string) bool { return org == "org-1" }
		}
		var want []string
		var whole []view.AppView
		for key, a := range all {
			whole = append(whole, view.AppView{Key: a.Key(), Org: a.Org})
			if page.Wants(a.Key().Namespace, a.Org) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		var got []string
		for more := true; more; {
			var part []*App
			part, more = list.AppPage(&page)
			cut, also := page.Cut(slices.Clone(whole))
			same := slices.EqualFunc(part, cut, func(a *App, v view.AppView) bool { return a.Key() == v.Key })
			if !same || more != also || len(part) > page.Limit || more && len(part) != page.Limit {
				t.Fatalf("round %d, %+v: got %d applications, more: %v; cut out of all %d, %v", round, page, len(part), more, len(cut), also)
			}
			for _, a := range part {
				page.After = a.Key().String()
				got = append(got, page.After)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("round %d, %+v: got %v, want %v", round, page, got, want)
		}
		keys := []skerry.AppKey{}
		for _, a := range list.Apps() {
			keys = append(keys, a.Key())
		}
		if len(keys) != len(all) || !slices.IsSortedFunc(keys, func(a, b skerry.AppKey) int { return strings.Compare(a.String(), b.String()) }) {
			t.Errorf("round %d: all applications: got %d, want %d in order", round, len(keys), len(all))
		}
	}
}
