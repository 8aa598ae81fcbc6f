//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"
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
	// lastLines is how long the log of a container that is gone is still read. A reader that waits for a collector keeps its files open.
	lastLines = 10 * time.Second
)

// logSource is a container whose log is read.
type logSource struct {
	LogLine
	handle json.RawMessage
}

// logReaders are the containers whose logs are read.
type logReaders struct {
	s    *Server
	each func(context.Context, LogLine)
	wg   sync.WaitGroup
	list map[string]*logReader
}

// logReader reads the log of one of them.
type logReader struct {
	logSource
	since  time.Time
	end    context.CancelFunc
	failed atomic.Bool // its log could not be opened
}

// FollowLogs gives each line that containers of this worker write from now on, until ctx ends. each may wait: only its container's lines
// wait with it, in the log, which keeps as many as it has room for.
func (s *Server) FollowLogs(ctx context.Context, each func(context.Context, LogLine)) error {
	changes := s.journal.Subscribe()
	defer changes.Close()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	readers := &logReaders{s: s, each: each, list: map[string]*logReader{}}
	defer readers.wg.Wait()
	since, again := time.Now(), true // what was written before was for who followed it then
	for {
		there, err := tier.View(ctx, s.Role, func(c *core.Core) (map[string]logSource, error) {
			out := map[string]logSource{}
			c.Containers(func(a *spec.Assignment, name string, attempt int, handle json.RawMessage) {
				out[string(a.ID)+" "+name+" "+strconv.Itoa(attempt)] = logSource{LogLine{Service: a.Service, Instance: a.ID, Container: name}, handle}
			})
			return out, nil
		})
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			readers.look(ctx, there, since, again)
			since = time.Time{}
		}
		select {
		case <-changes.C:
			for len(changes.C) > 0 {
				<-changes.C
			}
			again = false
		case <-tick.C:
			again = true
		case <-ctx.Done():
			return nil
		}
	}
}

// look takes up the containers that are there now, and lets go of others. again tries those once more that could not be opened.
func (all *logReaders) look(ctx context.Context, there map[string]logSource, since time.Time, again bool) {
	for key, c := range there {
		k := all.list[key]
		if k == nil {
			k = &logReader{logSource: c, since: since}
			all.list[key] = k
		} else if !again || !k.failed.Load() {
			continue
		}
		var reading context.Context
		reading, k.end = context.WithCancel(ctx)
		all.wg.Go(func() {
			defer k.end()
			all.s.followLog(reading, k, all.each)
		})
	}
	for key, k := range all.list {
		if _, is := there[key]; !is {
			time.AfterFunc(lastLines, k.end)
			delete(all.list, key)
		}
	}
}

// followLog reads the log of a container until it has ended.
func (s *Server) followLog(ctx context.Context, f *logReader, each func(context.Context, LogLine)) {
	driver, handle, err := s.runtimes.of(f.handle)
	if err != nil {
		return
	}
	logger, ok := driver.(runtime.Logger)
	if !ok {
		return
	}
	lines, err := logger.OpenLog(ctx, handle, runtime.LogOptions{Follow: true, Since: f.since})
	if err != nil {
		if !f.failed.Swap(true) {
			s.opt.Log.Warn("the log of a container is not followed", "instance", string(f.Instance), "container", f.Container, "err", err)
		}
		return
	}
	f.failed.Store(false)
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
