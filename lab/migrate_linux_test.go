package lab

import (
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// only gives the one instance of the service.
func (s *liveSite) only() wire.Instance {
	s.t.Helper()
	list := s.web()
	if len(list) != 1 {
		s.t.Fatalf("%d instances", len(list))
	}
	return list[0]
}

// evict drains the worker that the service's one instance is on, and gives the instance from before and as it is elsewhere. It was not
// restarted.
func (s *liveSite) evict() (was, now wire.Instance) {
	s.t.Helper()
	was = s.only()
	out, err := s.at("site", "", "drain", "worker", string(was.Worker), "--timeout", "1m")
	if err != nil || !strings.Contains(out, "drained") || strings.Contains(out, "stay") {
		events, _ := s.try("", s.l.Binary, "get", "events")
		told, _ := s.try("", s.l.Binary, "describe", "worker", string(was.Worker))
		s.t.Fatalf("%v: %s\n%s\n%s", err, out, events, told)
	}
	s.skerry("", "uncordon", string(was.Worker))
	if now = s.only(); now.Worker == was.Worker || now.Restarts != 0 {
		s.t.Fatalf("it is on %s with %d restarts, was on %s", now.Worker, now.Restarts, was.Worker)
	}
	return was, now
}

// TestMigrationLosesNothing asks a service 10,000 times while its one instance is migrated back and forth by draining and by hand, while
// an update rolls, is undone, and one that breaks is taken back. No request fails.
func TestMigrationLosesNothing(t *testing.T) {
	s := newSite(t, failuresLab, "")
	l := s.l
	version := func(n, update string) string {
		return strings.NewReplacer("onReconnect: KEEP", "env: {VERSION: '"+n+"'}\n    update: "+update, "20ms]", "2ms]", "cpu: 20m", "cpu: 400m", "- name: client", "- name: client\n    replicas: 2").Replace(failuresApp)
	}
	const careful = "{canary: {count: 1, for: 2s}, healthyTime: 1s, rollback: automatic, failures: 2}"
	s.skerry(version("1", careful), "apply", "-f", "-", "--timeout", "1m")
	var clients []string
	for _, i := range listOf[wire.Instance](s, "instances") {
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
		began := time.Now().UTC().Format(time.TimeOnly)
		defer func() {
			t.Logf("%s: began to move at %s, ran at %s", s.only().Worker, began, time.Now().UTC().Format(time.TimeOnly))
		}()
		if moves++; moves%3 != 0 {
			s.evict()
			return
		}
		was := s.only()
		s.skerry("", "migrate", string(was.ID), "--reason", "by hand")
		s.await("it has moved", func() bool { list := s.web(); return len(list) == 1 && list[0].Worker != was.Worker })
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
		return strings.Contains(string(s.skerry("", "rollout", "status", "shop/web")), "was rolled back")
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
			t.Log(s.failures(id))
		}
		events, _ := s.try("", l.Binary, "get", "events", "-o", "wide")
		t.Logf("%s", events)
		t.Errorf("%d requests of %d failed", failed, tries)
	}
	t.Logf("%d requests, %d migrations, 3 updates: %d failed", tries, moves, failed)
}
