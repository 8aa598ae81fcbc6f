//go:build linux

package worker

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

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
		s := &Server{drivers: map[string]runtime.Driver{"x": elsewhere{says: c.says, stopped: &stopped}}, overDisk: map[runtime.TaskID]string{}}
		s.opt.Log = slog.New(slog.DiscardHandler)
		s.holdLayer(t.Context(), layer{handle: []byte(`{"id": "a", "driver": "x"}`), most: diskuse.Use{Bytes: 1 << 20, Files: 10}})
		if why := s.overDisk["a"]; stopped != (c.why != "") || !strings.HasPrefix(why, c.why) || stopped && why == "" {
			t.Errorf("%+v: %v, %q", c.says, stopped, why)
		}
	}
}
