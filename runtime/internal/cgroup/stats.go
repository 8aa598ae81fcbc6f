//go:build linux

package cgroup

import (
	"bytes"
	"path/filepath"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
)

// noLimit is where version 1 memory limits mean "none": the largest page-aligned number, less some pages.
const noLimit = 1 << 62

// Stats reads what the group used, once. A group that is gone gives fs.ErrNotExist.
func (g Group) Stats(now time.Time) (runtime.Stats, error) {
	m := Meter{g: g, closed: true}
	return m.Stats(now)
}

// runDelay sums what threads have waited on run queues: the second number of schedstat, in nanoseconds.
func runDelay(tids []byte) time.Duration {
	var sum time.Duration
	var buf [128]byte
	for tid := range bytes.FieldsSeq(tids) {
		text, err := files.Peek("/proc/"+string(tid)+"/schedstat", buf[:])
		_, rest, _ := bytes.Cut(text, []byte(" "))
		delay, _, ok := bytes.Cut(rest, []byte(" "))
		if err != nil || !ok {
			continue // it has just ended, or the kernel does not tell
		}
		sum += max(0, time.Duration(number(delay)))
	}
	return sum
}

// stalled reads the total of the line "some" of a pressure file, which is in microseconds.
func stalled(text []byte) time.Duration {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("some ")); ok {
			_, total, _ := bytes.Cut(rest, []byte("total="))
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(total)), 10, 64); err == nil && n > 0 {
				return time.Duration(n) * time.Microsecond
			}
		}
	}
	return 0
}

// OOMKills counts the processes that the kernel killed for the group's memory limit.
func (g Group) OOMKills() uint64 {
	d := g.dir("memory")
	if d == "" {
		return 0
	}
	if g.t.unified {
		return keyed(filepath.Join(d, "memory.events"))["oom_kill"]
	}
	return keyed(filepath.Join(d, "memory.oom_control"))["oom_kill"]
}

// parseBlkio reads lines "8:0 Read 4096" of version 1.
func parseBlkio(text []byte) (read, write skerry.Bytes) {
	for line := range bytes.Lines(text) {
		_, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		kind, amount, ok := bytes.Cut(rest, []byte(" "))
		n, err := strconv.ParseInt(string(amount), 10, 64)
		if !ok || err != nil || n < 0 {
			continue
		}
		switch string(kind) {
		case "Read":
			read += skerry.Bytes(n)
		case "Write":
			write += skerry.Bytes(n)
		}
	}
	return read, write
}

// parseIOStat reads lines "8:0 rbytes=1 wbytes=2 rios=3 ..." of version 2.
func parseIOStat(text []byte) (read, write skerry.Bytes) {
	for field := range bytes.FieldsSeq(text) {
		k, v, _ := bytes.Cut(field, []byte("="))
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil || n < 0 {
			continue
		}
		switch string(k) {
		case "rbytes":
			read += skerry.Bytes(n)
		case "wbytes":
			write += skerry.Bytes(n)
		}
	}
	return read, write
}
