//go:build linux

// Package hybrid makes crun work on hosts where cgroup2 holds controllers beside version 1, which crun refuses, and start once on all. It
// writes a program that stands in for crun, and changes nothing else on the machine. Runtime drivers that call an OCI runtime import it.
//
//	conmon ── stand-in: own mount namespace, /dev/null over unified/cgroup.controllers ── execve crun
//
// Only crun and the container it creates are in that namespace. Conmon stays in the agent's: it lives as long as its container, and a
// namespace of its own would keep a copy of every mount of the host, so that file systems stay busy after the host has unmounted them
// and each further mount has to be propagated to every container's conmon.
package hybrid

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
)

// These paths are built into crun.
const (
	unified     = "/sys/fs/cgroup/unified"
	controllers = unified + "/cgroup.controllers"
)

// Note is added to the version of a runtime that passed its self-test behind a stand-in.
const Note = " (hybrid host: cgroup2's controllers are hidden from it)"

// Cure is the advice where the stand-in does not help either.
const Cure = "use runc; if the state directory is mounted noexec, remount it without; " +
	"or boot with cgroup version 2 alone (systemd.unified_cgroup_hierarchy=1)"

// Refused reports whether this is the message of an OCI runtime that does not support hybrid hosts.
func Refused(message string) bool { return strings.Contains(message, "hybrid mode not supported") }

// Try writes the stand-in for an OCI runtime that refused this host, and tries that. It returns the stand-in's path if
// it works; else, an error with both reasons.
func Try(dir, program string, refused error, try func(standIn string) error) (string, error) {
	file, err := write(dir, goruntime.GOARCH, program, true)
	if err == nil {
		err = try(file)
	}
	if err != nil {
		return "", &runtime.StartError{Hint: Cure, Err: fmt.Errorf("%w; with cgroup2's controllers hidden from it: %w", cause(refused),
			cause(err))}
	}
	return file, nil
}

// ReadOnly writes a stand-in that hides nothing: it only executes crun from a read-only mount at once, so that crun need not do so itself.
func ReadOnly(dir, program string) (string, error) {
	return write(dir, goruntime.GOARCH, program, false)
}

// cause is an error without its hint.
func cause(err error) error {
	if se, ok := errors.AsType[*runtime.StartError](err); ok {
		return se.Err
	}
	return err
}

// write writes the stand-in for an OCI runtime (see Program) into a directory of its own, under the runtime's name, and returns its path.
func write(dir, goarch, program string, hide bool) (string, error) {
	data, ok := Program(goarch, program, hide)
	if !ok {
		return "", fmt.Errorf("there is no stand-in for %s on %s", program, goarch)
	}
	st, err := os.Stat(program)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, filepath.Base(program))
	if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, data) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
		if err := files.Program(file, bytes.NewReader(data), 0o755); err != nil {
			return "", err
		}
	}
	if err := unix.Access(file, unix.X_OK); err != nil {
		return "", fmt.Errorf("%s cannot be executed: %w", file, err) // mounted noexec
	}
	// The runtime's own time: compiled seccomp filters are cached by it.
	return file, os.Chtimes(file, st.ModTime(), st.ModTime())
}
