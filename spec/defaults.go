package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"skerry.dev/skerry"
)

// DefaultNamespace is where an application goes that names none.
const DefaultNamespace = "default"

// SetDefaults fills in what the manifest left out, so that no later reader needs to know the defaults.
func (a *Application) SetDefaults() {
	if a.Metadata.Namespace == "" {
		a.Metadata.Namespace = DefaultNamespace
	}
	for i := range a.Spec.Services {
		if x := a.Spec.Services[i].Addresses; x != nil {
			x.setDefaults()
		}
		a.Spec.Services[i].setDefaults()
		for j := range a.Spec.Services[i].StartAfter {
			a.Spec.Services[i].StartAfter[j].setDefaults(&a.Spec)
		}
	}
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func ptrDefault[T any](p **T, d T) {
	if *p == nil {
		*p = &d
	}
}

func (s *ServiceSpec) setDefaults() {
	orDefault(&s.Mode, ModeService)
	orDefault(&s.Runtime, "auto")
	orDefault(&s.Isolation, IsolationShared)
	orDefault(&s.OnDisconnect, OnDisconnectRun)
	orDefault(&s.OnReconnect, KeepReplacement)
	if s.Mode == ModeService {
		s.scaleDefaults()
		ptrDefault(&s.Replicas, 1)
	}
	if s.Mode == ModeJob || s.Mode == ModeCron {
		if s.Job == nil {
			s.Job = &JobSpec{}
		}
		ptrDefault(&s.Job.Completions, 1)
		ptrDefault(&s.Job.Parallelism, 1)
		ptrDefault(&s.Job.BackoffLimit, 6)
		ptrDefault(&s.Job.TTL, Duration(time.Hour))
		orDefault(&s.Restart.Policy, "never")
	}
	if s.Cron != nil {
		orDefault(&s.Cron.Concurrency, "forbid")
	}
	if s.Placement.Policy == "" {
		s.Placement.Policy = PolicyROM
		if s.Constrained() {
			s.Placement.Policy = PolicyLDP
		}
	}
	ptrDefault(&s.Placement.Rigidness, 0.5)
	for _, list := range [][]Affinity{s.Placement.Affinity, s.Placement.AntiAffinity} {
		for i := range list {
			orDefault(&list[i].Over, "worker")
		}
	}
	ptrDefault(&s.Placement.ConvergenceTime, Duration(30*time.Second))
	orDefault(&s.Restart.Policy, "always")
	ptrDefault(&s.Restart.MaxAttempts, 5)
	orDefault(&s.Restart.Window, Duration(10*time.Minute))
	orDefault(&s.Restart.Backoff, Duration(500*time.Millisecond))
	orDefault(&s.Restart.MaxBackoff, Duration(time.Minute))
	orDefault(&s.Update.Strategy, "rolling")
	surge, missing := s.updateRoom()
	ptrDefault(&s.Update.MaxSurge, surge)
	ptrDefault(&s.Update.MaxUnavailable, missing)
	s.Update.setDefaults(s.Mode)
	s.secretDefaults()
	ptrDefault(&s.TerminationGrace, Duration(10*time.Second))
	orDefault(&s.Resources.Pids, 512)
	orDefault(&s.Resources.CPU, skerry.MilliCPU(1000*s.Resources.ExclusiveCPUs))
	s.Resources.limitDefaults()
	for _, list := range [][]SideContainer{s.Init, s.Sidecars} {
		for i := range list {
			list[i].Resources.limitDefaults()
		}
	}
	orDefault(&s.Logs.MaxSize, 10*skerry.MiB)
	s.Probes.Startup.setDefaults(time.Second, 30)
	s.Probes.Readiness.setDefaults(10*time.Second, 3)
	s.Probes.Liveness.setDefaults(10*time.Second, 3)
	for i := range s.Ports {
		s.Ports[i].Name, s.Ports[i].Protocol = s.Ports[i].PortName(), s.Ports[i].Proto()
	}
	for i := range s.Ingress {
		s.Ingress[i].setDefaults()
	}
	for i := range s.Volumes {
		if e := s.Volumes[i].Empty; e != nil && e.Memory {
			orDefault(&e.Size, 64*skerry.MiB)
		}
	}
	if s.Metrics != nil {
		orDefault(&s.Metrics.Path, "/metrics")
	}
}

// HealthyTime is for how long an instance of a new version of a service must have been ready to count, if its manifest does not say.
const HealthyTime = 10 * time.Second

func (u *UpdateSpec) setDefaults(m Mode) {
	if k := u.Canary; k != nil {
		if k.Percent == 0 {
			orDefault(&k.Count, 1)
		}
		orDefault(&k.For, Duration(time.Minute))
	}
	if m == ModeService || m.HasCopies() {
		orDefault(&u.Rollback, RollbackAutomatic)
		ptrDefault(&u.HealthyTime, Duration(HealthyTime))
	}
	orDefault(&u.Rollback, RollbackOff)
	ptrDefault(&u.HealthyTime, 0)
	ptrDefault(&u.Failures, 3)
	ptrDefault(&u.Deadline, Duration(10*time.Minute))
}

func (p *Probe) setDefaults(interval time.Duration, failures int) {
	if p == nil {
		return
	}
	orDefault(&p.Interval, Duration(interval))
	orDefault(&p.Timeout, Duration(time.Second))
	orDefault(&p.Failures, failures)
	orDefault(&p.Successes, 1)
	if p.HTTP != nil {
		orDefault(&p.HTTP.Path, "/")
	}
}

// Revision names what an instance runs: a change of anything but the number of instances and how they are replaced
// makes a new one. It is twelve hexadecimal digits of a SHA-256.
func (s *ServiceSpec) Revision() string {
	t := *s
	t.Replicas, t.Scale, t.Update, t.Job, t.Cron = nil, nil, UpdateSpec{}, nil, nil
	// Ways to a service are no part of its instances.
	t.Addresses, t.Export, t.Ingress, t.Aliases, t.Needs = nil, nil, nil, nil, nil
	// How hard to look for a place, and how soon for a better one, does not make an instance another.
	t.Placement.Rigidness, t.Placement.ConvergenceTime, t.Placement.Priority = nil, nil, 0
	t.Links = slices.Clone(t.Links)
	for i := range t.Links {
		t.Links[i].Rigidness, t.Links[i].ConvergenceTime = nil, nil
	}
	t.Description, t.StartAfter = "", nil
	t.Snapshots = nil // a copy is made beside the instance
	t.Platforms = nil // follows from the images
	t.Volumes = withoutReclaim(t.Volumes)
	data, err := json.Marshal(t)
	if err != nil {
		panic("a service spec always marshals: " + err.Error())
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// HostPaths lists the paths of its worker's machine to which a service may write.
func (s *ServiceSpec) HostPaths() []string {
	writes := map[string]bool{}
	see := func(c *Container) {
		for _, m := range c.Mounts {
			writes[m.Volume] = writes[m.Volume] || !m.ReadOnly
		}
	}
	see(&s.Container)
	for i := range s.Init {
		see(&s.Init[i].Container)
	}
	for i := range s.Sidecars {
		see(&s.Sidecars[i].Container)
	}
	var out []string
	for _, v := range s.Volumes {
		if v.Host != nil && writes[v.Name] {
			out = append(out, v.Host.Path)
		}
	}
	return out
}

// Images lists the image references of a service, each once.
func (s *ServiceSpec) Images() []string {
	var out []string
	seen := map[string]bool{"": true}
	add := func(ref string) {
		if !seen[ref] {
			seen[ref] = true
			out = append(out, ref)
		}
	}
	add(s.Image)
	for _, c := range s.Init {
		add(c.Image)
	}
	for _, c := range s.Sidecars {
		add(c.Image)
	}
	return out
}

// Warnings names what a valid application asks for and will not get.
func (a *Application) Warnings() []string {
	var out []string
	for i := range a.Spec.Services {
		s := &a.Spec.Services[i]
		if s.Placement.Policy == PolicyROM && s.Constrained() {
			out = append(out, s.Name+": policy rom looks at resources alone; the limits of links and users need policy ldp or any other")
		}
	}
	return out
}
