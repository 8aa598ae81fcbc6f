//go:build linux

package worker

import (
	"errors"
	"testing"

	"skerry.dev/skerry/overlay/hostnet"
)

// unreadable is a network whose counters cannot be read at times.
type unreadable struct {
	fakeNet
	counters map[string]hostnet.Stats // nil: they cannot be read
}

func (u *unreadable) Stats() (map[string]hostnet.Stats, error) {
	if u.counters == nil {
		return nil, errors.New("no counters")
	}
	return u.counters, nil
}

// A reading that fails does not have all instances begin anew at nothing.
func TestCountersThatCannotBeRead(t *testing.T) {
	net := &unreadable{counters: map[string]hostnet.Stats{"a": {RxBytes: 5}}}
	n := newAttachments(net)
	for _, readable := range []bool{true, false} {
		if !readable {
			net.counters = nil
		}
		if got := n.stats()["a"].RxBytes; got != 5 {
			t.Errorf("readable %v: %d bytes, want 5", readable, got)
		}
	}
	net.counters = map[string]hostnet.Stats{}
	if _, there := n.stats()["a"]; there {
		t.Error("an instance that is gone is counted")
	}
}
