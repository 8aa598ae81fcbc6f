package report

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/quiet"
)

// Saved is how a command waits for a quiet machine, writes its reports, keeps them while it measures, and goes on from
// one: the flags --no-wait, --max-wait, -o, --out and, with Read, --resume.
type Saved[R any] struct {
	Ways map[string]func(*R, io.Writer) error // by the word for -o; one is "table", and "json" is what files have
	Read func(io.Reader) (*R, error)          // nil: it does not go on from reports
	// Drawings gives the plots of a report as SVG, by name, and SVG the name of the flag for them, beside --png; nil: there are none.
	Drawings func(*R) map[string]string
	SVG      string

	output, file, from string
	plots              Plots
	quiet              quiet.Options
}

// Saves is that of reports.
func Saves() *Saved[Report] {
	return &Saved[Report]{Ways: Ways(), Drawings: (*Report).Drawings, SVG: "svg"}
}

// Ways are those to write a report, by the word for -o.
func Ways() map[string]func(*Report, io.Writer) error {
	return map[string]func(*Report, io.Writer) error{"table": (*Report).WriteTable, "markdown": (*Report).WriteMarkdown,
		"json": (*Report).WriteJSON, "csv": (*Report).WriteCSV, "html": (*Report).WriteHTML}
}

// Add adds the flags; each is what a report is kept after.
func (s *Saved[R]) Add(fs *pflag.FlagSet, each string) {
	fs.StringVarP(&s.output, "output", "o", "table", s.words())
	fs.StringVar(&s.file, "out", "", "file for the report as JSON, saved after each "+each)
	if s.Read != nil {
		fs.StringVar(&s.from, "resume", "", "report to continue from")
	}
	if s.Drawings != nil {
		s.plots.Add(fs, s.SVG)
	}
	s.quiet.Add(fs)
}

// words lists the ways to write, the table first and the page last.
func (s *Saved[R]) words() string {
	order := []string{"table", "markdown", "json", "csv", "html"}
	list := slices.SortedFunc(maps.Keys(s.Ways), func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// Check refuses a word for -o that is not known, waits that cannot be, and plots that cannot be written, before anything is measured.
func (s *Saved[R]) Check() error {
	if s.Ways[s.output] == nil {
		return skerry.Errorf(skerry.CodeInvalid, "--output %q is not known", s.output).WithHint("use %s", s.words())
	}
	if err := s.quiet.Check(); err != nil {
		return err
	}
	return s.plots.Check()
}

// Measuring is what a run of a benchmark is given beside its own options.
type Measuring[R any] struct {
	Resume   *R             // the report to go on from; nil: none
	Keep     func(*R) error // keeps one; nil: nobody wants it
	Progress func(string)   // tells what is being done, on the command's standard error
	Quiet    *quiet.Watch   // to begin with where it is ready to measure, and to end each round with
}

// Run measures until Ctrl-C or SIGTERM, keeps the report if that is asked for, and writes it as it is asked for. What
// follows with the report before that may refuse it, or do more with it; it is given the context of the measurement,
// which has ended if that was interrupted. Nil: nothing.
func (s *Saved[R]) Run(cmd *cobra.Command, measure func(context.Context, Measuring[R]) (*R, error),
	follows func(context.Context, *R) error) error {
	resume, keep, err := s.before()
	if err != nil {
		return err
	}
	ctx, stop := Interruptible(cmd.Context())
	defer stop()
	say := func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }
	r, err := measure(ctx, Measuring[R]{resume, keep, say, quiet.New(s.quiet, say)})
	if err != nil {
		return err
	}
	if keep != nil {
		if err := keep(r); err != nil {
			return err
		}
	}
	if follows != nil {
		if err := follows(ctx, r); err != nil {
			return err
		}
	}
	return s.Write(ctx, r, cmd.OutOrStdout())
}

// before gives the report to go on from, or nil, and what keeps one, or nil.
func (s *Saved[R]) before() (resume *R, keep func(*R) error, err error) {
	if s.from != "" {
		if resume, err = s.Load(s.from); err != nil {
			return nil, nil, err
		}
	}
	if s.file != "" {
		keep = s.keep
	}
	return resume, keep, nil
}

func (s *Saved[R]) keep(r *R) error {
	return ReplaceFile(s.file, func(w io.Writer) error { return s.Ways["json"](r, w) })
}

// Load reads a report from a file.
func (s *Saved[R]) Load(name string) (*R, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := s.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// Write writes a report as it is asked for, and its plots.
func (s *Saved[R]) Write(ctx context.Context, r *R, w io.Writer) error {
	if err := s.Ways[s.output](r, w); err != nil || s.Drawings == nil {
		return err
	}
	return s.plots.Write(context.WithoutCancel(ctx), s.Drawings(r)) // of what was interrupted, too
}

// Interruptible ends with Ctrl-C or SIGTERM, so that a benchmark cleans up after itself; further signals are without
// effect until stop is called: timeout(1) sends two.
func Interruptible(ctx context.Context) (_ context.Context, stop func()) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}
