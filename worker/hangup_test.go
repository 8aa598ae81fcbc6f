//go:build linux

package worker

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"skerry.dev/skerry/internal/execstream"
	"skerry.dev/skerry/runtime"
)

// A command that reads no input ends when its caller hangs up, though what the caller typed before was never read.
func TestHangUpBehindUnreadInput(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	defer l.Close()
	caller, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	defer caller.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("take the call: %v", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, feed := io.Pipe() // nobody reads it
	defer in.Close()
	ec := execstream.New(conn)
	go readExec(ec, feed, make(chan runtime.WinSize), cancel)
	go ec.CallBack(ctx, 10*time.Millisecond, cancel)

	typed := execstream.New(caller)
	for range 2 {
		if err := typed.Write(execstream.Stdin, []byte("nobody reads this\n")); err != nil {
			t.Fatalf("type: %v", err)
		}
	}
	// As long as the caller is there it gets signs of life without content, and the command goes on.
	for range 3 {
		if kind, p, err := typed.Read(); kind != execstream.Stdout || len(p) > 0 || err != nil {
			t.Fatalf("a frame of type %d with %q, %v", kind, p, err)
		}
	}
	if ctx.Err() != nil {
		t.Fatal("the command ended while its caller was there")
	}
	caller.Close()
	<-ctx.Done()
}
