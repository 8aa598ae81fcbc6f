//go:build linux

package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/tty"
	"skerry.dev/skerry/runtime/oci"
)

// forgetTime is how long is waited for a shim that waits for the output of what an exec left behind.
const forgetTime = time.Second

// Exec runs a process inside a container through the daemon, as oci.Driver does.
func (d *Driver) Exec(ctx context.Context, handle runtime.Handle, spec runtime.ExecSpec) (int, error) {
	task, err := d.Running(handle, spec)
	if err != nil {
		return -1, err
	}
	client, id, err := d.place(task)
	if err != nil {
		return -1, err
	}
	p, err := d.Process(task, spec, tty.First(spec))
	if err != nil {
		return -1, err
	}
	config, err := json.Marshal(p)
	if err != nil {
		return -1, err
	}
	dir, err := os.MkdirTemp(task.Path(), "exec-")
	if err != nil {
		return -1, err
	}
	defer os.RemoveAll(dir)
	x := &session{c: client, id: id, exec: filepath.Base(dir)}
	defer x.close()
	if err := x.open(dir, spec); err != nil {
		return -1, err
	}
	if err := client.Exec(ctx, id, x.exec, config, x.streams); err != nil {
		return -1, err
	}
	defer x.forget(ctx)
	if err := client.Start(ctx, id, x.exec); err != nil {
		if refused, ok := errors.AsType[*CallError](err); ok {
			return oci.Refused(spec, strings.TrimSuffix(refused.Message, ": unknown")), nil
		}
		return -1, err
	}
	return x.run(ctx, spec)
}

// session is one exec.
type session struct {
	c        *Client
	id, exec string
	streams  streams
	in       *os.File   // written to; nil: none
	outs     []*os.File // read from
	copies   sync.WaitGroup
}

// open makes the pipes, and opens our ends before the shim opens its own.
func (x *session) open(dir string, spec runtime.ExecSpec) error {
	pipe := func(name string, flag int) (string, *os.File, error) {
		p := filepath.Join(dir, name)
		if err := unix.Mkfifo(p, 0o600); err != nil {
			return "", nil, fmt.Errorf("make pipe %s: %w", p, err)
		}
		f, err := os.OpenFile(p, flag|unix.O_NONBLOCK, 0)
		return p, f, err
	}
	x.streams.tty = spec.TTY
	var err error
	if spec.Stdin != nil {
		if x.streams.in, x.in, err = pipe("stdin", os.O_RDWR); err != nil { // there is no reader yet, for whom writing alone would wait
			return err
		}
	}
	var f *os.File
	if x.streams.out, f, err = pipe(pipeOut, os.O_RDONLY); err != nil {
		return err
	}
	x.outs = append(x.outs, f)
	if !spec.TTY {
		if x.streams.err, f, err = pipe(pipeErr, os.O_RDONLY); err != nil {
			return err
		}
		x.outs = append(x.outs, f)
	}
	return nil
}

// run copies the streams of a process that was started until it has ended.
func (x *session) run(ctx context.Context, spec runtime.ExecSpec) (int, error) {
	done := make(chan struct{})
	for i, to := range outputs(spec)[:len(x.outs)] {
		x.copies.Go(func() { tty.PassOn(to, x.outs[i], done) })
	}
	if x.in != nil {
		// Not waited for: a reader such as a network stream ends when its owner closes it, after Exec returned.
		go func() {
			_, _ = io.Copy(x.in, spec.Stdin)
			x.in.Close()
			_ = x.c.CloseInput(context.WithoutCancel(ctx), x.id, x.exec)
		}()
	}
	if spec.TTY && spec.Resize != nil {
		x.copies.Go(func() { x.follow(ctx, spec.Resize, done) })
	}
	code, _, err := x.c.Wait(ctx, x.id, x.exec)
	if ctx.Err() != nil {
		x.kill(ctx)
	}
	close(done)
	x.copies.Wait()
	if ctx.Err() != nil {
		return -1, ctx.Err()
	}
	if err != nil {
		return -1, err
	}
	return code, nil
}

// outputs gives where standard output and error go. Where both are the same, nothing is written into it at once.
func outputs(spec runtime.ExecSpec) []io.Writer {
	out := []io.Writer{spec.Stdout, spec.Stderr}
	for i := range out {
		if out[i] == nil {
			out[i] = io.Discard
		}
	}
	if same(out[0], out[1]) {
		out[0] = &inTurn{to: out[0]}
		out[1] = out[0]
	}
	return out
}

// same compares writers; those of a type that cannot be compared are taken for different ones.
func same(a, b io.Writer) bool {
	defer func() { _ = recover() }()
	return a == b
}

// inTurn is a writer for two at a time.
type inTurn struct {
	mu sync.Mutex // held while something is written
	to io.Writer
}

func (w *inTurn) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

// follow makes the terminal as large as the user's.
func (x *session) follow(ctx context.Context, sizes <-chan runtime.WinSize, done <-chan struct{}) {
	for {
		select {
		case w, ok := <-sizes:
			if !ok {
				return
			}
			_ = x.c.ResizeTerminal(ctx, x.id, x.exec, w.Rows, w.Cols)
		case <-done:
			return
		}
	}
}

// kill ends the process of an exec that was given up, and sees it off.
func (x *session) kill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if x.c.Kill(ctx, x.id, x.exec, int(unix.SIGKILL), false) == nil {
		_, _, _ = x.c.Wait(ctx, x.id, x.exec)
	}
}

// forget has the shim forget the exec. It waits for the output of what was left behind; we have done so already.
func (x *session) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTime)
	defer cancel()
	_ = x.c.DeleteProcess(ctx, x.id, x.exec)
}

func (x *session) close() {
	for _, f := range append(x.outs, x.in) {
		if f != nil {
			f.Close()
		}
	}
}
