package sched

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Attachable rules out workers without free devices, or shares of them, for an instance.
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

// device is one of a worker's, and how many instances may have it at a time.
type device struct {
	spec.DeviceOffer
	shares int
}

// devicesOf joins what a worker offers with what it tells of single ones.
func devicesOf(w *Worker) (out []device) {
	for _, name := range w.Attachable {
		d := device{DeviceOffer: spec.DeviceOffer{Name: name}, shares: 1}
		if more, ok := w.DeviceDetails[name]; ok {
			d.Labels, d.shares = more.Labels, max(more.Shares, 1)
			if strings.HasPrefix(more.At, "/") { // one host in a network may have several
				d.Node = more.At
			} else {
				d.Host = more.At
			}
		}
		out = append(out, d)
	}
	return out
}

// users counts the instances that have each device, by whichever of its names: a serial line has one by its maker and one by its socket.
func (x *extra) users() func(d *device) int {
	if len(x.taken) == 0 {
		return func(*device) int { return 0 }
	}
	at := map[string]int{}
	for i := range x.devices {
		at[x.devices[i].Node] += x.taken[x.devices[i].Name]
	}
	for name, node := range x.were { // who has it ends, and may have it open until then
		at[node] += x.taken[name]
	}
	return func(d *device) int {
		if d.Node == "" {
			return x.taken[d.Name]
		}
		return at[d.Node]
	}
}

// freeDevices lists the devices of a worker that have a share left, those first that the fewest instances have.
func (s *Site) freeDevices(n int) (out []spec.DeviceOffer) {
	x := s.more[n]
	if x == nil {
		return nil
	}
	users := x.users()
	for i := range x.devices {
		if d := &x.devices[i]; users(d) < d.shares {
			out = append(out, d.DeviceOffer)
		}
	}
	slices.SortStableFunc(out, func(a, b spec.DeviceOffer) int { return x.taken[a.Name] - x.taken[b.Name] })
	return out
}

// takeDevices counts devices as taken by one instance more or fewer; the map may be another site's, too.
func (x *extra) takeDevices(names []string, sign int) {
	x.taken = maps.Clone(x.taken)
	for _, d := range names {
		if x.taken == nil {
			x.taken = map[string]int{}
		}
		if x.taken[d] += sign; x.taken[d] <= 0 {
			delete(x.taken, d)
		}
	}
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

// Devices lists what a worker offers, whoever has it.
func (s *Site) Devices(worker string) (out []spec.DeviceOffer) {
	n := s.find(worker)
	if n < 0 || s.more[n] == nil {
		return nil
	}
	for i := range s.more[n].devices {
		out = append(out, s.more[n].devices[i].DeviceOffer)
	}
	return out
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
	names, _ := spec.PickDevices(s.freeDevices(n), s.accelerators(n, spec))
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
		_, missing := c.spec.PickDevices(c.s.freeDevices(b*64+i), c.s.accelerators(b*64+i, c.spec))
		if missing != nil && !(c.bare && c.taken(b*64+i)) {
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
	all := make([]spec.DeviceOffer, len(x.devices))
	for i, d := range x.devices {
		all[i] = d.DeviceOffer
	}
	_, missing := c.spec.PickDevices(all, c.s.accelerators(n, c.spec))
	return missing == nil
}

// Reason counts, and names nobody who has a device: that may be another organisation's. The operator sees it in `skerry get devices`.
func (c *attachable) Reason(n int) wire.Reason {
	_, missing := c.spec.PickDevices(c.s.freeDevices(n), c.s.accelerators(n, c.spec))
	if missing == nil {
		missing = &spec.DeviceRequest{}
	}
	there, full := 0, 0
	if x := c.s.more[n]; x != nil {
		users := x.users()
		for i := range x.devices {
			if d := &x.devices[i]; missing.Fits(&d.DeviceOffer) {
				if there++; users(d) >= d.shares {
					full++
				}
			}
		}
	}
	if c.taken(n) {
		return wire.Reason{What: "devices", Text: fmt.Sprintf("other instances have its devices %s: %d of %d are taken", missing, full, there),
			Hint: "add one, ask for fewer, or let instances share them (skerry worker --device-class)"}
	}
	return wire.Reason{What: "devices", Text: fmt.Sprintf("it has not as many devices %s as are asked for: %d", missing, there),
		Hint: "plug one in, let the worker offer what it finds (--device-class), or describe it " +
			"(--device-file, /etc/cdi); `skerry get devices` lists them"}
}

// neededDevices lists what a class of workers must have: the devices by which a service chooses a worker, and those that it is given.
func neededDevices(s *spec.ServiceSpec) []string {
	if len(s.Devices) == 0 {
		return s.Placement.Devices
	}
	return append(s.DeviceClasses(), s.Placement.Devices...)
}
