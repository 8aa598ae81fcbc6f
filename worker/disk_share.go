//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/diskuse"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// How often layers are measured: when so much of the disk went since the last time, else once in a while, and never so often that it costs
// more than a part of the time.
const (
	diskLook  = time.Second
	diskSlack = 32 * skerry.MiB
	diskEvery = time.Minute
	diskPart  = 20
)

// diskShares are held by measuring.
type diskShares struct {
	// over says why tasks are being ended that have too much; protected by the server's mu.
	over    map[runtime.TaskID]string
	changed chan struct{} // of capacity 1: a container was started, or one has ended
}

func newDiskShares() diskShares {
	return diskShares{over: map[runtime.TaskID]string{}, changed: make(chan struct{}, 1)}
}

// wake says that there may be something to measure.
func (d *diskShares) wake() {
	select {
	case d.changed <- struct{}{}:
	default: // an earlier one was not seen yet
	}
}

// layer is what a container may write to.
type layer struct {
	handle json.RawMessage
	dirs   []string // volumes of the instance that have no size
	most   diskuse.Use
}

// storageOf is what a container may have on the disk; a machine may fill the disk that it asks for. What was placed before there were
// levels has no limit, as it had none.
func storageOf(a *spec.Assignment, name, driver string) skerry.Bytes {
	if a.Level == "" {
		return 0
	}
	_, res := containerOf(&a.Spec, name)
	n := a.Level.Enforced(res, driver).Storage
	if n > 0 && name == spec.MainContainer {
		n = max(n, a.Spec.MachineDisk())
	}
	return n
}

// filesFor is how many files go with so many bytes, as ext4 makes inodes for a disk.
func filesFor(n skerry.Bytes) int64 { return max(int64(n)/fileSize, 1<<14) }

// fileSize is the share of a disk for which there is a file.
const fileSize = 16 << 10

// filesSize is the opposite of filesFor.
func filesSize(files int64) skerry.Bytes { return skerry.Bytes(files * fileSize) }

// layers lists the containers that are held to a share of the disk.
func (s *Server) layers(ctx context.Context) []layer {
	list, _ := tier.View(ctx, s.Role, func(c *core.Core) (out []layer, _ error) {
		c.Running(func(a *spec.Assignment, name string, handle json.RawMessage) {
			n := storageOf(a, name, runtimeOf(a))
			if n == 0 {
				return
			}
			l := layer{handle: slices.Clone(handle), most: diskuse.Use{Bytes: int64(n), Files: filesFor(n)}}
			if name == spec.MainContainer {
				for i := range a.Spec.Volumes {
					if v := &a.Spec.Volumes[i]; v.Empty != nil && !v.Empty.Memory && v.Empty.Size == 0 || v.Local != nil && v.Local.Size == 0 {
						l.dirs = append(l.dirs, s.volumeSource(a, v))
					}
				}
			}
			out = append(out, l)
		})
		return out, nil
	})
	return list
}

// watchDisk ends containers that have more on the disk than they may, until ctx ends.
func (s *Server) watchDisk(ctx context.Context) {
	s.disk.watch(ctx, func() (skerry.Bytes, bool) { return freeAt(s.opt.Dir) }, func() (held bool) {
		for _, l := range s.layers(ctx) {
			held = true
			s.holdLayer(ctx, l)
		}
		return held
	})
}

// watch calls measure when it is time to, until ctx ends. That says whether there is a container that is held to a share: while there is
// none, nothing looks what is free.
func (d *diskShares) watch(ctx context.Context, freeNow func() (skerry.Bytes, bool), measure func() (held bool)) {
	tick := time.NewTimer(0)
	defer tick.Stop()
	var last, next time.Time // the last measurement, and when another may be
	var had skerry.Bytes     // what was free then
	look, fresh := diskLook, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
			fresh = true // one may write within a second what another that has ended frees: what is free says nothing then
			if look == diskLook {
				continue // it looks already
			}
			look = diskLook
		case <-tick.C:
			free, ok := freeNow()
			now := time.Now()
			if now.After(next) && (fresh || !ok || free < had-diskSlack || now.Sub(last) >= diskEvery) {
				look, fresh = diskEvery, false // also in time for a limit that a running container is given
				if measure() {
					look = diskLook
				}
				took := time.Since(now)
				last, had, next = now, free, now.Add(took*diskPart)
			}
			had = max(had, free) // what others freed in between is no room to hide in
		}
		tick.Reset(look)
	}
}

// holdLayer measures what a container has on the disk, and ends it when that is too much.
func (s *Server) holdLayer(ctx context.Context, l layer) {
	driver, handle, err := s.runtimes.of(l.handle)
	if err != nil {
		return
	}
	var at runtime.Layer
	if layered, ok := driver.(runtime.Layered); ok {
		if at, err = layered.Layer(ctx, handle); err != nil {
			return // it has just ended
		}
	}
	dirs := append(l.dirs, at.Files...)
	if at.Dir != "" {
		dirs = append(dirs, at.Dir)
	}
	use, err := diskuse.Of(dirs, []string{at.Root}, at.Procs, l.most)
	if err != nil {
		s.opt.Log.Warn("measure a layer", "task", string(handle.ID), "err", err)
	}
	use.Bytes += at.Bytes
	use.Files += at.Inodes
	if !use.Over(l.most) {
		return
	}
	why := fmt.Sprintf("more than the %s that it may write to its layer or disk and to volumes without a size", skerry.Bytes(l.most.Bytes))
	switch {
	case use.Deep:
		why = "directories too deep to be measured"
	case use.Bytes <= l.most.Bytes:
		why = fmt.Sprintf("more than %d files in its layer and in volumes without a size, which is the most with %s of storage", l.most.Files,
			skerry.Bytes(l.most.Bytes))
	}
	s.mu.Lock()
	s.disk.over[handle.ID] = why
	s.mu.Unlock()
	s.opt.Log.Info("a container has too much on the disk", "instance", string(handle.Instance), "container", handle.Container, "why", why)
	if err := driver.Stop(ctx, handle, 0); err != nil && ctx.Err() == nil {
		s.opt.Log.Warn("stop", "task", string(handle.ID), "err", err)
	}
}

// endOf is how a container ended, told by its driver and, if the worker ended it for its use of the disk, by that. What it wrote goes
// then: the task stays until its log is not asked for any more.
func (s *Server) endOf(ctx context.Context, d runtime.Driver, h runtime.Handle, e runtime.Exit) wire.Exit {
	exit := exitOf(e)
	s.mu.Lock()
	why, over := s.disk.over[h.ID]
	delete(s.disk.over, h.ID)
	s.mu.Unlock()
	if !over {
		return exit
	}
	if exit.Code != 0 {
		exit.StorageExceeded, exit.Message = true, why
	}
	if l, ok := d.(runtime.Layered); ok {
		if err := l.DropLayer(ctx, h); err != nil {
			s.opt.Log.Warn("drop a layer", "task", string(h.ID), "err", err)
		}
	}
	return exit
}
