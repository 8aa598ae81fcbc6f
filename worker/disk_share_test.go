//go:build linux

package worker

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/diskuse"
	"skerry.dev/skerry/runtime"
)

// elsewhere is a driver whose tasks write to what somebody else keeps.
type elsewhere struct {
	driverOf
	says    runtime.Layer
	stopped *bool
}

func (d elsewhere) Layer(context.Context, runtime.Handle) (runtime.Layer, error) { return d.says, nil }
func (d elsewhere) DropLayer(context.Context, runtime.Handle) error              { return nil }
func (d elsewhere) Stop(context.Context, runtime.Handle, time.Duration) error {
	*d.stopped = true
	return nil
}

// TestLayerThatIsElsewhere: what is written to no directory of the worker's counts as well.
func TestLayerThatIsElsewhere(t *testing.T) {
	for _, c := range []struct {
		says runtime.Layer
		why  string
	}{
		{runtime.Layer{Bytes: 1 << 20, Inodes: 10}, ""},
		{runtime.Layer{Bytes: 1<<20 + 1, Inodes: 10}, "more than the 1Mi"},
		{runtime.Layer{Bytes: 1, Inodes: 11}, "more than 10 files"},
	} {
		stopped := false
		s := serverWith(map[string]runtime.Driver{"x": elsewhere{says: c.says, stopped: &stopped}})
		s.disk = newDiskShares()
		s.opt.Log = slog.New(slog.DiscardHandler)
		s.holdLayer(t.Context(), layer{handle: []byte(`{"id": "a", "driver": "x"}`), most: diskuse.Use{Bytes: 1 << 20, Files: 10}})
		if why := s.disk.over["a"]; stopped != (c.why != "") || !strings.HasPrefix(why, c.why) || stopped && why == "" {
			t.Errorf("%+v: %v, %q", c.says, stopped, why)
		}
	}
}

// TestDiskIsWatchedForContainers shows on a simulated clock that nothing looks at the disk while no container is held to a share of it, and
// that one that was started is measured within a second of writing.
func TestDiskIsWatchedForContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		shares, done := newDiskShares(), make(chan struct{})
		var held atomic.Bool
		var free, looks, measured atomic.Int64
		free.Store(int64(skerry.GiB))
		go func() {
			defer close(done)
			shares.watch(ctx, func() (skerry.Bytes, bool) { looks.Add(1); return skerry.Bytes(free.Load()), true },
				func() bool { measured.Add(1); return held.Load() })
		}()
		during := func(f time.Duration) (l, m int64) {
			l, m = looks.Load(), measured.Load()
			time.Sleep(f)
			synctest.Wait()
			return looks.Load() - l, measured.Load() - m
		}
		for range 2 {
			during(diskEvery + diskLook) // what is left of a minute in which there was one
			if l, _ := during(time.Hour); l > int64(time.Hour/diskEvery) {
				t.Errorf("the disk was looked at %d times in an hour without a container", l)
			}
			held.Store(true)
			shares.wake()
			for range 3 {
				during(10 * diskLook)
				free.Add(-int64(diskSlack) - 1)
				if _, m := during(diskLook); m != 1 {
					t.Errorf("measured %d times when a container had written", m)
				}
			}
			if l, m := during(time.Hour); l != int64(time.Hour/diskLook) || m < 59 || m > 61 {
				t.Errorf("with a container the disk was looked at %d times in an hour, and measured %d times", l, m)
			}
			shares.wake() // one has ended, and another took as much as that had
			if _, m := during(diskLook); m != 1 {
				t.Errorf("measured %d times when one container had ended and another had written as much, want once", m)
			}
			held.Store(false)
			free.Store(int64(skerry.GiB))
		}
		cancel()
		<-done
	})
}
