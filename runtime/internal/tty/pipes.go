//go:build linux

package tty

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"skerry.dev/skerry/runtime"
)

// pipes are those of one command.
type pipes struct {
	owner        *Owner
	theirs, ours []*os.File
	ended        chan struct{}
	copying      sync.WaitGroup
}

func runPipes(ctx context.Context, cmd *exec.Cmd, spec runtime.ExecSpec, o Options) (int, error) {
	p := &pipes{owner: o.Owner, ended: make(chan struct{})}
	err := p.open(cmd, spec)
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range p.theirs {
		f.Close() // so that there is an end to read
	}
	code := -1
	if err == nil {
		code, err = wait(ctx, cmd, o.Kill)
	}
	p.close()
	return code, err
}

// close passes on what is left of the output.
func (p *pipes) close() {
	close(p.ended)
	p.copying.Wait()
	for _, f := range p.ours {
		f.Close()
	}
}

func (p *pipes) open(cmd *exec.Cmd, spec runtime.ExecSpec) error {
	var err error
	if spec.Stdout != nil {
		if cmd.Stdout, err = p.out(spec.Stdout); err != nil {
			return err
		}
	}
	switch {
	case same(spec.Stdout, spec.Stderr):
		cmd.Stderr = cmd.Stdout
	case spec.Stderr != nil:
		if cmd.Stderr, err = p.out(spec.Stderr); err != nil {
			return err
		}
	}
	if spec.Stdin == nil {
		return nil
	}
	r, w, err := p.pipe()
	if err != nil {
		return err
	}
	p.theirs, p.ours, cmd.Stdin = append(p.theirs, r), append(p.ours, w), r
	// Not waited for: a reader such as a network stream ends when its owner closes it, after Exec returned.
	go func() {
		_, _ = io.Copy(w, spec.Stdin)
		w.Close()
	}()
	return nil
}

// out makes a pipe whose contents are passed on.
func (p *pipes) out(to io.Writer) (io.Writer, error) {
	r, w, err := p.pipe()
	if err != nil {
		return nil, err
	}
	p.theirs, p.ours = append(p.theirs, w), append(p.ours, r)
	p.copying.Go(func() { PassOn(to, r, p.ended) })
	return w, nil
}

func (p *pipes) pipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	if p.owner != nil {
		if err := w.Chown(int(p.owner.UID), int(p.owner.GID)); err != nil {
			r.Close()
			w.Close()
			return nil, nil, fmt.Errorf("make a pipe: %w", err)
		}
	}
	return r, w, nil
}

// same reports whether two writers are one, which two goroutines must not write to.
func same(a, b io.Writer) bool {
	defer func() { _ = recover() }() // of a type that cannot be compared: they are not
	return a != nil && a == b
}
