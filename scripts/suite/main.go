// Suite builds and runs the tests of the module, and prints one line per process, the output of what failed or has something to
// report, the slowest tests and packages, and a summary as its last line: "N passed, N failed, N skipped". It exits with 1 when
// something failed. Nothing is run twice.
//
// It differs from `go test ./...` in two ways. Tests of whole systems mostly wait, so each of them has a process of its own, and
// another one begins whenever the processors have room, the longest first by timings.txt; what computes fills the rest with low
// priority. And a test starts as soon as its package is linked.
//
// With -n it repeats the tests that -run names, one at a time beside a load on every processor, and prints how often each failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

type options struct {
	packages []string
	race     bool
	run      string
	check    string // a command that runs beside the tests, whose failures count
	timings  string // the file of what tests took
	update   bool   // rewrite it
	repeat   int
	load     bool
	record   string // a document that gets the results of repeated tests
	jobs     int
}

func main() {
	if len(os.Args) > 3 && os.Args[1] == "take" {
		if err := take(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, "suite:", err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.BoolVar(&o.race, "race", true, "build with the race detector")
	flag.StringVar(&o.run, "run", "", "run the top-level tests that this regular expression matches")
	flag.StringVar(&o.check, "check", "", "a command to run beside the tests; its exit status is the number of failed checks")
	flag.StringVar(&o.timings, "timings", "scripts/suite/timings.txt", "the file of what tests took, by which the longest begin first")
	flag.BoolVar(&o.update, "update", false, "rewrite that file")
	flag.IntVar(&o.repeat, "n", 0, "repeat each test so often, alone, and print how often it failed")
	flag.BoolVar(&o.load, "load", false, "with -n: keep every processor busy by stress-ng meanwhile")
	flag.StringVar(&o.record, "record", "", "with -n: a document that gets the results as rows of a table")
	flag.IntVar(&o.jobs, "j", runtime.NumCPU()+1, "how many tests that wait run at the same time at most")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = []string{"./..."}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// run does all that main does but for the flags.
func run(ctx context.Context, o options, w io.Writer) (failed bool, err error) {
	dir, err := os.MkdirTemp("", "suite-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	known, err := readTimings(o.timings)
	if err != nil {
		return false, err
	}
	x := &executor{o: o, dir: dir, known: known, w: w, began: time.Now(), total: newTotals()}
	if err := x.prepare(ctx); err != nil {
		return false, err
	}
	if o.load {
		end, err := burn()
		if err != nil {
			return false, err
		}
		defer end()
	}
	ordinaryBefore, lowBefore, before := processorTime()
	if err := x.all(ctx); err != nil {
		return false, err
	}
	if ordinary, low, total := processorTime(); total > before {
		fmt.Fprintf(w, "the processors were busy for %.0f %% of the time\n", 100*(ordinary+low-ordinaryBefore-lowBefore)/(total-before))
	}
	if o.update {
		if err := x.total.write(o.timings, known); err != nil {
			return false, err
		}
	}
	return x.total.report(w, o, time.Since(x.began)), nil
}

// burn keeps every processor busy until end is called.
func burn() (end func(), err error) {
	cmd := exec.Command("stress-ng", "--cpu", fmt.Sprint(runtime.NumCPU()), "--quiet")
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("the load beside the tests: %w; apt-get install stress-ng", err)
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}, nil
}
