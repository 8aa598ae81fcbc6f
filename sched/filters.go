package sched

import (
	"fmt"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/coord"
)

// Reachable rules out workers that are not in touch or take nothing new.
type Reachable struct{}

func (Reachable) Name() string { return "reachable" }

func (Reachable) Check(_ *Request, w *Worker) *skerry.Reason {
	switch {
	case w.Lost:
		return &skerry.Reason{What: "reachable", Text: "it is not in touch"}
	case w.Refusing != "":
		return &skerry.Reason{What: "refusing", Text: "it takes nothing new: " + w.Refusing}
	}
	return nil
}

// NotTried rules out workers that failed at this instance in this round.
type NotTried struct{}

func (NotTried) Name() string { return "not-tried" }

func (NotTried) Check(r *Request, w *Worker) *skerry.Reason {
	if slices.Contains(r.Avoid, w.Name) {
		return &skerry.Reason{What: "tried", Text: "it was tried just now and failed"}
	}
	return nil
}

// Virtualization rules out workers without the runtime that the service needs (Schema 1: virtualization).
type Virtualization struct{}

func (Virtualization) Name() string { return "virtualization" }

func (Virtualization) Check(r *Request, w *Worker) *skerry.Reason {
	if ok, need := RuntimeFits(r.Spec, w.Runtimes); !ok {
		return &skerry.Reason{What: "runtime", Text: "it offers no working runtime " + need,
			Hint: "`skerry worker check` on the worker tells what is missing"}
	}
	return nil
}

// RuntimeFits reports whether one of the runtimes can run the service, and names the one it needs.
func RuntimeFits(s *skerry.ServiceSpec, runtimes []string) (bool, string) {
	need := s.Runtime
	if need == "" || need == "auto" {
		need = "oci"
	}
	return slices.Contains(runtimes, need), need
}

// Capacity rules out workers with too little of a resource left (Algorithm 2, line 1: CPU and memory; the others are
// counted in the same way).
type Capacity struct{}

func (Capacity) Name() string { return "capacity" }

func (Capacity) Check(r *Request, w *Worker) *skerry.Reason {
	have, need := w.Available.Vector(), r.Need.Vector()
	for i := range need {
		if need[i] > 0 && need[i] > have[i] {
			short := int(100 * (need[i] - max(have[i], 0)) / need[i])
			return &skerry.Reason{What: skerry.ResourceNames[i], Count: short,
				Text: fmt.Sprintf("needs %s of %s, %s is free", amount(i, need[i]), skerry.ResourceNames[i], amount(i, max(have[i], 0))),
				Hint: fmt.Sprintf("ask for less %s, free some, or add a worker", skerry.ResourceNames[i])}
		}
	}
	return nil
}

func amount(i int, v int64) string {
	switch i {
	case 0:
		return skerry.MilliCPU(v).String()
	case 3, 4:
		return fmt.Sprint(v)
	}
	return skerry.Bytes(v).String()
}

// Area rules out workers outside the area asked for (Schema 1: area).
type Area struct{}

func (Area) Name() string { return "area" }

func (Area) Check(r *Request, w *Worker) *skerry.Reason {
	if a := r.Spec.Placement.Area; a != "" && a != w.Area {
		return &skerry.Reason{What: "area", Text: fmt.Sprintf("it is in area %q, not %q", w.Area, a)}
	}
	return nil
}

// Distance rules out workers too far from the location asked for (Schema 1: location and threshold).
type Distance struct{}

func (Distance) Name() string { return "distance" }

func (Distance) Check(r *Request, w *Worker) *skerry.Reason {
	p := r.Spec.Placement
	if p.Location == nil || p.MaxDistance == 0 {
		return nil
	}
	if w.Location == nil {
		return &skerry.Reason{What: "location", Text: "its location is not known", Hint: "start the worker with --location LAT,LON"}
	}
	if km := coord.GreatCircleKm(*p.Location, *w.Location); km > p.MaxDistance {
		return &skerry.Reason{What: "distance", Count: int(km - p.MaxDistance), Text: fmt.Sprintf("it is %.1f km away, at most %.1f km are allowed", km, p.MaxDistance)}
	}
	return nil
}

// HostPorts rules out workers on which a port asked for is taken.
type HostPorts struct{}

func (HostPorts) Name() string { return "host-ports" }

func (HostPorts) Check(r *Request, w *Worker) *skerry.Reason {
	for _, p := range r.Spec.Ports {
		if p.HostPort > 0 && w.HostPorts[PortKey(p.Proto(), p.HostPort)] {
			return &skerry.Reason{What: "hostPort", Text: fmt.Sprintf("host port %d is taken", p.HostPort),
				Hint: "choose another port, or hostPort: -1 to let the worker choose"}
		}
	}
	return nil
}

// PortKey names a host port.
func PortKey(proto string, port int) string { return fmt.Sprintf("%s/%d", proto, port) }
