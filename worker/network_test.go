//go:build linux

package worker

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// recordedNet keeps what each Set wanted. The first one waits until it is told to go on.
type recordedNet struct {
	fakeNet
	goOn chan struct{}
	sets []map[string]bool
}

func (n *recordedNet) Set(ctx context.Context, c hostnet.Config) (map[string]wire.Attachment, error) {
	<-n.goOn
	set := map[string]bool{}
	for _, w := range c.Attachments {
		set[w.ID] = true
	}
	n.sets = append(n.sets, set)
	return n.fakeNet.Set(ctx, c)
}

// Of many instances that come at once each Set joins a few, and keeps all that an earlier one has joined. What has nothing to do with them
// waits for none of them.
func TestInstancesJoinAFewAtATime(t *testing.T) {
	net := &recordedNet{goOn: make(chan struct{})}
	n := newAttachments(net)
	old := &spec.Assignment{ID: "old"}
	n.want(old, nil) // of an earlier life
	const many = 60
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			id := skerry.InstanceID(fmt.Sprintf("new-%02d", i))
			if _, at, err := n.add(t.Context(), &spec.Assignment{ID: id}, nil); err != nil || at.NetNS == "" {
				t.Errorf("%s has %+v, %v", id, at, err)
			}
		})
	}
	for wanted := 0; wanted <= many; { // until the others wait for the first
		n.mu.Lock()
		wanted = len(n.wants)
		n.mu.Unlock()
	}
	all.Go(func() {
		if err := n.restore(t.Context()); err != nil {
			t.Error(err)
		}
	})
	close(net.goOn)
	all.Wait()
	before := map[string]bool{"old": true}
	for i, set := range net.sets {
		for id := range before {
			if !set[id] {
				t.Errorf("set %d leaves %s, which was joined", i, id)
			}
		}
		if joined := len(set) - len(before); joined > freshAtOnce {
			t.Errorf("set %d joins %d at once", i, joined)
		}
		before = set
	}
	if len(before) != many+1 || len(net.sets) > many/4 {
		t.Errorf("%d are joined in %d sets; expected %d, in a few", len(before), len(net.sets), many+1)
	}
	if err := n.remove(t.Context(), "old"); err != nil || net.sets[len(net.sets)-1]["old"] {
		t.Errorf("it is still there, %v", err)
	}
}
