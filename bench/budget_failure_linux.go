package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

// failover kills a worker with all that it runs and measures until the replacement is ready.
func (b *budgeter) failover(ctx context.Context) error {
	rounds := 3
	if b.o.Full {
		rounds = 20
	}
	if _, err := b.s.root.Apply(ctx, manifest("failover", 1), api.ApplyOptions{}); err != nil {
		return err
	}
	if err := b.ready(ctx, "failover", 1); err != nil {
		return err
	}
	for range rounds {
		if err := b.round(ctx, func() error { return b.failoverOnce(ctx) }); err != nil {
			return err
		}
	}
	b.about("the worker's cable goes down, then agent and containers are killed", "failover.median", "failover.p99")
	return b.remove(ctx, "failover")
}

func (b *budgeter) failoverOnce(ctx context.Context) error {
	worker, err := b.holder(ctx, "failover")
	if err != nil {
		return err
	}
	begin := time.Now()
	// It falls silent, as a machine does that loses power: no connection is reset.
	if err := b.s.ns.run("ip", "link", "set", worker.cable, "down"); err != nil {
		return err
	}
	b.powerOff(worker)
	err = b.s.await(ctx, "the replacement is ready", func() (bool, error) {
		list, err := b.s.cluster.Instances(ctx, api.InstanceFilter{App: "failover"})
		for _, i := range list {
			if string(i.Worker) != worker.name && i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready) {
				return true, nil
			}
		}
		return false, err
	})
	if err != nil {
		return err
	}
	b.add(time.Since(begin).Seconds(), "failover.median", "failover.p99")
	if err := b.s.ns.run("ip", "link", "set", worker.cable, "up"); err != nil {
		return err
	}
	if err := b.s.startWorker(worker); err != nil {
		return err
	}
	return b.s.await(ctx, "the worker is back", func() (bool, error) {
		list, err := b.s.cluster.Workers(ctx)
		for _, x := range list {
			if string(x.Name) == worker.name && x.Connected && x.Refusing == "" {
				return true, nil
			}
		}
		return false, err
	})
}

// powerOff kills an agent and everything in its cgroups.
func (b *budgeter) powerOff(w *benchWorker) {
	w.cmd.Process.Signal(syscall.SIGKILL)
	w.cmd.Wait()
	for range 3 {
		for _, pid := range cgroupPids(b.s.cgroup(w)) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// cgroupPids lists the processes in all cgroups of a name, whatever the hierarchy.
func cgroupPids(name string) []int {
	seen := map[int]bool{}
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	roots = append(roots, "/sys/fs/cgroup/"+name)
	for _, root := range roots {
		filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Name() == "cgroup.procs" {
				data, _ := os.ReadFile(path)
				for _, f := range strings.Fields(string(data)) {
					if pid, err := strconv.Atoi(f); err == nil {
						seen[pid] = true
					}
				}
			}
			return nil
		})
	}
	var out []int
	for pid := range seen {
		out = append(out, pid)
	}
	return out
}

// metered measures the traffic of an idle worker at a site of the metered profile, and how long it takes to replace what a
// worker ran that falls silent there.
func (b *budgeter) metered(ctx context.Context) error {
	if _, err := b.s.root.Apply(ctx, manifest("metered", 10), api.ApplyOptions{}); err != nil {
		return err
	}
	if err := b.ready(ctx, "metered", 10); err != nil {
		return err
	}
	worker, err := b.holder(ctx, "metered")
	if err != nil {
		return err
	}
	wait := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	const window = 5 * time.Minute // the longest pause between two words of a worker
	if err := wait(2 * time.Minute); err != nil {
		return err
	}
	for range 3 {
		err := b.round(ctx, func() error {
			t0, err := b.s.ns.traffic(worker.cable)
			if err != nil {
				return err
			}
			begin := time.Now()
			if err := wait(window); err != nil {
				return err
			}
			t1, err := b.s.ns.traffic(worker.cable)
			if err != nil {
				return err
			}
			b.add(8*(t1-t0)/1000/time.Since(begin).Seconds(), "control.wire.metered")
			return nil
		})
		if err != nil {
			return err
		}
	}
	b.about(fmt.Sprintf("both directions on the worker's cable, TCP and IP headers included, 10 instances, windows of %s", window),
		"control.wire.metered")
	return b.remove(ctx, "metered")
}
