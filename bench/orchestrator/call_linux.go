package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"skerry.dev/skerry/bench/report"
	"skerry.dev/skerry/internal/printed"
)

// cannotHere is the exit status by which an adapter says that something cannot be done here, with the reason on its standard error.
const cannotHere = 64

// cannotError is what an adapter cannot do here.
type cannotError struct{ reason string }

func (e cannotError) Error() string { return e.reason }

// askTime bounds what asks only: version and processes.
const askTime = 30 * time.Second

// lingering is how long what an adapter started may hold its output open after it has ended.
const lingering = 2 * time.Second

// adapter is one that takes part.
type adapter struct {
	report.Place        // Text is its version
	unwatched    string // why its processes are not measured
	file         string
	timeout      time.Duration  // of each of deploy, wait and delete
	cannot       map[int]string // sizes that it cannot do here, and why
}

// call runs an adapter in a process group of its own, so that Ctrl-C is for the benchmark and what hangs is ended with
// its children. It gives what was printed. The error is a cannotError for status 64, ctx's when ctx has ended, else one
// that tells what went wrong.
func (a *adapter) call(ctx context.Context, limit time.Duration, args ...string) (string, error) {
	bound, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, errs := printed.Head{Max: maxOutput, Stop: true}, printed.Head{Max: maxOutput, Stop: true}
	cmd := exec.CommandContext(bound, a.file, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, lingering
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // whatever it left; mostly there is none
	}
	why := reason(errs.String())
	var exit *exec.ExitError
	switch {
	case out.Over() || errs.Over():
		return "", fmt.Errorf("%s: more than %d bytes were printed", args[0], maxOutput)
	case ctx.Err() != nil:
		return "", ctx.Err()
	case bound.Err() != nil:
		return "", fmt.Errorf("%s did not end within %v", args[0], limit)
	case errors.As(err, &exit) && exit.ExitCode() == cannotHere && why != "":
		return "", cannotError{why}
	case why != "":
		return "", fmt.Errorf("%s: %w: %s", args[0], err, why)
	}
	return "", fmt.Errorf("%s: %w, without a reason", args[0], err)
}

// act calls what is to print nothing.
func (a *adapter) act(ctx context.Context, args ...string) error {
	limit := a.timeout
	if args[0] == "wait" {
		limit += lingering // it knows its own limit, and may tell more than that it was killed
	}
	out, err := a.call(ctx, limit, args...)
	if err == nil && out != "" {
		err = fmt.Errorf("%s printed %.40q, where nothing is to be printed", args[0], out)
	}
	return err
}

func (a *adapter) deploy(ctx context.Context, name, image string, replicas int) error {
	return a.act(ctx, "deploy", name, image, strconv.Itoa(replicas))
}

func (a *adapter) wait(ctx context.Context, name string, replicas int) error {
	return a.act(ctx, "wait", name, strconv.Itoa(replicas), strconv.Itoa(max(1, int(a.timeout.Seconds()))))
}

func (a *adapter) remove(ctx context.Context, name string) error {
	return a.act(ctx, "delete", name)
}

func (a *adapter) version(ctx context.Context) (string, error) {
	out, err := a.call(ctx, askTime, "version")
	if err != nil {
		return "", err
	}
	if out, err = ParseVersion(out); err != nil {
		return "", fmt.Errorf("version: %w", err)
	}
	return out, nil
}

func (a *adapter) processes(ctx context.Context) ([]Process, error) {
	out, err := a.call(ctx, askTime, "processes")
	if err != nil {
		return nil, err
	}
	list, err := ParseProcesses(out)
	if err != nil {
		return nil, fmt.Errorf("processes: %w", err)
	}
	return list, nil
}
