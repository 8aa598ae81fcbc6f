//go:build linux

package main

import (
	"runtime"
	"strings"
	"syscall"

	"skerry.dev/skerry/runtime/vm/wire"
)

// spawner starts processes from one thread, which has the restrictions that they inherit, and for which a process namespace
// of the task's own is made: the program is its first process, and takes all others along when it ends.
type spawner struct {
	config *wire.Config
	group  int
	jobs   chan *job
}

type job struct {
	process *wire.Process
	files   []uintptr
	pid     int
	field   string
	err     error
	done    chan struct{}
}

func newSpawner(c *wire.Config, group int) *spawner {
	s := &spawner{config: c, group: group, jobs: make(chan *job)}
	ready := make(chan struct{})
	go s.run(ready)
	<-ready
	return s
}

func (s *spawner) start(p *wire.Process, files []uintptr) *job {
	j := &job{process: p, files: files, done: make(chan struct{})}
	s.jobs <- j
	<-j.done
	return j
}

func (s *spawner) run(ready chan struct{}) {
	runtime.LockOSThread()
	failed := s.restrict()
	close(ready)
	for j := range s.jobs {
		if failed != nil {
			j.err = failed
		} else {
			s.fork(j)
		}
		close(j.done)
	}
}

// restrict changes this thread. The kernel mounts the proc of the namespace that the thread's children will be in.
func (s *spawner) restrict() error {
	if err := syscall.Unshare(syscall.CLONE_NEWPID); err != nil {
		return wrap("process namespace", err)
	}
	if err := makeDir("/proc"); err != nil {
		return err
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return wrap("mount /proc", err)
	}
	for _, c := range s.config.Drop {
		if err := prctl(prCapBSetDrop, uintptr(c)); err != nil && err != syscall.EINVAL {
			return wrap("capDrop", err)
		}
	}
	if !s.config.NewPrivs {
		return wrap("no new privileges", prctl(prSetNoNewPrivs, 1))
	}
	return nil
}

func (s *spawner) fork(j *job) {
	proc := j.process
	path, err := find(proc)
	if err != nil {
		j.field, j.err = "args[0]", err
		return
	}
	attr := &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: s.group}
	if proc.TTY {
		attr.Setctty = true
	}
	if proc.UID != 0 || proc.GID != 0 || len(proc.Groups) > 0 {
		attr.Credential = &syscall.Credential{Uid: proc.UID, Gid: proc.GID, Groups: proc.Groups}
	}
	for _, c := range s.config.Ambient {
		attr.AmbientCaps = append(attr.AmbientCaps, uintptr(c))
	}
	// Limits are of the process, so they are this one's while it forks.
	restore, err := s.limit()
	if err == nil {
		j.pid, err = syscall.ForkExec(path, proc.Args, &syscall.ProcAttr{Dir: proc.Dir, Env: proc.Env, Files: j.files, Sys: attr})
	} else {
		j.field = "ulimits"
	}
	restore()
	if err == nil {
		return
	}
	j.err = err
	if j.field != "" {
		return
	}
	var st syscall.Stat_t
	if e := syscall.Stat(proc.Dir, &st); e != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		j.field, j.err = "dir", wrap("chdir "+proc.Dir, err)
		return
	}
	j.field, j.err = "args[0]", wrap("exec "+path, err)
}

func (s *spawner) limit() (restore func(), err error) {
	type old struct {
		resource int
		limit    syscall.Rlimit
	}
	var olds []old
	restore = func() {
		for _, o := range olds {
			_ = setrlimit(o.resource, &o.limit)
		}
	}
	for _, r := range s.config.Rlimits {
		o := old{resource: int(r.Resource)}
		if err = syscall.Getrlimit(o.resource, &o.limit); err != nil {
			return restore, err
		}
		olds = append(olds, o)
		if err = setrlimit(o.resource, &syscall.Rlimit{Cur: r.Soft, Max: r.Hard}); err != nil {
			return restore, err
		}
	}
	return restore, nil
}

// find looks for a program in the PATH of its environment.
func find(proc *wire.Process) (string, error) {
	if len(proc.Args) == 0 {
		return "", syscall.ENOENT
	}
	name := proc.Args[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, e := range proc.Env {
		path, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range strings.Split(path, ":") {
			file := dir + "/" + name
			var st syscall.Stat_t
			if dir != "" && syscall.Stat(file, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Mode&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", wrap(name, notInPath{})
}

type notInPath struct{}

func (notInPath) Error() string { return "executable file not found in PATH" }
