package cluster

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"skerry.dev/skerry"
)

// claim is the worker that has the local volumes of a replica. An instance that has data runs there and nowhere else:
//
//	placed ─► claimed ─ran there─► its data, which stays while the owner says so, or an instance is there ─► removed (tombstone)
//	             └─ moved before it ran: claimed elsewhere, nothing is lost
type claim struct {
	skerry.VolumeClaim
	Worker string `json:"worker"`
	Ran    bool   `json:"ran,omitempty"`   // an instance ran there, so that there is data
	Owned  bool   `json:"owned,omitempty"` // the owner has told of it: when it no longer does, the data goes
	// Size is what the volumes may take of the disk. It is reserved by itself while no instance does that.
	Size skerry.Bytes `json:"size,omitempty"`
	idle skerry.Bytes // reserved so
}

const prefixClaim = "claimed/" // apps has claims of its own

func (c *Core) loadClaim(value []byte) error {
	k := new(claim)
	err := json.Unmarshal(value, k)
	if err == nil {
		c.claims[k.VolumeClaim] = k
	}
	return err
}

func (p *placement) claims() skerry.VolumeClaim {
	return skerry.VolumeClaim{Service: p.A.Service, Ordinal: p.A.Ordinal}
}

// claimAt has a worker keep the local volumes of an instance that it gets.
func (c *Core) claimAt(p *placement, worker string) {
	if !p.A.Spec.KeepsData() || worker == "" {
		return
	}
	k := c.claims[p.claims()]
	if k == nil {
		k = &claim{VolumeClaim: p.claims()}
		c.claims[p.claims()] = k
	}
	if k.Worker != worker {
		c.reserveIdle(k, 0)
		c.Kids.Delete(k.Worker, k.Key())
		k.Worker, k.Ran = worker, false
	}
	k.Size = 0
	for _, v := range p.A.Spec.Volumes {
		if v.Local != nil {
			k.Size += v.Local.Size
		}
	}
	c.noteClaim(k)
	c.claimsDue = true
}

func (c *Core) noteClaim(k *claim) {
	c.notes = append(c.notes, skerry.Write{Key: prefixClaim + k.Key(), Value: mustJSON(k)})
	_ = c.Kids.Put(k.Worker, k.Key(), c.codec.Marshal(&k.VolumeClaim)) // it is small
}

// ranWithData notes that there is data now.
func (c *Core) ranWithData(p *placement) {
	if k := c.claims[p.claims()]; p.A.Spec.KeepsData() && k != nil && k.Worker == p.Worker && !k.Ran {
		k.Ran = true
		c.noteClaim(k)
	}
}

// dataAt gives the worker to which an instance is bound by its local volumes, or "". A drain by force gives them up.
func (c *Core) dataAt(p *placement) string {
	k := c.claims[p.claims()]
	if !p.A.Spec.KeepsData() || k == nil || !k.Ran {
		return ""
	}
	if w := c.workers[k.Worker]; w == nil || w.Drain != nil && w.Drain.Force {
		return ""
	}
	return k.Worker
}

// reserveIdle keeps so much of a worker's disk for volumes that no instance has.
func (c *Core) reserveIdle(k *claim, size skerry.Bytes) {
	if w := c.workers[k.Worker]; w != nil && k.idle != size {
		w.reserved.Storage += size - k.idle
		c.site.SetAvailable(w.Name, w.available())
	}
	k.idle = size
}

// reserveClaims keeps room for the volumes of replicas that do not run, and only of those.
func (c *Core) reserveClaims() {
	if !c.claimsDue {
		return
	}
	for v, k := range c.claims {
		size := k.Size
		if w := c.workers[k.Worker]; w != nil {
			for _, h := range w.leaving {
				if h.service == v.Service && h.ordinal == v.Ordinal {
					size = 0
				}
			}
		}
		for _, p := range c.byApp[v.Service.App] {
			if p.claims() == v && p.Worker == k.Worker && !p.ended() {
				size = 0
			}
		}
		c.reserveIdle(k, size)
	}
}

// releaseClaims has workers remove the data of replicas that nobody wants any more, and of those that never ran.
func (c *Core) releaseClaims() {
	if c.Apps.Reclaimed() != nil {
		c.claimsDue = true
	}
	if !c.claimsDue {
		return
	}
	c.reserveClaims()
	c.claimsDue = false
	for _, v := range slices.SortedFunc(maps.Keys(c.claims), skerry.VolumeClaim.Compare) {
		k := c.claims[v]
		_, _, owned := c.Up.Desired.Get(v.Key())
		if owned = owned || c.Apps.Claimed(v) != ""; owned && !k.Owned {
			k.Owned = true
			c.noteClaim(k)
		}
		if owned || k.Ran && !k.Owned || c.hasReplica(v) {
			continue
		}
		c.reserveIdle(k, 0)
		c.Kids.Delete(k.Worker, v.Key())
		delete(c.claims, v)
		c.notes = append(c.notes, skerry.Write{Key: prefixClaim + v.Key()})
	}
}

func (c *Core) hasReplica(v skerry.VolumeClaim) bool {
	for _, p := range c.byApp[v.Service.App] {
		if p.claims() == v {
			return true
		}
	}
	return false
}

// reviewClaims brings, after a start, what workers are to keep in line with the claims.
func (c *Core) reviewClaims() {
	for _, name := range c.Kids.Names() {
		for _, key := range c.Kids.Get(name).Desired.Keys() {
			if v, ok := skerry.ParseVolumeKey(key); ok && (c.claims[v] == nil && !c.hasReplica(v) || c.claims[v] != nil && c.claims[v].Worker != name) {
				c.Kids.Delete(name, key)
			}
		}
	}
	for _, v := range slices.SortedFunc(maps.Keys(c.claims), skerry.VolumeClaim.Compare) {
		c.noteClaim(c.claims[v])
	}
	for _, id := range sortedIDs(c.places) { // half of a commit may have been lost
		if p := c.places[id]; c.claims[p.claims()] == nil && !p.Removing {
			c.claimAt(p, p.Worker)
		}
	}
	c.claimsDue = true
}

// forgetClaims gives up what was on a worker that is gone for good.
func (c *Core) forgetClaims(now time.Time, worker string, fx *skerry.Effects) {
	for _, v := range slices.SortedFunc(maps.Keys(c.claims), skerry.VolumeClaim.Compare) {
		if k := c.claims[v]; k.Worker == worker {
			delete(c.claims, v)
			fx.Delete(prefixClaim + v.Key())
			if k.Ran {
				c.siteEvent(fx, now, skerry.EventWarning, "DataLost", "the local volumes of "+v.Service.String()+" (replica "+strconv.Itoa(v.Ordinal)+") were on worker "+worker+", which was removed", worker)
			}
		}
	}
}
