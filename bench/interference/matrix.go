package interference

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
)

// Bare is the place of processes in a cgroup, and nothing else.
const Bare = "bare"

// How places are pinned: no service, each of them, or those in machines alone.
const (
	PinNone = "none"
	PinBoth = "both"
	PinOne  = "one"
)

// Neighbours are the resources that a neighbour can take.
func Neighbours() []string { return []string{"cpu", "memory", "cache", "disk", "network"} }

// counters are the events of perf that the thesis counted, and pressures the resources that tasks are known to wait for.
func counters() []string {
	return []string{"cycles", "instructions", "context-switches", "cpu-migrations", "cache-references", "cache-misses"}
}
func pressures() []string { return []string{"cpu", "memory", "io"} }

// Services are those that can be measured, programs of examples/services. Image is that of the thesis.
const (
	Image     = "image"
	Database  = "database"
	Inference = "inference"
	Video     = "video"
	MQTT      = "mqtt"
)

// Services are all services, with how many requests cost about as much of a processor as one of the image service: so many times its
// rates are those of the others, and take about the same share of a limit (docs/results/before-reports.md has what was measured).
func Services() []string { return []string{Image, Database, Inference, Video, MQTT} }

func perImage(service string) float64 {
	return map[string]float64{Image: 1, Database: 30, Inference: 12, Video: 2, MQTT: 80}[service]
}

// Setting is what a row is of, but for place and rate.
type Setting struct {
	Service      string
	CPU          float64 // limit of the service, in processors
	Memory       int64   // limit of the service, in bytes
	Pin          string
	Interference float64 // limit of the neighbour, in processors; 0: none
	Neighbour    string  // what it takes
}

// beside names the neighbour and how services are pinned.
func (s Setting) beside() string {
	if s.Interference == 0 {
		return "alone, pin " + s.Pin
	}
	return fmt.Sprintf("beside %s %g, pin %s", s.Neighbour, s.Interference, s.Pin)
}

// name is what a report calls a setting.
func (s Setting) name() string { return fmt.Sprintf("%s, %g CPU, %s", s.Service, s.CPU, s.beside()) }

// group is a setting with its rates.
type group struct {
	Setting
	rates []float64
}

// thesis is the matrix of the thesis (004, section 5.1), and two rows of ours that a machine of two processors can run;
// for services other than the one of the thesis it is the same, at their rates.
func thesis(service string) []group {
	return []group{
		newGroup(service, 0.5, PinNone, 0, "", nil), newGroup(service, 1, PinNone, 0, "", nil), newGroup(service, 1.5, PinNone, 0, "", nil),
		newGroup(service, 1, PinNone, 1, "cpu", nil), newGroup(service, 1, PinBoth, 1, "cpu", nil),
		newGroup(service, 2, PinBoth, 1, "cpu", nil), newGroup(service, 2, PinBoth, 1.5, "cpu", nil),
		newGroup(service, 2, PinOne, 1, "cpu", nil), newGroup(service, 2, PinOne, 1.5, "cpu", nil),
	}
}

// newGroup makes a group; no rates stand for those of the thesis at this limit, times what a service does of the requests.
func newGroup(service string, cpu float64, pin string, interference float64, neighbour string, rates []float64) group {
	if len(rates) == 0 {
		switch {
		case cpu <= 0.5:
			rates = []float64{2, 4, 6, 8}
		case cpu <= 1:
			rates = []float64{4, 8, 12, 16}
		case cpu <= 1.5:
			rates = []float64{10, 15, 20, 25}
		default:
			rates = []float64{15, 20, 25, 30}
		}
		for i := range rates {
			rates[i] *= perImage(service)
		}
	}
	if interference == 0 {
		neighbour = ""
	}
	return group{Setting{Service: service, CPU: cpu, Memory: int64(cpu * float64(skerry.GiB)), Pin: pin, Interference: interference,
		Neighbour: neighbour}, rates}
}

// Choice narrows the matrix. With nothing chosen but services it is that of the thesis; else each choice is combined
// with each, and what is not chosen is the image service with 0.5 processors, not pinned, without interference, at the
// rates of the thesis.
type Choice struct {
	Services                 []string
	CPU, Interference, Rates []float64
	Pin, Neighbours          []string
}

func (c Choice) groups() ([]group, error) {
	for what, list := range map[string][]float64{"--cpu": c.CPU, "--rates": c.Rates, "--interference": c.Interference} {
		for _, v := range list {
			if !(v >= 0 && v <= 10000) || v < 0.01 && what != "--interference" {
				return nil, skerry.Errorf(skerry.CodeInvalid, "%s: %g cannot be", what, v)
			}
		}
	}
	for _, s := range c.Services {
		if !slices.Contains(Services(), s) {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--service: there is none of %q", s).WithHint("there are %s",
				strings.Join(Services(), ", "))
		}
	}
	for _, p := range c.Pin {
		if p != PinNone && p != PinBoth && p != PinOne {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--pin: %q is not known", p).WithHint("use none, both or one, which is machines alone")
		}
	}
	for _, n := range c.Neighbours {
		if !slices.Contains(Neighbours(), n) {
			return nil, skerry.Errorf(skerry.CodeInvalid, "--neighbour: there is none of %q", n).WithHint("there are %s",
				strings.Join(Neighbours(), ", "))
		}
	}
	var out []group
	services := or(c.Services, Image)
	if len(c.CPU)+len(c.Interference)+len(c.Rates)+len(c.Pin)+len(c.Neighbours) == 0 {
		for i, service := range services {
			if !slices.Contains(services[:i], service) {
				out = append(out, thesis(service)...)
			}
		}
		return out, nil
	}
	if len(c.Interference) == 0 {
		c.Interference = []float64{0}
		if len(c.Neighbours) > 0 {
			c.Interference = []float64{0, 1} // a neighbour was asked for
		}
	}
	for _, service := range services {
		for _, cpu := range or(c.CPU, 0.5) {
			for _, pin := range or(c.Pin, PinNone) {
				for _, load := range c.Interference {
					for _, neighbour := range or(c.Neighbours, "cpu") {
						g := newGroup(service, cpu, pin, load, neighbour, c.Rates)
						if !slices.ContainsFunc(out, func(o group) bool { return o.Setting == g.Setting }) {
							out = append(out, g)
						}
					}
				}
			}
		}
	}
	return out, nil
}

func or[T any](list []T, one T) []T {
	if len(list) == 0 {
		return []T{one}
	}
	return list
}

// layout says who runs on which processors. The generator has the first one to itself, but for neighbours.
type layout struct {
	generator          int
	service, neighbour []int
}

// arrange lays a setting out on a machine's processors, or tells why it does not fit.
func arrange(cpus []int, s Setting, pinned bool) (l layout, why string) {
	need := int(math.Ceil(s.CPU))
	if have := len(cpus) - 1; need > have {
		return l, fmt.Sprintf("the service needs %d processors and may have %d of %d here: the generator needs one", need, have, len(cpus))
	}
	l = layout{generator: cpus[0], service: cpus[1:], neighbour: cpus}
	if pinned { // exclusively
		at := len(cpus) - need
		l.service, l.neighbour = cpus[at:], cpus[:at]
	}
	if n := int(math.Ceil(s.Interference)); n > len(l.neighbour) {
		return l, fmt.Sprintf("a neighbour of %g processors needs %d, and %d are left beside the service's", s.Interference, n, len(l.neighbour))
	}
	return l, ""
}

// list writes processors as the kernel takes them.
func list(cpus []int) string {
	var out []string
	for _, c := range cpus {
		out = append(out, strconv.Itoa(c))
	}
	return strings.Join(out, ",")
}
