package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// patience is how long the tests of one package may take.
const patience = "5m"

// lab is the copy of the tree in which mutations are tried.
type lab struct{ tree string }

// copyTree copies what git tracks and what it would, with uncommitted changes.
func copyTree(ctx context.Context, from, to string) error {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = from
	list, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // what is deleted and not committed yet is left out
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm()|0o200)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}

// goTool runs the go command in the copy and returns what it printed. Builds are trimmed of paths, so that the cache knows the
// packages of the working tree and of earlier copies. The seeds of the simulator are fixed: what kills a mutation does so each time.
func (l *lab) goTool(ctx context.Context, verb string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{verb, "-trimpath"}, args...)...)
	cmd.Dir = l.tree
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "SKERRY_SIM_SEED=1", "SKERRY_SIM_SEEDS=100")
	// Ctrl-C reaches this process alone, which then ends the whole group: go and the tests that it started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// result is what came of tests.
type result struct {
	failed string              // the first that failed, "PKG TestName"; empty: none
	passed map[string][]string // by package as in the import path: tests that ran and passed
	output map[string]string   // by "PKG TestName"
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
}

// test runs tests of packages. An error means that they could not be run at all.
func (l *lab) test(ctx context.Context, packages []string, run string) (*result, error) {
	args := []string{"-json", "-count=1", "-failfast", "-vet=off", "-timeout=" + patience}
	if run != "" {
		args = append(args, "-run="+run)
	}
	text, err := l.goTool(ctx, "test", append(args, packages...)...)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r := &result{passed: map[string][]string{}, output: map[string]string{}}
	module := ""
	if mod, err := os.ReadFile(filepath.Join(l.tree, "go.mod")); err == nil {
		line, _, _ := strings.Cut(string(mod), "\n")
		module = strings.TrimSpace(strings.TrimPrefix(line, "module"))
	}
	var other strings.Builder
	for _, line := range strings.Split(text, "\n") {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			other.WriteString(line + "\n")
			continue
		}
		pkg := "." + strings.TrimPrefix(e.Package, module)
		name := strings.TrimSpace(pkg + " " + e.Test)
		switch {
		case e.Action == "build-output":
			other.WriteString(e.Output)
		case e.Action == "build-fail" || e.FailedBuild != "":
			return nil, fmt.Errorf("the tests do not compile: %s", strings.TrimSpace(other.String()))
		case e.Action == "output":
			r.output[name] += e.Output
		case e.Action == "fail" && r.failed == "":
			r.failed = name
		case e.Action == "pass" && e.Test != "":
			r.passed[pkg] = append(r.passed[pkg], e.Test)
		}
	}
	if err != nil && r.failed == "" {
		return nil, fmt.Errorf("go test: %w: %s", err, strings.TrimSpace(other.String()))
	}
	return r, nil
}

// baseline runs, without a mutation, every test that is expected to notice one: what fails by itself proves nothing.
func (l *lab) baseline(ctx context.Context, list []*mutation) (passed map[string][]string, err error) {
	runs := map[string][]string{}
	var order []string
	for _, m := range list {
		for _, pkg := range m.packages {
			if runs[pkg] == nil {
				order = append(order, pkg)
			}
			runs[pkg] = append(runs[pkg], m.run)
		}
	}
	passed = map[string][]string{}
	for _, pkg := range order {
		run := strings.Join(runs[pkg], "|")
		if slices.Contains(runs[pkg], "") {
			run = ""
		}
		r, err := l.test(ctx, []string{pkg}, run)
		if err != nil {
			return nil, err
		}
		if r.failed != "" {
			return nil, fmt.Errorf("%s fails without any mutation:\n%s", r.failed, r.output[r.failed])
		}
		for p, tests := range r.passed {
			passed[p] = append(passed[p], tests...)
		}
	}
	return passed, nil
}

// covered reports an error unless each package that a mutation names has a test that it means, and that was not skipped.
func (m *mutation) covered(passed map[string][]string) error {
	first, _, _ := strings.Cut(m.run, "/") // of a subtest, the whole
	match, err := regexp.Compile(first)
	if err != nil {
		return fmt.Errorf("%s: run: %w", m.name, err)
	}
	for _, pkg := range m.packages {
		if !slices.ContainsFunc(passed[pkg], func(t string) bool {
			top, _, _ := strings.Cut(t, "/")
			return match.MatchString(top)
		}) {
			return fmt.Errorf("%s: no test of %s matches %q and runs here", m.name, pkg, m.run)
		}
	}
	return nil
}
