package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry/api"
)

// hundred measures how long a hundred instances take to be ready and to be gone, and what they cost beside the workload. Each round has as
// many bare runs.
func (b *budgeter) hundred(ctx context.Context) error {
	rounds := 2
	if b.o.Full {
		rounds = 10
	}
	runtime, bare, err := b.bare(ctx)
	if err != nil {
		return err
	}
	defer bare.close()
	for range rounds {
		if err := b.round(ctx, func() error { return b.hundredOnce(ctx, bare) }); err != nil {
			return err
		}
	}
	b.about("apply sent until the API shows a hundred ready, one worker", "deploy.hundred")
	b.about("a hundred bare runs of "+runtime+", two started at a time", "deploy.hundred.bare")
	b.about("deploy.hundred over deploy.hundred.bare of the same round", "deploy.hundred.ratio")
	b.about("deletion sent until the API does not know the application", "delete.hundred")
	return nil
}

func (b *budgeter) hundredOnce(ctx context.Context, bare *bare) error {
	name := b.fresh("hundred")
	// All on one worker: the other one takes nothing meanwhile.
	if err := b.s.cluster.CordonWorker(ctx, b.s.workers[1].name, "benchmark"); err != nil {
		return err
	}
	agents := b.s.workers[0].processes()
	before, err := sum(agents, PSS)
	if err != nil {
		return err
	}
	begin := time.Now()
	if _, err := b.s.root.Apply(ctx, manifest(name, 100), api.ApplyOptions{}); err != nil {
		return err
	}
	if err := b.ready(ctx, name, 100); err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	b.add(took, "deploy.hundred")
	after, err := sum(agents, PSS)
	if err != nil {
		return err
	}
	shims, n := supervisors(b.s.workers[0])
	kernel, err := cgroupKernelMemory("/sys/fs/cgroup", b.s.cgroup(b.s.workers[0]))
	switch {
	case err != nil: // the rest alone would be less than it costs
		b.r.Find("", "container.mem", "").Skip = err.Error()
	case n > 0:
		b.add((shims/float64(n)+kernel/float64(n)+max(after-before, 0)/100)/(1<<20), "container.mem")
		b.about(fmt.Sprintf("of each of %d: conmon %.2f MiB PSS, kernel memory of its cgroups %.2f, growth of the agent %.2f (last round)",
			n, shims/float64(n)/(1<<20), kernel/float64(n)/(1<<20), max(after-before, 0)/100/(1<<20)), "container.mem")
	}
	begin = time.Now()
	if err := b.remove(ctx, name); err != nil {
		return err
	}
	b.add(time.Since(begin).Seconds(), "delete.hundred")
	if err := b.s.cluster.CordonWorker(ctx, b.s.workers[1].name, ""); err != nil {
		return err
	}
	runs, err := bare.many(ctx, 100)
	if err != nil {
		return err
	}
	b.add(runs.Seconds(), "deploy.hundred.bare")
	b.add(took/runs.Seconds(), "deploy.hundred.ratio")
	return nil
}

// supervisors sums memory of the conmon processes of a worker, and counts them.
func supervisors(worker *benchWorker) (pss float64, n int) {
	procs, _ := os.ReadDir("/proc")
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline"))
		if err != nil || !bytes.Contains(data, []byte("conmon\x00")) || !bytes.Contains(data, []byte(worker.dir+"/")) {
			continue
		}
		if m, _, err := memory(pid); err == nil {
			pss += m
			n++
		}
	}
	return pss, n
}

// cgroupKernelMemory gives the kernel memory that is charged to a cgroup, of version 1 or 2.
func cgroupKernelMemory(root, group string) (float64, error) {
	text, err := os.ReadFile(filepath.Join(root, "memory", group, "memory.kmem.usage_in_bytes"))
	if err == nil {
		return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	}
	if text, err = os.ReadFile(filepath.Join(root, group, "memory.stat")); err == nil {
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "kernel "); ok {
				return strconv.ParseFloat(strings.TrimSpace(value), 64)
			}
		}
	}
	return 0, fmt.Errorf("no cgroup %s below %s tells its kernel memory", group, root)
}
