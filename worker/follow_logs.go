//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// LogLine is a line that a container wrote.
type LogLine struct {
	Service   skerry.ServiceKey
	Instance  skerry.InstanceID
	Container string
	runtime.LogEntry
}

const (
	// followRate is how many lines a second are read of one container, for long: what writes more is not to take the agent's processor.
	followRate  = 500
	followBurst = 5000
	// lookAgain is how long it takes at most to notice a container of which no change told.
	lookAgain = 10 * time.Second
)

// follower is a container whose log is read.
type follower struct {
	LogLine
	handle json.RawMessage
}

// FollowLogs gives each line that containers of this worker write from now on, until ctx ends. each may wait: only its container's lines wait
// with it, in the log, which keeps as many as it has room for.
func (s *Server) FollowLogs(ctx context.Context, each func(context.Context, LogLine)) error {
	changes := s.journal.Subscribe()
	defer changes.Close()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	began, seen := time.Now(), map[string]bool{}
	for first := true; ; first = false {
		there, err := tier.View(ctx, s.Role, func(c *core.Core) (map[string]follower, error) {
			out := map[string]follower{}
			c.Containers(func(a *spec.Assignment, name string, attempt int, handle json.RawMessage) {
				out[string(a.ID)+" "+name+" "+strconv.Itoa(attempt)] = follower{LogLine{Service: a.Service, Instance: a.ID, Container: name}, handle}
			})
			return out, nil
		})
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			for key, f := range there {
				if seen[key] {
					continue
				}
				var since time.Time
				if first { // what it wrote before was for who followed it then
					since = began
				}
				wg.Go(func() { s.followLog(ctx, f, since, each) })
			}
			clear(seen)
			for key := range there {
				seen[key] = true
			}
		}
		select {
		case <-changes.C:
			for len(changes.C) > 0 {
				<-changes.C
			}
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// followLog reads the log of a container until it has ended.
func (s *Server) followLog(ctx context.Context, f follower, since time.Time, each func(context.Context, LogLine)) {
	driver, handle, err := s.runtimes.of(f.handle)
	if err != nil {
		return
	}
	logger, ok := driver.(runtime.Logger)
	if !ok {
		return
	}
	lines, err := logger.OpenLog(ctx, handle, runtime.LogOptions{Follow: true, Since: since})
	if err != nil {
		s.opt.Log.Warn("the log of a container is not followed", "instance", string(f.Instance), "container", f.Container, "err", err)
		return
	}
	defer lines.Close()
	pace := rate.NewLimiter(followRate, followBurst)
	for {
		entry, err := lines.Next()
		if err != nil || pace.Wait(ctx) != nil {
			return
		}
		line := f.LogLine
		line.LogEntry = entry
		each(ctx, line)
	}
}
