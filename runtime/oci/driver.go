//go:build linux

package oci

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/internal/monitor"
)

// Options configure a driver. Dir is required.
type Options struct {
	// Dir is the state directory: bundles, writable layers, logs. An absolute path on a file system that overlayfs
	// accepts as upper layer.
	Dir string
	// CgroupParent is the group below which each task gets its own; "skerry" when empty.
	CgroupParent string
	// Runtimes are OCI runtimes in order of preference, names or paths; crun, then runc when empty.
	Runtimes []string
	// Conmon is the supervisor, a name or path; "conmon" when empty.
	Conmon string
	Log    *slog.Logger
}

// Driver is a runtime.Driver, Execer, Statser, Logger and Pauser.
type Driver struct {
	*monitor.Driver
	runtimes []string

	// choosing holds a token while the self-test that chooses the runtime is on its way.
	choosing chan struct{}
	mu       sync.Mutex // protects what follows
	chosen   string     // path of the runtime that passed
	// byCommand says that writing to crun's pipe did not start a container.
	byCommand bool
	filters   map[filterKey]string // compiled seccomp filters, in base64
}

// New opens the state directory and adopts the tasks in it.
func New(o Options) (*Driver, error) {
	if len(o.Runtimes) == 0 {
		o.Runtimes = []string{"crun", "runc"}
	}
	d := &Driver{runtimes: o.Runtimes, choosing: make(chan struct{}, 1), filters: map[filterKey]string{}}
	var err error
	d.Driver, err = monitor.NewDriver(monitor.DriverOptions{Name: "oci", Dir: o.Dir, CgroupParent: o.CgroupParent, Conmon: o.Conmon, Log: o.Log, Clean: d.clean})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// clean takes the container out of the runtime's own books and unmounts its root.
func (d *Driver) clean(ctx context.Context, t *monitor.Task) error {
	rec := t.Record()
	if rec.Runtime != "" {
		root := d.root(rec.Runtime)
		if _, err := os.Stat(filepath.Join(root, string(rec.Handle.ID))); err == nil {
			out, err := exec.CommandContext(ctx, rec.Runtime, "--root", root, "delete", "--force", string(rec.Handle.ID)).CombinedOutput()
			if err != nil {
				// A state that the runtime itself cannot read any more is ours to delete: nothing runs in it.
				d.Options.Log.Warn("runtime delete", "task", rec.Handle.ID, "err", err, "output", strings.TrimSpace(string(out)))
			}
			if err := os.RemoveAll(filepath.Join(root, string(rec.Handle.ID))); err != nil {
				return err
			}
		}
	}
	for {
		// One mount may lie over another after a crash.
		if err := unix.Unmount(t.Path("rootfs"), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return nil
		}
	}
}

// root is where a runtime keeps its own state; two runtimes do not read each other's.
func (d *Driver) root(program string) string {
	return filepath.Join(d.Options.Dir, filepath.Base(program))
}
