//go:build linux

package oci

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/internal/monitor"
)

// release lets a created container run. "crun start" does no more than write a byte into a pipe in its state directory,
// but as one more process it takes a quarter of a start. The pipe is crun's own affair, so the self-test decides: when
// a container does not run after it was written to, the command is used from then on.
func (d *Driver) release(ctx context.Context, task *monitor.Task, program, root string) error {
	id := string(task.Record().Handle.ID)
	d.mu.Lock()
	byCommand := d.byCommand
	d.mu.Unlock()
	if !byCommand && isCrun(program) && writePipe(filepath.Join(root, id, "exec.fifo")) {
		return nil
	}
	cmd := d.command(ctx, program, "start", id)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := d.begin(cmd, task)
	if err == nil {
		err = cmd.Wait()
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &monitor.CreateError{Message: strings.TrimSpace(cmp.Or(out.String(), err.Error()))}
}

// writePipe does what "crun start" does. It answers false, having done nothing, unless the container is waiting there.
func writePipe(path string) bool {
	for range 20 {
		// Non-blocking: it fails as long as nobody reads at the other end.
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENXIO) {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		if err != nil {
			return false
		}
		defer unix.Close(fd)
		if os.Remove(path) != nil {
			return false
		}
		_, err = unix.Write(fd, []byte{0})
		return err == nil
	}
	return false
}
