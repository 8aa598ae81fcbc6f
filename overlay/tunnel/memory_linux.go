package tunnel

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// slim gives back memory that only the start has needed: the program is large, and starting goes through all of its
// packages. Pages of the file come back when they are needed; what is written is never touched.
func slim() {
	debug.FreeOSMemory()
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer f.Close()
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		from, to, ok := fileMapping(lines.Text(), exe)
		if ok {
			// Only the kernel looks at the address: it is not the Go runtime's memory.
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
		}
	}
}

// fileMapping takes a line of /proc/self/maps apart; ok says that it is of the program and cannot be written.
func fileMapping(line, exe string) (from, to uintptr, ok bool) {
	f := strings.Fields(line)
	if len(f) < 6 || f[5] != exe || len(f[1]) != 4 || f[1][1] != '-' {
		return 0, 0, false
	}
	if n, err := fmt.Sscanf(f[0], "%x-%x", &from, &to); err != nil || n != 2 || to <= from {
		return 0, 0, false
	}
	return from, to, true
}
