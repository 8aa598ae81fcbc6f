package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/gitrepo"
	"skerry.dev/skerry/decide/apps"
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

// refusing is a server with one application, of which it takes new versions unless it refuses them.
func refusing(t *testing.T, shown *view.AppView, refused bool) *api.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch dry := r.URL.Query().Get("dryRun") != ""; {
		case r.Method == http.MethodPost && !dry && refused:
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"code":"conflict","detail":"somebody else was faster"}`)
		case r.Method == http.MethodPost:
			if !dry {
				shown.Gen, shown.Status = 2, "Progressing"
			}
			json.NewEncoder(w).Encode(apps.Applied{Key: shown.Key, Gen: 2})
		case strings.HasSuffix(r.URL.Path, "/web"):
			json.NewEncoder(w).Encode(shown)
		default:
			json.NewEncoder(w).Encode(map[string]any{"items": []view.AppView{*shown}})
		}
	}))
	t.Cleanup(server.Close)
	client, err := api.NewClient(api.ClientOptions{Server: server.URL, Bearer: "token"})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	return client
}

// gitIn runs git in a directory.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	args = append([]string{"-C", dir, "-c", "user.name=Ada", "-c", "user.email=ada@example.org"}, args...)
	out, err := exec.Command("git", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// The note on a commit tells what became of that commit: not the state from before it was applied, and no success of an application that
// it could not be applied to. One that goes on writes its notes in each round.
func TestNoteIsOfItsCommit(t *testing.T) {
	for _, c := range []struct {
		refused, once bool
		want          []string
	}{
		{false, false, []string{"generation: 2", "status: Progressing"}},
		{false, true, []string{"generation: 2", "status: Progressing"}},
		{true, false, []string{"generation: 1", "status: NotApplied", "reason:", "somebody else"}},
		{true, true, []string{"generation: 1", "status: NotApplied", "reason:", "somebody else"}},
	} {
		fleet := t.TempDir()
		manifest := "apiVersion: skerry/v1\nkind: Application\nmetadata: {name: web}\nspec:\n  services:\n" +
			"  - {name: front, runtime: native, command: [/bin/sleep, \"1\"]}\n"
		if err := os.WriteFile(filepath.Join(fleet, "web.yaml"), []byte(manifest), 0o600); err != nil {
			t.Fatalf("write the manifest: %v", err)
		}
		gitIn(t, fleet, "init", "--quiet", "--initial-branch=main")
		gitIn(t, fleet, "add", ".")
		gitIn(t, fleet, "commit", "--quiet", "-m", "Open")
		flags := syncFlags{name: "fleet", once: c.once, noWait: true, writeBack: true}
		flags.repository.URL, flags.repository.Branch, flags.repository.Dir = fleet, "main", filepath.Join(t.TempDir(), "copy")
		repository, err := gitrepo.Open(t.Context(), flags.repository)
		if err != nil {
			t.Fatalf("open the repository: %v", err)
		}
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetOut(t.Output())
		cmd.SetErr(t.Output())
		client := refusing(t, &view.AppView{Key: skerry.AppKey{Namespace: "default", Name: "web"}, Gen: 1, Status: "Ready",
			Manifest: &spec.Application{Metadata: spec.Metadata{Name: "web"}}}, c.refused)
		s := &syncer{app: new(app), cmd: cmd, client: client, repository: repository, flags: flags,
			late: map[skerry.AppKey]bool{}, told: map[string]bool{}}
		if c.once {
			err = s.once(t.Context())
		} else {
			err = errors.Join(s.round(t.Context())...)
		}
		if (err != nil) != c.refused {
			t.Errorf("refused %v, once %v: the round ends with %v, want an error: %v", c.refused, c.once, err, c.refused)
		}
		note := gitIn(t, fleet, "notes", "--ref", "skerry/fleet", "show", "main")
		for _, want := range c.want {
			if !strings.Contains(note, want) {
				t.Errorf("refused %v, once %v: the note has no %q:\n%s", c.refused, c.once, want, note)
			}
		}
	}
}
