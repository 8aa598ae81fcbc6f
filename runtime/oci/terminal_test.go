//go:build linux

package oci

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/runtime"
)

// answering is a user at a terminal who does something when a word has appeared.
type answering struct {
	bytes.Buffer
	answers map[string]func()
}

func (a *answering) Write(b []byte) (int, error) {
	a.Buffer.Write(b)
	for word, f := range a.answers {
		if strings.Contains(a.String(), word) {
			delete(a.answers, word)
			f()
		}
	}
	return len(b), nil
}

// A terminal in a container is one whoever copies between it and the user's: the runtime (runc), or the driver (crun). Nothing
// that a program wrote before it ended is lost.
func TestTerminal(t *testing.T) {
	for _, name := range []string{"crun", "runc", "crun with users", "runc with users"} {
		t.Run(name, func(t *testing.T) {
			program, how, _ := strings.Cut(name, " ")
			d, image := withUsers(t, program, "")
			spec := runtime.Spec{ID: "terminal.main.1", Args: []string{"/bin/workload", "stubborn"}}
			spec.RootFS = []runtime.Mount{runtime.Overlay(image)}
			if how != "" {
				spec.UserNS = &someUsers
			}
			h := begun(t, d, spec)
			run := func(ctx context.Context, spec runtime.ExecSpec, args ...string) (int, error) {
				spec.TTY, spec.Args = true, append([]string{"/bin/workload"}, args...)
				return d.Exec(ctx, h, spec)
			}
			t.Run("all of it", func(t *testing.T) {
				times := 5
				if program == "crun" {
					times = 30 // by itself it would lose one of seven
				}
				for _, text := range append(slices.Repeat([]string{"hello"}, times), strings.Repeat("x", 50_000)) {
					var out bytes.Buffer
					code, err := run(t.Context(), runtime.ExecSpec{Stdout: &out}, "print", text)
					if code != 0 || err != nil || out.String() != text+"\r\n" {
						t.Fatalf("%d, %v, %d of %d bytes", code, err, out.Len(), len(text)+2)
					}
				}
			})
			t.Run("keys and sizes", func(t *testing.T) {
				keys, typed := io.Pipe()
				defer typed.Close()
				sizes := make(chan runtime.WinSize, 1)
				user := &answering{answers: map[string]func(){
					"ready":  func() { sizes <- runtime.WinSize{Rows: 30, Cols: 100} },
					"30 100": func() { go typed.Write([]byte{3}) },
				}}
				code, err := run(t.Context(), runtime.ExecSpec{Stdin: keys, Stdout: user, Resize: sizes}, "sizes")
				if code != 128+2 || err != nil {
					t.Errorf("%d, %v, %q; ^C should end it", code, err, user.String())
				}
			})
			t.Run("given up", func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				user := &answering{answers: map[string]func(){"ready": cancel}}
				if _, err := run(ctx, runtime.ExecSpec{Stdout: user}, "stubborn"); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				task, err := d.Tasks.Get(h)
				if err != nil {
					t.Fatal(err)
				}
				for len(task.Group().Procs()) > 1 { // the one that was given up
					time.Sleep(time.Millisecond)
				}
			})
			t.Run("missing program", func(t *testing.T) {
				var out bytes.Buffer
				code, err := d.Exec(t.Context(), h, runtime.ExecSpec{TTY: true, Args: []string{"/no/such"}, Stdout: &out})
				if code != 127 || err != nil || !strings.Contains(out.String(), "/no/such") || !strings.HasSuffix(out.String(), "\r\n") {
					t.Errorf("%d, %v, %q", code, err, &out)
				}
			})
		})
	}
}
