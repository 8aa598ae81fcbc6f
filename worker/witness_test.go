//go:build linux

package worker

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/tunnel"
)

// A witness answers by the overlay, too; a sign of life from before it was asked is none.
func TestReachByTheOverlay(t *testing.T) {
	p := &fakeParts{events: make(chan overlay.Event)}
	s := &Server{overlayNet: newOverlayNet(Overlay{Device: p, Tunnel: fakeTunnel{p}, Secret: tunnel.Secret{1}, Tap: "t"}, slog.New(slog.DiscardHandler))}
	ask := func(query string) (string, error) {
		w := httptest.NewRecorder()
		err := requests{s}.serveReach(w, httptest.NewRequest(http.MethodGet, "/reach?"+query, nil))
		return strings.TrimSpace(w.Body.String()), err
	}
	set := func(ago time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ago = ago
	}
	for ago, want := range map[time.Duration]string{0: "false", time.Hour: "false", time.Nanosecond: "true"} {
		set(ago)
		if out, err := ask("peer=7&wait=30ms"); err != nil || out != want {
			t.Errorf("%s ago: %s, %v", ago, out, err)
		}
	}
	for _, bad := range []string{"wait=1s", "peer=-1&wait=1s", "peer=5000000000&wait=1s", "peer=7&wait=1h", "peer=7", "peer=7&target=0.0.0.0:1&wait=1s"} {
		if out, err := ask(bad); err == nil {
			t.Errorf("%s: %s", bad, out)
		}
	}
	never := func(ctx context.Context) bool { <-ctx.Done(); return false }
	if !oneOf(t.Context(), []func(context.Context) bool{never, func(context.Context) bool { return true }, never}) {
		t.Error("one that succeeds does not count")
	}
}
