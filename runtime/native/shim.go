//go:build linux

package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/signals"
	"skerry.dev/skerry/runtime/internal/tty"
)

// setup is what the shim does before the program runs.
type setup struct {
	Args []string
	// FromImage: Args[0] is a file of the image, in a directory that the task's user may not enter.
	FromImage bool
	Env       []string
	Dir       string
	Hostname  string
	NetNS     string
	// NSPid is the process whose mount and UTS namespaces an exec joins; 0 for none.
	NSPid  int
	Mounts []bind
	// User is nil for the agent's own.
	User    *credential
	Ambient []uintptr
	// Drop are capabilities to take from the bounding set.
	Drop       []uintptr
	NewPrivs   bool
	Rlimits    []rlimit
	CgroupDirs []string
	// Unified says that CgroupDirs[0] is of version 2.
	Unified bool
	// PidsFile and PidsMax limit processes once the shim, whose threads count too, is no longer in the way.
	PidsFile, PidsMax string
	TTY               bool
}

type bind struct {
	Source, Target, Type, Data string
	ReadOnly                   bool
}

type credential struct {
	UID, GID uint32
	Groups   []uint32
}

type rlimit struct {
	Resource   int
	Soft, Hard uint64
}

// setupFile is where the driver leaves a task's setup in the bundle.
const setupFile = "native.json"

// ShimMain is the hidden command that conmon runs in place of an OCI runtime:
//
//	create --bundle DIR --pid-file FILE [--console-socket SOCKET] ID     start the task and end
//	exec                                                                become a process beside it; setup on descriptor 3
//
// The program's own failure to start is told on standard error. It returns the exit status.
func ShimMain(args []string) int {
	if err := shim(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 127
	}
	return 0
}

func shim(args []string) error {
	// What is done to this thread (namespaces, privileges, cgroup) is what the child inherits.
	runtime.LockOSThread()
	if len(args) == 0 {
		return errors.New("shim: this command is not for people; see runtime/native")
	}
	clean()
	verb, flags := args[0], map[string]string{}
	for i := 1; i+1 < len(args); i++ {
		if strings.HasPrefix(args[i], "--") {
			flags[args[i]] = args[i+1]
			i++
		}
	}
	switch verb {
	case "create":
		data, err := os.ReadFile(filepath.Join(flags["--bundle"], setupFile))
		if err != nil {
			return err
		}
		var s setup
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		return s.create(flags["--pid-file"], flags["--console-socket"])
	case "exec":
		f := os.NewFile(3, "setup")
		data, err := io.ReadAll(f)
		f.Close()
		if err != nil {
			return err
		}
		var s setup
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		return s.become()
	case "delete", "kill", "state":
		return nil // conmon may ask; the driver does it itself
	}
	return fmt.Errorf("shim: unknown command %q", verb)
}

// clean gives the program what any other starts with, as containers get it, wherever the agent was started: below nohup, or by a shell that
// masks permissions and holds files open. What is ignored or blocked would stay so in the program, what is caught does not.
func clean() {
	files, _ := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	unix.Umask(0o022)
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, new(unix.Sigset_t), nil)
	signals.CatchIgnored(make(chan os.Signal, 1))
}

// create starts the program as a child that conmon, a subreaper, inherits.
func (s *setup) create(pidFile, consoleSocket string) error {
	attr := &syscall.SysProcAttr{Setsid: true, AmbientCaps: s.Ambient}
	files := []uintptr{0, 1, 2}
	if s.TTY {
		master, slave, err := tty.Open()
		if err != nil {
			return err
		}
		if err := sendConsole(consoleSocket, master); err != nil {
			return err
		}
		fd := slave.Fd()
		files = []uintptr{fd, fd, fd}
		attr.Setctty, attr.Ctty = true, 0
	}
	if s.User != nil {
		attr.Credential = &syscall.Credential{Uid: s.User.UID, Gid: s.User.GID, Groups: s.User.Groups}
	}
	if s.Unified && len(s.CgroupDirs) > 0 {
		dir, err := unix.Open(s.CgroupDirs[0], unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		attr.UseCgroupFD, attr.CgroupFD = true, dir
	} else if err := s.enterCgroup("tasks", unix.Gettid()); err != nil {
		return err
	}
	// A program that changes its root takes this thread along, which shares its mount namespace: opened later, these might not be found.
	ready, err := os.OpenFile(pidFile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer ready.Close()
	var pids *os.File
	if s.PidsFile != "" {
		if pids, err = os.OpenFile(s.PidsFile, os.O_WRONLY, 0); err != nil {
			return fmt.Errorf("resources.pids: %w", err)
		}
		defer pids.Close()
	}
	if err := s.isolate(); err != nil {
		return err
	}
	path, err := s.program()
	if err != nil {
		return err
	}
	at := path
	if s.FromImage && s.User != nil {
		// Open to the program, too, since the interpreter of a script looks for it there.
		fd, err := unix.Open(path, unix.O_PATH, 0)
		if err != nil {
			return s.failed(path, err)
		}
		defer unix.Close(fd)
		at = fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	pid, err := syscall.ForkExec(at, s.Args, &syscall.ProcAttr{Dir: s.Dir, Env: s.Env, Files: files, Sys: attr})
	if err != nil {
		return s.failed(path, err)
	}
	if pids != nil {
		if _, err := pids.WriteString(s.PidsMax); err != nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			return fmt.Errorf("resources.pids: %w", err)
		}
	}
	_, err = ready.WriteString(strconv.Itoa(pid))
	return err
}

// become turns the shim itself into the program.
func (s *setup) become() error {
	// What is mounted where the task is may be its own: nothing there is to be written to or joined by its name.
	if err := s.enterCgroup("cgroup.procs", os.Getpid()); err != nil {
		return err
	}
	if s.NetNS != "" {
		if err := setns(s.NetNS, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	if s.NSPid > 0 {
		for _, ns := range []struct {
			name string
			flag int
		}{{"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}} {
			path := fmt.Sprintf("/proc/%d/ns/%s", s.NSPid, ns.name)
			if sameFile(path, "/proc/thread-self/ns/"+ns.name) {
				continue
			}
			if ns.name == "mnt" {
				if err := unix.Unshare(unix.CLONE_FS); err != nil {
					return err
				}
			}
			if err := setns(path, ns.flag); err != nil {
				return err
			}
		}
	}
	s.Mounts, s.Hostname, s.NetNS = nil, "", ""
	if err := s.isolate(); err != nil {
		return err
	}
	if s.User != nil {
		// All threads change together.
		groups := make([]int, 0, len(s.User.Groups))
		for _, g := range s.User.Groups {
			groups = append(groups, int(g))
		}
		if err := errors.Join(syscall.Setgroups(groups), syscall.Setgid(int(s.User.GID)), syscall.Setuid(int(s.User.UID))); err != nil {
			return fmt.Errorf("user: %w", err)
		}
	}
	if s.Dir != "" {
		if err := os.Chdir(s.Dir); err != nil {
			return fmt.Errorf("dir: %w", err)
		}
	}
	path, err := s.program()
	if err != nil {
		return err
	}
	return s.failed(path, syscall.Exec(path, s.Args, s.Env))
}

func (s *setup) enterCgroup(file string, id int) error {
	if s.Unified {
		file = "cgroup.procs"
	}
	for _, d := range s.CgroupDirs {
		if err := os.WriteFile(filepath.Join(d, file), []byte(strconv.Itoa(id)), 0o644); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	return nil
}

// isolate changes what this thread sees and may do. The order matters: mounts need privileges that are dropped last.
func (s *setup) isolate() error {
	if s.NetNS != "" {
		if err := setns(s.NetNS, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network: %w", err)
		}
	}
	if s.Hostname != "" {
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("hostname: %w", err)
		}
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return fmt.Errorf("hostname: %w", err)
		}
	}
	if len(s.Mounts) > 0 {
		if err := s.mount(); err != nil {
			return err
		}
	}
	for _, r := range s.Rlimits {
		if err := unix.Setrlimit(r.Resource, &unix.Rlimit{Cur: r.Soft, Max: r.Hard}); err != nil {
			return fmt.Errorf("ulimits: %w", err)
		}
	}
	for _, c := range s.Drop {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("capDrop: %w", err)
		}
	}
	if !s.NewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
	}
	return nil
}

// mount makes a private mount namespace. Mounts made on the host later still appear in it, ours never on the host.
func (s *setup) mount() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mounts: %w", err)
	}
	tree := "" // that a driver which is built on this one gives its task for a root
	for i, m := range s.Mounts {
		target, done, err := place(tree, m.Target)
		if err != nil {
			return fmt.Errorf("mounts[%d].target: %w", i, err)
		}
		defer done()
		switch m.Type {
		case "tmpfs":
			err = unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, m.Data)
		case "overlay": // of a driver that is built on this one, see StartWith
			err = unix.Mount("overlay", target, "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, m.Data)
			tree = m.Target
		default:
			err = unix.Mount(m.Source, target, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if flags := m.restrictions(); err == nil && flags != 0 {
			if target, done, err = place(tree, m.Target); err == nil { // what lies there now
				err = unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
				done()
			}
		}
		if errors.Is(err, unix.ENOENT) {
			err = fmt.Errorf("%w: create %s on the host first; a native task has no root of its own to make it in", err, m.Target)
		}
		if err != nil {
			return fmt.Errorf("mounts[%d].target: %w", i, err)
		}
	}
	return nil
}

// restrictions are the flags of a bind mount; the kernel forgets those of what was mounted there unless they are given again.
func (m *bind) restrictions() (flags uintptr) {
	if m.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	if m.Type != "tmpfs" && m.Type != "overlay" { // which have them
		for _, o := range strings.Split(m.Data, ",") {
			flags |= map[string]uintptr{"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV}[o]
		}
	}
	return flags
}

// place opens the place of a mount below a tree without following a link, and gives a name for it that others cannot change: a volume
// that is mounted in the tree may have links to the host's own programs. Elsewhere it gives the name back. done must be called.
func place(tree, target string) (name string, done func(), err error) {
	rel, below := strings.CutPrefix(target, tree+"/")
	if tree == "" || !below {
		return target, func() {}, nil
	}
	fd, err := unix.Open(tree, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for part := range strings.SplitSeq(rel, "/") {
		if err != nil {
			break
		}
		var st unix.Stat_t
		inner, e := unix.Openat(fd, part, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		if fd, err = inner, e; err == nil {
			if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
				err = fmt.Errorf("%s of /%s is a symbolic link in what is mounted there; mount at the place that is meant", part, rel)
			}
			if err != nil {
				unix.Close(fd)
			}
		}
	}
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), func() { unix.Close(fd) }, nil
}

// program finds Args[0] in the PATH of the task, in the task's mounts.
func (s *setup) program() (string, error) {
	name := s.Args[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	i := slices.IndexFunc(s.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") })
	if i >= 0 {
		for dir := range strings.SplitSeq(s.Env[i][len("PATH="):], ":") {
			if dir == "" {
				continue
			}
			if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("args[0]: %s: executable file not found in PATH", name)
}

func (s *setup) failed(path string, err error) error {
	if s.Dir != "" {
		if st, e := os.Stat(s.Dir); e != nil || !st.IsDir() {
			return fmt.Errorf("dir: chdir %s: %w", s.Dir, err)
		}
	}
	return fmt.Errorf("args[0]: exec %s: %w", path, err)
}

func setns(path string, flag int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("join %s: %w", path, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, flag); err != nil {
		return fmt.Errorf("join %s: %w", path, err)
	}
	return nil
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// sendConsole hands the terminal's master to conmon, as OCI runtimes do.
func sendConsole(socket string, master *os.File) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return fmt.Errorf("console socket: %w", err)
	}
	return unix.Sendmsg(fd, []byte("/dev/ptmx"), unix.UnixRights(int(master.Fd())), nil, 0)
}
