//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// Requests to a file system (linux/fs.h), which golang.org/x/sys/unix does not name.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
)

// still holds everything that could write to the volumes of a claim:
//
//	a volume with a size      its file system is frozen, whoever writes to it waits
//	one without               the control groups of the instance's containers are
type still struct {
	ctx    context.Context // ends when writers have stood still for too long
	cancel context.CancelFunc
	undo   []func() error
	begun  time.Time
	lasted time.Duration
	most   time.Duration
	was    core.Writing
	idle   bool // nothing runs that could write
	loose  bool // a volume has no size: what is started meanwhile can write to it
	ended  bool
}

// standStill runs the hook of the service, and then makes its volumes stand still.
func standStill(ctx context.Context, o *Server, q takeSnapshot, dir string, volumes []spec.SnapshotVolume) (*still, error) {
	was, err := writersNow(ctx, o, q.Claim)
	if err == nil {
		err = runHook(ctx, o, was.Spec, was.Handles)
	}
	if err == nil {
		was, err = writersNow(ctx, o, q.Claim) // the hook may have taken long
	}
	if err == nil && was.Starting {
		err = skerry.Errorf(skerry.CodeConflict, "a container with volume %s is being started", q.Claim).WithHint("try again when it runs")
	}
	if err != nil {
		return nil, err
	}
	most := time.Duration(q.MaxPause)
	if most <= 0 {
		most = spec.DefaultSnapshotPause
	}
	st := &still{begun: time.Now(), most: most, was: was, idle: len(was.Handles) == 0, cancel: func() {}}
	st.loose = slices.ContainsFunc(volumes, func(v spec.SnapshotVolume) bool { return v.Size == 0 })
	st.ctx = ctx
	if !st.idle {
		st.ctx, st.cancel = context.WithTimeout(ctx, most)
	}
	// Containers first: one that waits in the kernel to write to a frozen file system cannot be paused.
	if st.loose {
		for _, handle := range was.Handles {
			if err := st.pause(ctx, o, handle); err != nil {
				return nil, errors.Join(err, st.end())
			}
		}
	}
	for _, v := range volumes {
		if v.Size == 0 {
			continue
		}
		if err := st.freeze(filepath.Join(dir, v.Name, "data")); err != nil {
			return nil, errors.Join(err, st.end())
		}
	}
	return st, nil
}

// freeze freezes the file system of a volume that has one of its own.
func (s *still) freeze(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0); err != nil {
		f.Close()
		return fmt.Errorf("freeze %s: %w", dir, err)
	}
	s.undo = append(s.undo, func() error {
		defer f.Close()
		if err := unix.IoctlSetInt(int(f.Fd()), fiThaw, 0); err != nil {
			return fmt.Errorf("thaw %s: %w", dir, err)
		}
		return nil
	})
	return nil
}

func (s *still) pause(ctx context.Context, o *Server, handle json.RawMessage) error {
	d, h, err := o.runtimes.of(handle)
	if err != nil {
		return err
	}
	p, ok := d.(runtime.Pauser)
	if !ok {
		return skerry.Errorf(skerry.CodeUnsupported, "runtime %s cannot make an instance stand still, and its volume has no size, so that it is not a file system of its own", d.Name()).
			WithHint("give the volume a size (volumes[].local.size), or scale the service down first")
	}
	if err := p.Pause(ctx, h); err != nil {
		return fmt.Errorf("pause %s: %w", h.ID, err)
	}
	s.undo = append(s.undo, func() error { return p.Resume(context.WithoutCancel(ctx), h) })
	return nil
}

// undisturbed refuses a copy during which something was started that could write to it, or that is no longer of the volumes of a claim.
func (s *still) undisturbed(ctx context.Context, o *Server, q takeSnapshot, held *os.File) error {
	if s.idle || s.loose {
		now, err := writersNow(ctx, o, q.Claim)
		if err != nil {
			return err
		}
		if now.There != s.was.There || now.Starts != s.was.Starts {
			return skerry.Errorf(skerry.CodeConflict, "a container with volume %s was started while it was copied", q.Claim).WithHint("try again; `skerry get instances` shows what restarts")
		}
	}
	was, err := held.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(held.Name()); err != nil || !os.SameFile(was, now) {
		return errors.Join(skerry.Errorf(skerry.CodeConflict, "volume %s was restored or deleted while it was copied",
			q.Claim).WithHint("try again"), err)
	}
	return nil
}

// holdClaim lets nobody else copy the volumes of a claim until what it gives is closed: who ended first would have the
// others' writers go on.
func holdClaim(v spec.VolumeClaim, dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = skerry.Errorf(skerry.CodeConflict, "a snapshot of volume %s is being taken", v).WithHint("try again when it is complete")
		}
		return nil, err
	}
	return f, nil
}

// end lets everything go on. It may be called again.
func (s *still) end() (err error) {
	if s.ended {
		return nil
	}
	s.ended = true
	for i := len(s.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, s.undo[i]())
	}
	s.lasted = time.Since(s.begun).Round(time.Millisecond)
	s.cancel()
	return err
}

// over explains an error if it is that time was up.
func (s *still) over(err error) error {
	if errors.Is(context.Cause(s.ctx), context.DeadlineExceeded) && !s.ended {
		return skerry.Errorf(skerry.CodeConflict, "copying the volume takes longer than the %s for which its service may stand still", s.most).
			WithHint("give it longer (--max-pause), scale the service down first, or keep the worker's directory on a file system that clones files (XFS, Btrfs)")
	}
	return err
}
