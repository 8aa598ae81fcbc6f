package quiet

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stranger starts a process that is no child of this one: a shell that does what it is told. It gives its PID.
func stranger(t *testing.T) (pid int, tell func(string)) {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	// The outer shell ends at once, so that the inner one is adopted.
	cmd := exec.Command("/bin/sh", "-c", `/bin/sh <&3 >/dev/null 2>&1 & echo $!`)
	cmd.ExtraFiles = []*os.File{in}
	text, err := cmd.Output()
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid, func(line string) {
		if _, err := out.WriteString(line + "\n"); err != nil {
			t.Error(err)
		}
	}
}

// alone gives a Watch of a machine that has this process, its children and some strangers with theirs, whoever else uses the real one. Two
// ticks of a stranger are too much: a busy machine gives it few.
func alone(o Options, strangers ...int) (w *Watch, said chan string) {
	said = make(chan string, 100)
	w = New(o, func(text string) { said <- text })
	w.span, w.limit, w.background = 500*time.Millisecond, 0.03, 0
	w.look = func() (moment, error) {
		m, err := lookAt("/proc")
		here := m.below(append(slices.Clone(strangers), os.Getpid()))
		m.busy, m.stolen, m.stalled = 0, 0, 0
		above := m.above(os.Getpid())
		for pid, p := range m.processes {
			switch {
			case here[p.id]:
				m.busy += p.used + p.reaped
			case !above[p.id]:
				delete(m.processes, pid)
			}
		}
		return m, err
	}
	return w, said
}

const spin = "while :; do :; done"

// A real process that computes has it wait, and it goes on when that has ended.
func TestWaitsForOthers(t *testing.T) {
	pid, tell := stranger(t)
	tell(spin)
	var w *Watch
	var ready chan error
	for text := ""; text == ""; { // a busy machine may give him nothing for a while
		var said chan string
		w, said = alone(Options{}, pid)
		ready = make(chan error, 1)
		go func() { ready <- w.Begin(t.Context()) }()
		select {
		case text = <-said:
			if !strings.HasPrefix(text, "waiting until the machine is quiet, for ") || !strings.Contains(text, "sh (") {
				t.Errorf("it says %q", text)
			}
		case err := <-ready:
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	r := w.Record()
	if r.Waited <= 0 || r.NotQuiet != "" || len(r.For) == 0 || r.For[0].Name != "sh" {
		t.Errorf("the record is %+v", r)
	}
	if text := strings.Join(r.Remarks(), "\n"); !strings.Contains(text, "until the machine was quiet, for sh (") {
		t.Errorf("it remarks %q", text)
	}
}

// Work of the benchmark's own, and of its children, is nobody else's.
func TestOwnWork(t *testing.T) {
	w, said := alone(Options{})
	child := exec.Command("/bin/sh", "-c", spin)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	if err := w.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if by, err := w.Round(t.Context()); by != "" || err != nil {
		t.Errorf("a round is disturbed by %q, %v", by, err)
	}
	if r := w.Record(); r.Waited != 0 || len(said) > 0 {
		t.Errorf("the record is %+v, %d said", r, len(said))
	}
}

// Who comes in a round marks it, whether he stays or has gone when it ends.
func TestDisturbedRound(t *testing.T) {
	pid, tell := stranger(t)
	w, said := alone(Options{}, pid)
	if err := w.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if by, err := w.Round(t.Context()); by != "" || err != nil {
		t.Fatalf("a quiet round is disturbed by %q, %v", by, err)
	}
	// A child of his computes, ends, and is waited for before the round ends.
	ended := fifo(t)
	tell("/bin/sh -c 'i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done'; echo >" + ended)
	waitFor(t, ended)
	if by, err := w.Round(t.Context()); !strings.Contains(by, "others used") || err != nil {
		t.Errorf("a round in which another came and went is disturbed by %q, %v", by, err)
	}
	if by, err := w.Round(t.Context()); by != "" || err != nil {
		t.Errorf("a quiet round is disturbed by %q, %v", by, err)
	}
	tell(spin)
	type result struct {
		by  string
		err error
	}
	done := make(chan result)
	go func() {
		by, err := w.Round(t.Context())
		for by == "" && err == nil { // he may not have begun
			by, err = w.Round(t.Context())
		}
		done <- result{by, err}
	}()
	select {
	case <-said:
	case r := <-done:
		t.Fatalf("it did not pause: %+v", r)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := <-done; !strings.Contains(r.by, "sh (") || r.err != nil {
		t.Errorf("a round in which another came and stayed is disturbed by %+v", r)
	}
}

// Who does not care is not made to wait, nor are his rounds marked; the record says so.
func TestNoWait(t *testing.T) {
	pid, tell := stranger(t)
	tell(spin)
	for _, c := range []struct {
		o    Options
		word string
	}{{Options{NoWait: true}, "(--no-wait)"}, {Options{MaxWait: time.Millisecond}, "(--max-wait); others used"}} {
		w, _ := alone(c.o, pid)
		for w.Record().NotQuiet == "" { // a busy machine may give him nothing for a while
			if err := w.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if by, err := w.Round(t.Context()); by != "" || err != nil {
			t.Errorf("%+v: a round is disturbed by %q, %v", c.o, by, err)
		}
		r := w.Record()
		if !strings.Contains(r.NotQuiet, c.word) || !strings.HasPrefix(r.Remarks()[0], "Not in quiet: ") {
			t.Errorf("%+v: the record is %+v", c.o, r)
		}
	}
}

// A wait ends with its context.
func TestWaitIsInterrupted(t *testing.T) {
	pid, tell := stranger(t)
	tell(spin)
	w, said := alone(Options{}, pid)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-said
		cancel()
	}()
	var err error
	for err == nil { // a busy machine may give him nothing for a while
		err = w.Begin(ctx)
	}
	if err != context.Canceled {
		t.Errorf("it ended with %v", err)
	}
}

// The real machine has this process in it, and its time.
func TestLook(t *testing.T) {
	a, err := lookAt("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for b := a; ; {
		if b, err = lookAt("/proc"); err != nil {
			t.Fatal(err)
		}
		used, by := spent(&a, &b, b.below([]int{os.Getpid()}), func(id) bool { return true })
		if used >= 100*time.Millisecond {
			if b.busy <= a.busy || len(by) == 0 {
				t.Errorf("this process used %v of %v, by %v", used, b.busy-a.busy, by)
			}
			return
		}
	}
}

func fifo(t *testing.T) string {
	name := t.TempDir() + "/fifo"
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func waitFor(t *testing.T, name string) {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := bufio.NewReader(f).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}
