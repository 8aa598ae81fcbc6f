//go:build linux

package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
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
		f := &logReaders{s: s, list: map[string]*logReader{}, each: func(ctx context.Context, _ LogLine) {
			taken.Add(1)
			<-ctx.Done()
		}}
		one := func(n int) map[string]logSource {
			return map[string]logSource{"a main " + strconv.Itoa(n): {handle: encode(runtime.Handle{Driver: "oci"})}}
		}
		for n := range 100 { // each crashes
			f.look(ctx, one(n), time.Time{}, false)
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
		f.look(ctx, one(100), time.Time{}, false)
		synctest.Wait()
		d.room.Store(20)
		f.look(ctx, one(100), time.Time{}, false)
		synctest.Wait()
		if got := taken.Load(); got != 100 {
			t.Errorf("%d lines are taken, want none of what could not be opened", got)
		}
		for range 2 {
			f.look(ctx, one(100), time.Time{}, true)
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
