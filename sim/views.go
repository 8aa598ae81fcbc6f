package sim

import (
	"fmt"
	"slices"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// viewed holds the views of applications that changed in a step against their instances, counted anew.
func (k *checker) viewed(n *Node, c *apps.Controller, fx *wire.Effects) {
	seen := map[skerry.AppKey]bool{}
	for _, ch := range fx.Changed {
		a := c.App(ch.App)
		if a == nil || seen[ch.App] {
			continue
		}
		seen[ch.App] = true
		v := c.View(a, "", false)
		if text := contradiction(c, a, &v); text != "" {
			k.fail(BrokenView, "%s shows of %s: %s", n.Name, ch.App, text)
		}
	}
}

// contradiction tells how a view differs from the instances that it is about, or "".
func contradiction(c *apps.Controller, a *apps.App, v *view.AppView) string {
	well, trouble := true, false
	for i := range v.Services {
		s := &v.Services[i]
		svc := a.Manifest.Spec.Service(s.Name)
		var live, ready, current, loops, done int
		for _, i := range c.Instances(skerry.ServiceKey{App: a.Key(), Service: s.Name}) {
			code, text := i.Trouble()
			trouble = trouble || code != ""
			if code == "" && !i.Stopping && i.State != skerry.Terminated && !i.IsReady() {
				return fmt.Sprintf("%s is %s, is not ready, and nothing is said about it", i.ID, i.State)
			}
			if code == "CrashLoop" && text == "" {
				return fmt.Sprintf("%s crash-loops for no reason", i.ID)
			}
			if i.Stopping || i.State == skerry.Terminated {
				if i.State == skerry.Terminated && !i.Stopping && i.Run == "" && i.Revision == s.Revision {
					done++
				}
				continue
			}
			n, former, serving := 1, 0, 0 // former: those that are not up to date, as far as is known
			if s.Mode.HasCopies() {
				if n = i.Want; n == 0 && (i.State == skerry.Requested || i.Reason == "") {
					n = 1 // its site has not said how many
				}
				if k := i.Copies; k != nil {
					former, serving = k.Former, k.Serving
				} else if !i.IsReady() {
					former = n - i.Have
				}
			}
			live += n
			away := slices.ContainsFunc(i.Conditions, func(k skerry.Condition) bool { return k.Type == skerry.Reachable && !k.Status })
			if away { // nobody knows
			} else if s.Mode.HasCopies() {
				ready += i.Have + serving
			} else if i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready) {
				ready++
			}
			if skerry.HasCondition(i.Conditions, skerry.CrashLoop) {
				loops++
			}
			if i.Revision != s.Revision {
				continue
			}
			current += n - former
			if d := i.Assignment(a.Digests).Digest[s.Image]; d != s.Digest {
				return fmt.Sprintf("%s of revision %s is told to run %q, and the revision is %q", i.ID, s.Revision, d, s.Digest)
			}
			if want := i.Spec.Resources.OrNone(); (want == nil) != (i.Resources == nil) || want != nil && *want != *i.Resources {
				return fmt.Sprintf("%s is shown with %+v and has %+v", i.ID, i.Resources, i.Spec.Resources)
			}
		}
		if s.Instances != live || s.Ready != ready || s.UpToDate != current || s.CrashLoops != loops {
			return fmt.Sprintf("%s has %d instances, %d ready, %d up to date, %d crash loops; there are %d, %d, %d, %d",
				s.Name, s.Instances, s.Ready, s.UpToDate, s.CrashLoops, live, ready, current, loops)
		}
		if svc.Mode == spec.ModeService {
			if s.Want != *svc.Replicas-done {
				return fmt.Sprintf("%s wants %d, its manifest %d, and %d are done", s.Name, s.Want, *svc.Replicas, done)
			}
			well = well && ready >= s.Want && current == live && loops == 0
		}
	}
	switch {
	case (v.Status == "Ready" || v.Status == view.AppRolledBack) && !well:
		return "it is " + v.Status + ", and not all of its services are"
	case v.Status == "Ready" && !trouble && v.Reason != "":
		return "nothing is wrong, and the reason is " + v.Reason
	}
	return ""
}

// shown holds what a fleet at rest shows against what its machines run.
func (k *checker) shown() string {
	type revision struct {
		of   skerry.ServiceKey
		name string
	}
	runs, current := map[skerry.ServiceKey]int{}, map[revision]int{}
	for _, n := range k.w.nodes() {
		for _, g := range k.here[n] {
			if g.running > 0 {
				runs[g.service]++
				current[revision{g.service, g.revision}]++
			}
		}
	}
	for _, n := range k.w.nodes() {
		if !n.Up || k.liars[n] {
			continue
		}
		var views []view.AppView
		switch c := n.Core.(type) {
		case *root.Core:
			for _, a := range c.Apps.Apps() {
				views = append(views, c.Apps.View(a, "root", false))
				for _, i := range c.Apps.InstancesOf(a.Key()) {
					if i.Holder != string(i.Cluster) {
						return fmt.Sprintf("the root shows %s at cluster %q, and it is at %q", i.ID, i.Cluster, i.Holder)
					}
				}
			}
		case *cluster.Core:
			views = c.AppViews(false)
			if text := k.shownAt(n, c); text != "" {
				return text
			}
		}
		for _, v := range views {
			for _, s := range v.Services {
				if at := (skerry.ServiceKey{App: v.Key, Service: s.Name}); s.Ready > runs[at]+k.entrusted(at) {
					return fmt.Sprintf("%s shows %d ready of %s, and %d run", n.Name, s.Ready, at, runs[at])
				}
				at := skerry.ServiceKey{App: v.Key, Service: s.Name}
				has := current[revision{at, s.Revision}] + k.entrusted(at)
				if s.Mode.HasCopies() && s.Ready == s.Instances && s.UpToDate > has {
					return fmt.Sprintf("%s shows %d copies of %s up to date, and %d are", n.Name, s.UpToDate, at, has)
				}
			}
		}
	}
	return ""
}

// shownAt is shown for the single instances of a site.
func (k *checker) shownAt(n *Node, c *cluster.Core) string {
	for _, i := range c.Instances() {
		w := k.w.Workers[n.Name+"/"+string(i.Worker)]
		if w == nil || k.liars[w] || i.State != skerry.Running || !skerry.HasCondition(i.Conditions, skerry.Reachable) {
			continue
		}
		g := k.here[w][i.ID]
		if g == nil || g.running == 0 && skerry.HasCondition(i.Conditions, skerry.Ready) {
			return fmt.Sprintf("%s shows %s ready at %s, where it does not run", n.Name, i.ID, w.Name)
		}
		if g.running == 1 && (g.need.CPU-g.beside.CPU != i.Resources.CPU || g.need.Memory-g.beside.Memory != i.Resources.Memory) {
			return fmt.Sprintf("%s shows %s with cpu %s and memory %s; it runs with cpu %s and memory %s", n.Name, i.ID, i.Resources.CPU,
				i.Resources.Memory, g.need.CPU-g.beside.CPU, g.need.Memory-g.beside.Memory)
		}
	}
	return ""
}
