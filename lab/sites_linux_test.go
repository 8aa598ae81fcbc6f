package lab

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

const lostLab = `
name: NAME
hosts:
- {name: site, role: root, args: [--lost-after, 8s, --keep-alive, 3s]}
- {name: east, role: cluster}
- {name: west, role: cluster}
- {name: e1, role: worker, cluster: east}
- {name: w1, role: worker, cluster: west}
`

const lostApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [answer, ":80"]
    ports: [{name: http, port: 80}]
    probes: {readiness: {http: {port: 80}, interval: 1s}}
    resources: {cpu: 20m, memory: 32Mi}
    onReconnect: keep-original
    terminationGrace: 1s
  - name: ask-east
    replicas: 6
    image: demo/kit:1
    args: [load, "http://web/", 20ms]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {cluster: east}
    terminationGrace: 1s
  - name: ask-west
    replicas: 6
    image: demo/kit:1
    args: [load, "http://web/", 20ms]
    resources: {cpu: 20m, memory: 32Mi}
    placement: {cluster: west}
    terminationGrace: 1s
`

// TestSiteIsLost cuts a site off from its root, while clients at another site ask what runs there: the root starts it
// elsewhere, and when the site is back the first copy goes on, untouched. While it is away its operator changes what is
// there, and the root adopts that. In the end the site loses its power.
func TestSiteIsLost(t *testing.T) {
	s := newSite(t, lostLab, lostApp)
	l := s.l
	first := s.web()[0]
	home, other := string(first.Cluster), "west"
	if home == "west" {
		other = "east"
	}
	at := map[string]string{"east": "e1", "west": "w1"}
	var clients []string // so many that one of them waits for an answer at any moment
	for _, i := range listOf[wire.Instance](s, "instances") {
		if i.Service.Service == "ask-"+other {
			clients = append(clients, string(i.ID))
		}
	}
	load := func() (tries, failed int) {
		for _, client := range clients {
			n, bad := s.load(client)
			tries, failed = tries+n, failed+bad
		}
		return tries, failed
	}
	copies := func() (n int) {
		for _, host := range at {
			list, err := filepath.Glob(filepath.Join(l.hostDir(host), "oci", "tasks", "web-*"))
			if err != nil {
				t.Fatal(err)
			}
			n += len(list)
		}
		return n
	}
	ready := func(site string, n int) bool {
		list := s.web()
		for _, i := range list {
			if site != "" && string(i.Cluster) != site || !skerry.HasCondition(i.Conditions, skerry.Ready) || !skerry.HasCondition(i.Conditions, skerry.Reachable) {
				return false
			}
		}
		return len(list) == n
	}
	goesOn := func() {
		t.Helper()
		before, _ := load()
		s.await("the client goes on", func() bool { n, _ := load(); return n > before+300 })
	}
	s.await("the client asks", func() bool { n, _ := load(); return n > 120 })
	goesOn()
	_, failed := load()

	if err := l.Partition(t.Context(), "site", home, false); err != nil {
		t.Fatal(err)
	}
	s.await("it is started elsewhere", func() bool { return ready(other, 1) })
	if n := copies(); n != 2 {
		t.Errorf("%d copies run", n)
	}
	goesOn()
	if err := l.Heal(t.Context(), "site", home, false); err != nil {
		t.Fatal(err)
	}
	s.await("one copy is left", func() bool { return ready(home, 1) && copies() == 1 })
	if now := s.web()[0]; now.ID != first.ID || now.Restarts != 0 || !now.StartedAt.Equal(first.StartedAt) || now.Fence.Compare(first.Fence) <= 0 {
		t.Errorf("it runs at %s since %s under %v, ran at %s since %s under %v", now.Cluster, now.StartedAt, now.Fence, first.Cluster, first.StartedAt, first.Fence)
	}
	goesOn()
	if _, n := load(); n != failed {
		t.Errorf("%d requests failed", n-failed)
		for _, client := range clients {
			fmt.Fprintln(t.Output(), s.failures(client))
		}
	}

	// Alone, for less than what makes it lost.
	s.login(home)
	if _, err := s.at(home, "", "scale", "shop/web", "2"); err == nil || !strings.Contains(err.Error(), "belongs to the root") {
		t.Errorf("with the root there: %v", err)
	}
	if err := l.Partition(t.Context(), "site", home, false); err != nil {
		t.Fatal(err)
	}
	s.await("the site is told", func() bool { _, err := s.at(home, "", "scale", "shop/web", "2"); return err == nil })
	if out, err := s.at(home, "", "describe", "app", "shop"); err != nil || !strings.Contains(out, "web has 2 instances here, by admin") {
		t.Errorf("%s, %v", out, err)
	}
	s.await("it does it", func() bool { return copies() >= 2 })
	if err := l.Heal(t.Context(), "site", home, false); err != nil {
		t.Fatal(err)
	}
	s.await("the root adopts it", func() bool { return ready(home, 2) && copies() == 2 })
	for _, i := range s.web() {
		if i.Restarts != 0 || i.ID == first.ID && !i.StartedAt.Equal(first.StartedAt) {
			t.Errorf("%s was restarted %d times, runs since %s", i.ID, i.Restarts, i.StartedAt)
		}
	}
	if out := string(s.skerry("", "get", "events")); !strings.Contains(out, "Adopted") || !strings.Contains(out, "Amended") {
		t.Error(out)
	}
	goesOn()

	for _, host := range []string{home, at[home]} {
		if err := l.PowerOff(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
	s.await("what was at the dead site runs elsewhere", func() bool { return ready(other, 2) })
	goesOn()
	_, before := load()
	goesOn()
	if _, n := load(); n != before {
		t.Errorf("%d requests failed after it ran elsewhere", n-before)
	}
}
