package report

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
)

// execute runs a command.
func execute(ctx context.Context, cmd *cobra.Command, args ...string) (out, progress string, err error) {
	var o, e bytes.Buffer
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(ctx)
	return o.String(), e.String(), err
}

// A command keeps its report, continues it, and writes what is new.
func TestSavedRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	broke := errors.New("not measured")
	run := func(ctx context.Context, fail error, args ...string) (out, progress string, err error) {
		s := Saved{Resumes: true}
		cmd := &cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error {
			return s.Run(cmd, func(ctx context.Context, m Measuring) (*Report, error) {
				m.Say("at it")
				m.Quiet = nil
				r := New("budget", "", "")
				if err := errors.Join(fail, r.Continue(m)); err != nil {
					return nil, err
				}
				if ctx.Err() == nil {
					r.Add(r.Figure("", "x", ""), 10)
					r.Rounds++
				}
				r.Finish(ctx, m)
				return r, nil
			})
		}}
		s.Add(cmd.Flags(), "number")
		return execute(ctx, cmd, args...)
	}
	samples := func() int {
		r, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Find("", "x", "").Samples)
	}
	out, progress, err := run(t.Context(), nil, "--out", file, "-o", "csv")
	if err != nil || !strings.Contains(out, "1,10,false") || progress != "at it\n" || samples() != 1 {
		t.Errorf("%v, %q, %q", err, out, progress)
	}
	if out, _, err = run(t.Context(), nil, "--resume", file, "--out", file, "-o", "csv"); err != nil || !strings.Contains(out, "2,10,false") || samples() != 2 {
		t.Errorf("%v, %q", err, out)
	}
	if _, _, err := run(t.Context(), broke, "--out", file); !errors.Is(err, broke) || samples() != 2 {
		t.Errorf("%v; what failed was kept: %d samples", err, samples())
	}
	if _, _, err := run(t.Context(), nil, "--resume", file+"no"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if out, _, err := run(stopped, nil, "--resume", file, "--out", file); err != nil || !strings.Contains(out, "It was interrupted") || samples() != 2 {
		t.Errorf("%v, %q", err, out)
	}
	if _, _, err := run(stopped, nil, "--out", file); skerry.AsError(err) == nil || skerry.AsError(err).Code != skerry.CodeUnavailable || samples() != 2 {
		t.Errorf("nothing was measured, and kept: %v, %d samples", err, samples())
	}
}

// The commands show and compare reports of every benchmark, and no others.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	keep := func(name string, write func(io.Writer) error) string {
		file := filepath.Join(dir, name)
		if err := ReplaceFile(file, write); err != nil {
			t.Fatal(err)
		}
		return file
	}
	network := keep("network.json", sample().WriteJSON)
	other := sample()
	other.Kind = "runtime"
	runtime := keep("runtime.json", other.WriteJSON)
	old := keep("old.json", func(w io.Writer) error {
		_, err := io.WriteString(w, `{"schema":"skerry.bench.runtime/1"}`)
		return err
	})
	for _, c := range []struct {
		cmd  *cobra.Command
		args []string
		want string
	}{{showCommand(), []string{network}, "agent.mem"}, {showCommand(), []string{runtime, "-o", "markdown"}, "| agent.mem | 21.1 MiB |"},
		{compareCommand(), []string{network, network}, "0 of 4 figures changed"}} {
		if out, _, err := execute(t.Context(), c.cmd, c.args...); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%v gives %q, %v", c.args, out, err)
		}
	}
	for file, code := range map[string]skerry.Code{runtime: skerry.CodeInvalid, old: skerry.CodeUnsupported} {
		if _, _, err := execute(t.Context(), compareCommand(), network, file); skerry.AsError(err) == nil || skerry.AsError(err).Code != code {
			t.Errorf("%s is compared with another kind: %v", file, err)
		}
	}
	if _, _, err := execute(t.Context(), showCommand(), network, "-o", "yaml"); err == nil {
		t.Error("a report is shown as what there is no form for")
	}
}
