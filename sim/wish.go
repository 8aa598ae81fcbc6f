package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/loop"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
)

// wish is what the users of an application know of it: what was acknowledged last, and, where an answer never came, what else
// it may be.
type wish struct {
	app   string
	owner *Node
	may   []state // the first was acknowledged; with more than one an answer is missing
	// asked is what was asked of the owner in one of its lives and not answered yet: what it may be then.
	asked []state
	life  uint64
	// past is what it ever was, as an update may be undone.
	past   []state
	paused bool // somebody asked for that
	// amended: a site was asked to change it, which the root adopts or not.
	amended bool
}

// state is an application as a user wants it; without services it is not to be.
type state struct {
	services map[string]wanted
	app      *spec.Application // as applied, nil when it is deleted
}

type wanted struct {
	replicas int
	image    string
	mode     spec.Mode
	scaled   bool // their number follows the load
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

func stateOf(app *spec.Application) state {
	s := state{services: map[string]wanted{}, app: app}
	for _, x := range app.Spec.Services {
		w := wanted{image: x.Image, mode: x.Mode, scaled: x.Scale != nil}
		if w.mode == "" {
			w.mode = spec.ModeService
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

// equal compares two states; amended leaves out how many there are to be, as does what follows its load.
func (s state) equal(o state, amended bool) bool {
	return (s.services == nil) == (o.services == nil) && maps.EqualFunc(s.services, o.services, func(a, b wanted) bool {
		if amended || a.scaled || b.scaled {
			a.replicas, a.scaled = b.replicas, b.scaled
		}
		return a == b
	})
}

func (u *wish) among(list []state, s state) bool {
	return slices.ContainsFunc(list, func(x state) bool { return x.equal(s, u.amended) })
}

// with gives the state with another web service.
func (s state) with(edit func(x *wanted)) state {
	to := state{services: maps.Clone(s.services), app: s.app}
	if x, ok := to.services["web"]; ok {
		edit(&x)
		to.services["web"] = x
	}
	return to
}

// before lists what a service may be after an update of it was undone: what it ever was, as many as there are now if those were
// counted.
func (u *wish) before(now state) []state {
	out := []state{now}
	for _, p := range u.past {
		if was, ok := p.services["web"]; ok {
			out = append(out, now.with(func(x *wanted) {
				if was.mode == x.mode { // their number stays, which followed the load until then
					was.replicas, was.scaled = x.replicas, was.scaled || x.scaled
				}
				*x = was
			}))
		}
	}
	return out
}

// settle compares what is kept with what may be; what is found is what is, from now on.
func (k *checker) settleWish(u *wish) {
	if !u.owner.Up {
		return
	}
	if u.asked != nil && u.life != u.owner.life {
		u.may = append(u.may, u.asked...) // whoever asked will never know
		u.asked = nil
	}
	is := u.kept()
	switch {
	case u.among(u.may, is):
		if u.asked == nil {
			u.is(is)
		}
	case u.among(u.asked, is): // the core has it, the disk not yet
	default:
		k.fail(BrokenWrite, "%s of %s is %s; acknowledged was %s", u.app, u.owner.Name, is, u.may[0])
	}
}

// is says what the application is known to be.
func (u *wish) is(s state) {
	if u.may = []state{s}; s.services != nil && !u.among(u.past, s) {
		u.past = append(u.past, s)
	}
}

// written checks all that was acknowledged by a node, after it has started.
func (k *checker) written(n *Node) {
	for _, name := range slices.Sorted(maps.Keys(k.wishes)) {
		if u := k.wishes[name]; u.owner == n {
			k.settleWish(u)
		}
	}
}

// request asks the owner for a change and remembers the answer. next lists what the application may be then.
func (r *run) request(u *wish, msg any, next func(now state) []state) {
	if !u.owner.Up || u.asked != nil && u.life == u.owner.life {
		return // nobody answers, or the last answer is still to come
	}
	r.check.settleWish(u)
	if len(u.may) != 1 {
		return
	}
	u.asked, u.life = next(u.may[0]), u.owner.life
	asked := u.asked
	r.w.ask(u.owner, msg, func(result any) {
		if len(u.asked) == 0 || &u.asked[0] != &asked[0] {
			return
		}
		u.asked = nil
		if err, refused := result.(error); refused {
			if errors.Is(err, loop.ErrPartly) || errors.Is(err, store.ErrDeposed) {
				u.may = append(u.may, asked...) // whoever asked was told to look again
			}
			return
		}
		r.acknowledged++
		if u.may = asked; len(asked) == 1 {
			u.is(asked[0])
		} else {
			r.check.settleWish(u)
		}
	})
}
