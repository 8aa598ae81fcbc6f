package report

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/bench/quiet"
)

// Saved is how a command waits for a quiet machine, writes its report, keeps it while it measures, and continues one: the
// flags --no-wait, --max-wait, -o, --out, --svg, --png and, where it Resumes, --resume.
type Saved struct {
	Resumes bool

	output     Output
	file, from string
	quiet      quiet.Options
}

// Output is how a report is written: the flags -o, --svg and --png.
type Output struct {
	form  string
	plots Plots
}

const forms = "table, markdown, json, csv or html"

// ways are those to write a report, by the word for -o.
func ways() map[string]func(*Report, io.Writer) error {
	return map[string]func(*Report, io.Writer) error{"table": (*Report).WriteTable, "markdown": (*Report).WriteMarkdown,
		"json": (*Report).WriteJSON, "csv": (*Report).WriteCSV, "html": (*Report).WriteHTML}
}

// Add adds the flags.
func (o *Output) Add(fs *pflag.FlagSet) {
	fs.StringVarP(&o.form, "output", "o", "table", forms)
	o.plots.Add(fs)
}

// Check refuses a word for -o that is not known, and plots that cannot be written.
func (o *Output) Check() error {
	if ways()[o.form] == nil {
		return skerry.Errorf(skerry.CodeInvalid, "--output %q is not known", o.form).WithHint("use %s", forms)
	}
	return o.plots.Check()
}

// Write writes a report and its plots.
func (o *Output) Write(ctx context.Context, r *Report, w io.Writer) error {
	if err := ways()[o.form](r, w); err != nil {
		return err
	}
	return o.plots.Write(ctx, r.Drawings())
}

// Add adds the flags; each is what a report is kept after.
func (s *Saved) Add(fs *pflag.FlagSet, each string) {
	s.output.Add(fs)
	fs.StringVar(&s.file, "out", "", "file for the report as JSON, saved after each "+each)
	if s.Resumes {
		fs.StringVar(&s.from, "resume", "", "report to continue from")
	}
	s.quiet.Add(fs)
}

// Check refuses flags that cannot be, before anything is measured.
func (s *Saved) Check() error {
	if err := s.output.Check(); err != nil {
		return err
	}
	return s.quiet.Check()
}

// Measuring is what a run of a benchmark is given beside its own options. The zero value measures anew, at once and in silence.
type Measuring struct {
	Resume   *Report             // the report to continue; nil: none
	Keep     func(*Report) error // keeps one; nil: nobody wants it
	Progress func(string)        // is told what is being done; nil: nobody wants to know
	Quiet    *quiet.Watch        // to begin with where it is ready to measure; nil: it waits for nobody
}

// Say tells what is being done.
func (m *Measuring) Say(format string, args ...any) {
	if m.Progress != nil {
		m.Progress(fmt.Sprintf(format, args...))
	}
}

// Run measures until Ctrl-C or SIGTERM, keeps the report if that is asked for, and writes it as it is asked for.
func (s *Saved) Run(cmd *cobra.Command, measure func(context.Context, Measuring) (*Report, error)) error {
	m := Measuring{Progress: func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }}
	m.Quiet = quiet.New(s.quiet, m.Progress)
	if s.from != "" {
		var err error
		if m.Resume, err = Load(s.from); err != nil {
			return err
		}
	}
	if s.file != "" {
		m.Keep = func(r *Report) error { return ReplaceFile(s.file, r.WriteJSON) }
	}
	// Further signals are without effect, so that a benchmark cleans up after itself: timeout(1) sends two.
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := measure(ctx, m)
	if err != nil {
		return err
	}
	if r.Unfinished && !r.measured() {
		return skerry.Errorf(skerry.CodeUnavailable, "nothing was measured before it was interrupted")
	}
	if m.Keep != nil {
		if err := m.Keep(r); err != nil {
			return err
		}
	}
	return s.output.Write(context.WithoutCancel(ctx), r, cmd.OutOrStdout())
}

// Load reads a report from a file.
func Load(name string) (*Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}
