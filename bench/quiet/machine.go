package quiet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// tick is the unit of processor time in /proc: 1/USER_HZ s, which is 100 on every Linux that Go runs on.
const tick = time.Second / 100

// id is one process: the kernel gives PIDs again, but not with the same start.
type id struct {
	pid   int
	start uint64
}

// process is one process at one moment.
type process struct {
	id
	parent int
	name   string
	// used is its own processor time until now, and reaped that of its children that have ended and were waited for.
	used, reaped time.Duration
}

// kernel reports whether it is a thread of the kernel, of which nobody can say for whom it works.
func (p *process) kernel() bool { return p.pid == 2 || p.parent == 2 }

// moment is the use of the machine until then.
type moment struct {
	at time.Time
	// busy is processor time that processes used, stolen what the hypervisor gave to other machines, and stalled the time
	// in which some process waited for a disk.
	busy, stolen, stalled time.Duration
	processes             map[int]process
}

// lookAt reads a moment of the whole machine below /proc.
func lookAt(proc string) (now moment, err error) {
	now = moment{at: time.Now(), processes: map[int]process{}}
	text, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return now, err
	}
	if now.busy, now.stolen, err = parseStat(string(text)); err != nil {
		return now, err
	}
	if text, err := os.ReadFile(filepath.Join(proc, "pressure", "io")); err == nil { // not every kernel has it
		now.stalled = parseStall(string(text))
	}
	list, err := os.ReadDir(proc)
	if err != nil {
		return now, err
	}
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat"))
		if err != nil {
			continue // it has just ended
		}
		if p, err := parseProcess(pid, string(text)); err == nil {
			now.processes[pid] = p
		}
	}
	return now, nil
}

// parseStat reads the processors' line of /proc/stat. Interrupts are left out, as the kernel's threads are.
func parseStat(text string) (busy, stolen time.Duration, err error) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, fmt.Errorf("%.80q is not the processors' line of /proc/stat", line)
	}
	var v [9]uint64 // the word, user, nice, system, idle, iowait, irq, softirq, steal
	for i := 1; i < len(v); i++ {
		if v[i], err = strconv.ParseUint(f[i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
	}
	return time.Duration(v[1]+v[2]+v[3]) * tick, time.Duration(v[8]) * tick, nil
}

// parseStall reads the total of the line "some" of a pressure file.
func parseStall(text string) time.Duration {
	line, _, _ := strings.Cut(text, "\n")
	_, total, _ := strings.Cut(line, "total=")
	n, _ := strconv.ParseUint(strings.TrimSpace(total), 10, 63)
	return time.Duration(n) * time.Microsecond
}

// parseProcess reads a process's stat.
func parseProcess(pid int, text string) (read process, err error) {
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return read, errors.New("no name")
	}
	fields := strings.Fields(text[to+1:]) // from the third on
	if len(fields) < 20 {
		return read, errors.New("too short")
	}
	read.name, read.pid = printable(text[from+1:to]), pid
	if read.parent, err = strconv.Atoi(fields[1]); err != nil {
		return read, err
	}
	var ticks [4]uint64
	for i := range ticks {
		n, err := strconv.ParseInt(fields[11+i], 10, 64)
		if err != nil {
			return read, err
		}
		ticks[i] = uint64(max(0, n))
	}
	read.used, read.reaped = time.Duration(ticks[0]+ticks[1])*tick, time.Duration(ticks[2]+ticks[3])*tick
	read.start, err = strconv.ParseUint(fields[19], 10, 64)
	return read, err
}

// printable is a name that may be shown on a terminal, whatever its process calls itself.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
}

// below gives the processes of some PIDs and all that descend from them.
func (m *moment) below(roots []int) map[id]bool {
	children := map[int][]int{}
	for pid, p := range m.processes {
		children[p.parent] = append(children[p.parent], pid)
	}
	out := map[id]bool{}
	for todo := slices.Clone(roots); len(todo) > 0; {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if p, ok := m.processes[pid]; ok && !out[p.id] {
			out[p.id] = true
			todo = append(todo, children[pid]...)
		}
	}
	return out
}

// above gives the ancestors of a process, itself left out.
func (m *moment) above(pid int) map[id]bool {
	out := map[id]bool{}
	for p, ok := m.processes[pid]; ok; {
		if p, ok = m.processes[p.parent]; ok {
			if out[p.id] {
				break
			}
			out[p.id] = true
		}
	}
	return out
}

// spent is the processor time of some processes between two moments, in all and by name, with that of their children
// that have ended where they count as waiting for them.
func spent(before, after *moment, of map[id]bool, waits func(id) bool) (all time.Duration, by map[string]time.Duration) {
	by = map[string]time.Duration{}
	add := func(p process, d time.Duration) { all, by[p.name] = all+d, by[p.name]+d }
	for pid, p := range after.processes {
		if !of[p.id] {
			continue
		}
		was := before.processes[pid]
		if was.id != p.id {
			was = process{}
		}
		add(p, p.used-was.used)
		if waits(p.id) {
			add(p, p.reaped-was.reaped)
		}
	}
	// What ended meanwhile is in its parent's time of children as a whole: less what it had used before.
	for pid, p := range before.processes {
		if !of[p.id] || after.processes[pid].id == p.id {
			continue
		}
		parent, ok := before.processes[p.parent]
		for n := 0; ok && after.processes[parent.pid].id != parent.id && n < len(before.processes); n++ {
			parent, ok = before.processes[parent.parent]
		}
		if ok && of[parent.id] && waits(parent.id) {
			add(after.processes[parent.pid], -p.used-p.reaped)
		}
	}
	return max(0, all), by
}
