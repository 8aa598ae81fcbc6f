//go:build linux

package monitor

import (
	"context"

	"skerry.dev/skerry/runtime"
)

// Layer is for tasks that have no layer of their own: they write to mounts alone.
func (d *Driver) Layer(_ context.Context, h runtime.Handle) (runtime.Layer, error) {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return runtime.Layer{}, err
	}
	return runtime.Layer{Procs: t.Group().Procs()}, nil
}

// DropLayer has nothing to drop.
func (d *Driver) DropLayer(context.Context, runtime.Handle) error { return nil }
