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
)

// Catch, deferred, ends a panic of the function, and logs it with its stack. Locks that the function holds are not released unless it
// deferred that.
func Catch(log *slog.Logger, what string) {
	if v := recover(); v != nil {
		log.Error("panic; please report it", "in", what, "err", v, "stack", string(debug.Stack()))
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
