package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// labelled is a root with sites that have room, and a store that survives its restarts.
type labelled struct {
	t   *testing.T
	c   *Core
	now time.Time
	kv  map[string][]byte
	src map[string]*reconcile.Source // what sites observe
}

func newLabelled(t *testing.T, sites ...string) *labelled {
	r := &labelled{t: t, c: New(Options{Incarnation: "a"}), now: time.Unix(1e9, 0), kv: map[string][]byte{},
		src: map[string]*reconcile.Source{}}
	r.keep(r.c.Start(r.now))
	r.step(apps.PutOrg{Org: apps.Org{Name: "acme"}})
	r.step(apps.PutNamespace{Namespace: apps.Namespace{Name: "acme", Org: "acme"}})
	r.join(sites...)
	return r
}

func (r *labelled) join(sites ...string) {
	r.t.Helper()
	for _, site := range sites {
		r.step(ChildUp{Hello: &wire.Hello{Name: site}})
		report := wire.ClusterReport{Classes: []wire.ClassAggregate{{Class: wire.Class{Arch: "amd64", Runtimes: []string{"oci"},
			Features: spec.AgentFeatures()}, Workers: 10}}}
		for at := range report.Classes[0].Available {
			report.Classes[0].Available[at] = wire.Moments{Sum: 1e13, Mean: 1e12}
		}
		r.step(ChildFrame{Name: site, Msg: &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(&report)}})
	}
}

// observe has a site report an instance.
func (r *labelled) observe(site string, i *apps.Instance, state skerry.State) {
	r.t.Helper()
	if r.src[site] == nil {
		r.src[site] = reconcile.NewSource(members.Observed, "", skerry.Incarnation(site), reconcile.Options{})
	}
	peer := &hostileRoot{t: r.t, c: r.c, now: r.now, src: r.src, kv: r.kv}
	peer.say(site, map[string][]byte{wire.AssignmentKey(i.ID): wire.New().Marshal(&wire.Observation{ID: i.ID, Gen: i.Gen, Fence: i.Fence,
		State: state, Phase: skerry.PhaseRunning, Ready: state == skerry.Running})})
}

func (r *labelled) keep(fx wire.Effects) {
	for _, w := range fx.Writes {
		if w.Value == nil {
			delete(r.kv, w.Key)
		} else {
			r.kv[w.Key] = w.Value
		}
	}
}

func (r *labelled) step(msg any) {
	r.t.Helper()
	fx := r.c.Step(r.now, msg)
	if fx.Err != nil {
		r.t.Fatal(fx.Err)
	}
	r.keep(fx)
}

// restart has another process begin with what is stored.
func (r *labelled) restart() {
	r.t.Helper()
	r.c = New(Options{Incarnation: "a"})
	for key, value := range r.kv {
		if err := r.c.Load(key, value); err != nil {
			r.t.Fatalf("record %s: %v", key, err)
		}
	}
	r.keep(r.c.Start(r.now))
}

func (r *labelled) app(mode spec.Mode, group map[string]string) apps.Apply {
	service := spec.ServiceSpec{Name: "web", Mode: mode}
	service.Image = "web:1"
	service.Placement.ClusterLabels = group
	if mode == spec.ModeService {
		two := 2
		service.Replicas = &two
	}
	return apps.Apply{App: spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: "shop", Namespace: "acme"}, Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{service}}}}
}

// sites are those that the service has live instances at, or is meant to, with how often.
func (r *labelled) sites() string {
	var out []string
	for _, i := range r.c.Apps.Instances(skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}) {
		if i.Live() {
			out = append(out, i.Holder)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestLabels groups sites by labels: services run at sites of their group alone, over a restart of the root, and nowhere where a group is
// empty.
func TestLabels(t *testing.T) {
	west := map[string]string{"region": "west"}
	r := newLabelled(t, "harbour", "hill", "marsh")
	refused := func(what string, msg any, want string) {
		t.Helper()
		if fx := r.c.Step(r.now, msg); fx.Err == nil || !strings.Contains(fx.Err.Error(), want) {
			t.Errorf("%s: got %v, want a refusal with %q", what, fx.Err, want)
		}
	}
	refused("a group without a site", r.app(spec.ModeService, west), "no cluster that may run it has the labels region=west")
	refused("a site that is not there", LabelCluster{Name: "moon", Set: west}, "there is no cluster")
	refused("a label that no selector can name", LabelCluster{Name: "hill", Set: map[string]string{"a": "b,c"}}, "is no label")
	refused("a label that it does not have", LabelCluster{Name: "hill", Remove: []string{"region"}}, "has no label")
	r.step(LabelCluster{Name: "hill", Set: map[string]string{"region": "west", "ring": "1"}})
	r.step(LabelCluster{Name: "marsh", Set: map[string]string{"region": "east"}})
	if got := r.c.Views().Sites()[1]; got.Name != "hill" || spec.LabelText(got.Labels) != "region=west,ring=1" {
		t.Errorf("labels shown: got %s %v, want region=west,ring=1 of hill", got.Name, got.Labels)
	}
	r.restart()
	r.join("harbour", "hill", "marsh")
	r.step(r.app(spec.ModeService, west))
	if got, want := r.sites(), "hill hill"; got != want {
		t.Errorf("sites of a service of the group: got %q, want %q", got, want)
	}
	refused("a move out of the group", MoveToCluster{ID: r.c.Apps.Instances(skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme",
		Name: "shop"}, Service: "web"})[0].ID, To: "marsh"}, "its labels are not region=west")
	r.step(LabelCluster{Name: "hill", Remove: []string{"region"}})
	if got, want := r.sites(), "hill hill"; got != want {
		t.Errorf("when the site leaves the group: got %q, want what runs to stay: %q", got, want)
	}
	if fx := r.c.Step(r.now, r.app(spec.ModeService, west)); fx.Err != nil {
		t.Errorf("an application whose group has become empty, applied again: got %v, want it accepted", fx.Err)
	}
	r.step(ChildDown{Name: "hill"})
	r.step(RemoveCluster{Name: "hill"})
	if _, kept := r.kv[prefixLabels+"hill"]; kept {
		t.Error("the labels of a site that was removed are kept, want them deleted")
	}
	if got, want := r.sites(), " "; got != want {
		t.Errorf("with nothing in the group: got %q, want both to wait", got)
	}
	why := ""
	for _, i := range r.c.Apps.Instances(skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"}) {
		for _, reason := range i.Decision.Why {
			why += reason.Text + "; "
		}
	}
	if !strings.Contains(why, "marsh: its labels are not region=west") {
		t.Errorf("reasons: got %q, want the labels of marsh", why)
	}
	r.step(LabelCluster{Name: "harbour", Set: west})
	if got, want := r.sites(), "harbour harbour"; got != want {
		t.Errorf("when a site enters the group: got %q, want %q", got, want)
	}
}

// TestLabelsPerWorker has a perWorker service follow its group as sites enter and leave it.
func TestLabelsPerWorker(t *testing.T) {
	west := map[string]string{"region": "west"}
	r := newLabelled(t, "harbour", "hill", "marsh")
	r.step(LabelCluster{Name: "hill", Set: west})
	r.step(r.app(spec.ModePerWorker, west))
	for _, row := range []struct {
		change LabelCluster
		want   string
	}{
		{LabelCluster{Name: "harbour", Set: west}, "harbour hill"},
		{LabelCluster{Name: "hill", Set: map[string]string{"region": "east"}}, "harbour"},
		{LabelCluster{Name: "hill", Set: west}, "harbour hill"},
		{LabelCluster{Name: "harbour", Remove: []string{"region"}}, "hill"},
	} {
		r.step(row.change)
		if got := r.sites(); got != row.want {
			t.Errorf("sites after %+v: got %q, want %q", row.change, got, row.want)
		}
		if got, want := r.c.Apps.Usage("acme", skerry.AppKey{}).Instances, len(strings.Fields(row.want)); got != want {
			t.Errorf("instances that count for the quota after %+v: got %d, want those at %d sites", row.change, got, want)
		}
	}
}

// assigned is what a site is told of the first instance of the service.
func (r *labelled) assigned(site string) *spec.Assignment {
	r.t.Helper()
	for _, i := range r.c.Apps.HeldBy(site) {
		value, ok := r.c.Children.Get(site).Desired.Get(wire.AssignmentKey(i.ID))
		if as := new(spec.Assignment); ok && wire.New().Unmarshal(value, as) == nil {
			return as
		}
	}
	r.t.Fatalf("cluster %s has no instance", site)
	return nil
}

// TestFailoverOfGroups: a site stops what it has of a group on its own only while another site could start it.
func TestFailoverOfGroups(t *testing.T) {
	west := map[string]string{"region": "west"}
	r := newLabelled(t, "harbour", "hill")
	r.c.opt.LostAfter = DefaultLostAfter
	r.step(LabelCluster{Name: "harbour", Set: west})
	app := r.app(spec.ModeService, west)
	app.App.Spec.Services[0].OnDisconnect = spec.StopAfter(30 * time.Second)
	r.step(app)
	for _, row := range []struct {
		what string
		msgs []any
		want bool
	}{
		{"a group of one", nil, false},
		{"a second site enters", []any{LabelCluster{Name: "hill", Set: west}}, true},
		{"it leaves", []any{LabelCluster{Name: "hill", Remove: []string{"region"}}}, false},
		{"it enters again", []any{LabelCluster{Name: "hill", Set: west}}, true},
		{"it is removed", []any{ChildDown{Name: "hill"}, RemoveCluster{Name: "hill"}}, false},
	} {
		for _, msg := range row.msgs {
			r.step(msg)
		}
		if got := r.assigned("harbour").Failover; got != row.want {
			t.Errorf("%s: got fail-over %v, want %v", row.what, got, row.want)
		}
	}
}

// TestFailoverEndsUnconfirmed: a site that confirms that it lets run what can go nowhere else has not confirmed that it ends that,
// though it was asked to before. When its group has another site again while it is out of touch, nothing is started a second time.
func TestFailoverEndsUnconfirmed(t *testing.T) {
	west := map[string]string{"region": "west"}
	root := newLabelled(t, "harbour")
	root.c.opt.LostAfter = DefaultLostAfter
	root.step(LabelCluster{Name: "harbour", Set: west})
	root.join("hill")
	app := root.app(spec.ModeService, west)
	app.App.Spec.Services[0].OnDisconnect = spec.StopAfter(30 * time.Second)
	root.step(app)
	root.step(LabelCluster{Name: "hill", Set: west})
	root.step(LabelCluster{Name: "hill", Remove: []string{"region"}})
	k := root.c.Children.Get("harbour")
	root.step(ChildFrame{Name: "harbour", Msg: &wire.SetAck{Set: members.Desired, Incarnation: k.Desired.Incarnation(), Gen: k.Desired.Gen(),
		Digest: k.Desired.Digest()}})
	for _, i := range root.c.Apps.HeldBy("harbour") {
		root.observe("harbour", i, skerry.Running)
		if i.Bound {
			t.Errorf("%s: its site is thought to end it, and was told not to", i.ID)
		}
	}
	root.step(ChildDown{Name: "harbour"})
	root.step(LabelCluster{Name: "hill", Set: west})
	root.now = root.now.Add(time.Hour)
	root.keep(root.c.Tick(root.now))
	if got := root.sites(); got != "harbour harbour" {
		t.Errorf("after an hour: got instances at %q, want them to wait for harbour", got)
	}
}

// TestFailoverOfLists does the same with a list of sites, which may join later.
func TestFailoverOfLists(t *testing.T) {
	for _, row := range []struct {
		clusters []string
		want     bool
	}{{nil, true}, {[]string{"harbour"}, false}, {[]string{"harbour", "moor"}, true}} {
		r := newLabelled(t, "harbour")
		r.c.opt.LostAfter = DefaultLostAfter
		app := r.app(spec.ModeService, nil)
		app.App.Spec.Services[0].OnDisconnect = spec.StopAfter(30 * time.Second)
		app.App.Spec.Services[0].Placement.Clusters = row.clusters
		r.step(app)
		if got := r.assigned("harbour").Failover; got != row.want {
			t.Errorf("with clusters %v: got fail-over %v, want %v", row.clusters, got, row.want)
		}
	}
}

// TestLostSiteOfAGroup: what a lost site has goes to a site that enters the group later.
func TestLostSiteOfAGroup(t *testing.T) {
	west := map[string]string{"region": "west"}
	r := newLabelled(t, "harbour", "hill")
	r.c.opt.LostAfter = DefaultLostAfter
	r.step(LabelCluster{Name: "harbour", Set: west})
	r.step(r.app(spec.ModeService, west))
	for _, i := range r.c.Apps.HeldBy("harbour") {
		r.observe("harbour", i, skerry.Running)
	}
	r.step(ChildDown{Name: "harbour"})
	r.now = r.now.Add(DefaultLostAfter + time.Second)
	r.keep(r.c.Tick(r.now))
	next := func() (at []string) {
		for _, i := range r.c.Apps.HeldBy("harbour") {
			if i.Next != nil {
				at = append(at, i.Next.Holder)
			}
		}
		return at
	}
	if at := next(); len(at) > 0 {
		t.Fatalf("with nobody else in the group: got copies at %v, want none", at)
	}
	r.step(LabelCluster{Name: "hill", Set: west})
	r.now = r.now.Add(strandedRetry)
	r.keep(r.c.Tick(r.now))
	if at := strings.Join(next(), " "); at != "hill hill" {
		t.Errorf("when a site enters the group: got copies at %q, want %q", at, "hill hill")
	}
}

// TestDataOutsideOfItsGroup: an instance with data does not go back to the site that has it if its group no longer has that site.
func TestDataOutsideOfItsGroup(t *testing.T) {
	west := map[string]string{"region": "west"}
	r := newLabelled(t, "harbour", "hill")
	r.step(LabelCluster{Name: "harbour", Set: west})
	r.step(LabelCluster{Name: "hill", Set: west})
	app := r.app(spec.ModeService, west)
	service := &app.App.Spec.Services[0]
	one := 1
	service.Replicas = &one
	service.Volumes = []spec.Volume{{Name: "data", Local: &spec.LocalVolume{}}}
	service.Mounts = []spec.Mount{{Volume: "data", Path: "/data"}}
	r.step(app)
	i := r.c.Apps.Instances(skerry.ServiceKey{App: skerry.AppKey{Namespace: "acme", Name: "shop"}, Service: "web"})[0]
	site := i.Holder
	r.observe(site, i, skerry.Running)
	r.step(LabelCluster{Name: site, Remove: []string{"region"}})
	if got := r.sites(); got != site {
		t.Fatalf("what runs when its site leaves the group: got %q, want it to stay at %q", got, site)
	}
	r.observe(site, i, skerry.Failed)
	r.now = r.now.Add(time.Minute)
	r.keep(r.c.Tick(r.now))
	if got := r.sites(); got != "" {
		t.Errorf("when it has ended: got it at %q, want it to wait", got)
	}
	why := ""
	for _, i := range r.c.Apps.Instances(i.Service) {
		if i.Decision != nil && i.Live() {
			for _, reason := range i.Decision.Why {
				why += reason.Text + "; "
			}
		}
	}
	if !strings.Contains(why, "where its manifest does not allow it any more") {
		t.Errorf("reasons: got %q, want the place of its data", why)
	}
	r.step(LabelCluster{Name: site, Set: west})
	if got := r.sites(); got != site {
		t.Errorf("when its site is in the group again: got %q, want %q", got, site)
	}
}
