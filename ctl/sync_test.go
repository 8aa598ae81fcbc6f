package ctl

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// What has left the repository is deleted only if it is what it was when it was looked at: not another application, which somebody made
// under the name since, and none that somebody took the label off.
func TestPruneLooksAgain(t *testing.T) {
	at := time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	of := func(made time.Time, labels map[string]string) view.AppView {
		return view.AppView{Key: skerry.AppKey{Namespace: "default", Name: "web"}, Gen: 1, CreatedAt: made,
			Manifest: &spec.Application{Metadata: spec.Metadata{Name: "web", Labels: labels}}}
	}
	ours := map[string]string{sourceLabel: "shop"}
	for name, c := range map[string]struct {
		list, now view.AppView
		deleted   bool
	}{
		"as it was":                  {of(at, ours), of(at, ours), true},
		"made anew before the round": {of(at.Add(1), nil), of(at.Add(1), nil), false},
		"made anew in the round":     {of(at, ours), of(at.Add(1), nil), false},
	} {
		deleted := false
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			deleted = deleted || r.Method == http.MethodDelete
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(c.now)
		}))
		client, err := api.NewClient(api.ClientOptions{Server: server.URL, Bearer: "token"})
		if err != nil {
			t.Fatalf("make a client: %v", err)
		}
		cmd, out := &cobra.Command{}, &bytes.Buffer{}
		cmd.SetOut(out)
		s := &syncer{app: new(app), cmd: cmd, client: client, flags: syncFlags{name: "shop", prune: true}, told: map[string]bool{},
			known: map[skerry.AppKey]knownApp{c.list.Key: {gen: 1, made: at, source: "shop"}}}
		list := []view.AppView{c.list}
		if err := s.look(t.Context(), list); err != nil {
			t.Fatalf("look: %v", err)
		}
		if errs := s.left(t.Context(), list); len(errs) > 0 {
			t.Errorf("%s: the round fails: %v", name, errs)
		}
		if deleted != c.deleted || strings.Contains(out.String(), "deleted") != c.deleted {
			t.Errorf("%s: deleted is %v, want %v: %s", name, deleted, c.deleted, out)
		}
		server.Close()
	}
}
