//go:build linux

package lease

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime/internal/cgroup"
)

const (
	// again is how often the guard looks for what was started in spite of a lease that has run out.
	again = time.Second
	// killTime is how long one look waits for the end of what it has killed.
	killTime = 5 * time.Second
)

// guard is the process that ends instances.
type guard struct {
	dir     string
	contact *Contact
	parent  string // of the tasks' cgroups
	tree    *cgroup.Tree
	alive   *os.File
	said    map[skerry.InstanceID]skerry.Fence // what has got the signal
}

// Main is the hidden command "DIR CONTACT CGROUP", the guard of an agent's leases. It says "ok" when it guards, and
// ends when the agent has no lease to guard any more, or the directory is gone. It returns the exit status.
func Main(args []string) int {
	if len(args) != 3 {
		fmt.Fprintln(os.Stderr, "this command is not for people; see runtime/lease")
		return 2
	}
	goruntime.LockOSThread()
	// It has to be in time on a machine that is starved, and to outlive what runs there. A machine may not allow that.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0)
	if err := run(args[0], args[1], args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "lease guard:", err)
		return 1
	}
	return 0
}

func run(dir, contact, parent string) error {
	c, err := NewContact(contact)
	if err != nil {
		return err
	}
	g := &guard{dir: dir, contact: c, parent: parent, said: map[skerry.InstanceID]skerry.Fence{}}
	if g.tree, err = cgroup.Open(); err != nil {
		return err
	}
	if g.alive, err = lock(filepath.Join(dir, aliveFile), false); err != nil || g.alive == nil {
		return err // there is a guard
	}
	changes, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	if _, err := unix.InotifyAddWatch(changes, dir, unix.IN_MOVED_TO|unix.IN_DELETE_SELF); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString("ok\n"); err != nil {
		return err
	}
	os.Stdout.Close()
	for {
		next, done, err := g.look()
		if err != nil || done {
			return err
		}
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(next, 1)))}
		if err := unix.TimerfdSettime(timer, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
			return err
		}
		fds := []unix.PollFd{{Fd: int32(timer), Events: unix.POLLIN}, {Fd: int32(changes), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return err
		}
		var buf [4096]byte
		for _, fd := range fds {
			if fd.Revents != 0 {
				_, _ = unix.Read(int(fd.Fd), buf[:])
			}
		}
	}
}

// look does what is due, and says in the machine's uptime when something is next.
func (g *guard) look() (next time.Duration, done bool, err error) {
	leases, err := readLeases(g.dir)
	if err != nil {
		return 0, false, err
	}
	now, err := Uptime()
	if err != nil {
		return 0, false, err
	}
	if len(leases) == 0 {
		return now + again, g.mayEnd(), nil
	}
	due := Judge(leases, now, g.contact.at)
	var wg sync.WaitGroup
	for _, e := range due.Signal {
		if g.said[e.Instance] == e.Token || !g.runs(e.Instance, e.lease.Main) {
			continue
		}
		g.said[e.Instance] = e.Token
		if err := g.mark(e.Ended); err != nil { // the agent must never take this for a crash
			return 0, false, err
		}
		_ = unix.Kill(e.lease.Main, unix.Signal(e.lease.Signal))
	}
	for _, e := range due.Kill {
		// Also where nothing runs: the agent may be on its way to start something.
		if err := g.mark(e.Ended); err != nil {
			fmt.Fprintln(os.Stderr, "lease guard:", err) // it has to end all the same
		}
		for _, group := range g.groups(e.Instance) {
			wg.Go(func() { _ = group.Kill(killTime) })
		}
	}
	wg.Wait()
	return due.Next, false, nil
}

// mark notes for the agent that an instance was ended, unless that is noted already.
func (g *guard) mark(e Ended) error {
	file := filepath.Join(g.dir, endedDir, string(e.Instance))
	var was Ended
	if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &was) == nil && was.Token == e.Token {
		return nil
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return replace(file, data)
}

// mayEnd reports whether the agent needs no guard, and from then on finds none.
func (g *guard) mayEnd() bool {
	turn, err := lock(filepath.Join(g.dir, turnFile), false)
	if err != nil {
		return true // the directory is gone
	}
	if turn == nil {
		return false // the agent writes: this comes again
	}
	defer turn.Close()
	leases, err := readLeases(g.dir)
	if err != nil || len(leases) > 0 {
		return false
	}
	g.alive.Close()
	return true
}

// groups are the cgroups of an instance's tasks that hold processes.
func (g *guard) groups(id skerry.InstanceID) (list []cgroup.Group) {
	seen := map[string]bool{}
	for _, dir := range g.tree.Group(g.parent).Dirs() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // of a controller that the tasks do without
		}
		for _, e := range entries {
			if name := e.Name(); e.IsDir() && !seen[name] && taskOf(name, id) {
				seen[name] = true
				if group := g.tree.Group(path.Join(g.parent, name)); len(group.Procs()) > 0 {
					list = append(list, group)
				}
			}
		}
	}
	return list
}

// runs reports whether a process is an instance's.
func (g *guard) runs(id skerry.InstanceID, pid int) bool {
	return slices.ContainsFunc(g.groups(id), func(c cgroup.Group) bool { return slices.Contains(c.Procs(), pid) })
}

// taskOf reports whether a task, INSTANCE.CONTAINER.ATTEMPT, is of an instance.
func taskOf(name string, id skerry.InstanceID) bool {
	rest, ok := strings.CutPrefix(name, string(id)+".")
	container, attempt, two := strings.Cut(rest, ".")
	_, err := strconv.ParseUint(attempt, 10, 64)
	return ok && two && container != "" && err == nil
}
