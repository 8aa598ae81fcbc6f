//go:build linux

package wasm

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

const (
	// slack is what this process may come to take beside the modules' memory after it has loaded the code.
	slack = 4 * skerry.MiB
)

// budget is the memory that modules may have: what the kernel allows to the task without what this process itself takes, for all
// that run at the same time. What goes beyond is refused to the module, which can tell; the kernel would kill.
type budget struct {
	limit *os.File // the kernel's; it may change while the task runs
	own   int64
	used  atomic.Int64
}

func openBudget(limit string) (*budget, error) {
	if limit == "" {
		return &budget{}, nil
	}
	f, err := os.Open(limit)
	if err != nil {
		return nil, err
	}
	return &budget{limit: f}, nil
}

// begin notes what this process takes without a module.
func (b *budget) begin() {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "RssAnon:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(v, "kB")), 10, 64)
			b.own = n*int64(skerry.KiB) + int64(slack)
		}
	}
	// Garbage is collected when half of the slack is. A limit of memory in place of that would have the collector run all the time.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetGCPercent(int(max(10, min(100, 100*uint64(slack/2)/max(1, m.HeapAlloc)))))
}

// all is the most that modules may have together now.
func (b *budget) all() int64 {
	if b.limit == nil {
		return math.MaxInt64
	}
	var text [32]byte
	n, err := b.limit.ReadAt(text[:], 0)
	if n == 0 && err != nil {
		return math.MaxInt64
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text[:n])), 10, 64)
	if err != nil || limit > 1<<60 { // "max", or version 1's way to say it
		return math.MaxInt64
	}
	return limit - b.own
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.all() {
		b.used.Add(-n)
		return false
	}
	return true
}

// noMemory is the panic by which Allocate refuses: the engine takes no other no for what a module begins with.
type noMemory struct{ wants, has int64 }

func (e *noMemory) Error() string {
	return fmt.Sprintf("the module begins with %s of memory, and its limit leaves %s; raise resources.memory", skerry.Bytes(e.wants),
		skerry.Bytes(max(0, e.has)))
}

// Allocate implements experimental.MemoryAllocator.
func (b *budget) Allocate(least, most uint64) experimental.LinearMemory {
	// Addresses cost nothing until they are used, and a memory that need not move is not held twice while it grows.
	for size := most; size >= least && size > 0; size /= 2 {
		if size > math.MaxInt {
			continue
		}
		addr, err := unix.Mmap(-1, 0, int(size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err == nil {
			return &memory{b: b, all: addr}
		}
	}
	return &memory{b: b}
}

// memory is one module's.
type memory struct {
	b     *budget
	all   []byte
	used  int64
	begun bool
}

// Reallocate implements experimental.LinearMemory.
func (m *memory) Reallocate(size uint64) []byte {
	first := !m.begun
	m.begun = true
	more := int64(size) - m.used
	ok := size <= uint64(len(m.all)) && m.b.take(more)
	if ok && size > 0 {
		if err := unix.Mprotect(m.all[:size], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			m.b.used.Add(-more)
			ok = false
		}
	}
	if !ok {
		if first {
			m.Free()
			panic(&noMemory{int64(size), m.b.all() - m.b.used.Load()})
		}
		return nil
	}
	m.used = int64(size)
	return m.all[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() {
	m.b.used.Add(-m.used)
	m.used = 0
	if m.all != nil {
		_ = unix.Munmap(m.all)
		m.all = nil
	}
}
