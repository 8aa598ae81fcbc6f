//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry/runtime"
)

// printing is a driver whose tasks print the same line for ever. So many of their logs can be open at a time.
type printing struct {
	runtime.Driver
	room, open atomic.Int32
}

func (p *printing) OpenLog(ctx context.Context, _ runtime.Handle, _ runtime.LogOptions) (runtime.LogStream, error) {
	if p.open.Add(1) > p.room.Load() {
		p.open.Add(-1)
		return nil, errors.New("too many open files")
	}
	return &printedLog{p, ctx}, nil
}

type printedLog struct {
	p   *printing
	ctx context.Context
}

func (p *printedLog) Next() (runtime.LogEntry, error) {
	return runtime.LogEntry{Stream: "stdout", Line: "again"}, p.ctx.Err()
}

func (p *printedLog) Close() error {
	p.p.open.Add(-1)
	return nil
}

// While the collector is away, the logs of containers that are gone do not stay open, however many there were. One that could not be opened
// is when there is room.
func TestFollowLogsLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := &printing{}
		d.room.Store(20)
		s := &Server{runtimes: &runtimes{named: map[string]runtime.Driver{"oci": d}},
			opt: ServerOptions{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
		var taken atomic.Int32
		f := &logReaders{s: s, list: map[string]*logReader{}, each: func(ctx context.Context, _ LogLine) bool {
			taken.Add(1)
			<-ctx.Done()
			return true
		}}
		first := func(string) time.Time { return time.Time{} }
		one := func(n int) map[string]logSource {
			return map[string]logSource{"a main " + strconv.Itoa(n): {handle: encode(runtime.Handle{Driver: "oci"})}}
		}
		for n := range 100 { // each crashes
			f.look(ctx, one(n), first, false)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if got := d.open.Load(); got > 11 {
			t.Errorf("%d logs are open for 1 container", got)
		}
		if got := taken.Load(); got != 100 {
			t.Errorf("%d lines are taken, want one of each container", got)
		}
		d.room.Store(0)
		f.look(ctx, one(100), first, false)
		synctest.Wait()
		d.room.Store(20)
		f.look(ctx, one(100), first, false)
		synctest.Wait()
		if got := taken.Load(); got != 100 {
			t.Errorf("%d lines are taken, want none of what could not be opened", got)
		}
		for range 2 {
			f.look(ctx, one(100), first, true)
			synctest.Wait()
		}
		if got := taken.Load(); got != 101 {
			t.Errorf("%d lines are taken, want one of what can be opened now", got)
		}
		cancel()
		f.wg.Wait()
		if got := d.open.Load(); got != 0 {
			t.Errorf("%d logs are open in the end", got)
		}
	})
}

// written is a driver whose task has written some lines, one a second, and writes no more.
type written struct {
	runtime.Driver
	from  time.Time
	lines int
}

func (w *written) OpenLog(ctx context.Context, _ runtime.Handle, o runtime.LogOptions) (runtime.LogStream, error) {
	return &writtenLog{written: w, ctx: ctx, since: o.Since}, nil
}

type writtenLog struct {
	*written
	ctx   context.Context
	since time.Time
	next  int
}

func (l *writtenLog) Next() (runtime.LogEntry, error) {
	for ; l.next < l.lines; l.next++ {
		if at := l.from.Add(time.Duration(l.next) * time.Second); !at.Before(l.since) {
			l.next++
			return runtime.LogEntry{Time: at, Stream: "stdout", Line: strconv.Itoa(l.next)}, nil
		}
	}
	<-l.ctx.Done()
	return runtime.LogEntry{}, l.ctx.Err()
}

func (l *writtenLog) Close() error { return nil }

// An agent that ends before it has seen which containers there are leaves the word of the one before as it was.
func TestFollowLogsBeforeALook(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, followedFile)
	s := &Server{opt: ServerOptions{Dir: dir, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
	ends := func() string {
		t.Helper()
		all := &logReaders{s: s, list: map[string]*logReader{}}
		all.resume()
		all.leave()
		data, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := ends(); got != "" {
		t.Errorf("it leaves %s, want nothing, as it found nothing", got)
	}
	before, err := json.Marshal(followed{time.Now(), map[string]time.Time{"a": time.Now().Add(-time.Second)}})
	if err == nil {
		err = os.WriteFile(path, before, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := ends(); got != string(before) {
		t.Errorf("it leaves %s, want what it found: %s", got, before)
	}
}

// An agent that ends in order leaves word how far it had come: the next one goes on with the line that nobody took, and with the beginning
// of what it finds new. Word that is old or damaged counts as none.
func TestFollowLogsGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		d := &written{from: time.Now(), lines: 2}
		s := &Server{runtimes: &runtimes{named: map[string]runtime.Driver{"oci": d}},
			opt: ServerOptions{Dir: dir, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
		// follow gives what one agent takes, which is at most so many lines of each container.
		follow := func(most int, keys ...string) string {
			ctx, cancel := context.WithCancel(t.Context())
			var mu sync.Mutex
			taken := map[string][]string{}
			all := &logReaders{s: s, list: map[string]*logReader{}, each: func(_ context.Context, l LogLine) bool {
				mu.Lock()
				defer mu.Unlock()
				if len(taken[l.Container]) == most {
					return false
				}
				taken[l.Container] = append(taken[l.Container], l.Line)
				return true
			}}
			there := map[string]logSource{}
			for _, key := range keys {
				there[key] = logSource{LogLine{Container: key}, encode(runtime.Handle{Driver: "oci"})}
			}
			all.look(ctx, there, all.resume(), false)
			synctest.Wait()
			cancel()
			all.leave()
			return fmt.Sprint(taken)
		}
		want := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: it took %s, want %s", what, got, want)
			}
		}
		time.Sleep(2 * time.Second)
		want("the first agent", follow(9, "a"), "map[]")
		d.lines = 6
		time.Sleep(4 * time.Second)
		want("the next one, whose collector takes two", follow(2, "a"), "map[a:[3 4]]")
		want("one that finds another container", follow(9, "a", "b"), "map[a:[5 6] b:[1 2 3 4 5 6]]")
		want("one that finds nothing new", follow(9, "a", "b"), "map[]")
		d.lines = 7
		time.Sleep(followedFor + time.Second)
		want("one after a day without", follow(9, "a"), "map[]")
		d.lines = 5000
		time.Sleep(time.Second)
		if err := os.WriteFile(filepath.Join(dir, followedFile), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		now := int(time.Since(d.from)/time.Second) + 1
		want("one that finds half a file", follow(1, "a"), fmt.Sprintf("map[a:[%d]]", now))
	})
}
