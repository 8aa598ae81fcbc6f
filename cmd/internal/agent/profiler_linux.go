package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/worker"
)

const (
	// profileAge is when a profile is taken anew: kernels and runtimes are updated.
	profileAge = 30 * 24 * time.Hour
	// profileAgain is how many times as long as for the first try it waits, when the machine was busy or it did not work.
	profileAgain = 4
	// profileLimit bounds a measurement. It takes less than a minute, but longer on slow boards and where processors are emulated.
	profileLimit = 15 * time.Minute
	// profileGrace is how long one that is told to end may take to clean up.
	profileGrace = 10 * time.Second
)

// profiler has `skerry worker profile` measure the runtimes, when nobody has for a month and the machine has little to
// do. It does so in a process of its own: what that needs of memory goes with it.
type profiler struct {
	dir   string        // the worker's data directory
	flags []string      // of the worker's runtimes
	after time.Duration // from the start of the worker to the first look
	log   *slog.Logger
}

// profiler makes what takes profiles, or nil where none are to be taken.
func (w *Flags) profiler(dir string, log *slog.Logger) *profiler {
	if w.profileAfter <= 0 {
		return nil
	}
	p := &profiler{dir: dir, after: w.profileAfter, log: log}
	for _, f := range [][2]string{{"guest-kernel", w.guest.kernel}, {"guest-kernel-sha256", w.guest.sum},
		{"microvm-monitor", w.guest.monitor}, {"firecracker", w.guest.firecracker},
		{"cloud-hypervisor", w.guest.cloudHypervisor},
		{"containerd", w.containerd.socket}, {"containerd-shim", w.containerd.shim}, {"containerd-binary", w.containerd.binary}} {
		p.flags = append(p.flags, "--"+f[0]+"="+f[1])
	}
	for _, class := range w.containerd.classes {
		p.flags = append(p.flags, "--containerd-class="+class)
	}
	p.flags = append(p.flags, "--machines="+strconv.FormatBool(w.guest.machines), "--emulate="+strconv.FormatBool(w.guest.emulate))
	return p
}

// run looks from time to time until ctx ends.
func (p *profiler) run(ctx context.Context) error {
	for pause := p.after; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = profileAgain * p.after
		taken, err := profileTaken(p.dir)
		if err != nil {
			p.log.Warn("the measurements of runtimes cannot be read, and are repeated", "err", err)
		}
		load, err := os.ReadFile("/proc/loadavg")
		if err == nil {
			err = profileDue(time.Now(), taken, string(load), goruntime.NumCPU())
		}
		if errors.Is(err, errProfiled) {
			continue
		}
		if err == nil {
			err = p.take(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			p.log.Info("runtimes were not measured", "why", err, "again", pause)
		default:
			p.log.Info("the runtimes of this machine were measured, for placement")
		}
	}
}

// profileTaken tells when a worker's profile was taken; zero: never.
func profileTaken(dir string) (at time.Time, err error) {
	list, err := worker.ReadProfile(dir)
	for _, p := range list {
		if p.At.After(at) {
			at = p.At
		}
	}
	return at, err
}

var errProfiled = errors.New("it was measured recently")

// profileDue gives nil when a profile is to be taken: errProfiled while the last one holds, and another error while at
// least half of the processors are busy, by the load over the last minute.
func profileDue(now, taken time.Time, load string, processors int) error {
	if age := now.Sub(taken); !taken.IsZero() && age >= 0 && age < profileAge {
		return errProfiled
	}
	first, _, _ := strings.Cut(strings.TrimSpace(load), " ")
	busy, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return fmt.Errorf("the load of the machine cannot be read: %w", err)
	}
	if most := max(1, float64(processors)/2); busy >= most {
		return fmt.Errorf("the machine is busy: its load is %.1f, and less than %g is idle", busy, most)
	}
	return nil
}

// take measures. The worker is told by the process itself, as when somebody calls it.
func (p *profiler) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, profileLimit)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"worker", "profile", "--data", p.dir}, p.flags...)...)
	var out bytes.Buffer
	cmd.Stderr = &out // a few lines
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = profileGrace
	// It ends with this process. The signal comes when the thread that started it ends, so the thread stays.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	p.log.Info("measuring the runtimes of this machine")
	if err := cmd.Start(); err != nil {
		return err
	}
	// Others come first. Its tasks, of which the rate counts, have groups of their own.
	if err := unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, 19); err != nil {
		p.log.Debug("measuring does not run at a lower priority", "err", err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s (%w)", saidLast(out.String()), err)
	}
	if taken, err := profileTaken(p.dir); err != nil || taken.IsZero() {
		return errors.Join(fmt.Errorf("%s has nothing", filepath.Join(p.dir, "profile.json")), err)
	}
	return nil
}

// saidLast gives the error that a command ended with, and its hint, of what it wrote; without one, its last line.
func saidLast(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	at := len(lines) - 1
	for i, l := range lines {
		if strings.HasPrefix(l, "error: ") {
			at = i
		}
	}
	return strings.TrimPrefix(strings.Join(lines[at:], "; "), "error: ")
}
