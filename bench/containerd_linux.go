package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry/artifact"
)

// containerd runs the workload with `ctr run`, by a daemon of the benchmark's own: what a user would run instead.
type containerd struct {
	dir string
	cmd *exec.Cmd
	n   int
}

// newContainerd starts a daemon and gives it the workload as an image. It gives nil when containerd is not installed.
func newContainerd(ctx context.Context, program string) (c *containerd, err error) {
	for _, name := range []string{"containerd", "ctr"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, nil
		}
	}
	c = &containerd{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("containerd: %w", err), c.close())
			c = nil
		}
	}()
	if c.dir, err = os.MkdirTemp("", "skerry-ctr-"); err != nil {
		return c, err
	}
	config := filepath.Join(c.dir, "config.toml")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n",
		filepath.Join(c.dir, "root"), filepath.Join(c.dir, "state"), c.socket())
	if err = os.WriteFile(config, []byte(text), 0o600); err != nil {
		return c, err
	}
	c.cmd = exec.Command("containerd", "--config", config, "--log-level", "error")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // no death signal: it would come when the thread ends that forked
	if err = c.cmd.Start(); err != nil {
		return c, err
	}
	tar := filepath.Join(c.dir, "image.tar")
	if err = exportImage(ctx, c.dir, program, tar); err != nil {
		return c, err
	}
	for range 100 {
		if err = c.ctr(ctx, "version"); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err == nil {
		err = c.ctr(ctx, "image", "import", tar)
	}
	return c, err
}

const ctrImage = "docker.io/bench/firstline:1"

// exportImage makes an image of the workload that containerd reads.
func exportImage(ctx context.Context, dir, program, tar string) error {
	st, err := artifact.Open(filepath.Join(dir, "images"), artifact.Options{})
	if err != nil {
		return err
	}
	defer st.Close()
	if _, err := st.Build(ctx, artifact.BuildOptions{Source: program, Tag: ctrImage}); err != nil {
		return err
	}
	f, err := os.Create(tar)
	if err != nil {
		return err
	}
	return errors.Join(st.Export(ctx, f, ctrImage), f.Close())
}

func (c *containerd) socket() string { return filepath.Join(c.dir, "sock") }

func (c *containerd) ctr(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ctr", append([]string{"--address", c.socket()}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// run gives the time from the command to the workload's first line.
func (c *containerd) run(ctx context.Context) (time.Duration, error) {
	c.n++
	id := fmt.Sprintf("bench%d", c.n)
	cmd := exec.CommandContext(ctx, "ctr", "--address", c.socket(), "run", "--rm", ctrImage, id)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	var msg bytes.Buffer
	cmd.Stderr = &msg
	begin := monotonicNow()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	buf := make([]byte, 64)
	n, err := out.Read(buf)
	killErr := c.ctr(ctx, "task", "kill", "--signal", "SIGKILL", id)
	cmd.Wait() // it ends with the task's status
	if err != nil {
		return 0, fmt.Errorf("ctr run: %w: %s", errors.Join(err, killErr), msg.String())
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(buf[:n])), 10, 64)
	return time.Duration(ns) - begin, err
}

func (c *containerd) close() error {
	stop(c.cmd, syscall.SIGTERM)
	return os.RemoveAll(c.dir)
}
