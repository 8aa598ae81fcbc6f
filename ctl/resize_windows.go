package ctl

import (
	"time"

	"skerry.dev/skerry/internal/execstream"
)

// sendSizes tells the size of our terminal, now and then, because Windows sends no signal for it.
func sendSizes(conn *execstream.Conn) (stop func()) {
	sendSize(conn)
	done := make(chan struct{})
	go func() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				sendSize(conn)
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}
