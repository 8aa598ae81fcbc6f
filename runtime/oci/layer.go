//go:build linux

package oci

import (
	"context"
	"errors"
	"fmt"
	"os"

	"skerry.dev/skerry/runtime"
)

// Layer says what a task writes to. A root that is bound, or whose upper directory is the caller's, is none of the task's own.
func (d Bundles) Layer(_ context.Context, h runtime.Handle) (runtime.Layer, error) {
	t, err := d.Tasks.Get(h)
	if err != nil {
		return runtime.Layer{}, err
	}
	l := runtime.Layer{Dir: t.Path("upper"), Root: d.Root(t), Procs: t.Group().Procs()}
	if _, err := os.Stat(l.Dir); err != nil {
		l.Dir = ""
	}
	return l, nil
}

// DropLayer removes what a task wrote that has exited.
func (d Bundles) DropLayer(ctx context.Context, h runtime.Handle) error {
	t, err := d.Tasks.Get(h)
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
	if err := d.Unmount(t); err != nil {
		return err
	}
	return errors.Join(t.RemoveTree("upper"), t.RemoveTree("work"))
}
