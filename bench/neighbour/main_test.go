package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if args := os.Getenv("NEIGHBOUR"); args != "" {
		if err := run(strings.Fields(args)); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// Each neighbour goes on until it is killed, and is busy meanwhile.
func TestNeighbours(t *testing.T) {
	for _, kind := range []string{"cpu", "memory", "cache", "disk", "network"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "NEIGHBOUR="+kind+" 1", "TMPDIR="+t.TempDir())
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(out).ReadString('\n')
		time.Sleep(200 * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		_ = cmd.Wait() // it was killed
		if line != "ready\n" || cmd.ProcessState.Exited() || cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime() == 0 {
			t.Errorf("%s: said %q, ended %v, used %v: %s", kind, line, cmd.ProcessState, cmd.ProcessState.UserTime(), errs.String())
		}
	}
	for _, args := range []string{"", "cpu", "moon 1", "cpu 0", "cpu x"} {
		if err := run(strings.Fields(args)); err == nil {
			t.Errorf("%q works", args)
		}
	}
}
