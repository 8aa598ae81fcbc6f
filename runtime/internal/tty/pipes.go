//go:build linux

package tty

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"skerry.dev/skerry/runtime"
)

// Pipes gives a command pipes that belong to a user and a group of the host, for the streams of a process that can open them anew
// only so. What is returned is for Run in place of the spec; done is called after Run. A terminal needs none of it.
func Pipes(cmd *exec.Cmd, spec runtime.ExecSpec, uid, gid uint32) (_ runtime.ExecSpec, done func(), err error) {
	if spec.TTY {
		return spec, func() {}, nil
	}
	var theirs, ours []*os.File
	var copying sync.WaitGroup
	done = func() {
		for _, f := range theirs {
			f.Close()
		}
		for _, f := range ours {
			_ = f.SetReadDeadline(time.Now().Add(time.Second)) // as long as Run waits for what the command left behind
		}
		copying.Wait()
		for _, f := range ours {
			f.Close()
		}
	}
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			if err = w.Chown(int(uid), int(gid)); err != nil {
				r.Close()
				w.Close()
			}
		}
		return r, w, err
	}
	out := func(to io.Writer) (io.Writer, error) {
		r, w, err := pipe()
		if err != nil {
			return nil, err
		}
		theirs, ours = append(theirs, w), append(ours, r)
		copying.Go(func() { _, _ = io.Copy(to, r) })
		return w, nil
	}
	same := same(spec.Stdout, spec.Stderr)
	if spec.Stdout != nil {
		spec.Stdout, err = out(spec.Stdout)
	}
	switch {
	case err != nil:
	case same:
		spec.Stderr = spec.Stdout
	case spec.Stderr != nil:
		spec.Stderr, err = out(spec.Stderr)
	}
	if err == nil && spec.Stdin != nil {
		var r, w *os.File
		if r, w, err = pipe(); err == nil {
			theirs = append(theirs, r)
			from := spec.Stdin
			cmd.Stdin, spec.Stdin = r, nil
			go func() { // not waited for, as in Run
				_, _ = io.Copy(w, from)
				w.Close()
			}()
		}
	}
	if err != nil {
		done()
		return spec, nil, fmt.Errorf("make pipes: %w", err)
	}
	return spec, done, nil
}

// same reports whether two writers are one, which two goroutines must not write to.
func same(a, b io.Writer) bool {
	defer func() { _ = recover() }() // of a type that cannot be compared: they are not
	return a != nil && a == b
}
