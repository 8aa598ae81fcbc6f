//go:build linux

package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/probe"
)

// A checkpoint is a directory: what CRIU wrote, and the writable layer, whose files the processes have open.
const (
	criuImages = "criu"
	upperTar   = "upper.tar"
	criuConfig = "criu.conf" // in the bundle; runc finds it by an annotation
)

// criuOptions: connections cannot go along, since addresses differ; their sockets are found closed. Locks on files can.
const criuOptions = "tcp-close\nfile-locks\nlink-remap\n"

// unsupported is why checkpoints cannot be made here.
func (d *Driver) unsupported(format string, args ...any) error {
	return &runtime.Unsupported{Ability: runtime.AbilityCheckpoint, Driver: d.Name(), Reason: fmt.Sprintf(format, args...)}
}

// CanCheckpoint writes a small container into files and goes on with it.
func (d *Driver) CanCheckpoint(ctx context.Context) error {
	select {
	case d.trying <- struct{}{}:
		defer func() { <-d.trying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if d.tried {
		return d.cannot
	}
	err := d.tryCheckpoint(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d.tried, d.cannot = true, err
	return err
}

func (d *Driver) tryCheckpoint(ctx context.Context) error {
	if d.Options.Sandbox != (monitor.Sandbox{}) {
		return d.unsupported("CRIU does not see into a sandbox; use runtime oci")
	}
	for _, name := range append([]string{"runc"}, d.runtimes...) {
		if p := monitor.LookPath(name); p != "" && isRunc(p) {
			d.runc = p
			break
		}
	}
	if d.criuPath = monitor.LookPath(d.criu); d.criuPath == "" {
		return d.unsupported("%s is not installed; install CRIU, 4.2 or newer for kernels since 6.16", d.criu)
	}
	if d.runc == "" {
		return d.unsupported("runc is not installed, which works with CRIU; apt-get install runc")
	}
	program, ok := probe.Waiter(goruntime.GOARCH)
	if !ok {
		return d.unsupported("there is no self-test for %s", goruntime.GOARCH)
	}
	layer := filepath.Join(d.Options.Dir, "check", "waiter")
	images := filepath.Join(d.Options.Dir, "check", "checkpoint")
	if err := errors.Join(os.RemoveAll(images), os.MkdirAll(layer, 0o755), os.MkdirAll(images, 0o700)); err != nil {
		return d.unsupported("%v", err)
	}
	defer os.RemoveAll(images)
	if err := files.Program(filepath.Join(layer, "waiter"), bytes.NewReader(program), 0o755); err != nil {
		return d.unsupported("%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	spec := func(n int) runtime.Spec {
		return runtime.Spec{ID: d.CheckID("checkpoint", n), RootFS: []runtime.Mount{runtime.Overlay(layer)}, Args: []string{"/waiter"},
			Dir: "/", Checkpoint: true}
	}
	h, err := d.start(ctx, spec(1), d.runc)
	if err != nil {
		return d.unsupported("%s does not start the self-test: %v", d.runc, err)
	}
	defer d.Remove(context.WithoutCancel(ctx), h)
	version := criuVersion(ctx, d.criuPath)
	if err := d.dump(ctx, h, images); err != nil {
		return d.unsupported("%s cannot write a small container into files on this kernel: %v; install a newer CRIU (4.1 knows the kernels since 6.11, 4.2 those since 6.16)", version, err)
	}
	again, err := d.startFrom(ctx, spec(2), d.runc, images)
	if err != nil {
		return d.unsupported("%s cannot go on from what it has written on this kernel: %v; install a newer CRIU", version, err)
	}
	defer d.Remove(context.WithoutCancel(ctx), again)
	if st, err := d.Status(ctx, again); err != nil || st.State != runtime.StateRunning {
		return d.unsupported("%s: the small container does not run after it was restored: %v %v", version, st.State, err)
	}
	return nil
}

func criuVersion(ctx context.Context, path string) string {
	out, _ := exec.CommandContext(ctx, path, "--version").Output()
	line, _, _ := strings.Cut(string(out), "\n")
	if _, v, ok := strings.Cut(line, "Version: "); ok {
		return "CRIU " + strings.TrimSpace(v)
	}
	return "CRIU"
}

// chooseForCheckpoint gives the runtime for a task that is to be checkpointed, or says why it cannot be.
func (d *Driver) chooseForCheckpoint(ctx context.Context, spec *runtime.Spec) (string, error) {
	if err := d.CanCheckpoint(ctx); err != nil {
		return "", err
	}
	switch {
	case spec.UserNS != nil:
		return "", d.unsupported("it has a user namespace, which CRIU does not write")
	case spec.TTY:
		return "", d.unsupported("its terminal would be lost; leave tty out")
	case spec.SharePID != nil:
		return "", d.unsupported("it shares the processes of another container")
	case spec.RootFS[0].Type != "overlay":
		return "", d.unsupported("its root is a directory of the host")
	}
	return d.runc, nil
}

// Checkpoint writes a task into a directory and ends it.
func (d *Driver) Checkpoint(ctx context.Context, h runtime.Handle, dir string) error {
	if err := d.CanCheckpoint(ctx); err != nil {
		return err
	}
	return d.dump(ctx, h, dir)
}

func (d *Driver) dump(ctx context.Context, handle runtime.Handle, dir string) error {
	task, err := d.Tasks.Get(handle)
	if err != nil {
		return err
	}
	if err := task.Lock(ctx); err != nil {
		return err
	}
	defer task.Unlock()
	rec := task.Record()
	if _, err := os.Stat(task.Path(criuConfig)); err != nil || rec.Runtime != d.runc {
		return d.unsupported("task %s was not started for it", handle.ID)
	}
	if st := task.Status(); st.State != runtime.StateRunning {
		return fmt.Errorf("checkpoint of %s: the task is %s", handle.ID, st.State)
	}
	images, work := filepath.Join(dir, criuImages), task.Path("criu-work")
	if err := errors.Join(os.MkdirAll(images, 0o700), os.MkdirAll(work, 0o700)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, d.runc, "--root", d.root(d.runc), "--criu", d.criuPath, "checkpoint", "--image-path", images,
		"--work-path", work, string(handle.ID))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("checkpoint of %s: %w", handle.ID, criuError(err, out, filepath.Join(work, "dump.log")))
	}
	if _, err := task.Wait(ctx); err != nil { // conmon has seen its end
		return err
	}
	return packUpper(ctx, task.Path("upper"), dir)
}

// Restore goes on with a task from a directory.
func (d *Driver) Restore(ctx context.Context, spec runtime.Spec, dir string) (runtime.Handle, error) {
	if err := d.checkSpec(spec); err != nil {
		return runtime.Handle{}, err
	}
	spec.Checkpoint = true
	program, err := d.chooseForCheckpoint(ctx, &spec)
	if err != nil {
		return runtime.Handle{}, err
	}
	return d.startFrom(ctx, spec, program, dir)
}

// goOn has conmon restore a bundle that is ready.
func (d *Driver) goOn(ctx context.Context, t *monitor.Task, l monitor.Launch, from string) error {
	work := t.Path("criu-work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return err
	}
	l.RuntimeArgs = append(l.RuntimeArgs, "--criu", d.criuPath)
	l.Restore = filepath.Join(from, criuImages)
	if err := t.Start(ctx, l); err != nil {
		if refused, ok := errors.AsType[*monitor.CreateError](err); ok {
			err = criuError(err, []byte(refused.Message), filepath.Join(work, "restore.log"), t.Path("restore.log"))
		}
		return &runtime.StartError{Err: fmt.Errorf("restore: %w", err)}
	}
	return nil
}

// criuError adds what CRIU itself gives as the first error to what the runtime said.
func criuError(err error, out []byte, logs ...string) error {
	for _, log := range logs {
		data, e := os.ReadFile(log)
		if e != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			// Limits of its own that it may not raise do not stop it.
			if _, why, ok := strings.Cut(line, "Error "); ok && !strings.Contains(why, "RLIMIT_NOFILE for self") {
				return errors.New(strings.TrimSpace(why))
			}
		}
	}
	if out = bytes.TrimSpace(out); len(out) > 0 {
		return fmt.Errorf("%w: %s", err, out)
	}
	return err
}

// packUpper writes a writable layer into a checkpoint, with what marks files as deleted.
func packUpper(ctx context.Context, upper, dir string) error {
	return tar(ctx, "-C", upper, "--xattrs", "--xattrs-include=*", "--numeric-owner", "--sparse", "-cf", filepath.Join(dir, upperTar), ".")
}

func unpackUpper(ctx context.Context, dir, upper string) error {
	file := filepath.Join(dir, upperTar)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is no checkpoint: it has no %s", dir, upperTar)
	}
	return tar(ctx, "-C", upper, "--xattrs", "--xattrs-include=*", "--numeric-owner", "--same-permissions", "-xf", file)
}

func tar(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "tar", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
