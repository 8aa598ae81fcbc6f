//go:build linux

// Package thread runs what changes the namespaces or cgroups of its thread, so that nobody else is affected.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Run calls f on a thread of its own, which ends with it, and returns when f has. Processes that f starts inherit what it changed.
//
// The process's first thread is never taken. It does not end with a goroutine, so what it had entered would stay in use, and /proc/self
// shows its mounts as those of the process.
func Run(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked, but for the first thread
		if unix.Gettid() == unix.Getpid() {
			Run(f) // while this one is taken
			runtime.UnlockOSThread()
		} else {
			f()
		}
		close(done)
	}()
	<-done
}

// Do is Run of what can fail.
func Do(f func() error) (err error) {
	Run(func() { err = f() })
	return err
}
