package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/internal/upgrade"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
	workercore "skerry.dev/skerry/worker/core"
)

// programs are those of a worker's agent; the agent asks them to be exchanged, and ends.
type programs struct {
	Program // the one that runs
	dir     *upgrade.Dir
	status  func(context.Context) (role.Status, error)
	ask     chan struct{}
	mu      sync.Mutex // people on the device and the cluster may ask at the same time
}

// wait ends the service when a program is to be tried.
func (p *programs) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.ask:
		return role.ErrUpgrade
	}
}

// stage makes a program the one that is tried next. The agent goes on until p.ask is sent to.
func (p *programs) stage(ctx context.Context, q upgradeRequest, order uint64) (program upgrade.Program, err error) {
	if upgrade.OnTrial() {
		return program, skerry.Errorf(skerry.CodeConflict, "this program is itself on trial").WithHint("try again when it has passed")
	}
	st, err := p.status(ctx)
	if err != nil {
		return program, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if program, err = p.dir.Stage(ctx, q.Path); err != nil {
		return program, err
	}
	return program, p.dir.Begin(upgrade.Trial{Program: program, From: p.Version, Since: time.Now().UTC(), Window: q.Window, Steady: q.Steady,
		Want: seen(&st), Order: order})
}

// Name implements worker.Agent.
func (p *programs) Name() string { return p.Program.Name }

// Stage implements worker.Agent.
func (p *programs) Stage(ctx context.Context, path string, o wire.AgentOrder) error {
	if upgrade.OnTrial() { // the state is another process's to write
		return worker.ErrLater
	}
	// An order of an earlier life comes again before the link does. A program that cannot reach the cluster would pass then.
	for {
		st, err := p.status(ctx)
		if err != nil {
			return err
		}
		if st.Parent != nil && st.Parent.Connected {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	if _, err := p.stage(ctx, upgradeRequest{Path: path, Window: o.Window, Steady: o.Steady}, o.Seq); err != nil {
		return err
	}
	p.ask <- struct{}{}
	return nil
}

// Refuse implements worker.Agent.
func (p *programs) Refuse(o wire.AgentOrder, why string) error {
	if upgrade.OnTrial() {
		return worker.ErrLater
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dir.Refused(upgrade.Outcome{From: p.Version, Why: why, At: time.Now().UTC(), Order: o.Seq})
}

// Facts implements worker.Agent.
func (p *programs) Facts() (*wire.AgentFacts, error) {
	s, err := p.dir.State()
	switch {
	case err != nil:
		return nil, err
	case s.Trial != nil && s.Trial.Order > 0:
		return &wire.AgentFacts{Order: s.Trial.Order, Stage: wire.AgentTrial, From: s.Trial.From, To: s.Trial.Version}, nil
	case s.Ordered == nil:
		return nil, nil
	}
	f := &wire.AgentFacts{Order: s.Ordered.Order, Stage: wire.AgentPassed, From: s.Ordered.From, To: s.Ordered.Version, Why: s.Ordered.Why}
	if !s.Ordered.Passed {
		f.Stage = wire.AgentFailed
	}
	return f, nil
}

// serve answers a request for an upgrade on the device.
func (p *programs) serve(w http.ResponseWriter, r *http.Request) {
	if p == nil {
		role.Answer(w, nil, skerry.Errorf(skerry.CodeUnsupported, "a worker of `skerry up` has no program of its own").
			WithHint("restart skerry up with the new program"))
		return
	}
	var q upgradeRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&q); err != nil {
		role.Answer(w, nil, skerry.Errorf(skerry.CodeInvalid, "%w", err))
		return
	}
	program, err := p.stage(r.Context(), q, 0)
	role.Answer(w, program, err)
	if err == nil {
		_ = http.NewResponseController(w).Flush() // whoever asked sees the rest in the status
		p.ask <- struct{}{}
	}
}

// seen is what a trial looks at.
func seen(st *role.Status) upgrade.Seen {
	s := upgrade.Seen{Pid: st.Pid, Connected: st.Parent != nil && st.Parent.Connected,
		Overlay: st.Overlay != nil && st.Overlay.Off == "" && st.Overlay.ID != 0}
	for _, r := range st.Runtimes {
		if r.Passed {
			s.Runtimes = append(s.Runtimes, r.Name)
		}
	}
	for _, i := range st.Instances {
		s.Instances = append(s.Instances, string(i.ID))
		switch {
		case i.State == skerry.Running && i.Ready:
			s.Ready = append(s.Ready, string(i.ID))
		case i.State == skerry.Terminated:
			s.Done = append(s.Done, string(i.ID))
		}
	}
	return s
}

// noTrialEnv has the next program in this process carry out no trial that waits.
const noTrialEnv = "SKERRY_NO_TRIAL"

// launch replaces this process by the program that the worker was upgraded to, carries out a trial that was cut short, or does
// nothing: then this program is the worker's. stopped says that it was asked to end.
func launch(ctx context.Context, dir *upgrade.Dir, data string, log *slog.Logger) (stopped bool, err error) {
	if upgrade.OnTrial() {
		return false, nil
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	switch at, err := dir.Choose(self); {
	case err != nil:
		log.Error("choose the agent's program", "err", err)
	case at != "":
		// It comes back with an error alone: of a data directory that is mounted noexec now, for example.
		log.Error("the program that this worker was upgraded to cannot be started; the one that was started runs", "err", dir.Exec(self, os.Args))
	}
	s, err := dir.State()
	if err != nil {
		log.Error("read the record of the agent's programs", "err", err)
	}
	if s.Trial == nil || os.Getenv(noTrialEnv) != "" {
		return false, os.Unsetenv(noTrialEnv)
	}
	return true, try(ctx, dir, data, log)
}

// try carries out a trial and replaces this process by the program that is to run then. It returns nil if it was asked to end.
func try(ctx context.Context, dir *upgrade.Dir, data string, log *slog.Logger) error {
	defer role.StartWatchdog().Stop() // the trial has bounds of its own
	self, err := os.Executable()
	if err != nil {
		return err
	}
	v := upgrade.Supervisor{Dir: dir, Args: os.Args, Log: log, Look: func(ctx context.Context) (upgrade.Seen, error) {
		var st role.Status
		err := role.CallLocal(ctx, data, "GET", "/status", nil, &st)
		return seen(&st), err
	}}
	switch _, err := v.Try(ctx); {
	case errors.Is(err, upgrade.ErrStopped):
		return nil
	case err != nil:
		// A full disk, for example. The worker has to work all the same, and not try for ever; the next start tries again.
		log.Error("the upgrade was interrupted; the previous program is used", "err", err)
		if err := os.Setenv(noTrialEnv, "1"); err != nil {
			return err
		}
	}
	return dir.Exec(self, os.Args)
}

// programsDir is where a worker keeps its programs.
func programsDir(c *node.WorkerConfig) (*upgrade.Dir, error) {
	if err := role.MustDir(c.Dir); err != nil {
		return nil, err
	}
	data, err := filepath.Abs(c.Dir)
	if err == nil {
		data, err = filepath.EvalSymlinks(data)
	}
	file, ok := strings.CutPrefix(c.StoreURL, "sqlite:")
	if c.StoreURL == "" {
		file, ok = filepath.Join(data, node.StateFile), true
	}
	if !ok {
		file = ""
	}
	dir := upgrade.Open(filepath.Join(data, "agent"), file)
	version := c.Version
	dir.Reads = func(ctx context.Context, st store.Store) error {
		_, err := tier.CheckWriter(ctx, st, tier.Program{Version: version, Records: workercore.Records()})
		return err
	}
	return dir, err
}
