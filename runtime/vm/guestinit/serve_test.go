//go:build linux

package main

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"

	"skerry.dev/skerry/runtime/vm/wire"
)

// TestEnding leaves the end of a machine to the host where the last words may still be on their way.
func TestEnding(t *testing.T) {
	broken, over := errors.New("broken"), errors.New("over")
	for name, test := range map[string]struct {
		first  end
		socket bool
		waits  bool
	}{
		"a port":                   {end{}, false, false},
		"a socket":                 {end{}, true, true},
		"a socket that is broken":  {end{err: broken}, true, false},
		"a host that is gone":      {end{true, over}, true, false},
		"a host that speaks wrong": {end{true, over}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ends, left := make(chan end, 2), make(chan error, 1)
				ends <- test.first
				go func() { left <- ending(ends, test.socket) }()
				synctest.Wait()
				if (len(left) == 0) != test.waits {
					t.Errorf("it waits for the host: %v", !test.waits)
				}
				if test.waits {
					ends <- end{true, over}
				}
				if err := <-left; err != test.first.err {
					t.Errorf("it ends with %v, not %v", err, test.first.err)
				}
			})
		})
	}
}

// TestUntilGone takes whatever the host says until it is gone.
func TestUntilGone(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, host := &link{fd: fds[0], socket: true}, &link{fd: fds[1], socket: true}
	defer syscall.Close(ours.fd)
	if err := errors.Join(host.send(wire.KindConfig, 0, []byte("more")), host.send(wire.KindAsk, 1, nil)); err != nil {
		t.Fatal(err)
	}
	syscall.Close(host.fd)
	if err := ours.untilGone(); err != io.EOF {
		t.Errorf("it ends with %v", err)
	}
}
