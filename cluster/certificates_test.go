package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/acmeclient"
	"skerry.dev/skerry/wire"
)

// TestDNSHook calls programs as an operator may write them: one that works, one that fails and says a lot, one that is not there, and one
// that does not end.
func TestDNSHook(t *testing.T) {
	dir := t.TempDir()
	for name, row := range map[string]struct{ text, want string }{
		"works":    {`echo "$@" >> ` + dir + `/log`, "<nil>"},
		"fails":    {`echo out of order >&2; yes | head -c 100000; exit 7`, `the DNS program failed (exit status 7): "out of order\ny`},
		"not one":  {"", "the DNS program failed (fork/exec"},
		"hangs":    {`exec sleep 1000`, "the DNS program did not end in 100ms"},
		"waits":    {`sleep 1000 & echo $! > ` + dir + `/waits.child; wait`, "the DNS program did not end in 1s"},
		"children": {`sleep 1000 & echo $! > ` + dir + `/children.child; exit 0`, "the DNS program failed (exec: WaitDelay expired"},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(dir, name)
			if row.text != "" {
				if err := os.WriteFile(program, []byte("#!/bin/sh\n"+row.text+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			c := newCertifier(ACMEOptions{Hook: program}, "", nil, nil, slog.New(slog.DiscardHandler))
			limit := time.Minute
			switch name {
			case "hangs":
				limit = 100 * time.Millisecond
			case "waits":
				limit = time.Second
			}
			err := c.hook(context.Background(), limit, "set", &acmeclient.Challenge{Record: "_acme-challenge.example.org", Value: "v a$l"})
			if got := fmt.Sprint(err); !strings.HasPrefix(got, row.want) || len(got) > 1000 {
				t.Errorf("hook: got %s, want %s", got, row.want)
			}
			if child := filepath.Join(dir, name+".child"); strings.Contains(row.text, child) {
				childEnds(t, child)
			}
		})
	}
	if said, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || string(said) != "set _acme-challenge.example.org v a$l\n" {
		t.Errorf("the program was called with %q, %v, want set, name and value", said, err)
	}
}

// childEnds waits until what a program started is gone, whose number is in a file.
func childEnds(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the program wrote no number of its child: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for { // until the test's own limit
		if process, err := os.FindProcess(pid); err != nil || errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
			return
		}
		if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); bytes.Contains(stat, []byte(") Z ")) {
			return // nobody has taken its exit status
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestPresentLate asks whether some workers answer a challenge once not all did in time.
func TestPresentLate(t *testing.T) {
	var c *certifier
	var told []string
	c = newCertifier(ACMEOptions{}, "", nil, func(msg any) {
		told = append(told, fmt.Sprintf("%T", msg))
		if late, is := msg.(core.ChallengeLate); is && late.Host == "shop.example.org" {
			c.answered("tok")
		}
	}, slog.New(slog.DiscardHandler))
	c.answerFor = 10 * time.Millisecond
	err := c.Present(context.Background(), &acmeclient.Challenge{Answer: wire.IngressChallenge{Host: "shop.example.org", Token: "tok"}})
	if got := fmt.Sprint(err, told); got != "<nil> [core.ChallengeSet core.ChallengeLate]" {
		t.Errorf("present: got %s, want it to go on with those that answer", got)
	}
}
