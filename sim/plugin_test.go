package sim

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// judged is a line of workers at a site with one plugin, and what is placed by it.
func judged(t *testing.T, count int, p cluster.Plugin) (*World, *Node) {
	w, site := line(t, count)
	w.Do(site, cluster.SetPlugins{List: []cluster.Plugin{p}})
	return w, site
}

func byPlugin(s *spec.ServiceSpec) { s.Placement.Policy = "plugin/greenest" }

// decision gives the cluster's decision about the only instance of a service.
func (w *World) decision(t *testing.T, name string) *wire.Decision {
	t.Helper()
	list := w.RootCore().Apps.Instances(web(name))
	if len(list) != 1 {
		t.Fatalf("%d instances", len(list))
	}
	_, d, _ := w.ClusterCore("a").Instance(list[0].ID)
	if d == nil {
		t.Fatal("no decision")
	}
	return d
}

// answers gives every question the same answer.
func answers(a wire.PluginAnswer) func(cluster.Score) []wire.PluginAnswer {
	return func(q cluster.Score) []wire.PluginAnswer {
		var out []wire.PluginAnswer
		for _, n := range q.Plugins {
			b := a
			b.Plugin = n
			out = append(out, b)
		}
		return out
	}
}

func TestPluginChooses(t *testing.T) {
	w, site := judged(t, 6, cluster.Plugin{Name: "greenest"})
	var asked cluster.Score
	w.Machine.Plugins = func(q cluster.Score) []wire.PluginAnswer {
		asked = q
		return answers(wire.PluginAnswer{Scores: map[string]float64{"w2": 0.9, "w3": 1, "w4": 1}, Out: map[string]string{"w4": "too hot"}})(q)
	}
	w.must(t, w.Root, app("other", 1)) // not shown to the plugin
	w.Run(10 * time.Second)
	if asked.ID != "" {
		t.Errorf("asked about %s", asked.ID)
	}
	w.must(t, w.Root, app("shop", 1, byPlugin))
	w.Run(10 * time.Second)
	if got := w.where(site, "shop"); len(got) != 1 || got[0] != "w3" {
		t.Errorf("placed on %v", got)
	}
	d := w.decision(t, "shop")
	if d.Policy != "ldp+plugin/greenest" || len(d.Plugins) != 1 || d.Plugins[0].Scores["w3"] != 1 || d.Seed != asked.Query.Seed {
		t.Errorf("%+v", d)
	}
	last := d.Top[len(d.Top)-1]
	if last.Name != "w4" || last.Out == nil || last.Out.Text != "plugin greenest rules it out: too hot" {
		t.Errorf("%+v", d.Top)
	}
	q := asked.Query
	if q.Version != 1 || len(q.Candidates) != 6 || q.Service != "web" || q.Need.CPU == 0 || q.Candidates[0].Capacity.CPU == 0 || q.Candidates[0].Location == nil {
		t.Errorf("%+v", q)
	}
}

// A plugin that says nothing costs its time and no more; one that must be heard is waited for.
func TestPluginDeadline(t *testing.T) {
	for _, reject := range []bool{false, true} {
		w, site := judged(t, 3, cluster.Plugin{Name: "greenest", All: true, Reject: reject})
		w.must(t, w.Root, app("shop", 1))
		w.Run(1900 * time.Millisecond)
		if got := w.where(site, "shop"); len(got) != 1 || got[0] != "" {
			t.Errorf("before the deadline: %v", got)
		}
		w.Run(8 * time.Second)
		if !reject {
			w.check(t, "shop", 1, 1)
			d := w.decision(t, "shop")
			if len(d.Plugins) != 1 || d.Plugins[0].Skipped != "it did not answer in time" || len(d.Why) == 0 ||
				d.Why[0].Text != "plugin greenest was skipped: it did not answer in time" {
				t.Errorf("%+v", d)
			}
			continue
		}
		w.check(t, "shop", 0, 0)
		i := w.RootCore().Apps.Instances(web("shop"))[0]
		if len(i.Why) == 0 || !strings.HasSuffix(i.Why[0].Text, "a scheduling plugin of the site gave no answer") {
			t.Errorf("%v", i.Why)
		}
		w.Machine.Plugins = answers(wire.PluginAnswer{})
		w.Run(3 * time.Minute)
		w.check(t, "shop", 1, 1)
	}
}

// Nonsense is skipped as silence is, and the root reads neither it nor the name of a worker.
func TestPluginSkips(t *testing.T) {
	w, _ := judged(t, 3, cluster.Plugin{Name: "greenest", All: true, Reject: true})
	w.Machine.Plugins = answers(wire.PluginAnswer{Skipped: "nonsense: the score of w2 is 7"})
	w.must(t, w.Root, app("shop", 1))
	w.Run(10 * time.Second)
	w.check(t, "shop", 0, 0)
	for _, r := range w.RootCore().Apps.Instances(web("shop"))[0].Why {
		if strings.Contains(r.Text+r.Hint, "w2") {
			t.Errorf("the root reads %q", r.Text)
		}
	}
	w.Machine.Plugins = answers(wire.PluginAnswer{Out: map[string]string{"w0": "its load is 7", "w1": "its load is 7", "w2": "its load is 9"}})
	w.Run(3 * time.Minute)
	w.check(t, "shop", 0, 0)
	why := w.RootCore().Apps.Instances(web("shop"))[0].Why
	sum := 0
	for _, r := range why {
		sum += r.Count
		if strings.Contains(r.Text+r.Hint, "load") {
			t.Errorf("the root reads %q", r.Text)
		}
	}
	if len(why) != 2 || sum != 3 {
		t.Errorf("%+v", why)
	}
}

// A plugin that goes away while it is thought about is not waited for.
func TestPluginRemoved(t *testing.T) {
	w, site := judged(t, 3, cluster.Plugin{Name: "greenest", All: true, Reject: true})
	w.must(t, w.Root, app("shop", 1))
	w.must(t, w.Root, app("green", 1, byPlugin))
	w.Run(time.Second)
	w.Do(site, cluster.SetPlugins{})
	w.Run(5 * time.Second)
	w.check(t, "shop", 1, 1)
	i := w.RootCore().Apps.Instances(web("green"))[0]
	if len(i.Why) == 0 || !strings.Contains(i.Why[0].Text, `no scheduling plugin "greenest"`) {
		t.Errorf("%s %v", i.State, i.Why)
	}
	// It comes back, and so does the service.
	w.Machine.Plugins = answers(wire.PluginAnswer{})
	w.Do(site, cluster.SetPlugins{List: []cluster.Plugin{{Name: "greenest"}}})
	w.Run(3 * time.Minute)
	w.check(t, "green", 1, 2)
}

// The best worker is gone when the answer comes: the next one is taken. One that came meanwhile was not judged, and is not.
func TestPluginAnswersLate(t *testing.T) {
	w, site := judged(t, 3, cluster.Plugin{Name: "greenest", All: true})
	w.Machine.Plugins = func(q cluster.Score) []wire.PluginAnswer {
		if w.Clusters["a"] == site && len(w.Workers) == 3 {
			w.PowerOff(w.Workers["a/w2"])
			w.Do(site, cluster.RemoveWorker{Name: "w2"})
			w.AddWorker("a", "w9", facts(64_000))
		}
		return answers(wire.PluginAnswer{Scores: map[string]float64{"w0": 0.1, "w1": 0.2, "w2": 1}})(q)
	}
	w.must(t, w.Root, app("shop", 1))
	w.Run(20 * time.Second)
	if got := w.where(site, "shop"); len(got) != 1 || got[0] != "w1" {
		t.Errorf("placed on %v", got)
	}
}

// Of equal workers plugins are asked about some; who gets the instance is one of them.
func TestPluginJudgesWhoIsChosen(t *testing.T) {
	w, site := judged(t, 60, cluster.Plugin{Name: "greenest", All: true, Reject: true})
	asked := map[skerry.InstanceID]map[string]bool{}
	w.Machine.Plugins = func(q cluster.Score) []wire.PluginAnswer {
		asked[q.ID] = map[string]bool{}
		for _, k := range q.Query.Candidates {
			asked[q.ID][k.Name] = true
		}
		return answers(wire.PluginAnswer{})(q)
	}
	w.must(t, w.Root, app("shop", 100, func(s *spec.ServiceSpec) { s.Resources.CPU = 100 }))
	w.Run(time.Minute)
	w.check(t, "shop", 100, 100)
	for _, i := range site.Core.(*cluster.Core).Instances() {
		if !asked[i.ID][string(i.Worker)] {
			t.Errorf("%s is on %s, which the plugin did not judge", i.ID, i.Worker)
		}
	}
}

// A decision is made again from its record: the same view, and what the plugins answered.
func TestPluginDecisionReplays(t *testing.T) {
	run := func(answer func(cluster.Score) []wire.PluginAnswer) *wire.Decision {
		w, _ := judged(t, 6, cluster.Plugin{Name: "greenest", All: true})
		w.Machine.Plugins = answer
		w.must(t, w.Root, app("shop", 1))
		w.Run(10 * time.Second)
		return w.decision(t, "shop")
	}
	first := run(func(q cluster.Score) []wire.PluginAnswer {
		s := map[string]float64{}
		for i, k := range q.Query.Candidates {
			s[k.Name] = float64(i%4) / 4
		}
		return answers(wire.PluginAnswer{Scores: s, Out: map[string]string{"w3": "no"}})(q)
	})
	again := run(func(cluster.Score) []wire.PluginAnswer { return first.Plugins })
	if first.Chosen == "" || !reflect.DeepEqual(first, again) {
		t.Errorf("%+v\n%+v", first, again)
	}
}

// A plugin has its say where an instance moves to because its SLA is violated, too, and it stays where no place is allowed.
func TestPluginJudgesMoves(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		w, site, id, at := lone(t, rigid(0.5))
		w.AddWorker("a", "w3", facts(2000))
		w.Do(site, cluster.SetPlugins{List: []cluster.Plugin{{Name: "greenest", All: true, Reject: true}}})
		asked := 0
		w.Machine.Plugins = func(q cluster.Score) []wire.PluginAnswer {
			asked++
			out := map[string]string{}
			for _, k := range q.Query.Candidates {
				if k.Name == short(at) {
					t.Errorf("asked about %s, where it suffers", k.Name)
				}
				if k.Name != "w3" || !allowed {
					out[k.Name] = "no"
				}
			}
			return answers(wire.PluginAnswer{Out: out})(q)
		}
		w.starve(at, id, 0.9)
		w.Run(time.Minute)
		want := "w3"
		if !allowed {
			want = short(at)
		}
		if now := on(site, id); now != want || asked == 0 {
			t.Errorf("allowed %v: on %s, want %s; asked %d times", allowed, now, want, asked)
		}
		w.check(t, "shop", 1, 1)
	}
}

// The root's own plugins judge clusters, as those of a site judge workers: they rule out, score, and do not keep a placement waiting.
func TestPluginsOfTheRoot(t *testing.T) {
	world := func(p root.Plugin) *World {
		w := newWorld(t, 23)
		for _, name := range []string{"a", "b", "c"} {
			w.AddCluster(name)
			w.AddWorker(name, "w0", facts(2000))
		}
		w.Run(time.Second)
		w.Do(w.Root, root.SetPlugins{List: []root.Plugin{p}})
		return w
	}
	var asked []root.Score
	answer := func(q root.Score) []wire.PluginAnswer {
		asked = append(asked, q)
		return []wire.PluginAnswer{{Plugin: "tariff", Scores: map[string]float64{"a": 0.1, "c": 0.9}, Out: map[string]string{"b": "dear power"}}}
	}
	w := world(root.Plugin{Name: "tariff", All: true})
	w.Machine.Plugins = answer
	w.must(t, w.Root, app("shop", 2))
	w.Run(10 * time.Second)
	if h := w.holders("shop"); h["c"] != 2 {
		t.Errorf("shop is at %v", h)
	}
	if len(asked) != 2 || asked[0].Query.Tier != "root" || len(asked[0].Query.Candidates) != 3 ||
		asked[0].Query.Candidates[0].Workers != 1 || asked[0].Query.Candidates[0].Available.CPU < 2000 {
		t.Errorf("it was asked %+v", asked)
	}
	d := w.RootCore().Apps.Instances(web("shop"))[0].Decision
	if d == nil || len(d.Plugins) != 1 || d.Policy != "aggregate+plugin/tariff" || d.Chosen != "c" {
		t.Errorf("the decision is %+v", d)
	}
	w.check(t, "shop", 2, 2)

	// One that says nothing is skipped after a while, or refuses the instance until it does.
	for _, reject := range []bool{false, true} {
		w := world(root.Plugin{Name: "tariff", All: true, Reject: reject})
		w.must(t, w.Root, app("shop", 1))
		w.Run(time.Second)
		if h := w.holders("shop"); h[""] != 1 {
			t.Errorf("reject %v: it was placed before the deadline: %v", reject, h)
		}
		w.Run(10 * time.Second)
		i := w.RootCore().Apps.Instances(web("shop"))[0]
		if (i.Holder == "") != reject || reject && (len(i.Why) == 0 || i.Why[0].What != "skipped") {
			t.Errorf("reject %v: it is at %q because of %+v", reject, i.Holder, i.Why)
		}
		w.Machine.Plugins = answer
		w.Run(2 * time.Minute)
		if i := w.RootCore().Apps.Instances(web("shop"))[0]; i.Holder == "" || reject && i.Holder != "c" {
			t.Errorf("reject %v: it is at %q", reject, i.Holder)
		}
	}
	// A plugin of a site that the root has not is the site's alone to ask.
	w = world(root.Plugin{Name: "tariff"})
	w.must(t, w.Root, app("shop", 1, byPlugin))
	w.Run(5 * time.Second)
	if i := w.RootCore().Apps.Instances(web("shop"))[0]; len(i.Why) == 0 || !strings.Contains(i.Why[0].Text, `"greenest"`) {
		t.Errorf("it is at %q because of %+v", i.Holder, i.Why)
	}
}

// A root whose plugins say nothing waits for them without a pause of zero length, also once they are gone.
func TestSilentPluginsOfTheRoot(t *testing.T) {
	w := newWorld(t, 23)
	w.AddCluster("a")
	w.AddWorker("a", "w0", facts(2000))
	w.Run(time.Second)
	w.Do(w.Root, root.SetPlugins{List: []root.Plugin{{Name: "tariff", All: true, Reject: true}}})
	w.must(t, w.Root, app("shop", 1))
	idle := func() {
		t.Helper()
		if at := w.RootCore().NextWake(); !at.IsZero() && !at.After(w.Now) {
			t.Fatalf("at %s it was to wake %s ago", w.Now, w.Now.Sub(at))
		}
	}
	waited := 0
	for range 200 {
		w.Run(50 * time.Millisecond)
		idle()
		if i := w.RootCore().Apps.Instances(web("shop"))[0]; i.Misses > 0 && i.RetryAt.Before(w.Now) {
			waited++
		}
	}
	for range 60 { // until it asks
		w.Run(50 * time.Millisecond)
	}
	asked := w.RootCore().Apps.Instances(web("shop"))[0]
	w.Do(w.Root, app("big", 1, func(s *spec.ServiceSpec) { s.Resources.CPU = 1e6 }))
	w.Run(50 * time.Millisecond)
	w.Do(w.Root, root.SetPlugins{})
	for range 100 {
		w.Run(50 * time.Millisecond)
		idle()
	}
	if asked.Holder != "a" {
		t.Errorf("it is at %q though no plugin is left to ask", asked.Holder)
	}
}

// What a plugin of the root rules out gets no copy of an instance whose site is lost, either.
func TestPluginsOfTheRootJudgeCopies(t *testing.T) {
	for _, silent := range []bool{false, true} {
		w, first, other := sites(t)
		w.AddCluster("c")
		w.AddWorker("c", "w1", facts(2000))
		w.Run(time.Second)
		w.Do(w.Root, root.SetPlugins{List: []root.Plugin{{Name: "law", All: true, Reject: true}}})
		if !silent {
			w.Machine.Plugins = func(root.Score) []wire.PluginAnswer {
				return []wire.PluginAnswer{{Plugin: "law", Out: map[string]string{other: "another country"}}}
			}
		}
		w.Kill(w.Clusters[first])
		w.Run(8 * time.Minute)
		i := w.RootCore().Apps.Instances(web("shop"))[0]
		if i.Next != nil || silent && i.Holder != first || !silent && i.Holder != "c" {
			t.Errorf("silent %v: it is at %q, a copy is at %+v", silent, i.Holder, i.Next)
		}
	}
}
