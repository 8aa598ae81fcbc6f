package spec

import (
	"fmt"
	"time"

	"skerry.dev/skerry"
)

// saturationPoint is a rate at which the thesis saw a service saturate in a microVM (Kata Containers on Firecracker: all of its limit in
// use, and requests take much longer) and not in a container.
type saturationPoint struct {
	limit     skerry.MilliCPU
	rate      float64 // requests per second
	container float64 // share of the limit that a container used at that rate, the middle of the range that is printed
	where     string
}

// saturationPoints are those of chapter 5, section 5.3.1: the image service without pinning and without neighbours.
var saturationPoints = []saturationPoint{
	{500, 8, 0.575, "table 5.1, figure 5.2"},
	{1000, 16, 0.60, "table 5.5, figure 5.3"},
	{1500, 25, 0.625, "table 5.9, figure 5.4"},
}

// PublishedDemand gives the processor time of a request of that service, in seconds: in a container, and in a microVM.
func PublishedDemand() (container, microVM float64) {
	for _, p := range saturationPoints {
		second := float64(p.limit) / 1000 / p.rate // all of the limit, over the requests of a second
		microVM += second / float64(len(saturationPoints))
		container += second * p.container / float64(len(saturationPoints))
	}
	return container, microVM
}

// RuntimeFigure is how much of a processor a runtime takes for the same work.
type RuntimeFigure struct {
	// CPU is a multiple of what it takes in a container; 0: there is no figure.
	CPU    float64 `json:"cpu,omitempty"`
	Source string  `json:"source,omitempty"` // begins with published or measured
}

// PublishedFigure gives the figure for a runtime that was printed. Whatever is not in it was not measured in what Skerry is built from.
func PublishedFigure(runtime string) RuntimeFigure {
	container, microVM := PublishedDemand()
	kind, _ := ParseRuntime(runtime)
	switch kind {
	case RuntimeOCI:
		return RuntimeFigure{1, "published: what the others are compared with"}
	case RuntimeContainerd:
		return RuntimeFigure{1, "published: thesis, regular containers, which a containerd ran with runc"}
	case RuntimeNative:
		return RuntimeFigure{4.209 / 4.243, "published: WoWMoM 2016, table 1, integer index (native 4.243, Docker 4.209)"}
	case RuntimeMicroVM, runtimeHardwareClass:
		return RuntimeFigure{microVM / container, "published: thesis, section 5.3.1, tables 5.1, 5.5 and 5.9 (Kata Containers on Firecracker saturate at 8, 16 and 25 requests per second, where runc uses 55 to 65 % of its limit)"}
	}
	return RuntimeFigure{}
}

const (
	// clearShare is up to which share of its saturation point a service counts as clear of it, and clearShareLatency the same for one that
	// has a latency objective. The mean latencies of the thesis (tables 5.1, 5.5, 5.9) are up to 23 % above those at rest at 0.5 to 0.6 of
	// the saturation rate, up to 27 % at 0.75 to 0.8, and 34 to 360 % at the point itself; the slowest of a hundred requests suffers sooner.
	clearShare, clearShareLatency = 0.8, 0.6
	// MaxExpectedRate bounds what an instance may be expected to bear, in requests per second.
	MaxExpectedRate = 1e6
)

// ClearShare is the share of a saturation point up to which the service is clear of it.
func (s *ServiceSpec) ClearShare() float64 {
	if s.LatencyObjective > 0 {
		return clearShareLatency
	}
	return clearShare
}

// Saturation gives the requests per second at which an instance uses all of resources.cpu in a runtime that takes so
// many times the processor time of a container; 0: it is not known. A request is taken to need as much as one of the
// published service, and at most as long as its answer may take.
func (s *ServiceSpec) Saturation(cpu float64) float64 {
	if cpu <= 0 || s.Resources.CPU <= 0 {
		return 0
	}
	return float64(s.Resources.CPU) / 1000 / (s.requestCPU() * cpu)
}

// requestCPU is the processor time that a request is taken to need in a container, in seconds.
func (s *ServiceSpec) requestCPU() float64 {
	d, _ := PublishedDemand()
	if l := time.Duration(s.LatencyObjective).Seconds(); l > 0 {
		d = min(d, l)
	}
	return d
}

// clear reports whether an instance with the expected rate stays clear of its saturation point in a runtime of such a multiple.
func (s *ServiceSpec) clear(cpu float64) bool {
	at := s.Saturation(cpu)
	return at > 0 && s.ExpectedRate <= s.ClearShare()*at
}

// choose takes of some runtimes, the cheapest first, that in which an instance is to run: the first that is clear of
// its saturation point, else the one with the most head-room, else, where no figure tells of any, the first.
func (s *ServiceSpec) choose(list []string, costs RuntimeCosts) string {
	if len(list) == 0 {
		return ""
	}
	if s.ExpectedRate <= 0 || len(list) == 1 {
		return list[0]
	}
	best, least := list[0], 0.0
	for _, name := range list {
		cpu := costs.of(name)
		if s.clear(cpu) {
			return name
		}
		if cpu > 0 && (least == 0 || cpu < least) {
			best, least = name, cpu
		}
	}
	return best
}

// Crowded tells why an instance is not clear of its saturation point in a runtime of a worker with such costs; empty where it is, or where
// nothing is expected of it. What no figure tells of is not clear.
func (s *ServiceSpec) Crowded(runtime string, costs RuntimeCosts) string {
	if s.ExpectedRate <= 0 || runtime == "" {
		return ""
	}
	cpu := costs.of(runtime)
	switch at := s.Saturation(cpu); {
	case s.clear(cpu):
		return ""
	case at == 0:
		return fmt.Sprintf("no figure tells at which rate runtime %s saturates", runtime)
	default:
		return fmt.Sprintf("%.3g requests per second are %.0f %% of the rate at which runtime %s saturates with %s of a processor, more than %.0f %%",
			s.ExpectedRate, 100*s.ExpectedRate/at, runtime, s.Resources.CPU, 100*s.ClearShare())
	}
}

// Relief lists the runtimes in which an instance would be clear of its saturation point on a worker of other costs, the
// cheapest first, if it uses a share of its processor time in one on a worker of such costs now. None of them keeps it
// apart less than it asks for, and those of which no figure tells are not among them.
func (s *ServiceSpec) Relief(runtime string, share float64, here, there RuntimeCosts) (out []string) {
	was := here.of(runtime)
	for _, name := range s.Runtimes() {
		if cpu := there.of(name); was > 0 && cpu > 0 && min(share, 1)*cpu/was <= s.ClearShare() {
			out = append(out, name)
		}
	}
	return out
}

// saturation refuses what is said of requests where nothing follows from it.
func (c *checker) saturation(path string, service *ServiceSpec) {
	for _, f := range []struct {
		name  string
		given bool
	}{{"latencyObjective", service.LatencyObjective != 0}, {"expectedRate", service.ExpectedRate != 0}} {
		at := path + "." + f.name
		switch {
		case !f.given:
		case service.Runtime != "" && service.Runtime != RuntimeAuto:
			c.add(at, "leave out either", "it is for the choice of a runtime, and the service names %s", service.Runtime)
		case service.Mode != "" && service.Mode != ModeService && !service.Mode.HasCopies():
			c.add(at, "", "requests come to services, not in mode %s", service.Mode)
		case len(service.Ports) == 0:
			c.add(at, "add ports", "no requests come to a service without ports")
		case service.Resources.CPU <= 0 && service.Resources.ExclusiveCPUs <= 0:
			c.add(at, "give resources.cpu", "what an instance bears depends on resources.cpu, which is not given")
		}
	}
	if service.ExpectedRate != 0 && !(service.ExpectedRate >= 0.001 && service.ExpectedRate <= MaxExpectedRate) {
		c.add(path+".expectedRate", "it is in requests per second and instance", "must be from 0.001 to %d", int(MaxExpectedRate))
	}
	if l := time.Duration(service.LatencyObjective); l != 0 && (l < time.Millisecond || l > time.Hour) {
		c.add(path+".latencyObjective", "", "%s is out of range; from 1ms to 1h is allowed", l)
	}
}
