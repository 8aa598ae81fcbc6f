// Package panics keeps what one peer, request or file brings about from ending a process: goroutines that serve it defer Catch or Error.
// It knows nothing of what they do. A core has its own way, in internal/loop, because it may be half changed.
package panics

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

const text = "panic; please report it"

// Catch, deferred, ends a panic of the function, and logs it with its stack. Locks that the function holds are not released unless it
// deferred that.
func Catch(log *slog.Logger, what string) {
	if v := recover(); v != nil {
		log.Error(text, "in", what, "err", v, "stack", string(debug.Stack()))
	}
}

// Again runs f until it returns: what serves everybody must not end because of one datagram. Panics are logged as by Catch, one a minute at
// most, since whoever can bring one about can send many.
func Again(log *slog.Logger, what string, f func()) {
	var logged time.Time
	once := func() (done bool) {
		defer func() {
			if v := recover(); v != nil && time.Since(logged) >= time.Minute {
				logged = time.Now()
				log.Error(text, "in", what, "err", v, "stack", string(debug.Stack()))
			}
		}()
		f()
		return true
	}
	for !once() {
		time.Sleep(time.Millisecond) // what panics without an input would take a processor
	}
}

// Error, deferred, makes a panic of the function the error that it returns.
func Error(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("panic, which is a bug, at %s: %v", place(), v)
	}
}

// place gives the file and line of the panic that is recovered.
func place() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)]) // without place and Error
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") || !more {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
	}
}
