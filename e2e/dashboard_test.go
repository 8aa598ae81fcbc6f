//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/web"
	"skerry.dev/skerry/wire"
)

const (
	dashboardRoot = "https://127.0.0.1:7480"
	dashboardSite = "https://127.0.0.1:7481"
)

// trap is an application with markup, escapes and addresses of scripts wherever a tenant can put text.
const trap = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"trap"},"spec":{"services":[{"name":"bait","image":"demo/web:1",
"command":["/bin/sh","-c","while :; do echo \"$HTML\"; echo \"$LINK\"; sleep 1; done"],"env":{"HTML":"<img src=x onerror=alert('trapped')>",
"LINK":"\u001b]8;;javascript:alert('trapped')\u001b\\\\link\u001b]8;;\u001b\\\\ \u001b[2J\u001b[31mred"},"resources":{"cpu":0.05,"memory":"32Mi"}}]}}`

// TestDashboard has a real browser use the dashboard of a real `skerry up` with a second worker: web/e2e has what is tried,
// each as a test of its own.
func TestDashboard(t *testing.T) {
	chromium, err := exec.LookPath("chromium-headless-shell") // the browser without what is around pages, which takes a third of its time
	if err != nil {
		chromium, err = exec.LookPath("chromium")
	}
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "the dashboard in a browser", Why: "there is no chromium; scripts/deps installs it"})
	}
	if _, err := os.Stat("../web/node_modules/.installed"); err != nil || !web.Built() {
		t.Skip(&testenv.Unsupported{What: "the dashboard in a browser", Why: "it is not built; make web does"})
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip(&testenv.Unsupported{What: "the dashboard in a browser", Why: "there is no busybox for an image with a shell; scripts/deps installs it"})
	}
	p := newProcesses(t, "up/worker", "w2")
	up := &role{name: "up", args: []string{"up", "--data", p.data("up"), "--name", "w1", "--run-dir", p.data("run"), "--cgroup-parent", p.cgroup(), "--add-context", "", "--address", "127.0.0.1", "--location", "54.32,10.14"}}
	p.start(up)
	root := login(t, dashboardRoot, p.data("up/root"))
	token := joinToken(t, dashboardSite, p.data("up/cluster"), wire.TierWorker)
	w2 := p.start(&role{name: "w2", args: []string{"worker", "--name", "w2", "--data", p.data("w2"), "--cluster", "127.0.0.1:7444", "--join", token, "--run-dir", p.data("run2"),
		"--cgroup-parent", p.cgroup() + "-2", "--address", "127.0.0.1", "--http", "", "--no-overlay"}})
	pushShell(t, root, p.dir, "demo/web:1", busybox)
	await(t, "both workers are there", func() bool {
		list, err := root.Clusters(t.Context())
		n := 0
		for _, c := range list {
			for _, k := range c.Report.Classes {
				n += k.Workers
			}
		}
		return err == nil && n == 2
	})

	applied(t, root, "pair", []byte(`{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"pair"},"spec":{"services":[{"name":"buoy","image":"demo/web:1","replicas":2,
"placement":{"policy":"spread"},"resources":{"cpu":0.05,"memory":"32Mi"}}]}}`), 2)
	applied(t, root, "trap", []byte(trap), 1)
	var mu sync.Mutex
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.Path {
		case "/stop":
			up.kill()
		case "/start":
			if err := up.begin(p.program, p.log); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		case "/kill-worker": // as when its machine loses its power: the agent, and what it runs
			w2.kill()
			if out, err := exec.Command(p.program, "worker", "cleanup", "--yes", "--data", p.data("w2")).CombinedOutput(); err != nil {
				http.Error(w, string(out), http.StatusInternalServerError)
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer control.Close()

	stranger := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "<!doctype html><iframe src=%q></iframe>", dashboardRoot+"/ui/")
	}))
	defer stranger.Close()

	play(t, []string{"CHROMIUM=" + chromium, "SKERRY_CONTROL=" + control.URL, "SKERRY_STRANGER=" + stranger.URL,
		"SKERRY_ROOT_PASSWORD=" + password(t, p.data("up/root")), "SKERRY_SITE_PASSWORD=" + password(t, p.data("up/cluster"))})
}

// play runs what Playwright finds for its arguments, and makes a test of each of its own.
func play(t *testing.T, env []string, args ...string) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	args = append([]string{"node_modules/@playwright/test/cli.js", "test", "--reporter=json"}, args...)
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = "../web"
	cmd.Env = append(append(os.Environ(), "SKERRY_ROOT="+dashboardRoot, "SKERRY_SITE="+dashboardSite,
		"SKERRY_RESULTS="+filepath.Join(t.TempDir(), "results"), "PLAYWRIGHT_JSON_OUTPUT_NAME="+report), env...)
	text, runErr := cmd.CombinedOutput()
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("%v\n%s", runErr, text)
	}
	var r struct {
		Suites []playSuite
		Errors []struct{ Message string }
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	seen := 0
	broken := slices.ContainsFunc(r.Suites, playSuite.failed)
	for _, s := range r.Suites {
		seen += s.report(t, broken)
	}
	for _, e := range r.Errors {
		t.Error(e.Message)
	}
	if seen == 0 || runErr != nil && !t.Failed() {
		t.Fatalf("%d tests ran: %v\n%s", seen, runErr, text)
	}
}

// playSuite is what Playwright tells of a file or a group of tests.
type playSuite struct {
	Suites []playSuite
	Specs  []playSpec
}

type playSpec struct {
	Title string
	OK    bool // it did not fail
	Tests []struct {
		Results []struct {
			Status   string
			Duration float64 // ms
			Errors   []struct{ Message string }
		}
	}
}

func (s playSuite) failed() bool {
	return slices.ContainsFunc(s.Suites, playSuite.failed) || slices.ContainsFunc(s.Specs, func(x playSpec) bool { return !x.OK })
}

// report makes a test of each spec. What was not reached because one before it failed is skipped; without such a failure it must have run.
func (s playSuite) report(t *testing.T, broken bool) (seen int) {
	for _, spec := range s.Specs {
		seen++
		t.Run(spec.Title, func(t *testing.T) {
			passed := false
			for _, test := range spec.Tests {
				for _, res := range test.Results {
					t.Logf("%s after %s", res.Status, time.Duration(res.Duration)*time.Millisecond)
					passed = passed || res.Status == "passed"
					for _, e := range res.Errors {
						t.Error(e.Message)
					}
				}
			}
			switch {
			case passed && spec.OK:
			case spec.OK && broken:
				t.Skip(&testenv.Unsupported{What: spec.Title, Why: "it was not reached, because one before it failed"})
			default:
				t.Error("it did not pass")
			}
		})
	}
	for _, sub := range s.Suites {
		seen += sub.report(t, broken)
	}
	return seen
}

func password(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, parents.AdminPasswordFile))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// pushShell pushes an image of a small server of files with a shell, which counts in its log.
func pushShell(t *testing.T, c *api.Client, dir, tag, busybox string) {
	t.Helper()
	tree := filepath.Join(dir, "image")
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(tree, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "bin", "busybox"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "sleep", "httpd", "ls", "cat"} {
		if err := os.Symlink("busybox", filepath.Join(tree, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\necho serves\nn=0\nwhile :; do n=$((n+1)); echo tick $n; sleep 1; done\n"
	if err := os.WriteFile(filepath.Join(tree, "serve"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	st, err := artifact.Open(filepath.Join(dir, "push"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Build(t.Context(), artifact.BuildOptions{Source: tree, Tag: "skerry.local/" + tag, Platform: artifact.HostPlatform(), Entrypoint: []string{"/serve"}}); err != nil {
		t.Fatal(err)
	}
	src := &artifact.Source{BaseURL: c.Server(), Transport: c.Transport()}
	if _, err := st.Push(t.Context(), "skerry.local/"+tag, "skerry.local/"+tag, src, nil); err != nil {
		t.Fatal(err)
	}
}
