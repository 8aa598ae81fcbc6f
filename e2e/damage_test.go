//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// flip changes one bit in the newest version of a record whose key begins like this, in the store of a role that was killed.
func flip(t *testing.T, data, key string) {
	t.Helper()
	path := filepath.Join(data, node.StateFile)
	st, err := store.Open(t.Context(), "sqlite:"+path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := st.List(t.Context(), key)
	if err != nil || len(list) == 0 {
		t.Fatalf("no record %s: %v", key, err)
	}
	if err := st.Close(); err != nil { // all is in the file now
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	value := list[0].Value[:min(len(list[0].Value), 40)]
	for from := 0; ; { // history and free pages have copies of it
		n := bytes.Index(b[from:], value)
		if n < 0 {
			break
		}
		from += n + len(value)
		harmed := bytes.Clone(b)
		harmed[from-len(value)/2] ^= 4
		if err := os.WriteFile(path, harmed, 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := store.Open(t.Context(), "sqlite:"+path, store.Options{})
		if errors.Is(err, store.ErrDamaged) {
			return
		}
		if err := errors.Join(err, st.Close()); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("record %s is not in the file", list[0].Key)
}

// TestDamagedStores: a worker whose store is damaged goes on with what runs. A root and a cluster do not start, change nothing, and say how
// to go on; repaired or restored they are the same site as before.
func TestDamagedStores(t *testing.T) {
	p := newProcesses(t, "worker")
	root, cluster, worker := p.threeRoles()
	c := login(t, "https://127.0.0.1:7480", p.data("root"))
	defer c.Close()
	applied(t, c, "stable", sleeping("stable", 2, 0), 2)
	run := func(fails bool, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, p.program, args...)
		cmd.Env = append(os.Environ(), "SKERRY_PASSPHRASE=a passphrase of a test")
		out, err := cmd.CombinedOutput()
		if (err != nil) != fails {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run(false, "backup", "--data", p.data("root"), p.data("backup"))
	before := nativePIDs(t, p.data("worker"))
	if len(before) != 2 {
		t.Fatalf("%d processes run", len(before))
	}
	runs := func(what string) {
		t.Helper()
		await(t, "two instances are ready "+what, func() bool { return readyOf(t.Context(), c, "stable") == 2 })
		if after := nativePIDs(t, p.data("worker")); !maps.Equal(after, before) {
			t.Errorf("%s: processes %v became %v", what, before, after)
		}
		for id, pid := range before { // with the network that they had
			its, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
			if err != nil {
				t.Fatal(err)
			}
			if now, err := os.Stat(filepath.Join(p.data("run"), string(id))); err != nil || !os.SameFile(its, now) {
				t.Errorf("%s: %s has lost its network (%v)", what, id, err)
			}
		}
	}

	up := func(r *role) {
		t.Helper()
		await(t, "the "+r.name+" is connected", func() bool {
			out, err := exec.Command(p.program, r.name, "status", "--data", p.data(r.name), "-o", "json").Output()
			return err == nil && bytes.Contains(out, []byte(`"connected": true`))
		})
	}
	for _, record := range []string{"inst/", "parent/desired/i/"} {
		worker.kill()
		flip(t, p.data("worker"), record)
		worker.start(t, p.program, p.log)
		up(worker)
		runs("after the worker lost " + record)
	}
	worker.kill()
	if err := os.WriteFile(filepath.Join(p.data("worker"), node.StateFile), []byte("no store at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	worker.start(t, p.program, p.log)
	up(worker)
	runs("after the worker lost its store")
	site := login(t, "https://127.0.0.1:7481", p.data("cluster"))
	defer site.Close()
	await(t, "the site has the event", func() bool {
		list, err := site.Events(t.Context(), api.EventFilter{})
		return err == nil && slices.ContainsFunc(list, func(e wire.Event) bool { return e.Reason == "StoreRepaired" })
	})
	pin := func(r *role) string {
		var st struct {
			Pin string `json:"caPin"`
		}
		out := run(false, r.name, "status", "--data", p.data(r.name), "-o", "json")
		if err := json.Unmarshal([]byte(out), &st); err != nil || st.Pin == "" {
			t.Fatalf("%s: %v", out, err)
		}
		return st.Pin
	}

	for _, r := range []*role{cluster, root} {
		data := p.data(r.name)
		ca := pin(r)
		r.kill()
		flip(t, data, map[string]string{"root": "app/", "cluster": "worker/"}[r.name])
		for range 2 {
			out := run(true, r.args...)
			for _, want := range []string{"is damaged", "skerry restore --data " + data, "skerry repair --data " + data} {
				if !strings.Contains(out, want) {
					t.Errorf("the damaged %s does not say %q: %s", r.name, want, out)
				}
			}
		}
		t.Log(run(false, "repair", "--data", data))
		if out := run(true, "repair", "--data", data); !strings.Contains(out, "not damaged") {
			t.Errorf("repaired twice: %s", out)
		}
		r.start(t, p.program, p.log)
		answered := false
		await(t, "the "+r.name+" works", func() bool {
			out, err := exec.Command(p.program, r.name, "status", "--data", data, "-o", "json").Output()
			if err != nil && answered { // a cluster first stands by until its workers have let it lead
				t.Errorf("the status of the %s was there, and is not any more: %v", r.name, err)
			}
			answered = answered || err == nil
			return err == nil && strings.Contains(string(out), `"caPin"`)
		})
		if now := pin(r); now != ca {
			t.Errorf("the CA of the %s was %s and is %s", r.name, ca, now)
		}
		if r == cluster {
			runs("after the cluster lost a record")
		}
	}
}
