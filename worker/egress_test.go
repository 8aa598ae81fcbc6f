//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// An instance gets its network with its policy, and another policy while it runs. A worker that gives no networks
// refuses it by name.
func TestEgress(t *testing.T) {
	a := spec.Assignment{ID: "web-1", Spec: spec.ServiceSpec{Name: "web"}, Egress: &spec.Egress{}}
	host := &fakeNet{}
	n := newAttachments(host)
	if _, _, err := n.add(t.Context(), &a, nil); err != nil || host.last.Attachments[0].Egress.String() != "nothing" {
		t.Errorf("%+v, %v", host.last, err)
	}
	if err := n.setEgress(context.Background(), a.ID, nil); err != nil || host.last.Attachments[0].Egress != nil {
		t.Errorf("%+v, %v", host.last, err)
	}
	if err := n.setEgress(context.Background(), "another", &spec.Egress{}); err != nil || len(host.last.Attachments) != 1 {
		t.Errorf("%+v, %v", host.last, err)
	}
	a.Egress, a.Spec.Egress = nil, &spec.Egress{} // from a site of an earlier version
	if _, _, err := n.add(t.Context(), &a, nil); err != nil || host.last.Attachments[0].Egress == nil {
		t.Errorf("%+v, %v", host.last, err)
	}
	_, _, err := newAttachments(nil).add(t.Context(), &a, nil)
	if why, ok := errors.AsType[*runtime.Unsupported](err); !ok || why.Reason == "" {
		t.Errorf("without networks: %v", err)
	}
	a.Spec.Egress = nil
	if _, _, err := newAttachments(nil).add(t.Context(), &a, nil); err != nil {
		t.Errorf("without networks and without a policy: %v", err)
	}
}

// TestBlockOfTheHostsNetwork: a host that cannot take up the block of addresses that it was given says at once in what networks it is.
func TestBlockOfTheHostsNetwork(t *testing.T) {
	f := newOverlayNet(Overlay{Device: &fakeParts{events: make(chan overlay.Event)}}, slog.New(slog.DiscardHandler))
	told := make(chan struct{})
	f.post, f.facts = func(any) {}, func() { close(told) }
	err := &hostnet.Overlap{Block: netip.MustParsePrefix("10.64.0.0/26"), Route: netip.MustParsePrefix("10.0.0.0/8")}
	n := newAttachments(&fakeNet{err: fmt.Errorf("hostnet: %w", err)})
	n.overlayNet = f
	if _, _, err := n.add(t.Context(), &spec.Assignment{ID: "web-1", Spec: spec.ServiceSpec{Name: "web"}}, nil); err == nil {
		t.Error("an instance without a network was joined to it")
	}
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Error("its cluster is not told")
	}
}
