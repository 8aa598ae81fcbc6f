//go:build linux

package native

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// Options configure a driver. Dir and Shim are required.
type Options struct {
	// Dir is the state directory, an absolute path.
	Dir string
	// Name is that of the driver; "native" when empty.
	Name string
	// Shim is the command that ends up in ShimMain, such as {"/usr/bin/skerry", "shim"}.
	Shim []string
	// CgroupParent is the group below which each task gets its own; "skerry" when empty.
	CgroupParent string
	// Conmon is the supervisor, a name or path; "conmon" when empty.
	Conmon string
	Log    *slog.Logger
}

// Driver is a runtime.Driver, Execer, Statser, Logger and Pauser.
type Driver struct {
	*monitor.Driver
	shim []string
}

// New opens the state directory and adopts the tasks in it.
func New(o Options) (*Driver, error) {
	if len(o.Shim) == 0 || !filepath.IsAbs(o.Shim[0]) {
		return nil, fmt.Errorf("runtime native: option Shim %q must begin with an absolute path", o.Shim)
	}
	if o.Name == "" {
		o.Name = "native"
	}
	base, err := monitor.NewDriver(monitor.DriverOptions{Name: o.Name, Dir: o.Dir, CgroupParent: o.CgroupParent, Conmon: o.Conmon, Log: o.Log})
	if err != nil {
		return nil, err
	}
	return &Driver{base, o.Shim}, nil
}

// Stop ends a task with its children, which no process namespace takes along.
func (d *Driver) Stop(ctx context.Context, h runtime.Handle, grace time.Duration) error {
	if err := d.Driver.Stop(ctx, h, grace); err != nil {
		return err
	}
	t, err := d.Tasks.Get(h)
	if err != nil {
		return err
	}
	t.Kill(10 * time.Second)
	return nil
}

// dirExists is for errors that name a directory.
func dirExists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
