//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
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
	each func(context.Context, LogLine) bool
	wg   sync.WaitGroup
	list map[string]*logReader
	// looked: it was seen which containers there are. Until then the word of the agent before holds, if there was one.
	looked bool
	word   *followed
}

// logReader reads the log of one of them.
type logReader struct {
	logSource
	since  time.Time // of the next line that is wanted; zero: the first one
	end    context.CancelFunc
	failed atomic.Bool // its log could not be opened
}

// followedFile holds, while no agent runs, from when on each log is to be read by the next one. An agent that is killed leaves none.
const followedFile = "followed.json"

// followed is what is in it.
type followed struct {
	Until time.Time            `json:"until"` // when the logs were let go of
	From  map[string]time.Time `json:"from"`  // by container and attempt; the beginning if it is not among them
}

// followedFor is how old that file may be: who has switched this off for a day does not want that day's lines.
const followedFor = time.Hour

// FollowLogs gives each line that containers of this worker write from now on, until ctx ends, and what they wrote since a FollowLogs
// before that ended in order, as it does when an agent is restarted or upgraded. each may wait: only its container's lines wait with it, in
// the log, which keeps as many as it has room for. A line that it does not take, because ctx has ended, is given again the next time.
func (s *Server) FollowLogs(ctx context.Context, each func(context.Context, LogLine) bool) error {
	changes := s.journal.Subscribe()
	defer changes.Close()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	readers := &logReaders{s: s, each: each, list: map[string]*logReader{}}
	defer readers.leave()
	before, again := readers.resume(), true
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
			readers.look(ctx, there, before, again)
			before = func(string) time.Time { return time.Time{} }
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

// resume says from when on the logs of the containers that are there at first are read. Without a word from an agent before, what was
// written until now was for who followed it then.
func (all *logReaders) resume() func(key string) time.Time {
	path, now := filepath.Join(all.s.opt.Dir, followedFile), time.Now()
	var last followed
	data, err := os.ReadFile(path)
	if err == nil {
		err = errors.Join(os.Remove(path), json.Unmarshal(data, &last)) // it does not hold any more
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		all.s.opt.Log.Warn("logs are followed from now on", "err", err)
	}
	if err != nil || now.Sub(last.Until).Abs() > followedFor {
		return func(string) time.Time { return now }
	}
	all.word = &last
	return func(key string) time.Time { return last.From[key] }
}

// leave waits until all logs are let go of, and notes how far they were read.
func (all *logReaders) leave() {
	all.wg.Wait()
	word := &followed{time.Now(), map[string]time.Time{}}
	for key, k := range all.list {
		word.From[key] = k.since
	}
	if !all.looked {
		if word = all.word; word == nil {
			return // else the next one would begin each log anew
		}
	}
	data, err := json.Marshal(word)
	if err == nil {
		err = files.Replace(filepath.Join(all.s.opt.Dir, followedFile), data, 0o600)
	}
	if err != nil {
		all.s.opt.Log.Warn("what containers write until the agent is back is not pushed", "err", err)
	}
}

// look takes up the containers that are there now, and lets go of others. since says from when on the log of a new one is read; again tries
// those once more that could not be opened.
func (all *logReaders) look(ctx context.Context, there map[string]logSource, since func(key string) time.Time, again bool) {
	all.looked = true
	for key, c := range there {
		k := all.list[key]
		if k == nil {
			k = &logReader{logSource: c, since: since(key)}
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
func (s *Server) followLog(ctx context.Context, f *logReader, each func(context.Context, LogLine) bool) {
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
		if !each(ctx, line) {
			return
		}
		f.since = entry.Time.Add(1)
	}
}
