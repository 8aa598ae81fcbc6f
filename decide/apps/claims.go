package apps

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// claim says which holder has the local volumes of a replica.
//
//	placed ─► claimed ─ran there─► its data: no other holder may have the replica ─► service gone, no instance left: kept, or released
//	             └─ no place there: given up                                 ▲           (reclaim, delete --volumes)  │
//	                                                                         └──── the same names are applied again ──┘
type claim struct {
	spec.VolumeClaim
	Holder  string       `json:"holder"`
	Ran     bool         `json:"ran,omitempty"` // an instance ran there, so that there is data
	Volumes []string     `json:"volumes,omitempty"`
	Size    skerry.Bytes `json:"size,omitempty"`    // of those with a size
	Reclaim bool         `json:"reclaim,omitempty"` // the data goes with its service
	Idle    time.Time    `json:"idle,omitzero"`     // since when no instance has it
}

const prefixClaim = "claim/"

// claims has who has which local volumes. It knows what a changed instance says, and nothing of applications.
type claims struct {
	claimed map[skerry.AppKey]map[spec.VolumeClaim]*claim
	changed map[spec.VolumeClaim]bool // since somebody asked
}

func newClaims() *claims {
	return &claims{claimed: map[skerry.AppKey]map[spec.VolumeClaim]*claim{}, changed: map[spec.VolumeClaim]bool{}}
}

func (c *claims) loadClaim(value []byte) error { return read(value, c.putClaim) }

func (c *claims) putClaim(k *claim) {
	app := k.Service.App
	if c.claimed[app] == nil {
		c.claimed[app] = map[spec.VolumeClaim]*claim{}
	}
	c.claimed[app][k.VolumeClaim] = k
	c.changed[k.VolumeClaim] = true
}

func (c *claims) saveClaim(k *claim, fx *wire.Effects) {
	c.putClaim(k)
	fx.Put(prefixClaim+k.Key(), mustJSON(k))
}

func (c *claims) dropClaim(k *claim, fx *wire.Effects) {
	app := k.Service.App
	if delete(c.claimed[app], k.VolumeClaim); len(c.claimed[app]) == 0 {
		delete(c.claimed, app)
	}
	c.changed[k.VolumeClaim] = true
	fx.Delete(prefixClaim + k.Key())
}

func (i *Instance) claims() spec.VolumeClaim {
	return spec.VolumeClaim{Service: i.Service, Ordinal: i.Ordinal}
}

// noteClaim keeps the claim of an instance's local volumes right after a change of the instance.
func (c *claims) noteClaim(i *Instance, fx *wire.Effects) {
	k := c.claimed[i.Service.App][i.claims()]
	if i.Holder == "" {
		if k != nil && !k.Ran {
			c.dropClaim(k, fx)
		}
		return
	}
	next := claim{VolumeClaim: i.claims(), Holder: i.Holder, Ran: i.State == skerry.Running}
	next.Volumes, next.Size, next.Reclaim = i.Spec.LocalVolumes()
	if k != nil && k.Holder == i.Holder {
		next.Ran = next.Ran || k.Ran
		next.Reclaim = k.Reclaim // as its application says now, which releaseClaims knows
		if reflect.DeepEqual(&next, k) {
			return
		}
	}
	c.saveClaim(&next, fx)
}

// releaseClaims gives up the local volumes that are to go with services that an application no longer has, once no instance is left. The
// others are kept.
func (l *lifecycle) releaseClaims(now time.Time, app skerry.AppKey, a *App, fx *wire.Effects) {
	for _, v := range slices.SortedFunc(maps.Keys(l.claimed[app]), spec.VolumeClaim.Compare) {
		k := l.claimed[app][v]
		s := a.Manifest.Spec.Service(v.Service.Service)
		if s.KeepsData() {
			if _, _, reclaimed := s.LocalVolumes(); reclaimed != k.Reclaim {
				k.Reclaim = reclaimed
				l.saveClaim(k, fx)
			}
		}
		there := s.KeepsData() && !a.Deleting
		switch {
		case l.userOf(v) != nil:
		case !there && len(l.byService[v.Service]) == 0 && (k.Reclaim || !k.Ran || a.DeleteVolumes || a.Borrowed):
			l.dropClaim(k, fx)
		case k.Idle.IsZero():
			k.Idle = now
			l.saveClaim(k, fx)
		}
	}
}

// ReviewClaims forgets, after a start, claims of applications that are gone if somebody else decides about the data, or there is none. An
// application that was given back left such claims in earlier versions.
func (l *lifecycle) ReviewClaims(others func(v spec.VolumeClaim) bool, fx *wire.Effects) {
	for app, list := range l.claimed {
		for v, k := range list {
			if l.apps[app] == nil && others(v) {
				l.dropClaim(k, fx)
			}
		}
	}
}

// DataAt gives the holder that has an instance's local volumes with data in them, or "".
func (c *claims) DataAt(i *Instance) string {
	if k := c.claimed[i.Service.App][i.claims()]; k != nil && k.Ran && i.Spec.KeepsData() {
		return k.Holder
	}
	return ""
}

// Claimed gives the holder of a replica's local volumes, or "".
func (c *claims) Claimed(v spec.VolumeClaim) string {
	if k := c.claimed[v.Service.App][v]; k != nil {
		return k.Holder
	}
	return ""
}

// Reclaimed lists the claims that changed since somebody asked.
func (c *claims) Reclaimed() []spec.VolumeClaim {
	if len(c.changed) == 0 {
		return nil
	}
	out := slices.SortedFunc(maps.Keys(c.changed), spec.VolumeClaim.Compare)
	clear(c.changed)
	return out
}

// ForgetClaims gives up what a holder that is gone for good has.
func (c *claims) ForgetClaims(holder string, fx *wire.Effects) {
	for _, list := range c.claimed {
		for _, k := range list {
			if k.Holder == holder {
				c.dropClaim(k, fx)
			}
		}
	}
}

// loses names the services of an application whose local volumes go, and those whose local volumes are kept, if it comes to be what a
// manifest says.
func (l *lifecycle) loses(app *spec.Application) (lost, kept []string) {
	gone, stay := map[string]int{}, map[string]int{}
	for v, k := range l.claimed[app.Key()] {
		switch s := app.Spec.Service(v.Service.Service); {
		case s.KeepsData(), l.apps[app.Key()] == nil:
		case k.Reclaim:
			gone[v.Service.Service]++
		case l.userOf(v) != nil:
			stay[v.Service.Service]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		lost = append(lost, name+": the local volumes of "+plural(gone[name], "replica")+" are removed with what is in them, because the manifest no longer has them")
	}
	for _, name := range slices.Sorted(maps.Keys(stay)) {
		kept = append(kept, name+": the local volumes of "+plural(stay[name], "replica")+" are kept, although the manifest no longer has them; `skerry delete volume` deletes them")
	}
	return lost, kept
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return itoa(n) + " " + what + "s"
}
