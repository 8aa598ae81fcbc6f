//go:build linux

package monitor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry"
)

// Launch is how conmon is to be started. Conmon calls "<Runtime> <RuntimeArgs> create --bundle DIR --pid-file F ID".
type Launch struct {
	Runtime     string
	RuntimeArgs []string
	LogMax      skerry.Bytes
	TTY         bool
	// Restore is a directory with a checkpoint to start from, or "": conmon then calls "restore" instead of "create".
	Restore string
}

// CreateError is what the runtime said when it refused.
type CreateError struct{ Message string }

func (e *CreateError) Error() string { return e.Message }

// Field divides what a program of ours in the runtime's place says, "FIELD: reason", where it begins with a field of the spec.
func (e *CreateError) Field(is func(field string) bool) (field, reason string) {
	msg := e.Message
	if _, rest, ok := strings.Cut(msg, "runtime create failed: "); ok { // conmon's words
		msg = rest
	}
	msg = strings.TrimSpace(msg)
	if field, rest, ok := strings.Cut(msg, ": "); ok && is(field) {
		return field, rest
	}
	return "", msg
}

// Start launches conmon, which creates the task, and returns when it has. It fills in Supervisor and Init. Conmon
// leaves this process's session and becomes an orphan at once, so that it outlives the agent.
func (t *Task) Start(ctx context.Context, l Launch) error {
	rec := t.Record()
	supervisor, pid, err := t.set.conmon(ctx, l, place{
		id: string(rec.Handle.ID), dir: t.dir, cwd: t.dir, exits: t.set.exitDir(), shelter: path.Dir(rec.Cgroup),
		log: filepath.Join("log", "log"), // conmon takes a path to end at a colon
	})
	if err != nil {
		return err
	}
	t.Update(func(rec *Record) {
		rec.Supervisor, rec.Init, rec.Handle.PID = supervisor, Identify(pid), pid
	})
	return nil
}

// place is where conmon finds and leaves things. log and exits may be relative to cwd: they then stay right when that is renamed.
type place struct {
	id, dir, cwd, log, exits string
	// shelter is the group above that of the supervisors.
	shelter string
}

func (s *Tasks) conmon(ctx context.Context, l Launch, p place) (supervisor Process, pid int, err error) {
	in, out, err := os.Pipe()
	if err != nil {
		return supervisor, 0, err
	}
	defer in.Close()
	startR, startW, err := os.Pipe()
	if err != nil {
		out.Close()
		return supervisor, 0, err
	}
	defer startW.Close()
	args := []string{
		"--api-version", "1", "-c", p.id, "-u", p.id, "-n", p.id, "-b", p.dir,
		"-r", l.Runtime,
		"-l", "k8s-file:" + p.log, "--log-size-max", strconv.FormatInt(int64(l.LogMax)/2, 10),
		"--exit-dir", p.exits, "-p", filepath.Join(p.dir, "pid"), "-P", filepath.Join(p.dir, "conmon.pid"),
		"--full-attach", "--no-sync-log", "--log-level", "error",
	}
	for _, a := range l.RuntimeArgs {
		args = append(args, "--runtime-arg", a)
	}
	if l.TTY {
		args = append(args, "-t")
	}
	if l.Restore != "" {
		args = append(args, "--restore", l.Restore)
	}
	cmd := exec.Command(s.opts.Conmon, args...)
	cmd.Dir = p.cwd
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "_OCI_SYNCPIPE=3", "_OCI_STARTPIPE=4"}
	cmd.ExtraFiles = []*os.File{out, startR}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	said := filepath.Join(p.dir, "conmon.err")
	words, err := os.Create(said) // a pipe would be held for as long as the task runs
	if err == nil {
		cmd.Stderr = words
		defer words.Close()
		// Conmon waits for the start pipe before it forks: whatever it forks stays in the shelter, also where it has to be moved there.
		err = s.tree.Group(path.Join(p.shelter, "conmon")).Start(cmd)
	}
	out.Close()
	startR.Close()
	if err != nil {
		return supervisor, 0, fmt.Errorf("start %s: %w", s.opts.Conmon, err)
	}
	if _, err := startW.Write([]byte{0}); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return supervisor, 0, fmt.Errorf("start %s: %w", s.opts.Conmon, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = in.SetReadDeadline(time.Unix(1, 0)) })
	pid, err = readSync(in)
	stop()
	if ctx.Err() != nil {
		_ = cmd.Process.Kill() // it has not answered, and might not end either
	}
	// The first conmon process ended when it had forked; what it forked is not ours to wait for.
	_ = cmd.Wait()
	if ctx.Err() != nil {
		return supervisor, 0, ctx.Err()
	}
	if err != nil {
		if last := lastWords(said); last != "" {
			err = fmt.Errorf("%w; it said: %s", err, last)
		}
		return supervisor, 0, err
	}
	n, _ := readInt(filepath.Join(p.dir, "conmon.pid"))
	return Identify(n), pid, nil
}

// lastWords is the end of what conmon wrote beside its answer.
func lastWords(file string) string {
	text := strings.TrimSpace(readString(file))
	return text[max(0, len(text)-500):]
}

// readSync reads conmon's answer: one JSON object {"data": pid, "message": text}.
func readSync(r *os.File) (pid int, err error) {
	line, err := bufio.NewReaderSize(r, 1<<16).ReadBytes('\n')
	if len(line) == 0 {
		return 0, fmt.Errorf("conmon ended without an answer: %w", err)
	}
	return parseSync(line)
}

func parseSync(line []byte) (pid int, err error) {
	var answer struct {
		Data    int    `json:"data"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(line), &answer); err != nil {
		return 0, fmt.Errorf("conmon answered %q", line)
	}
	if answer.Data <= 0 {
		msg := strings.TrimSpace(answer.Message)
		if msg == "" {
			msg = "the runtime refused without saying why"
		}
		return 0, &CreateError{msg}
	}
	return answer.Data, nil
}

func (s *Tasks) exitDir() string { return filepath.Join(s.opts.Dir, "exits") }

// ExitFile is where the exit status of the task is written when it ends, a number, in a file as old as that: among those of all tasks,
// or in the directory that its supervisor was begun in before there was a task.
func (t *Task) ExitFile() string {
	if t.Record().Spare {
		return t.Path("log", spareExit)
	}
	return filepath.Join(t.set.exitDir(), filepath.Base(t.dir))
}

// Watch begins keeping the rotated log of a task that was started.
func (t *Task) Watch() { t.set.keep.add(t.Path("log")) }

// AdoptLog links the log of a previous task into this one's directory, so that it outlives that task.
func (t *Task) AdoptLog(prev *Task) error {
	dir := t.Path("previous")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"old", "log"} {
		if err := os.Link(prev.Path("log", name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("keep the log of %s: %w", prev.Record().Handle.ID, err)
		}
	}
	return nil
}
