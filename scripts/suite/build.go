package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const module = "skerry.dev/skerry"

// binary is a linked package of tests.
type binary struct {
	pkg  string // relative to the module; "." for its root
	dir  string // where its tests run
	file string
}

// take is run by go test in place of a test binary, and keeps it for later: go test builds the packages better than we could.
func take(to, file string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(strings.TrimPrefix(dir, "/"), "/", "~")
	return os.Link(file, filepath.Join(to, name))
}

// pure are packages that start no goroutine, and the simulator, which runs them by the thousand. The race detector has nothing to find
// there, and makes them up to ten times slower; make test-systems uses it nevertheless.
var pure = regexp.MustCompile(`^` + module +
	`/(decide/.*|cluster/.*|(root|worker)/core|bench/(published|report)|ctl/convert|internal/(archtest|sbom)|` +
	`scripts/(mutate|notices|typecheck)|sim)$`)

// part are packages that are built in the same way.
type part struct {
	packages []string
	race     bool
}

// parts splits the packages into those whose tests are built with the race detector and those that do without.
func (o options) parts(ctx context.Context) ([]part, error) {
	if !o.race || os.Getenv("SKERRY_SYSTEMS") != "" {
		return []part{{o.packages, o.race}}, nil
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, o.packages...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	list := []part{{race: true}, {}}
	for _, pkg := range strings.Fields(string(out)) {
		p := &list[0]
		if pure.MatchString(pkg) {
			p = &list[1]
		}
		p.packages = append(p.packages, pkg)
	}
	return slices.DeleteFunc(list, func(p part) bool { return len(p.packages) == 0 }), nil
}

// build compiles and links the tests of the packages, and hands each one over as soon as it is done. It returns those that could
// not be built; the compiler's messages go to w.
func (p part) build(ctx context.Context, to string, w io.Writer, each func(binary)) (failed []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// Without paths in them, what is compiled serves any checkout of the same sources. Without tables for debuggers, it is linked in half the time.
	args := []string{"test", "-json", "-trimpath", "-vet=off", "-count=1", "-ldflags=-s -w", "-exec", self + " take " + to}
	cgo := "CGO_ENABLED=0" // as in what is shipped
	if p.race {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	// With ordinary priority: what is linked late begins late.
	cmd := exec.CommandContext(ctx, "go", append(args, p.packages...)...)
	cmd.Env = append(os.Environ(), cgo, "GOGC=400") // a compiler's life is short: collecting less saves a sixth of its time
	cmd.Stderr = w
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	top, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	in := bufio.NewScanner(out)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Fprintln(w, in.Text())
			continue
		}
		switch {
		case e.Action == "build-output":
			fmt.Fprint(w, e.Output)
		case e.Action == "fail":
			failed = append(failed, e.Package)
		case e.Action == "pass" && e.Test == "":
			b := binary{pkg: strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/")}
			b.dir = filepath.Join(top, b.pkg)
			if b.pkg == "" {
				b.pkg = "."
			}
			b.file = filepath.Join(to, strings.ReplaceAll(strings.TrimPrefix(b.dir, "/"), "/", "~"))
			each(b)
		}
	}
	if err := cmd.Wait(); err != nil && len(failed) == 0 && ctx.Err() == nil {
		failed = p.packages // such as a pattern that matches nothing
	}
	return failed, in.Err()
}

// tests lists the top-level tests, examples and fuzz targets of a binary that a pattern matches.
func (b binary) tests(ctx context.Context, pattern string) ([]string, error) {
	if pattern == "" {
		pattern = "."
	}
	cmd := exec.CommandContext(ctx, b.file, "-test.list", pattern)
	cmd.Dir = b.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", b.pkg, err)
	}
	var list []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Test") || strings.HasPrefix(line, "Fuzz") || strings.HasPrefix(line, "Example") {
			list = append(list, line)
		}
	}
	return list, nil
}
