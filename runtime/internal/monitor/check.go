//go:build linux

package monitor

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/probe"
)

// checkPrefix begins the IDs of self-test tasks.
func checkPrefix() string { return fmt.Sprintf("skerry-check.%d.", os.Getpid()) }

// CheckID is the ID of a task of a self-test; List leaves it out. name and n tell it from others of this process.
func (d *Driver) CheckID(name string, n int) runtime.TaskID {
	return runtime.TaskID(fmt.Sprintf("%s%s.%d-%d", checkPrefix(), name, time.Now().UnixNano(), n))
}

// IsCheck says whether a task is one of a self-test of this process.
func (d *Driver) IsCheck(id runtime.TaskID) bool { return strings.HasPrefix(string(id), checkPrefix()) }

// UsedByChecks is what the tasks of self-tests of this process have used of processors until now; of those that are gone, nothing.
func (d *Driver) UsedByChecks() (used time.Duration) {
	for _, h := range d.Tasks.List() {
		t, err := d.Tasks.Get(h)
		if err != nil || !d.IsCheck(h.ID) {
			continue
		}
		if s, err := t.Group().Stats(time.Now()); err == nil { // it may not be made yet
			used += s.CPU
		}
	}
	return used
}

// IOAbilities are those about I/O that the machine has, for every driver.
func (d *Driver) IOAbilities() (out []runtime.Ability) {
	rates, weight := d.Tasks.Tree().IO()
	if rates {
		out = append(out, runtime.AbilityIO)
	}
	if weight {
		out = append(out, runtime.AbilityIOWeight)
	}
	return out
}

// Preflight looks for what every task needs, and says in the report what is missing. root says what needs root.
func (d *Driver) Preflight(r *runtime.Report, root string) bool {
	missing := d.Tasks.Tree().Missing()
	switch {
	case os.Geteuid() != 0:
		r.Cause, r.Cure = root, "run the worker as root"
	case LookPath(d.Options.Conmon) == "":
		r.Cause, r.Cure = d.Options.Conmon+" is not installed", "apt-get install conmon"
	case len(missing) > 0:
		r.Cause = "cgroup controllers are missing: " + strings.Join(missing, ", ")
		r.Cure = "enable them (on Raspberry Pi OS: cgroup_enable=memory on the kernel command line); without them limits cannot be enforced"
	default:
		return true
	}
	return false
}

// Try runs the self-test's program and looks at everything that a task relies on. name tells the attempt from others of this
// process; root and args say where the program is; start is the driver's own.
func (d *Driver) Try(ctx context.Context, name string, root runtime.Mount, args []string,
	start func(context.Context, runtime.Spec) (runtime.Handle, error)) error {
	return d.TryWith(ctx, name, root, args, start, d.Stats)
}

// TryWith is Try for a driver that has figures of its own.
func (d *Driver) TryWith(ctx context.Context, name string, root runtime.Mount, args []string,
	start func(context.Context, runtime.Spec) (runtime.Handle, error),
	figures func(context.Context, runtime.Handle) (runtime.Stats, error)) error {
	const memory, pids = 64 * skerry.MiB, 16
	handle, err := start(ctx, runtime.Spec{
		ID:        runtime.TaskID(fmt.Sprintf("%s%s.%d", checkPrefix(), name, time.Now().UnixNano())),
		RootFS:    []runtime.Mount{root},
		Args:      args,
		Resources: runtime.Resources{CPU: 500, Memory: memory, Pids: pids},
	})
	if err != nil {
		return err
	}
	defer d.Remove(context.WithoutCancel(ctx), handle)
	exit, err := d.Wait(ctx, handle)
	if err != nil {
		return err
	}
	log, err := d.OpenLog(ctx, handle, runtime.LogOptions{})
	if err != nil {
		return err
	}
	defer log.Close()
	entry, _ := log.Next()
	if exit.Code != probe.Code || entry.Line != probe.Line {
		return fmt.Errorf("the test program printed %q and ended with status %d instead of %q and %d", entry.Line, exit.Code, probe.Line,
			probe.Code)
	}
	stats, err := figures(ctx, handle)
	if err != nil {
		return fmt.Errorf("read what the test program used: %w", err)
	}
	if stats.MemoryLimit != memory {
		return fmt.Errorf("a memory limit of %s was set, but the kernel says %s", memory, stats.MemoryLimit)
	}
	return nil
}
