//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/internal/cdi"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// AttachOptions say which devices the worker gives to instances.
type AttachOptions struct {
	CDI   []string // directories with descriptions; nil: those of the specification
	Hooks bool     // programs that descriptions name may be run, as root; the operator trusts who writes them
	Dev   string   // in place of /dev, in tests
}

// When the worker looks what was plugged in or out: a moment after something changed, because a device that comes makes several names.
const (
	attachSettle = 250 * time.Millisecond
	attachEvery  = time.Minute // also what no watch sees, such as files that links lead to
	attachPoll   = time.Second // where nothing can be watched
)

// attachments of devices: what there is.
type attachables struct {
	opt AttachOptions

	mu       sync.Mutex
	registry *cdi.Registry
	names    []string
	problems map[string]string // that were told of
}

// dirs are where descriptions are.
func (a *attachables) dirs() []string {
	if a.opt.CDI == nil {
		return cdi.Dirs()
	}
	return a.opt.CDI
}

// watch watches where descriptions and devices are.
func (a *attachables) watch() (*dirWatch, error) {
	var listed []string
	for _, dir := range spec.DeviceDirs() {
		listed = append(listed, a.host(dir))
	}
	return watchDirs(a.dirs(), listed)
}

// scan looks what there is, and reports whether that changed.
func (a *attachables) scan() (changed bool, problems map[string]string) {
	r := cdi.Load(a.dirs())
	names := r.Names()
	for _, dir := range spec.DeviceDirs() {
		list, _ := os.ReadDir(a.host(dir))
		for _, e := range list {
			name := filepath.Join(dir, e.Name())
			if st, err := os.Stat(a.host(name)); err == nil && st.Mode()&os.ModeDevice != 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = names[:min(len(names), spec.MaxDevices)]
	a.mu.Lock()
	defer a.mu.Unlock()
	changed = a.registry == nil || !slices.Equal(names, a.names)
	news := map[string]string{}
	for file, why := range r.Problems {
		if a.problems[file] != why {
			news[file] = why
		}
	}
	a.registry, a.names, a.problems = r, names, r.Problems
	return changed, news
}

// host gives where a path below /dev is on this machine.
func (a *attachables) host(path string) string {
	if rest, ok := strings.CutPrefix(path, "/dev/"); ok && a.opt.Dev != "" {
		return filepath.Join(a.opt.Dev, rest)
	}
	return path
}

func (a *attachables) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.names)
}

// apply gives a container its devices.
func (a *attachables) apply(task *runtime.Spec, names []string) error {
	a.mu.Lock()
	registry := a.registry
	a.mu.Unlock()
	for _, name := range names {
		if strings.HasPrefix(name, "/") {
			task.Devices = append(task.Devices, runtime.Device{Path: a.host(name), Target: name})
			continue
		}
		e, ok := cdi.Edits{}, false
		if registry != nil {
			e, ok = registry.Device(name)
		}
		if !ok {
			return &runtime.StartError{Field: "devices", Err: fmt.Errorf("%s is not on this worker any more", name)}
		}
		if len(e.Hooks) > 0 && !a.opt.Hooks {
			return &runtime.Unsupported{Ability: runtime.AbilityDevices, Driver: spec.RuntimeOCI,
				Reason: fmt.Sprintf("the description of %s has %s run as root; start the worker with --cdi-hooks to allow that", name, e.Hooks[0].Path)}
		}
		for _, n := range e.DeviceNodes {
			task.Devices = append(task.Devices, runtime.Device{Path: n.Host(), Target: n.Path, Access: n.Permissions})
		}
		for _, m := range e.Mounts {
			task.Mounts = append(task.Mounts, runtime.Mount{Type: "bind", Source: m.HostPath, Target: m.ContainerPath,
				ReadOnly: slices.Contains(m.Options, "ro")})
		}
		for _, h := range e.Hooks {
			hook := runtime.Hook{Stage: h.Name, Path: h.Path, Args: h.Args, Env: h.Env}
			if h.Timeout != nil {
				hook.Timeout = time.Duration(*h.Timeout) * time.Second
			}
			task.Hooks = append(task.Hooks, hook)
		}
		task.Env = append(task.Env, e.Env...)
		task.Groups = append(task.Groups, e.GIDs...)
	}
	return nil
}

// watchDevices tells what is plugged in and out, until ctx ends.
func (s *Server) watchDevices(ctx context.Context) {
	for ctx.Err() == nil {
		dirs, err := s.attach.watch()
		if s.lookForDevices() { // what changes from now on the watch sees
			s.tellFacts()
		}
		pause := attachSettle
		if err == nil {
			dirs.wait(ctx, attachEvery)
		} else {
			s.opt.Log.Debug("devices are looked for again and again", "every", attachPoll, "err", err)
			pause = attachPoll
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		if dirs != nil {
			dirs.close()
		}
	}
}

func (s *Server) lookForDevices() bool {
	changed, problems := s.attach.scan()
	for file, why := range problems {
		s.opt.Log.Warn("a description of devices does not count", "file", file, "err", errors.New(why))
	}
	return changed
}
