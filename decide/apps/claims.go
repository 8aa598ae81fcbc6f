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
//
// A volume with data that a service no longer has, because it was renamed, gets a claim of its own. That stays when the service has such a
// volume again, and says nothing meanwhile.
type claim struct {
	spec.VolumeClaim
	Holder  string       `json:"holder"`
	Ran     bool         `json:"ran,omitempty"` // an instance ran there, so that there is data
	Volumes []string     `json:"volumes,omitempty"`
	Size    skerry.Bytes `json:"size,omitempty"` // of those with a size
	// Sizes are those of several volumes, by name; an earlier version did not note them.
	Sizes   map[string]skerry.Bytes `json:"sizes,omitempty"`
	Reclaim bool                    `json:"reclaim,omitempty"` // the data goes with its service
	Idle    time.Time               `json:"idle,omitzero"`     // since when no instance has it

	counts skerry.Bytes // of what is stored; see definitions
}

const prefixClaim = "claim/"

// claims has who has which local volumes. It knows what a changed instance says, and nothing of applications.
type claims struct {
	claimed map[skerry.AppKey]map[spec.VolumeClaim]*claim
	changed map[spec.VolumeClaim]bool // since somebody asked
	stored  *definitions
}

func newClaims() *claims {
	return &claims{claimed: map[skerry.AppKey]map[spec.VolumeClaim]*claim{}, changed: map[spec.VolumeClaim]bool{},
		stored: &definitions{map[string]skerry.Bytes{}}}
}

func (c *claims) loadClaim(value []byte) error {
	return read(value, func(k *claim) {
		c.putClaim(k)
		c.stored.note(k.Service.App.Namespace, &k.counts, len(value))
	})
}

func (c *claims) putClaim(k *claim) {
	app := k.Service.App
	if c.claimed[app] == nil {
		c.claimed[app] = map[spec.VolumeClaim]*claim{}
	}
	if before := c.claimed[app][k.VolumeClaim]; before != nil {
		k.counts = before.counts
	}
	c.claimed[app][k.VolumeClaim] = k
	c.changed[k.VolumeClaim] = true
}

func (c *claims) saveClaim(k *claim, fx *wire.Effects) {
	c.putClaim(k)
	c.stored.put(fx, prefixClaim+k.Key(), k.Service.App.Namespace, &k.counts, mustJSON(k))
}

func (c *claims) dropClaim(k *claim, fx *wire.Effects) {
	app := k.Service.App
	if k.Volume == "" {
		c.dropFormer(k.VolumeClaim, fx)
	}
	if delete(c.claimed[app], k.VolumeClaim); len(c.claimed[app]) == 0 {
		delete(c.claimed, app)
	}
	c.changed[k.VolumeClaim] = true
	c.stored.remove(fx, prefixClaim+k.Key(), app.Namespace, &k.counts)
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
	next.Volumes, _, next.Reclaim = i.Spec.LocalVolumes()
	sizes, same := i.Spec.LocalSizes(), k != nil && k.Holder == i.Holder
	switch {
	case same && k.Ran:
		c.noteFormer(k, sizes, fx)
	case k != nil && !same: // what was there is gone
		c.dropFormer(k.VolumeClaim, fx)
	}
	if same {
		next.Ran = next.Ran || k.Ran
		next.Reclaim = k.Reclaim // as its application says now, which releaseClaims knows
		if k.Ran {
			for name, size := range k.sizes() {
				if is, has := sizes[name]; has {
					sizes[name] = max(is, size) // a volume never becomes smaller
				}
			}
		}
	}
	if k != nil {
		next.counts = k.counts
	}
	if next.setSizes(sizes); same && reflect.DeepEqual(&next, k) {
		return
	}
	c.saveClaim(&next, fx)
}

// noteFormer claims the volumes with data that a replica had, and no longer has.
func (c *claims) noteFormer(k *claim, has map[string]skerry.Bytes, fx *wire.Effects) {
	for _, name := range k.Volumes {
		if _, still := has[name]; still {
			continue
		}
		one := claim{VolumeClaim: k.VolumeClaim, Holder: k.Holder, Ran: true, Volumes: []string{name}, Size: k.sizes()[name], Reclaim: k.Reclaim}
		one.Volume = name
		if before := c.claimed[one.Service.App][one.VolumeClaim]; before != nil {
			one.Size = max(one.Size, before.Size)
		}
		c.saveClaim(&one, fx)
	}
}

// dropFormer gives up the volumes that a replica no longer has.
func (c *claims) dropFormer(of spec.VolumeClaim, fx *wire.Effects) {
	for _, v := range slices.SortedFunc(maps.Keys(c.claimed[of.Service.App]), spec.VolumeClaim.Compare) {
		if v.Volume != "" && v.Whole() == of {
			c.dropClaim(c.claimed[of.Service.App][v], fx)
		}
	}
}

// again reports whether a claim is of a single volume that its replica has again.
func (c *claims) again(k *claim) bool {
	if k.Volume == "" {
		return false
	}
	whole := c.claimed[k.Service.App][k.Whole()]
	return whole != nil && slices.Contains(whole.Volumes, k.Volume)
}

// sizes gives how large each of the volumes may become, as far as that is known; 0: it has no size of its own.
func (k *claim) sizes() map[string]skerry.Bytes {
	if len(k.Volumes) == 1 {
		return map[string]skerry.Bytes{k.Volumes[0]: k.Size}
	}
	return k.Sizes
}

func (k *claim) setSizes(sizes map[string]skerry.Bytes) {
	k.Size, k.Sizes = 0, nil
	for _, size := range sizes {
		k.Size = spec.Resources{Storage: k.Size}.Add(spec.Resources{Storage: size}).Storage
	}
	if len(sizes) > 1 {
		k.Sizes = sizes
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
	c.changed = map[spec.VolumeClaim]bool{} // as in catalog.due
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

// resting is the storage of local volumes that applications of a manifest do not ask for: of services and replicas that are gone. m is nil
// where the application is.
func (c *claims) resting(app skerry.AppKey, m *spec.Application) (sum skerry.Bytes) {
	for v, k := range c.claimed[app] {
		if c.again(k) {
			continue
		}
		if m != nil {
			s := m.Spec.Service(v.Service.Service)
			if _, has := s.LocalSizes()[v.Volume]; (has || v.Volume == "") && s.KeepsData() && v.Ordinal < *s.Replicas {
				continue
			}
		}
		if k.Ran {
			sum += k.Size
		}
	}
	return sum
}
