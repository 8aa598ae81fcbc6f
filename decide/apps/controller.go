// Package apps turns applications into the instances they want: scale, updates, restarts, jobs, schedules and quotas. It
// is pure, and serves root and cluster alike: the tier above it decides who holds an instance, this package decides which
// instances there should be. Root and cluster cores import it.
package apps

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Instance is an instance with what this tier knows of its place.
type Instance struct {
	wire.Instance
	Holder   string            `json:"holder,omitempty"`   // the child that has it; empty: it needs one
	Target   string            `json:"target,omitempty"`   // the only child that may have it (perWorker)
	Run      string            `json:"run,omitempty"`      // the run of a job it belongs to
	Rejected []string          `json:"rejected,omitempty"` // children that had no place for it, in this round
	Refusals []wire.Reason     `json:"refusals,omitempty"` // what they said
	Restart  uint64            `json:"restart,omitempty"`  // restart asked for
	Failures int               `json:"failures,omitempty"` // in a row, for the back-off
	Misses   int               `json:"misses,omitempty"`   // rounds in a row in which nobody had a place, for the back-off
	RetryAt  time.Time         `json:"retryAt,omitzero"`   // not before
	Deadline time.Time         `json:"deadline,omitzero"`  // end of the convergence time
	Told     bool              `json:"told,omitempty"`     // the deadline's event was sent
	Spec     *spec.ServiceSpec `json:"spec"`
	Decision *wire.Decision    `json:"decision,omitempty"`
	Due      time.Time         `json:"due,omitzero"`       // a job must be done by then
	Replaces skerry.InstanceID `json:"replaces,omitempty"` // the instance whose SLA it is to keep elsewhere
	Asked    bool              `json:"asked,omitempty"`    // it replaces that because somebody asked for it
	Shun     []string          `json:"shun,omitempty"`     // holders that cannot keep its SLA
	Moves    int               `json:"moves,omitempty"`    // for its SLA, so far
	Calm     time.Time         `json:"calm,omitzero"`      // no such move before
	// Next is the copy that is to take over from a holder that is out of touch, Left the one that was left behind there.
	Next *Copy `json:"next,omitempty"`
	Left *Copy `json:"left,omitempty"`
	// Cut: its holder is out of touch for so long that the tier above seeks another.
	Cut  bool          `json:"cut,omitempty"`
	Held *skerry.Fence `json:"held,omitempty"` // as in Assignment
	// Bound: its holder has confirmed that it ends it by itself when it is out of touch (Assignment.Failover).
	Bound bool `json:"bound,omitempty"`
	// Resize are other limits that it is to have while it runs on; nil: it has those of Spec.
	Resize *Resize `json:"resize,omitempty"`
	// Taken is the last change of limits that was taken back; its holder may have carried it out.
	Taken *Resize `json:"taken,omitempty"`
	// Looping: its holder tells of a crash loop. The condition outlives that until it has run steadily, perhaps elsewhere.
	Looping bool `json:"looping,omitempty"`
	// Restarted is the restart that was asked for and carried out last.
	Restarted uint64 `json:"restarted,omitempty"`
	// Fixed is the revision whose limits it could not be given while it runs, Limited when they were changed last.
	Fixed   string    `json:"fixed,omitempty"`
	Limited time.Time `json:"limited,omitzero"`
	// Ask is what its holder is asked about its successor; nil: nothing. Answers: its holder answers such questions.
	Ask     *Ask `json:"ask,omitempty"`
	Answers bool `json:"answers,omitempty"`
	// Shared is what all instances of its service at its holder use together, where that is all that is known.
	Shared  *wire.QoS `json:"shared,omitempty"`
	counted bool      // in its run's result
}

// Live reports whether the instance is or should be running.
func (i *Instance) Live() bool { return !i.Stopping && !i.State.Final() }

// IsReady reports whether it may get traffic.
func (i *Instance) IsReady() bool {
	return i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready)
}

// Shown is the instance as users see it. Whether one is ready whose holder is out of touch, nobody here knows; for decisions it
// stays what it was when it was heard of last.
func (i *Instance) Shown() wire.Instance {
	out := i.Instance
	for _, k := range i.Conditions {
		if k.Type == skerry.Reachable && !k.Status && i.IsReady() {
			out.Conditions = skerry.SetCondition(i.Conditions, k.Since, skerry.Ready, false, k.Reason)
		}
	}
	return out
}

// Controller holds the applications and instances of one tier.
type Controller struct {
	*catalog
	*claims
	seed      [16]byte
	counter   uint64
	inst      map[skerry.InstanceID]*Instance
	byService map[skerry.ServiceKey]map[skerry.InstanceID]*Instance
	orgs      map[string]*Org
	spaces    map[string]*Namespace
	unplaced  map[skerry.InstanceID]bool
	stopping  map[skerry.InstanceID]bool
	nets      map[skerry.AppKey]*network
	lastNet   wire.NetworkID
	exporters map[skerry.AppKey]bool // applications that export something
	importers map[skerry.AppKey]bool // and that want something of other organisations
	// unaddressed are networks in which there is no room for all that they want.
	unaddressed map[skerry.AppKey]*unaddressed
	certs       map[certKey]*certificate
	secrets     map[secretKey]*secret
	// readdressed are applications whose network changed since somebody asked.
	readdressed map[skerry.AppKey]bool
	past        map[skerry.AppKey][]*Past // oldest first
	local       string                    // prefix for instance ids; keeps those of different tiers apart
	scalers     map[skerry.ServiceKey]*Scaler
	came        []came // by ingresses, sorted by who told of it: sums must not depend on the order
	// waits are services that something waits for at an ingress, by who told of it.
	waits map[string]map[skerry.ServiceKey]bool
}

// New makes an empty controller. The seed makes instance ids; it must differ at each start of a process. tier is one
// letter that keeps ids minted by different tiers apart.
func New(seed [16]byte, tier string) *Controller {
	c := &Controller{
		catalog: newCatalog(), claims: newClaims(), seed: seed, local: tier, nets: map[skerry.AppKey]*network{}, unaddressed: map[skerry.AppKey]*unaddressed{}, certs: map[certKey]*certificate{}, secrets: map[secretKey]*secret{}, exporters: map[skerry.AppKey]bool{}, importers: map[skerry.AppKey]bool{}, readdressed: map[skerry.AppKey]bool{},
		inst:      map[skerry.InstanceID]*Instance{},
		byService: map[skerry.ServiceKey]map[skerry.InstanceID]*Instance{},
		orgs:      map[string]*Org{}, spaces: map[string]*Namespace{},
		unplaced: map[skerry.InstanceID]bool{}, stopping: map[skerry.InstanceID]bool{},
		scalers: map[skerry.ServiceKey]*Scaler{}, waits: map[string]map[skerry.ServiceKey]bool{}, past: map[skerry.AppKey][]*Past{},
	}
	if tier != "r" {
		c.lastNet = wire.LocalNetworks - 1 // the root gives those below
	}
	return c
}

// Record keys.
const (
	prefixApp   = "app/"
	prefixInst  = "inst/"
	prefixOrg   = "org/"
	prefixSpace = "ns/"
)

// Load takes one record of the store; it reports whether the record was one of ours.
func (c *Controller) Load(key string, value []byte) (bool, error) {
	kind, _, _ := strings.Cut(key, "/")
	var err error
	if key == keyNets {
		return true, json.Unmarshal(value, &c.lastNet)
	}
	switch kind + "/" {
	case prefixNet:
		err = c.loadNetwork(key, value)
	case prefixCert:
		err = c.loadCertificate(value)
	case prefixSecret:
		err = c.loadSecret(value)
	case prefixApp:
		a := new(App)
		if err = json.Unmarshal(value, a); err == nil {
			c.addApp(a)
			c.look(a.Key())
		}
	case prefixInst:
		i := new(Instance)
		if err = json.Unmarshal(value, i); err == nil {
			i.RetryAt = time.Time{} // the clock may have been wrong then, or may be now
			c.addInstance(i)
		}
	case prefixClaim:
		err = c.loadClaim(value)
	case prefixPast:
		err = c.loadPast(value)
	case prefixOrg:
		o := new(Org)
		if err = json.Unmarshal(value, o); err == nil {
			c.orgs[o.Name] = o
		}
	case prefixSpace:
		n := new(Namespace)
		if err = json.Unmarshal(value, n); err == nil {
			c.spaces[n.Name] = n
		}
	default:
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("record %s: %w", key, err)
	}
	return true, nil
}

func (c *Controller) addApp(a *App) {
	c.put(a)
	c.noteExports(a)
}

func (c *Controller) addInstance(i *Instance) {
	c.inst[i.ID] = i
	m := c.byService[i.Service]
	if m == nil {
		m = map[skerry.InstanceID]*Instance{}
		c.byService[i.Service] = m
	}
	m[i.ID] = i
	c.index(i)
}

// index keeps the two work lists right after a change of an instance.
func (c *Controller) index(i *Instance) {
	if i.State == skerry.Requested && i.Holder == "" && !i.Stopping {
		c.unplaced[i.ID] = true
	} else {
		delete(c.unplaced, i.ID)
	}
	if i.Stopping {
		c.stopping[i.ID] = true
	} else {
		delete(c.stopping, i.ID)
	}
}

func (c *Controller) saveInstance(i *Instance, fx *wire.Effects) {
	c.index(i)
	i.Resources = i.Spec.Resources
	if i.Spec.KeepsData() {
		c.noteClaim(i, fx)
	}
	fx.Put(prefixInst+string(i.ID), mustJSON(i))
	fx.Changed = append(fx.Changed, wire.Change{App: i.Service.App, Instance: i.ID})
}

func (c *Controller) dropInstance(i *Instance, fx *wire.Effects) {
	delete(c.inst, i.ID)
	delete(c.byService[i.Service], i.ID)
	if len(c.byService[i.Service]) == 0 {
		delete(c.byService, i.Service)
	}
	delete(c.unplaced, i.ID)
	delete(c.stopping, i.ID)
	fx.Delete(prefixInst + string(i.ID))
	fx.Changed = append(fx.Changed, wire.Change{App: i.Service.App, Instance: i.ID, Deleted: true})
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	return data
}

// newID mints an instance id: service, tier and forty bits that do not repeat.
func (c *Controller) newID(service string) skerry.InstanceID {
	for {
		c.counter++
		var buf [24]byte
		copy(buf[:], c.seed[:])
		binary.BigEndian.PutUint64(buf[16:], c.counter)
		sum := sha256.Sum256(buf[:])
		id := skerry.InstanceID(service + "-" + c.local + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5])))
		if c.inst[id] == nil {
			return id
		}
	}
}

// Instance finds an instance.
func (c *Controller) Instance(id skerry.InstanceID) *Instance { return c.inst[id] }

// Instances lists the instances of a service, oldest first.
func (c *Controller) Instances(k skerry.ServiceKey) []*Instance {
	out := make([]*Instance, 0, len(c.byService[k]))
	for _, i := range c.byService[k] {
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b *Instance) int {
		if n := a.CreatedAt.Compare(b.CreatedAt); n != 0 {
			return n
		}
		if a.Ordinal != b.Ordinal {
			return a.Ordinal - b.Ordinal
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return out
}

// InstancesOf lists the instances of an application, by service and age.
func (c *Controller) InstancesOf(k skerry.AppKey) []*Instance {
	var names []string
	for sk := range c.byService {
		if sk.App == k {
			names = append(names, sk.Service)
		}
	}
	slices.Sort(names)
	var out []*Instance
	for _, n := range names {
		out = append(out, c.Instances(skerry.ServiceKey{App: k, Service: n})...)
	}
	return out
}

// Unplaced lists the instances that need a holder and may be tried now, oldest first.
func (c *Controller) Unplaced(now time.Time) []*Instance {
	var out []*Instance
	for id := range c.unplaced {
		if i := c.inst[id]; !i.RetryAt.After(now) {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *Instance) int {
		if n := a.CreatedAt.Compare(b.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return out
}

// Stopping lists the instances that their holder must end.
func (c *Controller) Stopping() []*Instance {
	out := make([]*Instance, 0, len(c.stopping))
	for id := range c.stopping {
		out = append(out, c.inst[id])
	}
	slices.SortFunc(out, func(a, b *Instance) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out
}

// HeldBy lists the instances that a child holds.
func (c *Controller) HeldBy(holder string) []*Instance {
	var out []*Instance
	for _, i := range c.inst {
		if i.Holder == holder {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *Instance) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out
}

// NextWake gives the time at which Reconcile has something to do by itself, or the zero time.
func (c *Controller) NextWake() time.Time {
	var next time.Time
	earlier := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if c.Dirty() {
		return time.Unix(1, 0) // long since due
	}
	for _, t := range c.wake {
		earlier(t)
	}
	for id := range c.unplaced {
		if c.Frozen(c.inst[id].Service.App) {
			continue
		}
		earlier(c.inst[id].RetryAt)
		if i := c.inst[id]; !i.Told {
			earlier(i.Deadline)
		}
	}
	return next
}
