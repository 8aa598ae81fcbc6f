//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
)

// What a group has that was never limited.
const (
	defaultShares = 1024
	defaultWeight = "100"
)

// Limits reads the CPU quota and the memory limit; a zero is none.
func (g Group) Limits() (l Limits, err error) {
	if !g.Exists() {
		return l, fs.ErrNotExist
	}
	if g.t.unified {
		quota, period, _ := strings.Cut(strings.TrimSpace(readFile(filepath.Join(g.dir(""), "cpu.max"))), " ")
		l.CPU = millis(quota, period)
		l.Memory = skerry.Bytes(readUint(filepath.Join(g.dir(""), "memory.max"))) // "max" reads as 0
		return l, nil
	}
	if d := g.dir("cpu"); d != "" {
		l.CPU = millis(strings.TrimSpace(readFile(filepath.Join(d, "cpu.cfs_quota_us"))),
			strings.TrimSpace(readFile(filepath.Join(d, "cpu.cfs_period_us"))))
	}
	if d := g.dir("memory"); d != "" {
		if n := readUint(filepath.Join(d, "memory.limit_in_bytes")); n < noLimit {
			l.Memory = skerry.Bytes(n)
		}
	}
	return l, nil
}

// millis turns a quota into thousandths of a core; "max" and -1 are no limit.
func millis(quota, period string) skerry.MilliCPU {
	q, err1 := strconv.ParseInt(quota, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return skerry.MilliCPU((q*1000 + p/2) / p)
}

// Resize changes CPU, CPURequest and Memory of a group in which processes run; a zero takes the limit away. Memory comes first, since
// it alone may be refused, by a *runtime.InUse; after an error everything is as before.
func (g Group) Resize(ctx context.Context, l Limits) error {
	was, err := g.Limits()
	if err != nil {
		return err
	}
	if err := g.setMemory(ctx, was.Memory, l.Memory); err != nil {
		return err
	}
	if err := errors.Join(g.setCPU(l), g.setMemoryLow(l.MemoryLow)); err != nil {
		// Nothing is known of the share that it had; the quota and the memory can be put back.
		return errors.Join(err, g.setQuota(was.CPU), g.setMemory(ctx, l.Memory, was.Memory))
	}
	return nil
}

func (g Group) setCPU(l Limits) error {
	if err := g.setQuota(l.CPU); err != nil {
		return err
	}
	if g.t.unified {
		weight := defaultWeight
		if l.CPURequest > 0 {
			weight = strconv.FormatUint(weightOf(l.CPURequest), 10)
		}
		return g.write("", "cpu.weight", weight)
	}
	shares := uint64(defaultShares)
	if l.CPURequest > 0 {
		shares = Shares(l.CPURequest)
	}
	return g.write("cpu", "cpu.shares", strconv.FormatUint(shares, 10))
}

func (g Group) setQuota(cpu skerry.MilliCPU) error {
	if g.t.unified {
		quota := "max"
		if cpu > 0 {
			quota = strconv.FormatInt(int64(cpu)*CPUPeriod/1000, 10)
		}
		return g.write("", "cpu.max", fmt.Sprintf("%s %d", quota, CPUPeriod))
	}
	quota := int64(-1)
	if cpu > 0 {
		if err := g.write("cpu", "cpu.cfs_period_us", strconv.Itoa(CPUPeriod)); err != nil {
			return err
		}
		quota = int64(cpu) * CPUPeriod / 1000
	}
	return g.write("cpu", "cpu.cfs_quota_us", strconv.FormatInt(quota, 10))
}

// setMemory changes the memory limit. What is used, and cannot be dropped at no cost, is never more than it.
func (g Group) setMemory(ctx context.Context, was, limit skerry.Bytes) error {
	if was == limit {
		return nil
	}
	cut := limit > 0 && (was == 0 || limit < was)
	if cut {
		if used := g.workingSet(); used > limit {
			return &runtime.InUse{Used: used, Limit: limit}
		}
	}
	if g.t.unified {
		return g.setMemoryV2(ctx, limit, cut)
	}
	value := limitText(limit)
	files := []string{"memory.memsw.limit_in_bytes", "memory.limit_in_bytes"} // the former is never below the latter
	if cut {
		files = []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	}
	for _, f := range files {
		err := g.write("memory", f, value)
		if errors.Is(err, fs.ErrNotExist) && strings.Contains(f, "memsw") {
			continue // there is no swap accounting
		}
		if errors.Is(err, unix.EBUSY) { // the kernel could not free as much
			err = &runtime.InUse{Used: g.workingSet(), Limit: limit}
		}
		if err != nil {
			if f == files[1] {
				err = errors.Join(err, g.write("memory", files[0], limitText(was)))
			}
			return err
		}
	}
	return nil
}

func limitText(limit skerry.Bytes) string {
	if limit == 0 {
		return "-1"
	}
	return strconv.FormatInt(int64(limit), 10)
}

const (
	// reclaimTime is how long the kernel has to free what can be freed before a lower limit.
	reclaimTime = 2 * time.Second
	reclaimLook = 10 * time.Millisecond
)

// setMemoryV2 sets memory.max. The kernel kills at once what uses more than that, so a lower limit is first one that only has
// it free memory and holds back whoever wants more; it becomes the limit when the group is below it.
func (g Group) setMemoryV2(ctx context.Context, limit skerry.Bytes, cut bool) error {
	value := "max"
	if limit > 0 {
		value = strconv.FormatInt(int64(limit), 10)
	}
	if cut {
		if err := g.write("", "memory.high", value); err != nil {
			return err
		}
		defer func() { _ = g.write("", "memory.high", "max") }()
		file := filepath.Join(g.dir(""), "memory.current")
		for end := time.Now().Add(reclaimTime); skerry.Bytes(readUint(file)) > limit; {
			if time.Now().After(end) || ctx.Err() != nil {
				return &runtime.InUse{Used: skerry.Bytes(readUint(file)), Limit: limit}
			}
			time.Sleep(reclaimLook)
		}
	}
	if err := g.write("", "memory.max", value); err != nil {
		return err
	}
	swap := "max"
	if limit > 0 {
		swap = "0"
	}
	_ = g.write("", "memory.swap.max", swap) // absent without swap
	return nil
}

// workingSet is what the group uses without cache that the kernel drops at no cost.
func (g Group) workingSet() skerry.Bytes {
	s, err := g.Stats(time.Now())
	if err != nil {
		return 0
	}
	return s.MemoryWorkingSet
}

// Pin sets the processors that the group may use, as in "0-2,5".
func (g Group) Pin(cpus string) error {
	if !g.Exists() {
		return fs.ErrNotExist
	}
	return g.write("cpuset", "cpuset.cpus", cpus)
}
