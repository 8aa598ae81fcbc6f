//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// scratchFile is the disk that a task of microvm writes to, in its bundle.
const scratchFile = "scratch.ext4"

// Layer says which disk a machine writes to.
func (d *Driver) Layer(_ context.Context, h runtime.Handle) (runtime.Layer, error) {
	return layerOf(d.base, h, scratchFile)
}

// DropLayer removes that disk of a machine that has ended.
func (d *Driver) DropLayer(ctx context.Context, h runtime.Handle) error {
	return dropLayer(ctx, d.base, h, scratchFile)
}

// Layer says which disk a machine writes to. A unikernel has none.
func (d *Appliances) Layer(_ context.Context, h runtime.Handle) (runtime.Layer, error) {
	return layerOf(d.base, h, overlayFile)
}

// DropLayer removes that disk of a machine that has ended.
func (d *Appliances) DropLayer(ctx context.Context, h runtime.Handle) error {
	return dropLayer(ctx, d.base, h, overlayFile)
}

func layerOf(base *monitor.Driver, h runtime.Handle, name string) (runtime.Layer, error) {
	t, err := base.Tasks.Get(h)
	if err != nil {
		return runtime.Layer{}, err
	}
	l := runtime.Layer{Procs: t.Group().Procs()}
	if _, err := os.Lstat(t.Path(name)); err == nil {
		l.Files = []string{t.Path(name)}
	}
	return l, nil
}

func dropLayer(ctx context.Context, base *monitor.Driver, h runtime.Handle, name string) error {
	t, err := base.Tasks.Get(h)
	if err != nil {
		return err
	}
	if err := t.Lock(ctx); err != nil {
		return err
	}
	defer t.Unlock()
	if st := t.Status(); st.State != runtime.StateExited {
		return fmt.Errorf("task %s is %s", h.ID, st.State)
	}
	if err := os.Remove(t.Path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
