//go:build linux

package worker

import (
	"path/filepath"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
)

// parsePressure reads avg10 of the line "some", in percent, as a share.
func parsePressure(text []byte) (float64, bool) {
	for line := range strings.Lines(string(text)) {
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
	var buf [64]byte
	data, err := files.Peek(filepath.Join(sys, "class/net", device, "speed"), buf[:])
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n <= 0 {
		return 0
	}
	return skerry.Bytes(n) * 1_000_000 / 8
}

// linkBandwidth gives the bandwidth of the device of the default route in one direction, or 0 where it is not known.
func linkBandwidth() skerry.Bytes {
	var buf [4 << 10]byte
	routes, err := files.Peek("/proc/net/route", buf[:])
	if err != nil {
		return 0
	}
	return linkSpeed("/sys", defaultDevice(string(routes)))
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
