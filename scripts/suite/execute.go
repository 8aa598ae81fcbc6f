package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// apart are the packages whose tests are whole systems, processes, machines or devices: each test has a process of its own.
var apart = regexp.MustCompile(`^(bench|cmd|e2e|lab|overlay|plugin|runtime|web|worker)(/|$)`)

// waits are the packages whose tests wait for real clocks most of the time. All others compute.
var waits = regexp.MustCompile(apart.String() + `|^(api|artifact|auth|ctl|link|store/journal|internal/(succession|tier))(/|$)`)

// job is a process of tests, or the checks.
type job struct {
	binary
	test    string  // the only one that runs; "-": all
	tests   string  // a pattern of those that run; empty: all
	seconds float64 // what it took last time
	checks  bool
}

// runLow runs a command with low priority, and all that it starts. Kernels that share processors among sessions first, and then
// among what is in them (autogroup), would give a nice process in the session of the tests as much as a virtual machine in one of its own.
func runLow(cmd *exec.Cmd) error {
	const nice = 10
	cmd.Args = append([]string{"nice", "-n", fmt.Sprint(nice), cmd.Path}, cmd.Args[1:]...)
	path, err := exec.LookPath("nice")
	if err != nil {
		return err
	}
	cmd.Path, cmd.SysProcAttr = path, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(fmt.Sprint(nice)), 0)
	return cmd.Wait()
}

// executor runs jobs side by side.
type executor struct {
	o      options
	dir    string
	known  map[testID]float64
	w      io.Writer
	began  time.Time
	total  *totals
	toJSON string // cmd/test2json
}

// prepare builds what every process of tests needs.
func (x *executor) prepare(ctx context.Context) error {
	x.toJSON = filepath.Join(x.dir, "test2json")
	skerry := filepath.Join(x.dir, "bin", "skerry")
	if err := os.Mkdir(filepath.Dir(skerry), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(x.dir, 0o755); err != nil { // processes of other users run the program
		return err
	}
	for _, args := range [][]string{{"-o", x.toJSON, "cmd/test2json"}, {"-trimpath", "-ldflags=-s -w", "-o", skerry, "./cmd/skerry"}} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
	}
	programs := filepath.Join(x.dir, "programs")
	// Linked once for all tests that start them.
	return errors.Join(os.Mkdir(programs, 0o755), os.Setenv("SKERRY_TEST_BINARY", skerry), os.Setenv("SKERRY_TEST_PROGRAMS", programs))
}

// end is what came of a job.
type end struct {
	job
	sum *summary
	out bytes.Buffer
	timing
}

// all builds and runs everything.
func (x *executor) all(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts, err := x.o.parts(ctx)
	if err != nil {
		return err
	}
	built, ended := make(chan []job), make(chan end)
	var failed []string
	var buildErr error
	go func() {
		defer close(built)
		to := filepath.Join(x.dir, "tests")
		if buildErr = os.Mkdir(to, 0o755); buildErr != nil {
			return
		}
		var list sync.WaitGroup
		each := func(b binary) { list.Go(func() { built <- x.jobs(ctx, b) }) }
		for _, p := range parts {
			f, err := p.build(ctx, to, x.w, each)
			failed, buildErr = append(failed, f...), errors.Join(buildErr, err)
		}
		list.Wait()
	}()
	// What waits begins whenever the processors have room. What computes takes what is left, with low priority.
	var waiting, computing lane
	clock := time.NewTicker(sampleEvery)
	defer clock.Stop()
	load := newLoad(0, false)
	start := func(l *lane) {
		j := l.queue[0]
		l.queue = l.queue[1:]
		l.running++
		go func() { ended <- x.execute(ctx, j) }()
	}
	for building := true; building || waiting.left() || computing.left(); {
		switch {
		case ctx.Err() != nil:
			waiting.queue, computing.queue = nil, nil
		case x.o.repeat > 0: // one at a time
			for _, l := range []*lane{&waiting, &computing} {
				if !building && waiting.running+computing.running == 0 && len(l.queue) > 0 {
					start(l)
				}
			}
		default:
			for len(computing.queue) > 0 && computing.running < runtime.NumCPU() {
				start(&computing)
			}
			if len(waiting.queue) == 0 {
				break
			}
			most, share, atLast := x.room(waiting.queue[0]), full, !building && !computing.left()
			if atLast {
				most, share = moreAtLast*most, fullAtLast
			}
			if waiting.running < most && (waiting.running == 0 || load.room(share)) {
				load = newLoad(waiting.queue[0].seconds, atLast) // what has just begun shows only after a while
				start(&waiting)
			}
		}
		select {
		case list, ok := <-built:
			if building = ok; !ok {
				built = nil
				if x.o.check != "" { // they compile what the tests need, too
					list = []job{{binary: binary{pkg: "checks"}, test: "-", checks: true, seconds: x.seconds("checks", "-")}}
				}
			}
			for _, j := range list {
				if waits.MatchString(j.pkg) {
					waiting.add(j)
				} else {
					computing.add(j)
				}
			}
		case e := <-ended:
			if waits.MatchString(e.pkg) {
				waiting.running--
			} else {
				computing.running--
			}
			x.total.add(&e, x.w)
		case <-clock.C:
		}
		if ctx.Err() != nil && !building && waiting.running+computing.running == 0 {
			break
		}
	}
	for _, pkg := range failed {
		x.total.fail(testID{strings.TrimPrefix(pkg, module+"/"), ""}, "it could not be built; see above")
	}
	return errors.Join(buildErr, ctx.Err())
}

// room is how many tests that wait may run beside each other if this one is the next. Short ones hardly compute.
func (x *executor) room(next job) int {
	if next.seconds < longTest {
		return x.o.jobs + 1
	}
	return x.o.jobs
}

// seconds is what a process took last time.
func (x *executor) seconds(pkg, test string) float64 {
	if s, ok := x.known[testID{pkg, test}]; ok {
		return s
	}
	return leastSeconds
}

// jobs makes the processes of a package.
func (x *executor) jobs(ctx context.Context, b binary) []job {
	tests, err := b.tests(ctx, x.o.run)
	if err != nil {
		x.total.fail(testID{b.pkg, ""}, err.Error())
		return nil
	}
	var list []job
	switch {
	case len(tests) == 0:
	case x.o.repeat > 0:
		for range x.o.repeat {
			for _, t := range tests {
				list = append(list, job{binary: b, test: t, tests: t, seconds: x.seconds(b.pkg, t)})
			}
		}
	case apart.MatchString(b.pkg):
		// Those that take no time share a process.
		rest := []string{}
		for _, t := range tests {
			if _, ok := x.known[testID{b.pkg, t}]; ok {
				list = append(list, job{binary: b, test: t, tests: t, seconds: x.seconds(b.pkg, t)})
			} else {
				rest = append(rest, t)
			}
		}
		if len(rest) > 0 {
			list = append(list, job{binary: b, test: "-", tests: strings.Join(rest, "|"), seconds: x.seconds(b.pkg, "-")})
		}
	default:
		list = append(list, job{binary: b, test: "-", tests: strings.Join(tests, "|"), seconds: x.seconds(b.pkg, "-")})
	}
	return list
}

// limit is how long a process may take.
func (j *job) limit() time.Duration {
	switch {
	case os.Getenv("SKERRY_SYSTEMS") != "":
		return 3 * time.Hour
	case waits.MatchString(j.pkg):
		return 15 * time.Minute // what hangs is to be known before everything else has ended
	}
	return 30 * time.Minute // what has low priority waits for all others
}

// execute runs a job.
func (x *executor) execute(ctx context.Context, j job) (e end) {
	e.job, e.sum = j, newSummary()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, j.limit()+time.Minute)
	defer cancel()
	argv := []string{j.file, "-test.paniconexit0", "-test.v=test2json", "-test.timeout=" + j.limit().String(), "-test.run=^(" + j.tests + ")$"}
	if j.checks {
		argv = []string{"sh", "-c", "exec " + x.o.check}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = j.dir
	notes, err := os.MkdirTemp(x.dir, "notes-")
	if err != nil {
		e.sum.failed++
		fmt.Fprintln(&e.out, err)
		return e
	}
	defer sweep(notes)
	// Collecting less saves a twentieth of a test's time. The race detector has each process wait at its end for what still runs in it, by
	// default for a second, and the tests start processes by the thousand.
	cmd.Env = append(os.Environ(), "PWD="+j.dir, notesVar+"="+notes, "GOGC=200", "GORACE=atexit_sleep_ms=50")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if j.checks {
		cmd.Dir = ""
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		cmd.Stdout, cmd.Stderr = &e.out, &e.out
		err := runLow(cmd)
		e.sum.failed = status(err)
		if e.sum.failed > 0 {
			e.sum.failures = append(e.sum.failures, failure{testID: testID{"checks", ""}})
		}
		e.timing = took(cmd, began)
		return e
	}
	conv := exec.Command(x.toJSON, "-t", "-p", j.pkg)
	var events bytes.Buffer
	conv.Stdout, conv.Stderr = &events, &events
	in, err := conv.StdinPipe()
	if err == nil {
		err = conv.Start()
	}
	if err == nil {
		cmd.Stdout, cmd.Stderr = in, in
		if waits.MatchString(j.pkg) {
			err = cmd.Run()
		} else {
			err = runLow(cmd)
		}
		_ = in.Close()
		err = errors.Join(err, conv.Wait())
	}
	if readErr := e.sum.read(&events, &e.out); readErr != nil {
		err = errors.Join(err, readErr)
	}
	if err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(&e.out, err)
	}
	e.sum.end(j.pkg, status(err), &e.out)
	e.timing = took(cmd, began)
	return e
}

// status gives the exit status of a command; 1 for any other error.
func status(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	return 1
}

func took(cmd *exec.Cmd, began time.Time) timing {
	t := timing{seconds: max(time.Since(began).Seconds(), 0.001)}
	if s := cmd.ProcessState; s != nil {
		t.cores = (s.UserTime() + s.SystemTime()).Seconds() / t.seconds
	}
	return t
}
