//go:build linux

package runtimetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"skerry.dev/skerry/runtime"
)

const childEnv = "SKERRY_RUNTIMETEST_CHILD"

type childJob struct {
	Dir  string
	Spec runtime.Spec
	// Check runs the self-test before the clock begins to tick.
	Check bool
}

// ChildMain makes the test program an agent that starts one task and waits to be killed, when the suite asks for that
// through the environment. TestMain calls it first.
func ChildMain(open func(dir string) (runtime.Driver, error)) {
	text := os.Getenv(childEnv)
	if text == "" {
		return
	}
	err := func() error {
		var job childJob
		if err := json.Unmarshal([]byte(text), &job); err != nil {
			return err
		}
		d, err := open(job.Dir)
		if err != nil {
			return err
		}
		if job.Check {
			d.Check(context.Background())
		}
		// The moment from which the suite counts.
		fmt.Println("begin")
		h, err := d.Start(context.Background(), job.Spec)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(h)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

type child struct {
	cmd *exec.Cmd
	out *bufio.Reader
	in  io.WriteCloser
}

func startChild(t *testing.T, job childJob) *child {
	t.Helper()
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd, bufio.NewReader(out), in}
	if line, err := c.out.ReadString('\n'); line != "begin\n" {
		t.Fatalf("child: %q, %v", line, err)
	}
	return c
}

func (c *child) handle(t *testing.T) (h runtime.Handle) {
	t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("child: %q, %v", line, err)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		t.Fatal(err)
	}
	return h
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait()
	c.in.Close()
}

// killAfter waits real time, because the point is to hit a moment of a start that cannot be seen from outside. The
// test passes whichever moment it hits.
func (c *child) killAfter(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	c.kill(t)
}
