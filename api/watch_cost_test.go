package api_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// asked is a backend that counts what is asked of it: about what is in the namespace default, and about all.
type asked struct {
	api.Backend
	one, all atomic.Int64
}

func (a *asked) App(ctx context.Context, key skerry.AppKey, gen skerry.Generation) (view.AppView, error) {
	if key.Namespace == "default" {
		a.one.Add(1)
	}
	return a.Backend.App(ctx, key, gen)
}

func (a *asked) Instance(ctx context.Context, id skerry.InstanceID) (wire.Instance, error) {
	inst, err := a.Backend.Instance(ctx, id)
	if inst.Service.App.Namespace == "default" {
		a.one.Add(1)
	}
	return inst, err
}

func (a *asked) Instances(ctx context.Context) ([]wire.Instance, error) {
	a.all.Add(1)
	return a.Backend.Instances(ctx)
}

// TestWatchesOfOthersCostNothing has watches that a change does not concern, by their filter or by whose they are: nothing is looked up
// for them, of which one user may have dozens.
func TestWatchesOfOthersCostNothing(t *testing.T) {
	s := newRoot(t)
	ctx, admin := t.Context(), s.admin()
	_, err := admin.CreateOrg(ctx, apps.Org{Name: "other"})
	must(t, err)
	_, err = admin.CreateNamespace(ctx, apps.Namespace{Name: "theirs", Org: "other"})
	must(t, err)
	_, err = admin.CreateUser(ctx, "eve", "a long password", []auth.Grant{{Role: auth.RoleViewer, Org: "other", Cluster: auth.Any}})
	must(t, err)
	back := &asked{Backend: s.Root}
	h, err := api.NewHandler(api.Options{Backend: back, People: s.API.People, Limits: api.Limits{UserRate: -1, AddressRate: -1}})
	must(t, err)
	srv, err := api.NewServer(h, api.Listen{Addr: "127.0.0.1:0"})
	must(t, err)
	must(t, srv.Open())
	background(t, srv.Run)
	at := &site{t: t, Dir: s.Dir, Root: s.Root, API: &parents.API{Server: srv, People: s.API.People}, URL: srv.URL()}
	eve, own := at.client("eve", "a long password"), at.admin()
	var watches []<-chan api.WatchMessage
	for _, f := range []api.WatchFilter{{}, {Namespace: "theirs"}} {
		watches = append(watches, follow(t, eve, f))
	}
	watches = append(watches, follow(t, own, api.WatchFilter{Namespace: "theirs"}),
		follow(t, own, api.WatchFilter{Namespace: "default", App: "elsewhere"}))
	for _, w := range watches {
		until(t, w, "synced", isType(api.WatchSynced))
	}
	events := follow(t, own, api.WatchFilter{Kinds: []string{api.WatchEvent}})
	until(t, events, "synced", isType(api.WatchSynced))
	res, err := admin.Apply(ctx, []byte(shop), api.ApplyOptions{})
	must(t, err)
	_, err = admin.Scale(ctx, skerry.ServiceKey{App: res.Key, Service: "web"}, 0)
	must(t, err)
	until(t, events, "both", func(m api.WatchMessage) bool { return m.Event != nil && m.Event.Reason == "Scaled" })
	// What concerns them still comes; by then they have passed over the rest.
	_, err = admin.Apply(ctx, []byte(strings.Replace(shop, "name: shop", "name: shop, namespace: theirs", 1)), api.ApplyOptions{})
	must(t, err)
	for _, w := range watches[1:3] {
		until(t, w, "an event of theirs", func(m api.WatchMessage) bool {
			return m.App != nil || m.Event != nil && m.Event.App.Namespace == "theirs"
		})
	}
	time.Sleep(100 * time.Millisecond)
	if n := back.one.Load(); n > 0 {
		t.Errorf("%d applications and instances were looked up for watches of others", n)
	}
	if n := back.all.Load(); n > 0 {
		t.Errorf("all instances were listed %d times", n)
	}
}
