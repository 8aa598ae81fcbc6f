package wire

import (
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Limits of what a child may say of an instance or in an event. What is longer is cut: parents keep and pass on what children say.
const (
	maxSaid      = 2 << 10 // bytes of a text
	maxSaidName  = 256     // bytes of a name
	maxSaidItems = 128     // items of a list
	maxSaidCount = 1 << 30 // parents add up what they are told
)

// Bound cuts what is too long to be kept, and counts that cannot be.
func (o *Observation) Bound() {
	for _, s := range []*string{&o.Reason, &o.Violated, &o.Frozen, &o.Crowded, &o.CrashLoop} {
		*s = cut(*s, maxSaid)
	}
	for _, s := range []*string{&o.Address, &o.Runtime, &o.Monitor, &o.Revision} {
		*s = cut(*s, maxSaidName)
	}
	o.State, o.Phase = skerry.State(cut(string(o.State), maxSaidName)), skerry.Phase(cut(string(o.Phase), maxSaidName))
	for _, s := range []*string{&o.Digest, &o.Recipient} {
		if len(*s) > maxSaid {
			*s = "" // a part means nothing
		}
	}
	if e := o.Exit; e != nil {
		e.Signal, e.Message = cut(e.Signal, maxSaidName), cut(e.Message, maxSaid)
	}
	for _, n := range []*int{&o.Restarts, &o.Want, &o.Have} {
		*n = min(max(*n, 0), maxSaidCount)
	}
	o.Asked = min(o.Asked, maxSaidCount)
	if k := o.Copies; k != nil {
		for _, n := range []*int{&k.Former, &k.Serving, &k.Done} {
			*n = min(max(*n, 0), o.Want)
		}
		k.Short = min(max(k.Short, 0), maxSaidCount)
	}
	o.Ports = o.Ports[:min(len(o.Ports), spec.MaxPorts)]
	for i := range o.Ports {
		p := &o.Ports[i]
		p.Name, p.Protocol, p.Address = cut(p.Name, maxSaidName), cut(p.Protocol, maxSaidName), cut(p.Address, maxSaidName)
	}
	o.Devices = o.Devices[:min(len(o.Devices), spec.MaxDevices)]
	for i := range o.Devices {
		o.Devices[i] = cut(o.Devices[i], maxSaidName)
	}
	o.Why = o.Why[:min(len(o.Why), maxSaidItems)]
	for i := range o.Why {
		r := &o.Why[i]
		r.What, r.Text, r.Hint = cut(r.What, maxSaidName), cut(r.Text, maxSaidName*2), cut(r.Hint, maxSaidName*2)
	}
	if l := o.Limits; l != nil {
		l.Reason = cut(l.Reason, maxSaid)
	}
	if a := o.Successor; a != nil {
		a.Revision, a.Why = cut(a.Revision, maxSaidName), cut(a.Why, maxSaid)
	}
}

// Bound cuts what is too long to be kept.
func (e *Event) Bound() {
	e.Text = cut(e.Text, 2*maxSaid)
	e.Type, e.Instance = EventType(cut(string(e.Type), maxSaidName)), skerry.InstanceID(cut(string(e.Instance), maxSaidName))
	for _, s := range []*string{&e.Reason, &e.App.Namespace, &e.App.Name, &e.Service, &e.Org} {
		*s = cut(*s, maxSaidName)
	}
	e.Cluster, e.Worker = skerry.ClusterName(cut(string(e.Cluster), maxSaidName)), skerry.WorkerName(cut(string(e.Worker), maxSaidName))
}

// Short is a text as it is told where it is a part of others, such as a reason.
func Short(text string) string { return cut(text, 2*maxSaidName) }

// Bound cuts what workers and sites have said of themselves in the reasons of a decision, which is kept with its instance.
func (d *Decision) Bound() {
	short := func(r *Reason) {
		r.What, r.Text, r.Hint, r.Link = cut(r.What, maxSaidName), Short(r.Text), Short(r.Hint), cut(r.Link, maxSaidName)
	}
	for i := range d.Why {
		short(&d.Why[i])
	}
	for i := range d.Top {
		k := &d.Top[i]
		if k.Suspicion = Short(k.Suspicion); k.Out != nil {
			short(k.Out)
		}
	}
}

// cut shortens a text between characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
