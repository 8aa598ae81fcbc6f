package lab

import (
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// TestMigrationLosesNothing asks a service 10,000 times while its one instance is migrated back and forth by draining, while
// an update rolls, is undone, and one that breaks is taken back. No request fails.
func TestMigrationLosesNothing(t *testing.T) {
	o := options(t)
	bin := binaries(t, &o)
	l := bring(t, failuresLab, o)
	s := &apartSite{t, l}
	s.skerry("", "login", "--trust", "-u", "admin", "--password-file", filepath.Join(l.hostDir("site"), "admin-password"), "site:"+clusterAPI)
	s.skerry("", "image", "build", filepath.Join(bin, "kit"), "-t", "demo/kit:1", "--push")
	version := func(n, update string) string {
		return strings.NewReplacer("onReconnect: KEEP", "env: {VERSION: '"+n+"'}\n    update: "+update, "20ms]", "2ms]", "cpu: 20m", "cpu: 400m", "- name: client", "- name: client\n    replicas: 2").Replace(failuresApp)
	}
	const careful = "{canary: {count: 1, for: 2s}, healthyTime: 1s, rollback: automatic, failures: 2}"
	s.skerry(version("1", careful), "apply", "-f", "-", "--timeout", "1m")
	var clients []string
	for _, i := range apartList[skerry.Instance](s, "instances") {
		if i.Service.Service == "client" {
			clients = append(clients, string(i.ID))
		}
	}
	sum := func() (tries, failed int) {
		for _, id := range clients {
			n, f := s.load(id)
			tries, failed = tries+n, failed+f
		}
		return tries, failed
	}
	s.await("the clients ask", func() bool { n, _ := sum(); return n > 100 })
	moves := 0
	back := func() {
		t.Helper()
		list := s.web()
		if len(list) != 1 {
			t.Fatalf("%d instances", len(list))
		}
		at := string(list[0].Worker)
		if out := string(s.skerry("", "drain", "worker", at, "--timeout", "1m")); !strings.Contains(out, "drained") || strings.Contains(out, "stay") {
			t.Fatal(out)
		}
		s.skerry("", "uncordon", at)
		if now := s.web(); len(now) != 1 || string(now[0].Worker) == at || now[0].Restarts != 0 {
			t.Fatalf("it is on %s, was on %s", now[0].Worker, at)
		}
		moves++
	}
	for range 6 {
		back()
	}
	revision := func() string { return s.web()[0].Revision }
	first := revision()
	s.skerry(version("2", careful), "apply", "-f", "-", "--no-wait")
	s.skerry("", "rollout", "status", "shop/web", "-w", "--timeout", "1m")
	second := revision()
	s.skerry("", "rollout", "undo", "shop/web")
	s.skerry("", "rollout", "status", "shop/web", "-w", "--timeout", "1m")
	if third := revision(); first == second || third != first {
		t.Errorf("revisions %s, %s, %s", first, second, third)
	}
	// A version that ends at once is taken back.
	s.skerry(strings.Replace(version("3", careful), `[answer, ":80"]`, "[answer, nowhere]", 1), "apply", "-f", "-", "--no-wait")
	s.await("the bad version is taken back", func() bool {
		return strings.Contains(string(s.skerry("", "rollout", "status", "shop/web")), "was taken back")
	})
	s.await("one instance is left", func() bool { return len(s.web()) == 1 })
	if got := revision(); got != first {
		t.Errorf("revision %s runs, want %s", got, first)
	}
	for tries, _ := sum(); tries < 10_000; tries, _ = sum() {
		back()
	}
	tries, failed := sum()
	if failed != 0 {
		for _, id := range clients {
			why, _ := s.try("", "/bin/sh", "-c", l.Binary+" logs -t "+id+" 2>&1 >/dev/null")
			t.Logf("%s", why)
		}
		t.Errorf("%d requests of %d failed", failed, tries)
	}
	t.Logf("%d requests, %d migrations, 3 updates: %d failed", tries, moves, failed)
}
