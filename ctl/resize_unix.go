//go:build !windows

package ctl

import (
	"os"
	"os/signal"
	"syscall"

	"skerry.dev/skerry/internal/execstream"
)

// sendSizes tells the size of our terminal, now and whenever it changes.
func sendSizes(conn *execstream.Conn) (stop func()) {
	sendSize(conn)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGWINCH)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-ch:
				sendSize(conn)
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(ch); close(done) }
}
