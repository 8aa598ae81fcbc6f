package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/bench"
	"skerry.dev/skerry/bench/cable"
	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Orchestrated is the place of containers that a whole Skerry runs: beside the same runtime through its driver alone,
// it tells what orchestration costs.
const Orchestrated = "orchestrated"

// orchestrated applies a manifest with a job for each run, by the API of the root, and takes what its instance printed from there.
type orchestrated struct {
	site   *bench.Site
	text   string
	host   string // directory of files on the host
	memory skerry.Bytes
	cores  int
	n      atomic.Uint64
}

const siteImage = "bench/tools:1"

// orchestrate starts a Skerry on this machine and gives its registry the tools.
func orchestrate(ctx context.Context, program, root, host string, cores int) (_ *orchestrated, err error) {
	s, err := bench.OpenSite(ctx, program)
	if err != nil {
		return nil, err
	}
	p := &orchestrated{site: s, text: "runtime oci, by a job applied to the root of a Skerry on this machine", host: host,
		memory: machineMemory, cores: cores}
	if err := s.Image(ctx, root, siteImage); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return p, nil
}

func (p *orchestrated) told() report.Place { return report.Place{Name: Orchestrated, Text: p.text} }

// manifest is an application of one service that runs a job's program.
func (p *orchestrated) manifest(name string, j job, mode spec.Mode) ([]byte, error) {
	zero, soon, pids := 0, spec.Duration(time.Second), 4096
	s := spec.ServiceSpec{Name: "s", Mode: mode, Runtime: spec.RuntimeOCI, TerminationGrace: &soon,
		Container: spec.Container{Image: siteImage, Command: []string{"/bin/" + j.name}, Env: map[string]string{}, WorkingDir: "/tmp"},
		Resources: spec.Resources{Memory: p.memory, CPU: skerry.MilliCPU(1000 * p.cores / max(1, j.copies)), Pids: pids}}
	for _, e := range environment {
		k, v, _ := strings.Cut(e, "=")
		s.Env[k] = v
	}
	if m := max(j.memory, j.room); m > 0 {
		s.Resources.Memory = skerry.Bytes(m)
	}
	if mode == spec.ModeJob {
		s.Job = &spec.JobSpec{BackoffLimit: &zero}
	}
	dir := "/tmp"
	if j.mount {
		dir = "/data"
		s.Volumes = []spec.Volume{{Name: "data", Host: &spec.HostVolume{Path: p.host}}}
		s.Mounts = []spec.Mount{{Volume: "data", Path: dir}}
	}
	s.Args = j.argsFor("", dir)
	return json.Marshal(spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication, Metadata: spec.Metadata{Name: name},
		Spec: spec.ApplicationSpec{Services: []spec.ServiceSpec{s}}})
}

func appKey(name string) skerry.AppKey { return skerry.AppKey{Namespace: "default", Name: name} }

func (p *orchestrated) run(ctx context.Context, j job) (o outcome, err error) {
	if j.wired {
		w, err2 := j.station.layTo(cable.At(p.site.WorkerSpace()), j.plain)
		if err2 != nil {
			return o, err2
		}
		defer func() { err = errors.Join(err, w.cut()) }()
		j.args = w.argsFor(j.args)
	}
	name := fmt.Sprintf("bench-%d", p.n.Add(1))
	manifest, err := p.manifest(name, j, spec.ModeJob)
	if err != nil {
		return o, err
	}
	began := time.Now()
	if _, err := p.site.Root.Apply(ctx, manifest, api.ApplyOptions{}); err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, p.remove(context.WithoutCancel(ctx), name)) }()
	var ended wire.Instance
	err = p.await(ctx, name, func(i wire.Instance) bool {
		ended = i
		return i.Exit != nil && (i.State == skerry.Terminated || i.State == skerry.Failed)
	})
	if err != nil {
		return o, err
	}
	o.code, o.killed = ended.Exit.Code, ended.Exit.OOMKilled
	return o, p.site.Root.Logs(ctx, ended.ID, api.LogOptions{}, func(l api.LogLine) error {
		if o.first == 0 {
			o.first = l.Time.Sub(began)
		}
		if len(o.out) < maxOutput {
			o.out = append(append(o.out, l.Line...), '\n')
		}
		return nil
	})
}

// await waits until the one instance of an application is as it is to be; one that failed without having run is an error.
func (p *orchestrated) await(ctx context.Context, name string, ok func(wire.Instance) bool) error {
	for {
		list, err := p.site.Root.Instances(ctx, api.InstanceFilter{App: name})
		if err != nil {
			return err
		}
		for _, i := range list {
			if ok(i) {
				return nil
			}
			if i.State == skerry.Failed && i.Exit == nil {
				return fmt.Errorf("its instance failed: %s", i.Reason)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// remove deletes an application and waits until nothing of it is left.
func (p *orchestrated) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := p.site.Root.DeleteApp(ctx, appKey(name)); err != nil {
		return err
	}
	for {
		list, err := p.site.Root.Instances(ctx, api.InstanceFilter{App: name})
		if err == nil && len(list) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not gone after a minute: %w", name, errors.Join(err, ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *orchestrated) hold(ctx context.Context, j job) (func() error, error) {
	j.memory = int64(64 * skerry.MiB)
	name := fmt.Sprintf("bench-%d", p.n.Add(1))
	manifest, err := p.manifest(name, j, spec.ModeService)
	if err != nil {
		return nil, err
	}
	if _, err := p.site.Root.Apply(ctx, manifest, api.ApplyOptions{}); err != nil {
		return nil, err
	}
	release := func() error { return p.remove(context.WithoutCancel(ctx), name) }
	if err := p.await(ctx, name, func(i wire.Instance) bool { return i.State == skerry.Running }); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// ownProgram is the skerry that runs. Tests name another one, as they are none.
func ownProgram(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(self)
}
