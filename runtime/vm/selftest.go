//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/probe"
)

// selfTest runs a driver's self-test, and keeps what it found to work.
type selfTest struct {
	name, dir string
	test      func(ctx context.Context, r *runtime.Report) *choice
	patience  time.Duration // the least that a guest gets to come up with KVM, beside kvmPatience
	work      time.Duration // the most that it uses of processors for that, on a usual machine
	// used is what tasks of self-tests have used of processors until now.
	used func() time.Duration

	// choosing holds a token while the test is on its way.
	choosing chan struct{}
	mu       sync.Mutex // protects what follows
	chosen   *choice
}

func newSelfTest(base *monitor.Driver, dir string, work time.Duration, test func(context.Context, *runtime.Report) *choice) *selfTest {
	return &selfTest{name: base.Name(), dir: dir, work: work, used: base.UsedByChecks, test: test, choosing: make(chan struct{}, 1)}
}

// Check is runtime.Driver's.
func (s *selfTest) Check(ctx context.Context) (r runtime.Report) {
	began := time.Now()
	r.Driver = s.name
	defer func() { r.Took = time.Since(began) }()
	select {
	case s.choosing <- struct{}{}:
		defer func() { <-s.choosing }()
	case <-ctx.Done():
		r.Cause = ctx.Err().Error()
		return r
	}
	s.run(ctx, &r)
	return r
}

// choose gives what passed the self-test, running it first when nobody has.
func (s *selfTest) choose(ctx context.Context) (*choice, error) {
	if c := s.get(); c != nil {
		return c, nil
	}
	select {
	case s.choosing <- struct{}{}:
		defer func() { <-s.choosing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := s.get(); c != nil {
		return c, nil
	}
	var r runtime.Report
	s.run(ctx, &r)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !r.Passed {
		return nil, &runtime.StartError{Err: fmt.Errorf("runtime %s does not work on this worker: %s", s.name, r.Cause), Hint: r.Cure}
	}
	return s.get(), nil
}

func (s *selfTest) get() *choice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chosen
}

func (s *selfTest) run(ctx context.Context, r *runtime.Report) {
	c := s.test(ctx, r)
	if c == nil {
		return
	}
	s.mu.Lock()
	s.chosen = c
	s.mu.Unlock()
	r.Passed = true
}

// kvmPatience is how long a guest may take to come up with KVM; a slow or busy machine gets more. One that is not through by then is
// being emulated after all, as where /dev/kvm is there but only runs kernels that were made for it.
const kvmPatience = 8 * time.Second

// mostKVMPatience bounds that: vm-run gives a guest up after a minute, which counts as what failed at once and may be tried again.
const mostKVMPatience = 55 * time.Second

// kvmWork and probeWork are what a guest may use of processors to come up with KVM: with Linux, and with the program of
// runtime/internal/probe, which needs a tenth of a second. One that has used more by then is interpreted. On a busy machine patience may
// last seven times as long, for which such a guest would take a whole processor.
const (
	kvmWork   = kvmPatience
	probeWork = 2 * time.Second
)

// accelerate tries KVM, then an emulated processor if that is allowed, and writes down which it is to be.
func (s *selfTest) accelerate(ctx context.Context, r *runtime.Report, c *choice, emulate bool,
	try func(context.Context, *choice) error) bool {
	kvm := s.tryKVM(ctx, c, try)
	if kvm == nil {
		c.accel = "kvm"
		return true
	}
	if !emulate {
		r.Cause = "no working KVM: " + kvm.Error()
		r.Cure = "use a machine whose /dev/kvm runs Linux guests, or allow emulation, which is many times slower, with --emulate"
		return false
	}
	c.accel = "tcg"
	if err := try(ctx, c); err != nil {
		r.Cause, r.Cure = causeAndCure(err)
		return false
	}
	r.Emulated = true
	r.Cause = "emulated, many times slower: no working KVM: " + kvm.Error()
	return true
}

// tryKVM boots a guest with KVM. Where that did not work it is not tried again until the machine restarts, for it takes long.
func (s *selfTest) tryKVM(ctx context.Context, found *choice, try func(context.Context, *choice) error) error {
	file, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	file.Close()
	verdict, text := s.verdict(found)
	if last, err := os.ReadFile(verdict); err == nil && string(last) == text {
		return errors.New("a guest did not come up with /dev/kvm since this machine has started")
	}
	with := *found
	with.accel = "kvm"
	program := found.qemu
	switch {
	case found.firecracker != nil:
		program = found.firecracker.Path
	case found.cloudHypervisor != nil:
		program = found.cloudHypervisor.Path
	}
	patience, work := probe.Effort(ctx, program, kvmPatience, s.work)
	patience, work = max(min(patience, mostKVMPatience), s.patience), max(work, s.patience)
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	limited, spent := context.WithCancelCause(limited)
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(limited, work, spent) })
	defer watching.Wait()
	defer spent(nil)
	if err = try(limited, &with); err == nil {
		return nil
	}
	if ctx.Err() == nil && limited.Err() != nil { // what fails at once may be tried again
		_ = os.WriteFile(verdict, []byte(text), 0o600)
	}
	switch {
	case errors.Is(context.Cause(limited), errSpent):
		err = fmt.Errorf("a guest did not come up with %s of a processor", work.Round(time.Second))
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("a guest did not come up within %s", patience.Round(time.Second))
	}
	return err
}

// errSpent ends a try that has used too much of processors.
var errSpent = errors.New("a guest has used too much of the processors")

// watch ends a try when tasks of self-tests have used so much of processors since it began: one of before may still be there.
func (s *selfTest) watch(ctx context.Context, most time.Duration, spent func(error)) {
	const every = 100 * time.Millisecond
	clock := time.NewTicker(every)
	defer clock.Stop()
	for before := s.used(); s.used()-before <= most; {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
	}
	spent(errSpent)
}

// verdict names the file that says that guests did not come up with KVM, and gives what is in it while that counts. Guests of the other
// monitors need more of a kernel (a virtio socket), so that theirs says nothing of QEMU, and does not count for another kernel or release.
func (s *selfTest) verdict(c *choice) (file, text string) {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	file, text = filepath.Join(s.dir, "check", "kvm-failed"), string(boot)
	if f := c.firecracker; f != nil {
		file, text = file+"-firecracker", fmt.Sprintln(text, f.Version, c.kernel.Digest)
	}
	if h := c.cloudHypervisor; h != nil {
		file, text = file+"-cloud-hypervisor", fmt.Sprintln(text, h.Version, c.kernel.Digest)
	}
	return file, text
}

// installed finds a program that was named, or one of those that it usually is, and says in the report what is missing.
func installed(r *runtime.Report, named, pkg string, names ...string) string {
	if named != "" {
		names = []string{named}
	}
	for _, n := range names {
		if p := monitor.LookPath(n); p != "" {
			return p
		}
	}
	r.Cause, r.Cure = filepath.Base(names[0])+" is not installed", "apt-get install "+pkg
	return ""
}

func causeAndCure(err error) (cause, cure string) {
	if se, ok := errors.AsType[*runtime.StartError](err); ok {
		return se.Err.Error(), se.Hint
	}
	return err.Error(), "look at the worker's log"
}

func version(ctx context.Context, path string) string {
	out, _ := exec.CommandContext(ctx, path, "--version").Output()
	line, _, _ := strings.Cut(string(out), " (")
	line, _, _ = strings.Cut(line, "\n")
	return strings.TrimSpace(line)
}
