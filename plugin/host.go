// Package plugin runs a site's scheduling plugins: it reads their descriptions from a directory, keeps up with changes of
// it, asks them in bounded time and memory, and believes nothing that they say before it is checked. It decides nothing:
// what an answer means for a placement is the cluster's (cluster/ask.go). Only places that put roles together import it.
package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/wire"
)

// Options set up a Host.
type Options struct {
	Dir string // of descriptions
	// Cache keeps compiled modules from one start to the next; empty keeps none.
	Cache string
	// Shim is the hidden command that runs ShimMain and sets up a program's cage; empty runs programs without one.
	Shim []string
	// CgroupParent is the group below which programs get groups of their own; empty: DefaultCgroupParent.
	CgroupParent string
	Poll         time.Duration // how often the directory is looked at; 0: a second
	Log          *slog.Logger  // nil: nowhere

	slack time.Duration // more time for every answer, in tests on busy machines
}

// DefaultCgroupParent is the group of programs that are plugins.
const DefaultCgroupParent = "skerry-plugins"

// Info is a plugin as placement needs to know it.
type Info struct {
	Name   string
	All    bool // every service of the site is shown to it
	Reject bool // instances that it does not judge are refused
}

// Status is a plugin as its operator sees it.
type Status struct {
	Name      string        `json:"name"`
	Kind      string        `json:"kind"`
	All       bool          `json:"all"`
	OnFailure string        `json:"onFailure"`
	State     string        `json:"state"` // works, rests or broken
	Why       string        `json:"why,omitempty"`
	Calls     uint64        `json:"calls"`
	Failures  uint64        `json:"failures"`
	Last      time.Duration `json:"last"`   // how long the last answer took, in nanoseconds
	Memory    skerry.Bytes  `json:"memory"` // that it took at most
	Loaded    time.Time     `json:"loaded"` // this version
	Isolation []string      `json:"isolation"`
}

// use is what one answer took.
type use struct{ memory skerry.Bytes }

// runner is a loaded version of a plugin. ask may be called from any goroutine; close comes last.
type runner interface {
	// ask gives the answer to check, whose error is its own.
	ask(ctx context.Context, seed uint64, query []byte, check func(reply []byte) error) (use, error)
	isolation() []string
	close()
}

// errBusy is no failure of the plugin's: the one who asks gave up before it was its turn.
var errBusy = errors.New("it was busy with other queries")

// turn waits for a free place.
func turn(ctx context.Context, turns chan struct{}) error {
	select {
	case turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errBusy
	}
}

func (d *Description) timeout() time.Duration { return time.Duration(d.Timeout) }

// late tells that time is up: the plugin's, or that of the one who asks.
func late(ctx context.Context, timeout time.Duration) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errBusy
	}
	return fmt.Errorf("no answer in %s", timeout)
}

// version is a plugin as one state of its files describes it.
type version struct {
	name   string
	desc   *Description
	log    *slog.Logger
	run    runner // nil: it does not load
	broken string // why
	loaded time.Time
	users  sync.WaitGroup // calls under way

	mu       sync.Mutex // guards what follows; held for moments
	health   breaker
	calls    uint64
	failures uint64
	last     time.Duration
	memory   skerry.Bytes
}

// Host runs the plugins of one directory. Its methods may be called from any goroutine.
type Host struct {
	opt   Options
	cache wazero.CompilationCache
	stop  context.CancelFunc
	wg    sync.WaitGroup
	close sync.Once

	mu      sync.Mutex // guards what follows
	plugins map[string]*version
	changed chan struct{} // closed at the next change

	// of the goroutine that reads the directory
	seen   map[string]stamp
	failed map[string]string // what was logged of a file
}

// Open reads the directory and loads every plugin. A description that is not valid is an error, as for any other
// configuration; a module or a program that does not work is not: its plugin is listed, and skipped or rejects as its
// description says. Close ends what it starts.
func Open(ctx context.Context, opt Options) (*Host, error) {
	var err error
	if opt.Dir, err = filepath.Abs(opt.Dir); err != nil {
		return nil, err
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Poll <= 0 {
		opt.Poll = time.Second
	}
	if opt.CgroupParent == "" {
		opt.CgroupParent = DefaultCgroupParent
	}
	h := &Host{opt: opt, plugins: map[string]*version{}, changed: make(chan struct{}), seen: map[string]stamp{}, failed: map[string]string{}}
	if opt.Cache != "" {
		if h.cache, err = openCache(opt.Cache); err != nil {
			return nil, err
		}
	}
	removeGroups(opt.CgroupParent) // that a crash left
	if err := h.scan(ctx, true); err != nil {
		h.Close()
		return nil, err
	}
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.wg.Go(func() { h.poll(ctx) })
	return h, nil
}

// maxCache is the size at which the cache of compiled modules is emptied: old versions leave theirs behind.
const maxCache = 256 << 20

func openCache(dir string) (wazero.CompilationCache, error) {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if i, err := e.Info(); err == nil {
				sum += i.Size()
			}
		}
		return nil
	})
	if sum > maxCache {
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return wazero.NewCompilationCacheWithDir(dir)
}

// Close ends the plugins. Nobody may ask any more.
func (h *Host) Close() error {
	h.close.Do(func() {
		if h.stop != nil {
			h.stop()
		}
		h.wg.Wait()
		h.mu.Lock()
		old := h.plugins
		h.plugins = map[string]*version{}
		h.mu.Unlock()
		for _, v := range old {
			v.retire()
		}
		if h.cache != nil {
			_ = h.cache.Close(context.Background())
		}
		removeGroups(h.opt.CgroupParent)
	})
	return nil
}

// retire ends a version that nobody is given any more.
func (v *version) retire() {
	v.users.Wait()
	if v.run != nil {
		v.run.close()
	}
}

// List gives the plugins by name.
func (h *Host) List() []Info {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Info
	for _, v := range h.plugins {
		out = append(out, Info{v.name, v.desc.All, v.desc.Reject()})
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Watch calls changed at the start and whenever a plugin came, went or has a new version, until ctx ends.
func (h *Host) Watch(ctx context.Context, changed func()) {
	for {
		h.mu.Lock()
		next := h.changed
		h.mu.Unlock()
		changed()
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// Status tells how every plugin fares, by name.
func (h *Host) Status() []Status {
	h.mu.Lock()
	var list []*version
	for _, v := range h.plugins {
		list = append(list, v)
	}
	h.mu.Unlock()
	out := make([]Status, 0, len(list))
	for _, v := range list {
		out = append(out, v.status(time.Now()))
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (v *version) status(now time.Time) Status {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := Status{Name: v.name, Kind: v.desc.Kind, All: v.desc.All, OnFailure: v.desc.OnFailure, State: "works", Calls: v.calls,
		Failures: v.failures, Last: v.last, Memory: v.memory, Loaded: v.loaded}
	switch {
	case v.run == nil:
		s.State, s.Why = "broken", v.broken
		return s
	case v.health.resting(now) != "":
		s.State, s.Why = "rests", v.health.resting(now)
	case v.health.failures > 0:
		s.Why = v.health.last
	}
	s.Isolation = v.run.isolation()
	return s
}

// Ask asks the plugins named, all at the same time. It gives one answer each, in that order.
func (h *Host) Ask(ctx context.Context, names []string, q sched.PluginQuery) []wire.PluginAnswer {
	out := make([]wire.PluginAnswer, len(names))
	text, err := json.Marshal(q)
	if err != nil { // a number that JSON does not have
		for i, n := range names {
			out[i] = wire.PluginAnswer{Plugin: n, Skipped: "the query cannot be written: " + err.Error()}
		}
		return out
	}
	var wg sync.WaitGroup
	for i, n := range names {
		wg.Go(func() { out[i] = h.askOne(ctx, n, &q, text) })
	}
	wg.Wait()
	return out
}

func (h *Host) askOne(ctx context.Context, name string, query *sched.PluginQuery, text []byte) wire.PluginAnswer {
	a := wire.PluginAnswer{Plugin: name}
	h.mu.Lock()
	v := h.plugins[name]
	if v != nil {
		v.users.Add(1)
	}
	h.mu.Unlock()
	if v == nil {
		a.Skipped = "it is gone"
		return a
	}
	defer v.users.Done()
	r, err := v.ask(ctx, query, text)
	if err != nil {
		a.Skipped = err.Error()
		h.opt.Log.Debug("a plugin was skipped", "plugin", name, "instance", query.Instance, "err", err)
		return a
	}
	a.Scores, a.Out = r.Scores, r.Out
	return a
}

// ask asks one version and checks the answer.
func (v *version) ask(ctx context.Context, query *sched.PluginQuery, text []byte) (r sched.PluginReply, err error) {
	if v.run == nil {
		return r, errors.New(v.broken)
	}
	begin := time.Now()
	v.mu.Lock()
	rests := v.health.resting(begin)
	v.mu.Unlock()
	if rests != "" {
		return r, errors.New(rests)
	}
	u, err := v.run.ask(ctx, query.Seed, text, func(reply []byte) (err error) {
		r, err = ParseReply(reply, query)
		return err
	})
	end := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	if errors.Is(err, errBusy) {
		return r, err
	}
	v.calls++
	v.last = end.Sub(begin)
	v.memory = max(v.memory, u.memory)
	if err != nil {
		v.failures++
		if v.health.fail(end, err.Error()) {
			v.log.Warn("a plugin fails again and again, and rests", "plugin", v.name, "until", v.health.until.Format(time.TimeOnly), "failures",
				v.health.failures, "err", err)
		}
		return r, err
	}
	v.health.ok()
	return r, nil
}
