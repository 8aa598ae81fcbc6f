//go:build linux

package worker

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/wire"
)

// machineCounters are the files in which the kernel counts what is used of the machine. They stay open. Only measure touches them.
type machineCounters struct {
	stat, mem, disks files.Kept
	stalls           [3]files.Kept // of processors, memory and disks
	whole            map[string]bool
	proc, sys        string // directories; empty: the machine's own
}

// text reads a file, or as much of it as buf takes where head says so. It gives nothing for one that there is not.
func (m *machineCounters) text(f *files.Kept, name string, buf []byte, head bool) []byte {
	if !f.Open() {
		proc := m.proc
		if proc == "" {
			proc = "/proc"
		}
		opened, err := files.Keep(filepath.Join(proc, name))
		if err != nil {
			return nil
		}
		*f = opened
	}
	read := f.Read
	if head {
		read = f.Head
	}
	text, err := read(buf)
	if err != nil {
		return nil
	}
	return text
}

func (m *machineCounters) close() {
	for _, f := range []*files.Kept{&m.stat, &m.mem, &m.disks, &m.stalls[0], &m.stalls[1], &m.stalls[2]} {
		_ = f.Close() // only read
	}
}

// pressure reads how much of the last ten seconds something on the machine waited for a resource, or gives nil where the
// kernel does not tell (no CONFIG_PSI, or psi=0).
func (m *machineCounters) pressure() *wire.Pressure {
	var p wire.Pressure
	var buf [512]byte
	some := false
	for i, to := range []*float64{&p.CPU, &p.Memory, &p.IO} {
		name := [...]string{"cpu", "memory", "io"}[i]
		if v, ok := parsePressure(m.text(&m.stalls[i], "pressure/"+name, buf[:], false)); ok {
			*to, some = v, true
		}
	}
	if !some {
		return nil
	}
	return &p
}

// cpuTimes reads busy and total processor time of the machine, in ticks.
func (m *machineCounters) cpuTimes() (busy, total float64) {
	var buf [256]byte // the first line is of all processors
	line, _, ok := bytes.Cut(m.text(&m.stat, "stat", buf[:], true), []byte("\n"))
	if !ok {
		return 0, 0
	}
	for i, f := range bytes.Fields(line)[1:] {
		n, _ := strconv.ParseFloat(string(f), 64)
		total += n
		if i != 3 && i != 4 { // idle, iowait
			busy += n
		}
	}
	return busy, total
}

// memory reads total and available memory, which are among the first lines.
func (m *machineCounters) memory() (total, available skerry.Bytes) {
	var buf [256]byte
	return parseMemory(m.text(&m.mem, "meminfo", buf[:], true))
}

// parseMemory reads lines such as "MemTotal:   24689764 kB".
func parseMemory(text []byte) (total, available skerry.Bytes) {
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			continue
		}
		n, err := strconv.ParseInt(string(f[1]), 10, 64)
		if err != nil {
			continue
		}
		switch string(f[0]) {
		case "MemTotal:":
			total = skerry.Bytes(n) * skerry.KiB
		case "MemAvailable:":
			available = skerry.Bytes(n) * skerry.KiB
		}
	}
	return total, available
}

// diskTime sums the time in which disks were busy, in milliseconds, from /proc/diskstats (the thirteenth column), whole
// disks only.
func (m *machineCounters) diskTime() (ms int64, disks int) {
	var buf [4 << 10]byte
	for line := range bytes.Lines(m.text(&m.disks, "diskstats", buf[:], false)) {
		f := bytes.Fields(line)
		if len(f) < 13 || !m.wholeDisk(string(f[2])) {
			continue
		}
		if n, err := strconv.ParseInt(string(f[12]), 10, 64); err == nil {
			ms += n
			disks++
		}
	}
	return ms, disks
}

// wholeDisk tells a disk from a part of one, which has no entry of its own below /sys/block. What a name means does not change.
func (m *machineCounters) wholeDisk(name string) bool {
	if strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") {
		return false
	}
	whole, known := m.whole[name]
	if !known {
		sys := m.sys
		if sys == "" {
			sys = "/sys"
		}
		_, err := os.Stat(filepath.Join(sys, "block", name))
		whole = err == nil
		if m.whole == nil {
			m.whole = map[string]bool{}
		}
		m.whole[name] = whole
	}
	return whole
}
