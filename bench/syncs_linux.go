package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// syncs counts the system calls by which processes, and what they start, wait for their disk: fsync and fdatasync. It asks the kernel, so
// that nothing that a program counts of itself, or forgets to, is believed.
type syncs struct{ files []int }

// tracing is where the kernel tells of its tracepoints.
const tracing = "/sys/kernel/tracing/events/syscalls"

// countSyncs begins to count. It needs root, and a kernel with tracepoints of system calls.
func countSyncs(pids []int) (counted *syncs, err error) {
	counted = &syncs{}
	defer func() {
		if err != nil {
			counted.close()
		}
	}()
	for _, name := range []string{"sys_enter_fsync", "sys_enter_fdatasync"} {
		text, err := os.ReadFile(filepath.Join(tracing, name, "id"))
		if err != nil {
			return counted, fmt.Errorf("the kernel does not count system calls here: %w", err)
		}
		id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return counted, fmt.Errorf("tracepoint %s: %w", name, err)
		}
		attr := &unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Bits: unix.PerfBitInherit}
		attr.Size = unix.PERF_ATTR_SIZE_VER5
		for _, pid := range pids {
			threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			if err != nil {
				return counted, err
			}
			for _, t := range threads {
				tid, _ := strconv.Atoi(t.Name())
				fd, err := unix.PerfEventOpen(attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
				if errors.Is(err, unix.ESRCH) {
					continue // it has just ended
				}
				if err != nil {
					return counted, fmt.Errorf("count %s: %w", name, err)
				}
				counted.files = append(counted.files, fd)
			}
		}
	}
	return counted, nil
}

// count is how many there were so far.
func (s *syncs) count() (sum float64, err error) {
	for _, fd := range s.files {
		var n [8]byte
		if _, err := unix.Read(fd, n[:]); err != nil {
			return 0, fmt.Errorf("read a counter: %w", err)
		}
		sum += float64(binary.NativeEndian.Uint64(n[:]))
	}
	return sum, nil
}

func (s *syncs) close() {
	for _, fd := range s.files {
		unix.Close(fd)
	}
	s.files = nil
}
