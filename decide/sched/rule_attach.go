package sched

import (
	"fmt"
	"math/bits"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Attachable rules out workers without the free devices that an instance is to have for itself.
type Attachable struct {
	Bare bool // as if nobody had any of them
}

func (Attachable) Name() string { return "attachable" }

func (Attachable) Lasting() bool { return false }

func (r Attachable) For(q *Query) Check {
	if !q.Spec.WantsDevices() {
		return nil
	}
	return &attachable{q.Site, q.Spec, r.Bare}
}

// DeviceKey names a device among what of a worker is taken.
func DeviceKey(name string) string { return "device " + name }

// freeDevices lists the devices of a worker that nobody has.
func (s *Site) freeDevices(n int) (out []string) {
	x := s.more[n]
	if x == nil {
		return nil
	}
	for _, d := range x.devices {
		if !x.ports[DeviceKey(d)] {
			out = append(out, d)
		}
	}
	return out
}

// accelerators are the classes of devices that a worker hands a service in for its gpus and tpus: if that runs as a container there, which
// alone can have devices.
func (s *Site) accelerators(n int, svc *spec.ServiceSpec) (none spec.Accelerators) {
	k := s.kinds[s.kindOf[n]]
	if x := s.more[n]; x != nil && spec.HasDevices(svc.RuntimeOn(k.class.Arch, k.class.Runtimes, k.costs)) {
		return x.classes
	}
	return none
}

// PickDevices chooses the devices of a worker for a service.
func (s *Site) PickDevices(worker string, spec *spec.ServiceSpec) []string {
	if n := s.find(worker); n >= 0 {
		return s.devicesFor(n, spec)
	}
	return nil
}

func (s *Site) devicesFor(n int, spec *spec.ServiceSpec) []string {
	if !spec.WantsDevices() {
		return nil
	}
	names, _, _ := spec.PickDevices(s.freeDevices(n), s.accelerators(n, spec))
	return names
}

type attachable struct {
	s    *Site
	spec *spec.ServiceSpec
	bare bool
}

func (c *attachable) Impossible(*summary) bool { return false }

func (c *attachable) Keep(b int, mask uint64) uint64 {
	for left := mask; left != 0; left &= left - 1 {
		i := bits.TrailingZeros64(left)
		_, _, ok := c.spec.PickDevices(c.s.freeDevices(b*64+i), c.s.accelerators(b*64+i, c.spec))
		if !ok && !(c.bare && c.taken(b*64+i)) {
			mask &^= 1 << i
		}
	}
	return mask
}

// Miss is nearer where there are such devices, and others have them.
func (c *attachable) Miss(n int) (string, float64) {
	if c.taken(n) {
		return "devices", 0
	}
	return "devices", 1
}

func (c *attachable) taken(n int) bool {
	x := c.s.more[n]
	if x == nil {
		return false
	}
	_, _, ok := c.spec.PickDevices(x.devices, c.s.accelerators(n, c.spec))
	return ok
}

func (c *attachable) Reason(n int) wire.Reason {
	_, missing, _ := c.spec.PickDevices(c.s.freeDevices(n), c.s.accelerators(n, c.spec))
	if c.taken(n) {
		return wire.Reason{What: "devices", Text: fmt.Sprintf("other instances have its devices %s", missing), Hint: "add one, or ask for fewer"}
	}
	return wire.Reason{What: "devices", Text: fmt.Sprintf("it has not as many devices %s as are asked for", missing), Hint: "plug one in, or describe it in /etc/cdi on the worker; `skerry describe worker` lists them"}
}

// neededDevices lists what a class of workers must have: the devices by which a service chooses a worker, and those that it is given.
func neededDevices(s *spec.ServiceSpec) []string {
	if len(s.Devices) == 0 {
		return s.Placement.Devices
	}
	return append(s.DeviceClasses(), s.Placement.Devices...)
}
