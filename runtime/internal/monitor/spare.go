//go:build linux

package monitor

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/internal/cgroup"
)

const (
	sparesDir = "spares"
	// spareExit is the container ID that the supervisor of a spare is told, by which it names the file with the exit status.
	spareExit = "exit"
	// spareGroup is the file with the path of a spare's cgroup, for the agent after one that crashed.
	spareGroup = "cgroup"
)

// Spare is a program that conmon supervises already and that waits to be told which task it is. It must end by itself when the
// agent ends before that.
//
// Conmon is given its directory of logs as the working directory and no other way to it, so that the directory can be renamed
// into the task's.
type Spare struct {
	dir              string
	group            cgroup.Group
	supervisor, init Process
}

// StartSpare starts conmon with a program in a directory and a cgroup of its own, which prepare fills before. The cgroup will be
// the task's: to move a process with all its threads takes the kernel 10 ms and more, and what it has of memory would count where it
// was before. parent is the group above those of tasks. Only LogMax, Runtime and RuntimeArgs of the launch are heeded.
func (s *Tasks) StartSpare(ctx context.Context, l Launch, parent string, prepare func(dir string, g cgroup.Group) error) (_ *Spare,
	err error) {
	all := filepath.Join(s.opts.Dir, sparesDir)
	if err := os.MkdirAll(all, 0o711); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(all, "")
	if err != nil {
		return nil, err
	}
	group := path.Join(parent, s.opts.Driver+"."+filepath.Base(dir))
	sp := &Spare{dir: dir, group: s.tree.Group(group)}
	defer func() {
		if err != nil {
			sp.End()
		}
	}()
	logs := filepath.Join(dir, "log")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, spareGroup), []byte(group), 0o600), os.Mkdir(logs, 0o700),
		prepare(dir, sp.group)); err != nil {
		return nil, err
	}
	supervisor, pid, err := s.conmon(ctx, Launch{Runtime: l.Runtime, RuntimeArgs: l.RuntimeArgs, LogMax: l.LogMax},
		place{id: spareExit, dir: dir, cwd: logs, log: "log", exits: ".", shelter: parent})
	if err != nil {
		return nil, err
	}
	sp.supervisor, sp.init = supervisor, Identify(pid)
	return sp, nil
}

// PID is the program's.
func (sp *Spare) PID() int { return sp.init.PID }

// Group is its cgroup, which will be the task's.
func (sp *Spare) Group() cgroup.Group { return sp.group }

// End ends a spare, also one that could not become a task, and removes its files.
func (sp *Spare) End() {
	_ = sp.group.Kill(5 * time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if sp.supervisor.WaitGone(ctx) != nil {
		_ = sp.supervisor.Signal(unix.SIGKILL)
	}
	if sp.init.PID > 0 {
		_, _ = unix.Wait4(sp.init.PID, nil, unix.WNOHANG, nil)
	}
	if sp.group.Remove() == nil { // else the next life of the agent does it
		_ = os.RemoveAll(sp.dir)
	}
}

// clearSpares removes what is left of the spares of an agent that crashed, which end by themselves.
func (s *Tasks) clearSpares() {
	dirs, _ := filepath.Glob(filepath.Join(s.opts.Dir, sparesDir, "*"))
	for _, d := range dirs {
		if group := readString(filepath.Join(d, spareGroup)); group != "" {
			g := s.tree.Group(group)
			if err := errors.Join(g.Kill(5*time.Second), g.Remove()); err != nil {
				s.opts.Log.Warn("remove what a crash left", "dir", d, "err", err)
				continue
			}
		}
		_ = os.RemoveAll(d)
	}
}

// Become makes a spare the task's program and writes that down. The spare's directory goes into the task's.
func (t *Task) Become(sp *Spare) error {
	if !sp.init.Alive() || !sp.supervisor.Alive() {
		return errors.New("the spare has ended")
	}
	// Written down before it is so: whatever a crash leaves in between, this removes all of it.
	t.Update(func(r *Record) {
		r.Supervisor, r.Init, r.Handle.PID, r.Cgroup, r.Spare = sp.supervisor, sp.init, sp.init.PID, sp.group.Path(), true
	})
	if err := t.Save(); err != nil {
		return err
	}
	to := t.Path("spare")
	if err := os.Rename(sp.dir, to); err != nil {
		return err
	}
	sp.dir = to
	return unix.Rename(filepath.Join(to, "log"), t.Path("log")) // which is there, and empty: os.Rename refuses
}
