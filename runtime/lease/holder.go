//go:build linux

package lease

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// startTime is how long a guard may take to say that it guards.
const startTime = 30 * time.Second

// Options set up a Holder. All are needed.
type Options struct {
	Dir          string // in memory
	Contact      *Contact
	CgroupParent string   // of the tasks
	Command      []string // this program's hidden command that runs Main
}

// Holder is the agent's side: it keeps the list of leases, and a guard for as long as there is one.
type Holder struct {
	opt  Options
	tree *cgroup.Tree

	mu    sync.Mutex      // protects what follows, and the guard's start
	child monitor.Process // the last guard that this process has started
}

// NewHolder makes the directory.
func NewHolder(o Options) (*Holder, error) {
	tree, err := cgroup.Open()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, endedDir), 0o700); err != nil {
		return nil, err
	}
	return &Holder{opt: o, tree: tree}, nil
}

// Set replaces the list, and starts the guard if there is none. The contact must have been written before. What was
// noted of ends under other tokens is forgotten.
func (h *Holder) Set(ctx context.Context, list []Lease) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	turn, err := lock(filepath.Join(h.opt.Dir, turnFile), true)
	if err != nil {
		return err
	}
	defer turn.Close()
	tokens := map[skerry.InstanceID]skerry.Fence{}
	for _, l := range list {
		tokens[l.Instance] = l.Token
	}
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := replace(filepath.Join(h.opt.Dir, leasesFile), data); err != nil {
		return err
	}
	ended, err := os.ReadDir(filepath.Join(h.opt.Dir, endedDir))
	if err != nil {
		return err
	}
	for _, e := range ended {
		if was, ok := h.Ended(skerry.InstanceID(e.Name())); !ok || tokens[was.Instance] != was.Token {
			_ = os.Remove(filepath.Join(h.opt.Dir, endedDir, e.Name()))
		}
	}
	if len(list) == 0 {
		turn.Close()
		h.reapLocked(ctx, startTime)
		return nil
	}
	return h.startLocked(ctx)
}

// Ensure starts the guard again if it has died.
func (h *Holder) Ensure(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	turn, err := lock(filepath.Join(h.opt.Dir, turnFile), true)
	if err != nil {
		return err
	}
	defer turn.Close()
	return h.startLocked(ctx)
}

func (h *Holder) startLocked(ctx context.Context) error {
	alive, err := lock(filepath.Join(h.opt.Dir, aliveFile), false)
	if err != nil || alive == nil {
		return err
	}
	alive.Close()
	h.reapLocked(ctx, 0)
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	cmd := exec.Command(h.opt.Command[0], append(h.opt.Command[1:len(h.opt.Command):len(h.opt.Command)], h.opt.Dir, h.opt.Contact.Path,
		h.opt.CgroupParent)...)
	cmd.Dir, cmd.Env = "/", []string{"GOMAXPROCS=1", "GOGC=20"}
	cmd.Stdout = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	words, err := os.Create(filepath.Join(h.opt.Dir, "guard.err"))
	if err == nil {
		cmd.Stderr = words
		// As the supervisors of tasks, it is not of the agent's service: it has to outlive the agent.
		err = h.tree.Group(path.Join(h.opt.CgroupParent, "conmon")).Start(cmd)
		words.Close()
	}
	out.Close()
	if err != nil {
		return fmt.Errorf("start the guard of leases: %w", err)
	}
	h.child = monitor.Identify(cmd.Process.Pid)
	if err = hear(ctx, in); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		said, _ := os.ReadFile(words.Name())
		return fmt.Errorf("start the guard of leases: %w %s", err, strings.TrimSpace(string(said)))
	}
	return cmd.Process.Release()
}

func hear(ctx context.Context, r *os.File) error {
	_ = r.SetReadDeadline(time.Now().Add(startTime))
	defer context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })()
	line, err := bufio.NewReader(r).ReadString('\n')
	if line == "ok\n" {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it ended without a word")
	}
	return errors.Join(ctx.Err(), err)
}

// reapLocked collects a guard of this process that has ended, or does so within the time given.
func (h *Holder) reapLocked(ctx context.Context, patience time.Duration) {
	if h.child.PID == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if h.child.WaitGone(ctx) == nil {
		h.child = monitor.Process{}
	}
}

// Ended gives what the guard has noted of an instance.
func (h *Holder) Ended(id skerry.InstanceID) (e Ended, ok bool) {
	data, err := os.ReadFile(filepath.Join(h.opt.Dir, endedDir, string(id)))
	if err != nil || json.Unmarshal(data, &e) != nil || e.Instance != id {
		return Ended{}, false
	}
	return e, true
}

// AllEnded gives everything that the guard has noted.
func (h *Holder) AllEnded() (list []Ended) {
	entries, _ := os.ReadDir(filepath.Join(h.opt.Dir, endedDir))
	for _, x := range entries {
		if e, ok := h.Ended(skerry.InstanceID(x.Name())); ok {
			list = append(list, e)
		}
	}
	return list
}

// CleanUp ends the guard of a directory and removes it. The agent must have ended.
func CleanUp(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return nil //nolint:nilerr // there never was one
	}
	if err := replace(filepath.Join(dir, leasesFile), []byte("[]")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		alive, err := lock(filepath.Join(dir, aliveFile), false)
		if err != nil {
			return err
		}
		if alive != nil {
			defer alive.Close()
			return os.RemoveAll(dir)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the guard of leases at %s does not end: %w", dir, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
