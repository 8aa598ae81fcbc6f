package apps

import (
	"slices"
	"time"

	"skerry.dev/skerry"
)

const (
	// firstCalm is the least time between two tries to keep an instance's SLA elsewhere; it doubles each time.
	firstCalm   = time.Minute
	longestCalm = time.Hour
)

// violated takes what a holder says of an SLA that it cannot keep. Where there are other holders, an instance is started
// at another; when it is ready it takes the first one's place (make before break).
func (c *Controller) violated(now time.Time, i *Instance, why string, fx *skerry.Effects) {
	if why == "" && !slices.ContainsFunc(i.Conditions, func(k skerry.Condition) bool { return k.Type == skerry.Satisfied }) {
		return // it never was violated
	}
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.Satisfied, why == "", why)
	if why == "" || len(c.targets) < 2 || i.Spec.Mode != skerry.ModeService || now.Before(i.Calm) || c.replacement(i) != nil || i.Spec.Placement.Cluster != "" {
		return
	}
	a := c.apps[i.Service.App]
	if a == nil || a.Deleting || a.revisions[i.Service.Service] != i.Revision {
		return
	}
	i.Calm = now.Add(min(longestCalm, firstCalm<<min(i.Moves, 10)))
	i.Moves++
	n := c.create(now, a, a.Manifest.Spec.Service(i.Service.Service), i.Ordinal, "", "", fx)
	n.Replaces, n.Shun, n.Moves, n.Calm = i.ID, append(slices.Clone(i.Shun), i.Holder), i.Moves, i.Calm
	c.saveInstance(n, fx)
	fx.Events = append(fx.Events, c.event(now, i, skerry.EventWarning, "Elsewhere", "a copy starts elsewhere: "+why))
}

// replacement gives the instance that is to replace another, or nil.
func (c *Controller) replacement(i *Instance) *Instance {
	for _, n := range c.byService[i.Service] {
		if n.Replaces == i.ID && n.Live() {
			return n
		}
	}
	return nil
}

// settleReplacements ends instances whose replacement is ready, and replacements that found no place; it gives the rest
// without replacements under way, which do not count as replicas.
func (c *Controller) settleReplacements(now time.Time, list []*Instance, fx *skerry.Effects) []*Instance {
	var out []*Instance
	for _, n := range list {
		if n.Replaces == "" {
			out = append(out, n)
			continue
		}
		old := c.inst[n.Replaces]
		switch {
		case old == nil || !old.Live():
			n.Replaces, n.Shun = "", nil
			c.saveInstance(n, fx)
			out = append(out, n)
		case n.IsReady():
			c.stop(now, old, "replaced where its SLA is kept", fx)
			n.Replaces, n.Shun = "", nil
			c.saveInstance(n, fx)
			out = append(out, n)
		case n.Holder == "" && n.Misses > 0 || now.Sub(n.CreatedAt) > replacementTime:
			c.stop(now, n, "no better place was found", fx)
		default:
			c.wakeAt(n.Service.App, n.CreatedAt.Add(replacementTime+time.Millisecond))
		}
	}
	return slices.DeleteFunc(out, func(i *Instance) bool { return !i.Live() })
}

// replacementTime is how long a replacement has to get ready.
const replacementTime = 3 * time.Minute
