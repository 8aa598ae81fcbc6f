package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

const (
	nobody   = 65534
	maxTasks = 32 // processes and threads of a program
)

// caged starts the program by the shim: as nobody, in a cgroup and in namespaces of its own. Where that is not permitted,
// with what is; isolation tells.
func (x *program) caged(ctx context.Context) (*process, error) {
	g, missing := newGroup(x.opt.CgroupParent, x.name, x.desc.Memory)
	root := os.Geteuid() == 0
	p, err := x.shimmed(ctx, g, root)
	if root && errors.Is(err, syscall.EPERM) {
		missing = append(missing, "namespaces and the user nobody (not permitted)")
		p, err = x.shimmed(ctx, g, false)
		root = false
	}
	if err != nil {
		g.remove()
		return nil, err
	}
	x.mu.Lock()
	x.cage = isolation(root, g, missing, x.desc.Memory)
	x.mu.Unlock()
	return p, nil
}

func (x *program) shimmed(ctx context.Context, g *group, namespaces bool) (*process, error) {
	c := cage{Args: x.args, Dir: x.opt.Dir, Namespaces: namespaces}
	if g.dir("memory") == "" {
		c.Data = uint64(x.desc.Memory)
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	extra := []*os.File{out}
	defer func() {
		for _, f := range extra {
			f.Close()
		}
	}()
	// Opened here, for there they would keep the mounts from becoming read-only.
	for _, f := range g.procs() {
		procs, err := os.OpenFile(f, os.O_WRONLY, 0)
		if err != nil {
			in.Close()
			return nil, err
		}
		extra = append(extra, procs)
		c.Procs++
	}
	text, err := json.Marshal(c)
	if err != nil {
		in.Close()
		return nil, err
	}
	cmd := exec.Command(x.opt.Shim[0], append(append([]string{}, x.opt.Shim[1:]...), string(text))...)
	cmd.Env = x.environ()
	cmd.ExtraFiles = extra
	alone(cmd)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if namespaces {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	}
	p, err := x.launch(cmd, g)
	out.Close() // or its end would never be read
	if err != nil {
		in.Close()
		return nil, err
	}
	if err := status(ctx, in); err != nil {
		p.end()
		<-p.done
		return nil, err
	}
	return p, nil
}

func (x *program) plan() []string {
	if len(x.opt.Shim) == 0 {
		return []string{"missing: everything; it runs as the orchestrator's own user"}
	}
	if os.Geteuid() != 0 {
		return isolation(false, nil, nil, x.desc.Memory)
	}
	return []string{"set up at the first query"}
}

// isolation tells what a program is kept apart by, and by what it is not.
func isolation(namespaces bool, g *group, missing []string, memory skerry.Bytes) []string {
	var out []string
	if namespaces {
		out = append(out, "user nobody", "no network", "files read-only", "sees no other process")
	} else {
		missing = append(missing, "network and user (need root)")
	}
	if g.dir("memory") != "" {
		out = append(out, "memory "+memory.String())
	} else {
		out = append(out, "data "+memory.String()+" for each process")
	}
	if g.dir("pids") != "" {
		out = append(out, strconv.Itoa(maxTasks)+" tasks")
	}
	if g.dir("cpu") != "" {
		out = append(out, "one processor")
	}
	out = append(out, "no new privileges")
	if len(missing) > 0 {
		out = append(out, "missing: "+strings.Join(missing, ", "))
	}
	return out
}

// alone makes a command the leader of its own session, so that it can be ended with its children.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// endGroup ends a process; it is the first of its process namespace, where it has one, and takes all others with it.
func endGroup(p *os.Process) {
	// Before it is reaped the number is its own: Kill checks that.
	if p.Kill() == nil {
		_ = syscall.Kill(-p.Pid, syscall.SIGKILL)
	}
}

// peak is the most memory that a process has had resident.
func peak(pid int) skerry.Bytes {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			return skerry.Bytes(kb) * skerry.KiB
		}
	}
	return 0
}

// cage is what the shim sets up before the program runs.
type cage struct {
	Args       []string
	Dir        string
	Procs      int    // number of files, from descriptor 4 on, that take the process into its groups
	Namespaces bool   // it is in namespaces of its own, as root
	Data       uint64 // limit of data where no group limits memory
}

// ShimMain is the hidden command that becomes a program, given its cage as JSON. Descriptor 3 takes what goes wrong, and is
// closed by the program's start.
func ShimMain(args []string) int {
	say := os.NewFile(3, "status")
	unix.CloseOnExec(3)
	fmt.Fprintln(say, shim(args))
	return 127
}

// shim returns only what went wrong.
func shim(args []string) error {
	if len(args) != 1 {
		return errors.New("the shim takes one argument")
	}
	var c cage
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	if len(c.Args) == 0 {
		return errors.New("the shim needs a program")
	}
	if c.Namespaces {
		if err := private(); err != nil {
			return err
		}
	}
	if err := os.Chdir(c.Dir); err != nil {
		return err
	}
	for i := range c.Procs {
		f := os.NewFile(uintptr(4+i), "cgroup.procs")
		unix.CloseOnExec(4 + i)
		if _, err := f.WriteString("0"); err != nil {
			return err
		}
	}
	limits := []struct {
		what int
		most uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, 0}, {unix.RLIMIT_NOFILE, 256}, {unix.RLIMIT_DATA, c.Data}}
	if c.Data == 0 {
		limits = limits[:3]
	}
	for _, l := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.what, &now); err != nil {
			return err
		}
		most := min(l.most, now.Max) // it can only be lowered
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return err
		}
	}
	return become(&c)
}

// private gives the process a view of its own: its processes alone, and files that cannot be changed.
func private() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// What follows is a second line behind the user nobody; older kernels and containers may not allow it.
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	_ = unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID})
	return nil
}
