package apps

import (
	"encoding/json"
	"maps"
	"slices"

	"skerry.dev/skerry"
)

// claim says which holder has the local volumes of a replica.
//
//	placed ─► claimed ─ran there─► its data: no other holder may have the replica ─► service gone, no instance left: released
//	             └─ no place there: given up
type claim struct {
	skerry.VolumeClaim
	Holder string `json:"holder"`
	Ran    bool   `json:"ran,omitempty"` // an instance ran there, so that there is data
}

const prefixClaim = "claim/"

func (c *Controller) loadClaim(value []byte) error {
	k := new(claim)
	err := json.Unmarshal(value, k)
	if err == nil {
		c.putClaim(k)
	}
	return err
}

func (c *Controller) putClaim(k *claim) {
	app := k.Service.App
	if c.claims[app] == nil {
		c.claims[app] = map[skerry.VolumeClaim]*claim{}
	}
	c.claims[app][k.VolumeClaim] = k
	c.reclaimed[k.VolumeClaim] = true
}

func (c *Controller) saveClaim(k *claim, fx *skerry.Effects) {
	c.putClaim(k)
	fx.Put(prefixClaim+k.Key(), mustJSON(k))
}

func (c *Controller) dropClaim(k *claim, fx *skerry.Effects) {
	app := k.Service.App
	if delete(c.claims[app], k.VolumeClaim); len(c.claims[app]) == 0 {
		delete(c.claims, app)
	}
	c.reclaimed[k.VolumeClaim] = true
	fx.Delete(prefixClaim + k.Key())
}

func (i *Instance) claims() skerry.VolumeClaim {
	return skerry.VolumeClaim{Service: i.Service, Ordinal: i.Ordinal}
}

// noteClaim keeps the claim of an instance's local volumes right after a change of the instance.
func (c *Controller) noteClaim(i *Instance, fx *skerry.Effects) {
	k := c.claims[i.Service.App][i.claims()]
	switch {
	case i.Holder == "" && k != nil && !k.Ran:
		c.dropClaim(k, fx)
	case i.Holder == "":
	case k == nil || k.Holder != i.Holder:
		c.saveClaim(&claim{i.claims(), i.Holder, i.State == skerry.Running}, fx)
	case i.State == skerry.Running && !k.Ran:
		k.Ran = true
		c.saveClaim(k, fx)
	}
}

// releaseClaims gives up the local volumes of services that an application no longer has, once no instance is left.
func (c *Controller) releaseClaims(app skerry.AppKey, a *App, fx *skerry.Effects) {
	for _, k := range slices.SortedFunc(maps.Keys(c.claims[app]), skerry.VolumeClaim.Compare) {
		if a != nil && !a.Deleting {
			if s := a.Manifest.Spec.Service(k.Service.Service); s != nil && s.KeepsData() {
				continue
			}
		}
		if len(c.byService[k.Service]) == 0 {
			c.dropClaim(c.claims[app][k], fx)
		}
	}
}

// ReviewClaims gives up, after a start, what belongs to applications that are gone.
func (c *Controller) ReviewClaims(fx *skerry.Effects) {
	for app := range c.claims {
		if c.apps[app] == nil {
			c.releaseClaims(app, nil, fx)
		}
	}
}

// DataAt gives the holder that has an instance's local volumes with data in them, or "".
func (c *Controller) DataAt(i *Instance) string {
	if k := c.claims[i.Service.App][i.claims()]; k != nil && k.Ran && i.Spec.KeepsData() {
		return k.Holder
	}
	return ""
}

// Claimed gives the holder of a replica's local volumes, or "".
func (c *Controller) Claimed(v skerry.VolumeClaim) string {
	if k := c.claims[v.Service.App][v]; k != nil && c.apps[v.Service.App] != nil {
		return k.Holder
	}
	return ""
}

// Reclaimed lists the claims that changed since somebody asked.
func (c *Controller) Reclaimed() []skerry.VolumeClaim {
	if len(c.reclaimed) == 0 {
		return nil
	}
	out := slices.SortedFunc(maps.Keys(c.reclaimed), skerry.VolumeClaim.Compare)
	clear(c.reclaimed)
	return out
}

// ForgetClaims gives up what a holder that is gone for good has.
func (c *Controller) ForgetClaims(holder string, fx *skerry.Effects) {
	for _, list := range c.claims {
		for _, k := range list {
			if k.Holder == holder {
				c.dropClaim(k, fx)
			}
		}
	}
}

// loses names the services of an application whose local volumes go if it comes to be what a manifest says.
func (c *Controller) loses(app *skerry.Application) []string {
	gone := map[string]int{}
	for k := range c.claims[app.Key()] {
		if s := app.Spec.Service(k.Service.Service); s == nil || !s.KeepsData() {
			gone[k.Service.Service]++
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		out = append(out, name+": the local volumes of "+plural(gone[name], "replica")+" are removed with what is in them, because the manifest no longer has them")
	}
	return out
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return itoa(n) + " " + what + "s"
}

// leaving counts the instances of a service that are told to end, and have not yet. With local volumes each holds its place.
func (c *Controller) leaving(s *skerry.ServiceSpec, sk skerry.ServiceKey) (n int) {
	if !s.KeepsData() {
		return 0
	}
	for _, i := range c.byService[sk] {
		if i.Stopping {
			n++
		}
	}
	return n
}
