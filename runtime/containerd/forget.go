//go:build linux

package containerd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
)

// A task is looked for again so often and so many times: the daemon may still be about to make it, since the agent that
// asked for it died, or about to find out that its shim was killed.
const (
	settleEvery = 20 * time.Millisecond
	settleTries = 5
	refusedMax  = 250
)

// forget ends a task and deletes it with its container. ready says that its start was seen to the end. Of a daemon that is away the error
// is gone's.
func (d *Driver) forget(ctx context.Context, client *Client, id, snapshotter string, ready bool) error {
	absent, refused := 0, 0
	for {
		err := end(ctx, client, id)
		_, said := errors.AsType[*CallError](err)
		switch {
		case gone(err):
			return err
		case err == nil:
			absent = 0
		case NotFound(err):
			if absent++; !ready && busy(id) {
				if absent > refusedMax {
					return fmt.Errorf("containerd does not come to an end with container %s, whose start was broken off", id)
				}
				if absent > settleTries {
					killStrays(id)
				}
			} else if ready || absent > settleTries {
				if snapshotter != "" { // before the container, whose label names it
					for _, key := range []string{id, fillingOf(id)} {
						if err := client.RemoveSnapshot(ctx, snapshotter, key); err != nil {
							return err
						}
					}
				}
				if err := client.DeleteContainer(ctx, id); err != nil && !NotFound(err) {
					return err
				}
				// A shim that was killed leaves it, and so does containerd.
				_ = os.Remove(filepath.Join(shimSockets, fmt.Sprintf("%x", sha256.Sum256([]byte(filepath.Join(client.Socket, Namespace, id))))))
				return nil
			}
		case !said:
			return err
		default:
			if refused++; refused > refusedMax {
				return err
			}
		}
		select {
		case <-time.After(settleEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// left is what is kept of a task that was removed while the daemon was away, and that may have a snapshot: if its start came no further,
// no container tells of that.
type left struct {
	at
	Task runtime.TaskID `json:"task"`
}

// leftDir has them, by the container's ID.
const leftDir = "left"

// putOff has sweep remove later what a daemon that is away knows of a task.
func (d *Driver) putOff(t *monitor.Task, away error) error {
	l := left{Task: t.Record().Handle.ID}
	if err := json.Unmarshal(t.Record().Extra, &l.at); err != nil {
		return err
	}
	d.Options.Log.Warn("containerd is away; what it knows of a task is removed later", "container", l.ID, "err", away)
	if l.Snapshotter == "" {
		return nil // its container tells
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	dir := filepath.Join(d.Options.Dir, leftDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return files.Replace(filepath.Join(dir, l.ID), data, 0o600)
}

// catchUp does what was put off.
func (d *Driver) catchUp(ctx context.Context) {
	names, _ := filepath.Glob(filepath.Join(d.Options.Dir, leftDir, "*"))
	for _, name := range names {
		var l left
		data, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(data, &l)
		}
		if _, known := d.Tasks.Get(runtime.Handle{ID: l.Task}); err == nil && errors.Is(known, runtime.ErrNotFound) { // else it was started anew
			err = d.forget(ctx, d.client(l.Socket), l.ID, l.Snapshotter, true)
		}
		if err == nil {
			err = os.Remove(name)
		}
		if err != nil {
			d.Options.Log.Warn("remove a leftover at containerd", "container", filepath.Base(name), "err", err)
		}
	}
}

// busy reports whether a shim or an OCI runtime is at work on a container.
func busy(id string) bool { return len(strays(id)) > 0 }

// strays lists the processes of shims and OCI runtimes that are at work on a container. All have its ID among their arguments.
func strays(id string) (out []monitor.Process) {
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, c := range cmdlines {
		data, err := os.ReadFile(c)
		if err != nil || !bytes.Contains(data, []byte("\x00"+id+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(c)))
		if p := monitor.Identify(pid); p.PID > 0 {
			out = append(out, p)
		}
	}
	return out
}

// killStrays ends shims that the daemon does not know any more: it forgets one, and lets it live, when who asked for a
// task is gone before the answer.
func killStrays(id string) {
	for _, p := range strays(id) {
		_ = p.Signal(unix.SIGKILL)
	}
	_ = os.RemoveAll(filepath.Join(runcState, Namespace, id))
}

// Where shims of the runc family have the OCI runtime keep its state, and where shims listen, by a digest of what they are for.
const (
	runcState   = "/run/containerd/runc"
	shimSockets = "/run/containerd/s"
)

// endTime is how long is waited for the end of a task that was killed.
const endTime = 10 * time.Second

// end kills a task and deletes it.
func end(ctx context.Context, c *Client, id string) error {
	waitCtx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	// That it has ended, or has not begun, is no matter here: Delete tells.
	if err := c.Kill(waitCtx, id, "", int(unix.SIGKILL), true); gone(err) || ctx.Err() != nil {
		return err
	}
	if _, _, err := c.Wait(waitCtx, id, ""); gone(err) || ctx.Err() != nil {
		return err
	}
	if err := c.DeleteTask(ctx, id); err != nil {
		return fmt.Errorf("end the task: %w", err)
	}
	return nil
}

// gone reports whether an error says that nobody listens at a socket.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
}
