package spec

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// Limits of one application.
const (
	MaxServices    = 200
	MaxContainers  = 20
	MaxConfigBytes = 256 << 10
	MaxLinks       = 100
	MaxVolumes     = 100
	MaxMounts      = 200 // of all containers of a service: a worker's kernel has room for some 100,000
	MaxConfigFiles = 100
	MaxPorts       = 256
)

type checker struct{ problems []skerry.Problem }

func (c *checker) add(path, hint, format string, args ...any) {
	if len(c.problems) < 50 {
		c.problems = append(c.problems, skerry.Problem{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
}

func (c *checker) name(path, s string) {
	if err := skerry.CheckName(s); err != nil {
		c.add(path, "", "%s", err)
	}
}

func (c *checker) oneOf(path, s string, allowed ...string) {
	if s != "" && !slices.Contains(allowed, s) {
		c.add(path, suggestValue(s, allowed), "%q is not known; allowed: %s", s, strings.Join(allowed, ", "))
	}
}

// otherValues are words that somebody may write who knows other systems.
var otherValues = map[string]string{
	"kata":             "Kata Containers are a shim of a containerd: runtime: containerd with runtimeClass: NAME, on workers with --containerd-class NAME=io.containerd.kata.v2,isolation=hardware; microvm runs an image in a virtual machine without either",
	"firecracker":      "microvm runs an image in a small virtual machine; a worker runs it on Firecracker by --microvm-monitor",
	"cloud-hypervisor": "microvm runs an image in a small virtual machine; a worker runs it on Cloud Hypervisor by --microvm-monitor",
	"docker":           "oci runs the same images without a daemon; containerd runs them with the daemon that Docker also uses",
	"crun":             "that is how runtime oci runs containers", "runc": "that is how runtime oci runs containers",
	"runsc": "runtime gvisor", "qemu": "microvm for images, vm for disks, unikernel for kernels",
}

func suggestValue(s string, allowed []string) string {
	if hint := otherValues[s]; hint != "" {
		return hint
	}
	for _, a := range allowed {
		if EditDistance(strings.ToLower(s), strings.ToLower(a)) <= 2 {
			return fmt.Sprintf("did you mean %q?", a)
		}
	}
	return ""
}

func (c *checker) between(path string, n, lo, hi int) {
	if n < lo || n > hi {
		c.add(path, "", "%d is out of range; from %d to %d is allowed", n, lo, hi)
	}
}

func (c *checker) absolute(p, s string) {
	if !path.IsAbs(s) || path.Clean(s) != s || strings.ContainsRune(s, 0) {
		c.add(p, "", "%q must be an absolute path without . or .. parts", s)
	}
}

// Validate checks a decoded application and gives an *Error of code invalid that lists every problem, or nil.
func (a *Application) Validate() error {
	c := &checker{}
	if a.APIVersion != APIVersion {
		c.add("apiVersion", "write apiVersion: "+APIVersion, "%q is not known", a.APIVersion)
	}
	if a.Kind != KindApplication {
		c.add("kind", "write kind: "+KindApplication, "%q is not known", a.Kind)
	}
	c.name("metadata.name", a.Metadata.Name)
	if a.Metadata.Namespace != "" {
		c.name("metadata.namespace", a.Metadata.Namespace)
	}
	c.description("metadata.description", a.Metadata.Description)
	if n := len(a.Spec.Services); n == 0 {
		c.add("spec.services", "", "an application needs at least one service")
	} else if n > MaxServices {
		c.add("spec.services", "split the application", "%d services; at most %d are allowed", n, MaxServices)
	}
	self := a.Key()
	orDefault(&self.Namespace, DefaultNamespace)
	seen := map[string]bool{}
	for i := range a.Spec.Services {
		s := &a.Spec.Services[i]
		p := fmt.Sprintf("spec.services[%d]", i)
		if seen[s.Name] {
			c.add(p+".name", "service names are unique within an application", "a second service is called %q", s.Name)
		}
		seen[s.Name] = true
		c.description(p+".description", s.Description)
		c.service(p, s, &a.Spec)
		c.overlay(p, s, self)
		c.egress(p+".egress", s.Egress)
	}
	c.overlays(a.Spec.Services)
	c.aliases(&a.Spec)
	c.startAfter(&a.Spec)
	c.imports(a.Spec.Imports)
	if len(c.problems) > 0 {
		return invalid("the manifest is not valid", c.problems)
	}
	return nil
}

func (c *checker) service(p string, s *ServiceSpec, app *ApplicationSpec) {
	c.name(p+".name", s.Name)
	c.oneOf(p+".mode", string(s.Mode), "service", "job", "cron", "perWorker", "perDevice")
	c.oneOf(p+".runtime", s.Runtime, RuntimeNames()...)
	c.oneOf(p+".isolation", string(s.Isolation), Isolations()...)
	c.runtimeClass(p, s)
	if k := RuntimeNamed(s.Runtime); k != nil && !k.Suits(s) && !s.classed() {
		c.add(p+".runtime", "leave it out, or ask for isolation: "+string(k.Isolation),
			"runtime %s keeps a service apart as %s, and %s is asked for", k.Name, k.Isolation, s.Isolation)
	}
	if _, ok := s.OnDisconnect.StopAfter(); !ok && s.OnDisconnect != "" && s.OnDisconnect != OnDisconnectRun {
		c.add(p+".onDisconnect", "write run, or {stopAfter: 30s}", "%q is not known", string(s.OnDisconnect))
	}
	c.oneOf(p+".onReconnect", s.OnReconnect, KeepReplacement, KeepOriginal, KeepBest)
	c.mode(p, s)
	c.container(p, &s.Container, s)
	c.runtimes(p, s)
	c.saturation(p, s)
	c.wasm(p, s)
	c.machine(p, s)
	c.snapshots(p+".snapshots", s)
	if s.Image == "" && s.Runtime != "native" {
		c.add(p+".image", "write image: repository:tag, or runtime: native for a program of the host", "an image is missing")
	}
	if s.Image == "" && s.Runtime == "native" && len(s.Command) == 0 {
		c.add(p+".command", "", "a native service without an image needs a command")
	}
	if len(s.Init)+len(s.Sidecars) > MaxContainers {
		c.add(p, "", "%d init and side containers; at most %d are allowed", len(s.Init)+len(s.Sidecars), MaxContainers)
	}
	names := map[string]bool{MainContainer: true}
	for kind, list := range map[string][]SideContainer{"init": s.Init, "sidecars": s.Sidecars} {
		for i := range list {
			cp := fmt.Sprintf("%s.%s[%d]", p, kind, i)
			c.name(cp+".name", list[i].Name)
			if names[list[i].Name] {
				c.add(cp+".name", "container names are unique within a service, and main is the main one", "a second container is called %q",
					list[i].Name)
			}
			names[list[i].Name] = true
			c.container(cp, &list[i].Container, s)
			if kind == "init" && list[i].PostStart != nil {
				c.add(cp+".postStart", "write another init container", "an init container runs alone")
			}
			if kind == "init" && list[i].PreStop != nil {
				c.add(cp+".preStop", "leave it out", "an init container ends by itself")
			}
			if list[i].Image == "" && s.Runtime != "native" {
				c.add(cp+".image", "", "an image is missing")
			}
			c.resources(cp+".resources", list[i].Resources)
			if list[i].Resources.ExclusiveCPUs > 0 {
				c.add(cp+".resources.exclusiveCPUs", "", "only the main container may have processors of its own")
			}
		}
	}
	amounts(c, p, s)
	c.volumes(p, s)
	c.devices(p, s)
	checkPerDevice(c, p, s)
	c.secrets(p, s)
	c.ports(p, s)
	c.hosts(p, s)
	for i, l := range s.Links {
		lp := fmt.Sprintf("%s.links[%d]", p, i)
		if l.Service == s.Name {
			c.add(lp+".service", "", "a service cannot link to itself")
		} else if app.Service(l.Service) == nil {
			c.add(lp+".service", "links name services of the same application", "there is no service %q", l.Service)
		} else if app.Service(l.Service).Sleeps() {
			c.add(lp+".service", "give it scale.min: 1", "service %s may have no instance (scale.min: 0), and only what comes by its ingress wakes it", l.Service)
		}
		c.link(lp, l)
	}
	if len(s.Links) > MaxLinks {
		c.add(p+".links", "", "%d links; at most %d are allowed", len(s.Links), MaxLinks)
	}
	c.links(p, s)
	c.resources(p+".resources", s.Resources)
	c.placement(p+".placement", s.Placement)
	c.probe(p+".probes.startup", s.Probes.Startup)
	c.probe(p+".probes.readiness", s.Probes.Readiness)
	c.probe(p+".probes.liveness", s.Probes.Liveness)
	c.oneOf(p+".restart.policy", s.Restart.Policy, "always", "onFailure", "never")
	if s.Restart.MaxAttempts != nil {
		c.between(p+".restart.maxAttempts", *s.Restart.MaxAttempts, 0, 10000)
	}
	if s.Restart.Policy == "always" && (s.Mode == ModeJob || s.Mode == ModeCron) {
		c.add(p+".restart.policy", "use onFailure or never", "a job that always restarts never ends")
	}
	c.oneOf(p+".update.strategy", s.Update.Strategy, "rolling", "recreate")
	c.oneOf(p+".update.limits", s.Update.Limits, "live", LimitsReplace)
	c.migration(p+".migration.mode", s)
	surge, unavailable := s.updateRoom()
	if s.Update.MaxSurge != nil {
		surge = *s.Update.MaxSurge
		c.between(p+".update.maxSurge", surge, 0, 10000)
	}
	if s.Update.MaxUnavailable != nil {
		unavailable = *s.Update.MaxUnavailable
		c.between(p+".update.maxUnavailable", unavailable, 0, 10000)
	}
	if surge == 0 && unavailable == 0 {
		c.add(p+".update", "raise one of them", "with maxSurge 0 and maxUnavailable 0 an update can never begin")
	}
	c.update(p+".update", s)
	if s.TerminationGrace != nil && time.Duration(*s.TerminationGrace) > time.Hour {
		c.add(p+".terminationGrace", "", "%s is too long; at most 1h is allowed", *s.TerminationGrace)
	}
	if s.Metrics != nil {
		c.between(p+".metrics.port", s.Metrics.Port, 1, 65535)
	}
}

// update checks waves, canary and rollback.
func (c *checker) update(p string, s *ServiceSpec) {
	u := &s.Update
	c.oneOf(p+".rollback", u.Rollback, RollbackAutomatic, RollbackOff)
	c.between(p+".batch", u.Batch, 0, 10000)
	if u.Failures != nil {
		c.between(p+".failures", *u.Failures, 1, 10000)
	}
	for _, d := range []struct {
		name string
		time *Duration
	}{{"pause", &u.Pause}, {"healthyTime", u.HealthyTime}, {"deadline", u.Deadline}} {
		if d.time != nil && time.Duration(*d.time) > 7*24*time.Hour {
			c.add(p+"."+d.name, "", "%s is too long; at most 168h is allowed", *d.time)
		}
	}
	if u.Deadline != nil && time.Duration(*u.Deadline) < time.Second {
		c.add(p+".deadline", "", "%s is too short; at least 1s is needed", *u.Deadline)
	}
	controlled := u.Canary != nil || u.Batch > 0 || u.Rollback == RollbackAutomatic
	switch {
	case s.Mode.HasCopies():
		if u.Batch > 0 {
			c.add(p+".batch",
				"write maxUnavailable, the number of workers or devices of a site that are updated at a time",
				"waves are for mode service, not %s", s.Mode)
		}
	case controlled && s.Mode != "" && s.Mode != ModeService:
		c.add(p, "leave canary, batch and rollback out", "waves and rollback are for mode service, not %s", s.Mode)
	}
	c.oneOf(p+".sites", u.Sites, SitesInTurn, SitesAll)
	if u.Sites != "" && !s.Mode.HasCopies() {
		c.add(p+".sites",
			"leave it out: replicas are replaced one by one, at whichever site they are", "this is for modes perWorker and perDevice, not %s",
			cmp.Or(s.Mode, ModeService))
	}
	if (u.Canary != nil || u.Batch > 0) && u.Strategy == "recreate" {
		c.add(p, "use strategy rolling", "strategy recreate has no canary and no waves: it ends all old instances first")
	}
	if k := u.Canary; k != nil {
		c.between(p+".canary.count", k.Count, 0, 10000)
		c.between(p+".canary.percent", k.Percent, 0, 100)
		if k.Count > 0 && k.Percent > 0 {
			c.add(p+".canary", "give one of them", "count and percent do not go together")
		}
		if time.Duration(k.For) > 7*24*time.Hour {
			c.add(p+".canary.for", "", "%s is too long; at most 168h is allowed", k.For)
		}
	}
}

func (c *checker) mode(p string, s *ServiceSpec) {
	if s.Replicas != nil {
		c.between(p+".replicas", *s.Replicas, 0, 10000)
		if s.Mode != "" && s.Mode != ModeService {
			c.add(p+".replicas", "jobs use job.completions; perWorker follows the workers, perDevice their devices",
				"replicas only mean something in mode service, not %s", s.Mode)
		}
	}
	c.scale(p, s)
	if s.Job != nil {
		if s.Mode != ModeJob && s.Mode != ModeCron {
			c.add(p+".job", "add mode: job", "job only means something in mode job or cron")
		}
		if s.Job.Completions != nil {
			c.between(p+".job.completions", *s.Job.Completions, 1, 10000)
		}
		if s.Job.Parallelism != nil {
			c.between(p+".job.parallelism", *s.Job.Parallelism, 1, 10000)
		}
		if s.Job.BackoffLimit != nil {
			c.between(p+".job.backoffLimit", *s.Job.BackoffLimit, 0, 1000)
		}
		if s.Job.FinishBefore != nil && s.Job.Estimate != nil && *s.Job.Estimate > *s.Job.FinishBefore {
			c.add(p+".job.finishBefore", "give it more time, or a better estimate", "one instance takes %s, which is longer than %s",
				*s.Job.Estimate, *s.Job.FinishBefore)
		}
	}
	switch {
	case s.Mode == ModeCron && s.Cron == nil:
		c.add(p+".cron", "write cron: {schedule: \"*/5 * * * *\"}", "a cron service needs a schedule")
	case s.Mode != ModeCron && s.Cron != nil:
		c.add(p+".cron", "add mode: cron", "cron only means something in mode cron")
	case s.Cron != nil:
		if strings.TrimSpace(s.Cron.Schedule) == "" {
			c.add(p+".cron.schedule", "", "a schedule is missing")
		}
		c.oneOf(p+".cron.concurrency", s.Cron.Concurrency, "allow", "forbid", "replace")
	}
}

func (c *checker) container(p string, k *Container, s *ServiceSpec) {
	if strings.ContainsAny(k.Image, " \t\n") {
		c.add(p+".image", "", "%q is not an image reference", k.Image)
	}
	for name, v := range k.Env {
		if !CheckEnvName(name) || strings.ContainsRune(v, 0) {
			c.add(p+".env", "", "%q is not a name for an environment variable, or its value holds a zero byte", name)
		}
	}
	c.lateEnv(p, k, s)
	c.kernel(p, k)
	c.hook(p+".postStart", k.PostStart)
	c.preStop(p+".preStop", k.PreStop, s)
	for i, a := range append(slices.Clone(k.Command), k.Args...) {
		if strings.ContainsRune(a, 0) {
			c.add(p+".command", "", "argument %d holds a zero byte", i)
		}
	}
	if k.WorkingDir != "" {
		c.absolute(p+".workingDir", k.WorkingDir)
	}
	c.oneOf(p+".security.seccomp", k.Security.Seccomp, "default", "unconfined")
	for i, m := range k.Mounts {
		mp := fmt.Sprintf("%s.mounts[%d]", p, i)
		if !slices.ContainsFunc(s.Volumes, func(v Volume) bool { return v.Name == m.Volume }) {
			c.add(mp+".volume", "volumes are listed under the service's volumes", "there is no volume %q", m.Volume)
		}
		c.absolute(mp+".path", m.Path)
		c.subPath(mp+".subPath", m.SubPath)
	}
}

// amounts bounds what each instance takes of its worker's tables: of mounts, loop devices and ports there is one for all.
func amounts(c *checker, p string, s *ServiceSpec) {
	mounts := len(s.Mounts)
	for _, list := range [][]SideContainer{s.Init, s.Sidecars} {
		for i := range list {
			mounts += len(list[i].Mounts)
		}
	}
	for _, x := range []struct {
		field   string
		n, most int
	}{{"volumes", len(s.Volumes), MaxVolumes}, {"mounts", mounts, MaxMounts}, {"config", len(s.Config), MaxConfigFiles},
		{"ports", len(s.Ports), MaxPorts}} {
		if x.n > x.most {
			c.add(p+"."+x.field, "", "%d %s; at most %d are allowed", x.n, x.field, x.most)
		}
	}
}

func (c *checker) volumes(p string, s *ServiceSpec) {
	seen := map[string]bool{}
	for i, v := range s.Volumes {
		vp := fmt.Sprintf("%s.volumes[%d]", p, i)
		c.name(vp+".name", v.Name)
		if seen[v.Name] {
			c.add(vp+".name", "", "a second volume is called %q", v.Name)
		}
		seen[v.Name] = true
		kinds := 0
		for _, is := range []bool{v.Empty != nil, v.Local != nil, v.Host != nil, v.NFS != nil} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			c.add(vp, "write empty: {}, local: {}, host: {path: ...} or nfs: {server: ..., path: ...}",
				"a volume is either empty, local, a path of the host or on an NFS server")
		}
		if e := v.Empty; e != nil && e.Memory {
			c.amount(vp+".empty.size", e.Size)
		} else if e != nil {
			c.volumeSize(vp+".empty.size", e.Size)
		}
		if v.Local != nil {
			c.volumeSize(vp+".local.size", v.Local.Size)
			c.localVolume(p, vp, s, v.Local)
		}
		if v.NFS != nil {
			checkNFS(c, vp+".nfs", v.NFS)
		}
		if v.Host != nil {
			c.absolute(vp+".host.path", v.Host.Path)
			c.oneOf(vp+".host.fileSystem", v.Host.FileSystem, slices.Sorted(maps.Keys(NetworkFileSystems()))...)
		}
	}
	total := 0
	for i, f := range s.Config {
		fp := fmt.Sprintf("%s.config[%d]", p, i)
		c.absolute(fp+".path", f.Path)
		total += len(f.Content)
		if f.Mode != "" {
			if m, err := strconv.ParseUint(f.Mode, 8, 32); err != nil || m > 0o777 {
				c.add(fp+".mode", "write it as \"0444\"", "%q is not a permission in octal", f.Mode)
			}
		}
	}
	if total > MaxConfigBytes {
		c.add(p+".config", "put large files into the image", "%d bytes together; at most %d are allowed", total, MaxConfigBytes)
	}
}

func (c *checker) ports(p string, s *ServiceSpec) {
	names := map[string]bool{}
	for i, q := range s.Ports {
		pp := fmt.Sprintf("%s.ports[%d]", p, i)
		c.between(pp+".port", q.Port, 1, 65535)
		c.between(pp+".hostPort", q.HostPort, -1, 65535)
		c.oneOf(pp+".protocol", q.Protocol, "tcp", "udp", "sctp", "any")
		if q.HostPort != 0 && (q.Proto() == "sctp" || q.Proto() == "any") {
			c.add(pp+".hostPort", "list one port for tcp and one for udp, or use the service's address",
				"ports of the worker carry tcp and udp, not %s", q.Proto())
		}
		c.servicePort(pp+".servicePort", s, i)
		c.hostAddress(pp, s, i)
		if q.Name != "" {
			c.name(pp+".name", q.Name)
		}
		if names[q.PortName()] {
			c.add(pp+".name", "", "a second port is called %q", q.PortName())
		}
		names[q.PortName()] = true
	}
}

// PortName gives the port's name, or the default one.
func (q Port) PortName() string {
	if q.Name != "" {
		return q.Name
	}
	return q.Proto() + "-" + strconv.Itoa(q.Port)
}

// Proto gives the protocol, or the default one.
func (q Port) Proto() string {
	if q.Protocol == "" {
		return "tcp"
	}
	return q.Protocol
}

func (c *checker) resources(p string, r Resources) {
	for i, v := range r.Vector() {
		if v < 0 {
			c.add(p+"."+ResourceNames[i], "", "must be zero or more")
		} else if v > int64(MaxAmount) {
			c.add(p+"."+ResourceNames[i], "", "is more than any machine has; at most %s is allowed", MaxAmount)
		}
	}
	c.between(p+".gpus", r.GPUs, 0, 1024)
	c.between(p+".tpus", r.TPUs, 0, 1024)
	c.between(p+".pids", r.Pids, 0, 4194304)
	c.between(p+".exclusiveCPUs", r.ExclusiveCPUs, 0, 1024)
	if n := r.ExclusiveCPUs; n > 0 && r.CPU != 0 && r.CPU != skerry.MilliCPU(1000*n) {
		c.add(p+".cpu", "leave it out", "%s is not the %d that are to be its own", r.CPU, n)
	}
	c.limits(p, r)
	if r.Memory > 0 && r.Memory < 4*skerry.MiB {
		c.add(p+".memory", "write at least 4Mi", "%s is too little for any process", r.Memory)
	}
}

func (c *checker) probe(p string, q *Probe) {
	if q == nil {
		return
	}
	n := 0
	if q.HTTP != nil {
		n++
		c.between(p+".http.port", q.HTTP.Port, 1, 65535)
		if q.HTTP.Path != "" && !strings.HasPrefix(q.HTTP.Path, "/") {
			c.add(p+".http.path", "", "%q must begin with /", q.HTTP.Path)
		}
	}
	if q.TCP != nil {
		n++
		c.between(p+".tcp.port", q.TCP.Port, 1, 65535)
	}
	if q.Exec != nil {
		n++
		if len(q.Exec.Command) == 0 {
			c.add(p+".exec.command", "", "a command is missing")
		}
	}
	if n != 1 {
		c.add(p, "write exactly one of http, tcp and exec", "%d kinds of check are given", n)
	}
	c.between(p+".failures", q.Failures, 0, 1000)
	c.between(p+".successes", q.Successes, 0, 1000)
}
