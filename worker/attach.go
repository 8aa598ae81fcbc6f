//go:build linux

package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/cdi"
	"skerry.dev/skerry/internal/devices"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// AttachOptions say which devices the worker gives to instances.
type AttachOptions struct {
	CDI   []string // directories with descriptions; nil: those of the specification
	Hooks bool     // programs that descriptions name may be run, as root; the operator trusts who writes them
	Dev   string   // in place of /dev, in tests
	Sys   string   // in place of /sys, in tests

	// Rules say which of the devices that the worker finds it offers; without one, none: each opens hardware to whoever may deploy.
	Rules []devices.Rule
	File  string // with devices that the operator lists by hand; empty: none
}

// When the worker looks what was plugged in or out: a moment after something changed, because a device that comes makes several names.
const (
	attachSettle = 250 * time.Millisecond
	attachEvery  = time.Minute // also what no watch sees, such as files that links lead to
	attachPoll   = time.Second // where nothing can be watched
)

// attachments of devices: what there is.
type attachables struct {
	opt  AttachOptions
	tree *devices.Tree

	scanning sync.Mutex // one look at a time, so that an older one does not come last; before mu

	mu       sync.Mutex
	registry *cdi.Registry
	file     devices.File              // as it was when it was right
	found    map[string]devices.Device // by name: those of the file, of the kernel and of networks
	names    []string
	details  []wire.Device
	where    map[string][]string      // as core.Facts has it
	problems map[string]string        // that were told of
	network  map[int][]devices.Device // what was heard, by the rule
	heardIn  string                   // the file in which that is kept, in case the agent is restarted; empty: it is not
}

func newAttachables(opt AttachOptions) *attachables {
	return &attachables{opt: opt, tree: devices.Host(opt.Sys, opt.Dev), network: map[int][]devices.Device{}}
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
	for _, r := range a.opt.Rules {
		listed = append(listed, a.tree.Dirs(r.Kind)...)
	}
	read := a.dirs()
	if a.opt.File != "" {
		read = append(slices.Clone(read), filepath.Dir(a.opt.File))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.file.Devices {
		for _, node := range d.Nodes {
			listed = append(listed, filepath.Dir(node))
		}
	}
	slices.Sort(listed)
	return watchDirs(read, slices.Compact(listed))
}

// scan looks what there is, and reports whether that changed.
func (a *attachables) scan() (changed bool, problems map[string]string) {
	a.scanning.Lock()
	defer a.scanning.Unlock()
	registry := cdi.Load(a.dirs())
	var kinds []string
	for _, rule := range a.opt.Rules {
		kinds = append(kinds, rule.Kind)
	}
	kernel := devices.Offer(a.tree.Find(kinds), a.opt.Rules)
	var file devices.File
	var wrong error
	if a.opt.File != "" {
		file, wrong = devices.ReadFile(a.opt.File)
	}
	var paths []string
	for _, dir := range spec.DeviceDirs() {
		list, _ := os.ReadDir(a.host(dir))
		for _, e := range list {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if wrong != nil {
		registry.Problems[a.opt.File] = wrong.Error()
		file = a.file // a slip of the pen takes nothing away from who has it
	}
	a.file = file
	var heard []devices.Device
	for _, i := range slices.Sorted(maps.Keys(a.network)) {
		heard = append(heard, a.network[i]...)
	}
	rank := func(d *devices.Device) int { // what is offered stays: others in networks may say that they have its name
		if was, ok := a.found[d.ID()]; ok && was.Address == d.Address {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(heard, func(x, y devices.Device) int { return rank(&x) - rank(&y) })
	found := a.offer(registry, slices.Concat(file.Devices, kernel), paths)
	a.offerHeard(registry, found, heard, paths)
	names, details := a.tell(registry, found, paths)
	where := a.locate(registry, found, names)
	changed = a.registry == nil || !slices.Equal(names, a.names) || !reflect.DeepEqual(details, a.details) ||
		!reflect.DeepEqual(where, a.where)
	news := map[string]string{}
	for file, why := range registry.Problems {
		if a.problems[file] != why {
			news[file] = why
		}
	}
	a.registry, a.found, a.names, a.details, a.where, a.problems = registry, found, names, details, where, registry.Problems
	return changed, news
}

// offer gives those of the devices that are there by name, and empties the paths of those that are. A node is offered once, so that what
// one instance has nobody else gets by another name: as its vendor describes it, else as the file or a rule has it, else by its path.
func (a *attachables) offer(registry *cdi.Registry, list []devices.Device, paths []string) map[string]devices.Device {
	at := map[string]bool{}
	for _, node := range registry.Nodes() {
		at[nodeAt(node)] = true
	}
	offered := map[string]devices.Device{}
	for _, d := range list {
		_, twice := offered[d.ID()]
		if twice || slices.ContainsFunc(d.Nodes, func(n string) bool { return nodeAt(n) == "" || at[nodeAt(n)] }) {
			continue
		}
		for _, n := range d.Nodes {
			at[nodeAt(n)] = true
		}
		offered[d.ID()] = d
	}
	for i, p := range paths {
		if node := nodeAt(a.host(p)); node == "" || at[node] {
			paths[i] = ""
		}
	}
	return offered
}

// offerHeard adds what was heard in networks, as far as there is room: anybody there may say that it has many, and takes no place of what
// this machine itself has.
func (a *attachables) offerHeard(registry *cdi.Registry, offered map[string]devices.Device, heard []devices.Device, paths []string) {
	room := spec.MaxDevices - len(registry.Names()) - len(offered)
	for _, p := range paths {
		if p != "" {
			room--
		}
	}
	for _, d := range heard {
		if _, twice := offered[d.ID()]; !twice && room > 0 {
			offered[d.ID()] = d
			room--
		}
	}
}

// nodeAt gives where a device node really is; empty: there is none.
func nodeAt(node string) string {
	at, err := filepath.EvalSymlinks(node)
	if err != nil {
		return ""
	}
	if st, err := os.Stat(at); err != nil || st.Mode()&os.ModeDevice == 0 {
		return ""
	}
	return at
}

// tell lists the names of all devices, and what more there is to say of them.
func (a *attachables) tell(registry *cdi.Registry, found map[string]devices.Device, paths []string) (names []string,
	details []wire.Device) {
	names = slices.Concat(registry.Names(), slices.Collect(maps.Keys(found)),
		slices.DeleteFunc(paths, func(p string) bool { return p == "" }))
	slices.Sort(names)
	names = names[:min(len(names), spec.MaxDevices)]
	for _, name := range names {
		if d, ok := found[name]; ok {
			more := wire.Device{Name: name, Labels: d.Labels, Shares: d.Shares, At: d.Host()}
			if len(d.Nodes) > 0 {
				more.At = d.Nodes[0]
			}
			details = append(details, more)
		} else if strings.HasPrefix(name, "/") {
			details = append(details, wire.Device{Name: name, At: nodeAt(a.host(name))})
		} else {
			own, all := registry.Annotations(name)
			more := wire.Device{Name: name, Labels: a.file.LabelsOf(name, own, all), Shares: devices.SharesOf(a.opt.Rules, spec.DeviceClass(name))}
			if len(more.Labels) > 0 || more.Shares > 1 {
				details = append(details, more)
			}
		}
	}
	return names, a.labelsThatFit(registry, details)
}

// maxLabels bounds the labels of all devices of a worker, in bytes: they go to the site in one frame with everything else.
const maxLabels = 256 << 10

// labelsThatFit leaves out the labels for which there is no room: a file may give each of many devices many long ones.
func (a *attachables) labelsThatFit(r *cdi.Registry, details []wire.Device) []wire.Device {
	room := maxLabels
	for i := range details {
		size := 0
		for k, v := range details[i].Labels {
			size += len(k) + len(v)
		}
		if room -= size; room >= 0 {
			continue
		}
		details[i].Labels = nil
		if r.Problems["labels"] == "" {
			r.Problems["labels"] = fmt.Sprintf("all devices together have more than %d bytes of labels: from %s on they have none", maxLabels,
				details[i].Name)
		}
	}
	return details
}

// locate tells of each device where it is: its nodes with their numbers, or its host. An instance that was given it there has another one,
// or none, once it is elsewhere, although its name is the same.
func (a *attachables) locate(registry *cdi.Registry, found map[string]devices.Device, names []string) map[string][]string {
	where := map[string][]string{}
	for _, name := range names {
		var nodes []string
		if d, ok := found[name]; ok {
			nodes = d.Nodes
			if len(nodes) == 0 {
				where[name] = []string{d.Host()}
				continue
			}
		} else if strings.HasPrefix(name, "/") {
			nodes = []string{a.host(name)}
		} else {
			edits, _ := registry.Device(name)
			for _, n := range edits.DeviceNodes {
				nodes = append(nodes, n.Host())
			}
		}
		for _, n := range nodes {
			where[name] = append(where[name], numberedNode(n))
		}
		slices.Sort(where[name])
	}
	return where
}

// numberedNode is where a device node really is, with its number; of anything else, such as a directory of nodes, only its path counts.
func numberedNode(node string) string {
	at := nodeAt(node)
	if st, err := os.Stat(at); err == nil && at != "" {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			return fmt.Sprintf("%s %d:%d", at, unix.Major(uint64(sys.Rdev)), unix.Minor(uint64(sys.Rdev)))
		}
	}
	return node
}

// host gives where a path below /dev is on this machine.
func (a *attachables) host(path string) string {
	if rest, ok := strings.CutPrefix(path, "/dev/"); ok && a.opt.Dev != "" {
		return filepath.Join(a.opt.Dev, rest)
	}
	return path
}

func (a *attachables) list() ([]string, []wire.Device, map[string][]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.names), slices.Clone(a.details), a.where // which nobody changes: each look makes another one
}

// apply gives a container the devices that its cluster chose for it.
func (a *attachables) apply(task *runtime.Spec, service *spec.ServiceSpec, names []string) error {
	a.mu.Lock()
	registry, found, offered := a.registry, a.found, a.names
	a.mu.Unlock()
	numbers := map[string]int{}
	requests := spec.RequestsOf(service, names)
	for i, name := range names {
		if class := spec.DeviceClass(name); spec.CheckDeviceClass(class) {
			d, ok := found[name]
			if !ok {
				return &runtime.StartError{Field: "devices", Err: fmt.Errorf("%s is not on this worker any more", name)}
			}
			if err := a.give(task, &d, requests[i], spec.DeviceVariable(class, numbers[class])); err != nil {
				return err
			}
			numbers[class]++
			continue
		}
		if strings.HasPrefix(name, "/") {
			if !slices.Contains(offered, name) {
				return &runtime.StartError{Field: "devices", Err: fmt.Errorf("%s is not on this worker any more", name)}
			}
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

// give gives a container a device that was found or listed, and tells it in a variable where that is.
func (a *attachables) give(task *runtime.Spec, device *devices.Device, asked *spec.DeviceRequest, variable string) error {
	value := device.Address
	for i, node := range device.Nodes {
		target := a.inside(node)
		if asked != nil && asked.At != "" {
			target = asked.At
		}
		if i == 0 {
			value = target
		}
		if i > 0 && target == value || slices.ContainsFunc(task.Devices, func(o runtime.Device) bool { return o.Target == target }) {
			return &runtime.StartError{Field: "devices",
				Err: fmt.Errorf("%s has more than one node, or another device is at %s, too", device.ID(), target)}
		}
		task.Devices = append(task.Devices, runtime.Device{Path: node, Target: target})
	}
	if len(device.Nodes) == 0 && asked != nil && asked.At != "" {
		return &runtime.StartError{Field: "devices",
			Err: fmt.Errorf("%s is in the network: it has no node that could be at %s", device.ID(), asked.At)}
	}
	task.Env = append(task.Env, variable+"="+value)
	return nil
}

// inside gives where a node of the host is in a container.
func (a *attachables) inside(node string) string {
	dev := cmp.Or(a.opt.Dev, "/dev")
	if rest, ok := strings.CutPrefix(node, dev+"/"); ok {
		return "/dev/" + rest
	}
	return "/dev/" + filepath.Base(node)
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

// listen asks for those in the network that a rule names, until ctx ends, and says when something has changed.
func (a *attachables) listen(ctx context.Context, rule int, log *slog.Logger, changed func()) {
	told, asked := "", a.opt.Rules[rule]
	a.mu.Lock()
	known := slices.Clone(a.network[rule])
	a.mu.Unlock()
	devices.Listen(ctx, asked, known, func(list []devices.Device) {
		a.hear(rule, list)
		changed()
		if err := a.keep(); err != nil {
			log.Warn("devices in a network are not known again when the agent is restarted", "class", asked.Class, "err", err)
		}
	}, func(err error) {
		if err.Error() != told {
			told = err.Error()
			log.Warn("devices in a network cannot be asked for", "class", asked.Class, "interface", asked.Interface, "err", err)
		}
	})
}

// hear keeps what was heard for a rule.
func (a *attachables) hear(rule int, list []devices.Device) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.network[rule] = list
}

// heardFile has the devices in networks that are offered. None would be known when the agent is restarted, and instances that have one
// would end.
const heardFile = "heard.json"

// ruleKey tells rules apart by what they find, whichever others there are.
func ruleKey(r devices.Rule) string {
	r.Shares = 0
	return fmt.Sprintf("%+v", r)
}

// remember takes up what an earlier life of the agent heard, and has this one keep that in a file.
func (a *attachables) remember(file string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heardIn = file
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	heard := map[string][]devices.Device{}
	if err == nil {
		err = json.Unmarshal(data, &heard)
	}
	if err != nil {
		return err
	}
	for i, rule := range a.opt.Rules {
		list := heard[ruleKey(rule)]
		for n := range list {
			list[n].Shares = rule.Shares
		}
		if rule.InNetwork() && len(list) > 0 {
			a.network[i] = list[:min(len(list), spec.MaxDevices)]
		}
	}
	return nil
}

// keep keeps what was heard, as far as it is offered: who claims the name of another one is not to come before that.
func (a *attachables) keep() error {
	a.scanning.Lock()
	defer a.scanning.Unlock()
	a.mu.Lock()
	file, heard := a.heardIn, map[string][]devices.Device{}
	for i, list := range a.network {
		key := ruleKey(a.opt.Rules[i])
		for _, d := range list {
			if offered, ok := a.found[d.ID()]; ok && offered.Address == d.Address {
				heard[key] = append(heard[key], d)
			}
		}
	}
	a.mu.Unlock()
	if file == "" {
		return nil
	}
	data, err := json.Marshal(heard)
	if err != nil {
		return err
	}
	return files.Replace(file, data, 0o600)
}

func (s *Server) lookForDevices() bool {
	changed, problems := s.attach.scan()
	for file, why := range problems {
		s.opt.Log.Warn("a description of devices does not count, or not as it is now", "file", file, "err", errors.New(why))
	}
	return changed
}
