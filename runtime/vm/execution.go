//go:build linux

package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/vm/wire"
)

// execution is one process in a machine, as the agent sees it. Neither side sends more of a stream than the other has granted.
type execution struct {
	conn  net.Conn
	spec  runtime.ExecSpec
	write sync.Mutex // held while a frame is written

	mu     sync.Mutex // protects what follows
	change sync.Cond
	out    []wire.Frame // output that nobody has taken yet
	size   int          // bytes of that
	left   int          // bytes of input that may be sent
	over   bool         // the process has ended
}

func newExecution(conn net.Conn, spec runtime.ExecSpec) *execution {
	x := &execution{conn: conn, spec: spec, left: wire.Window}
	x.change.L = &x.mu
	return x
}

func (x *execution) send(kind wire.Kind, data []byte) error {
	x.write.Lock()
	defer x.write.Unlock()
	return wire.Write(x.conn, wire.Frame{Kind: kind, Data: data})
}

func (x *execution) run(ctx context.Context, proc *wire.Process) (int, error) {
	// The connection's end is what ends the process.
	stop := context.AfterFunc(ctx, func() { x.conn.Close() })
	defer stop()
	defer x.conn.Close()
	if err := x.send(wire.KindExec, wire.Encode(proc)); err != nil {
		return -1, err
	}
	done := make(chan struct{})
	defer close(done)
	go x.input()
	if x.spec.TTY && x.spec.Resize != nil {
		go x.resize(done)
	}
	// Output is written apart, so that what is read is never held up by whoever takes it.
	var writer sync.WaitGroup
	writer.Go(x.output)
	code, failure, err := x.read()
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	x.change.Broadcast()
	writer.Wait()
	if failure != nil {
		return x.refused(failure), nil
	}
	return code, err
}

// read takes what the machine says until the process has ended.
func (x *execution) read() (int, *wire.Failure, error) {
	in := bufio.NewReader(x.conn)
	for {
		f, err := wire.Read(in)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the machine ended")
			}
			return -1, nil, err
		}
		switch f.Kind {
		case wire.KindStdout, wire.KindStderr:
			x.mu.Lock()
			x.out, x.size = append(x.out, f), x.size+len(f.Data)
			tooMuch := x.size > wire.Window || len(f.Data) == 0
			x.mu.Unlock()
			if tooMuch {
				return -1, nil, wire.ErrFrame
			}
			x.change.Broadcast()
		case wire.KindGrant:
			if n, err := wire.Number(f.Data); err == nil && n <= wire.Window {
				x.mu.Lock()
				x.left = min(x.left+int(n), wire.Window)
				x.mu.Unlock()
				x.change.Broadcast()
			}
		case wire.KindFailed:
			m := &wire.Failure{}
			if err := wire.Decode(f.Data, m); err != nil {
				return -1, nil, err
			}
			return 0, m, nil
		case wire.KindExit:
			var e wire.Exit
			err := wire.Decode(f.Data, &e)
			return int(e.Code & 0xff), nil, err
		}
	}
}

// output writes what was read until there is nothing more.
func (x *execution) output() {
	for {
		x.mu.Lock()
		for len(x.out) == 0 && !x.over {
			x.change.Wait()
		}
		frames := x.out
		x.out, x.size = nil, 0
		x.mu.Unlock()
		if len(frames) == 0 {
			return
		}
		for _, f := range frames {
			out := x.spec.Stdout
			if f.Kind == wire.KindStderr && !x.spec.TTY {
				out = x.spec.Stderr
			}
			if out != nil {
				_, _ = out.Write(f.Data)
			}
			_ = x.send(wire.KindGrant, wire.U32(uint32(len(f.Data))))
		}
	}
}

// input sends what is typed, as far as the guest takes it. It is not waited for: a reader ends when its owner closes it.
func (x *execution) input() {
	b := make([]byte, wire.Chunk)
	for x.spec.Stdin != nil {
		n, err := x.spec.Stdin.Read(b)
		for data := b[:n]; len(data) > 0; {
			part := x.take(len(data))
			if part == 0 || x.send(wire.KindStdin, data[:part]) != nil {
				return
			}
			data = data[part:]
		}
		if err != nil {
			break
		}
	}
	if !x.spec.TTY {
		_ = x.send(wire.KindStdin, nil)
	}
}

// take waits until something may be sent, and gives how much; 0 when nobody wants it any more.
func (x *execution) take(n int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.left == 0 && !x.over {
		x.change.Wait()
	}
	if x.over {
		return 0
	}
	n = min(n, x.left)
	x.left -= n
	return n
}

func (x *execution) resize(done <-chan struct{}) {
	for {
		select {
		case w, ok := <-x.spec.Resize:
			if !ok {
				return
			}
			_ = x.send(wire.KindResize, wire.Encode(&wire.Size{Rows: uint32(w.Rows), Cols: uint32(w.Cols)}))
		case <-done:
			return
		}
	}
}

// refused tells why a process was not started, and gives the exit status that a shell would.
func (x *execution) refused(f *wire.Failure) int {
	out, end := x.spec.Stderr, "\n"
	if x.spec.TTY {
		out, end = x.spec.Stdout, "\r\n"
	}
	if out != nil {
		fmt.Fprint(out, clean(f.Message), end)
	}
	if strings.Contains(f.Message, "no such file") || strings.Contains(f.Message, "not found") {
		return 127
	}
	return 126
}
