package profile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/oci"
	"skerry.dev/skerry/spec"
)

// The same work is done in each runtime, with the same answer, and its processor time is told apart from that of starting it.
func TestTake(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	testenv.Build(t, program, "./testdata/work")
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) { // tasks are other users
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d, err := oci.New(oci.Options{Dir: filepath.Join(dir, "oci"), CgroupParent: "skerry-test-profile"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	defer func() {
		if err := d.CleanUp(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if r := d.Check(t.Context()); !r.Passed {
		t.Skip(&runtime.Unsupported{Driver: spec.RuntimeOCI, Reason: r.Cause})
	}
	o := Options{Drivers: []runtime.Driver{d}, Program: program, Dir: dir, Rounds: 1}
	p, reasons, err := Take(t.Context(), o)
	if err != nil || len(reasons) > 0 || len(p) != 1 || p[spec.RuntimeOCI].CPU != 1 || p[spec.RuntimeOCI].At.IsZero() {
		t.Fatal(p, reasons, err)
	}
	// One round has no spread; a processor is given at most, but for what its counters round.
	if one := p[spec.RuntimeOCI]; !one.Valid() || one.Rate <= 0 || one.Spread != 0 || !(one.Share > 0 && one.Share < 1.5) {
		t.Errorf("%+v", one)
	}
	if left, err := d.List(t.Context()); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	o.Drivers = nil
	if _, _, err := Take(t.Context(), o); err == nil || !strings.Contains(err.Error(), "compares with containers") {
		t.Error(err)
	}
}

// What needs libraries is refused with what it needs and what helps, and not only when it does not start.
func TestCheckStatic(t *testing.T) {
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	var refused *skerry.Error
	if err := CheckStatic(shell); !errors.As(err, &refused) || refused.Code != skerry.CodeUnsupported || !strings.Contains(err.Error(), "libc.") || !strings.Contains(refused.Hint, "CGO_ENABLED=0") {
		t.Error(err)
	}
	if err := CheckStatic("profile_linux_test.go"); err == nil {
		t.Error(err)
	}
}

func TestWork(t *testing.T) {
	var a, b strings.Builder
	for _, out := range []*strings.Builder{&a, &b} {
		if err := work(50, out); err != nil {
			t.Fatal(err)
		}
	}
	end := func(s string) string { return s[max(0, strings.LastIndex(s, "done ")):] } // after the time that it took
	if end(a.String()) != end(b.String()) || !strings.HasPrefix(a.String(), "ready\ntook ") || !strings.HasPrefix(end(a.String()), "done 50 ") {
		t.Errorf("%q, %q", a.String(), b.String())
	}
	a.Reset()
	if err := work(51, &a); err != nil || end(a.String()) == end(b.String()) {
		t.Errorf("%q, %v", a.String(), err)
	}
}
