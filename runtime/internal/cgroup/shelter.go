//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"skerry.dev/skerry/internal/thread"
)

// Shelter moves a process out of the service that its parent belongs to, so that the service manager takes it for none of
// the service's. The group is made when needed. Without a service manager's hierarchy it does nothing.
func (g Group) Shelter(pid int) error {
	dirs, err := g.shelter()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("cgroup %s: %w", g.Path(), err)
		}
	}
	return nil
}

// Start starts a program that Shelter would have to move, in the group from its first instruction on. Before the kernel moves a process
// it waits for a grace period, 10 ms and more, in which no other group is made or joined; one that is made in the group needs none. The
// program's streams are files. On version 2 before Linux 5.7, and where clone3 is not allowed, it is moved when it has started.
func (g Group) Start(cmd *exec.Cmd) error {
	dirs, err := g.shelter()
	switch {
	case err != nil:
		return err
	case len(dirs) == 0:
		return cmd.Start()
	case g.t.unified:
		return g.startV2(cmd, dirs[0])
	}
	// A thread may move itself without that wait, and what it forks is where it is. This one ends with the function.
	return thread.Do(func() error {
		if err := os.WriteFile(filepath.Join(dirs[0], "tasks"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("cgroup %s: %w", g.Path(), err)
		}
		if len(dirs) > 1 { // version 2 has no threads apart from their process
			return g.startV2(cmd, dirs[1])
		}
		return cmd.Start()
	})
}

func (g Group) startV2(cmd *exec.Cmd, dir string) error {
	fd, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", g.Path(), err)
	}
	defer fd.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(fd.Fd())
	if cmd.Start() == nil {
		return nil
	}
	cmd.SysProcAttr.UseCgroupFD = false
	again := exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr,
		ExtraFiles: cmd.ExtraFiles, SysProcAttr: cmd.SysProcAttr, Err: cmd.Err} // a Cmd starts once
	if err := again.Start(); err != nil {
		return err
	}
	cmd.Process = again.Process
	if err := g.Shelter(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	return nil
}

// shelter makes the group where a service manager looks, and returns its directories; none: there is no such place. With version 1 the
// first is of that.
func (g Group) shelter() (dirs []string, err error) {
	if err := g.outsideSlice(); err != nil {
		return nil, err
	}
	switch {
	case g.t.unified:
		dirs = []string{g.dir("")}
	case g.t.systemd != "":
		dirs = []string{filepath.Join(g.t.systemd, g.path)}
		if g.t.hybrid != "" {
			dirs = append(dirs, filepath.Join(g.t.hybrid, g.path))
		}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("cgroup %s: %w", g.Path(), err)
		}
	}
	return dirs, nil
}
