//go:build linux

package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/tty"
)

// Exec runs a process inside a container, with the container's own restrictions. As in a shell, a program that is not
// there ends with 127 and one that cannot be run with 126, with the reason on Stderr, or on the terminal.
func (d *Driver) Exec(ctx context.Context, handle runtime.Handle, spec runtime.ExecSpec) (int, error) {
	task, err := d.Running(handle, spec)
	if err != nil {
		return -1, err
	}
	rec := task.Record()
	first := tty.First(spec)
	p, err := d.Process(task, spec, first)
	if err != nil {
		return -1, err
	}
	process, err := os.CreateTemp(task.Path(), "exec-*")
	if err != nil {
		return -1, err
	}
	defer os.Remove(process.Name())
	pidFile := process.Name() + ".pid"
	defer os.Remove(pidFile)
	err = json.NewEncoder(process).Encode(p)
	if err2 := process.Close(); err == nil {
		err = err2
	}
	if err != nil {
		return -1, err
	}
	log := process.Name() + ".log"
	defer os.Remove(log)
	to, isCrun := log, filepath.Base(rec.Runtime) == "crun"
	if isCrun {
		to = "file:" + log // or it takes what is before a colon in the path for a kind of log
	}
	state := process.Name() + ".state"
	defer os.RemoveAll(state)
	global, network, err := d.inNetwork(task, state)
	if err != nil {
		return -1, err
	}
	o := tty.Options{First: first, Inner: filepath.Base(rec.Runtime) == "runc"}
	args := []string{"--log", to, "--log-format", "json", "exec", "--process", process.Name(), "--pid-file", pidFile}
	// runc takes such a socket only if it is not to wait for the process, and copies all that there is before it ends.
	if spec.TTY && isCrun {
		if o.Console, err = tty.Listen(process.Name() + ".console"); err != nil {
			return -1, err
		}
		defer o.Console.Close()
		args = append(args, "--console-socket", o.Console.Path())
	}
	cmd := exec.Command(rec.Runtime, slices.Concat(global, args, []string{string(handle.ID)})...)
	cmd.Dir = "/"
	// The runtime waits for the process; killing the runtime alone would leave it.
	inner := func() int {
		data, _ := os.ReadFile(pidFile)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
		return pid
	}
	o.Kill = func() { _ = monitor.Identify(inner()).Signal(unix.SIGKILL) }
	if out := outsideOf(task); out.Users != nil {
		uid, gid, err := hostUser(out.Users, p.User)
		if err != nil {
			return -1, err
		}
		o.Owner = &tty.Owner{UID: uid, GID: gid}
	}
	code, err := within(network, func() (int, error) { return tty.Run(ctx, cmd, spec, o) })
	if err != nil || code == 0 {
		return code, err
	}
	if msg := lastError(log); msg != "" && inner() == 0 {
		return Refused(spec, msg), nil
	}
	return code, nil
}

// lastError gives the last error in a log that the runtime wrote as lines of JSON, or "".
func lastError(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	msg := ""
	for line := range strings.Lines(string(data)) {
		var e struct{ Level, Msg string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Level == "error" {
			msg = e.Msg
		}
	}
	return msg
}

// Refused tells why the runtime did not start a process, and gives the exit status that a shell would.
func Refused(spec runtime.ExecSpec, msg string) int {
	text, code := Explain(runtime.Spec{Args: spec.Args, Dir: spec.Dir}, &monitor.CreateError{Message: msg}).Error(), 126
	if low := strings.ToLower(msg); strings.Contains(low, "no such file") || strings.Contains(low, "not found") {
		code = 127
	}
	out, end := spec.Stderr, "\n"
	if spec.TTY {
		out, end = spec.Stdout, "\r\n"
	}
	if out != nil {
		fmt.Fprint(out, text, end)
	}
	return code
}
