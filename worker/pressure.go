//go:build linux

package worker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// pressure reads how much of the last ten seconds something on the machine waited for a resource, or gives nil where the
// kernel does not tell (no CONFIG_PSI, or psi=0).
func pressure(dir string) *wire.Pressure {
	var p wire.Pressure
	some := false
	for name, to := range map[string]*float64{"cpu": &p.CPU, "memory": &p.Memory, "io": &p.IO} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if v, ok := parsePressure(string(data)); ok {
			*to, some = v, true
		}
	}
	if !some {
		return nil
	}
	return &p
}

// parsePressure reads avg10 of the line "some", in percent, as a share.
func parsePressure(text string) (float64, bool) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "some ")
		if !ok {
			continue
		}
		for field := range strings.FieldsSeq(rest) {
			if v, ok := strings.CutPrefix(field, "avg10="); ok {
				n, err := strconv.ParseFloat(v, 64)
				return n / 100, err == nil && n >= 0 && n <= 100
			}
		}
	}
	return 0, false
}

// accelerators counts the processors of the machine that are not for general use, by their device nodes: graphics
// (NVIDIA's own nodes, else render nodes) and tensor processors (Coral's).
func accelerators(dev string) (gpus, tpus int) {
	count := func(pattern string) int {
		list, _ := filepath.Glob(filepath.Join(dev, pattern))
		return len(list)
	}
	if gpus = count("nvidia[0-9]*"); gpus == 0 {
		gpus = count("dri/renderD*")
	}
	return gpus, count("apex_*")
}

// linkSpeed gives the bandwidth of a network device in bytes per second, or 0 where the driver does not tell.
func linkSpeed(sys, device string) skerry.Bytes {
	data, err := os.ReadFile(filepath.Join(sys, "class/net", device, "speed"))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n <= 0 {
		return 0
	}
	return skerry.Bytes(n) * 1_000_000 / 8
}

// defaultDevice names the device of the IPv4 default route, or "".
func defaultDevice(routes string) string {
	for line := range strings.Lines(routes) {
		if f := strings.Fields(line); len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" {
			return f[0]
		}
	}
	return ""
}

// diskTime sums the time in which disks were busy, in milliseconds, from /proc/diskstats (the thirteenth column), whole
// disks only.
func diskTime(diskstats string, sys string) (ms int64, disks int) {
	for line := range strings.Lines(diskstats) {
		f := strings.Fields(line)
		if len(f) < 13 {
			continue
		}
		if _, err := os.Stat(filepath.Join(sys, "block", f[2])); err != nil || strings.HasPrefix(f[2], "loop") || strings.HasPrefix(f[2], "ram") {
			continue
		}
		if n, err := strconv.ParseInt(f[12], 10, 64); err == nil {
			ms += n
			disks++
		}
	}
	return ms, disks
}
