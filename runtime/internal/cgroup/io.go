//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// weightFiles are where version 1 keeps a group's share of disks, by the scheduler that honours it, with the largest that it takes.
var weightFiles = []struct {
	name string
	most uint64
}{{"blkio.bfq.weight", 1000}, {"blkio.weight", 1000}}

// IO tells which limits of I/O the machine has: rates, and shares.
func (t *Tree) IO() (rates, weight bool) {
	if t.unified {
		list := strings.Fields(readFile(filepath.Join(t.mounts[""], "cgroup.controllers")))
		rates = slices.Contains(list, "io")
		return rates, rates && t.weightV2()
	}
	root := t.mounts["blkio"]
	if root == "" {
		return false, false
	}
	_, err := os.Stat(filepath.Join(root, "blkio.throttle.read_bps_device"))
	return err == nil, t.weightV1() != ""
}

// weightV2 looks for the file in any group: the root has none, and others have it once the controller is handed down, as Create does.
func (t *Tree) weightV2() bool {
	_ = os.WriteFile(filepath.Join(t.mounts[""], "cgroup.subtree_control"), []byte("+io"), 0o644)
	for _, pattern := range []string{"*/io.weight", "*/io.bfq.weight"} {
		if list, _ := filepath.Glob(filepath.Join(t.mounts[""], pattern)); len(list) > 0 {
			return true
		}
	}
	return false
}

func (t *Tree) weightV1() string {
	for _, f := range weightFiles {
		for _, pattern := range []string{f.name, "*/" + f.name} {
			if list, _ := filepath.Glob(filepath.Join(t.mounts["blkio"], pattern)); len(list) > 0 {
				return f.name
			}
		}
	}
	return ""
}

// CheckIO says what of limits the machine cannot hold, by a *runtime.Unsupported, or nil.
func (t *Tree) CheckIO(driver string, io *runtime.IO) error {
	if io == nil {
		return nil
	}
	rates, weight := t.IO()
	if !rates && (io.ReadBps|io.WriteBps|io.ReadIOPS|io.WriteIOPS) != 0 {
		return &runtime.Unsupported{Ability: runtime.AbilityIO, Driver: driver,
			Reason: "the kernel has no io controller (blkio in version 1), or nobody has it enabled"}
	}
	if !weight && io.Weight != 0 {
		return &runtime.Unsupported{Ability: runtime.AbilityIOWeight, Driver: driver,
			Reason: "the kernel has no shares of disks (CONFIG_BLK_CGROUP_IOCOST or the bfq scheduler); leave resources.io.weight out"}
	}
	return nil
}

// Bound sets, in a group that there is already, what runtimes are not trusted with: MemoryLow, IO and HugePages.
func (g Group) Bound(l Limits) error {
	return errors.Join(g.setMemoryLow(l.MemoryLow), g.limitIO(l.IO), g.limitHugePages(l.HugePages))
}

// limitHugePages lets a group use so much in huge pages, and nothing if it did not ask: they are counted. Where the kernel does not count
// them nobody is held to anything.
func (g Group) limitHugePages(h spec.HugePages) error {
	name := "limit_in_bytes"
	if g.t.unified {
		name = "max"
	}
	for size, limit := range map[string]skerry.Bytes{"2MB": h.Size2Mi, "1GB": h.Size1Gi} {
		file := g.File("hugetlb", "hugetlb."+size+"."+name)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if err := os.WriteFile(file, []byte(strconv.FormatInt(int64(limit), 10)), 0o644); err != nil {
			return fmt.Errorf("cgroup %s: limit huge pages of %s: %w", g.Path(), size, err)
		}
	}
	return nil
}

// limitIO sets rates for each device, and the share.
func (g Group) limitIO(io *runtime.IO) error {
	if io == nil {
		return nil
	}
	if err := g.t.CheckIO("", io); err != nil {
		return err
	}
	for _, device := range io.Devices {
		if err := g.limitDevice(device, io); err != nil {
			return err
		}
	}
	if io.Weight == 0 {
		return nil
	}
	if g.t.unified {
		err := g.write("", "io.weight", "default "+strconv.Itoa(int(io.Weight)))
		if err != nil {
			err = g.write("", "io.bfq.weight", strconv.Itoa(int(min(io.Weight, 1000))))
		}
		return err
	}
	name := g.t.weightV1()
	for _, f := range weightFiles {
		if f.name == name {
			return g.write("blkio", name, strconv.FormatUint(max(10, min(uint64(io.Weight), f.most)), 10))
		}
	}
	return nil
}

func (g Group) limitDevice(device string, io *runtime.IO) error {
	for _, l := range []struct {
		v2, v1 string
		value  uint64
	}{
		{"rbps", "blkio.throttle.read_bps_device", io.ReadBps}, {"wbps", "blkio.throttle.write_bps_device", io.WriteBps},
		{"riops", "blkio.throttle.read_iops_device", io.ReadIOPS}, {"wiops", "blkio.throttle.write_iops_device", io.WriteIOPS},
	} {
		if l.value == 0 {
			continue
		}
		file, text := l.v1, fmt.Sprintf("%s %d", device, l.value)
		if g.t.unified {
			file, text = "io.max", fmt.Sprintf("%s %s=%d", device, l.v2, l.value)
		}
		if err := g.write("blkio", file, text); err != nil {
			return err
		}
	}
	return nil
}

// ReadIO reads the rates that a group is held to for a device.
func (g Group) ReadIO(device string) (io runtime.IO) {
	if g.t.unified {
		for line := range strings.Lines(readFile(filepath.Join(g.dir(""), "io.max"))) {
			f := strings.Fields(line)
			if len(f) == 0 || f[0] != device {
				continue
			}
			for _, kv := range f[1:] {
				k, v, _ := strings.Cut(kv, "=")
				n, _ := strconv.ParseUint(v, 10, 64) // "max" reads as 0
				switch k {
				case "rbps":
					io.ReadBps = n
				case "wbps":
					io.WriteBps = n
				case "riops":
					io.ReadIOPS = n
				case "wiops":
					io.WriteIOPS = n
				}
			}
		}
		return io
	}
	of := func(name string) uint64 { return keyed(filepath.Join(g.dir("blkio"), name))[device] }
	return runtime.IO{ReadBps: of("blkio.throttle.read_bps_device"), WriteBps: of("blkio.throttle.write_bps_device"),
		ReadIOPS: of("blkio.throttle.read_iops_device"), WriteIOPS: of("blkio.throttle.write_iops_device")}
}

// setMemoryLow keeps so much memory of a group from being taken for the sake of others; 0 keeps nothing. Where the kernel has no such thing
// it is a wish. Version 1 knows a soft limit alone: what is above it is taken first.
func (g Group) setMemoryLow(low skerry.Bytes) error {
	if g.t.unified {
		file := filepath.Join(g.dir(""), "memory.low")
		if _, err := os.Stat(file); err != nil || low == 0 && strings.TrimSpace(readFile(file)) == "0" {
			return nil
		}
		// What a group keeps counts only as far as those above it keep it. The topmost ones may be a service manager's.
		if low > 0 {
			for up := filepath.Dir(g.path); up != "."; up = filepath.Dir(up) {
				_ = os.WriteFile(filepath.Join(g.t.mounts[""], up, "memory.low"), []byte("max"), 0o644)
				if filepath.Ext(up) != "" {
					break // a unit
				}
			}
		}
		return g.write("", "memory.low", strconv.FormatInt(int64(low), 10))
	}
	if g.dir("memory") == "" {
		return nil
	}
	if low == 0 {
		if readUint(filepath.Join(g.dir("memory"), "memory.soft_limit_in_bytes")) >= noLimit {
			return nil
		}
		return g.write("memory", "memory.soft_limit_in_bytes", "-1")
	}
	return g.write("memory", "memory.soft_limit_in_bytes", strconv.FormatInt(int64(low), 10))
}

// ReadMemoryLow reads what setMemoryLow has set; 0: nothing.
func (g Group) ReadMemoryLow() skerry.Bytes {
	if g.t.unified {
		return skerry.Bytes(readUint(filepath.Join(g.dir(""), "memory.low")))
	}
	if n := readUint(filepath.Join(g.dir("memory"), "memory.soft_limit_in_bytes")); n < noLimit {
		return skerry.Bytes(n)
	}
	return 0
}
