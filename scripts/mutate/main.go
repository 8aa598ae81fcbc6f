// Mutate checks the tests: it makes small wrong changes, the patches in scripts/mutate/mutations, one at a time in a copy of the
// tree, and runs the tests that are expected to fail. A mutation that no test notices is a survivor, and fails the run. It never
// writes to the working tree. README.md beside it describes the patches and the output. Nothing imports it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// rest lists the packages that run when the named ones miss a mutation: the fast ones that need no machine, cheap ones first.
func rest() []string {
	return []string{
		".", "./spec", "./wire", "./view", "./decide/reconcile", "./decide/members", "./decide/evidence", "./decide/coord", "./decide/ipam", "./store/vault", "./internal/loop", "./internal/tier", "./internal/succession",
		"./link/...", "./root/...", "./cluster/...", "./decide/apps", "./auth", "./decide/lease", "./worker/core", "./worker", "./sim",
	}
}

func main() {
	run := flag.String("run", "", "run only mutations whose name matches this regular expression")
	all := flag.Bool("rest", true, "run the other fast packages when the named ones miss a mutation")
	flag.Parse()
	var then []string
	if *all {
		then = rest()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	bad, err := mutate(ctx, os.Stdout, ".", *run, then)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
	if bad > 0 {
		os.Exit(1)
	}
}

// mutate works through the mutations of the tree at top whose names match pattern, and returns how many were not killed by the
// packages that they name.
func mutate(ctx context.Context, out io.Writer, top, pattern string, rest []string) (bad int, err error) {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return 0, fmt.Errorf("-run: %w", err)
	}
	all, err := readAll(filepath.Join(top, dir))
	if err != nil {
		return 0, err
	}
	var list []*mutation
	for _, m := range all {
		if match.MatchString(m.name) {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		return 0, fmt.Errorf("no mutation in %s matches %q", dir, pattern)
	}
	tmp, err := os.MkdirTemp("", "skerry-mutate-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(tmp)
	l := &lab{tree: filepath.Join(tmp, "tree")}
	if err := copyTree(ctx, top, l.tree); err != nil {
		return 0, err
	}
	began := time.Now()
	passed, err := l.baseline(ctx, list)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(out, "the unmutated tree passes (%s)\n", since(began))
	for _, m := range list {
		if err := m.covered(passed); err != nil {
			return 0, err
		}
	}
	for _, m := range list {
		began := time.Now()
		verdict, killed, err := l.try(ctx, m, rest)
		if ctx.Err() != nil {
			return bad, ctx.Err()
		}
		if err != nil {
			verdict = "ERROR: " + err.Error()
		}
		if !killed {
			bad++
		}
		fmt.Fprintf(out, "%-40s %s (%s)\n", m.name, verdict, since(began))
		if !killed {
			fmt.Fprintf(out, "    %s\n", m.sentence)
		}
	}
	fmt.Fprintf(out, "%d killed, %d not (%s)\n", len(list)-bad, bad, since(began))
	return bad, nil
}

func since(t time.Time) string { return time.Since(t).Round(time.Second).String() }

// try applies a mutation and runs tests until one fails.
func (l *lab) try(ctx context.Context, m *mutation, rest []string) (verdict string, killed bool, err error) {
	undo, err := m.applyTo(l.tree)
	if err != nil {
		return "", false, err
	}
	defer undo()
	// What other packages no longer compile with shows in their tests, as an error, too.
	if text, err := l.goTool(ctx, "build", m.changedPackages()...); err != nil {
		return "", false, fmt.Errorf("does not compile: %s", strings.TrimSpace(text))
	}
	for _, pkg := range m.packages {
		r, err := l.test(ctx, []string{pkg}, m.run)
		if err != nil {
			return "", false, err
		}
		if r.failed != "" {
			return "killed by " + r.failed, true, nil
		}
	}
	if len(rest) == 0 {
		return "SURVIVED", false, nil
	}
	r, err := l.test(ctx, rest, "")
	if err != nil {
		return "", false, err
	}
	if r.failed == "" {
		return "SURVIVED", false, nil
	}
	// It may be a test that fails without the mutation, too.
	undo()
	pkg, test, _ := strings.Cut(r.failed, " ")
	again, err := l.test(ctx, []string{pkg}, "^"+regexp.QuoteMeta(test)+"$")
	if err != nil || again.failed != "" {
		return "SURVIVED; " + r.failed + " fails without it, too", false, err
	}
	return "MISSED by the packages that it names, killed by " + r.failed, false, nil
}
