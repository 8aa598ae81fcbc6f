package report

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A command keeps its report before it is refused, goes on from it, and writes what is new.
func TestSavedRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	refuse, measured := errors.New("refused"), errors.New("not measured")
	run := func(fail bool, follows func(context.Context, *int) error, args ...string) (out, progress string, err error) {
		s := Saved[int]{
			Ways: map[string]func(*int, io.Writer) error{"table": func(r *int, w io.Writer) error { return json.NewEncoder(w).Encode(*r * 100) }, "json": func(r *int, w io.Writer) error { return json.NewEncoder(w).Encode(r) }},
			Read: func(in io.Reader) (r *int, err error) { r = new(int); return r, json.NewDecoder(in).Decode(r) },
		}
		cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) error {
			return s.Run(cmd, func(ctx context.Context, m Measuring[int]) (*int, error) {
				m.Progress("at it")
				if fail {
					return nil, measured
				}
				n := 1
				if m.Resume != nil {
					n += *m.Resume
				}
				return &n, ctx.Err()
			}, follows)
		}}
		s.Add(cmd.Flags(), "number")
		var o, e strings.Builder
		cmd.SetOut(&o)
		cmd.SetErr(&e)
		cmd.SetArgs(args)
		err = cmd.ExecuteContext(t.Context())
		return o.String(), e.String(), err
	}
	out, progress, err := run(false, func(context.Context, *int) error { return refuse }, "--out", file)
	if text, _ := os.ReadFile(file); !errors.Is(err, refuse) || out != "" || string(text) != "1\n" || progress != "at it\n" {
		t.Errorf("%v, %q, %q, %q", err, out, text, progress)
	}
	out, _, err = run(false, nil, "--resume", file, "--out", file)
	if text, _ := os.ReadFile(file); err != nil || out != "200\n" || string(text) != "2\n" {
		t.Errorf("%v, %q, %q", err, out, text)
	}
	if _, _, err := run(true, nil, "--out", file); !errors.Is(err, measured) {
		t.Error(err)
	}
	if text, _ := os.ReadFile(file); string(text) != "2\n" {
		t.Errorf("what failed was kept: %q", text)
	}
	if _, _, err := run(false, nil, "--resume", file+"no"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if out, _, err := run(false, nil, "-o", "json"); err != nil || out != "1\n" {
		t.Errorf("%v, %q", err, out)
	}
}
