//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/upgrade"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// builds makes programs of the same code that differ in their version. The names of the versions are equally long.
func builds(t *testing.T, dir string, versions ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for i, v := range versions {
		out[v] = filepath.Join(dir, "skerry-"+v)
		if i > 0 {
			testenv.Reversioned(t, out[v], out[versions[0]], versions[0], v)
			continue
		}
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w -X main.version="+v, "-o", out[v], "skerry.dev/skerry/cmd/skerry")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", v, err, text)
		}
	}
	return out
}

// client asks an address again and again and counts what fails.
type client struct {
	good, bad atomic.Int64
	last      atomic.Pointer[error]
	stop      context.CancelFunc
	done      sync.WaitGroup
}

func ask(t *testing.T, url string) *client {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c := &client{stop: cancel}
	transport := &http.Transport{DisableKeepAlives: true}
	c.done.Go(func() {
		for ctx.Err() == nil {
			actx, done := context.WithTimeout(ctx, 5*time.Second)
			r, err := http.NewRequestWithContext(actx, http.MethodGet, url, nil)
			if err == nil {
				var resp *http.Response
				if resp, err = transport.RoundTrip(r); err == nil {
					resp.Body.Close()
				}
			}
			done()
			switch {
			case ctx.Err() != nil:
			case err != nil:
				c.bad.Add(1)
				c.last.Store(&err)
			default:
				c.good.Add(1)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return c
}

func (c *client) end() {
	c.stop()
	c.done.Wait()
}

// TestUpgrade has a worker go over to other programs: one that does, one that ends, one that does not reach
// the cluster, and one that hangs. Instances and who asks them must notice nothing; a restart comes back to what passed last.
func TestUpgrade(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	program := builds(t, dir, "trial-v1", "trial-v2", "trial-v3")
	p := processesOf(t, dir, program["trial-v1"], "worker")
	data, log := p.data, p.log
	_, _, worker := p.threeRoles()
	p.stable(2)
	c := login(t, "https://127.0.0.1:7481", data("cluster"))
	before := containerPIDs(t, data("worker"))
	list, err := c.Instances(ctx, api.InstanceFilter{App: "stable"})
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	url := fmt.Sprintf("http://%s:8080/", list[0].Address)
	await(t, "it listens", func() bool {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	visitor := ask(t, url)

	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, program["trial-v1"], append(args, "--data", data("worker"))...).CombinedOutput()
		return string(out), err
	}
	file := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$1\" = version ] && exec echo '{\"client\": \""+name+"\"}'\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	runs := func(version string) {
		t.Helper()
		await(t, version+" runs and is connected", func() bool {
			w, err := c.Worker(ctx, "w1")
			return err == nil && w.Connected && w.Version == version
		})
	}
	again := func() {
		t.Helper()
		worker.kill()
		await(t, "its site has noticed", func() bool { // else it would show the one before as connected
			w, err := c.Worker(ctx, "w1")
			return err == nil && !w.Connected
		})
		worker.start(t, program["trial-v1"], log)
	}
	state := func() upgrade.State {
		t.Helper()
		s, err := upgrade.Open(filepath.Join(data("worker"), "agent"), "").State()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	runs("trial-v1")

	if out, err := run("worker", "upgrade", program["trial-v2"], "--steady", "2s"); err != nil || !strings.Contains(out, "trial-v2 passed its trial") {
		t.Fatalf("%v: %s", err, out)
	}
	runs("trial-v2")
	again()
	runs("trial-v2") // though trial-v1 is what was installed

	for _, bad := range []struct{ path, window, why string }{
		{file("v-ends", "exit 7"), "1m", "v-ends failed its trial: it ended: exit status 7"},
		{file("v-hangs", "exec sleep 1000"), "5s", "v-hangs failed its trial: after 5s: it does not answer"},
		{file("v-lonely", "for a; do shift; [ \"$a\" = 127.0.0.1:7444 ] && a=127.0.0.1:1; set -- \"$@\" \"$a\"; done; exec "+program["trial-v3"]+" \"$@\""), "6s",
			"v-lonely failed its trial: after 6s: it is not connected to its cluster"},
	} {
		out, err := run("worker", "upgrade", bad.path, "--window", bad.window, "--steady", "1s")
		if err == nil || !strings.Contains(out, bad.why) {
			t.Errorf("%s: %v: %s", bad.path, err, out)
		}
		runs("trial-v2")
	}
	if out, err := run("worker", "upgrade", log.Name()); err == nil || !strings.Contains(out, "does not run on this machine") {
		t.Errorf("what is no program: %v: %s", err, out)
	}
	if out, err := run("worker", "status"); err != nil || !strings.Contains(out, "v-lonely failed its trial, trial-v2 took over again") {
		t.Errorf("the status does not tell: %v: %s", err, out)
	}

	// A process that is killed during a trial takes the trial up again.
	if out, err := run("worker", "upgrade", program["trial-v3"], "--steady", "5s", "--no-wait"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	runs("trial-v3")
	worker.kill()
	if s := state(); s.Trial == nil || s.Trial.Version != "trial-v3" {
		t.Fatalf("the trial is over: %+v", s)
	}
	worker.start(t, program["trial-v1"], log)
	await(t, "v3 passes", func() bool { s := state(); return s.Last != nil && s.Last.Version == "trial-v3" && s.Last.Passed })
	runs("trial-v3")

	// The same at the cluster's word.
	image := func(tag, program string) string {
		at := filepath.Join(t.TempDir(), "skerry")
		if err := os.Link(program, at); err != nil {
			t.Fatal(err)
		}
		pushFile(t, c, t.TempDir(), tag, filepath.Dir(at))
		return tag
	}
	if err := c.UpgradeWorker(ctx, "w1", view.UpgradeRequest{Image: "site/agent:never"}); err == nil {
		t.Error("an image that does not exist was taken")
	}
	order := func(image string, stage wire.AgentStage, why string) {
		t.Helper()
		if err := c.UpgradeWorker(ctx, "w1", view.UpgradeRequest{Image: image, Steady: spec.Duration(time.Second), Window: spec.Duration(time.Minute)}); err != nil {
			t.Fatal(err)
		}
		await(t, image+": "+string(stage), func() bool {
			w, err := c.Worker(ctx, "w1")
			return err == nil && w.Facts.Agent != nil && w.Facts.Agent.Order == w.Upgrade.Seq && w.Facts.Agent.Stage == stage && strings.Contains(w.Facts.Agent.Why, why)
		})
	}
	order(image("site/agent:v1", program["trial-v1"]), wire.AgentPassed, "")
	runs("trial-v1")
	order(image("site/agent:bad", filepath.Join(dir, "v-ends")), wire.AgentFailed, "it ended: exit status 7")
	order(image("site/agent:none", log.Name()), wire.AgentFailed, "does not run on this machine")
	order("test/catalog:1", wire.AgentFailed, "has no file /skerry")
	runs("trial-v1")
	if out, err := run("worker", "hold"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := c.UpgradeWorker(ctx, "w1", view.UpgradeRequest{Image: image("site/agent:v2", program["trial-v2"]), Steady: spec.Duration(time.Second)}); err != nil {
		t.Fatal(err)
	}
	again()
	runs("trial-v1")
	if w, err := c.Worker(ctx, "w1"); err != nil || w.Facts.Agent == nil || w.Facts.Agent.Order >= w.Upgrade.Seq {
		t.Errorf("a held worker went on with it: %+v, %v", w.Facts.Agent, err)
	}
	if out, err := run("worker", "release"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	runs("trial-v2")
	await(t, "v2 has passed", func() bool {
		w, err := c.Worker(ctx, "w1")
		return err == nil && w.Facts.Agent.Stage == wire.AgentPassed && w.Facts.Agent.To == "trial-v2"
	})
	events := map[string]int{}
	told, err := c.Events(ctx, api.EventFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range told {
		events[e.Reason]++
	}
	if events["Upgraded"] != 2 || events["UpgradeFailed"] != 3 {
		t.Errorf("the events are %v", events)
	}

	visitor.end()
	if bad := visitor.bad.Load(); bad > 0 || visitor.good.Load() < 1000 {
		t.Errorf("of %d requests %d failed: %v", visitor.good.Load()+bad, bad, *visitor.last.Load())
	}
	t.Logf("%d requests", visitor.good.Load())
	for id, pid := range containerPIDs(t, data("worker")) {
		if before[id] != pid {
			t.Errorf("%s was restarted or moved: process %d, now %d", id, before[id], pid)
		}
	}
	after, err := c.Instances(ctx, api.InstanceFilter{App: "stable"})
	if err != nil || len(after) != 2 {
		t.Fatal(after, err)
	}
	for _, i := range after {
		if i.Restarts != 0 {
			t.Errorf("%s was restarted %d times", i.ID, i.Restarts)
		}
	}
}
