//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

const (
	// mendEvery is how often the same image is read through at most: it may be large, and most programs that fail have a whole one.
	mendEvery = 10 * time.Minute
	// mendWithin is how soon after its start a program must fail for its image to be doubted.
	mendWithin = 10 * time.Second
)

// doubts remembers when images were read through, and which tasks the worker has asked to end; protected by Server.mu.
type doubts struct {
	looked map[string]time.Time
	asked  map[runtime.TaskID]bool
}

// mend reads the image of a container through that did not start, or ended soon, and has what is damaged put right. It
// reports whether anything was.
func mend(ctx context.Context, server *Server, assigned *spec.Assignment, container string) bool {
	k, _ := containerOf(&assigned.Spec, container)
	if k == nil || k.Image == "" || server.opt.Images == nil {
		return false
	}
	ref, p := k.Image, platform(runtimeOf(assigned))
	if pinned := assigned.Digest[ref]; pinned != "" {
		ref = pinned
	}
	server.mu.Lock()
	recent := time.Since(server.doubts.looked[ref]) < mendEvery
	if !recent {
		if server.doubts.looked == nil || len(server.doubts.looked) > 1000 {
			server.doubts.looked = map[string]time.Time{}
		}
		server.doubts.looked[ref] = time.Now()
	}
	server.mu.Unlock()
	if recent {
		return false
	}
	src := server.source.Load()
	if src == nil {
		src = &artifact.Source{Guard: &artifact.Guard{}}
	}
	mended, err := artifact.Mend(ctx, server.opt.Images, ref, p, src)
	if err != nil && ctx.Err() == nil {
		server.opt.Log.Warn("look whether an image was damaged", "instance", string(assigned.ID), "image", ref, "err", err)
	}
	if len(mended) == 0 {
		return false
	}
	const most = 3
	text := strings.Join(mended[:min(len(mended), most)], ", ")
	if n := len(mended) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	if err != nil { // what was taken away comes with a later attempt
		text += "; not all of it could be put right yet: " + err.Error()
	}
	server.Post(core.ImageMended{ID: assigned.ID, Text: fmt.Sprintf("image %s was damaged on the disk of this worker, and repaired: %s",
		k.Image, text)})
	return true
}

// doubtful reports whether a start may have failed for the image's sake.
func doubtful(err error) bool {
	if _, ok := errors.AsType[*runtime.Unsupported](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, errLeaseOver) {
		return false
	}
	return true
}

// doubt has the image of a container that has just ended looked at, if it failed soon after its start.
func doubt(ctx context.Context, s *Server, a *spec.Assignment, container string, h runtime.Handle, e runtime.Exit) {
	s.mu.Lock()
	asked := s.doubts.asked[h.ID]
	delete(s.doubts.asked, h.ID)
	s.mu.Unlock()
	if asked || e.Code == 0 || e.OOMKilled || e.Lost || h.Started.IsZero() || e.At.Sub(h.Started) > mendWithin {
		return
	}
	_ = s.caught(func() { mend(ctx, s, a, container) })
}

// ending notes that the worker asks a task to end.
func (d *doubts) ending(id runtime.TaskID) {
	if d.asked == nil || len(d.asked) > 1000 { // those of an earlier life of the agent are not asked for
		d.asked = map[runtime.TaskID]bool{}
	}
	d.asked[id] = true
}
