package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		name, in string
		status   int
		last     string
		has      string
		failed   bool
	}{
		{"passes; subtests count and not their parents", `{"Action":"run","Package":"a","Test":"T"}
{"Action":"run","Package":"a","Test":"T/x"}
{"Action":"run","Package":"a","Test":"T/y"}
{"Action":"pass","Package":"a","Test":"T/x"}
{"Action":"output","Package":"a","Test":"T/y","Output":"    no kvm here\n"}
{"Action":"skip","Package":"a","Test":"T/y"}
{"Action":"pass","Package":"a","Test":"T"}
{"Action":"pass","Package":"a"}`, 0, "1 passed, 0 failed, 1 skipped", "a T/y: no kvm here", false},
		{"a failed subtest counts once", `{"Action":"run","Package":"a","Test":"T"}
{"Action":"run","Package":"a","Test":"T/x"}
{"Action":"output","Package":"a","Test":"T/x","Output":"    wrong\n"}
{"Action":"fail","Package":"a","Test":"T/x"}
{"Action":"fail","Package":"a","Test":"T"}
{"Action":"fail","Package":"a"}`, 1, "0 passed, 1 failed, 0 skipped", "wrong", true},
		{"the messages of a failed test are repeated at the end", `{"Action":"run","Package":"a","Test":"T"}
{"Action":"output","Package":"a","Test":"T","Output":"time=now level=INFO\n"}
{"Action":"output","Package":"a","Test":"T","Output":"    x_test.go:7: wrong:\n"}
{"Action":"output","Package":"a","Test":"T","Output":"        very\n"}
{"Action":"output","Package":"a","Test":"T","Output":"--- FAIL: T (0.00s)\n"}
{"Action":"fail","Package":"a","Test":"T"}
{"Action":"fail","Package":"a"}`, 1, "0 passed, 1 failed, 0 skipped", "== failed\na T\n  x_test.go:7: wrong: | very\n0 passed", true},
		{"a test that was cut off", `{"Action":"run","Package":"a","Test":"T"}
{"Action":"output","Package":"a","Test":"T","Output":"panic: timed out\n"}`, 2, "0 passed, 1 failed, 0 skipped", "== failed\na \n  unfinished: T\n  panic: timed out\n", true},
		{"tests that pass in a process that fails", `{"Action":"run","Package":"a","Test":"T"}
{"Action":"pass","Package":"a","Test":"T"}
{"Action":"pass","Package":"a"}
{"Action":"output","Package":"a","Output":"the tests left behind: a process\n"}`, 1, "1 passed, 1 failed, 0 skipped", "== failed\na \n  the tests left behind: a process", true},
		{"a test that passes and reports", `{"Action":"output","Package":"a","Test":"T","Output":"x_test.go:1: REPORT: seed 7\n"}
{"Action":"pass","Package":"a","Test":"T"}
{"Action":"pass","Package":"a"}`, 0, "1 passed, 0 failed, 0 skipped", "REPORT: seed 7", false},
		{"nothing at all", ``, 0, "0 passed, 1 failed, 0 skipped", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := end{job: job{binary: binary{pkg: "a"}, test: "-"}, sum: newSummary()}
			if err := e.sum.read(strings.NewReader(c.in), &e.out); err != nil {
				t.Fatal(err)
			}
			e.sum.end("a", c.status, &e.out)
			all := newTotals()
			var out strings.Builder
			all.add(&e, &out)
			if failed := all.report(&out, options{}, time.Second); failed != c.failed {
				t.Errorf("failed: %v, not %v", failed, c.failed)
			}
			if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); lines[len(lines)-1] != c.last || !strings.Contains(out.String(), c.has) {
				t.Errorf("the last line is not %q, or %q is missing:\n%s", c.last, c.has, out.String())
			}
		})
	}
}

// What ran replaces what was known of its package; what did not run stays.
func TestTimings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "timings.txt")
	known := map[testID]float64{{"a", "TestOld"}: 9, {"b", "-"}: 8}
	if err := writeTimings(file, known, map[testID]float64{{"a", "TestNew"}: 7, {"a", "TestQuick"}: 1}); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(file)
	if want := "a TestNew 7\nb - 8\n"; !strings.HasSuffix(string(text), want) {
		t.Errorf("%q does not end with %q", text, want)
	}
	again, err := readTimings(file)
	if err != nil || len(again) != 2 || again[testID{"a", "TestNew"}] != 7 {
		t.Errorf("read again: %v, %v", again, err)
	}
	if none, err := readTimings(filepath.Join(t.TempDir(), "missing")); err != nil || len(none) != 0 {
		t.Errorf("without a file: %v, %v", none, err)
	}
	if err := os.WriteFile(file, []byte("a b c\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readTimings(file); err == nil {
		t.Error("a broken file was accepted")
	}
}

// A whole run over a module of its own: what passes, what fails, what does not compile, and what is repeated.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":             "module " + module + "\n\ngo 1.26\n",
		"cmd/skerry/main.go": "package main\n\nfunc main() {}\n",
		"good/a_test.go":     "package good\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.Skip(\"not here\") }\n",
		"worker/a_test.go":   "package worker\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {}\nfunc TestTwo(t *testing.T) { t.Error(\"two is wrong\") }\n",
		"broken/a_test.go":   "package broken\n\nfunc Test(\n",
		"notes.md":           "before\n" + rowsMark + "\nafter\n",
		"timings.txt":        "worker TestOne 10\n",
		"leaks/main_test.go": "package leaks\n\nimport (\"flag\"; \"os\"; \"testing\")\n\nfunc TestMain(m *testing.M) {\n\tflag.Parse()\n\tcode := m.Run()\n\tif flag.Lookup(\"test.list\").Value.String() == \"\" {\n\t\tcode = 1\n\t}\n\tos.Exit(code)\n}\nfunc TestFine(t *testing.T) {}\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("SKERRY_TEST_BINARY", os.Getenv("SKERRY_TEST_BINARY")) // put back at the end
	o := options{packages: []string{"./..."}, timings: "timings.txt", jobs: 4, check: "sh -c 'exit 2'"}
	var out strings.Builder
	failed, err := run(t.Context(), o, &out)
	if err != nil || !failed {
		t.Errorf("failed: %v, %v", failed, err)
	}
	for _, want := range []string{"worker TestOne ", "two is wrong", "expected ')'", "broken \n  it could not be built", "good TestB: a_test.go:6: not here", "\n3 passed, 5 failed, 1 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
	out.Reset()
	o = options{packages: []string{"./good", "./worker"}, timings: "timings.txt", jobs: 4, repeat: 3, run: "^Test(A|Two)$", record: "notes.md"}
	if failed, err := run(t.Context(), o, &out); err != nil || !failed {
		t.Errorf("failed: %v, %v", failed, err)
	}
	for _, want := range []string{"good TestA | 3 of 3 |", "worker TestTwo | 0 of 3 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
	notes, _ := os.ReadFile("notes.md")
	if text := string(notes); !strings.HasPrefix(text, "before\n| unknown | good TestA | 3 of 3 |") || !strings.HasSuffix(text, "\n"+rowsMark+"\nafter\n") {
		t.Errorf("the document has become %q", text)
	}
}

// A run that is interrupted ends at once, whatever still waits to be run.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":             "module " + module + "\n\ngo 1.26\n",
		"cmd/skerry/main.go": "package main\n\nfunc main() {}\n",
		"good/a_test.go":     "package good\n\nimport (\"os\"; \"testing\"; \"time\")\n\nfunc TestA(t *testing.T) { os.WriteFile(\"../began\", nil, 0o600); time.Sleep(time.Minute) }\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("SKERRY_TEST_BINARY", os.Getenv("SKERRY_TEST_BINARY"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "began")); err == nil {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	var out strings.Builder
	if _, err := run(ctx, options{packages: []string{"./good"}, timings: "timings.txt", jobs: 4, repeat: 5}, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v:\n%s", err, out.String())
	}
}

// The tests run as the binary that take is called on, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "take" {
		if err := take(os.Args[2], os.Args[3]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// What a test that was cut off leaves ends: processes that carry its mark, also such as change their environment, and its files.
func TestSweep(t *testing.T) {
	dir, notes := t.TempDir(), t.TempDir()
	left := filepath.Join(dir, "skerry-test-1")
	if err := os.MkdirAll(filepath.Join(left, "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(notes, "1"), []byte(left), 0o644); err != nil {
		t.Fatal(err)
	}
	marked := exec.Command("sleep", "600")
	marked.Env = append(os.Environ(), "SKERRY_TEST_RUN="+left)
	named := exec.Command("sh", "-c", "sleep 600; true", left+"/files")
	named.Env = []string{}
	other := exec.Command("sleep", "600")
	for _, c := range []*exec.Cmd{marked, named, other} {
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }()
	}
	var child int // carries no mark of its own
	for child == 0 {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", named.Process.Pid))
		_, _ = fmt.Sscan(string(text), &child)
	}
	ended := make(chan error, 2)
	go func() { ended <- marked.Wait() }()
	go func() { ended <- named.Wait() }()
	sweep(notes)
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a process ended by itself")
		}
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("the files are still there")
	}
	if left := processes(left); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child)); len(args) > 0 { // one that nobody has waited for yet has none
		t.Errorf("process %d of the one that was named is left", child)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process that was not theirs: %v", err)
	}
	_ = other.Process.Kill()
	_ = other.Wait()
}

// Nothing else begins while the processors are busy with ordinary work; what runs with low priority does not count.
func TestLoad(t *testing.T) {
	if busy, _, total := processorTime(); busy <= 0 || total <= busy {
		t.Errorf("busy for %g of %g ticks", busy, total)
	}
	l := newLoad(longTest, false)
	if l.room(full) {
		t.Error("there is room before the load was looked at")
	}
	long := time.Now().Add(-time.Minute)
	l.began = long
	l.busy -= 1e9 // nothing else than ordinary work, for ever
	l.total -= 1e9
	if l.room(full) {
		t.Error("there is room on processors that are busy")
	}
	l.began = long
	l.total -= 1e9
	if !l.room(full) {
		t.Error("there is no room on processors that are idle")
	}
}

func TestLane(t *testing.T) {
	var l lane
	for _, s := range []float64{3, 9, 1, 9} {
		l.add(job{test: "-", seconds: s})
	}
	var got []float64
	for _, j := range l.queue {
		got = append(got, j.seconds)
	}
	if !slices.Equal(got, []float64{9, 9, 3, 1}) || !l.left() {
		t.Errorf("the longest do not begin first: %v", got)
	}
}
