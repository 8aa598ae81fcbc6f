//go:build linux

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/execstream"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// serve offers the REST interface of a role and gives it with an admin's client.
func (s *site) serve(name string, b interface {
	api.Backend
	Up() <-chan struct{}
}, st store.Store) (*parents.API, *api.Client) {
	s.t.Helper()
	dir := filepath.Join(s.dir, name) // as in the program, the API has the directory of its role
	a, err := parents.OpenAPI(s.t.Context(), b, st, parents.APIConfig{Dir: dir, Listen: api.Listen{Addr: "127.0.0.1:0"}, Log: s.log})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := a.Open(); err != nil {
		s.t.Fatal(err)
	}
	s.run(name+" API", a.Run, func() error { return nil })
	c, err := api.NewClient(api.ClientOptions{Server: a.URL(), Pin: b.Authority().CAPin()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	password, err := os.ReadFile(filepath.Join(dir, parents.AdminPasswordFile))
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := c.Login(s.t.Context(), auth.AdminUser, strings.TrimSpace(string(password))); err != nil {
		s.t.Fatal(err)
	}
	return a, c
}

const webManifest = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: default/catalog:1
    resources: {cpu: 0.1, memory: 64Mi}
    metrics: {port: 8080, path: /healthz}
    probes: {readiness: {http: {port: 8080, path: /healthz}}}
  - name: box
    image: default/workload:1
    args: [sleep]
    resources: {cpu: 0.1, memory: 64Mi}
`

// TestAPIThroughAllTiers does over HTTPS, at the root and at the cluster, what a user does: push, apply, watch, read logs,
// run a command, forward a port, scrape.
func TestAPIThroughAllTiers(t *testing.T) {
	s := newSite(t)
	_, rc := s.serve("root", s.Root, s.Root.Store)
	_, cc := s.serve("cluster", s.Cluster, s.Cluster.Store)
	ctx := t.Context()

	// An image gets into the built-in registry through the API.
	local, err := artifact.Open(filepath.Join(s.dir, "local"), artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for name, pkg := range map[string]string{"default/catalog:1": "skerry.dev/skerry/examples/shop/catalog", "default/workload:1": workload} {
		bin := filepath.Join(t.TempDir(), "program")
		testenv.Build(t, bin, pkg)
		if _, err := local.Build(ctx, artifact.BuildOptions{Source: bin, Tag: "skerry.local/" + name}); err != nil {
			t.Fatal(err)
		}
		to := &artifact.Source{BaseURL: rc.Server(), Transport: rc.Transport()}
		if _, err := local.Push(ctx, "skerry.local/"+name, "skerry.local/"+name, to, nil); err != nil {
			t.Fatal(err)
		}
	}
	images, err := rc.Images(ctx)
	if err != nil || len(images) != 2 || images[0].Name != "default/catalog:1" || len(images[0].Platforms) != 1 {
		t.Errorf("images: %+v %v", images, err)
	}
	to := &artifact.Source{BaseURL: rc.Server(), Transport: &tlsTransport{}}
	if _, err := local.Push(ctx, "skerry.local/default/catalog:1", "skerry.local/default/catalog:2", to, nil); err == nil {
		t.Error("a push without a login was taken")
	}

	applied, err := rc.Apply(ctx, []byte(webManifest), api.ApplyOptions{})
	if err != nil || !applied.Created {
		t.Fatalf("%+v %v", applied, err)
	}
	web, box := s.watchReady(rc)

	for name, c := range map[string]*api.Client{"root": rc, "cluster": cc} {
		var lines []string
		if err := c.Logs(ctx, web, api.LogOptions{}, func(l api.LogLine) error { lines = append(lines, l.Line); return nil }); err != nil || len(lines) == 0 || !strings.Contains(lines[0], "catalog") {
			t.Errorf("%s: logs: %q %v", name, lines, err)
		}
		ec, closer, err := c.Exec(ctx, box, api.ExecOptions{Command: []string{"/program", "exit", "7"}})
		if err != nil {
			t.Fatalf("%s: exec: %v", name, err)
		}
		for {
			typ, p, err := ec.Read()
			if err != nil {
				t.Fatalf("%s: exec: %v", name, err)
			}
			if typ == execstream.Exit {
				if !strings.Contains(string(p), `"code":7`) {
					t.Errorf("%s: exec: %s", name, p)
				}
				break
			}
		}
		closer.Close()
		conn, err := c.PortForward(ctx, web, 8080)
		if err != nil {
			t.Fatalf("%s: forward: %v", name, err)
		}
		io.WriteString(conn, "GET /healthz HTTP/1.0\r\n\r\n")
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasSuffix(string(answer), "ok\n") {
			t.Errorf("%s: forwarded: %q %v", name, answer, err)
		}
		conn.Close()
		if text, err := c.InstanceMetrics(ctx, web); err != nil || string(text) != "ok\n" {
			t.Errorf("%s: scraped: %q %v", name, text, err)
		}
		if _, err := c.InstanceMetrics(ctx, box); err == nil || skerry.AsError(err).Code != skerry.CodeNotFound {
			t.Errorf("%s: scraped what declares no metrics: %v", name, err)
		}
		targets, err := c.MetricsTargets(ctx)
		if err != nil || len(targets) != 1 || targets[0].Labels["__metrics_path__"] != "/v1/instances/"+string(web)+"/metrics" || !strings.Contains(c.Server(), targets[0].Targets[0]) {
			t.Errorf("%s: targets: %+v %v", name, targets, err)
		}
		if stats, err := c.Stats(ctx, web); err != nil || len(stats) != 1 || stats[0].Stats.Memory == 0 {
			t.Errorf("%s: stats: %+v %v", name, stats, err)
		}
		text, err := c.Metrics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		lintMetrics(t, name, string(text))
		for _, want := range []string{`skerry_instances{state="Running"} 2`, "skerry_links 1", "skerry_store_commits_total", "process_resident_memory_bytes", `skerry_api_requests_total{operation="login",status="200"} 1`, "skerry_core_queue"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: the metrics have no %s", name, want)
			}
		}
	}
	if list, err := rc.Clusters(ctx); err != nil || len(list) != 1 || !list[0].Connected {
		t.Errorf("clusters: %+v %v", list, err)
	}
	if list, err := cc.Workers(ctx); err != nil || len(list) != 1 || !list[0].Connected {
		t.Errorf("workers: %+v %v", list, err)
	} else if v, err := cc.WorkerOverlay(ctx, string(list[0].Name)); err != nil || (v.Off == "") == (v.Handling == "") {
		t.Errorf("the worker's paths: %+v %v", v, err)
	}
	if _, err := cc.WorkerOverlay(ctx, "nobody"); skerry.AsError(err).Code != skerry.CodeNotFound {
		t.Errorf("paths of nobody: %v", err)
	}
	if _, err := cc.Clusters(ctx); skerry.AsError(err).Code != skerry.CodeWrongTier {
		t.Errorf("clusters at a cluster: %v", err)
	}
	var text strings.Builder
	if err := s.Worker.WriteMetrics(ctx, &text); err != nil {
		t.Fatal(err)
	}
	lintMetrics(t, "the worker", text.String())
	for _, m := range []string{"cpu_seconds_total", "memory_bytes", "memory_limit_bytes", "oom_kills_total", "network_received_bytes_total", "disk_written_bytes_total", "cpu_throttled_seconds_total", "cpu_limit_cores"} {
		if !strings.Contains(text.String(), fmt.Sprintf("skerry_instance_%s{instance=%q,namespace=\"default\",app=\"shop\",service=\"web\",container=\"main\"}", m, web)) {
			t.Errorf("the worker's metrics have no %s of web", m)
		}
	}
	control, err := cc.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	checkDashboards(t, text.String()+string(control))
	s.runbook(web)
	audit, err := rc.Audit(ctx, "admin", "exec", 0)
	if err != nil || len(audit) != 1 || audit[0].Object != string(box) || audit[0].Address != "127.0.0.1" {
		t.Errorf("audit: %+v %v", audit, err)
	}
	if err := rc.DeleteApp(ctx, applied.Key); err != nil {
		t.Fatal(err)
	}
	s.await("nothing is left", s.ready(0))
}

// lintMetrics holds metrics to what `promtool check metrics` asks for: each family has its help and its type, and a name by the rules.
func lintMetrics(t *testing.T, of, text string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Errorf("the metrics of %s: %v", of, err)
	}
	for _, p := range problems {
		t.Errorf("the metrics of %s: %s: %s", of, p.Metric, p.Text)
	}
}

// checkDashboards looks up every metric that the dashboards show and that alerts are about in what is really exported.
func checkDashboards(t *testing.T, exported string) {
	t.Helper()
	files, err := filepath.Glob("../docs/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v %v", files, err)
	}
	have := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) |^([a-z_]+)[{ ]`).FindAllStringSubmatch(exported, -1) {
		have[m[1]], have[m[2]] = true, true
	}
	names := regexp.MustCompile(`\b(skerry|process|go)_[a-z_]+`)
	rules, err := os.ReadFile("../docs/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names.FindAllString(string(rules), -1) {
		if !have[name] && !have[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("an alert is about %s, which nobody exports", name)
		}
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Title  string
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(data, &d); err != nil || d.Title == "" {
			t.Errorf("%s: %v", file, err)
		}
		n := 0
		for _, p := range d.Panels {
			for _, x := range p.Targets {
				for _, name := range names.FindAllString(x.Expr, -1) {
					if n++; !have[name] {
						t.Errorf("%s: panel %q shows %s, which nobody exports", file, p.Title, name)
					}
				}
			}
		}
		if n == 0 {
			t.Errorf("%s shows nothing", file)
		}
	}
}

// runbook runs the commands of docs/RUNBOOK.md that only look, at the tier that answers them. Those of an instance are about one that runs.
func (s *site) runbook(web skerry.InstanceID) {
	t := s.t
	t.Helper()
	page, err := os.ReadFile("../docs/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	sk, look := s.commandLine()
	lines := map[string]bool{}
	const verbs = "get|events|describe|explain|rollout (?:status|history)|org list|certificate get|whoami|top"
	for _, m := range regexp.MustCompile("(?m)(?:^|`)skerry ((?:"+verbs+")(?: [^`#\n]*)?)").FindAllStringSubmatch(string(page), -1) {
		lines[strings.TrimSpace(m[1])] = true
	}
	if len(lines) < 10 {
		t.Errorf("only %d commands of the runbook were found", len(lines))
	}
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		args := strings.Fields(strings.NewReplacer("web-x5b2k", string(web), "FIELD", "spec.services.image").Replace(line))
		switch {
		case args[len(args)-1] == "upgrades": // of which there are none, and none at sites
			sk(args...)
		case look(args...) == "": // the root has no workers, for example
			sk(append([]string{"--context", "site"}, args...)...)
		}
	}
}

// watchReady follows a watch until both instances are ready.
func (s *site) watchReady(c *api.Client) (web, box skerry.InstanceID) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	err := c.Watch(ctx, api.WatchFilter{App: "shop"}, func(m api.WatchMessage) error {
		if i := m.Instance; i != nil && i.State == skerry.Running && skerry.HasCondition(i.Conditions, skerry.Ready) {
			if i.Service.Service == "web" {
				web = i.ID
			} else {
				box = i.ID
			}
		}
		if web != "" && box != "" {
			return io.EOF
		}
		return nil
	})
	if err != io.EOF {
		s.dump()
		s.t.Fatal(err)
	}
	return web, box
}

// tlsTransport sends requests without a token.
type tlsTransport struct{}

func (*tlsTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	return t.RoundTrip(r)
}

// TestStalledLogReader has a reader of a busy log stop reading: heartbeats, other logs and commands go on.
func TestStalledLogReader(t *testing.T) {
	s := newSite(t)
	a, rc := s.serve("root", s.Root, s.Root.Store)
	ctx := t.Context()
	noisy := `
apiVersion: skerry/v1
kind: Application
metadata: {name: noisy}
spec:
  services:
  - name: shout
    runtime: native
    command: [/bin/sh, -c, 'i=0; while :; do i=$((i+1)); printf "%0900d\n" $i; done']
    resources: {cpu: 0.3, memory: 64Mi}
`
	if _, err := rc.Apply(ctx, []byte(noisy), api.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await("it runs", s.ready(1))
	id := s.only().ID

	tk, err := a.People.Login(ctx, auth.Credentials{User: auth.AdminUser, Password: s.adminPassword("root")})
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(a.URL())
	for range 3 {
		raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		raw.(*net.TCPConn).SetReadBuffer(4096)
		conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		fmt.Fprintf(conn, "GET /v1/instances/%s/logs?follow=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", id, tk.Access)
		head := make([]byte, 15)
		if _, err := io.ReadFull(conn, head); err != nil || !strings.HasPrefix(string(head), "HTTP/1.1 200") {
			t.Fatalf("%q %v", head, err)
		}
		// and never reads again
	}
	// Follow another copy until more has gone by than all buffers on the way can hold.
	bytes := 0
	err = rc.Logs(ctx, id, api.LogOptions{Follow: true, Tail: 1}, func(l api.LogLine) error {
		if bytes += len(l.Line); bytes > 16<<20 {
			return io.EOF
		}
		return nil
	})
	if err != io.EOF {
		t.Fatal(err)
	}
	worker := func() view.WorkerView {
		list, err := s.Cluster.Workers(ctx)
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v %v", list, err)
		}
		return list[0]
	}
	since := worker().Since
	for range 2 {
		last := worker().ReportAt
		s.await("a report comes", func() bool { return worker().ReportAt.After(last) })
	}
	if w := worker(); !w.Connected || !w.Since.Equal(since) {
		t.Errorf("the worker's link was lost: %+v", w)
	}
	if n := len(s.Cluster.Journal().List(0, func(e *wire.Event) bool {
		return strings.Contains(e.Reason, "Disconnected") || strings.Contains(e.Reason, "Suspect")
	})); n != 0 {
		t.Errorf("%d times a link was in doubt", n)
	}
	if err := rc.DeleteApp(ctx, skerry.AppKey{Namespace: "default", Name: "noisy"}); err != nil {
		t.Fatal(err)
	}
	s.await("nothing is left", s.ready(0))
}

func (s *site) adminPassword(name string) string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, name, parents.AdminPasswordFile))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}
