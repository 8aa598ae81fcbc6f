package spec

import (
	"time"
)

// ScaleSpec has the number of a service's instances follow their load. The tier that owns the application decides, and a site
// about its share while the root is away.
type ScaleSpec struct {
	Min    *int        `json:"min,omitempty" doc:"Minimum number of instances; 0 for a service with an ingress, which holds requests until an instance has started. Default: 1." min:"0" max:"10000"`
	Max    int         `json:"max" doc:"Maximum number of instances." min:"1" max:"10000"`
	Target ScaleTarget `json:"target,omitempty" doc:"Target load of an instance. With runtime auto and without cpu, more instances also start near the runtime's saturation point. Default: {cpu: 0.7}."`
	// Up and Down keep what flickers from being followed: for how long more, or fewer, instances must have been wanted.
	Up   *Duration `json:"up,omitempty" doc:"Time for which more instances must have been needed before the number increases. Default: 0s, at most 1h."`
	Down *Duration `json:"down,omitempty" doc:"Time for which fewer instances must have been needed before the number decreases. Default: 5m, at most 24h."`
}

// ScaleTarget is what an instance is to bear; of several the one counts that asks for most instances.
type ScaleTarget struct {
	CPU      *float64  `json:"cpu,omitempty" doc:"Share of resources.cpu in use, averaged over the instances." min:"0.05" max:"1"`
	Requests *float64  `json:"requests,omitempty" doc:"Requests, or TCP connections, per second and instance that arrive through ingresses." min:"0.01"`
	Queue    *float64  `json:"queue,omitempty" doc:"Requests in flight at ingresses, per instance." min:"0.1"`
	Latency  *Duration `json:"latency,omitempty" doc:"Mean time that requests take at ingresses. At least 1ms."`
}

// Limits gives the fewest and the most instances.
func (s *ScaleSpec) Limits() (lo, hi int) {
	lo = 1
	if s.Min != nil {
		lo = *s.Min
	}
	return lo, s.Max
}

// Windows gives for how long more, and fewer, instances must have been wanted.
func (s *ScaleSpec) Windows() (up, down time.Duration) {
	down = 5 * time.Minute
	if s.Up != nil {
		up = time.Duration(*s.Up)
	}
	if s.Down != nil {
		down = time.Duration(*s.Down)
	}
	return up, down
}

func (s *ServiceSpec) scaleDefaults() {
	if s.Scale == nil {
		return
	}
	t := *s.Scale // manifests are shared
	ptrDefault(&t.Min, 1)
	ptrDefault(&t.Up, 0)
	ptrDefault(&t.Down, Duration(5*time.Minute))
	if t.Target == (ScaleTarget{}) {
		ptrDefault(&t.Target.CPU, 0.7)
	}
	s.Scale = &t
	ptrDefault(&s.Replicas, max(1, *t.Min)) // one that sleeps must have been somewhere, to be woken there
}

// Sleeps reports whether a service may have no instance at all, while nothing comes by its ingresses.
func (s *ServiceSpec) Sleeps() bool {
	return s.Scale != nil && s.Scale.Min != nil && *s.Scale.Min == 0 && len(s.Ingress) > 0
}

func (c *checker) scale(path string, service *ServiceSpec) {
	if service.Scale == nil {
		return
	}
	path += ".scale"
	if service.Mode != "" && service.Mode != ModeService {
		c.add(path, "jobs use job.parallelism; perWorker follows the workers, perDevice their devices",
			"scale only means something in mode service, not %s", service.Mode)
	}
	lo, hi := service.Scale.Limits()
	c.between(path+".min", lo, 0, 10000)
	if lo == 0 && len(service.Ingress) == 0 {
		c.add(path+".min", "add an ingress, or keep one instance", "nothing wakes a service without an ingress")
	}
	if lo == 0 && len(service.Export) > 0 {
		c.add(path+".min", "keep one instance", "what other applications ask of the service does not come by an ingress, and would find nobody")
	}
	c.between(path+".max", hi, 1, 10000)
	if lo > hi {
		c.add(path+".max", "", "%d is less than min, %d", hi, lo)
	}
	if t := service.Scale.Target.CPU; t != nil && !(*t >= 0.05 && *t <= 1) {
		c.add(path+".target.cpu", "0.7 leaves room for what comes while another instance starts", "must be from 0.05 to 1")
	}
	if target := service.Scale.Target; (target.CPU != nil || target == ScaleTarget{}) && service.Resources.CPU <= 0 {
		c.add(path+".target.cpu", "give resources.cpu", "is a share of resources.cpu, which is not given")
	}
	target := service.Scale.Target
	if (target.Requests != nil || target.Queue != nil || target.Latency != nil) && len(service.Ingress) == 0 {
		c.add(path+".target", "add an ingress, or use cpu", "requests are counted at ingresses, and the service has none")
	}
	if target.Requests != nil && !(*target.Requests >= 0.01) {
		c.add(path+".target.requests", "", "must be at least 0.01 a second")
	}
	if target.Queue != nil && !(*target.Queue >= 0.1) {
		c.add(path+".target.queue", "", "must be at least 0.1")
	}
	if target.Latency != nil && time.Duration(*target.Latency) < time.Millisecond {
		c.add(path+".target.latency", "", "must be at least 1ms")
	}
	up, down := service.Scale.Windows()
	for _, w := range []struct {
		name string
		d    time.Duration
		max  time.Duration
	}{{"up", up, time.Hour}, {"down", down, 24 * time.Hour}} {
		if w.d < 0 || w.d > w.max {
			c.add(path+"."+w.name, "", "%s is out of range; from 0s to %s is allowed", w.d, w.max)
		}
	}
}
