//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	osruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
)

// plain reads what a group used the simple way: it opens every file as os does, and takes it apart with maps.
func plain(g Group, now time.Time) runtime.Stats {
	s := runtime.Stats{At: now}
	read := func(n int) string {
		if p := g.meterFile(n); p != "" {
			return readFile(p)
		}
		return ""
	}
	number := func(n int) uint64 {
		v, _ := strconv.ParseUint(strings.TrimSpace(read(n)), 10, 64)
		return v
	}
	stat, oom := keyed(g.meterFile(memoryStatFile)), keyed(g.meterFile(oomFile))
	s.Memory, s.MemoryPeak, s.Pids = skerry.Bytes(number(memoryFile)), skerry.Bytes(number(peakFile)), int64(number(pidsFile))
	if n := number(limitFile); n < noLimit {
		s.MemoryLimit = skerry.Bytes(n)
	}
	s.OOMKills = oom["oom_kill"]
	if g.t.unified {
		cpu := keyed(g.meterFile(cpuFile))
		s.CPU, s.Throttled = time.Duration(cpu["usage_usec"])*time.Microsecond, time.Duration(cpu["throttled_usec"])*time.Microsecond
		s.Periods, s.ThrottledPeriods = cpu["nr_periods"], cpu["nr_throttled"]
		s.Waiting = stalled([]byte(read(waitFile)))
		s.MemoryWorkingSet = max(0, s.Memory-skerry.Bytes(stat["inactive_file"]))
		s.DiskRead, s.DiskWrite = parseIOStat([]byte(read(ioFile)))
		return s
	}
	cpu := keyed(g.meterFile(throttleFile))
	s.CPU, s.Throttled = time.Duration(number(cpuFile)), time.Duration(cpu["throttled_time"])
	s.Periods, s.ThrottledPeriods = cpu["nr_periods"], cpu["nr_throttled"]
	for _, tid := range strings.Fields(read(waitFile)) {
		if f := strings.Fields(readFile(filepath.Join("/proc", tid, "schedstat"))); len(f) > 1 {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			s.Waiting += time.Duration(n)
		}
	}
	s.MemoryWorkingSet = max(0, s.Memory-skerry.Bytes(stat["total_inactive_file"]))
	s.DiskRead, s.DiskWrite = parseBlkio([]byte(read(ioFile)))
	return s
}

// alike reads a group, and has it be what the simple way reads. Counters may go on between two readings, such as that of the periods of a
// processor's limit: it looks between two that say the same.
func alike(t *testing.T, when string, g Group, read func(time.Time) (runtime.Stats, error)) runtime.Stats {
	t.Helper()
	now := time.Unix(5, 0)
	for {
		want := plain(g, now)
		s, err := read(now)
		if plain(g, now) != want {
			continue
		}
		if want.Periods-s.Periods == 1 && s.CPU == want.CPU { // the last one of use ended after it: a meter tells it when there is more
			s.Periods = want.Periods
		}
		if err != nil || s != want {
			t.Errorf("%s\n%+v, %v, the simple way\n%+v", when, s, err, want)
		}
		return s
	}
}

// at reads a meter some turns later, each of ten seconds.
func at(m *Meter, turn int) func(time.Time) (runtime.Stats, error) {
	return func(now time.Time) (runtime.Stats, error) {
		s, err := m.Stats(now.Add(time.Duration(turn) * 10 * time.Second))
		s.At = now
		return s, err
	}
}

// realGroup makes a group on this machine, with a process that has used a processor and sleeps.
func realGroup(t testing.TB, tree *Tree, name string) Group {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it makes a cgroup")
	}
	g := tree.Group(fmt.Sprintf("skerry-test-cgroup-%d-%s", os.Getpid(), name))
	if err := g.Create(Limits{CPU: 1000, CPURequest: 100, Memory: 16 * skerry.MiB, Pids: 5}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(5*time.Second), g.Remove()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// enter puts a process into a group.
func enter(g Group, pid int) (err error) {
	for _, d := range g.Dirs() {
		err = errors.Join(err, os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0))
	}
	return err
}

// populate has a process in the group that has done something and sleeps now.
func populate(t testing.TB, g Group) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read go; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; read end")
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err, err2, cmd.Start(), enter(g, cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	var said [16]byte
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(said[:]); err != nil || string(said[:n]) != "done\n" {
		t.Fatalf("%q, %v", said[:n], err)
	}
}

// descriptors counts this process's, of files of a group.
func descriptors(t *testing.T, g Group) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		at, _ := os.Readlink("/proc/self/fd/" + e.Name())
		for _, d := range g.Dirs() {
			if strings.HasPrefix(at, d+"/") {
				n++
			}
		}
	}
	return n
}

// What a meter reads is what is there, each time, and the same as the simple way reads.
func TestMeter(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	g := realGroup(t, tree, "meter")
	m := g.Meter()
	defer m.Close()
	now := time.Unix(5, 0)
	before, err := m.Stats(now)
	if err != nil || before.CPU != 0 || before.Pids != 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	populate(t, g)
	if s := alike(t, "kept", g, m.Stats); s.CPU <= 0 || s.Pids != 1 || s.Memory <= 0 || s.MemoryLimit != 16*skerry.MiB {
		t.Errorf("a process that has worked used %+v", s)
	}
	for n := range 4 { // the last two are made of few files
		alike(t, "when nothing ran", g, at(m, n))
	}
	populate(t, g)
	if s := alike(t, "with another process", g, m.Stats); s.Pids != 2 {
		t.Errorf("with another process it used %+v", s)
	}
	alike(t, "once", g, g.Stats)
	if n := descriptors(t, g); n < 5 || n > meterFiles || int32(n) != tree.kept.Load() {
		t.Errorf("%d descriptors are kept, %d are counted", n, tree.kept.Load())
	}
	m.Rest()
	if n := descriptors(t, g); n != 0 || tree.kept.Load() != 0 {
		t.Errorf("%d descriptors are left, %d are counted", n, tree.kept.Load())
	}
	alike(t, "after a rest", g, m.Stats)
	m.Close()
	alike(t, "closed", g, m.Stats)
	if n := descriptors(t, g); n != 0 || tree.kept.Load() != 0 {
		t.Errorf("closed: %d descriptors are left, %d are counted", n, tree.kept.Load())
	}
}

// What changes in a group in which nothing runs is seen, too.
func TestMeterOfIdleGroup(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	g := realGroup(t, tree, "idle")
	m := g.Meter()
	defer m.Close()
	populate(t, g)
	ended := exec.Command("/bin/sh", "-c", "read go")
	in, err := ended.StdinPipe()
	if err := errors.Join(err, ended.Start(), enter(g, ended.Process.Pid), in.Close()); err != nil {
		t.Fatal(err)
	}
	stat := fmt.Sprintf("/proc/%d/stat", ended.Process.Pid)
	for deadline := time.Now().Add(time.Minute); !strings.Contains(readFile(stat), ") Z "); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the process has not ended: %s", readFile(stat))
		}
	}
	for n := range 4 {
		if s := alike(t, "with a process that has ended", g, at(m, n)); s.Pids != 2 {
			t.Errorf("with a process that has ended it used %+v", s)
		}
	}
	_ = ended.Wait() // it failed to read
	if s := alike(t, "when somebody asked for its end", g, at(m, 4)); s.Pids != 1 {
		t.Errorf("when somebody asked for the end of the process, it used %+v", s)
	}
}

// A kernel that counts no processor time does not say that nothing ran, and the statistics of memory follow it after a while.
func TestMeterReadsAll(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		mounts map[string]string
		turns  int // for which all is read
	}{
		{"without processor time", map[string]string{"memory": root}, 4},
		{"with processor time", map[string]string{"memory": root, "cpuacct": root}, 2},
	} {
		write("memory.usage_in_bytes", "5000\n")
		write("cpuacct.usage", "7000\n")
		tree := &Tree{mounts: c.mounts, mostKept: mostKept()}
		m := tree.Group("").Meter()
		for n := range 4 {
			write("memory.stat", fmt.Sprintf("total_inactive_file %d\n", n))
			s, err := at(m, n)(time.Unix(5, 0))
			if want := skerry.Bytes(5000 - min(n, c.turns-1)); err != nil || s.MemoryWorkingSet != want {
				t.Errorf("%s, turn %d: %d, %v, want %d", c.name, n, s.MemoryWorkingSet, err, want)
			}
		}
		m.Close()
	}
}

// A group that is gone is noticed, and one that has its place is read and not the one before.
func TestMeterOfReusedGroup(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	g := realGroup(t, tree, "reused")
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	m := g.Meter()
	defer m.Close()
	for _, limit := range []skerry.Bytes{32 * skerry.MiB, 64 * skerry.MiB} {
		if err := g.Create(Limits{CPU: 1000, CPURequest: 100, Memory: limit, Pids: 5}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if s, err := m.Stats(time.Now()); err != nil || s.MemoryLimit != limit {
				t.Errorf("%+v, %v", s, err)
			}
		}
		if err := g.Remove(); err != nil {
			t.Fatal(err)
		}
		if limit == 32*skerry.MiB {
			continue // nobody looks while there is none
		}
		if s, err := m.Stats(time.Now()); !errors.Is(err, fs.ErrNotExist) || descriptors(t, g) != 0 || tree.kept.Load() != 0 {
			t.Errorf("of a group that is gone: %+v, %v, %d descriptors", s, err, descriptors(t, g))
		}
	}
}

// The number of descriptors has a bound; a meter beyond it reads the same.
func TestMetersAreBounded(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	g := realGroup(t, tree, "bounded")
	tree.kept.Store(tree.mostKept - 1)
	m := g.Meter()
	for range 2 {
		alike(t, "within the bound", g, m.Stats)
		if n := descriptors(t, g); n != 1 || tree.kept.Load() != tree.mostKept {
			t.Errorf("%d descriptors, %d are counted", n, tree.kept.Load())
		}
	}
	m.Close()
	if n := tree.kept.Load(); n != tree.mostKept-1 {
		t.Errorf("%d are counted", n)
	}
}

// The same of version 2, which a machine of version 1 mostly has mounted, too, without controllers.
func TestMeterOfVersion2(t *testing.T) {
	tree := trees(t)["version 2"]
	if tree == nil {
		t.Skip(&testenv.Unsupported{What: "cgroup version 2", Why: "it is not mounted"})
	}
	tree.mostKept = mostKept()
	g := tree.Group(fmt.Sprintf("skerry-test-cgroup-%d-two", os.Getpid()))
	dir := g.dir("")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(5*time.Second), g.Remove()); err != nil {
			t.Error(err)
		}
	})
	m := g.Meter()
	defer m.Close()
	now := time.Unix(5, 0)
	same := func(when string) runtime.Stats {
		t.Helper()
		alike(t, when, g, m.Stats)
		s := alike(t, when, g, m.Stats)
		if n := descriptors(t, g); n == 0 || int32(n) != tree.kept.Load() {
			t.Errorf("%s, %d descriptors are kept, %d are counted", when, n, tree.kept.Load())
		}
		return s
	}
	same("empty")
	// Somebody may end the counting of pressure in a group, and begin it again: the file is gone, and the group is not.
	pressure := filepath.Join(dir, "cgroup.pressure")
	if _, err := os.Stat(pressure); err == nil {
		for _, on := range []string{"0", "1"} {
			if err := os.WriteFile(pressure, []byte(on), 0); err != nil {
				t.Fatal(err)
			}
			same("with pressure " + on)
		}
	}
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	same("made again")
	populate(t, g)
	if s := same("with a process"); s.CPU <= 0 {
		t.Errorf("a process that has worked used %+v", s)
	}
	if err := errors.Join(g.Kill(5*time.Second), os.Remove(dir)); err != nil {
		t.Fatal(err)
	}
	if s, err := m.Stats(now); !errors.Is(err, fs.ErrNotExist) || descriptors(t, g) != 0 || tree.kept.Load() != 0 {
		t.Errorf("of a group that is gone: %+v, %v, %d descriptors", s, err, descriptors(t, g))
	}
}

// limitDescriptors bounds this process's for a test.
func limitDescriptors(t *testing.T, n uint64) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
}

// Where a process may have few descriptors, meters leave most of them to others.
func TestMetersLeaveDescriptors(t *testing.T) {
	limitDescriptors(t, 128)
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for i := range 10 {
		g := realGroup(t, tree, fmt.Sprint("few-", i))
		m := g.Meter()
		defer m.Close()
		alike(t, "within the bound", g, m.Stats)
		sum += descriptors(t, g)
	}
	if sum == 0 || sum > 128/keptShare {
		t.Errorf("%d descriptors are kept", sum)
	}
}

// A group whose files cannot be opened now, for want of descriptors, is no group that uses nothing.
func TestMeterWithoutDescriptors(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	g := realGroup(t, tree, "none")
	m := g.Meter()
	defer m.Close()
	limitDescriptors(t, 0)
	if s, err := m.Stats(time.Unix(5, 0)); !errors.Is(err, unix.EMFILE) {
		t.Errorf("without descriptors a meter reads %+v, %v", s, err)
	}
}

// BenchmarkStats reads many groups, each with a process, in the ways that there are: "plain" is how it was done before there were meters.
// strace -c of one of them counts the system calls.
func BenchmarkStats(b *testing.B) {
	tree, err := Open()
	if err != nil {
		b.Fatal(err)
	}
	for _, groups := range []int{10, 300} {
		list, meters := make([]Group, groups), make([]*Meter, groups)
		for i := range list {
			list[i] = realGroup(b, tree, fmt.Sprintf("bench-%d-%d", groups, i))
			cmd := exec.Command("/bin/sleep", "1000")
			if err := errors.Join(cmd.Start(), enter(list[i], cmd.Process.Pid)); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			meters[i] = list[i].Meter()
			defer meters[i].Close()
		}
		for name, read := range map[string]func(i int) error{
			"plain": func(i int) error { plain(list[i], time.Time{}); return nil },
			"once":  func(i int) error { _, err := list[i].Stats(time.Time{}); return err },
			"kept":  func(i int) error { _, err := meters[i].Stats(time.Time{}); return err },
		} {
			b.Run(fmt.Sprintf("groups=%d/%s", groups, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					for i := range list {
						if err := read(i); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// TestMeterReadsFewOfIdle: of a group of version 1 in which nothing runs a meter reads four files, of the ten that there are, and
// sees another limit once it has rested.
func TestMeterReadsFewOfIdle(t *testing.T) {
	tree, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if tree.unified {
		t.Skip(&testenv.Unsupported{What: "cgroup version 1", Why: "this machine has version 2"})
	}
	g := realGroup(t, tree, "few")
	m := g.Meter()
	defer m.Close()
	populate(t, g)
	osruntime.LockOSThread()
	defer osruntime.UnlockOSThread()
	reads := func() (n int) {
		_, rest, _ := strings.Cut(readFile("/proc/thread-self/io"), "syscr: ")
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Skip(&testenv.Unsupported{What: "counting reads", Why: err.Error()})
		}
		return n
	}
	for n := range 3 {
		alike(t, "when nothing ran", g, at(m, n))
	}
	// Its process said that it was done before it went to sleep: what that took is still to be seen by one reading.
	got := 0
	for tries := 0; got != 4 && tries < 100; tries++ {
		first := reads()
		second := reads()
		if _, err := at(m, 3)(time.Unix(5, 0)); err != nil {
			t.Fatal(err)
		}
		got = reads() - second - (second - first)
	}
	if got != 4 {
		t.Errorf("%d reads, want 4", got)
	}
	if err := g.Resize(t.Context(), Limits{CPU: 1000, CPURequest: 100, Memory: 32 * skerry.MiB}); err != nil {
		t.Fatal(err)
	}
	m.Rest()
	if s := alike(t, "with another limit", g, at(m, 4)); s.MemoryLimit != 32*skerry.MiB {
		t.Errorf("with another limit it is %s, want 32 MiB", s.MemoryLimit)
	}
}
