package spec

import (
	"fmt"
	"math"
	"time"

	"skerry.dev/skerry"
)

// Assignment is an instance that a parent wants its child to run: an item of the child's desired set, under the key
// "inst/<id>". Its absence means nothing; a tombstone ends it.
type Assignment struct {
	ID       skerry.InstanceID `json:"id" cbor:"1,keyasint"`
	Service  skerry.ServiceKey `json:"service" cbor:"2,keyasint"`
	Org      string            `json:"org,omitempty" cbor:"3,keyasint,omitempty"`
	Ordinal  int               `json:"ordinal" cbor:"4,keyasint,omitempty"`
	Gen      skerry.Generation `json:"generation" cbor:"5,keyasint"`                  // the application's generation it comes from
	Revision string            `json:"revision" cbor:"6,keyasint"`                    // hash of the service's template
	Spec     ServiceSpec       `json:"spec" cbor:"7,keyasint"`                        // marshalled as JSON inside CBOR
	Fence    skerry.Fence      `json:"fence" cbor:"8,keyasint"`                       // a higher one wins
	Restart  uint64            `json:"restart,omitempty" cbor:"9,keyasint,omitempty"` // raised to ask for a restart in place
	Deadline time.Time         `json:"deadline,omitzero" cbor:"10,keyasint,omitzero"` // convergence: answer before
	Digest   map[string]string `json:"digest,omitempty" cbor:"11,keyasint,omitempty"` // image reference -> digest, resolved once per revision
	Due      time.Time         `json:"due,omitzero" cbor:"12,keyasint,omitzero"`      // a job must be done by then
	// PriorFence, if set, is the token under which the child may run this very instance already: such a copy takes the new token
	// over without being restarted.
	PriorFence *skerry.Fence `json:"held,omitempty" cbor:"13,keyasint,omitempty"`
	// Failover says that the parent gives the instance to another child when this one is out of touch for long. With
	// onDisconnect stopAfter a cluster then ends it after that time without the root.
	Failover bool `json:"failover,omitempty" cbor:"14,keyasint,omitempty"`
	// From, if set, is the token of the copy whose checkpoint the child is to start this one from.
	From *skerry.Fence `json:"from,omitempty" cbor:"15,keyasint,omitempty"`
	// Leave, if set, lets the child write a checkpoint of its copy for another one, and end it with that. Without it the copy goes on.
	Leave *Leave `json:"leave,omitempty" cbor:"16,keyasint,omitempty"`
	// Runtime is the one that the cluster chose, of those that the service may run in; empty above it, and from clusters of before.
	Runtime string `json:"runtime,omitempty" cbor:"17,keyasint,omitempty"`
	// Devices are those that the cluster chose for it; empty above it.
	Devices []string `json:"devices,omitempty" cbor:"19,keyasint,omitempty"`
	// Level is what the site grants its organisation, since it was given to a worker; empty above the site, and for what sites of
	// before placed, which has the capabilities of LevelBaseline.
	Level SecurityLevel `json:"level,omitempty" cbor:"20,keyasint,omitempty"`
	// HostPaths are what the site's admission policy opens of its workers' directories, as far as the service's volumes lie there. The
	// worker follows no link out of them. Empty above the site, and for an organisation at LevelPrivileged, which is not held to any.
	HostPaths []HostPath `json:"hostPaths,omitempty" cbor:"21,keyasint,omitempty"`
	// Egress is where it may go outside the overlay, by its manifest and the site's policy, since it was given to a worker; nil: no
	// rules, and above the site.
	Egress *Egress `json:"egress,omitempty" cbor:"22,keyasint,omitempty"`
	// Successor, if set, asks whether a newer version has a place once this instance has ended. Workers are not asked.
	Successor *Successor `json:"successor,omitempty" cbor:"23,keyasint,omitempty"`
	// Seal shows who has lost its store that it gave this to that child: a root to a site, a site to a worker what is of its own applications.
	Seal []byte `json:"seal,omitempty" cbor:"24,keyasint,omitempty"`
	// Signers are the public keys, in PEM, one of which must have signed each of its images, by the site's policy for
	// its organisation, since it was given to a worker. Empty: none need to be signed, and above the site.
	Signers []string `json:"signers,omitempty" cbor:"25,keyasint,omitempty"`
	// Exchange says how a site lets copies (Mode.HasCopies) take the place of those of another version: ExchangeHeld, ExchangeBack,
	// or empty: in turn. Workers are not told.
	Exchange string `json:"exchange,omitempty" cbor:"26,keyasint,omitempty"`
}

// Values of Assignment.Exchange.
const (
	ExchangeHeld = "held" // no further copy ends
	ExchangeBack = "back" // the version before returns: what is not ready ends at once
)

// Successor is a newer version of an instance that can start only when that has ended.
type Successor struct {
	Revision string            `json:"revision" cbor:"1,keyasint"`
	Gen      skerry.Generation `json:"generation" cbor:"2,keyasint"`
	Spec     ServiceSpec       `json:"spec" cbor:"3,keyasint"` // marshalled as JSON inside CBOR
}

// Leave says for which copy of an instance a checkpoint may be made.
type Leave struct {
	For       skerry.Fence `json:"for" cbor:"1,keyasint"`
	Recipient string       `json:"recipient" cbor:"2,keyasint"` // the key of that copy's worker, an age recipient: nobody else can read it
}

// CheckNames reports names in an assignment that could not be parts of paths and addresses. A parent that sends such a one was taken
// over: no manifest with them is accepted anywhere.
func (a *Assignment) CheckNames() error {
	c := &checker{}
	if err := CheckInstanceID(a.ID); err != nil {
		c.add("id", "", "%s", err)
	}
	c.name("service.app.namespace", a.Service.App.Namespace)
	c.name("service.app.name", a.Service.App.Name)
	c.name("service.service", a.Service.Service)
	c.between("ordinal", a.Ordinal, 0, math.MaxInt32)
	for i, v := range a.Spec.Volumes {
		c.name(fmt.Sprintf("spec.volumes[%d].name", i), v.Name)
	}
	for kind, list := range map[string][]SideContainer{"init": a.Spec.Init, "sidecars": a.Spec.Sidecars} {
		for i := range list {
			c.name(fmt.Sprintf("spec.%s[%d].name", kind, i), list[i].Name)
		}
	}
	return c.problem()
}

// CheckPlaces reports what is wrong with all that an assignment puts into a container or takes from a worker: names, paths, mounts,
// files, secrets, devices, ports and amounts.
func (a *Assignment) CheckPlaces() error {
	c, s := &checker{}, &a.Spec
	c.container("spec", &s.Container, s)
	c.resources("spec.resources", s.Resources)
	for kind, list := range map[string][]SideContainer{"init": s.Init, "sidecars": s.Sidecars} {
		for i := range list {
			p := fmt.Sprintf("spec.%s[%d]", kind, i)
			c.container(p, &list[i].Container, s)
			c.resources(p+".resources", list[i].Resources)
		}
	}
	amounts(c, "spec", s)
	c.volumes("spec", s)
	c.devices("spec", s)
	c.secrets("spec", s)
	c.ports("spec", s)
	return c.problem()
}
