package ctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// told is what a command writes and ends with.
type told struct {
	out, err string
	failed   error
}

// tell runs a command against a server that answers as given, by "METHOD /path".
func tell(t *testing.T, answers map[string]any, args ...string) told {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if do, is := answer.(http.HandlerFunc); is {
			do(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"code":"not-found","detail":"%s %s is not there"}`, r.Method, r.URL.Path)
			return
		}
		json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	t.Setenv("SKERRY_CONFIG", t.TempDir()+"/config")
	t.Setenv("SKERRY_SERVER", server.URL)
	t.Setenv("SKERRY_TOKEN", "x")
	var out, errOut strings.Builder
	cmd := New(Options{})
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return told{out.String(), errOut.String(), err}
}

func exitCode(err error) int {
	var exit *console.Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Code
	}
	return 1
}

type list[T any] struct {
	Items []T `json:"items"`
}

// A plan in which an instance has no place fails in every format.
func TestPlanWithoutPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(file, []byte("metadata: {name: shop}\nspec: {services: []}\n"), 0o600); err != nil {
		t.Fatalf("write the manifest: %v", err)
	}
	plan := view.Plan{Tier: "cluster", List: []view.PlannedCopy{{Service: "front"}, {Service: "front", Worker: "w1"}}}
	for _, format := range []string{"table", "json", "yaml"} {
		got := tell(t, map[string]any{"POST /v1/plan": plan}, "plan", "-f", file, "-o", format)
		if exitCode(got.failed) != console.ExitNotPlaced {
			t.Errorf("-o %s: it ends with %v, want status %d; it wrote %q", format, got.failed, console.ExitNotPlaced, got.out)
		}
	}
}

// A list of which only the newest are shown says so.
func TestCutListsSaySo(t *testing.T) {
	events, records := list[wire.Event]{}, list[auth.AuditRecord]{}
	for n := range 300 {
		events.Items = append(events.Items, wire.Event{Seq: uint64(n + 1), Reason: "Ready"})
		records.Items = append(records.Items, auth.AuditRecord{Seq: uint64(300 - n)})
	}
	page := func(newest func(most int) any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			most := 200
			if text := r.URL.Query().Get("limit"); text != "" {
				fmt.Sscan(text, &most)
			}
			json.NewEncoder(w).Encode(newest(min(most, 300)))
		}
	}
	answers := map[string]any{
		"GET /v1/events": page(func(most int) any { return list[wire.Event]{events.Items[300-most:]} }),
		"GET /v1/audit":  page(func(most int) any { return list[auth.AuditRecord]{records.Items[:most]} }),
	}
	for _, command := range []string{"get events", "events", "get audit"} {
		got := tell(t, answers, append(strings.Fields(command), "-o", "name")...)
		if lines := strings.Count(got.out, "\n"); got.failed != nil || lines != 200 || !strings.Contains(got.err, "only the newest 200") {
			t.Errorf("%s: %d lines, %v, and on standard error %q; want 200 and that only they are shown", command, lines, got.failed, got.err)
		}
		if !strings.Contains(got.out, "/300\n") || strings.Contains(got.out, "/100\n") {
			t.Errorf("%s: those shown are not the newest: %.60q", command, got.out)
		}
	}
	events.Items = events.Items[:3]
	answers["GET /v1/events"] = events
	if got := tell(t, answers, "get", "events"); got.failed != nil || got.err != "" {
		t.Errorf("of 3 events it says %q, %v; want nothing", got.err, got.failed)
	}
}

// --wait waits for applications alone, and is not dropped for others.
func TestWaitOfOthers(t *testing.T) {
	answers := map[string]any{"DELETE /v1/volumes/default/shop/db/0": struct{}{}, "DELETE /v1/snapshots/s1": struct{}{}}
	got := tell(t, answers, "delete", "volume", "shop/db/0", "--wait")
	if got.failed == nil || !strings.Contains(got.failed.Error(), "--wait") || got.out != "" {
		t.Errorf("delete volume --wait: %v with %q, want a refusal", got.failed, got.out)
	}
	// The worker deletes it, which may be away.
	for _, args := range [][]string{{"delete", "volume", "shop/db/0"}, {"delete", "snapshot", "s1"}} {
		if got := tell(t, answers, args...); got.failed != nil || !strings.Contains(got.out, "is being deleted") {
			t.Errorf("%v: %v with %q, want \"is being deleted\"", args, got.failed, got.out)
		}
	}
}

// An upgrade that left out a cluster which was named is no success, and neither is one that upgraded none.
func TestUpgradeThatSkips(t *testing.T) {
	of := func(name string, stage view.UpgradeStage) view.UpgradeCluster {
		return view.UpgradeCluster{Cluster: skerry.ClusterName(name), Stage: stage}
	}
	for name, c := range map[string]struct {
		args  []string
		sites []view.UpgradeCluster
		fails bool
	}{
		"all done":                {[]string{"a", "b"}, []view.UpgradeCluster{of("a", view.StageDone), of("b", view.StageDone)}, false},
		"one by name is skipped":  {[]string{"a", "b"}, []view.UpgradeCluster{of("a", view.StageDone), of("b", view.StageSkipped)}, true},
		"one of all is skipped":   {[]string{"--all"}, []view.UpgradeCluster{of("a", view.StageDone), of("b", view.StageSkipped)}, false},
		"every one of all is not": {[]string{"--all"}, []view.UpgradeCluster{of("a", view.StageSkipped)}, true},
	} {
		upgrade := view.Upgrade{State: view.UpgradeDone, Why: "1 cluster upgraded", Sites: c.sites}
		upgrade.Name = "u"
		if c.args[0] != "--all" {
			upgrade.Clusters = c.args
		}
		got := tell(t, map[string]any{"POST /v1/upgrades": upgrade}, append([]string{"upgrade", "clusters", "--image", "x"}, c.args...)...)
		if (got.failed != nil) != c.fails {
			t.Errorf("%s: it ends with %v, want a failure: %v; it wrote %q", name, got.failed, c.fails, got.out)
		}
	}
}

// What a worker that is out of touch used last is not what it uses.
func TestTopOfLostWorkers(t *testing.T) {
	used := spec.Resources{CPU: 1500}
	workers := list[view.WorkerView]{[]view.WorkerView{
		{Name: "w1", Connected: true, Used: used}, {Name: "w2", Used: used}, {Name: "w3", Connected: true, Lost: true, Used: used},
	}}
	got := tell(t, map[string]any{"GET /v1/workers": workers}, "top", "workers")
	if got.failed != nil {
		t.Fatalf("top workers: %v", got.failed)
	}
	for _, line := range strings.Split(got.out, "\n") {
		if name, rest, _ := strings.Cut(line, " "); strings.HasPrefix(name, "w") && strings.Contains(rest, "1500m") != (name == "w1") {
			t.Errorf("%q; want 1500m for w1 alone", line)
		}
	}
}

// Who follows a log learns that it has ended, and is not left to think that the instance is silent or all was well.
func TestFollowedLogEnds(t *testing.T) {
	answers := map[string]any{
		"GET /v1/instances/front-a":      wire.Instance{ID: "front-a"},
		"GET /v1/instances":              list[wire.Instance]{[]wire.Instance{{ID: "front-a"}, {ID: "front-b"}}},
		"GET /v1/instances/front-a/logs": map[string]string{"line": "hello"},
		"GET /v1/instances/front-b/logs": map[string]string{"line": "hello"},
	}
	for _, args := range [][]string{{"logs", "front-a"}, {"logs", "-f", "front-a"}} {
		got := tell(t, answers, args...)
		if got.failed != nil || got.out != "hello\n" {
			t.Errorf("%v: %q, %v; want hello", args, got.out, got.failed)
		}
		if follows := len(args) > 2; strings.Contains(got.err, "front-a") != follows || strings.Contains(got.err, "ended") != follows {
			t.Errorf("%v: it says %q; want that the log of front-a has ended: %v", args, got.err, follows)
		}
	}
}

// What an earlier run of a job came to is not the result of the one that is waited for.
func TestWaitsForThePresentRun(t *testing.T) {
	job := func(pending bool, result string) view.AppView {
		return view.AppView{Key: skerry.AppKey{Namespace: "default", Name: "report"}, Services: []view.ServiceView{{Name: "sum",
			Mode: spec.ModeJob, Pending: pending, Runs: []view.RunView{{ID: "1", Result: result}}}}}
	}
	for name, c := range map[string]struct {
		shown []view.AppView
		fails string
	}{
		"done":                         {[]view.AppView{job(false, "Succeeded")}, ""},
		"done, and to run once more":   {[]view.AppView{job(true, "Succeeded")}, "has not completed"},
		"failed, and to run once more": {[]view.AppView{job(true, "Failed"), job(false, "Succeeded")}, ""},
	} {
		watch := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			for n := range c.shown {
				json.NewEncoder(w).Encode(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchApp, App: &c.shown[n]})
			}
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
		got := tell(t, map[string]any{"GET /v1/apps/default/report": c.shown[0], "GET /v1/watch": http.HandlerFunc(watch)},
			"wait", "report", "--for", "completed", "--timeout", "1s")
		if (got.failed != nil) != (c.fails != "") || got.failed != nil && !strings.Contains(got.failed.Error(), c.fails) {
			t.Errorf("%s: it ends with %v and writes %q; want an error with %q", name, got.failed, got.out, c.fails)
		}
	}
}

// An application whose instances were out of touch is deleted, but nobody knows that they have ended: that is said.
func TestDeletedOutOfTouch(t *testing.T) {
	key := skerry.AppKey{Namespace: "default", Name: "shop"}
	for _, away := range []bool{false, true} {
		watch := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			out := json.NewEncoder(w)
			inst := wire.Instance{ID: "front-a", Service: skerry.ServiceKey{App: key, Service: "front"}, State: skerry.Running}
			out.Encode(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchApp, App: &view.AppView{Key: key}})
			out.Encode(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchInstance, Instance: &inst})
			if away {
				inst.Conditions = []skerry.Condition{{Type: skerry.Reachable, Reason: "its site is not in touch"}}
				out.Encode(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchInstance, Instance: &inst})
			}
			out.Encode(api.WatchMessage{Type: api.WatchDeleted, Kind: api.WatchInstance, ID: inst.ID})
			out.Encode(api.WatchMessage{Type: api.WatchDeleted, Kind: api.WatchApp, Key: &key})
		}
		got := tell(t, map[string]any{"DELETE /v1/apps/default/shop": struct{}{}, "GET /v1/watch": http.HandlerFunc(watch)},
			"delete", "app", "shop", "--wait")
		if got.failed != nil || !strings.Contains(got.out, "app/shop is deleted") {
			t.Errorf("out of touch %v: %v with %q, want that it is deleted", away, got.failed, got.out)
		}
		if told := strings.Contains(got.err, "front-a"); told != away {
			t.Errorf("out of touch %v: it says %q; want a word about front-a: %v", away, got.err, away)
		}
	}
}

// What the server refuses is not said to be done.
func TestRestartOfNothing(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"code":"conflict","detail":"nothing restarts: default/shop/idle has no instances"}`)
	}
	got := tell(t, map[string]any{"POST /v1/apps/default/shop/services/idle/restart": http.HandlerFunc(refuse)}, "restart", "shop/idle")
	if got.failed == nil || got.out != "" || !strings.Contains(got.failed.Error(), "has no instances") {
		t.Errorf("it ends with %v and writes %q; want the server's refusal alone", got.failed, got.out)
	}
}

// An application that is not there was not seen to be deleted: kubectl wait --for=delete ends with 0 in silence, and this with a word.
func TestWaitForDeletedOfNothing(t *testing.T) {
	got := tell(t, nil, "wait", "shop", "--for", "deleted")
	if got.failed != nil || strings.Contains(got.out, "is deleted") || !strings.Contains(got.out, "does not exist") {
		t.Errorf("it ends with %v and writes %q; want success, and that it does not exist", got.failed, got.out)
	}
	forbid := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"code":"forbidden","detail":"not yours"}`)
	}
	got = tell(t, map[string]any{"GET /v1/apps/default/shop": http.HandlerFunc(forbid), "GET /v1/watch": http.HandlerFunc(forbid)},
		"wait", "shop", "--for", "deleted")
	if got.failed == nil || got.out != "" {
		t.Errorf("it may not be seen: it ends with %v and writes %q; want a failure", got.failed, got.out)
	}
}

// Where there is no update to show, the status is no success without a word.
func TestRolloutStatusOfNoRollout(t *testing.T) {
	key := skerry.AppKey{Namespace: "default", Name: "shop"}
	done := view.ServiceView{Name: "front", Mode: spec.ModeService, Rollout: &view.RolloutView{Phase: view.RolloutDone}}
	bare := view.ServiceView{Name: "bare", Mode: spec.ModeService}
	job := view.ServiceView{Name: "sum", Mode: spec.ModeJob}
	for name, c := range map[string]struct {
		shown  view.AppView
		target string
		fails  string
	}{
		"a service beside a job":   {view.AppView{Deployed: true, Services: []view.ServiceView{done, job}}, "shop", ""},
		"a job":                    {view.AppView{Deployed: true, Services: []view.ServiceView{done, job}}, "shop/sum", "no updates"},
		"nothing but jobs":         {view.AppView{Deployed: true, Services: []view.ServiceView{job}}, "shop", "no updates"},
		"not deployed":             {view.AppView{Services: []view.ServiceView{bare}}, "shop", "not deployed"},
		"owned by the root":        {view.AppView{Deployed: true, Services: []view.ServiceView{bare}}, "shop", "not known here"},
		"one that is yet to begin": {view.AppView{Deployed: true, Services: []view.ServiceView{done, bare}}, "shop", "have not finished"},
	} {
		c.shown.Key = key
		watch := func(w http.ResponseWriter, r *http.Request) {
			json.NewEncoder(w).Encode(api.WatchMessage{Type: api.WatchSet, Kind: api.WatchApp, App: &c.shown})
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
		got := tell(t, map[string]any{"GET /v1/apps/default/shop": c.shown, "GET /v1/watch": http.HandlerFunc(watch)},
			"rollout", "status", c.target, "--watch", "--timeout", "300ms")
		if c.fails == "" && (got.failed != nil || got.out == "") ||
			c.fails != "" && (got.failed == nil || !strings.Contains(got.failed.Error(), c.fails)) {
			t.Errorf("%s: it ends with %v and writes %q; want a failure with %q", name, got.failed, got.out, c.fails)
		}
	}
}

// A certificate that has expired is not shown as one that is served well.
func TestExpiredCertificates(t *testing.T) {
	now := time.Now()
	certs := list[view.CertificateView]{[]view.CertificateView{
		{Name: "old", Org: "harbour", NotAfter: now.Add(-time.Hour)}, {Name: "new", Org: "harbour", NotAfter: now.Add(1000 * time.Hour)}}}
	got := tell(t, map[string]any{"GET /v1/orgs": map[string]any{"items": []map[string]string{{"name": "harbour"}}},
		"GET /v1/orgs/harbour/certificates": certs}, "get", "certificates")
	if got.failed != nil {
		t.Fatalf("get certificates: %v", got.failed)
	}
	for _, line := range strings.Split(got.out, "\n") {
		name, rest, _ := strings.Cut(line, " ")
		if known := name == "old" || name == "new"; known && strings.Contains(rest, "expired") != (name == "old") {
			t.Errorf("%q; want that old has expired, and new has not", line)
		}
	}
}
