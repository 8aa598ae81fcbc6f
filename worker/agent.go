//go:build linux

package worker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/wire"
)

// Agent exchanges the program of a worker's agent.
type Agent interface {
	// Name is that of the program's file in images: skerry, or skerry-worker for the agent alone.
	Name() string
	// Stage makes the program at path the one that is tried for an order, and then has the agent end. An error means that it does
	// not come to a trial; ErrLater that another one is going on, and the order is to come again after it.
	Stage(ctx context.Context, path string, o wire.AgentOrder) error
	// Refuse notes that an order came to nothing, or gives ErrLater as Stage does.
	Refuse(o wire.AgentOrder, why string) error
	// Facts tells how far the last order is, or nil without one.
	Facts() (*wire.AgentFacts, error)
}

// ErrLater says that an order about the agent's program comes at a time when it cannot be taken up.
var ErrLater = errors.New("the agent is itself on trial")

const (
	// An image that cannot be had is tried again so often and after so long: a link may be down.
	fetchTries = 5
	fetchAgain = 10 * time.Second
)

// agentProgram carries out orders about the agent's own program.
type agentProgram struct {
	*Server
	one sync.Mutex // one order at a time

	mu    sync.Mutex
	order *wire.AgentFacts // what is not for Agent to tell: an order that is not staged yet, or cannot be
}

// last tells how far the last order about the agent's program is.
func (p *agentProgram) last() *wire.AgentFacts {
	p.mu.Lock()
	mine := p.order
	p.mu.Unlock()
	if p.opt.Agent == nil {
		return mine
	}
	f, err := p.opt.Agent.Facts()
	if err != nil {
		p.opt.Log.Error("read the record of the agent's programs", "err", err)
	}
	if mine != nil && (f == nil || f.Order < mine.Order) {
		return mine
	}
	return f
}

// upgrade carries out an order, unless that was done before.
func (p *agentProgram) upgrade(ctx context.Context, o wire.AgentOrder) {
	p.one.Lock()
	defer p.one.Unlock()
	if f := p.last(); ctx.Err() != nil || f != nil && f.Order >= o.Seq {
		return
	}
	tell := func(f wire.AgentFacts) {
		f.Order, f.From = o.Seq, p.opt.Version
		p.mu.Lock()
		p.order = &f
		p.mu.Unlock()
		p.tellFacts()
	}
	if p.opt.Agent == nil {
		tell(wire.AgentFacts{Stage: wire.AgentFailed, Why: "the agent of this worker has no program of its own: it is a part of skerry up"})
		return
	}
	p.opt.Log.Info("the agent is to go over to another program", "image", o.Image)
	tell(wire.AgentFacts{Stage: wire.AgentFetching})
	path, err := p.fetch(ctx, o.Image)
	if err == nil {
		err = p.opt.Agent.Stage(ctx, path, o)
	}
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, ErrLater):
		return // the program on trial tells the rest, or the agent's next life begins again
	default:
		p.opt.Log.Error("the agent's new program", "image", o.Image, "err", err)
	}
	switch err := p.opt.Agent.Refuse(o, err.Error()); {
	case errors.Is(err, ErrLater):
		return
	case err != nil:
		p.opt.Log.Error("note it", "err", err)
	}
	tell(wire.AgentFacts{Stage: wire.AgentFailed, Why: err.Error()})
}

// fetch brings an image with the agent's program onto this machine, and gives the program's path.
func (p *agentProgram) fetch(ctx context.Context, ref string) (path string, err error) {
	for try := 1; ; try++ {
		src := p.source.Load()
		if src == nil {
			src = &artifact.Source{Guard: &artifact.Guard{}}
		}
		var img artifact.Image
		img, err = p.opt.Images.Pull(ctx, ref, artifact.HostPlatform(), nil, src)
		if err == nil {
			var dirs []string
			if dirs, err = p.opt.Images.RootFS(ctx, img.Digest, artifact.HostPlatform()); err == nil {
				return programIn(ref, p.opt.Agent.Name(), dirs)
			}
		}
		if try == fetchTries || permanent(err) {
			return "", err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(fetchAgain):
		}
	}
}

// programIn finds the agent's program in the folders of an image, topmost first.
func programIn(ref, name string, dirs []string) (string, error) {
	for _, d := range dirs {
		at := filepath.Join(d, name)
		switch st, err := os.Lstat(at); {
		case err == nil && st.Mode().IsRegular():
			return at, nil
		case err == nil || !errors.Is(err, fs.ErrNotExist):
			return "", skerry.Errorf(skerry.CodeInvalid, "/%s in image %s is not a file", name, ref)
		}
	}
	return "", skerry.Errorf(skerry.CodeInvalid, "image %s has no file /%s, the program of this worker's agent", ref, name).
		WithHint("put %[1]s into the image, or change to another program with `skerry worker upgrade PROGRAM` on the device", name)
}
