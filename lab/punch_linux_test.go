package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

// punchLab has workers behind NATs of every kind, two of them behind one.
const punchLab = `
name: NAME
hosts:
- {name: root, role: root}
- {name: site, role: cluster}
- {name: nat-f, role: nat, nat: full-cone}
- {name: f, role: worker, behind: nat-f}
- {name: f2, role: worker, behind: nat-f}
- {name: nat-r, role: nat, nat: restricted}
- {name: r, role: worker, behind: nat-r}
- {name: nat-r2, role: nat, nat: restricted}
- {name: r2, role: worker, behind: nat-r2}
- {name: nat-p, role: nat, nat: port-restricted}
- {name: p, role: worker, behind: nat-p}
- {name: nat-s, role: nat, nat: symmetric}
- {name: s, role: worker, behind: nat-s}
- {name: nat-s2, role: nat, nat: symmetric}
- {name: s2, role: worker, behind: nat-s2}
- {name: nat-u, role: nat, nat: udp-blocked}
- {name: u, role: worker, behind: nat-u}
`

// punchApp has an instance on each worker, and clients that count on three.
const punchApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    replicas: 8
    ports: [{name: http, port: 80}]
    probes: {readiness: {http: {port: 80}, interval: 1s}}
    resources: {cpu: 20m, memory: 32Mi}
    placement: {policy: spread}
    terminationGrace: 1s
`

// punchClient asks all of them in turn. A connection may wait for as long as TCP does for the next but one of its retries (1, 3, 7
// and 15 s after it began): a path that is gone is replaced after some seconds, which grow beside other work.
const punchClient = `  - name: ask-WORKER
    image: demo/kit:1
    args: [load, "http://web/", 50ms, 30s]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {worker: WORKER}
    terminationGrace: 1s
`

// TestPunching has real workers behind NATs of all kinds find the paths that these let them have, ask each other by service
// addresses, and keep at it while the NATs are exchanged for others.
func TestPunching(t *testing.T) {
	s := newSite(t, punchLab, punchApp)
	web := map[string]wire.Instance{} // by worker
	for _, i := range s.web() {
		web[string(i.Worker)] = i
	}
	if len(web) != 8 {
		t.Fatalf("the service is on %d of 8 workers", len(web))
	}
	// The clients come once all of the service is ready: whoever asks before is refused.
	app := punchApp
	clients := map[string]string{"p": "", "s2": "", "u": ""}
	for w := range clients {
		app += strings.ReplaceAll(punchClient, "WORKER", w)
	}
	s.must("root", app, "apply", "-f", "-", "--timeout", "1m")
	for w := range clients {
		clients[w] = string(s.instance("shop", "ask-"+w, "").ID)
	}
	path := func(from, to string) overlay.PathStatus {
		for _, p := range s.overlay(from).Peers {
			if p.Name == to {
				return p
			}
		}
		return overlay.PathStatus{}
	}
	paths := func(a, b string, want overlay.PathKind) bool {
		return path(a, b).Path == want && path(b, a).Path == want
	}
	ask := func(from, to string) {
		t.Helper()
		url := fmt.Sprintf("http://%d.web/", web[to].Ordinal)
		if by, _, err := s.get(string(web[from].ID), url, 2); err != nil || by[string(web[to].ID)] != 2 {
			t.Errorf("%s does not reach %s: %v, %v", from, to, by, err)
		}
	}
	over := func(worker string) string {
		if list := s.overlay(worker).Relays; len(list) == 1 {
			return list[0].Over
		}
		return ""
	}

	for _, pair := range []struct {
		a, b string
		want overlay.PathKind
	}{
		{"f", "f2", overlay.PathDirect}, // by their inside addresses
		{"f", "r", overlay.PathDirect},
		{"f", "p", overlay.PathDirect},
		{"f2", "s", overlay.PathDirect},
		{"r", "r2", overlay.PathDirect},
		{"r", "p", overlay.PathDirect},
		{"r2", "s", overlay.PathDirect},
		{"p", "s", overlay.PathRelay},
		{"s", "s2", overlay.PathRelay},
		{"u", "f", overlay.PathRelay},
		{"u", "s", overlay.PathRelay},
	} {
		s.await(fmt.Sprintf("%s and %s: %s", pair.a, pair.b, pair.want), func() bool {
			ask(pair.a, pair.b)
			ask(pair.b, pair.a)
			return paths(pair.a, pair.b, pair.want)
		})
	}
	text, err := s.tryAt("u", "", s.l.Binary, "worker", "status", "--data", s.l.hostDir("u"))
	if want := "site, by TLS: the relay does not answer by UDP, so TLS is used"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v\n%s", err, text)
	}
	for worker, want := range map[string]string{"f": "udp", "s": "udp", "u": "tls"} {
		if got := over(worker); got != want {
			t.Errorf("%s is registered at the relay over %q", worker, got)
		}
	}
	failed := func() (n int) {
		for w, id := range clients {
			before, _ := s.load(id)
			s.await("the client on "+w+" goes on", func() bool { now, _ := s.load(id); return now > before+10 })
			_, f := s.load(id)
			if n += f; f > 0 {
				t.Logf("%s: %d failed\n%s", w, f, s.failures(id))
			}
		}
		return n
	}
	if n := failed(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
	// What the clients ask keeps paths in use; commands of the outside go over links that the exchange breaks.
	for _, change := range []struct {
		router string
		kind   NAT
		a, b   string
		want   overlay.PathKind
	}{
		{"nat-s2", NATPortRestricted, "s2", "p", overlay.PathDirect}, // a kinder one
		{"nat-u", NATRestricted, "u", "s", overlay.PathDirect},       // UDP is no longer blocked
		{"nat-s2", NATSymmetric, "s2", "p", overlay.PathRelay},
		{"nat-u", NATNoUDP, "u", "s", overlay.PathRelay},
		{"nat-r2", NATNoUDP, "r2", "p", overlay.PathRelay}, // of one that has nothing to tell its cluster
	} {
		if err := s.l.SetNAT(t.Context(), change.router, change.kind); err != nil {
			t.Fatal(err)
		}
		s.await(fmt.Sprintf("%s is %s: %s and %s: %s", change.router, change.kind, change.a, change.b, change.want), func() bool { return paths(change.a, change.b, change.want) })
	}
	// The links of both that are behind one were broken, and neither has anything to tell.
	if err := s.l.SetNAT(t.Context(), "nat-f", NATFullCone); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"f", "f2"} {
		s.await("the cluster reaches "+w, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			status, err := s.l.Exec(ctx, "site", exec.Command(s.l.Binary, "exec", string(web[w].ID), "--", "/kit", "lookup", "web"))
			return err == nil && status == 0
		})
	}
	if n := failed(); n > 0 {
		t.Errorf("%d requests failed", n)
	}
	// Between those whose NATs let no direct path be, there was none, however often it was tried.
	for _, pair := range [][2]string{{"p", "s"}, {"s", "p"}} {
		if p := path(pair[0], pair[1]); p.Path != overlay.PathRelay || !strings.Contains(p.Reason, "direct addresses answers") {
			t.Errorf("%+v", p)
		}
	}
	if got := over("u"); got != "tls" {
		t.Errorf("u is registered at the relay over %q", got)
	}
	if events := s.skerry("", "get", "events"); strings.Contains(string(events), "WorkerLost") {
		t.Errorf("a worker was taken for lost:\n%s", events)
	}
	for _, i := range s.web() {
		if web[string(i.Worker)].ID != i.ID || i.Restarts != 0 {
			t.Errorf("%s on %s was started meanwhile", i.ID, i.Worker)
		}
	}
}

// hiddenLab has a whole site behind a NAT, a worker of it behind one more, and a site that can be reached.
const hiddenLab = `
name: NAME
hosts:
- {name: root, role: root}
- {name: office, role: nat, nat: symmetric}
- {name: site, role: cluster, behind: office}
- {name: a, role: worker, cluster: site, behind: office}
- {name: home, role: nat, nat: port-restricted, behind: office}
- {name: a2, role: worker, cluster: site, behind: home}
- {name: far, role: cluster}
- {name: b, role: worker, cluster: far}
`

const hiddenApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    replicas: 2
    ports: [{name: http, port: 80}]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {cluster: site, policy: spread}
    terminationGrace: 1s
  - name: beyond
    image: demo/kit:1
    args: [answer, ":80"]
    ports: [{name: http, port: 80}]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {cluster: far}
    terminationGrace: 1s
`

// TestSiteBehindNAT has a site whose relay nobody can call reach another site, and be reached from there.
func TestSiteBehindNAT(t *testing.T) {
	s := newSite(t, hiddenLab, hiddenApp)
	s.login("far")
	web := s.web()
	var list struct {
		Items []wire.Instance `json:"items"`
	}
	if err := json.Unmarshal(s.must("far", "", "get", "instances", "-o", "json"), &list); err != nil || len(list.Items) != 1 || len(web) != 2 || web[0].Worker == web[1].Worker {
		t.Fatalf("%v, %+v, %+v", err, list.Items, web)
	}
	beyond := string(list.Items[0].ID)
	out := func(from wire.Instance) bool {
		by, _, err := s.get(string(from.ID), "http://beyond/", 2)
		return err == nil && by[beyond] == 2
	}
	in := func() bool {
		text, err := s.at("far", "", "exec", beyond, "--", "/kit", "get", "http://web/", "4")
		return err == nil && strings.Contains(text, string(web[0].ID)) && strings.Contains(text, string(web[1].ID))
	}
	for i := range web {
		if by, _, err := s.get(string(web[i].ID), "http://web/", 4); err != nil || len(by) == 0 {
			t.Errorf("from %s within the site: %v, %v", web[i].Worker, by, err)
		}
		if !out(web[i]) {
			t.Errorf("the other site is not reached from %s", web[i].Worker)
		}
	}
	if !in() {
		t.Error("the site is not reached from the other one")
	}
	if err := s.l.SetNAT(t.Context(), "office", NATPortRestricted); err != nil {
		t.Fatal(err)
	}
	s.await("the other site is reached through another NAT", func() bool { return out(web[0]) })
	s.await("and the site from the other one", in)
}
