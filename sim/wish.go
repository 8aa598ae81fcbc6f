package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/apps"
	"skerry.dev/skerry/cluster"
	"skerry.dev/skerry/root"
)

// wish is what the users of an application know of it: what was acknowledged last, and, where an answer never came, what else
// it may be.
type wish struct {
	app   string
	owner *Node
	may   []state // the first was acknowledged; with more than one an answer is missing
	// asked is what was asked of the owner in one of its lives and not answered yet.
	asked *state
	life  uint64
}

// state is an application as a user wants it; without services it is not to be.
type state struct {
	services map[string]wanted
	app      *skerry.Application // as applied, nil when it is deleted
}

type wanted struct {
	replicas int
	image    string
	mode     skerry.Mode
}

func (s state) String() string {
	if s.services == nil {
		return "nothing"
	}
	var b strings.Builder
	for _, n := range slices.Sorted(maps.Keys(s.services)) {
		x := s.services[n]
		fmt.Fprintf(&b, "%s: %s %d of %s; ", n, x.mode, x.replicas, x.image)
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func stateOf(app *skerry.Application) state {
	s := state{services: map[string]wanted{}, app: app}
	for _, x := range app.Spec.Services {
		w := wanted{image: x.Image, mode: x.Mode}
		if w.mode == "" {
			w.mode = skerry.ModeService
		}
		if x.Replicas != nil {
			w.replicas = *x.Replicas
		}
		s.services[x.Name] = w
	}
	return s
}

// controller gives the applications of a root or a site.
func controller(n *Node) *apps.Controller {
	switch c := n.Core.(type) {
	case *root.Core:
		return c.Apps
	case *cluster.Core:
		return c.Apps
	}
	return nil
}

// kept is what the owner's core holds of the application.
func (u *wish) kept() state {
	a := controller(u.owner).App(skerry.AppKey{Namespace: "default", Name: u.app})
	if a == nil || a.Deleting {
		return state{}
	}
	return stateOf(&a.Manifest)
}

func (s state) equal(o state) bool {
	return (s.services == nil) == (o.services == nil) && maps.Equal(s.services, o.services)
}

// settle compares what is kept with what may be; what is found is what is, from now on.
func (k *checker) settleWish(u *wish) {
	if !u.owner.Up {
		return
	}
	if u.asked != nil && u.life != u.owner.life {
		u.may = append(u.may, *u.asked) // whoever asked will never know
		u.asked = nil
	}
	is := u.kept()
	for _, s := range u.may {
		if s.equal(is) {
			if u.asked == nil {
				u.may = []state{s}
			}
			return
		}
	}
	if u.asked != nil && u.asked.equal(is) {
		return // the core has it, the disk not yet
	}
	k.fail(BrokenWrite, "%s of %s is %s; acknowledged was %s", u.app, u.owner.Name, is, u.may[0])
}

// written checks all that was acknowledged by a node, after it has started.
func (k *checker) written(n *Node) {
	for _, name := range slices.Sorted(maps.Keys(k.wishes)) {
		if u := k.wishes[name]; u.owner == n {
			k.settleWish(u)
		}
	}
}

// request asks the owner for a change and remembers the answer. next gives what the application is then.
func (r *run) request(u *wish, msg any, next func(now state) state) {
	if !u.owner.Up || u.asked != nil && u.life == u.owner.life {
		return // nobody answers, or the last answer is still to come
	}
	r.check.settleWish(u)
	if len(u.may) != 1 {
		return
	}
	to := next(u.may[0])
	u.asked, u.life = &to, u.owner.life
	asked := u.asked
	r.w.ask(u.owner, msg, func(result any) {
		if u.asked != asked {
			return
		}
		u.asked = nil
		if _, refused := result.(error); !refused {
			u.may = []state{to}
			r.acknowledged++
		}
	})
}
