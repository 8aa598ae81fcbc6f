package lab

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

const checkpointLab = `
name: NAME
hosts:
- {name: site, role: cluster, root: none, admission: {trusted: [default]}}
- {name: one, role: worker}
- {name: two, role: worker}
`

const checkpointApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [count, ":80"]
    ports: [{name: http, port: 80}]
    probes: {readiness: {tcp: {port: 80}, interval: 1s}}
    resources: {cpu: 100m, memory: 64Mi}
    volumes: [{name: data, empty: {}}]
    mounts: [{volume: data, path: /data}]
    migration: {mode: checkpoint}
    terminationGrace: 1s
`

// with puts a program into the PATH of the lab's hosts that scripts/beside can fetch. It reports whether that is so.
func with(t *testing.T, name string) bool {
	t.Helper()
	dir := testenv.Beside(t, "..", name)
	if dir != "" {
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	}
	return dir != ""
}

// TestMigrationCarriesMemory drains the worker of a service that counts in its memory, there and back. It goes on counting, with its files. Where
// there is no CRIU that works it stays, and the operator is told why.
func TestMigrationCarriesMemory(t *testing.T) {
	works := with(t, "criu") // one that knows new kernels
	s := newSite(t, checkpointLab, checkpointApp)
	first := s.only()
	able := 0
	for _, w := range listOf[view.WorkerView](s, "workers") {
		for _, r := range w.Facts.Runtimes {
			if slices.Contains(r.Abilities, spec.AbilityCheckpoint) {
				able++
			}
		}
	}
	if able < 2 {
		if works {
			t.Fatalf("%d workers write and read what runs:\n%s", able, s.skerry("", "describe", "worker", string(first.Worker)))
		}
		out := string(s.skerry("", "drain", "worker", string(first.Worker), "--timeout", "1m"))
		if now := s.only(); !strings.Contains(out, "cannot: ") || now.Worker != first.Worker || now.Restarts != 0 {
			t.Errorf("it is on %s, was on %s: %s", now.Worker, first.Worker, out)
		}
		return
	}
	answer := regexp.MustCompile(`asked (\d+) times since (\S+)`)
	ask := func() (n int, since string) {
		t.Helper()
		out := string(s.skerry("", "exec", string(first.ID), "--", "/kit", "get", "http://127.0.0.1:80/"))
		m := answer.FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("it answered %q", out)
		}
		n, _ = strconv.Atoi(m[1])
		return n, m[2]
	}
	s.skerry("", "exec", string(first.ID), "--", "/kit", "write", "/data/note", "of before")
	count, since := ask()
	for range 2 {
		was, now := s.evict()
		if now.ID != first.ID {
			t.Fatalf("it is %s on %s, was %s on %s", now.ID, now.Worker, was.ID, was.Worker)
		}
		n, s2 := ask()
		if n != count+1 || s2 != since {
			t.Errorf("it counted %d since %s, and %d since %s before", n, s2, count, since)
		}
		count = n
		note := filepath.Join(s.l.hostDir(string(now.Worker)), "instances", string(first.ID), "volumes", "data", "note")
		if data, err := os.ReadFile(note); err != nil || string(data) != "of before\n" {
			t.Errorf("its file has %q, %v", data, err)
		}
		if text := string(s.skerry("", "describe", "instance", string(first.ID))); !strings.Contains(text, "with its memory; it served nobody for ") {
			t.Errorf("nothing tells how long it served nobody:\n%s", text)
		}
		if left, _ := filepath.Glob(filepath.Join(s.l.hostDir(string(was.Worker)), "instances", "*")); len(left) > 0 {
			t.Errorf("left at %s: %v", was.Worker, left)
		}
	}
	for line := range strings.Lines(string(s.skerry("", "get", "events"))) {
		if strings.Contains(line, "Migrat") || strings.Contains(line, "Checkpoint") || strings.Contains(line, "CameBack") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
