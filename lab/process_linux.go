package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stat reads the state, the parent and the start of a process.
func stat(pid int) (state byte, parent int, start uint64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, 0, err
	}
	return parseStat(string(b))
}

// parseStat reads what follows the name, which is in parentheses and may hold any character.
func parseStat(s string) (state byte, parent int, start uint64, err error) {
	i := strings.LastIndexByte(s, ')')
	f := strings.Fields(s[i+1:])
	if i < 0 || len(f) < 20 || len(f[0]) != 1 {
		return 0, 0, 0, errors.New("process state is cut off")
	}
	if parent, err = strconv.Atoi(f[1]); err != nil {
		return 0, 0, 0, err
	}
	start, err = strconv.ParseUint(f[19], 10, 64)
	state = f[0][0]
	if threads, _ := strconv.Atoi(f[17]); state == 'Z' && threads > 1 {
		state = 'S' // its first thread has ended, and others have not
	}
	return state, parent, start, err
}

// identify gives a process that runs its identity.
func identify(pid int) (process, error) {
	_, _, start, err := stat(pid)
	return process{pid, start}, err
}

// alive reports whether it still runs. One that has ended and waits for its parent does not.
func (p process) alive() bool {
	state, _, start, err := stat(p.PID)
	return err == nil && start == p.Start && state != 'Z' && state != 'X'
}

// signal sends a signal to the very process, never to a later one with its number.
func (p process) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		if err == unix.ESRCH || err == unix.EINVAL {
			return os.ErrProcessDone
		}
		return err
	}
	defer unix.Close(fd)
	if !p.alive() {
		return os.ErrProcessDone
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err == unix.ESRCH {
		return os.ErrProcessDone
	} else if err != nil {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// describe says for an error what the process is, and where in the kernel it hangs.
func (p process) describe() string {
	read := func(file string) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID, file))
		return strings.Join(strings.Fields(strings.ReplaceAll(string(b), "\x00", " ")), " ")
	}
	state, _, _, _ := stat(p.PID)
	return fmt.Sprintf("%d (%.200s) in state %c at %q", p.PID, read("cmdline"), state, read("stack"))
}

// wait waits until the process has ended.
func (p process) wait(ctx context.Context) error {
	for p.alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d does not end: %w", p.PID, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// belongs says which processes are a host's, or a lab's: those in its cgroup or below, those in its namespaces, and
// their children, which may be on their way into a container.
type belongs struct {
	cgroup string
	spaces []string // as /proc/PID/ns/* read: net:[4026531840]
}

// processes lists them, the caller excepted.
func (b belongs) processes() []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	children := map[int][]process{}
	found := map[int]process{}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		state, parent, start, err := stat(pid)
		if err != nil || state == 'Z' || state == 'X' {
			continue
		}
		p := process{pid, start}
		children[parent] = append(children[parent], p)
		if b.has(dir) {
			found[pid] = p
		}
	}
	var out []process
	queue := []process{}
	for _, p := range found {
		queue = append(queue, p)
	}
	seen := map[int]bool{}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if seen[p.PID] {
			continue
		}
		seen[p.PID] = true
		out = append(out, p)
		queue = append(queue, children[p.PID]...)
	}
	slices.SortFunc(out, func(a, b process) int { return a.PID - b.PID })
	return out
}

func (b belongs) has(dir string) bool {
	for _, kind := range []string{"net", "mnt"} {
		if to, err := os.Readlink(filepath.Join(dir, "ns", kind)); err == nil && slices.Contains(b.spaces, to) {
			return true
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil || b.cgroup == "" {
		return false
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (f[2] == b.cgroup || strings.HasPrefix(f[2], b.cgroup+"/")) {
			return true
		}
	}
	return false
}

// thaw lets frozen processes of the lab run on: version 1 of cgroups keeps them from dying, and whoever froze them may be dead.
func (b belongs) thaw() {
	if b.cgroup == "" {
		return
	}
	hs, _ := hierarchies()
	for _, h := range hs {
		file, value := "freezer.state", "THAWED"
		if h.v2 {
			file, value = "cgroup.freeze", "0"
		}
		_ = filepath.WalkDir(filepath.Join(h.dir, b.cgroup), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == file {
				_ = os.WriteFile(path, []byte(value), 0o644)
			}
			return nil
		})
	}
}

// end kills until nothing is found any more.
func (b belongs) end(ctx context.Context) error {
	for quiet, round := 0, 1; quiet < 2; round++ {
		list := b.processes()
		if len(list) == 0 {
			quiet++
			continue
		}
		quiet = 0
		for _, p := range list {
			if err := p.signal(unix.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
		}
		if round%20 == 0 {
			b.thaw()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes do not end, such as %s: %w", len(list), list[0].describe(), ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
